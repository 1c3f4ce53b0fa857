/** Writes of collections: `set`, `delete`, `clear`, `push` and `updateIf` with typed values. */

import type { Engine } from "../engine/engine.js";
import { viewDetachedInCallback } from "../engine/error-codes.js";
import { badArgument, QuotaExceededError } from "../errors/index.js";
import { IN_CALLBACK } from "../session/call-guard.js";
import type { ExpiryOptions } from "../session/expiry.js";
import { type Bounds, moveBehind } from "../session/key-range.js";
import { refuseUnknown } from "../session/options.js";
import type { Session } from "../session/session.js";
import type { Codec } from "../struct/codec.js";
import { type Cursor, refuseSpread } from "../struct/type.js";
import type { CollectionContext, CollectionSpace } from "./catalog.js";
import { keepAllIds, keepExpiringId, keepId, noteIds, usedUpTo } from "./ids.js";
import { areSame, copier, type Entries, entriesBefore, entriesOf, reindex } from "./indexes.js";

/** The options of a collection's `updateIf`. */
export interface TypedUpdateOptions<K, View, Input> {
  /** The record is changed only if this returns `true` for its current value. */
  predicate?: ((value: View) => boolean) | undefined;
  /**
   * The predicate is given the value of this key instead; `predicate` is required then. If that key is
   * missing, nothing is changed.
   */
  predicateKey?: K | undefined;
  /**
   * The value that a missing key gets first. It is then updated like any other; if the predicate refuses it,
   * the key stays missing.
   */
  valueIfMissing?: Input | undefined;
}

const OPTIONS = ["predicate", "predicateKey", "valueIfMissing"];

/** Number of keys that `clear` deletes per scan while it has to delete them one by one. */
const CLEAR_PAGE = 1_024;

/** The last options that passed the check: programs often pass the same object again. */
let lastOptions: object | undefined;

/** Declares a collection, which is committed also if the call then writes nothing, like the deletion of a missing key. */
function ensure({ commits, engine }: Session, space: CollectionSpace): void {
  space.ensure();
  if (!commits.queued && engine.pending() !== 0) commits.queue();
}

/** Stores a value and updates the indexes. */
export function store<K, View, Writable, Input>(
  session: Session,
  context: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  given: Input,
  options?: ExpiryOptions,
): void {
  const { engine } = session;
  const { space, codec, keys } = context;
  const expiry =
    options === undefined && context.expireIn === undefined
      ? 0
      : session.clock.expiryOf("set()", options, context.expireIn);
  const value = copyIfView(given, engine);
  const size = codec.size(value);
  if (space.checkedAt !== engine.rollbacks) ensure(session, space);
  if (expiry !== 0 && keys.areIds) keepExpiringId(session, context, key);
  const length = keys.encode(engine, key);
  if (space.indexes.length === 0) writeRecord(session, context, length, value, size, expiry);
  else writeIndexed(session, context, engine.encoded(length), value, size, expiry);
  if (!session.commits.queued) session.commits.queue();
}

/**
 * Stores a value in a collection with indexes. Separate from `store`, because a function that contains a closure
 * is slower even when it does not create it.
 */
function writeIndexed<View, Writable, Input>(
  session: Session,
  context: CollectionContext<unknown, View, Writable, Input, never>,
  key: Uint8Array<ArrayBuffer>,
  value: Input,
  size: number,
  expiry: number,
): void {
  reindexed(
    session,
    context as CollectionContext<unknown, unknown, unknown, never, never>,
    key,
    () => {
      writeRecord(session, context, session.engine.encodeBy(copier, key), value, size, expiry);
    },
    expiry,
  );
}

/**
 * Replaces a view of this memory by a copy, because allocating the record may detach the view. Objects spread
 * from a view are refused: the getters of the fields are not copied, so optional fields would silently be lost.
 */
function copyIfView<Input>(value: Input, { memory }: Engine): Input {
  const view = value as Partial<{ $v: Partial<Cursor>; snapshot(): Input }> | undefined | null;
  const m = view?.$v?.m;
  // A value of json() may have a field of this name.
  if (view == null || !(m?.data instanceof DataView)) return value;
  if (typeof view.snapshot === "function") return m === memory ? view.snapshot() : value;
  return refuseSpread();
}

