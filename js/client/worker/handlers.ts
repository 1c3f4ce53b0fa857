/** The calls that a client may make on the database. All answers are copies. */

import { plain } from "../../collection/live.js";
import { type BatchOperation, Database } from "../../database/database.js";
import { RAW } from "../../engine/wasm-memory.js";
import { badArgument, ConflictError, describe } from "../../errors/index.js";
import { EXPIRY_OPTIONS, type ExpiryOptions } from "../../session/expiry.js";
import { boundsOf, type Range } from "../../session/key-range.js";
import { refuseUnknown } from "../../session/options.js";
import type { SetOptions } from "../../session/session.js";
import { isTooDeep } from "../../struct/plain-json.js";
import type { Key, Value } from "../../util/bytes.js";
import type { Request } from "../protocol/messages.js";
import type { Cursor, RowsAnswer } from "../protocol/packed-rows.js";
import type { TransactionRequest } from "../protocol/transaction-request.js";
import type { ServedCollections } from "./collection-handlers.js";
import { endLog, logPage } from "./log-walks.js";
import { packRange, ValuePacker } from "./row-packer.js";

/** A function of the worker that clients call by its name. */
export type Procedure = (db: Database, ...args: never[]) => unknown;

/** Procedures by name. */
export type Procedures = Readonly<Record<string, Procedure>>;

/** The notes of procedures, by the names of these. */
export type Notes = Readonly<Record<string, ((...args: never[]) => unknown) | undefined>>;

/** A database with its procedures and collections. */
export interface ServedDatabase {
  readonly db: Database;
  readonly procedures: Procedures;
  readonly notes: Notes;
  readonly collections: ServedCollections;
}

type Call = (db: Database, ...args: never[]) => unknown;

/** What a database and a snapshot of it have in common. */
type Reader = Pick<Database, "get" | "getText" | "has" | "count" | "getMany" | "getEntry">;

/** The calls that read a database or a snapshot, but for ranges. */
export const READS: Readonly<Record<string, (of: Reader, ...args: never[]) => unknown>> = {
  get: (of, key: Key) => of.get(key)?.slice(),
  getText: (of, key: Key) => of.getText(key),
  has: (of, key: Key) => of.has(key),
  count: (of, range?: Range) => of.count(range),
  getMany: manyOf,
  getEntry: entryOf,
};

const CALLS: Readonly<Record<string, Call>> = {
  ...READS,
  getEntries: (db, keys: Key[]) => keys.map((key) => entryOf(db, key)),
  keys: (db, range?: Range, cursor?: Cursor | null) => rowsOf(db, "keys", range, cursor),
  values: (db, range?: Range, cursor?: Cursor | null) => rowsOf(db, "values", range, cursor),
  entries: (db, range?: Range, cursor?: Cursor | null) => rowsOf(db, "entries", range, cursor),
  stats: (db) => db.stats(),
  lastCommit: (db) => db.lastCommit,
  log: logPage,
  endLog,
  // The owner commits or flushes after the last request of a message.
  commit: () => undefined,
  flush: () => undefined,

  set: (db, key: Key, value: Value, options?: SetOptions) => db.set(key, value as Value, options),
  delete: (db, key: Key) => db.delete(key),
  touch: (db, key: Key, expiry: ExpiryOptions) => db.touch(key, expiry),
  clear: (db, range?: Range) => db.clear(range),
  batch: (db, operations: BatchOperation[]) => db.batch(operations),
};

/** The values of several keys. */
function manyOf(db: Reader, keys: Key[]): RowsAnswer {
  const packer = new ValuePacker("bytes");
  for (const view of db.getMany(keys)) {
    if (view === undefined) packer.addMissing();
    else packer.add(view, 0, view.length);
  }
  return packer.answer();
}

/** All rows of a range, or for a cursor (`null` at the beginning) the page behind it. */
export function rowsOf(
  db: Database,
  call: "keys" | "values" | "entries",
  range: Range | undefined,
  cursor: Cursor | null | undefined,
  keyspace: number = RAW,
): RowsAnswer {
  const session = Database.sessionOf(db);
  session.checkRange(`${call}()`);
  const bounds = boundsOf(`${call}()`, range, call !== "values");
  const keyForm = bounds.asBytes ? "bytes" : "text";
  return packRange(
    {
      session,
      keyspace,
      bounds,
      form: call === "keys" ? undefined : "bytes",
      keyForm: call === "values" ? undefined : keyForm,
    },
    cursor,
  );
}

