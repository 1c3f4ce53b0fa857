/** How collections write: `set` and `updateIf` with values in the collection's form. */

import type { Engine } from "../engine.js";
import { badArgument, QuotaExceededError } from "../errors.js";
import { refuseUnknown } from "../options.js";
import type { Bounds } from "../range.js";
import type { Session } from "../session.js";
import { IN_CALLBACK } from "../session-gate.js";
import { diedInCallback } from "../strict.js";
import type { Form } from "./form.js";
import { areSame, copier, type Entry, entriesOf, reindex } from "./indexes.js";

/** The options of a collection's `updateIf`. */
export interface TypedUpdateOptions<K, View, Input> {
  /** The record is changed only if this returns `true` for its current value. */
  predicate?: ((value: View) => boolean) | undefined;
  /** The predicate sees the value of this key instead. When that key is missing, nothing is changed. */
  predicateKey?: K | undefined;
  /** What a missing key gets first. It is then updated like any other; if that is refused, it stays missing. */
  valueIfMissing?: Input | undefined;
}

const OPTIONS = ["predicate", "predicateKey", "valueIfMissing"];

/** So many keys are deleted between two looks at which come next. */
const CLEAR_PAGE = 1_024;

/** In place of a length: the predicate refused. */
const REFUSED = -1;

/** The last options that were found to be right: programs pass the same ones again and again. */
let lastOptions: object | undefined;

/** Stores a value, and has the indexes lead to it. */
export function store<K, View, Writable, Input>(
  session: Session,
  form: Form<unknown, View, Writable, Input, K>,
  key: K,
  given: Input,
): void {
  const { engine } = session;
  const { space, codec, keys } = form;
  const value = lasting(given, engine);
  const size = codec.size(value);
  if (space.sure !== engine.undone) space.ensure();
  const length = keys.encode(engine, key);
  if (space.indexes.length === 0) place(session, form, length, value, size);
  else {
    const bytes = engine.encoded(length);
    reindexed(session, form, bytes, () => {
      place(session, form, engine.encodeBy(copier, bytes), value, size);
    });
  }
  if (!session.queued) session.queue();
}

/** A copy in place of a view of this memory, which may die when room is made for the record. */
function lasting<Input>(value: Input, { memory }: Engine): Input {
  const view = value as Partial<{ $m: unknown; snapshot(): Input }> | undefined | null;
  if (view?.$m !== memory || view.snapshot === undefined) return value;
  return view.snapshot();
}

/** Writes the record of the encoded key. What its encoding runs meanwhile must not write. */
export function place<View, Writable, Input>(
  session: Session,
  { space, codec }: Form<unknown, View, Writable, Input, never>,
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
    if (session.isAlive()) engine.setAbort();
    throw error;
  }
  session.gate &= ~IN_CALLBACK;
  engine.setCommit(size);
}

/** Removes a key, and what leads to it. Says whether it was there. */
export function remove<K>(
  session: Session,
  form: Form<unknown, unknown, unknown, never, K>,
  key: K,
): boolean {
  const { engine } = session;
  const { space, keys } = form;
  if (space.sure !== engine.undone) space.ensure();
  const length = keys.encode(engine, key);
  let removed: boolean;
  if (space.indexes.length === 0) removed = engine.removeEncoded(length, space.keyspace);
  else removed = removeIndexed(session, form, engine.encoded(length));
  if (removed && !session.queued) session.queue();
  return removed;
}

