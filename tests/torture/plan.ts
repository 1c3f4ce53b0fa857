/**
 * The writes of writers that are going to be killed. The same seed, writer and turn give the same writes, so a
 * killed writer and the next one, which checks the file, only have to share how far the first one got.
 *
 * A **writer** is one process or worker, from opening the database until it is killed. It does **turns**,
 * numbered from 1. A turn is a few **steps**, each of which is in the file completely or not at all.
 */

import type { Database, Durability } from "varve";
import { pattern } from "../model/values.js";
import { random } from "../support/values.js";

export type Step =
  /** The value is the pattern of that number. */
  | { readonly do: "set"; readonly key: string; readonly number: number; readonly size: number }
  | { readonly do: "delete"; readonly key: string }
  /** Flips these bits in each byte of the value, in place. */
  | { readonly do: "update"; readonly key: string; readonly bits: number }
  | { readonly do: "clear"; readonly prefix: string }
  | { readonly do: "transaction"; readonly body: readonly Step[]; readonly throws: boolean };

/** How a turn ends. All but the first acknowledge its writes. */
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

/** How far a writer got: its complete turns, and the steps done of the next one. */
export interface Reach {
  readonly turns: number;
  readonly steps: number;
}

const MIB = 1_048_576;
const KEYS = 6_000;
const LARGE_KEYS = 10;
export const MARK = "mark";

/** Much less than the live data, so that records are read from the file and memory is reused. */
export const MEMORY = 4 * MIB;

/** The durability of a writer's writes. */
export function durabilityOf(seed: number, writer: number): Durability {
  const next = random(mix(seed, writer, 0));
  const kind = next(8);
  return kind === 0 ? "flushed" : kind <= 2 ? "buffered" : "written";
}

export function turnOf(seed: number, writer: number, turn: number): Turn {
  const next = random(mix(seed, writer, turn));
  const kind = next(100);
  const length = kind < 3 ? 40 + next(160) : 1 + next(12);
  // A new database is filled at first, so that there is something to overwrite, read and move.
  const isFilling = writer === 1 && turn <= 400;
  const steps = Array.from({ length: isFilling ? 12 : length }, () => stepOf(next, 0, isFilling));
  return { steps, end: endOf(next) };
}

function stepOf(next: (below: number) => number, depth: number, isFilling: boolean): Step {
  const kind = isFilling ? 0 : next(200);
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

/** The key to check after a turn. */
export function keyToRead(seed: number, writer: number, turn: number): string {
  return keyOf(random(mix(seed, writer, -turn)));
}

function mix(...numbers: number[]): number {
  let mixed = 0x2545_f491;
  for (const one of numbers) {
    mixed = Math.imul(mixed ^ one, 0x9e37_79b1);
    mixed ^= mixed >>> 15;
  }
  return mixed;
}

/** Performs a step on the database. */
export function perform(db: Database, step: Step): void {
  if (step.do === "set") db.set(step.key, pattern(step.number, step.size));
  else if (step.do === "delete") db.delete(step.key);
  else if (step.do === "clear") db.clear({ prefix: step.prefix });
  else if (step.do === "update") db.updateIf(step.key, (view) => flip(view, step.bits));
  else performTransaction(db, step.body, step.throws);
}

function performTransaction(db: Database, body: readonly Step[], throws: boolean): void {
  const abort = new Error("on purpose");
  try {
    db.transaction(() => {
      for (const step of body) perform(db, step);
      if (throws) throw abort;
    });
  } catch (error) {
    if (error !== abort) throw error;
  }
}

/** Flips these bits in each byte. */
export function flip(bytes: Uint8Array, bits: number): void {
  for (let i = 0; i < bytes.length; i++) bytes[i] = (bytes[i] as number) ^ bits;
}

/** The last write of a turn: records that the turn is complete. */
export function mark(db: Database, writer: number, turn: number): void {
  db.set(MARK, `${writer} ${turn}`);
}

/** The last complete turn and its writer. */
export function markOf(db: Database): { writer: number; turn: number } {
  const [writer = 0, turn = 0] = (db.getText(MARK) ?? "0 0").split(" ").map(Number);
  return { writer, turn };
}
