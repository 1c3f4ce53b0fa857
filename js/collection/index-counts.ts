/** The stored list of index keyspaces, by which counts distinguish index entries from records. */

import type { Engine } from "../engine/engine.js";
import { SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";

/** The key of the list of all index keyspaces, 4 bytes each (FORMAT.md, section 8). */
export const INDEX_KEYSPACES = "index-keyspaces";

/** Reads the list of index keyspaces. */
export function indexKeyspaces(engine: Engine): Set<number> {
  const bytes = engine.get(INDEX_KEYSPACES, SYSTEM_KEYSPACE);
  if (bytes === undefined) return new Set();
  const data = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const keyspaces = new Set<number>();
  for (let at = 0; at + 4 <= bytes.length; at += 4) keyspaces.add(data.getUint32(at, true));
  return keyspaces;
}

/** Adds the keyspaces of a collection's indexes to the list, and removes the collection's own. */
export function recordIndexKeyspaces(
  engine: Engine,
  own: number,
  indexes: readonly number[],
): void {
  const keyspaces = indexKeyspaces(engine);
  const isCurrent = !keyspaces.has(own) && indexes.every((keyspace) => keyspaces.has(keyspace));
  if (isCurrent) return;
  for (const keyspace of indexes) keyspaces.add(keyspace);
  keyspaces.delete(own);
  const bytes = new Uint8Array(4 * keyspaces.size);
  const data = new DataView(bytes.buffer);
  [...keyspaces].forEach((keyspace, i) => {
    data.setUint32(4 * i, keyspace, true);
  });
  engine.set(INDEX_KEYSPACES, bytes, SYSTEM_KEYSPACE);
}
