/**
 * Read-only storage of a database in bytes, from `db.export()` or from a file, and reading of such sources. This module
 * is a separate chunk, loaded only with the option `from`.
 */

import { badArgument, OutOfMemoryError, StorageUnavailableError } from "../errors/index.js";
import { asBytes } from "../util/bytes.js";
import type { OpenedStorage, StorageFile } from "./storage.js";

/** The bytes of a database, or something that provides them: what the option `from` of `open` takes. */
export type ImageSource =
  | ArrayBuffer
  | ArrayBufferView
  | Blob
  | Response
  | ReadableStream<Uint8Array<ArrayBuffer>>;

/** An array of bytes is split into chunks of this length. */
const CHUNK_BYTES = 1_048_576;

/** The page size of wasm memory. */
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

/** A source that is read chunk by chunk. */
export interface Chunks {
  /** The total number of bytes, if the source announces it. */
  readonly expected: number | undefined;
  /** The next chunk, or `undefined` at the end. */
  next(): Promise<Uint8Array | undefined>;
  /** Cancels the source. A pending `next` then resolves to `undefined`. */
  cancel(reason: unknown): void;
}

/**
 * Reads a source chunk by chunk. `next` rejects with the errors of the source.
 *
 * @throws TypeError for a source of another type, StorageUnavailableError for a response with an error status
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
      // Errors of canceling are ignored, because nothing more is read.
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
  /** `null` for an empty body. */
  readonly stream: ReadableStream<Uint8Array> | null;
  readonly length: number | undefined;
}

/** Recognizes the type of a source. @throws TypeError for any other type */
function recognized(source: ImageSource): Uint8Array | Streamed {
  // By tag, so that objects of other realms are recognized too.
  const tag = Object.prototype.toString.call(source).slice(8, -1);
  if (tag === "SharedArrayBuffer") return new Uint8Array(source as ArrayBuffer);
  if (tag === "ArrayBuffer" || ArrayBuffer.isView(source)) return asBytes("database", source);
  if (tag === "Response") {
    const { ok, status, url, body, headers } = source as Response;
    if (!ok) {
      // A response that was constructed and not fetched has no URL.
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

/** Checks that a stream is unread. @throws TypeError for a stream that is locked or was read already */
function unread<T extends ReadableStream | null>(stream: T, source: ImageSource): T {
  const isUsed = (source as Partial<Response>).bodyUsed === true;
  if (!isUsed && stream?.locked !== true) return stream;
  throw badArgument(
    "The option from was already read, or is being read. Pass a response or a stream that " +
      "was not read yet, such as an earlier response.clone().",
    source,
  );
}

/** A read-only file in bytes. They are copied into the engine's memory, so that the caller may reuse the array. */
class ImageFile implements StorageFile {
  readonly #name: string;
  readonly #size: number;
  /** Gives the bytes; `undefined` once closed. A function, because the engine's memory may grow. */
  #bytes: (() => Uint8Array) | undefined;

  constructor(name: string, bytes: Uint8Array) {
    this.#name = name;
    this.#size = bytes.length;
    this.#bytes = () => bytes;
  }

  moveInto(memory: WebAssembly.Memory): void {
    const size = this.#size;
    const given = this.#openBytes();
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
    this.#openBytes().set(given);
  }

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const count = Math.max(0, Math.min(buffer.length, this.#size - at));
    buffer.set(this.#openBytes().subarray(at, at + count));
    return count;
  }

  getSize(): number {
    this.#openBytes();
    return this.#size;
  }

  write(): never {
    throw this.#refusal();
  }

  truncate(): never {
    throw this.#refusal();
  }

  flush(): void {
    this.#openBytes();
  }

  close(): void {
    this.#bytes = undefined;
  }

  #openBytes(): Uint8Array {
    if (this.#bytes !== undefined) return this.#bytes();
    throw Object.assign(new Error(`The database "${this.#name}" is closed.`), { code: "EBADF" });
  }

  #refusal(): Error {
    return new Error(`The database "${this.#name}" was opened from bytes, which are not changed.`);
  }
}
