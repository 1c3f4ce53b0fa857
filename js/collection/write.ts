/** How collections write: `set` and `updateIf` with values in the collection's form. */

import { badArgument, QuotaExceededError } from "../errors.js";
import { refuseUnknown } from "../options.js";
import type { Session } from "../session.js";
import { IN_CALLBACK } from "../session-gate.js";
import { diedInCallback } from "../strict.js";
import type { Form } from "./form.js";

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

/** In place of a length: the predicate refused. */
const REFUSED = -1;

/** The last options that were found to be right: programs pass the same ones again and again. */
let lastOptions: object | undefined;

/** Stores a value. What its encoding runs meanwhile must not write. */
export function insert<K, View, Writable, Input>(
  session: Session,
  form: Form<unknown, View, Writable, Input, K>,
  key: K,
  value: Input,
): void {
  const { engine } = session;
  const { space, codec } = form;
  const size = codec.size(value);
  if (space.sure !== engine.undone) space.ensure();
  const at = engine.setBegin(form.keys.encode(engine, key), size, space.keyspace);
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
  if (!session.queued) session.queue();
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
    const { bytes, lengths } = engine.scan(BACKWARDS, 1, false, space.keyspace);
    space.pushed.key = lengths.length === 0 ? 0 : keys.decode(bytes);
  }
  const key = space.pushed.key + 1;
  insert(session, form, key, value);
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
  let at: number;
  try {
    at = engine.updateBeginEncoded(form.keys.encode(engine, key), form.space.keyspace);
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
        insert(session, form, key, valueIfMissing);
        return apply(session, form, key, change, predicate, undefined);
      },
    );
  }
  session.gate |= IN_CALLBACK;
  let length: number;
  try {
    length = changeStaged(session, form, at, change, predicate);
  } catch (error) {
    session.gate &= ~IN_CALLBACK;
    if (session.isAlive()) engine.updateAbort();
    throw error;
  }
  session.gate &= ~IN_CALLBACK;
  if (length === REFUSED) {
    engine.updateAbort();
    return false;
  }
  engine.updateCommit(length);
  if (!session.queued) session.queue();
  return true;
}

/** Changes the record that is staged at this address. Gives its new length, or `REFUSED`. */
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
      const place = engine.updateResize(bytes.length);
      memory.u8.set(bytes, place);
      return bytes.length;
    }
    const input = returned<Input>(session, writable, result);
    const size = codec.size(input);
    codec.write(memory, engine.updateResize(size), input, size);
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
