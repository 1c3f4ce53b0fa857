/** What a client may ask for, done on the database. All that is answered is a copy. */

import { type BatchOperation, Database } from "../../database/database.js";
import { badArgument, ConflictError, describe } from "../../errors/index.js";
import type { ByteRange, Range } from "../../session/key-range.js";
import type { SetOptions } from "../../session/session.js";
import { isTooDeep } from "../../struct/json-form.js";
import type { Key, Value } from "../../util/bytes.js";
import type { Forms } from "../protocol/json-values.js";
import type { Request } from "../protocol/messages.js";
import { plain, type ServedCollections } from "./collection-handlers.js";
import { behindKey, type Cursor, keysOf, pageOf } from "./paging.js";

/** A function of the worker that clients call by its name. */
export type Procedure = (db: Database, ...args: never[]) => unknown;

/** Procedures by name. */
export type Procedures = Readonly<Record<string, Procedure>>;

/** What an optimistic transaction has read, and what it writes if that still holds. */
interface Commitment {
  /** Keys with the versions that they had; 0 for those that were not there. `in`: the collection. */
  readonly reads: readonly { readonly key: Key; readonly version: number; readonly in?: string }[];
  readonly writes: readonly (Written & { readonly in?: string })[];
}

/** A write of it. A deletion has no value. */
interface Written {
  readonly type: BatchOperation["type"];
  readonly key: Key;
  readonly value: Value;
  readonly forms?: Forms;
}

/** A database and what clients may do with it. */
export interface Service {
  readonly db: Database;
  readonly procedures: Procedures;
  readonly collections: ServedCollections;
}

type Call = (db: Database, ...args: never[]) => unknown;

const CALLS: Readonly<Record<string, Call>> = {
  get: (db, key: Key) => db.get(key)?.slice(),
  getText: (db, key: Key) => db.getText(key),
  has: (db, key: Key) => db.has(key),
  count: (db, range?: Range) => db.count(range),
  getMany: (db, keys: Key[]) => db.getMany(keys).map((view) => view?.slice()),
  getEntry: entryOf,
  getEntries: (db, keys: Key[]) => keys.map((key) => entryOf(db, key)),
  keys: (db, range: Ranged, cursor?: Cursor | null) =>
    cursor === undefined
      ? [...db.keys(range)]
      : pageOf(range, cursor, behindKey, (part) => keysOf(db.keys(part as Ranged)), keyOnly),
  values: (db, range: Range, cursor?: Cursor | null) => {
    if (cursor === undefined) return Array.from(db.values(range), (value) => value.slice());
    // Where a page ends is a key, and none of them is given.
    const rows = (part: object) => db.entries({ ...part, keyAs: "bytes" });
    return pageOf(range, cursor, behindKey, rows, (_, value) => copyOf(value));
  },
  entries: (db, range: Ranged, cursor?: Cursor | null) =>
    cursor === undefined
      ? Array.from(db.entries(range), ([key, value]) => [key, value.slice()])
      : pageOf(
          range,
          cursor,
          behindKey,
          (part) => db.entries(part as Ranged),
          (key, value) => [key, copyOf(value)],
        ),
  stats: (db) => db.stats(),
  // The owner commits or flushes when all of a message is done.
  commit: () => undefined,
  flush: () => undefined,

  set: (db, key: Key, value: Value, options?: SetOptions) => db.set(key, value, options),
  delete: (db, key: Key) => db.delete(key),
  clear: (db, range?: Range) => db.clear(range),
  batch: (db, operations: BatchOperation[]) => db.batch(operations),
};

/** Keys as strings or as bytes: it is the range that says it. */
type Ranged = ByteRange;

function copyOf(value: unknown): Uint8Array {
  return (value as Uint8Array).slice();
}

function keyOnly(key: unknown): unknown {
  return key;
}

