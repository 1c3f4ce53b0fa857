/**
 * A database in bytes that are at hand, to be read: those of `db.export()`, or of a file. A chunk of its
 * own, loaded by those who have such bytes.
 */

import { badArgument, OutOfMemoryError, StorageUnavailableError } from "../errors/index.js";
import type { OpenedStorage, StorageFile } from "./storage.js";

/** The bytes of a database, or something that provides them: what the option `from` of `open` takes. */
export type ImageSource =
  | ArrayBuffer
  | ArrayBufferView
  | Blob
  | Response
  | ReadableStream<Uint8Array<ArrayBuffer>>;

/** Bytes that are at hand are given out in pieces of this length. */
const CHUNK_BYTES = 1_048_576;

/** Wasm memory grows by so many bytes. */
const WASM_PAGE = 65_536;

export async function openImage(name: string, given: Promise<ImageSource>): Promise<OpenedStorage> {
  return { file: new ImageFile(name, await bytesOf(await given)) };
}

async function bytesOf(source: ImageSource): Promise<Uint8Array> {
  const known = recognized(source);
  return known instanceof Uint8Array
    ? known
    : new Uint8Array(await new Response(known.stream).arrayBuffer());
}

/** Bytes that come one after the other. */
export interface Chunks {
  /** How many there will be, as far as the source tells. */
  readonly expected: number | undefined;
  /** The next ones, or `undefined` when there are no more. */
  next(): Promise<Uint8Array | undefined>;
  /** No more are wanted: who sends them is told. A `next` that waits gives `undefined` then. */
  cancel(reason: unknown): void;
}

/**
 * The bytes of a source, a piece at a time.
 *
 * @throws TypeError for what is none of the listed kinds, StorageUnavailableError for a response that
 * is none; `next` throws what the source does
 */
export function chunksOf(source: ImageSource): Chunks {
  const known = recognized(source);
  if (known instanceof Uint8Array) return splitIntoChunks(known);
  const reader = known.stream?.getReader();
  return {
    expected: known.length,
    async next() {
      const chunk: unknown = (await reader?.read())?.value;
      if (chunk === undefined || chunk instanceof Uint8Array) return chunk;
      throw badArgument("A stream given as the option from must yield Uint8Arrays.", chunk);
    },
    cancel(reason) {
      // That it cannot be told is nothing to those who want no more of it.
      reader?.cancel(reason).catch(() => {});
    },
  };
}

function splitIntoChunks(bytes: Uint8Array): Chunks {
  let at = 0;
  return {
    expected: bytes.length,
    async next() {
      if (at >= bytes.length) return undefined;
      const start = at;
      at += CHUNK_BYTES;
      return bytes.subarray(start, at);
    },
    cancel() {
      at = bytes.length;
    },
  };
}

interface Streamed {
  /** None: no byte. */
  readonly stream: ReadableStream<Uint8Array> | null;
  readonly length: number | undefined;
}

/** @throws TypeError for what is none of the listed kinds */
function recognized(source: ImageSource): Uint8Array | Streamed {
  if (ArrayBuffer.isView(source)) {
    return new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
  }
  // By tag, so that what another realm made is recognized too.
  const tag = Object.prototype.toString.call(source).slice(8, -1);
  if (tag === "ArrayBuffer" || tag === "SharedArrayBuffer") {
    return new Uint8Array(source as ArrayBuffer);
  }
  if (tag === "Response") {
    const { ok, status, url, body, headers } = source as Response;
    if (!ok) {
      // One that was made and not fetched has no address.
      const where = url === "" ? "" : ` from ${url}`;
      throw new StorageUnavailableError(
        `The database could not be fetched${where}: the response has status ${status}.`,
      );
    }
    const length = Number(headers.get("content-length") ?? 0) || undefined;
    return { stream: unread(body, source), length };
  }
  if (tag === "ReadableStream") {
    return { stream: unread(source as ReadableStream, source), length: undefined };
  }
  if (tag === "Blob" || tag === "File") {
    return { stream: (source as Blob).stream(), length: (source as Blob).size };
  }
  throw badArgument(
    "The option from must be the bytes of a database, a Response, a ReadableStream or a Blob of " +
      "them, or a promise of one. Of a stream of Node give Readable.toWeb(stream).",
    source,
  );
}

/** @throws TypeError for a stream that somebody else reads, or has read: what it had is not in it any more */
function unread<T extends ReadableStream | null>(stream: T, source: ImageSource): T {
  const isUsed = (source as Partial<Response>).bodyUsed === true;
  if (!isUsed && stream?.locked !== true) return stream;
  throw badArgument(
    "The option from was already read, or is being read. Pass a response or a stream that " +
      "nobody has read, such as an earlier response.clone().",
    source,
  );
}

/** The bytes, which move into the memory of the engine that reads them: what was given is its owner's again. */
class ImageFile implements StorageFile {
  readonly #name: string;
  readonly #size: number;
  /** Where they are, and `undefined` when it is closed. An engine's memory may have grown since. */
  #bytes: (() => Uint8Array) | undefined;

  constructor(name: string, bytes: Uint8Array) {
    this.#name = name;
    this.#size = bytes.length;
    this.#bytes = () => bytes;
  }

  moveInto(memory: WebAssembly.Memory): void {
    const size = this.#size;
    const given = this.#living();
    let start: number;
    try {
      start = memory.grow(Math.ceil(size / WASM_PAGE)) * WASM_PAGE;
    } catch (cause) {
      throw new OutOfMemoryError(
        `There is no memory for the ${size} bytes of the database "${this.#name}".`,
        { cause },
      );
    }
    this.#bytes = () => new Uint8Array(memory.buffer, start, size);
    this.#living().set(given);
  }

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const count = Math.max(0, Math.min(buffer.length, this.#size - at));
    buffer.set(this.#living().subarray(at, at + count));
    return count;
  }

  getSize(): number {
    this.#living();
    return this.#size;
  }

  write(): never {
    throw this.#refusal();
  }

  truncate(): never {
    throw this.#refusal();
  }

  flush(): void {
    this.#living();
  }

  close(): void {
    this.#bytes = undefined;
  }

  #living(): Uint8Array {
    if (this.#bytes !== undefined) return this.#bytes();
    throw Object.assign(new Error(`The database "${this.#name}" is closed.`), { code: "EBADF" });
  }

  #refusal(): Error {
    return new Error(`The database "${this.#name}" was opened from bytes, which are not changed.`);
  }
}
