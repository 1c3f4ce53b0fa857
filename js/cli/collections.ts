/** The collections in a file: their records, indexes and descriptors. */

import { decoded, indexKeyOf, isDropped, type Stored } from "../collection/catalog.js";
import { entriesIn } from "../collection/cursor.js";
import { type Entry, type IndexShape, IndexSpace } from "../collection/indexes.js";
import { Database } from "../database/database.js";
import type { Engine } from "../engine/engine.js";
import { SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import { toJson } from "../json.js";
import { type ByteRange, boundsOf } from "../session/key-range.js";
import type { Session } from "../session/session.js";
import type { Descriptor } from "../struct/codec.js";
import { descriptorOf, schemaOf } from "../struct/codegen/schema-from-descriptor.js";
import { decoded as decodedValue } from "../struct/structured/coding.js";
import { jsonTextOf } from "../struct/structured/readable.js";
import { oneLine, textOf } from "./format.js";
import { EXIT, Failure } from "./output.js";

/** The output forms of values. */
export interface ValueFormat {
  /** As text in a line. */
  line(value: Uint8Array): string;
  /** As members of a JSON document, after the others. */
  document(about: object, value: Uint8Array): string;
}

/** The output form of a collection's values: structs and JSON as JSON, all else as bytes. */
export function valueFormatOf({ value: kind }: CollectionInfo): ValueFormat | undefined {
  if (kind?.kind === "struct") {
    const schema = schemaOf(kind);
    return inJson((bytes) => toJson(schema, bytes));
  }
  if (kind?.kind === "structured") return inJson(jsonTextOf);
  if (kind?.kind === "json") return inJson((bytes) => textOf(bytes) ?? "null");
  return undefined;
}

function inJson(json: (bytes: Uint8Array) => string): ValueFormat {
  return {
    line: (value) => oneLine(new TextEncoder().encode(json(value))),
    document(about, value) {
      const members = JSON.stringify(about).slice(0, -1);
      return `${members},"value":${inOneLine(json(value))}}`;
    },
  };
}

/** Removes the spaces between the parts of JSON, without parsing it to an object, which may be nested too deeply. */
function inOneLine(json: string): string {
  return json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
}

/**
 * Adds the index entries of a record. Returns how many could not be made: for a record that an earlier version of its
 * struct wrote, the file does not contain all defaults.
 */
export type Indexing = (
  engine: Engine,
  key: Uint8Array,
  value: Uint8Array,
  expiry: number,
) => number;

/** `undefined` if there are no indexes, or none of a known kind. */
export function indexingOf({ name, value, indexes }: CollectionInfo): Indexing | undefined {
  const read = value && readerOf(value);
  if (value === undefined || read === undefined || indexes.length === 0) return undefined;
  const spaces = indexes.map(
    (one) => new IndexSpace(name, one.name, one.shape as IndexShape, value, one.keyspace),
  );
  return (engine, key, record, expiry) => {
    let missing = 0;
    for (const space of spaces) {
      const entries = entriesBy(space, () => read(record), key);
      if (entries === undefined) missing += 1;
      for (const { bytes, head } of entries ?? []) {
        const value = new DataView(new ArrayBuffer(8));
        value.setUint32(0, head, true);
        // Of two records that violate a unique index, one may be an old one that was salvaged.
        engine.setExpiring(bytes, new Uint8Array(value.buffer), expiry, space.keyspace);
      }
    }
    return missing;
  };
}

/** Reads a value whose fields can be indexed. */
function readerOf(kind: Descriptor): ((record: Uint8Array) => unknown) | undefined {
  if (kind.kind === "struct") {
    const schema = schemaOf(kind);
    return (record) => schema.view(record);
  }
  if (kind.kind === "json")
    return (record) => JSON.parse(new TextDecoder().decode(record)) as unknown;
  return kind.kind === "structured" ? decodedValue : undefined;
}

function entriesBy(
  space: IndexSpace,
  view: () => unknown,
  key: Uint8Array,
): readonly Entry[] | undefined {
  try {
    return space.entriesOf(view(), key);
  } catch {
    return undefined;
  }
}

/** A collection, as described in the file. */
export interface CollectionInfo {
  readonly name: string;
  readonly keyspace: number;
  /** The kind of its values; `undefined` if this version does not know it. */
  readonly value: Descriptor | undefined;
  /** The kind of its keys, as stored. */
  readonly key: unknown;
  readonly indexes: readonly IndexInfo[];
}

/** An index, as described in the file. */
export interface IndexInfo {
  readonly name: string;
  readonly keyspace: number;
  /** Its fields, as stored. */
  readonly shape: unknown;
}

const ALL: ByteRange = { keyAs: "bytes" };

type Bytes = Uint8Array<ArrayBuffer>;

/** Iterates over keys and values of a keyspace, in order. A value is valid until the next one. */
export function entriesOf(
  db: Database,
  keyspace: number,
  range: ByteRange = ALL,
): Iterable<[Bytes, Bytes]> {
  const session = Database.sessionOf(db);
  const walked = {
    source: () => session,
    space: { keyspace },
    keys: { given: (key: string | Bytes) => key as Bytes },
    codec: { view: viewOf(session) },
  };
  return entriesIn(walked, boundsOf("entries()", range, true));
}

/** The `view` function of a codec that gives the bytes of a value, wherever the engine has them. */
function viewOf({ engine }: Session): (memory: unknown, at: number, length: number) => Bytes {
  return (_, at, length) => engine.view(at, length);
}

/** All collections, by name, or those of a past commit, as its number selects it. Needs key order. */
export function collectionsOf(db: Database, past = 0): CollectionInfo[] {
  // Copy the keys, because reading the descriptor of an index may move the others.
  const stored = [...entriesOf(db, past + SYSTEM_KEYSPACE, { ...ALL, prefix: "collection/" })].map(
    ([key, value]) => [key, value.slice()] as const,
  );
  const found = stored.map(([key, value]) => {
    const name = new TextDecoder().decode(key);
    return describedBy(db, name.slice("collection/".length), decoded(name, value), past);
  });
  return found.filter((one) => one !== undefined);
}

/** A sentence that names the collections, if no key was found outside of them. Needs key order. */
export function elsewhere(db: Database, past = 0): string {
  let names: string[];
  try {
    names = collectionsOf(db, past).map(({ name }) => JSON.stringify(name));
  } catch {
    // Ignored: a damaged descriptor does not matter to the requested key.
    return "";
  }
  if (names.length === 0) return "";
  return ` It has collections (use --collection): ${names.join(", ")}.`;
}

/**
 * The collection of this name.
 *
 * @throws Failure if there is none
 */
export function collectionOf(db: Database, name: string, past = 0): CollectionInfo {
  const key = `collection/${name}`;
  const stored = Database.sessionOf(db).engine.get(key, past + SYSTEM_KEYSPACE);
  const described =
    stored === undefined ? undefined : describedBy(db, name, decoded(key, stored), past);
  if (described === undefined) {
    throw new Failure(
      EXIT.negative,
      `There is no collection ${JSON.stringify(name)} in this file.`,
    );
  }
  return described;
}

function describedBy(
  db: Database,
  name: string,
  stored: Stored,
  past: number,
): CollectionInfo | undefined {
  const { keyspace, json } = stored;
  if (isDropped(stored)) return undefined;
  const indexes = (json.indexes ?? []).map((index) => indexOf(db, keyspace, index, past));
  const there = indexes.filter((index) => index !== undefined);
  return {
    name,
    keyspace: past + keyspace,
    value: descriptorOf(json.value),
    key: json.key,
    indexes: there,
  };
}

function indexOf(db: Database, of: number, name: string, past: number): IndexInfo | undefined {
  const key = indexKeyOf(of, name);
  const stored = Database.sessionOf(db).engine.get(key, past + SYSTEM_KEYSPACE);
  if (stored === undefined) return undefined;
  const described = decoded(key, stored);
  return isDropped(described)
    ? undefined
    : { name, keyspace: past + described.keyspace, shape: described.json };
}
