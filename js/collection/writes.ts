/** How collections write: `set` and `updateIf` with values in the collection's form. */

import type { Engine } from "../engine/engine.js";
import { diedInCallback } from "../engine/error-codes.js";
import { badArgument, QuotaExceededError } from "../errors/index.js";
import { IN_CALLBACK } from "../session/call-guard.js";
import type { Bounds } from "../session/key-range.js";
import { refuseUnknown } from "../session/options.js";
import type { Session } from "../session/session.js";
import type { Codec } from "../struct/codec.js";
import { type Cursor, refuseSpread } from "../struct/type.js";
import type { CollectionContext } from "./catalog.js";
import { keepAllIds, keepId, noteIds, usedUpTo } from "./ids.js";
import { areSame, copier, type Entry, entriesOf, reindex } from "./indexes.js";

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

/** So many keys are deleted between two looks at which come next. */
const CLEAR_PAGE = 1_024;

/** The last options that were found to be right: programs pass the same ones again and again. */
let lastOptions: object | undefined;

/** Stores a value, and has the indexes lead to it. */
export function store<K, View, Writable, Input>(
  session: Session,
  form: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  given: Input,
): void {
  const { engine } = session;
  const { space, codec, keys } = form;
  const value = lasting(given, engine);
  const size = codec.size(value);
  if (space.checkedAt !== engine.rollbacks) space.ensure();
  const length = keys.encode(engine, key);
  if (space.indexes.length === 0) writeRecord(session, form, length, value, size);
  else writeIndexed(session, form, engine.encoded(length), value, size);
  if (!session.queued) session.queue();
}

/** A function of its own: one that holds a closure pays for that also where it makes none. */
function writeIndexed<View, Writable, Input>(
  session: Session,
  form: CollectionContext<unknown, View, Writable, Input, never>,
  key: Uint8Array<ArrayBuffer>,
  value: Input,
  size: number,
): void {
  reindexed(
    session,
    form as CollectionContext<unknown, unknown, unknown, never, never>,
    key,
    () => {
      writeRecord(session, form, session.engine.encodeBy(copier, key), value, size);
    },
  );
}

/**
 * A copy in place of a view of this memory, which may die when room is made for the record. What was
 * spread of any view is refused: where a field may be absent, all that was in it would be lost unseen.
 */
function lasting<Input>(value: Input, { memory }: Engine): Input {
  const view = value as Partial<{ $v: Partial<Cursor>; snapshot(): Input }> | undefined | null;
  const m = view?.$v?.m;
  // A value of json() may have a field of this name.
  if (view == null || !(m?.data instanceof DataView)) return value;
  if (typeof view.snapshot === "function") return m === memory ? view.snapshot() : value;
  return refuseSpread();
}

/** Writes the record of the encoded key. What its encoding runs meanwhile must not write. */
export function writeRecord<View, Writable, Input>(
  session: Session,
  { space, codec }: CollectionContext<unknown, View, Writable, Input, never>,
  keyLength: number,
  value: Input,
  size: number,
): void {
  const { engine } = session;
  const at = engine.setBegin(keyLength, size, space.keyspace);
  session.gate |= IN_CALLBACK;
  try {
    codec.write(engine.memory, at, value, size);
  } catch (error) {
    session.gate &= ~IN_CALLBACK;
    if (session.isAlive()) engine.abort();
    throw error;
  }
  session.gate &= ~IN_CALLBACK;
  engine.finish(size);
}

/** Removes a key, and what leads to it. Says whether it was there. */
export function remove<K>(
  session: Session,
  form: CollectionContext<unknown, unknown, unknown, never, K>,
  key: K,
): boolean {
  const { engine } = session;
  const { space, keys } = form;
  if (space.checkedAt !== engine.rollbacks) space.ensure();
  if (keys.areIds) keepId(session, form, key);
  const length = keys.encode(engine, key);
  let removed: boolean;
  if (space.indexes.length === 0) removed = engine.removeEncoded(length, space.keyspace);
  else removed = removeIndexed(session, form, engine.encoded(length));
  if (removed && !session.queued) session.queue();
  return removed;
}

function removeIndexed(
  session: Session,
  form: CollectionContext<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
): boolean {
  const { engine } = session;
  const { keyspace } = form.space;
  let removed = false;
  reindexed(session, form, key, () => {
    removed = engine.removeEncoded(engine.encodeBy(copier, key), keyspace);
  });
  return removed;
}

