/**
 * Overwrites, deletes, inserts and reads for minutes, with live data of nine tenths of the memory. Memory and the
 * file are sampled every few seconds, and must not grow.
 *
 *   soak.mjs '<folder>' '<minutes>', in a separate process; prints samples as lines of JSON
 */

import { writeSync } from "node:fs";
import type { Database, Storage } from "varve";
import { wrapTimers } from "../edge/count-timers.js";
import { pattern, same } from "../model/values.js";
import { random } from "../support/values.js";

// Imported last: the package uses the timers that exist when it is loaded.
const { file, open } = await import("varve");

const MIB = 1_048_576;
const MEMORY = 64 * MIB;
const SIZE = 1_000;
const KEY = "key 00000".length;
/** A record with its header and key. */
const RECORD = 40 + Math.ceil(KEY / 8) * 8 + SIZE;
const KEYS = Math.floor((MEMORY * 0.9) / RECORD);
const OPERATIONS_PER_TURN = 24;
/** The total number of samples. */
const SAMPLES = 60;
/** The longest time that maintenance may take to settle. */
const SETTLING_MS = 10_000;
/** Maintenance has settled after this long without a slice: longer than a flush and its witness frame may wait. */
const REST_MS = 1_300;

/** The state at one moment. */
export interface Sample {
  seconds: number;
  /** Keys written and deleted, and read and compared, since the start. */
  writes: number;
  reads: number;
  keys: number;
  wasmBytes: number;
  memoryBytes: number;
  budgetBytes: number;
  rssBytes: number;
  heapBytes: number;
  liveBytes: number;
  fileBytes: number;
  /** The bound of the file size: 1.5 times the live bytes, two copies of the index, four segments. */
  boundBytes: number;
  /** The largest file size since the sample before, also during writes. */
  largestBytes: number;
  /** File reads since the sample before. */
  coldReads: number;
  /** Maintenance slices between turns since the sample before, and their durations without flushes. */
  slices: number;
  sliceP50: number;
  sliceP99: number;
  sliceMax: number;
}

const wait = globalThis.setTimeout;
const nextTask = () => new Promise<void>((resolve) => setImmediate(resolve));
const pause = (ms: number) => new Promise<void>((resolve) => wait(resolve, ms));

/** The durations of maintenance slices, and the total time of flushes. */
const slices: number[] = [];
let flushed = 0;

/** Measures maintenance slices, which the package runs in timers without a delay. */
function watchSlices(): void {
  wrapTimers((callback, ms) => {
    if (ms !== 0) return callback;
    return () => {
      const [start, before] = [performance.now(), flushed];
      callback();
      slices.push(performance.now() - start - (flushed - before));
    };
  });
}

/** A file storage that measures its flushes. */
function timed(folder: string): Storage {
  const disk = file(folder);
  return {
    ...disk,
    async open(name, mode) {
      const opened = await disk.open(name, mode);
      const flush = opened.file.flush.bind(opened.file);
      opened.file.flush = () => {
        const start = performance.now();
        flush();
        flushed += performance.now() - start;
      };
      return opened;
    },
  };
}

class Soak {
  readonly #db: Database;
  readonly #next = random(1);
  /** The number of each key's value; 0 if the key is missing. */
  readonly #numbers = new Uint32Array(KEYS);
  readonly #start = performance.now();
  #writes = 0;
  #reads = 0;
  #coldReads = 0;
  #largest = 0;

  constructor(db: Database) {
    this.#db = db;
  }

  async fill(): Promise<void> {
    for (let index = 0; index < KEYS; index++) {
      this.#set(index);
      if (index % 500 === 0) await nextTask();
    }
  }

  /** Operates without pauses until this time. */
  async run(until: number): Promise<void> {
    for (let turn = 0; performance.now() < until; turn++) {
      if (turn % 8 === 0) this.#db.transaction(() => this.#turn());
      else this.#turn();
      if (turn % 64 === 0) this.#walk();
      await nextTask();
      this.#largest = Math.max(this.#largest, this.#db.stats().fileBytes);
    }
  }

