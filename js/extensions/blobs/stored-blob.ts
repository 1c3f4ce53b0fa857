/** A stored blob: what it is, and reading any part of it. */

import { badCall } from "../../errors/base.js";
import { nextTask, timeSlice } from "../../util/clock.js";
import { refused } from "../raw.js";
import { type Asked, responseTo, type Served } from "./http.js";

/** The bytes from `start` up to `end`, which is not among them. Without `start` from the first, without `end` up to the last. */
export interface BlobRange {
  readonly start?: number | undefined;
  readonly end?: number | undefined;
}

/** What is known of a blob without reading it. */
export interface BlobInfo {
  readonly key: string;
  /** In bytes. */
  readonly size: number;
  /** The media type, such as `video/mp4`; empty if neither `put` nor its source said one. */
  readonly type: string;
  /** When it was stored. */
  readonly modified: Date;
}

/** Reads the bytes from `start` up to `end`, which are all in the same chunk. */
export type ReadPart = (
  index: number,
  start: number,
  end: number,
) => Promise<Uint8Array<ArrayBuffer>>;

/** How many chunks are in memory while a `Blob` is made of them. */
const PACKED_PARTS = 32;

/** How long reading goes on without letting other tasks run, in milliseconds. */
const SLICE_MS = 8;

/**
 * A blob as it was when it was got. Its bytes stay in the file until they are read, a chunk at a time. If the key gets
 * another content, what is being read can be read to its end; otherwise reading throws `StaleViewError`: get it again.
 *
 * Its methods reject (and its streams fail) with that error, with `MalformedValueError` if a part is missing, as in a
 * salvaged file, and with the errors of the database.
 */
export class StoredBlob implements BlobInfo {
  readonly key: string;
  readonly size: number;
  readonly type: string;
  readonly modified: Date;
  /** Differs for each content that the key had. */
  readonly version: string;
  private readonly chunkSize: number;
  private readonly read: ReadPart;

  /** @internal */
  constructor(info: BlobInfo, version: string, chunkSize: number, read: ReadPart) {
    this.key = info.key;
    this.size = info.size;
    this.type = info.type;
    this.modified = info.modified;
    this.version = version;
    this.chunkSize = chunkSize;
    this.read = read;
  }

  /**
   * The bytes of a range as a stream, which reads them as it is read.
   *
   * @throws TypeError for a range that is none; what lies behind the end is left out, as `slice` does
   */
  stream(range?: BlobRange): ReadableStream<Uint8Array<ArrayBuffer>> {
    const parts = this.parts(range);
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await parts.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await parts.return();
      },
    });
  }

  /** The bytes of a range in one array, which is yours. */
  async bytes(range?: BlobRange): Promise<Uint8Array<ArrayBuffer>> {
    const { start, end } = this.checked(range);
    const all = new Uint8Array(end - start);
    let at = 0;
    for await (const part of this.parts({ start, end })) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }

  /** Everything as text in UTF-8. */
  async text(): Promise<string> {
    return new TextDecoder().decode(await this.bytes());
  }

  /** A `Blob` of a range. Its bytes are copied, and are the browser's, which may keep them on disk. */
  async blob(range?: BlobRange): Promise<Blob> {
    // Not by a Response, which hides why a stream has failed.
    const parts: BlobPart[] = [];
    let unpacked: BlobPart[] = [];
    for await (const part of this.parts(range)) {
      // What lies in a blob takes no memory of this program.
      if (unpacked.push(part) < PACKED_PARTS) continue;
      parts.push(new Blob(unpacked));
      unpacked = [];
    }
    return new Blob([...parts, ...unpacked], { type: this.type });
  }

  /**
   * The answer to a request for it, as a service worker's `fetch` event or a server has one: ranges (206, 416), so that
   * films seek, `ETag`, `If-None-Match` (304) and `If-Range`. Without a request, all of it.
   */
  response(request?: Asked): Response {
    return responseTo(this as Served, request);
  }

  private checked(range: BlobRange = {}): { start: number; end: number } {
    if (typeof range !== "object" || range === null) {
      throw refused("A range of a blob is an object with start and end.", range);
    }
    const { start = 0, end = Math.max(start, this.size) } = range;
    if (!(Number.isSafeInteger(start) && Number.isSafeInteger(end) && start >= 0 && end >= start)) {
      throw badCall(
        "A range of a blob has a start and an end in bytes, whole numbers from 0, and does not end before it starts. " +
          `Given: ${String(start)} to ${String(end)}.`,
      );
    }
    return { start: Math.min(start, this.size), end: Math.min(end, this.size) };
  }

  /** The range is checked at once, and the rest when it is read. */
  private parts(range?: BlobRange): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
    const { start, end } = this.checked(range);
    return this.chunks(start, end);
  }

  private async *chunks(start: number, end: number): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
    const { chunkSize } = this;
    let isOver = timeSlice(SLICE_MS);
    for (let at = start; at < end; ) {
      const index = Math.floor(at / chunkSize);
      const before = index * chunkSize;
      const until = Math.min(before + chunkSize, end);
      yield await this.read(index, at - before, until - before);
      at = until;
      if (!isOver()) continue;
      await nextTask();
      isOver = timeSlice(SLICE_MS);
    }
  }
}
