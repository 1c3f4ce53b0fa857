/** `updateIf` and its callbacks, on the database and on the model. */

import type { UpdateOptions } from "varve";
import {
  AMPLE,
  BAD_ARGUMENT,
  codeOf,
  equal,
  head,
  Mismatch,
  OUT_OF_MEMORY,
  REENTRANCY,
  STALE_VIEW,
  Undone,
} from "./checks.js";
import type { Machine } from "./machine.js";
import { inForm } from "./points.js";
import type { Predicate, Update } from "./program.js";
import { bytesOf, fill, pattern, same } from "./values.js";

/** The observations of a callback. */
interface Reported {
  view: Uint8Array | undefined;
  isStale: boolean;
}

/** The expected result of an update. */
type Outcome = { answer: boolean } | { refusal: string } | "undone";

/** The number of the pattern that callbacks leave in bytes that are not to be kept. */
const SCRIBBLE = 987_654_321;

/** Runs an update on the database and on the model. */
export function update(machine: Machine, update: Update): void {
  const { model } = machine;
  const old = model.get(update.key)?.bytes;
  const start = old ?? (update.valueIfMissing && bytesOf(update.valueIfMissing));
  const { outcome, next } = predict(machine, update, start);
  const reported: Reported = { view: undefined, isStale: false };
  const call = () =>
    machine.db.updateIf(
      machine.key(update),
      (view) => change(machine, update, view, start, reported),
      optionsOf(machine, update, start),
    );
  const { answer, thrown } = attempt(call);
  if (reported.isStale) {
    // A read of the callback took the memory of its view. The call reports it, and nothing is changed.
    if (codeOf(thrown) !== STALE_VIEW) throw thrown ?? new Mismatch("a stale view was kept");
    machine.expireViews();
    return;
  }
  settle(outcome, answer, thrown);
  if (expiresByPromise(update)) machine.expireViews();
  const { keep } = update;
  if (keep !== undefined && reported.view !== undefined && start !== undefined) {
    keepView(machine, keep, reported.view, update, start);
  }
  if (next !== undefined) machine.wrote(update.key, next);
}

function attempt(call: () => boolean): { answer?: boolean; thrown?: unknown } {
  try {
    return { answer: call() };
  } catch (thrown) {
    return { thrown };
  }
}

/** Checks the result of an update against the expected one. */
function settle(outcome: Outcome, answer: boolean | undefined, thrown: unknown): void {
  if (outcome === "undone") {
    if (!(thrown instanceof Undone)) throw thrown ?? new Mismatch("a throw in it was swallowed");
  } else if ("refusal" in outcome) {
    if (codeOf(thrown) !== outcome.refusal) throw thrown ?? new Mismatch(`no ${outcome.refusal}`);
  } else {
    if (thrown !== undefined) throw thrown;
    equal("updateIf", answer, outcome.answer);
  }
}

/** The result of the callback, and the bytes if it changes any. */
function predict(
  { model }: Machine,
  { predicate, predicateKey, change, valueIfMissing, key }: Update,
  start: Uint8Array | undefined,
): { outcome: Outcome; next?: Uint8Array<ArrayBuffer> } {
  const refuses = { outcome: { answer: false } };
  if (predicate !== undefined && predicateKey !== undefined) {
    if (!model.has(predicateKey)) return refuses;
    const early = decidedBy(predicate);
    if (early !== undefined) return { outcome: early };
  }
  if (start === undefined || (!model.has(key) && valueIfMissing === undefined)) return refuses;
  const verdict = predicate === undefined ? undefined : decidedBy(predicate);
  if (verdict !== undefined) return { outcome: verdict };
  const next = new Uint8Array(start);
  const applied = { answer: true };
  switch (change.how) {
    case "poke":
      if (next.length > 0) next[change.at % next.length] = change.byte;
      return { outcome: applied, next };
    case "rewrite":
      fill(next, change.number);
      return { outcome: applied, next };
    case "return":
      return { outcome: applied, next: bytesOf(change.value) };
    case "return a part of the view":
      return { outcome: applied, next: next.slice(0, (next.length * change.part) >> 2) };
    case "throw":
      return { outcome: "undone" };
    case "set inside":
      return { outcome: { refusal: REENTRANCY } };
    default:
      return { outcome: { refusal: BAD_ARGUMENT } };
  }
}

