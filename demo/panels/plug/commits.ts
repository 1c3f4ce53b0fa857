/** What both crashes interrupt: numbered commits, from whose number alone every value follows. */

import type { Database } from "varve";

/** How much is written. */
export interface Shape {
  /** So many records are set again and again, in a circle. */
  records: number;
  perCommit: number;
  /** The largest value, in bytes; the smallest is half of it. */
  bytes: number;
}

/** What commit `n` writes to a record. */
function bytesOf(n: number, record: number, { bytes }: Shape): Uint8Array {
  const half = bytes / 2;
  const value = new Uint8Array(half + ((n * 7 + record * 13) % half));
  for (let i = 0; i < value.length; i++) value[i] = n * 31 + record * 7 + i;
  return value;
}

/** The last of the first `count` commits that sets this record; 0 if none does. */
function setBy(record: number, count: number, { records, perCommit }: Shape): number {
  for (let n = count; n > Math.max(0, count - records / perCommit); n--) {
    const first = ((n - 1) * perCommit) % records;
    if (record >= first && record < first + perCommit) return n;
  }
  return 0;
}

/** Makes commit `n`: its records and its number are in the file together, or not at all. */
export function writeCommit(db: Database, n: number, shape: Shape): void {
  const { records, perCommit } = shape;
  db.transaction(() => {
    const first = ((n - 1) * perCommit) % records;
    for (let record = first; record < first + perCommit; record++) {
      db.set(`record/${record}`, bytesOf(n, record, shape));
    }
    db.set("commits", String(n));
  });
}

/** How many commits the database says that it has. */
export function commitsOf(db: Database): number {
  return Number(db.getText("commits") ?? "0");
}

/** Compares every byte with what exactly that many commits leave. Returns what differs, if anything does. */
export function differences(db: Database, shape: Shape): string | undefined {
  const count = commitsOf(db);
  let there = 0;
  for (let record = 0; record < shape.records; record++) {
    const n = setBy(record, count, shape);
    const found = db.get(`record/${record}`);
    const expected = n === 0 ? undefined : bytesOf(n, record, shape);
    if (expected !== undefined) there += 1;
    const isEqual =
      found?.length === expected?.length && (found?.every((b, i) => b === expected?.[i]) ?? true);
    if (!isEqual) return `record ${record} is not that of commit ${n}`;
  }
  const total = db.count({ prefix: "record/" });
  return total === there ? undefined : `there are ${total} records, and not ${there}`;
}