/** Deletes the records of a range with what leads to them, all or none, and says how many. */
export function clear(
  session: Session,
  form: CollectionContext<unknown, unknown, unknown, never, never>,
  bounds: Bounds,
): number {
  const { space } = form;
  const { limit } = bounds;
  if (limit === 0) return 0;
  if (space.checkedAt !== session.engine.rollbacks) space.ensure();
  if (form.keys.areIds) keepAllIds(session, form);
  if (space.indexes.length === 0) return session.clear(bounds, limit, space.keyspace);
  return session.undoUnless(kept, () => {
    const { engine } = session;
    const count = engine.count(space.keyspace);
    if (limit >= count && engine.countRange(bounds, space.keyspace) === count) {
      for (const index of space.indexes) {
        session.clear(EVERYTHING, Number.POSITIVE_INFINITY, index.keyspace);
      }
      return session.clear(EVERYTHING, limit, space.keyspace);
    }
    let cleared = 0;
    for (;;) {
      const wanted = Math.min(CLEAR_PAGE, limit - cleared);
      const page = session.engine.scan(bounds, wanted, false, space.keyspace);
      const { bytes, numbers, count } = page;
      for (let i = 0; i < count; i++) {
        removeIndexed(session, form, bytes.slice(numbers[i], numbers[i + 1]));
      }
      cleared += count;
      if (count === 0 || cleared === limit) return cleared;
    }
  });
}

const kept = () => true;

const EVERYTHING = {
  lower: undefined,
  lowerExcluded: false,
  upper: undefined,
  upperIncluded: false,
  reverse: false,
};

/** Runs a change of one record, and has the indexes follow. Both are done or neither. */
function reindexed(
  session: Session,
  form: CollectionContext<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
  change: () => void,
): void {
  const { engine } = session;
  session.undoUnless(kept, () => {
    const before = entriesAt(engine, form, key);
    change();
    reindex(engine, form.space.indexes, before, entriesAt(engine, form, key));
  });
}

function entriesAt(
  engine: Engine,
  { space, codec }: CollectionContext<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
): readonly Entry[] | undefined {
  const at = engine.find(engine.encodeBy(copier, key), space.keyspace);
  if (at === 0) return undefined;
  return entriesOf(space.indexes, codec.view(engine.memory, at, engine.foundLength()), key);
}

/** Stores a value under a number above all that are or were there. */
export function push<View, Writable, Input>(
  session: Session,
  form: CollectionContext<number, View, Writable, Input>,
  value: Input,
): number {
  const { keys, space } = form;
  const { engine } = session;
  if (!keys.isAuto) {
    throw badArgument("push() needs a collection with auto() keys: use set() with a key.");
  }
  if (space.pushed.changes !== engine.changes) {
    session.checkRange("push()");
    space.pushed.key = usedUpTo(session, form);
  }
  const key = space.pushed.key + 1;
  store(session, form, key, value);
  noteIds(session, space);
  // As long as nothing else is written, the next one needs no look.
  const { changes, rollbacks: undone } = engine;
  space.pushed = { key, changes, undone };
  return key;
}

export function update<K, View, Writable, Input>(
  session: Session,
  form: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  change: (value: Writable) => unknown,
  options: TypedUpdateOptions<K, View, Input> | undefined,
): boolean {
  if (typeof change !== "function") {
    throw badArgument("updateIf() needs a function that changes the value.", change);
  }
  if (options === undefined) return apply(session, form, key, change, undefined, undefined);
  if (options !== lastOptions) checkOptions(options);
  const { predicate, valueIfMissing } = options;
  if (predicate !== undefined && typeof predicate !== "function") throw noPredicate(predicate);
  if (options.predicateKey === undefined) {
    return apply(session, form, key, change, predicate, valueIfMissing);
  }
  if (!allows(session, form, options.predicateKey, predicate)) return false;
  return apply(session, form, key, change, undefined, valueIfMissing);
}

function checkOptions(options: object): void {
  refuseUnknown("updateIf()", options, OPTIONS);
  lastOptions = options;
}

function noPredicate(given: unknown): Error {
  return badArgument("The option predicate of updateIf() must be a function.", given);
}

/** What the predicate, which there has to be, says of the value of another key. */
function allows<K, View, Writable, Input>(
  session: Session,
  form: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  predicate: ((value: View) => boolean) | undefined,
): boolean {
  if (predicate !== undefined) return testPredicateOn(session, form, key, predicate);
  throw badArgument("updateIf() has a predicateKey but no predicate.");
}

