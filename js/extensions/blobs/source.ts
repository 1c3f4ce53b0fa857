/** Reads what a program gives to be stored, as chunks of one size. */

import { badCall } from "../../errors/base.js";
import { asBytes, isBuffer } from "../../util/bytes.js";
import { refused } from "../raw.js";

/** What `put` stores. A stream, an iteration and the body of a `Response` are used up by it. */
export type BlobSource =
  | Blob
  | ArrayBuffer
  | ArrayBufferView
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>
  | Response;

/** How much of a `Blob` is read at a time, in bytes. */
const SLICE = 4 << 20;

/** The parts of a source as they come, and what type the source says it is. */
export interface OpenedSource {
  readonly type: string;
  readonly parts: AsyncIterable<unknown>;
  /** Ends it before its end, also while it waits for a part. */
  readonly cancel: (reason: unknown) => void;
}

/**
 * Sources are recognised by what they can do, since those of other realms, as of a frame, are no instances of this one's classes.
 *
 * @throws TypeError for what is no source of bytes, or was used up
 */
export function openSource(source: unknown): OpenedSource {
  const bytes = bytesOf(source);
  if (bytes !== undefined) return { type: "", parts: once(bytes.slice()), cancel: nothing };
  const given = Object(source) as Partial<Blob & Response & ReadableStream<unknown>>;
  if (given.ok !== undefined && given.bodyUsed !== undefined) return ofResponse(given as Response);
  if (typeof given.size === "number" && typeof given.arrayBuffer === "function") {
    return { type: given.type ?? "", parts: partsOfBlob(given as Blob), cancel: nothing };
  }
  if (typeof given.getReader === "function") {
    if (given.locked === true) throw refused("The stream has a reader already.", source);
    return { type: "", ...ofStream(given as ReadableStream) };
  }
  if (typeof (given as AsyncIterable<unknown>)[Symbol.asyncIterator] === "function") {
    return { type: "", parts: given as AsyncIterable<unknown>, cancel: nothing };
  }
  throw refused(
    "put() stores a Blob, a File, bytes, a ReadableStream, an async iterable of bytes, or a Response.",
    source,
  );
}

function ofResponse(response: Response): OpenedSource {
  const { body, bodyUsed, headers, ok, status } = response;
  if (bodyUsed) throw refused("The body of the Response was read already.", response);
  if (!ok || status === 206) {
    throw badCall(`The Response has the status ${status}: it is not what was asked for.`);
  }
  const type = headers.get("content-type") ?? "";
  return body ? { type, ...ofStream(body) } : { type, parts: once(), cancel: nothing };
}

/**
 * Joins and splits parts to chunks of one size; the last one may be shorter. A chunk's buffer is used again for the next.
 *
 * @throws TypeError for a part that is not bytes
 */
export async function* chunksOf(
  parts: AsyncIterable<unknown>,
  size: number,
): AsyncGenerator<Uint8Array, void> {
  const chunk = new Uint8Array(size);
  let filled = 0;
  for await (const part of parts) {
    const bytes = bytesOf(part);
    if (bytes === undefined) {
      throw refused("A stream or an iteration must give bytes, such as Uint8Array.", part);
    }
    for (let at = 0; at < bytes.length; ) {
      const taken = Math.min(size - filled, bytes.length - at);
      chunk.set(bytes.subarray(at, at + taken), filled);
      at += taken;
      filled += taken;
      if (filled < size) continue;
      yield chunk;
      filled = 0;
    }
  }
  if (filled > 0) yield chunk.subarray(0, filled);
}

/** The bytes of a buffer or a view of one; `undefined` for anything else. @throws TypeError if its memory is gone */
function bytesOf(part: unknown): Uint8Array | undefined {
  return ArrayBuffer.isView(part) || isBuffer(part) ? asBytes("chunk", part) : undefined;
}

async function* once(...parts: Uint8Array[]): AsyncGenerator<Uint8Array, void> {
  yield* parts;
}

/** Not by the blob's stream: in some browsers that reads ahead without a limit. */
async function* partsOfBlob(blob: Blob): AsyncGenerator<ArrayBuffer, void> {
  let at = 0;
  do {
    // Also of an empty one: in Bun that may be a file that does not exist, of which only reading all fails.
    yield (blob.size > SLICE ? blob.slice(at, at + SLICE) : blob).arrayBuffer();
    at += SLICE;
  } while (at < blob.size);
}

/** Not by the stream's iterator, which some browsers lack. */
function ofStream(stream: ReadableStream<unknown>): Omit<OpenedSource, "type"> {
  const reader = stream.getReader();
  // A stream that has ended is not affected.
  const cancel = (reason: unknown) => void reader.cancel(reason).catch(nothing);
  return { parts: partsOf(reader), cancel };
}

async function* partsOf(
  reader: ReadableStreamDefaultReader<unknown>,
): AsyncGenerator<unknown, void> {
  while (true) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

function nothing(): void {}