/** The result that the predicate alone decides; `undefined` if it allows the update. */
function decidedBy(predicate: Predicate): Outcome | undefined {
  if (predicate === "true") return undefined;
  if (predicate === "false") return { answer: false };
  return predicate === "throw" ? "undone" : { refusal: BAD_ARGUMENT };
}

function optionsOf(
  machine: Machine,
  { predicate, predicateKey, valueIfMissing }: Update,
  start: Uint8Array | undefined,
): UpdateOptions | undefined {
  if (predicate === undefined && valueIfMissing === undefined) return undefined;
  const other = predicateKey === undefined ? start : machine.model.get(predicateKey)?.bytes;
  const check = (view: Uint8Array) => {
    if (!same(view, other)) throw wrongly("a predicate", view, other);
    // Writes of the predicate to the record are undone, unless it returns true.
    if (predicateKey === undefined && predicate !== "true") fill(view, SCRIBBLE);
    if (predicate === "throw") throw new Undone();
    if (predicate === "a promise") return Promise.resolve(true) as unknown as boolean;
    return predicate === "nothing" ? (undefined as unknown as boolean) : predicate === "true";
  };
  return {
    ...(predicate === undefined ? {} : { predicate: check }),
    ...(predicate === undefined || predicateKey === undefined
      ? {}
      : { predicateKey: machine.key({ key: predicateKey, form: "text" }) }),
    ...(valueIfMissing === undefined ? {} : { valueIfMissing: bytesOf(valueIfMissing) }),
  };
}

/** The callback. */
function change(
  machine: Machine,
  update: Update,
  view: Uint8Array,
  start: Uint8Array | undefined,
  reported: Reported,
): undefined {
  reported.view = view;
  if (!same(view, start)) throw wrongly("a callback", view, start);
  for (const rank of update.reads) read(machine, rank, update.key);
  reported.isStale = view.length === 0 && start?.length !== 0 && machine.setting.memory < AMPLE;
  if (reported.isStale) return undefined;
  if (!same(view, start)) throw wrongly("a callback that has read other keys", view, start);
  const result = (given: unknown) => given as undefined;
  const { change } = update;
  switch (change.how) {
    case "poke":
      if (view.length > 0) view[change.at % view.length] = change.byte;
      return undefined;
    case "rewrite":
      fill(view, change.number);
      return undefined;
    case "return":
      fill(view, SCRIBBLE);
      return result(inForm(change.value, bytesOf(change.value), change.form));
    case "return a part of the view":
      return result(view.subarray(0, (view.length * change.part) >> 2));
    case "throw":
      fill(view, SCRIBBLE);
      throw new Undone();
    case "return a promise":
      fill(view, SCRIBBLE);
      return result(Promise.resolve());
    case "return a number":
      fill(view, SCRIBBLE);
      return result(7);
    case "set inside":
      fill(view, SCRIBBLE);
      machine.db.set(machine.key(update), "refused");
      return undefined;
  }
}

/** Checks that a callback may read, and that calls that would invalidate its view are refused. */
function read(machine: Machine, rank: number, changing: number): void {
  let view: Uint8Array | undefined;
  try {
    view = machine.db.get(machine.key({ key: rank, form: "text" }));
  } catch (error) {
    if (codeOf(error) !== OUT_OF_MEMORY || machine.setting.memory >= AMPLE) throw error;
    return;
  }
  // The record that is being changed may show either value.
  if (rank !== changing) machine.shows(rank, view, "get in a callback");
}

/** The function behind a refused promise continues, and its views must have expired. */
function expiresByPromise({ change, predicate }: Update): boolean {
  return change.how === "return a promise" || predicate === "a promise";
}

function keepView(
  machine: Machine,
  slot: number,
  view: Uint8Array,
  { key, change }: Update,
  start: Uint8Array,
): void {
  const bytes = [start];
  // When the callback returns other bytes, the ones in its view are its own.
  if (change.how === "return") bytes.push(pattern(SCRIBBLE, start.length));
  const from = `an update of ${machine.keyAt(key).shown}`;
  // The view belongs to the callback, and counts as kept too long afterwards.
  machine.views.keep(slot, view, key, bytes, machine.past, from);
}

function wrongly(reader: string, view: Uint8Array, expected: Uint8Array | undefined): Mismatch {
  return new Mismatch(`${reader} is shown ${head(view)} instead of ${head(expected)}`);
}