/** What the predicate says of the value of another key, or of one that cannot be staged. */
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
    ? session.lentView(codec, at)
    : engine.copies
      ? engine.copied(codec, at)
      : codec.view(memory, at, engine.foundLength());
  const { epoch } = memory;
  session.gate |= IN_CALLBACK;
  try {
    const answer = session.judged(predicate(view));
    // An answer that is due to bytes that had died is none.
    if (memory.epoch !== epoch) throw diedInCallback();
    return answer;
  } finally {
    session.gate &= ~IN_CALLBACK;
  }
}

/**
 * Changes the record of a key. All of its common way is in this one function, since that makes it too
 * large to be put into others and then compiled in part: it took a third longer in some programs.
 */
function apply<K, View, Writable, Input>(
  session: Session,
  form: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  change: (value: Writable) => unknown,
  predicate: ((value: View) => boolean) | undefined,
  valueIfMissing: Input | undefined,
): boolean {
  const { engine } = session;
  const { space, codec } = form;
  if (space.checkedAt !== engine.rollbacks) space.ensure();
  const keyLength = form.keys.encode(engine, key);
  let at: number;
  try {
    at = engine.updateBeginEncoded(keyLength, space.keyspace);
  } catch (error) {
    refusedOrThrow(session, form, key, predicate, error);
    return false;
  }
  if (at === 0) {
    if (valueIfMissing === undefined) return false;
    return insertAndApply(session, form, key, change, predicate, valueIfMissing);
  }
  const { memory } = engine;
  const { epoch } = memory;
  let length = engine.foundLength();
  let applied = false;
  let writable: Writable | undefined;
  let before: Before | undefined;
  stagedAt = at;
  const isApart = engine.copies || session.strict;
  const copy = isApart ? writableCopy(engine, codec, at) : undefined;
  session.gate |= IN_CALLBACK;
  try {
    if (space.indexes.length !== 0) before = entriesBefore(engine, form, keyLength, length);
    writable = copy === undefined ? codec.writable(memory, at, length) : copy.writable;
    // Assigning to what is no field then throws. What other codecs give may well get more fields.
    if (session.strict && codec.kind.kind === "struct") Object.preventExtensions(writable);
    if (predicate === undefined || session.judged(predicate(writable as unknown as View))) {
      const result = change(writable);
      if (memory.epoch !== epoch) throw diedInCallback();
      if (result !== undefined) {
        length = replaced(session, codec, writable, result);
        codec.revoke(writable);
      } else {
        const bytes = codec.finish(writable);
        if (bytes !== undefined) length = resized(engine, bytes);
        else if (copy !== undefined) engine.memory.u8.set(copy.u8, at);
      }
      applied = true;
    } else codec.revoke(writable);
    if (before !== undefined && applied) before.moved = unlessSame(engine, form, length, before);
  } catch (error) {
    throw undone(session, codec, writable, error);
  } finally {
    if (copy !== undefined) session.note(copy.u8);
  }
  session.gate &= ~IN_CALLBACK;
  if (!applied) {
    engine.abort();
    return false;
  }
  if (before?.moved === undefined) engine.finish(length);
  else {
    // A staged record cannot be taken back once it is committed: this one was staged in vain.
    engine.abort();
    const plain = form as CollectionContext<unknown, unknown, unknown, never, never>;
    writeAnew(session, plain, before.key, before.moved);
  }
  if (!session.queued) session.queue();
  return true;
}

/** What a callback may change instead of the record, where a view that is kept would hold too much memory. */
function writableCopy<Writable>(
  engine: Engine,
  codec: Codec<unknown, Writable, never>,
  at: number,
): { readonly u8: Uint8Array<ArrayBuffer>; readonly writable: Writable } {
  const u8 = engine.copyAt(at, engine.foundLength());
  const data = new DataView(u8.buffer);
  return { u8, writable: codec.writable({ data, u8, epoch: 0 }, 0, u8.length) };
}

/** Where there is no room, a refused predicate is still an answer and not a failure. */
function refusedOrThrow<K, View, Writable, Input>(
  session: Session,
  form: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  predicate: ((value: View) => boolean) | undefined,
  error: unknown,
): void {
  const full = error instanceof QuotaExceededError && predicate !== undefined;
  if (!full || testPredicateOn(session, form, key, predicate)) throw error;
}