/** Writes the record of the encoded key. Code that runs while the value is encoded must not write. */
export function writeRecord<View, Writable, Input>(
  session: Session,
  { space, codec }: CollectionContext<unknown, View, Writable, Input, never>,
  keyLength: number,
  value: Input,
  size: number,
  expiry: number,
): void {
  const { engine } = session;
  if (expiry !== 0) engine.expireNext(expiry);
  const at = engine.setBegin(keyLength, size, space.keyspace);
  session.guard.gate |= IN_CALLBACK;
  try {
    codec.write(engine.memory, at, value, size);
  } catch (error) {
    session.guard.gate &= ~IN_CALLBACK;
    if (session.guard.isUsable()) engine.abort();
    throw error;
  }
  session.guard.gate &= ~IN_CALLBACK;
  engine.finish(size);
}

/** Deletes a key and its index entries. Returns whether it existed. */
export function remove<K>(
  session: Session,
  context: CollectionContext<unknown, unknown, unknown, never, K>,
  key: K,
): boolean {
  const { engine } = session;
  const { space, keys } = context;
  if (space.checkedAt !== engine.rollbacks) ensure(session, space);
  if (keys.areIds) keepId(session, context, key);
  const length = keys.encode(engine, key);
  let removed: boolean;
  if (space.indexes.length === 0) removed = engine.removeEncoded(length, space.keyspace);
  else removed = removeIndexed(session, context, engine.encoded(length));
  if (removed && !session.commits.queued) session.commits.queue();
  return removed;
}

function removeIndexed(
  session: Session,
  context: CollectionContext<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
): boolean {
  const { engine } = session;
  const { keyspace } = context.space;
  let removed = false;
  reindexed(session, context, key, () => {
    removed = engine.removeEncoded(engine.encodeBy(copier, key), keyspace);
  });
  return removed;
}

/** Changes when a key and its index entries expire. Returns whether the key exists. */
export function touch<K>(
  session: Session,
  context: CollectionContext<unknown, unknown, unknown, never, K>,
  key: K,
  options: ExpiryOptions,
): boolean {
  const { engine } = session;
  const { space, keys } = context;
  const expiry = session.expiryForTouch(options);
  if (space.checkedAt !== engine.rollbacks) ensure(session, space);
  if (expiry !== 0 && keys.areIds) keepExpiringId(session, context, key);
  const encoded = engine.encoded(keys.encode(engine, key));
  let touched = false;
  const change = () => {
    touched = engine.touch(engine.encodeBy(copier, encoded), expiry, space.keyspace);
  };
  if (space.indexes.length === 0) change();
  else reindexed(session, context as never, encoded, change, expiry);
  if (touched && !session.commits.queued) session.commits.queue();
  return touched;
}

/** Deletes the records of a range with their index entries, all or none, and returns how many. */
export function clear(
  session: Session,
  context: CollectionContext<unknown, unknown, unknown, never, never>,
  bounds: Bounds,
): number {
  const { space } = context;
  const { limit } = bounds;
  if (limit === 0) return 0;
  if (space.checkedAt !== session.engine.rollbacks) ensure(session, space);
  if (context.keys.areIds) keepAllIds(session, context);
  if (space.indexes.length === 0) return session.clear(bounds, limit, space.keyspace);
  return session.undoUnless(always, () => {
    const { engine } = session;
    const count = engine.count(space.keyspace);
    if (limit >= count && engine.countRange(bounds, space.keyspace) === count) {
      for (const index of space.indexes) {
        session.clear(EVERYTHING, Number.POSITIVE_INFINITY, index.keyspace);
      }
      return session.clear(EVERYTHING, limit, space.keyspace);
    }
    let cleared = 0;
    const rest = { ...bounds };
    for (;;) {
      const wanted = Math.min(CLEAR_PAGE, limit - cleared);
      const page = session.engine.scan(rest, wanted, false, space.keyspace);
      const { bytes, numbers, count } = page;
      for (let i = 0; i < count; i++) {
        const key = bytes.slice(numbers[i], numbers[i + 1]);
        removeIndexed(session, context, key);
        moveBehind(rest, key);
      }
      cleared += count;
      if (count === 0 || cleared === limit) return cleared;
    }
  });
}

const always = () => true;

const EVERYTHING = {
  lower: undefined,
  lowerExcluded: false,
  upper: undefined,
  upperIncluded: false,
  reverse: false,
};

