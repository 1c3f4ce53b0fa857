/** Past commits, `db.at()`, of a file that keeps its history: what opening one takes, and what reading it takes then. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as nextTask } from "node:timers/promises";
import { type Database, file, open, type Snapshot } from "varve";

import type { BenchOptions } from "../options.js";
import { goal, type Row, row, type Section } from "../report.js";
import { Random } from "../sizes/workload.js";

/** The goal: so many milliseconds at any distance. */
const AT_MOST = 20;
const KEYS = 50_000;
const VALUE = 64;
const SEED = 31;
const TOGETHER = 1_000;

const STORE = "varve, wasm in Node";

type Work = readonly [name: string, read: (past: Snapshot, keys: readonly string[]) => unknown];

const WORKS: readonly Work[] = [
  ["at", () => undefined],
  ["at and one get", (past, keys) => past.get(keys[0] as string)],
  ["at and 1,000 gets", (past, keys) => keys.map((key) => past.get(key)).length],
  ["at and all keys", (past) => [...past.keys()].length],
];

function keyOf(number: number): string {
  return `key ${String(number).padStart(6, "0")}`;
}

/** Commits one record at a time, of some keys again and again. */
async function write(db: Database, commits: number, keys: number): Promise<void> {
  const random = new Random(SEED);
  const value = new Uint8Array(VALUE);
  for (let i = 0; i < commits; i += 1) {
    value[i % VALUE] = i;
    db.set(keyOf(random.below(keys)), value);
    db.commit();
    if (i % TOGETHER === 0) await nextTask();
  }
}

export async function pastBench({ quick }: BenchOptions): Promise<Section> {
  const folder = mkdtempSync(join(tmpdir(), "varve-bench-past-"));
  const [commits, rounds, keys] = quick ? [20_000, 3, KEYS / 50] : [1_000_000, 11, KEYS];
  try {
    const storage = file(folder);
    const writer = await open("past", { storage, history: "keep" });
    await write(writer, commits, keys);
    await writer.close();
    const db = await open("past", { storage, readOnly: true });
    // The keys of now are in order before anything is measured.
    const megabytes = (db.stats().fileBytes / 1e6).toFixed(0);
    const count = [...db.keys()].length;
    const random = new Random(SEED + 1);
    const rows: Row[] = [];
    const goals = [];
    const distances = [1e3, 1e4, 1e5, 1e6].filter((distance) => distance <= commits);
    for (const distance of distances) {
      // Each commit takes one version.
      const number = Math.max(1, db.lastCommit - distance);
      const back = `${distance.toLocaleString("en")} commits back`;
      for (const [name, read] of WORKS) {
        const times: number[] = [];
        for (let i = -1; i < rounds; i += 1) {
          const some = Array.from({ length: TOGETHER }, () => keyOf(random.below(keys)));
          const started = performance.now();
          const past = db.at(number);
          read(past, some);
          const ms = performance.now() - started;
          past.close();
          if (i >= 0) times.push(ms);
          await nextTask();
        }
        const measured = row(`${name}, ${back}`, STORE, "", "ms", times);
        rows.push(measured);
        if (name === "at" || name === "at and one get") {
          goals.push(goal(measured.work, measured.figures.median, { atMost: AT_MOST }, "ms"));
        }
      }
    }
    await db.close();
    return {
      title: "Past commits",
      layout: "lines",
      rows,
      goals,
      notes: [
        `A file of ${megabytes} MB that keeps its history: ${commits.toLocaleString("en")} commits, each of one record of ${VALUE} bytes, of ${count.toLocaleString("en")} keys by chance. Nothing was deleted.`,
        "The file is in the system's cache. Closing a past commit is not measured.",
      ],
    };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
