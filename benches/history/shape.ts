/** Transactions of the shape of ZODB's own benchmark file, and what is measured of them; for every runtime. */

import type { Database } from "varve";
import { Random } from "../sizes/workload.js";

/** The transactions of a file: the lengths of the values of each, and its note. */
export interface Plan {
  readonly transactions: readonly (readonly number[])[];
  readonly notes: readonly string[];
  /** Where the value of each record begins in the noise: its number times `step`, modulo `offsets`. */
  readonly step: number;
  readonly offsets: number;
}

const SEED = 3;
const STEP = 769;
const OFFSETS = 1 << 20;
const SHORTEST = 80;
const LONGEST = 1_474;
/** The numbers of ZODB's file, and of a smoke test. */
const FULL = { transactions: 4_452, records: 190_689 };
const QUICK = { transactions: 445, records: 19_068 };

export function planOf(quick: boolean): Plan {
  const { transactions: count, records } = quick ? QUICK : FULL;
  const random = new Random(SEED);
  const transactions: number[][] = [];
  let left = records;
  for (let i = 0; i < count; i += 1) {
    // The last ones take what is left; each has at least one record.
    const others = count - i - 1;
    const mean = left / (others + 1);
    const size = others === 0 ? left : Math.min(left - others, 1 + random.below(2 * mean - 1));
    transactions.push(
      Array.from({ length: size }, () => SHORTEST + random.below(LONGEST - SHORTEST)),
    );
    left -= size;
  }
  const notes = transactions.map((_, i) => `transaction ${i} by the benchmark`);
  return { transactions, notes, step: STEP, offsets: OFFSETS };
}

/** Bytes that no compression takes for zeros. */
export function noise(): Uint8Array {
  const random = new Random(SEED);
  return Uint8Array.from({ length: OFFSETS + LONGEST }, () => random.below(256));
}

/** The key of a record: eight digits, as a number of an object in ZODB has eight bytes. */
function keyOf(record: number): string {
  return String(record).padStart(8, "0");
}

/** Writes all transactions, each a commit with a note. */
export function write(db: Database, plan: Plan): void {
  const bytes = noise();
  let record = 0;
  plan.transactions.forEach((lengths, i) => {
    db.transaction(
      () => {
        for (const length of lengths) {
          const at = (record * plan.step) % plan.offsets;
          db.set(keyOf(record + 1), bytes.subarray(at, at + length));
          record += 1;
        }
      },
      { note: plan.notes[i] as string },
    );
    db.commit();
  });
}

/** What a walk found: the numbers of transactions, records, and bytes of values, and the sum of their first bytes. */
export interface Found {
  transactions: number;
  records: number;
  bytes: number;
  firsts: number;
}

export function nested(db: Database): Found {
  const found = { transactions: 0, records: 0, bytes: 0, firsts: 0 };
  for (const tx of db.log()) {
    found.transactions += 1;
    for (const { value } of tx) {
      found.records += 1;
      if (value === undefined) throw new Error("a record has no value");
      found.bytes += value.length;
      found.firsts += value[0] as number;
    }
  }
  return found;
}

export function flat(db: Database): Found {
  const found = { transactions: 0, records: 0, bytes: 0, firsts: 0 };
  for (const item of db.log({ flat: true })) {
    if (item.type === "transaction") found.transactions += 1;
    else if (item.type === "set") {
      found.records += 1;
      const { value } = item;
      if (value === undefined) throw new Error("a record has no value");
      found.bytes += value.length;
      found.firsts += value[0] as number;
    } else throw new Error(`the log has an item ${item.type}`);
  }
  return found;
}

/** Refuses a walk that found something else than the plan has. */
export function check(name: string, plan: Plan, found: Found): void {
  const records = plan.transactions.reduce((sum, lengths) => sum + lengths.length, 0);
  const bytes = plan.transactions.flat().reduce((sum, length) => sum + length, 0);
  const { transactions } = plan;
  if (
    found.transactions !== transactions.length ||
    found.records !== records ||
    found.bytes !== bytes
  ) {
    throw new Error(`${name} found ${JSON.stringify(found)}, not ${records} records`);
  }
}