/** Does it, and gives the answer. What it throws has to be undone by the caller. */
export function perform(service: Service, { call, args }: Request): unknown {
  const { db, procedures, collections } = service;
  if (call === "in") {
    const [name, method, given, index] = args as [string, string, never[], string?];
    return collections.perform(name, method, given, index);
  }
  if (call === "commitIf") return commitIf(service, args[0] as Commitment);
  if (call === "call") {
    const [name, ...rest] = args as [string, ...never[]];
    if (!Object.hasOwn(procedures, name)) throw noProcedure(name, procedures);
    const answer = (procedures[name] as Procedure)(db, ...rest);
    // A promise is refused by the transaction around it.
    return typeof Object(answer).then === "function" ? answer : answered(answer, db);
  }
  if (!Object.hasOwn(CALLS, call)) throw badArgument(`The owner has no call ${describe(call)}.`);
  return (CALLS[call] as Call)(db, ...(args as never[]));
}

function entryOf(db: Database, key: Key) {
  const entry = db.getEntry(key);
  return entry && { ...entry, value: entry.value.slice() };
}

function commitIf({ db, collections }: Service, { reads, writes }: Commitment): void {
  for (const { key, version, in: collection } of reads) {
    const entry =
      collection === undefined ? db.getEntry(key) : collections.get(collection).getEntry(key);
    if ((entry?.version ?? 0) !== version) throw changed();
  }
  for (const { in: collection, type, key, value, forms } of writes) {
    const on = collection === undefined ? db : collections.get(collection);
    if (type === "delete") on.delete(key);
    else if (collection === undefined) db.set(key, value);
    else on.set(key, collections.taken(collection, value, forms) as Value);
  }
}

function changed(): ConflictError {
  return new ConflictError("Someone else has changed what was read.");
}

function noProcedure(name: unknown, procedures: Procedures): Error {
  const names = Object.keys(procedures).join(", ") || "none";
  return badArgument(
    `The worker has no procedure ${describe(name)}. Those given to serve(): ${names}.`,
  );
}

function answered(answer: unknown, db: Database): unknown {
  try {
    return copied(answer, db);
  } catch (error) {
    throw isTooDeep(error) ? noAnswer(answer) : error;
  }
}

/**
 * What shows the database's memory is copied: a message would carry all of that memory along.
 *
 * @throws TypeError for what no message can carry, before anything of it is committed
 */
function copied(given: unknown, db: Database, known = new Map<unknown, unknown>()): unknown {
  const value = plain(given);
  if (typeof value === "function" || typeof value === "symbol") throw noAnswer(value);
  if (typeof value !== "object" || value === null) return value;
  if (ArrayBuffer.isView(value)) {
    const { buffer } = Database.sessionOf(db).engine.u8;
    return value.buffer === buffer ? sliced(value) : value;
  }
  // What was met before is the same again, also within itself.
  if (known.has(value)) return known.get(value);
  const inner = (one: unknown) => copied(one, db, known);
  const copy = emptyLike(value) ?? cloned(value);
  known.set(value, copy);
  if (copy instanceof Map) {
    for (const [key, one] of value as typeof copy) copy.set(inner(key), inner(one));
  } else if (copy instanceof Set) {
    for (const one of value as typeof copy) copy.add(inner(one));
  } else if (isPlain(copy)) {
    for (const [name, one] of Object.entries(value)) own(copy, name, inner(one));
  }
  return copy;
}

function cloned(value: object): object {
  try {
    return structuredClone(value);
  } catch {
    throw noAnswer(value);
  }
}

function isPlain(value: object): boolean {
  return Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;
}

/** What to put copies into; nothing for what is copied as a whole. */
function emptyLike(value: object): object | undefined {
  if (Array.isArray(value)) return [];
  if (value instanceof Map) return new Map();
  if (value instanceof Set) return new Set();
  return isPlain(value) ? {} : undefined;
}

/** As an assignment, which is another thing for the name of the prototype. */
function own(of: object, name: string, value: unknown): void {
  Object.defineProperty(of, name, { value, writable: true, enumerable: true, configurable: true });
}

function noAnswer(value: unknown): Error {
  return badArgument(
    "The result of a procedure is sent to its caller, so structuredClone() must accept it.",
    value,
  );
}

function sliced(view: ArrayBufferView): ArrayBufferView {
  const { buffer, byteOffset, byteLength } = view;
  return view instanceof DataView
    ? new DataView(buffer.slice(byteOffset, byteOffset + byteLength))
    : (view as Uint8Array).slice();
}