/** Performs a request and returns its answer. If it throws, the caller has to undo its writes. */
export function perform(served: ServedDatabase, { call, args }: Request): unknown {
  const { db, procedures, collections } = served;
  if (call === "in") {
    const [name, method, given, index] = args as [string, string, never[], string?];
    return collections.perform(name, method, given, index);
  }
  if (call === "commitIf") return commitIf(served, args[0] as TransactionRequest);
  if (call === "call") {
    const [name, ...rest] = args as [string, ...never[]];
    if (!Object.hasOwn(procedures, name)) throw noProcedure(name, procedures);
    const answer = (procedures[name] as Procedure)(db, ...rest);
    // Refused here, where the name is known, and not by the enclosing transaction.
    Database.sessionOf(db).refuseLater(`The procedure ${describe(name)} of serve()`, answer);
    return copyForAnswer(answer, db);
  }
  if (!Object.hasOwn(CALLS, call)) throw badArgument(`The owner has no call ${describe(call)}.`);
  return (CALLS[call] as Call)(db, ...(args as never[]));
}

function entryOf(db: Reader, key: Key) {
  const entry = db.getEntry(key);
  return entry && { ...entry, value: entry.value.slice() };
}

function commitIf({ db, collections }: ServedDatabase, request: TransactionRequest): void {
  const { reads, writes, keepsExpiry } = request;
  for (const { version, in: collection, ...read } of reads) {
    // The database checks it.
    const key = read.key as Key;
    const entry =
      collection === undefined ? db.getEntry(key) : collections.get(collection).getEntry(key);
    if ((entry?.version ?? 0) !== version) throw changed();
  }
  for (const { in: collection, type, value, forms, expiry, ...written } of writes) {
    const key = written.key as Key;
    const target = collection === undefined ? db : collections.get(collection);
    if (type === "delete") {
      target.delete(key);
      continue;
    }
    if (expiry !== undefined) refuseUnknown("set() of a transaction", expiry, EXPIRY_OPTIONS);
    const known = keepsExpiry ? target.getEntry(key) : undefined;
    const options = expiry ?? (known && { expireAt: known.expires ?? Number.POSITIVE_INFINITY });
    if (collection === undefined) db.set(key, value as Value, options);
    else target.set(key, collections.toStored(collection, value, forms) as Value, options);
  }
}

function changed(): ConflictError {
  return new ConflictError(
    "Another write has changed what was read. Read it again and repeat the call.",
  );
}

function noProcedure(name: unknown, procedures: Procedures): Error {
  const names = Object.keys(procedures).join(", ") || "none";
  return badArgument(
    `The worker has no procedure ${describe(name)}. Those given to serve(): ${names}.`,
  );
}

function copyForAnswer(answer: unknown, db: Database): unknown {
  try {
    return copied(answer, db);
  } catch (error) {
    throw isTooDeep(error) ? noAnswer(answer) : error;
  }
}

/**
 * Copies the parts of an answer that are views of the database's memory: a message would include all of it.
 *
 * @throws TypeError for a value that no message can carry, before the transaction is committed
 */
function copied(given: unknown, db: Database, known = new Map<unknown, unknown>()): unknown {
  const value = plain(given);
  if (typeof value === "function" || typeof value === "symbol") throw noAnswer(value);
  if (typeof value !== "object" || value === null) return value;
  if (ArrayBuffer.isView(value)) {
    const { buffer } = Database.sessionOf(db).engine.u8;
    return value.buffer === buffer ? sliced(value) : value;
  }
  // Shared and circular references stay as they are.
  if (known.has(value)) return known.get(value);
  const copyInner = (part: unknown) => copied(part, db, known);
  const copy = emptyLike(value) ?? cloned(value);
  known.set(value, copy);
  if (copy instanceof Map) {
    for (const [key, part] of value as typeof copy) copy.set(copyInner(key), copyInner(part));
  } else if (copy instanceof Set) {
    for (const part of value as typeof copy) copy.add(copyInner(part));
  } else if (isPlain(copy)) {
    for (const [name, part] of Object.entries(value)) defineField(copy, name, copyInner(part));
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

/** An empty container for copies; `undefined` for values that are cloned as a whole. */
function emptyLike(value: object): object | undefined {
  if (Array.isArray(value)) return [];
  if (value instanceof Map) return new Map();
  if (value instanceof Set) return new Set();
  return isPlain(value) ? {} : undefined;
}

/** Defines a property, because an assignment to `__proto__` would set the prototype. */
function defineField(target: object, name: string, value: unknown): void {
  Object.defineProperty(target, name, {
    value,
    writable: true,
    enumerable: true,
    configurable: true,
  });
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
