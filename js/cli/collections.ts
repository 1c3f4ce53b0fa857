/** What lies in a file beside the raw keys: collections, their indexes, and what tells of them. */

import {
  decoded,
  indexKeyOf,
  isDropped,
  type Stored,
  SYSTEM_KEYSPACE,
} from "../collection/catalog.js";
import { entriesIn } from "../collection/cursor.js";
import { type Entry, type IndexShape, IndexSpace } from "../collection/indexes.js";
import { Database } from "../database/database.js";
import type { Engine } from "../engine/engine.js";
import { toJson } from "../json.js";
import { type ByteRange, boundsOf } from "../session/key-range.js";
import type { Session } from "../session/session.js";
import type { Descriptor } from "../struct/codec.js";
import { descriptorOf, schemaOf } from "../struct/codegen/schema-from-descriptor.js";
import { oneLine, textOf } from "./format.js";
import { EXIT, Failure } from "./output.js";

/** How values are shown. */
export interface Showing {
  /** In a line, for people. */
  line(value: Uint8Array): string;
  /** In a JSON document, behind what else is to be said of it. */
  document(about: object, value: Uint8Array): string;
}

/** The values of a collection: structs and JSON as JSON, all else as bytes. */
export function showing({ value: kind }: CollectionInfo): Showing | undefined {
  if (kind?.kind === "struct") {
    const schema = schemaOf(kind);
    return inJson((bytes) => toJson(schema, bytes));
  }
  if (kind?.kind === "json") return inJson((bytes) => textOf(bytes) ?? "null");
  return undefined;
}

function inJson(json: (bytes: Uint8Array) => string): Showing {
  return {
    line: (value) => oneLine(new TextEncoder().encode(json(value))),
    document(about, value) {
      const members = JSON.stringify(about).slice(0, -1);
      return `${members},"value":${inOneLine(json(value))}}`;
    },
  };
}

/** JSON without the spaces between its parts. Not by way of an object, for which it may be nested too deeply. */
function inOneLine(json: string): string {
  return json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
}

/**
 * Puts the entries of a record into the indexes of its collection. Answers how many could not be made:
 * of a record that an earlier version of its struct wrote, the file does not tell all defaults.
 */
export type Indexing = (engine: Engine, key: Uint8Array, value: Uint8Array) => number;

/** `undefined` when there are no indexes, or none that is known here. */
export function indexingOf({ name, value, indexes }: CollectionInfo): Indexing | undefined {
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

/** A collection as a file tells of it. */
export interface CollectionInfo {
  readonly name: string;
  readonly keyspace: number;
  /** What its values are; `undefined` when this version does not know. */
  readonly value: Descriptor | undefined;
  /** What its keys are, as it is stored. */
  readonly key: unknown;
  readonly indexes: readonly IndexInfo[];
}

/** An index as a file tells of it. */
export interface IndexInfo {
  readonly name: string;
  readonly keyspace: number;
  /** What it is of, as it is stored. */
  readonly shape: unknown;
}

const ALL: ByteRange = { keyAs: "bytes" };

type Bytes = Uint8Array<ArrayBuffer>;

/** Keys and values of a keyspace, in order. A value is good until the next one. */
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

/** Values as bytes, wherever the engine has them. */
function viewOf({ engine }: Session): (memory: unknown, at: number, length: number) => Bytes {
  return (_, at, length) => engine.view(at, length);
}

/** All collections, by name. Takes the order of keys. */
export function collectionsOf(db: Database): CollectionInfo[] {
  // Copies: reading what tells of an index may move the others.
  const stored = [...entriesOf(db, SYSTEM_KEYSPACE, { ...ALL, prefix: "collection/" })].map(
    ([key, value]) => [key, value.slice()] as const,
  );
  const found = stored.map(([key, value]) => {
    const name = new TextDecoder().decode(key);
    return describedBy(db, name.slice("collection/".length), decoded(name, value));
  });
  return found.filter((one) => one !== undefined);
}

/** A sentence for who has found nothing among the raw keys: what else there is. Takes the order of keys. */
export function elsewhere(db: Database): string {
  let names: string[];
  try {
    names = collectionsOf(db).map(({ name }) => JSON.stringify(name));
  } catch {
    // A damaged record may be in the way, and it is not what was asked for.
    return "";
  }
  if (names.length === 0) return "";
  return ` It has collections (use --collection): ${names.join(", ")}.`;
}

/**
 * The collection of this name.
 *
 * @throws Failure when there is none
 */
export function collectionOf(db: Database, name: string): CollectionInfo {
  const key = `collection/${name}`;
  const stored = Database.sessionOf(db).engine.get(key, SYSTEM_KEYSPACE);
  const described = stored === undefined ? undefined : describedBy(db, name, decoded(key, stored));
  if (described === undefined) {
    throw new Failure(EXIT.no, `There is no collection ${JSON.stringify(name)} in this file.`);
  }
  return described;
}

function describedBy(db: Database, name: string, stored: Stored): CollectionInfo | undefined {
  const { keyspace, json } = stored;
  if (isDropped(stored)) return undefined;
  const indexes = (json.indexes ?? []).map((index) => indexOf(db, keyspace, index));
  const there = indexes.filter((index) => index !== undefined);
  return { name, keyspace, value: descriptorOf(json.value), key: json.key, indexes: there };
}

function indexOf(db: Database, of: number, name: string): IndexInfo | undefined {
  const key = indexKeyOf(of, name);
  const stored = Database.sessionOf(db).engine.get(key, SYSTEM_KEYSPACE);
  if (stored === undefined) return undefined;
  const described = decoded(key, stored);
  return isDropped(described)
    ? undefined
    : { name, keyspace: described.keyspace, shape: described.json };
}