  #turn(): void {
    for (let operation = 0; operation < OPERATIONS_PER_TURN; operation++) {
      const kind = this.#next(100);
      // Some keys are used much more often than others.
      const index = this.#next(1 + this.#next(KEYS));
      if (kind < 30) this.#read(index);
      else if (kind < 40) this.#delete(index);
      else if (kind < 50) this.#setMissing(index);
      else this.#set(index);
    }
  }

  #set(index: number): void {
    const number = 1 + this.#next(1 << 30);
    this.#db.set(keyOf(index), pattern(number, SIZE));
    this.#numbers[index] = number;
    this.#writes += 1;
  }

  #delete(index: number): void {
    const there = this.#db.delete(keyOf(index));
    if (there !== (this.#numbers[index] !== 0)) throw new Error(`${index} was there: ${there}`);
    this.#numbers[index] = 0;
    this.#writes += 1;
  }

  /** Inserts a deleted key again, so that the amount of live data stays the same. */
  #setMissing(from: number): void {
    const index = this.#numbers.indexOf(0, from);
    if (index >= 0) this.#set(index);
  }

  #read(index: number): void {
    this.#check(index, this.#db.get(keyOf(index)));
  }

  #check(index: number, shown: Uint8Array | undefined): void {
    const number = this.#numbers[index] as number;
    const wanted = number === 0 ? undefined : pattern(number, SIZE);
    if (!same(shown, wanted)) throw new Error(`${keyOf(index)} has the wrong value`);
    this.#reads += 1;
  }

  #walk(): void {
    const gte = keyOf(this.#next(KEYS));
    for (const [key, bytes] of this.#db.entries({ gte, limit: 200 })) {
      this.#check(Number(key.slice(4)), bytes);
    }
  }

  readAll(): void {
    for (let index = 0; index < KEYS; index++) this.#read(index);
  }

  /** Waits until maintenance has nothing to do, and takes a sample. */
  async sample(): Promise<Sample> {
    const until = performance.now() + SETTLING_MS;
    // An unchanged file size would be no sign: a single flush may take longer than the pause.
    for (let before = -1; before !== slices.length && performance.now() < until; ) {
      before = slices.length;
      await pause(REST_MS);
    }
    globalThis.gc?.();
    const { records, wasmBytes, memoryBytes, budgetBytes, liveBytes, fileBytes, coldReads } =
      this.#db.stats();
    const checkpoint = Math.ceil((records * 8.01 + 16_384) / MIB) * MIB;
    const sorted = Float64Array.from(slices.splice(0)).sort();
    const at = (part: number) => sorted[Math.floor((sorted.length - 1) * part)] ?? 0;
    const sample = {
      seconds: (performance.now() - this.#start) / 1_000,
      writes: this.#writes,
      reads: this.#reads,
      keys: records,
      wasmBytes,
      memoryBytes,
      budgetBytes,
      rssBytes: process.memoryUsage.rss(),
      heapBytes: process.memoryUsage().heapUsed,
      liveBytes,
      fileBytes,
      boundBytes: Math.round(1.5 * liveBytes) + 2 * checkpoint + 4 * MIB + 8_192,
      largestBytes: this.#largest,
      coldReads: coldReads - this.#coldReads,
      slices: sorted.length,
      sliceP50: at(0.5),
      sliceP99: at(0.99),
      sliceMax: at(1),
    };
    this.#coldReads = coldReads;
    this.#largest = 0;
    return sample;
  }
}

function keyOf(index: number): string {
  return `key ${String(index).padStart(5, "0")}`;
}

const [folder, minutes] = process.argv.slice(2) as [string, string];
watchSlices();
const storage = timed(folder);
const db = await open("soak", { storage, memory: MEMORY });
const soak = new Soak(db);
await soak.fill();
const step = (Number(minutes) * 60_000) / SAMPLES;
const start = performance.now();
for (let round = 1; round <= SAMPLES; round++) {
  await soak.run(start + round * step);
  writeSync(1, `${JSON.stringify(await soak.sample())}\n`);
}
soak.readAll();
await db.close();
