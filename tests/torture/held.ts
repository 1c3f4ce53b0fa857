/** What a database ought to hold after so many turns of so many lives, and how far it came. */

import type { Database } from "varve";
import { pattern, same } from "../model/values.js";
import { durabilityOf, MARK, markOf, type Reach, type Step, turnOf, turnOver } from "./plan.js";

/** A value: the pattern of a number, with some bits turned over in each byte. */
interface Value {
  readonly number: number;
  readonly size: number;
  readonly bits: number;
}

/** More than a record takes beside its key and value. */
const OVERHEAD = 64;

/** Writes are committed at this size, or a quarter of a segment, also within a turn. */
const LARGEST_GROUP = 262_144;

export class Held {
  readonly #seed: number;
  readonly #groupLimit: number;
  readonly #values = new Map<string, Value>();
  #mark = { life: 0, turn: 0 };
  /** What transactions replaced, the last one last. */
  #undo: [key: string, value: Value | undefined][] = [];

  /** Nothing yet: what the plan of this seed makes of a database with such segments. */
  constructor(seed: number, segmentLog2: number) {
    this.#seed = seed;
    this.#groupLimit = Math.min(LARGEST_GROUP, 2 ** segmentLog2 / 4);
  }

  get size(): number {
    return this.#values.size;
  }

  /** Does what a life did, which came so far. */
  live(life: number, { turns, steps }: Reach): void {
    for (let turn = 1; turn <= turns; turn++) this.turn(life, turn);
    for (const step of turnOf(this.#seed, life, turns + 1).steps.slice(0, steps)) this.#do(step);
  }

  turn(life: number, turn: number): void {
    for (const step of turnOf(this.#seed, life, turn).steps) this.#do(step);
    this.#mark = { life, turn };
    this.#undo = [];
  }

  /** Gives at most how many bytes the step adds to the group of writes. */
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
   * Finds out how far a life came, of which nobody knows: the turn of the mark, or a few steps more
   * where a turn is committed in parts. Throws when the database holds what no prefix of its writes is.
   */
  find(db: Database, life: number): Reach {
    const mark = markOf(db);
    const turns = mark.life === life ? mark.turn : 0;
    for (let turn = 1; turn <= turns; turn++) this.turn(life, turn);
    const { life: ofLife, turn } = this.#mark;
    if (mark.life !== ofLife || mark.turn !== turn) {
      throw new Error(`the mark is ${mark.life} ${mark.turn}, not ${ofLife} ${turn}`);
    }
    const wrong = this.#wrongIn(db);
    if (wrong.size === 0) return { turns, steps: 0 };
    return { turns, steps: this.#stepsIn(db, life, turns + 1, wrong) };
  }

  /** How many steps of a turn were done, when what is wrong without them are these keys. */
  #stepsIn(db: Database, life: number, turn: number, wrong: Set<string>): number {
    const all = [...wrong].slice(0, 8).join(", ");
    const what = `${wrong.size} keys are not as after turn ${turn - 1} of life ${life} (${all})`;
    let [bytes, done] = [OVERHEAD, 0];
    for (const [index, step] of turnOf(this.#seed, life, turn).steps.entries()) {
      this.#undo = [];
      bytes += this.#do(step);
      for (const [key] of this.#undo) {
        if (this.#isRight(db, key)) wrong.delete(key);
        else wrong.add(key);
      }
      if (wrong.size > 0) continue;
      done = index + 1;
      if (bytes >= this.#groupLimit || durabilityOf(this.#seed, life) === "buffered") return done;
      // What the next steps write and take back changes no key, and may fill the group with that.
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

  /** Looks at some key. */
  check(db: Database, key: string): void {
    if (!this.#isRight(db, key)) throw new Error(`${key} shows what it does not hold`);
  }

  /** Reads everything in order and counts it. */
  walk(db: Database): void {
    const keys = [...this.#values.keys(), ...(this.#mark.life > 0 ? [MARK] : [])].sort();
    if (db.count() !== keys.length) throw new Error(`${db.count()} keys, not ${keys.length}`);
    let index = 0;
    for (const [key, bytes] of db.entries()) {
      if (key !== keys[index]) throw new Error(`${key} comes in the place of ${keys[index]}`);
      index += 1;
      const value = this.#values.get(key);
      if (value !== undefined && !same(bytes, bytesOf(value))) {
        throw new Error(`going over all entries shows another value of ${key}`);
      }
    }
    if (index !== keys.length) throw new Error(`entries() ends after ${index} of ${keys.length}`);
  }
}

function bytesOf({ number, size, bits }: Value): Uint8Array<ArrayBuffer> {
  const bytes = pattern(number, size);
  if (bits !== 0) turnOver(bytes, bits);
  return bytes;
}
