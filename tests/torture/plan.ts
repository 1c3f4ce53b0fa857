/**
 * What a writer does that is going to be killed, as a function of numbers: the same seed, life and
 * turn give the same writes. So the process that is killed and whoever looks at what it left need
 * tell each other nothing but how far it came.
 *
 * A **life** is one process or worker, from opening to its death. It does **turns**, numbered from 1,
 * and a turn is a few **steps**, each of which is there whole or not at all.
 */

import type { Database, Durability } from "varve";
import { pattern } from "../model/values.js";
import { random } from "../support/values.js";

export type Step =
  /** The value is the pattern of that number. */
  | { readonly do: "set"; readonly key: string; readonly number: number; readonly size: number }
  | { readonly do: "delete"; readonly key: string }
  /** Turns over these bits in each byte of the value, in place. */
  | { readonly do: "update"; readonly key: string; readonly bits: number }
  | { readonly do: "clear"; readonly prefix: string }
  | { readonly do: "transaction"; readonly body: readonly Step[]; readonly throws: boolean };

/** How a turn ends, and what is known then. All but the first acknowledge what was written. */
export type End =
  | "a microtask"
  | "commit()"
  | "committed"
  | "flush()"
  | "flushed"
  | "a task"
  | "compact()"
  | "close()";

export interface Turn {
  readonly steps: readonly Step[];
  readonly end: End;
}

/** How far a life came: so many turns, and of the one after them so many steps. */
export interface Reach {
  readonly turns: number;
  readonly steps: number;
}

const MIB = 1_048_576;
const KEYS = 6_000;
const LARGE_KEYS = 10;
export const MARK = "mark";

/** So much less than lives, so that records are read from the file and memory is used again. */
export const MEMORY = 4 * MIB;

/** How a life hands on its writes. */
export function durabilityOf(seed: number, life: number): Durability {
  const next = random(mix(seed, life, 0));
  const kind = next(8);
  return kind === 0 ? "flushed" : kind <= 2 ? "buffered" : "written";
}

export function turnOf(seed: number, life: number, turn: number): Turn {
  const next = random(mix(seed, life, turn));
  const kind = next(100);
  const length = kind < 3 ? 40 + next(160) : 1 + next(12);
  // A new database is filled at first, so that there is something to overwrite, read and move.
  const filling = life === 1 && turn <= 400;
  const steps = Array.from({ length: filling ? 12 : length }, () => stepOf(next, 0, filling));
  return { steps, end: endOf(next) };
}

function stepOf(next: (below: number) => number, depth: number, filling: boolean): Step {
  const kind = filling ? 0 : next(200);
  if (kind >= 199) return { do: "clear", prefix: keyOf(next).slice(0, 4) };
  if (kind >= 180 && depth < 2) {
    const body = Array.from({ length: 1 + next(6) }, () => stepOf(next, depth + 1, false));
    return { do: "transaction", body, throws: next(4) === 0 };
  }
  const key = keyOf(next);
  if (kind >= 140) return { do: "update", key, bits: next(256) };
  if (kind >= 100) return { do: "delete", key };
  return { do: "set", key, number: next(1 << 30), size: sizeOf(next, key) };
}

/** Some keys are written much more often than others. */
function keyOf(next: (below: number) => number): string {
  if (next(200) === 0) return `large ${next(LARGE_KEYS)}`;
  const rank = next(3) === 0 ? next(KEYS) : next(1 + next(KEYS));
  return `k${String(rank).padStart(5, "0")}`;
}

function sizeOf(next: (below: number) => number, key: string): number {
  if (key.startsWith("large")) return 20_000 + next(next(4) === 0 ? 1_000_000 : 100_000);
  return next(20) === 0 ? next(12_000) : next(2_000);
}

function endOf(next: (below: number) => number): End {
  const kind = next(1_000);
  if (kind < 2) return "close()";
  if (kind < 5) return "compact()";
  if (kind < 9) return "flush()";
  if (kind < 13) return "flushed";
  if (kind < 90) return "a task";
  if (kind < 300) return "a microtask";
  return kind < 600 ? "commit()" : "committed";
}

/** Which key is looked at after a turn. */
export function keyToRead(seed: number, life: number, turn: number): string {
  return keyOf(random(mix(seed, life, -turn)));
}

function mix(...numbers: number[]): number {
  let mixed = 0x2545_f491;
  for (const one of numbers) {
    mixed = Math.imul(mixed ^ one, 0x9e37_79b1);
    mixed ^= mixed >>> 15;
  }
  return mixed;
}

/** Does a step to the database. */
export function perform(db: Database, step: Step): void {
  if (step.do === "set") db.set(step.key, pattern(step.number, step.size));
  else if (step.do === "delete") db.delete(step.key);
  else if (step.do === "clear") db.clear({ prefix: step.prefix });
  else if (step.do === "update") db.updateIf(step.key, (view) => turnOver(view, step.bits));
  else performTransaction(db, step.body, step.throws);
}

function performTransaction(db: Database, body: readonly Step[], throws: boolean): void {
  const regret = new Error("on purpose");
  try {
    db.transaction(() => {
      for (const step of body) perform(db, step);
      if (throws) throw regret;
    });
  } catch (error) {
    if (error !== regret) throw error;
  }
}

/** Turns bits over in each byte. */
export function turnOver(bytes: Uint8Array, bits: number): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = (bytes[i] as number) ^ bits;
}

/** Says, as the last write of a turn, that it was done. */
export function mark(db: Database, life: number, turn: number): void {
  db.set(MARK, `${life} ${turn}`);
}

/** Which turn was done last, of which life. */
export function markOf(db: Database): { life: number; turn: number } {
  const [life = 0, turn = 0] = (db.getText(MARK) ?? "0 0").split(" ").map(Number);
  return { life, turn };
}
