/** The expected contents of a database after the turns of some writers. */

import type { Database } from "varve";
import { pattern, same } from "../model/values.js";
import { durabilityOf, flip, MARK, markOf, type Reach, type Step, turnOf } from "./plan.js";

/** A value: the pattern of a number, with some bits flipped in each byte. */
interface Value {
  readonly number: number;
  readonly size: number;
  readonly bits: number;
}

/** An upper bound of what a record takes besides its key and value. */
const OVERHEAD = 64;

/** Pending writes of this size, or of a quarter of a segment, are committed within a turn. */
const LARGEST_BATCH = 262_144;

export class Expected {
  readonly #seed: number;
  readonly #batchLimit: number;
  readonly #values = new Map<string, Value>();
  #mark = { writer: 0, turn: 0 };
  /** The values that the current turn replaced, in order, to undo transactions. */
  #undo: [key: string, value: Value | undefined][] = [];

  constructor(seed: number, segmentLog2: number) {
    this.#seed = seed;
    this.#batchLimit = Math.min(LARGEST_BATCH, 2 ** segmentLog2 / 4);
  }

  get size(): number {
    return this.#values.size;
  }

  /** Applies the writes of a writer that got this far. */
  apply(writer: number, { turns, steps }: Reach): void {
    for (let turn = 1; turn <= turns; turn++) this.turn(writer, turn);
    for (const step of turnOf(this.#seed, writer, turns + 1).steps.slice(0, steps)) this.#do(step);
  }

  /** Applies one turn of a writer. */
  turn(writer: number, turn: number): void {
    for (const step of turnOf(this.#seed, writer, turn).steps) this.#do(step);
    this.#mark = { writer, turn };
    this.#undo = [];
  }

  /** Applies a step. Returns an upper bound of the bytes that it adds to the pending writes. */
  #do(step: Step): number {
    if (step.do === "transaction") return this.#transact(step.body, step.throws);
    if (step.do === "clear") return this.#clear(step.prefix);
    const { key } = step;
    if (step.do === "set") return this.#put(key, { ...step, bits: 0 });
    const old = this.#values.get(key);
    if (old === undefined) return 0;
    return this.#put(
      key,
      step.do === "delete" ? undefined : { ...old, bits: old.bits ^ step.bits },
    );
  }

  #put(key: string, value: Value | undefined): number {
    this.#undo.push([key, this.#values.get(key)]);
    if (value === undefined) this.#values.delete(key);
    else this.#values.set(key, value);
    return OVERHEAD + key.length + (value?.size ?? 0);
  }

  #clear(prefix: string): number {
    const keys = [...this.#values.keys()].filter((key) => key.startsWith(prefix));
    return keys.reduce((bytes, key) => bytes + this.#put(key, undefined), 0);
  }

  #transact(body: readonly Step[], throws: boolean): number {
    const before = this.#undo.length;
    const bytes = body.reduce((sum, step) => sum + this.#do(step), 0);
    if (!throws) return bytes;
    for (const [key, value] of this.#undo.slice(before).reverse()) {
      if (value === undefined) this.#values.delete(key);
      else this.#values.set(key, value);
    }
    return bytes;
  }

  /**
   * Finds out how far the last writer got: to the marked turn, or some steps further if a part of the next turn
   * was committed. Throws if the contents are not those after a prefix of its writes.
   */
  find(db: Database, writer: number): Reach {
    const mark = markOf(db);
    const turns = mark.writer === writer ? mark.turn : 0;
    for (let turn = 1; turn <= turns; turn++) this.turn(writer, turn);
    const { writer: expected, turn } = this.#mark;
    if (mark.writer !== expected || mark.turn !== turn) {
      throw new Error(`the mark is ${mark.writer} ${mark.turn}, not ${expected} ${turn}`);
    }
    const wrong = this.#wrongIn(db);
    if (wrong.size === 0) return { turns, steps: 0 };
    return { turns, steps: this.#stepsIn(db, writer, turns + 1, wrong) };
  }

  /** The number of committed steps of a turn, without which these keys have other values. */
  #stepsIn(db: Database, writer: number, turn: number, wrong: Set<string>): number {
    const all = [...wrong].slice(0, 8).join(", ");
    const what = `${wrong.size} keys are not as after turn ${turn - 1} of writer ${writer} (${all})`;
    let [bytes, done] = [OVERHEAD, 0];
    for (const [index, step] of turnOf(this.#seed, writer, turn).steps.entries()) {
      this.#undo = [];
      bytes += this.#do(step);
      for (const [key] of this.#undo) {
        if (this.#isRight(db, key)) wrong.delete(key);
        else wrong.add(key);
      }
      if (wrong.size > 0) continue;
      done = index + 1;
      if (bytes >= this.#batchLimit || durabilityOf(this.#seed, writer) === "buffered") return done;
      // Further steps that cancel each other out may have filled the batch.
    }
    throw new Error(
      done === 0 ? what : `${what}, but as if ${done} steps of one commit had been done`,
    );
  }

  #wrongIn(db: Database): Set<string> {
    const wrong = new Set<string>();
    for (const key of this.#values.keys()) if (!this.#isRight(db, key)) wrong.add(key);
    for (const key of db.keys()) if (key !== MARK && !this.#values.has(key)) wrong.add(key);
    return wrong;
  }

  #isRight(db: Database, key: string): boolean {
    const value = this.#values.get(key);
    return value === undefined ? !db.has(key) : same(db.get(key), bytesOf(value));
  }

  /** Checks one key. */
  check(db: Database, key: string): void {
    if (!this.#isRight(db, key)) throw new Error(`${key} has the wrong value`);
  }

  /** Checks all entries, in order, and their count. */
  walk(db: Database): void {
    const keys = [...this.#values.keys(), ...(this.#mark.writer > 0 ? [MARK] : [])].sort();
    if (db.count() !== keys.length) throw new Error(`${db.count()} keys, not ${keys.length}`);
    let index = 0;
    for (const [key, bytes] of db.entries()) {
      if (key !== keys[index]) throw new Error(`${key} instead of ${keys[index]}`);
      index += 1;
      const value = this.#values.get(key);
      if (value !== undefined && !same(bytes, bytesOf(value))) {
        throw new Error(`entries() yields the wrong value of ${key}`);
      }
    }
    if (index !== keys.length) throw new Error(`entries() ends after ${index} of ${keys.length}`);
  }
}

function bytesOf({ number, size, bits }: Value): Uint8Array<ArrayBuffer> {
  const bytes = pattern(number, size);
  if (bits !== 0) flip(bytes, bits);
  return bytes;
}
