/** The keyspaces and descriptors of the live data in a database, which are what a copy needs. */

import type { Engine } from "../engine/engine.js";
import { RAW, SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import { encoder, newDecoder } from "../util/text-coders.js";
import { decoded, encoded, indexKeyOf, isDropped, KEYSPACES_KEY, type Stored } from "./catalog.js";
import { idsKeyOf } from "./ids.js";
import { INDEX_KEYSPACES } from "./index-counts.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** The live keyspaces, and their descriptors. */
export interface LiveKeyspaces {
  /** Every keyspace with live records: that of keys outside of collections, and those of collections and indexes. */
  readonly keyspaces: readonly number[];
  /**
   * The descriptors of collections and indexes. Records of client requests, of frames and of migrations are left
   * out, and so are indexes that are not complete.
   */
  readonly descriptors: readonly (readonly [key: Bytes, value: Bytes])[];
}

const COLLECTION = "collection/";
const PAGE = 1_024;

const decoder = newDecoder("utf-8", { ignoreBOM: true });

export function liveKeyspacesOf(engine: Engine): LiveKeyspaces {
  const keyspaces = [RAW];
  const descriptors: [Bytes, Bytes][] = [];
  for (const key of collectionKeys(engine)) {
    const stored = read(engine, key);
    if (stored === undefined || isDropped(stored)) continue;
    const { building, indexes = [], ...json } = stored.json;
    const there = indexes.flatMap((name) => {
      const index = indexKeyOf(stored.keyspace, name);
      const found = read(engine, index);
      return found === undefined || isDropped(found) ? [] : [{ name, index, found }];
    });
    keyspaces.push(stored.keyspace, ...there.map(({ found }) => found.keyspace));
    for (const { index, found } of there) descriptors.push([index, encoded(found)]);
    const names = there.length === 0 ? {} : { indexes: there.map(({ name }) => name) };
    descriptors.push([key, encoded({ ...stored, json: { ...json, ...names } })]);
    const ids = encoder.encode(idsKeyOf(decoder.decode(key.subarray(COLLECTION.length))));
    const usedIds = engine.get(ids, SYSTEM_KEYSPACE);
    if (usedIds !== undefined) descriptors.push([ids, usedIds.slice()]);
  }
  // The assigned keyspace numbers are copied too, because an empty keyspace shows only in its descriptor.
  const assignedNumbers = engine.get(KEYSPACES_KEY, SYSTEM_KEYSPACE);
  if (assignedNumbers !== undefined)
    descriptors.push([encoder.encode(KEYSPACES_KEY), assignedNumbers.slice()]);
  const indexKeyspaces = engine.get(INDEX_KEYSPACES, SYSTEM_KEYSPACE);
  if (indexKeyspaces !== undefined)
    descriptors.push([encoder.encode(INDEX_KEYSPACES), indexKeyspaces.slice()]);
  return { keyspaces, descriptors };
}

/** The keys of all collection descriptors, copied, because reading a descriptor may move the others. */
function collectionKeys(engine: Engine): Bytes[] {
  const found: Bytes[] = [];
  let lower: Bytes = encoder.encode(COLLECTION);
  const upper = lower.slice();
  upper[upper.length - 1] = (upper.at(-1) as number) + 1;
  for (;;) {
    const range = { lower, upper, lowerExcluded: true, upperIncluded: false, reverse: false };
    const { bytes, numbers, count } = engine.scan(range, PAGE, false, SYSTEM_KEYSPACE);
    for (let i = 0; i < count; i++) found.push(bytes.slice(numbers[i], numbers[i + 1]));
    // A page of long keys has fewer than were asked for.
    if (count === 0) return found;
    lower = found.at(-1) as Bytes;
  }
}

function read(engine: Engine, key: Bytes): Stored | undefined {
  const bytes = engine.get(key, SYSTEM_KEYSPACE);
  return bytes === undefined ? undefined : decoded(key, bytes);
}
