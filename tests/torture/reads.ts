/**
 * Random reads of a database sixteen times its memory, for an hour: what it takes of memory is looked at
 * sixty times, and must not grow. Every value has to be its own.
 *
 *   reads.mjs '<folder>' '<minutes>', in a process of its own; samples as lines of JSON
 */

import { writeSync } from "node:fs";
import { setImmediate, setTimeout } from "node:timers/promises";
import { type DatabaseStats, file, open } from "varve";
import { random } from "../support/values.js";

const MEMORY = 64 * 1_048_576;
const SIZE = 1_000;
const KEYS = 1_000_000;
const SAMPLES = 60;
const READS_PER_TURN = 100;
/** Between turns, so that it can run beside other things: some 2,000 reads a second. */
const PAUSE_MS = 50;

/** What is seen at one moment. */
export interface Sample {
  when: string;
  /** Values read and compared since the start. */
  reads: number;
  rssBytes: number;
  heapBytes: number;
  arrayBuffers: number;
  /** While the database is open, what it tells. */
  stats?: DatabaseStats;
}

let reads = 0;

function look(when: string, stats?: DatabaseStats): void {
  globalThis.gc?.();
  const { rss, heapUsed, arrayBuffers } = process.memoryUsage();
  const sample: Sample = { when, reads, rssBytes: rss, heapBytes: heapUsed, arrayBuffers };
  writeSync(1, `${JSON.stringify(stats === undefined ? sample : { ...sample, stats })}\n`);
}

const keyOf = (index: number) => `key ${String(index).padStart(8, "0")}`;

/** Words that tell a value apart at its beginning and at its end. */
const wordOf = (index: number, word: number) => (Math.imul(index + 1, 0x9e37_79b1) ^ word) >>> 0;

function check(index: number, view: Uint8Array | undefined): void {
  const last = SIZE / 4 - 1;
  const words = view?.length === SIZE && new Uint32Array(view.buffer, view.byteOffset, last + 1);
  if (!words || words[0] !== wordOf(index, 0) || words[last] !== wordOf(index, last)) {
    throw new Error(`${keyOf(index)} does not show what was written`);
  }
}

const [folder, minutes] = process.argv.slice(2) as [string, string];
const storage = file(folder);
let db = await open("reads", { storage, memory: MEMORY });
const value = new Uint32Array(SIZE / 4);
for (let index = 0; index < KEYS; index++) {
  for (let word = 0; word < value.length; word++) value[word] = wordOf(index, word);
  db.set(keyOf(index), new Uint8Array(value.buffer));
  if (index % 500 === 0) await setImmediate();
}
await db.close();

db = await open("reads", { storage, memory: MEMORY });
look("opened", db.stats());
const next = random(1);
const start = performance.now();
const step = (Number(minutes) * 60_000) / SAMPLES;
for (let round = 1; round <= SAMPLES; round++) {
  while (performance.now() < start + round * step) {
    for (let read = 0; read < READS_PER_TURN; read++) {
      const index = next(KEYS);
      check(index, db.get(keyOf(index)));
      reads += 1;
    }
    await setTimeout(PAUSE_MS);
  }
  look("reading", db.stats());
}
await db.close();
// What is let go is collected some time later.
await setTimeout(1_000);
globalThis.gc?.();
await setTimeout(1_000);
look("closed");
// The handle was there until now: closing it twice is the same as once.
await db.close();