/** Runs a change of one record and updates its index entries, both or neither. */
function reindexed(
  session: Session,
  context: CollectionContext<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
  change: () => void,
  expiry = 0,
): void {
  const { engine } = session;
  session.undoUnless(always, () => {
    const indexedBefore = entriesAt(engine, context, key, entriesBefore);
    change();
    const indexes = context.space.indexes;
    // A record that has expired already has no entries, and a record that is found has those of its expiry.
    reindex(engine, indexes, indexedBefore, entriesAt(engine, context, key, entriesOf), expiry);
  });
}

function entriesAt(
  engine: Engine,
  { space, codec }: CollectionContext<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
  entriesFor: typeof entriesOf,
): Entries | undefined {
  const at = engine.find(engine.encodeBy(copier, key), space.keyspace);
  if (at === 0) return undefined;
  return entriesFor(space.indexes, codec.view(engine.memory, at, engine.foundLength()), key);
}

/** Stores a value under an id above all that are or were in use. */
export function push<View, Writable, Input>(
  session: Session,
  context: CollectionContext<number, View, Writable, Input>,
  value: Input,
): number {
  const { keys, space } = context;
  const { engine } = session;
  if (!keys.isAuto) {
    throw badArgument("push() needs a collection with auto() keys: use set() with a key.");
  }
  if (space.pushed.changes !== engine.changes) {
    session.checkRange("push()");
    space.pushed.key = usedUpTo(session, context);
  }
  const key = space.pushed.key + 1;
  store(session, context, key, value);
  noteIds(session, space);
  // While nothing else is written, the next push needs no lookup.
  const { changes, rollbacks } = engine;
  space.pushed = { key, changes, rollbacks };
  return key;
}

export function update<K, View, Writable, Input>(
  session: Session,
  context: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  change: (value: Writable) => unknown,
  options: TypedUpdateOptions<K, View, Input> | undefined,
): boolean {
  if (typeof change !== "function") {
    throw badArgument("updateIf() needs a function that changes the value.", change);
  }
  if (options === undefined) return apply(session, context, key, change, undefined, undefined);
  if (options !== lastOptions) checkOptions(options);
  const { predicate, valueIfMissing } = options;
  if (predicate !== undefined && typeof predicate !== "function") throw noPredicate(predicate);
  if (options.predicateKey === undefined) {
    return apply(session, context, key, change, predicate, valueIfMissing);
  }
  if (!testOtherRecord(session, context, options.predicateKey, predicate)) return false;
  return apply(session, context, key, change, undefined, valueIfMissing);
}

function checkOptions(options: object): void {
  refuseUnknown("updateIf()", options, OPTIONS);
  lastOptions = options;
}

function noPredicate(given: unknown): Error {
  return badArgument("The option predicate of updateIf() must be a function.", given);
}

/** Tests the predicate, which is required here, on the value of another key. */
function testOtherRecord<K, View, Writable, Input>(
  session: Session,
  context: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  predicate: ((value: View) => boolean) | undefined,
): boolean {
  if (predicate !== undefined) return testPredicateOn(session, context, key, predicate);
  throw badArgument("updateIf() has a predicateKey but no predicate.");
}

/** Tests the predicate on a value without staging it. A missing key counts as `false`. */
function testPredicateOn<K, View, Writable, Input>(
  session: Session,
  { space, codec, keys }: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  predicate: (value: View) => boolean,
): boolean {
  const { engine } = session;
  const { memory } = engine;
  const at = engine.find(keys.encode(engine, key), space.keyspace);
  if (at === 0) return false;
  const view = session.strict
    ? session.trackedView(codec, at)
    : engine.mustCopy
      ? engine.copied(codec, at)
      : codec.view(memory, at, engine.foundLength());
  const { epoch } = memory;
  session.guard.gate |= IN_CALLBACK;
  try {
    const answer = session.checkedPredicate(predicate(view));
    // If the view was detached meanwhile, the predicate may have read an empty array.
    if (memory.epoch !== epoch) throw viewDetachedInCallback();
    return answer;
  } finally {
    session.guard.gate &= ~IN_CALLBACK;
  }
}

/**
 * Changes the record of a key. The common path is deliberately one function: above V8's inlining limit it is
 * optimized as a unit. Inlined in parts into its callers, it took a third longer in some programs.
 */
