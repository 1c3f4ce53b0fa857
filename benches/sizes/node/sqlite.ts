import { join } from "node:path";
import { keyBytes, MANY } from "../run.js";
import type { OpenStore } from "../store.js";
import { COUNTER_AT, KEY_BYTES, looked } from "../workload.js";
import { increase, rival } from "./rivals.js";

/** The used part of better-sqlite3's API. */
interface Statement {
  pluck(): this;
  raw(): this;
  run(...bound: unknown[]): unknown;
  get(...bound: unknown[]): unknown;
  all(...bound: unknown[]): unknown[];
  iterate(...bound: unknown[]): IterableIterator<unknown>;
}
interface Sqlite {
  pragma(text: string): unknown;
  exec(text: string): void;
  prepare(text: string): Statement;
  close(): void;
}

const KIB = 1_024;
const SYNCHRONOUS = { default: "off", "each second": "normal", "each group": "full" };

export function openSqlite(root: string): OpenStore {
  const Database = rival(root, "better-sqlite3") as new (path: string) => Sqlite;
  return async (folder, { memory, flushing = "default" }) => {
    const db = new Database(join(folder, "sizes.sqlite3"));
    db.pragma("journal_mode = wal");
    db.pragma(`synchronous = ${SYNCHRONOUS[flushing]}`);
    db.pragma(`cache_size = -${memory / KIB}`);
    db.pragma("wal_autocheckpoint = 20000");
    db.pragma("temp_store = memory");
    db.exec("CREATE TABLE IF NOT EXISTS pairs(key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID");
    const get = db.prepare("SELECT value FROM pairs WHERE key = ?").pluck();
    const list = Array.from({ length: MANY }, () => "(?)").join();
    const many = db
      .prepare(`WITH list(key) AS (VALUES ${list}) SELECT value FROM list JOIN pairs USING (key)`)
      .pluck();
    const set = db.prepare("INSERT OR REPLACE INTO pairs VALUES (?, ?)");
    const update = db.prepare("UPDATE pairs SET value = ? WHERE key = ?");
    const remove = db.prepare("DELETE FROM pairs WHERE key = ?");
    const range = db
      .prepare("SELECT key, value FROM pairs WHERE key >= ? ORDER BY key LIMIT ?")
      .raw();
    const begin = db.prepare("BEGIN IMMEDIATE");
    const commit = db.prepare("COMMIT");
    /** Without BEGIN each writing statement is a transaction of its own. */
    const inBatches = (from: number, to: number, work: (at: number) => void) => {
      if (to - from > 1) begin.run();
      for (let i = from; i < to; i++) work(i);
      if (to - from > 1) commit.run();
    };
    return {
      name: "better-sqlite3",
      settings: `WAL, synchronous=OFF, a checkpoint every 20,000 pages, cache ${memory / KIB / KIB} MiB, statements prepared once`,
      remarks: [
        "better-sqlite3: with synchronous=OFF a commit is in the files and survives the process; NORMAL would flush at each checkpoint of the log. An update reads, changes the copy and writes it, within the group's transaction.",
        "better-sqlite3: getMany is a join with a list of as many parameters, which takes less time than IN, a JSON list, or one statement for each.",
        "better-sqlite3: flushed each second by synchronous=NORMAL and a checkpoint then, with each group by synchronous=FULL.",
      ],
      gets(keys) {
        let sum = 0;
        for (let i = 0; i < keys.length; i++) sum += looked(get.get(keys[i]!) as Buffer);
        return sum;
      },
      many(keys) {
        let sum = 0;
        for (const value of many.all(keys)) sum += looked(value as Buffer);
        return sum;
      },
      sets(keys, values, from, to) {
        const mask = values.length - 1;
        inBatches(from, to, (i) => set.run(keys[i]!, values[i & mask]!));
      },
      updates(keys, from, to) {
        inBatches(from, to, (i) => {
          const value = get.get(keys[i]!) as Buffer;
          increase(value, COUNTER_AT);
          update.run(value, keys[i]!);
        });
      },
      deletes(keys, from, to) {
        inBatches(from, to, (i) => remove.run(keys[i]!));
      },
      sync() {
        // With FULL each commit is flushed.
        if (flushing === "each second") db.pragma("wal_checkpoint(PASSIVE)");
      },
      scan(from, limit) {
        let sum = 0;
        for (const pair of range.iterate(from, limit)) {
          const [key, value] = pair as [string, Buffer];
          sum += key.length + looked(value);
        }
        return sum;
      },
      pairs(visit) {
        const bytes = new Uint8Array(KEY_BYTES);
        for (const pair of range.iterate("", -1)) {
          const [key, value] = pair as [string, Buffer];
          visit(keyBytes(key, bytes), value);
        }
      },
      close: () => db.close(),
    };
  };
}