/** After a callback has thrown: ends its view, gives every byte back, and the error. */
function undone<Writable>(
  session: Session,
  codec: Codec<unknown, Writable, never>,
  writable: Writable | undefined,
  error: unknown,
): unknown {
  session.gate &= ~IN_CALLBACK;
  if (writable !== undefined) codec.revoke(writable);
  if (session.isAlive()) session.engine.abort();
  return error;
}

/** A record of a collection with indexes, before it is changed. */
interface Before {
  readonly key: Uint8Array<ArrayBuffer>;
  readonly entries: readonly Entry[];
  /** What it has become, if that has other entries. */
  moved: Uint8Array | undefined;
}

/** The record that is staged, and its key, which was encoded last. */
function entriesBefore<View>(
  engine: Engine,
  { space, codec }: CollectionContext<unknown, View, unknown, never, never>,
  keyLength: number,
  length: number,
): Before {
  const key = engine.encoded(keyLength);
  const entries = entriesOf(space.indexes, codec.view(engine.memory, stagedAt, length), key);
  return { key, entries, moved: undefined };
}

/** Stores what a missing key gets first, and takes it back unless it is then changed. */
function insertAndApply<K, View, Writable, Input>(
  session: Session,
  form: CollectionContext<unknown, View, Writable, Input, K>,
  key: K,
  change: (value: Writable) => unknown,
  predicate: ((value: View) => boolean) | undefined,
  value: Input,
): boolean {
  return session.undoUnless(
    (applied) => applied,
    () => {
      store(session, form, key, value);
      return apply(session, form, key, change, predicate, undefined);
    },
  );
}

/** A copy of the bytes that are staged, if they have other entries in the indexes than before. */
function unlessSame<View>(
  { memory }: Engine,
  { space, codec }: CollectionContext<unknown, View, unknown, never, never>,
  length: number,
  before: Before,
): Uint8Array | undefined {
  const after = entriesOf(space.indexes, codec.view(memory, stagedAt, length), before.key);
  if (areSame(before.entries, after)) return undefined;
  return new Uint8Array(memory.u8.subarray(stagedAt, stagedAt + length));
}

/** Writes bytes in place of a record, and has the indexes follow. */
function writeAnew(
  session: Session,
  form: CollectionContext<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
  bytes: Uint8Array,
): void {
  const { engine } = session;
  reindexed(session, form, key, () => {
    writeBytes(session, form, engine.encodeBy(copier, key), bytes);
  });
}

function writeBytes(
  { engine }: Session,
  { space }: CollectionContext<unknown, unknown, unknown, never, never>,
  keyLength: number,
  bytes: Uint8Array,
): void {
  const at = engine.setBegin(keyLength, bytes.length, space.keyspace);
  engine.memory.u8.set(bytes, at);
  engine.finish(bytes.length);
}

/** Stores bytes that are a value, under the encoded key. They lie outside of the engine's memory. */
export function storeBytes(
  session: Session,
  form: CollectionContext<unknown, unknown, unknown, never, never>,
  keyLength: number,
  bytes: Uint8Array,
): void {
  const { engine } = session;
  const { space } = form;
  const key = engine.encoded(keyLength);
  if (space.checkedAt !== engine.rollbacks) space.ensure();
  if (space.indexes.length > 0) writeAnew(session, form, key, bytes);
  else writeBytes(session, form, engine.encodeBy(copier, key), bytes);
  if (!session.queued) session.queue();
}

/** Where the record that was changed last is staged. */
let stagedAt = 0;

/** Stages other bytes, and gives their number. */
function resized(engine: Engine, bytes: Uint8Array): number {
  stagedAt = engine.updateResize(bytes.length);
  engine.memory.u8.set(bytes, stagedAt);
  return bytes.length;
}

/** Stages what a callback returned, and gives its length. */
function replaced<View, Writable, Input>(
  session: Session,
  codec: Codec<View, Writable, Input>,
  writable: Writable,
  result: unknown,
): number {
  const { engine } = session;
  const input = returned<Input>(session, writable, result);
  const size = codec.size(input);
  stagedAt = engine.updateResize(size);
  codec.write(engine.memory, stagedAt, input, size);
  return size;
}

/** What a callback returned, as the value that takes the old one's place. */
function returned<Input>(session: Session, writable: unknown, result: unknown): Input {
  session.refuseLater("The callback of updateIf()", result);
  if (typeof writable === "object" && typeof result !== "object") {
    throw badArgument(
      "The callback of updateIf() must return nothing, or the new value. (An arrow function " +
        "returns its expression: put it in braces.)",
      result,
    );
  }
  return lasting(result as Input, session.engine);
}
