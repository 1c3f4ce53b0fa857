/** `varve/automerge`: a storage adapter for repositories of Automerge, of which it has no code. */

import { MalformedValueError } from "../../errors/base.js";
import { type Raw, rawOf, refused, using, written } from "../raw.js";

/** The options of `VarveStorageAdapter`. */
export interface VarveStorageAdapterOptions {
  /** What the keys in the database begin with, `"automerge/"` by default. */
  prefix?: string | undefined;
}

/** A part of a document or of a repository, as `Repo` stores it. */
export interface StoredChunk {
  key: string[];
  data: Uint8Array;
}

/** Before its data, a chunk has the time when it was saved: chunks are loaded in that order. */
const HEAD = 8;

let lastTime = 0;

/** The time in milliseconds, later than all before. */
function nextTime(): number {
  lastTime = Math.max(Date.now(), lastTime + 2 ** -10);
  return lastTime;
}

/** The text of a key. Each part ends by itself, so that no part is the beginning of another one. */
function textOfKey(key: readonly string[]): string {
  if (!Array.isArray(key) || key.some((part) => typeof part !== "string")) {
    throw refused("A key of VarveStorageAdapter must be an array of strings.", key);
  }
  try {
    return key.map((part) => `${encodeURIComponent(part)}/`).join("");
  } catch {
    throw refused("A key of VarveStorageAdapter must not contain half a surrogate pair.", key);
  }
}

/** The time and a copy of the data. @throws MalformedValueError for what is no chunk */
function chunkOf(stored: Uint8Array): [time: number, data: Uint8Array] {
  if (stored.length < HEAD) {
    throw new MalformedValueError("The value is no chunk of Automerge: something else stored it.");
  }
  const { buffer, byteOffset } = stored;
  return [new DataView(buffer, byteOffset).getFloat64(0), stored.slice(HEAD)];
}

/**
 * Keeps what a repository stores as raw keys of a database, or of a client of one.
 *
 * ```ts
 * const repo = new Repo({ storage: new VarveStorageAdapter(db) });
 * ```
 *
 * The database stays yours: call `repo.flush()` before you close it. Every call rejects with the errors of the database,
 * such as `DatabaseClosedError` and `QuotaExceededError`, and with a `TypeError` (`VARVE_BAD_ARGUMENT`) for a key that is no
 * array of strings.
 */
export class VarveStorageAdapter {
  readonly #raw: Raw;
  readonly #prefix: string;

  /** @throws TypeError if `to` is no database, as `open` gives it, and no client, as `connect` gives it */
  constructor(to: object, { prefix = "automerge/" }: VarveStorageAdapterOptions = {}) {
    this.#raw = rawOf(to, "VarveStorageAdapter", prefix);
    this.#prefix = prefix;
  }

  /** Resolves to a copy of the data, or `undefined`. @throws (rejects) MalformedValueError for what is no chunk */
  async load(key: readonly string[]): Promise<Uint8Array | undefined> {
    return using(this.#raw.get(this.#at(key)), (stored) => stored && chunkOf(stored)[1]);
  }

  /** Stores a chunk. The data is copied before this returns. Resolves when it is in the file. */
  async save(key: readonly string[], data: Uint8Array): Promise<void> {
    const place = this.#at(key);
    if (!ArrayBuffer.isView(data)) throw refused("The data of a chunk must be bytes.", data);
    const chunk = new Uint8Array(HEAD + data.length);
    new DataView(chunk.buffer).setFloat64(0, nextTime());
    chunk.set(data, HEAD);
    await written(this.#raw, this.#raw.set(place, chunk));
  }

  /** Deletes a chunk. Resolves when that is in the file. */
  async remove(key: readonly string[]): Promise<void> {
    await written(this.#raw, this.#raw.delete(this.#at(key)));
  }

  /** Resolves to all chunks whose keys begin with these parts, as of one moment, in the order in which they were saved. */
  async loadRange(keyPrefix: readonly string[]): Promise<StoredChunk[]> {
    const rows = this.#raw.entries({ prefix: this.#at(keyPrefix) });
    const all: { time: number; chunk: StoredChunk }[] = [];
    for (const [place, stored] of Symbol.iterator in rows ? rows : await rows.all()) {
      const parts = place.slice(this.#prefix.length).split("/").slice(0, -1);
      const [time, data] = chunkOf(stored);
      all.push({ time, chunk: { key: parts.map(decodeURIComponent), data } });
    }
    return all.sort((a, b) => a.time - b.time).map(({ chunk }) => chunk);
  }

  /** Deletes all chunks whose keys begin with these parts, all or none. Resolves when that is in the file. */
  async removeRange(keyPrefix: readonly string[]): Promise<void> {
    await written(this.#raw, this.#raw.clear({ prefix: this.#at(keyPrefix) }));
  }

  #at(key: readonly string[]): string {
    return this.#prefix + textOfKey(key);
  }
}
