/** The stored list of index keyspaces, with which index entries are told apart from records in counts. */

import type { Engine } from "../engine/engine.js";

/** The engine's own keyspace. */
const SYSTEM_KEYSPACE = 1;

/** The key of the list of all index keyspaces, 4 bytes each (FORMAT.md, section 8). */
export const INDEX_KEYSPACES = "index-keyspaces";

/** Reads the list of index keyspaces. */
export function notedIndexes(engine: Engine): Set<number> {
  const bytes = engine.get(INDEX_KEYSPACES, SYSTEM_KEYSPACE);
  if (bytes === undefined) return new Set();
  const data = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const noted = new Set<number>();
  for (let at = 0; at + 4 <= bytes.length; at += 4) noted.add(data.getUint32(at, true));
  return noted;
}

/** Adds the keyspaces of a collection's indexes to the list, and removes the collection's own. */
export function noteIndexes(engine: Engine, own: number, indexes: readonly number[]): void {
  const noted = notedIndexes(engine);
  const isNoted = !noted.has(own) && indexes.every((keyspace) => noted.has(keyspace));
  if (isNoted) return;
  for (const keyspace of indexes) noted.add(keyspace);
  noted.delete(own);
  const bytes = new Uint8Array(4 * noted.size);
  const data = new DataView(bytes.buffer);
  [...noted].forEach((keyspace, i) => {
    data.setUint32(4 * i, keyspace, true);
  });
  engine.set(INDEX_KEYSPACES, bytes, SYSTEM_KEYSPACE);
}
