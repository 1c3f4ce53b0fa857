/** What is inspected: bytes that can be read from any position. */

import { type Database, opfs } from "../../index.js";

/** No larger file is loaded into memory to be changed or opened. Larger ones are only read. */
export const MAX_LOADED = 256 * 1_048_576;

export interface Source {
  readonly name: string;
  readonly size: number;
  /** The bytes from `at` on: `length` of them, or fewer at the end. They are not changed by anyone. */
  read(at: number, length: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** Where the bytes come from: one of `bytes`, `file` and `database`. */
export interface GivenSource {
  /** The bytes of a database. They are not changed, and must not be changed while they are shown. */
  readonly bytes?: Uint8Array<ArrayBuffer> | ArrayBuffer;
  /** A file, of which only what is shown is read. */
  readonly file?: Blob;
  /**
   * The name of a database of this origin (of `opfs()`), which may be open elsewhere; or an open database, of whose
   * current content an `export` is shown.
   */
  readonly database?: string | Database;
  /** The name to show for `bytes`, and for a `file` that has none. */
  readonly name?: string;
}

/** Bytes in memory. They must not change while they are inspected. */
export function bytesSource(name: string, bytes: Uint8Array<ArrayBuffer>): Source {
  return {
    name,
    size: bytes.length,
    read: async (at, length) => bytes.subarray(at, at + length),
  };
}

/** A file, of which only what is shown is read. */
export function blobSource(name: string, blob: Blob): Source {
  return {
    name,
    size: blob.size,
    async read(at, length) {
      try {
        return new Uint8Array(await blob.slice(at, at + length).arrayBuffer());
      } catch (cause) {
        throw new Error(
          `${name} cannot be read any more: it was changed or removed since it was chosen. Choose it again.`,
          { cause },
        );
      }
    },
  };
}

/** All bytes of a source. */
export async function bytesOf(source: Source): Promise<Uint8Array<ArrayBuffer>> {
  return (await source.read(0, source.size)).slice();
}

/** What was given, as a source. */
export async function sourceOf(given: GivenSource): Promise<Source> {
  const { bytes, file, database, name } = given;
  if (bytes !== undefined) {
    const own = bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
    return bytesSource(name ?? "bytes", own);
  }
  if (file !== undefined) return blobSource((file as Partial<File>).name ?? name ?? "file", file);
  if (typeof database === "string") {
    const stored = await opfs().snapshot?.(database);
    if (stored === undefined)
      throw new Error(`There is no database "${database}" on this site any more.`);
    return blobSource(database, stored);
  }
  if (database !== undefined) {
    const copy = new Uint8Array(await new Response(database.export()).arrayBuffer());
    return bytesSource(name ?? "database", copy);
  }
  throw new TypeError("Give bytes, a file or a database to inspect.");
}
