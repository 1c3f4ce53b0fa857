/** What lies in a file beside the raw keys: collections, their indexes, and what tells of them. */

import { decoded, indexKeyOf, isDropped, OWN, type Stored } from "../collection/catalogue.js";
import { entriesIn } from "../collection/scan.js";
import { Database } from "../database.js";
import { type ByteRange, boundsOf } from "../range.js";
import type { Session } from "../session.js";
import type { Descriptor } from "../struct/codec.js";
import { descriptorOf } from "../struct/schema-of.js";
import { EXIT, Failure } from "./failure.js";

/** A collection as a file tells of it. */
export interface Told {
  readonly name: string;
  readonly keyspace: number;
  /** What its values are; `undefined` when this version does not know. */
  readonly value: Descriptor | undefined;
  /** What its keys are, as it is stored. */
  readonly key: unknown;
  readonly indexes: readonly ToldIndex[];
}

/** An index as a file tells of it. */
export interface ToldIndex {
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
export function collectionsOf(db: Database): Told[] {
  // Copies: reading what tells of an index may move the others.
  const stored = [...entriesOf(db, OWN, { ...ALL, prefix: "collection/" })].map(
    ([key, value]) => [key, value.slice()] as const,
  );
  const found = stored.map(([key, value]) => {
    const name = new TextDecoder().decode(key);
    return toldBy(db, name.slice("collection/".length), decoded(name, value));
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
export function collectionOf(db: Database, name: string): Told {
  const key = `collection/${name}`;
  const stored = Database.sessionOf(db).engine.get(key, OWN);
  const told = stored === undefined ? undefined : toldBy(db, name, decoded(key, stored));
  if (told === undefined) {
    throw new Failure(EXIT.no, `There is no collection ${JSON.stringify(name)} in this file.`);
  }
  return told;
}

function toldBy(db: Database, name: string, stored: Stored): Told | undefined {
  const { keyspace, json } = stored;
  if (isDropped(stored)) return undefined;
  const indexes = (json.indexes ?? []).map((index) => indexOf(db, keyspace, index));
  const there = indexes.filter((index) => index !== undefined);
  return { name, keyspace, value: descriptorOf(json.value), key: json.key, indexes: there };
}

function indexOf(db: Database, of: number, name: string): ToldIndex | undefined {
  const key = indexKeyOf(of, name);
  const stored = Database.sessionOf(db).engine.get(key, OWN);
  if (stored === undefined) return undefined;
  const told = decoded(key, stored);
  return isDropped(told) ? undefined : { name, keyspace: told.keyspace, shape: told.json };
}
