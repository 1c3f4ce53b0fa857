/** The entries of indexes, made anew of the records. */

import { type Entry, type IndexShape, IndexSpace } from "../collection/indexes.js";
import type { Engine } from "../engine.js";
import { schemaOf } from "../struct/schema-of.js";
import type { Told } from "./keyspaces.js";

/**
 * Puts the entries of a record into the indexes of its collection. Answers how many could not be made:
 * of a record that an earlier version of its struct wrote, the file does not tell all defaults.
 */
export type Indexing = (engine: Engine, key: Uint8Array, value: Uint8Array) => number;

/** `undefined` when there are no indexes, or none that is known here. */
export function indexingOf({ name, value, indexes }: Told): Indexing | undefined {
  if (value?.kind !== "struct" || indexes.length === 0) return undefined;
  const schema = schemaOf(value);
  const spaces = indexes.map(
    (one) => new IndexSpace(name, one.name, one.shape as IndexShape, value, one.keyspace),
  );
  return (engine, key, record) => {
    let missing = 0;
    for (const space of spaces) {
      const entry = entryOf(space, () => schema.view(record), key);
      if (entry === undefined) {
        missing += 1;
        continue;
      }
      const value = new DataView(new ArrayBuffer(8));
      value.setUint32(0, entry.head, true);
      // Of two records that a unique index would keep apart, one may be an old one that came back.
      engine.set(entry.bytes, new Uint8Array(value.buffer), space.keyspace);
    }
    return missing;
  };
}

function entryOf(space: IndexSpace, view: () => unknown, key: Uint8Array): Entry | undefined {
  try {
    return space.entryOf(view(), key);
  } catch {
    return undefined;
  }
}