function removeIndexed(
  session: Session,
  form: Form<unknown, unknown, unknown, never, never>,
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
  form: Form<unknown, unknown, unknown, never, never>,
  bounds: Bounds,
): number {
  const { space } = form;
  const { limit } = bounds;
  if (limit === 0) return 0;
  if (space.sure !== session.engine.undone) space.ensure();
  if (space.indexes.length === 0) return session.clear(bounds, limit, space.keyspace);
  return session.undoUnless(kept, () => {
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

/** Runs a change of one record, and has the indexes follow. Both are done or neither. */
function reindexed(
  session: Session,
  form: Form<unknown, unknown, unknown, never, never>,
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
  { space, codec }: Form<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
): readonly Entry[] | undefined {
  const at = engine.find(engine.encodeBy(copier, key), space.keyspace);
  if (at === 0) return undefined;
  return entriesOf(space.indexes, codec.view(engine.memory, at, engine.foundLength()), key);
}

/** Everything, from the last key on. */
const BACKWARDS = {
  lower: undefined,
  lowerExcluded: false,
  upper: undefined,
  upperIncluded: false,
  reverse: true,
};

/** Stores a value under a number above all that are there. */
export function push<View, Writable, Input>(
  session: Session,
  form: Form<number, View, Writable, Input>,
  value: Input,
): number {
  const { keys, space } = form;
  const { engine } = session;
  if (!keys.isAuto) {
    throw badArgument("push() is for collections whose keys are auto(): use set() with a key.");
  }
  if (space.pushed.changes !== engine.changes) {
    session.admitRange("push()");
    const { bytes, count } = engine.scan(BACKWARDS, 1, false, space.keyspace);
    space.pushed.key = count === 0 ? 0 : keys.decode(bytes);
  }
  const key = space.pushed.key + 1;
  store(session, form, key, value);
  // As long as nothing else is written, the next one needs no look.
  space.pushed = { key, changes: engine.changes };
  return key;
}

export function update<K, View, Writable, Input>(
  session: Session,
  form: Form<unknown, View, Writable, Input, K>,
  key: K,
  change: (value: Writable) => unknown,
  options: TypedUpdateOptions<K, View, Input> | undefined,
): boolean {
  if (typeof change !== "function") {
    throw badArgument("updateIf() needs a function that changes the value.", change);
  }
  if (options === undefined) return apply(session, form, key, change, undefined, undefined);
  if (options !== lastOptions) refuseUnknown("updateIf()", options, OPTIONS);
  lastOptions = options;
  const { predicate, predicateKey, valueIfMissing } = options;
  if (predicate !== undefined && typeof predicate !== "function") {
    throw badArgument("The option predicate of updateIf() is a function.", predicate);
  }
  if (predicateKey === undefined) {
    return apply(session, form, key, change, predicate, valueIfMissing);
  }
  if (predicate === undefined) {
    throw badArgument("updateIf() has a predicateKey and no predicate that would look at it.");
  }
  if (!judgeOther(session, form, predicateKey, predicate)) return false;
  return apply(session, form, key, change, undefined, valueIfMissing);
}

/** What the predicate says of the value of another key, or of one that cannot be staged. */
function judgeOther<K, View, Writable, Input>(
  session: Session,
  { space, codec, keys }: Form<unknown, View, Writable, Input, K>,
  key: K,
  predicate: (value: View) => boolean,
): boolean {
  const { engine } = session;
  const { memory } = engine;
  const at = engine.find(keys.encode(engine, key), space.keyspace);
  if (at === 0) return false;
  const view = codec.view(memory, at, engine.foundLength());
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

function apply<K, View, Writable, Input>(
  session: Session,
  form: Form<unknown, View, Writable, Input, K>,
  key: K,
  change: (value: Writable) => unknown,
  predicate: ((value: View) => boolean) | undefined,
  valueIfMissing: Input | undefined,
): boolean {
  const { engine } = session;
  const { space } = form;
  if (space.sure !== engine.undone) space.ensure();
  const { indexes, keyspace } = space;
  const keyLength = form.keys.encode(engine, key);
  const bytes = indexes.length === 0 ? undefined : engine.encoded(keyLength);
  let at: number;
  try {
    at = engine.updateBeginEncoded(keyLength, keyspace);
  } catch (error) {
    // Where there is no room, a refused predicate is still an answer and not a failure.
    const full = error instanceof QuotaExceededError && predicate !== undefined;
    if (full && !judgeOther(session, form, key, predicate)) return false;
    throw error;
  }
  if (at === 0) {
    if (valueIfMissing === undefined) return false;
    return session.undoUnless(
      (applied) => applied,
      () => {
        store(session, form, key, valueIfMissing);
        return apply(session, form, key, change, predicate, undefined);
      },
    );
  }
  let length: number;
  let moved: Uint8Array<ArrayBuffer> | undefined;
  session.gate |= IN_CALLBACK;
  try {
    if (bytes === undefined) length = changeStaged(session, form, at, change, predicate);
    else {
      const before = entriesOf(
        indexes,
        form.codec.view(engine.memory, at, engine.foundLength()),
        bytes,
      );
      length = changeStaged(session, form, at, change, predicate);
      if (length !== REFUSED) moved = unlessSame(engine, form, length, before, bytes);
    }
  } catch (error) {
    session.gate &= ~IN_CALLBACK;
    if (session.isAlive()) engine.updateAbort();
    throw error;
  }
  session.gate &= ~IN_CALLBACK;
  if (length === REFUSED || moved !== undefined) {
    engine.updateAbort();
    if (moved === undefined || bytes === undefined) return false;
    writeAnew(session, form, bytes, moved);
  } else {
    engine.updateCommit(length);
  }
  if (!session.queued) session.queue();
  return true;
}

/** A copy of the bytes that are staged, if they have other entries in the indexes than before. */
function unlessSame<View>(
  { memory }: Engine,
  { space, codec }: Form<unknown, View, unknown, never, never>,
  length: number,
  before: readonly Entry[],
  key: Uint8Array<ArrayBuffer>,
): Uint8Array<ArrayBuffer> | undefined {
  const after = entriesOf(space.indexes, codec.view(memory, stagedAt, length), key);
  if (areSame(before, after)) return undefined;
  return new Uint8Array(memory.u8.subarray(stagedAt, stagedAt + length));
}

/**
 * Writes the bytes that an update made, and has the indexes follow. A staged record cannot be taken
 * back once it is committed, so that one that changes entries was staged in vain.
 */
function writeAnew(
  session: Session,
  form: Form<unknown, unknown, unknown, never, never>,
  key: Uint8Array<ArrayBuffer>,
  bytes: Uint8Array,
): void {
  const { engine } = session;
  reindexed(session, form, key, () => {
    placeBytes(session, form, engine.encodeBy(copier, key), bytes);
  });
}

function placeBytes(
  { engine }: Session,
  { space }: Form<unknown, unknown, unknown, never, never>,
  keyLength: number,
  bytes: Uint8Array,
): void {
  const at = engine.setBegin(keyLength, bytes.length, space.keyspace);
  engine.memory.u8.set(bytes, at);
  engine.setCommit(bytes.length);
}

/** Stores bytes that are a value, under the encoded key. They lie outside of the engine's memory. */
export function storeBytes(
  session: Session,
  form: Form<unknown, unknown, unknown, never, never>,
  keyLength: number,
  bytes: Uint8Array,
): void {
  const { engine } = session;
  const { space } = form;
  const key = engine.encoded(keyLength);
  if (space.sure !== engine.undone) space.ensure();
  if (space.indexes.length > 0) writeAnew(session, form, key, bytes);
  else placeBytes(session, form, engine.encodeBy(copier, key), bytes);
  if (!session.queued) session.queue();
}

/** Where the record that was changed last is staged. */
let stagedAt = 0;

/**
 * Changes the record that is staged at this address. Gives its new length, or `REFUSED`; it is then
 * at `stagedAt`.
 */
function changeStaged<K, View, Writable, Input>(
  session: Session,
  { codec }: Form<unknown, View, Writable, Input, K>,
  at: number,
  change: (value: Writable) => unknown,
  predicate: ((value: View) => boolean) | undefined,
): number {
  const { engine } = session;
  const { memory } = engine;
  const { epoch } = memory;
  const length = engine.foundLength();
  stagedAt = at;
  const writable = codec.writable(memory, at, length);
  try {
    if (predicate !== undefined && !session.judged(predicate(writable as unknown as View))) {
      return REFUSED;
    }
    const result = change(writable);
    if (memory.epoch !== epoch) throw diedInCallback();
    if (result === undefined) {
      const bytes = codec.finish(writable);
      if (bytes === undefined) return length;
      stagedAt = engine.updateResize(bytes.length);
      memory.u8.set(bytes, stagedAt);
      return bytes.length;
    }
    const input = returned<Input>(session, writable, result);
    const size = codec.size(input);
    stagedAt = engine.updateResize(size);
    codec.write(memory, stagedAt, input, size);
    return size;
  } finally {
    codec.revoke(writable);
  }
}

/** What a callback returned, as the value that takes the old one's place. */
function returned<Input>(session: Session, writable: unknown, result: unknown): Input {
  session.refusePromise("The callback of updateIf()", result);
  if (typeof writable === "object" && typeof result !== "object") {
    throw badArgument(
      "The callback of updateIf() has to return nothing, or the new value. " +
        "(An arrow function returns the value of its expression: put it into braces.)",
      result,
    );
  }
  return result as Input;
}
