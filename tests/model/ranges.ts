/** Operations on ranges. */

import type { Range } from "varve";
import { BAD_ARGUMENT, refused } from "./checks.js";
import { textIn } from "./keys.js";
import type { Machine } from "./machine.js";
import type { Of, Operation, RankRange } from "./program.js";
import { Walk } from "./walks.js";

export function count(machine: Machine, range: RankRange | undefined): void {
  const { db, model } = machine;
  if (range === undefined) machine.agree("count", db.count(), model.size);
  else if (allows(machine, () => db.count(rangeOf(machine, range)))) {
    machine.agree("count", db.count(rangeOf(machine, range)), model.within(range).length);
  }
}

export function clear(machine: Machine, range: RankRange | undefined): void {
  const call = () => machine.db.clear(range && rangeOf(machine, range));
  if (!allows(machine, call)) return;
  const gone = machine.model.within(range ?? {});
  machine.agree("clear", call(), gone.length);
  for (const rank of gone) machine.deleted(rank);
}

/** Iterates over a range at once. */
export function scan(machine: Machine, range: RankRange, of: Of): void {
  if (!allows(machine, () => iterate(machine, range, of))) return;
  const walk = new Walk(machine.model, iterate(machine, range, of), range, of);
  while (walk.goesOn) walk.step();
}

/** Starts an iteration over a range, to be continued later. */
export function begin(machine: Machine, { slot, range, of }: Extract<Operation, { do: "walk" }>) {
  if (!allows(machine, () => iterate(machine, range, of))) return;
  machine.walks[slot] = new Walk(machine.model, iterate(machine, range, of), range, of);
}

export function step(
  machine: Machine,
  { slot, times, keep }: Extract<Operation, { do: "step" }>,
): void {
  const walk = machine.walks[slot];
  for (let i = 0; i < times && walk?.goesOn === true; i++) {
    const found = walk.step();
    if (found === undefined) continue;
    const { view, rank } = found;
    if (keep === undefined) continue;
    // The view is valid until the next step. Kept longer, it shows its own record or has expired.
    const bytes = machine.model.get(rank)?.bytes as Uint8Array;
    const from = `${walk.of} at ${machine.keyAt(rank).shown}`;
    machine.views.keep(keep, view, rank, [bytes], machine.past, from);
  }
}

export function leave(machine: Machine, slot: number): void {
  machine.walks[slot]?.leave();
  machine.walks[slot] = undefined;
}

/** Whether the database is ordered; if not, the call has to throw. */
function allows(machine: Machine, call: () => unknown): boolean {
  if (!machine.setting.ordered) refused(BAD_ARGUMENT, call);
  return machine.setting.ordered;
}

function iterate(machine: Machine, range: RankRange, of: Of): Iterator<unknown, undefined> {
  const { db } = machine;
  const given = rangeOf(machine, range);
  switch (of) {
    case "keys":
      return db.keys(given)[Symbol.iterator]();
    case "values":
      return db.values(given)[Symbol.iterator]();
    case "entries":
      return db.entries(given)[Symbol.iterator]();
    case "keys as bytes":
      return db.keys({ ...given, keyAs: "bytes" })[Symbol.iterator]();
    case "entries as bytes":
      return db.entries({ ...given, keyAs: "bytes" })[Symbol.iterator]();
  }
}

function rangeOf(machine: Machine, range: RankRange): Range {
  const { prefix, reverse, limit } = range;
  const given: Range = {};
  for (const bound of ["gt", "gte", "lt", "lte"] as const) {
    const rank = range[bound];
    if (rank === undefined) continue;
    given[bound] = machine.key({ key: rank, form: rank % 2 === 0 ? "text" : "bytes" });
  }
  if (prefix !== undefined) {
    const [rank, length] = prefix;
    const bytes = machine.keyAt(rank).bytes.slice(0, length);
    given.prefix = textIn(bytes) ?? bytes;
  }
  if (reverse !== undefined) given.reverse = reverse;
  if (limit !== undefined) given.limit = limit;
  return given;
}