function apply<K, View, Writable, Input>(
  session: Session,
  context: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  change: (value: Writable) => unknown,
  predicate: ((value: View) => boolean) | undefined,
  valueIfMissing: Input | undefined,
): boolean {
  const { engine } = session;
  const { space, codec } = context;
  if (space.checkedAt !== engine.rollbacks) ensure(session, space);
  const keyLength = context.keys.encode(engine, key);
  let at: number;
  try {
    at = engine.updateBeginEncoded(keyLength, space.keyspace);
  } catch (error) {
    refusedOrThrow(session, context, key, predicate, error);
    return false;
  }
  if (at === 0) {
    if (valueIfMissing === undefined) return false;
    return insertAndApply(session, context, key, change, predicate, valueIfMissing);
  }
  const { memory } = engine;
  const { epoch } = memory;
  let length = engine.foundLength();
  let applied = false;
  let writable: Writable | undefined;
  let indexedBefore: Before | undefined;
  stagedAt = at;
  const usesCopy = engine.mustCopy || session.strict;
  const copy = usesCopy ? writableCopy(engine, codec, at) : undefined;
  session.guard.gate |= IN_CALLBACK;
  try {
    if (space.indexes.length !== 0)
      indexedBefore = indexEntriesBefore(engine, context, keyLength, length);
    writable = copy === undefined ? codec.writable(memory, at, length) : copy.writable;
    // Assigning to an unknown field then throws. Objects of other codecs may get additional fields.
    if (session.strict && codec.kind.kind === "struct") Object.preventExtensions(writable);
    if (
      predicate === undefined ||
      session.checkedPredicate(predicate(writable as unknown as View))
    ) {
      const result = change(writable);
      if (memory.epoch !== epoch) throw viewDetachedInCallback();
      if (result !== undefined) {
        length = stageReturned(session, codec, writable, result);
        codec.revoke(writable);
      } else {
        const bytes = codec.finish(writable);
        if (bytes !== undefined) length = stageBytes(engine, bytes);
        else if (copy !== undefined) engine.memory.u8.set(copy.u8, at);
      }
      applied = true;
    } else codec.revoke(writable);
    if (indexedBefore !== undefined && applied)
      indexedBefore.moved = bytesIfIndexesChange(engine, context, length, indexedBefore);
  } catch (error) {
    throw abortUpdate(session, codec, writable, error);
  } finally {
    if (copy !== undefined) session.note(copy.u8);
  }
  session.guard.gate &= ~IN_CALLBACK;
  if (!applied) {
    engine.abort();
    return false;
  }
  if (indexedBefore?.moved === undefined) engine.finish(length);
  else {
    // The index entries change too, so all of it is written under a savepoint instead of finishing the staged
    // record, which could not be undone.
    engine.abort();
    const plain = context as CollectionContext<unknown, unknown, unknown, never, never>;
    const { key: encoded, moved } = indexedBefore;
    const expiry = engine.expiryOf(engine.encodeBy(copier, encoded), space.keyspace);
    replaceIndexed(session, plain, encoded, moved, expiry);
  }
  if (!session.commits.queued) session.commits.queue();
  return true;
}

/** A copy for the callback to change, if a view of the record would hold too much memory or has to be tracked. */
function writableCopy<Writable>(
  engine: Engine,
  codec: Codec<unknown, Writable, never>,
  at: number,
): { readonly u8: Uint8Array<ArrayBuffer>; readonly writable: Writable } {
  const u8 = engine.copyAt(at, engine.foundLength());
  const data = new DataView(u8.buffer);
  return { u8, writable: codec.writable({ data, u8, epoch: 0 }, 0, u8.length) };
}

/** Without space a predicate that returns false is still an answer, not a failure: throws unless it does. */
function refusedOrThrow<K, View, Writable, Input>(
  session: Session,
  context: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  predicate: ((value: View) => boolean) | undefined,
  error: unknown,
): void {
  const full = error instanceof QuotaExceededError && predicate !== undefined;
  if (!full || testPredicateOn(session, context, key, predicate)) throw error;
}

/** Cleans up after a callback that threw: ends its view and aborts the staged record. Returns the error. */
function abortUpdate<Writable>(
  session: Session,
  codec: Codec<unknown, Writable, never>,
  writable: Writable | undefined,
  error: unknown,
): unknown {
  session.guard.gate &= ~IN_CALLBACK;
  if (writable !== undefined) codec.revoke(writable);
  if (session.guard.isUsable()) session.engine.abort();
  return error;
}

/** A record of a collection with indexes, before it is changed. */
interface Before {
  readonly key: Uint8Array<ArrayBuffer>;
  readonly entries: Entries;
  /** The new bytes of the record, if its index entries have changed. */
  moved: Uint8Array | undefined;
}

