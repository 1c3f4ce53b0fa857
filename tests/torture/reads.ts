/**
 * Random reads of a database sixteen times its memory. Memory is sampled sixty times and must not grow, and every
 * value is checked.
 *
 *   reads.mjs '<folder>' '<minutes>', in a separate process; prints samples as lines of JSON
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
/** A pause between turns, which limits it to some 2,000 reads a second, so that other programs can run too. */
const PAUSE_MS = 50;

/** The state at one moment. */
export interface Sample {
  when: string;
  /** Values read and compared since the start. */
  reads: number;
  rssBytes: number;
  heapBytes: number;
  arrayBuffers: number;
  /** Missing after the close. */
  stats?: DatabaseStats;
}

let reads = 0;

function sample(when: string, stats?: DatabaseStats): void {
  globalThis.gc?.();
  const { rss, heapUsed, arrayBuffers } = process.memoryUsage();
  const values: Sample = { when, reads, rssBytes: rss, heapBytes: heapUsed, arrayBuffers };
  writeSync(1, `${JSON.stringify(stats === undefined ? values : { ...values, stats })}\n`);
}

const keyOf = (index: number) => `key ${String(index).padStart(8, "0")}`;

/** The word of a value at a position; it differs from value to value. */
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
sample("opened", db.stats());
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
  sample("reading", db.stats());
}
await db.close();
// Garbage may be collected with a delay.
await setTimeout(1_000);
globalThis.gc?.();
await setTimeout(1_000);
sample("closed");
// A second close has no effect. The call keeps the handle reachable during the last sample.
await db.close();