/** The index entries of the staged record before its change, and its key, which was encoded last. */
function indexEntriesBefore<View>(
  engine: Engine,
  { space, codec }: CollectionContext<unknown, View, unknown, never, never>,
  keyLength: number,
  length: number,
): Before {
  const key = engine.encoded(keyLength);
  const entries = entriesBefore(space.indexes, codec.view(engine.memory, stagedAt, length), key);
  return { key, entries, moved: undefined };
}

/** Stores `valueIfMissing` and applies the change. Rolls back both if the change is not applied. */
function insertAndApply<K, View, Writable, Input>(
  session: Session,
  context: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  change: (value: Writable) => unknown,
  predicate: ((value: View) => boolean) | undefined,
  value: Input,
): boolean {
  return session.undoUnless(
    (applied) => applied,
    () => {
      store(session, context, key, value);
      return apply(session, context, key, change, predicate, undefined);
    },
  );
}

/** A copy of the staged bytes if their index entries differ from those before. */
function bytesIfIndexesChange<View>(
  { memory }: Engine,
  { space, codec }: CollectionContext<unknown, View, unknown, never, never>,
  length: number,
  indexedBefore: Before,
): Uint8Array | undefined {
  const after = entriesOf(space.indexes, codec.view(memory, stagedAt, length), indexedBefore.key);
  if (areSame(indexedBefore.entries, after)) return undefined;
  return new Uint8Array(memory.u8.subarray(stagedAt, stagedAt + length));
}

/** Replaces a record by these bytes and updates its index entries. */
function replaceIndexed(
  session: Session,
  context: CollectionContext<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
  bytes: Uint8Array,
  expiry: number,
): void {
  const { engine } = session;
  const write = () => writeBytes(session, context, engine.encodeBy(copier, key), bytes, expiry);
  reindexed(session, context, key, write, expiry);
}

function writeBytes(
  { engine }: Session,
  { space }: CollectionContext<unknown, unknown, unknown, never, never>,
  keyLength: number,
  bytes: Uint8Array,
  expiry: number,
): void {
  if (expiry !== 0) engine.expireNext(expiry);
  const at = engine.setBegin(keyLength, bytes.length, space.keyspace);
  engine.memory.u8.set(bytes, at);
  engine.finish(bytes.length);
}

/** Stores the bytes of a value under the encoded key. They must lie outside of the engine's memory. */
export function storeBytes(
  session: Session,
  context: CollectionContext<unknown, unknown, unknown, never, never>,
  keyLength: number,
  bytes: Uint8Array,
): void {
  const { engine } = session;
  const { space } = context;
  const key = engine.encoded(keyLength);
  if (space.checkedAt !== engine.rollbacks) ensure(session, space);
  const { expireIn } = context;
  const expiry = expireIn === undefined ? 0 : session.clock.expiryOf("set()", undefined, expireIn);
  if (expiry !== 0 && context.keys.areIds) {
    keepExpiringId(session, context, context.keys.decode(key) as never);
  }
  if (space.indexes.length > 0) replaceIndexed(session, context, key, bytes, expiry);
  else writeBytes(session, context, engine.encodeBy(copier, key), bytes, expiry);
  if (!session.commits.queued) session.commits.queue();
}

/** The address of the record that was staged last. */
let stagedAt = 0;

/** Stages other bytes and returns their length. */
function stageBytes(engine: Engine, bytes: Uint8Array): number {
  stagedAt = engine.updateResize(bytes.length);
  engine.memory.u8.set(bytes, stagedAt);
  return bytes.length;
}

/** Stages the value that a callback returned, and returns its length. */
function stageReturned<View, Writable, Input>(
  session: Session,
  codec: Codec<View, Writable, Input>,
  writable: Writable,
  result: unknown,
): number {
  const { engine } = session;
  const input = checkReturned<Input>(session, writable, result);
  const size = codec.size(input);
  stagedAt = engine.updateResize(size);
  codec.write(engine.memory, stagedAt, input, size);
  return size;
}

/** Checks the value that a callback returned in place of the old one. */
function checkReturned<Input>(session: Session, writable: unknown, result: unknown): Input {
  session.refuseLater("The callback of updateIf()", result);
  if (typeof writable === "object" && typeof result !== "object") {
    throw badArgument(
      "The callback of updateIf() must return nothing, or the new value. (An arrow function " +
        "returns its expression: put it in braces.)",
      result,
    );
  }
  return copyIfView(result as Input, session.engine);
}
