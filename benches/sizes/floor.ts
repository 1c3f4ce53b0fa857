import type { StoreResult } from "./run.js";
import { KEY_BYTES, keysOf, looked, type Plan, Random, VALUE_BYTES, Values } from "./workload.js";

/** Bytes of an index entry and of a record, close to varve's. */
const ENTRY = 8;
const RECORD = 56 + VALUE_BYTES + 4;
const PAGE = 65_536;

/** Scans of fewer keys are repeated within a sample, as in `run.ts`. */
const LEAST_SCANNED = 20_000;

/**
 * An iterator that only makes what a scan yields: a substring of one string with all keys, and a view at an
 * offset from an array. No tree, no page of keys, no call into wasm, no check whether the value has moved.
 */
class BareIterator<T> implements IterableIterator<T, undefined> {
  private at = 0;

  constructor(
    private readonly size: number,
    private readonly make: (at: number) => T,
  ) {}

  next(): IteratorResult<T, undefined> {
    const { at } = this;
    if (at >= this.size) return { done: true, value: undefined };
    this.at = at + 1;
    return { done: false, value: this.make(at) };
  }

  [Symbol.iterator](): this {
    return this;
  }
}

function sumOfPairs(walk: Iterable<[string, Uint8Array]>): number {
  let sum = 0;
  for (const [key, value] of walk) sum += key.length + looked(value);
  return sum;
}

function sumOfValues(walk: Iterable<Uint8Array>): number {
  let sum = 0;
  for (const value of walk) sum += looked(value);
  return sum;
}

function sumOfKeys(walk: Iterable<string>): number {
  let sum = 0;
  for (const key of walk) sum += key.length;
  return sum;
}

/** For each of the three kinds of scan, the cost of the objects that it yields. */
function measureScans({ size, ops, warmup, samples }: Plan): StoreResult["measured"] {
  const count = Math.min(size, ops);
  const times = Math.max(1, Math.floor(Math.min(ops, LEAST_SCANNED) / count));
  const offsets = Uint32Array.from({ length: count }, (_, i) => i * RECORD);
  const pages = Math.ceil((count * RECORD) / PAGE);
  const { buffer } = new WebAssembly.Memory({ initial: pages });
  const text = keysOf(offsets).join("");
  const key = (at: number) => text.substring(at * KEY_BYTES, (at + 1) * KEY_BYTES);
  const value = (at: number) => new Uint8Array(buffer, offsets[at], VALUE_BYTES);
  const works: [string, () => number, number][] = [
    ["scan", () => sumOfPairs(new BareIterator(count, (at) => [key(at), value(at)])), KEY_BYTES],
    ["scan, values only", () => sumOfValues(new BareIterator(count, value)), 0],
    ["scan, keys only", () => sumOfKeys(new BareIterator(count, key)), KEY_BYTES],
  ];
  return works.map(([work, walk, each]) => {
    const ns: number[] = [];
    for (let round = 0; round < warmup + samples; round++) {
      let sum = 0;
      const start = performance.now();
      for (let time = 0; time < times; time++) sum += walk();
      const ms = performance.now() - start;
      // All values are zero.
      if (sum !== times * count * each) throw new Error(`${work} saw ${sum}`);
      if (round >= warmup) ns.push((ms * 1e6) / (times * count));
    }
    return { work, pattern: "sequential", ns };
  });
}

/**
 * Wasm memory as large as that of a database with so many keys: entries that point to records at random
 * offsets, which point to nothing. After them, space for a batch of records and for a key.
 */
class SimulatedMemory {
  readonly words: Uint32Array<ArrayBuffer>;
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly entries: number;
  readonly batchAt: number;
  readonly keyAt: number;
  readonly random = new Random(7);

  constructor({ size, batch }: Plan) {
    this.entries = 2 ** Math.ceil(Math.log2(size * (4 / 3)));
    const recordsAt = this.entries * ENTRY;
    this.batchAt = recordsAt + size * RECORD;
    this.keyAt = this.batchAt + batch * RECORD;
    const pages = Math.ceil((this.keyAt + KEY_BYTES) / PAGE);
    const { buffer } = new WebAssembly.Memory({ initial: pages });
    this.bytes = new Uint8Array(buffer);
    this.words = new Uint32Array(buffer);
    // Touches the pages, so that the system allocates them.
    this.words.fill(0);
    const first = recordsAt / 4;
    for (let entry = 0; entry < this.entries; entry++) {
      this.words[2 * entry] = first + this.random.below(size) * (RECORD / 4);
    }
  }

  randomEntries(count: number): Uint32Array {
    return Uint32Array.from({ length: count }, () => 2 * this.random.below(this.entries));
  }
}

/** The dependent reads of every `get`. */
function measureGets(memory: SimulatedMemory, { ops, warmup, samples }: Plan): number[] {
  const { words } = memory;
  const ns: number[] = [];
  for (let round = 0; round < warmup + samples; round++) {
    const entries = memory.randomEntries(ops);
    const start = performance.now();
    // All records are zero, which the compiler does not know.
    let last = 0;
    for (let i = 0; i < ops; i++) last = words[words[entries[i]! + last]!]!;
    const ms = performance.now() - start;
    if (last !== 0) throw new Error("a record is not zero");
    if (round >= warmup) ns.push((ms * 1e6) / ops);
  }
  return ns;
}

/** Writes a key's characters, four at a time: the fastest way for short keys. */
function writeLetters(words: Uint32Array, at: number, key: string): void {
  for (let i = 0; i < KEY_BYTES; i += 4) {
    words[at + (i >>> 2)] =
      key.charCodeAt(i) |
      (key.charCodeAt(i + 1) << 8) |
      (key.charCodeAt(i + 2) << 16) |
      (key.charCodeAt(i + 3) << 24);
  }
}

/**
 * The least work of a `set` of an existing key: its characters and the value's bytes are copied into memory,
 * the old record is found as by `get`, and the entry is changed. No hash, no comparison, no checksum, no call
 * into wasm, and no write to a file.
 */
function measureSets(memory: SimulatedMemory, plan: Plan): number[] {
  const { words, bytes, batchAt, keyAt } = memory;
  const { size, ops, batch, warmup, samples } = plan;
  const values = new Values((buffer, offset, length) => new Uint8Array(buffer, offset, length));
  const mask = values.all.length - 1;
  const few = keysOf(Uint32Array.from({ length: Math.min(size, 1_000) }, (_, i) => 2 * i));
  const ns: number[] = [];
  for (let round = 0; round < warmup + samples; round++) {
    const entries = memory.randomEntries(ops);
    const many = size > 1_000 ? keysOf(entries) : Array.from(entries, (_, i) => few[i % size]!);
    const start = performance.now();
    let last = 0;
    for (let i = 0; i < ops; i++) {
      writeLetters(words, keyAt >>> 2, many[i]!);
      const entry = entries[i]! + last;
      const record = words[entry]!;
      last = words[record]!;
      bytes.set(values.all[i & mask]!, batchAt + (i % batch) * RECORD);
      words[entry] = record;
    }
    const ms = performance.now() - start;
    if (last !== 0) throw new Error("a record is not zero");
    if (round >= warmup) ns.push((ms * 1e6) / ops);
  }
  return ns;
}

/**
 * The lower bounds of `get`, `set` and scans, without a store or a lookup. Each `get` is two dependent reads
 * at random addresses of that much memory, and the next one depends on the second. No hash, no key, no
 * comparison, no call: a store's time above it is work, and a time below it is due to the processor's cache.
 * A `set` is the same plus its key and value.
 */
export function measureFloor(plan: Plan): StoreResult {
  const memory = new SimulatedMemory(plan);
  const mib = Math.ceil(memory.bytes.length / 1_048_576).toLocaleString("en");
  return {
    name: "floor",
    settings: `no store: two dependent reads at random addresses in ${mib} MiB of wasm memory, the least that a get from so much memory takes. A set is that plus copying its key and value, without hash, call, checksum or file. Scans only create what a scan yields`,
    remarks: [],
    measured: [
      { work: "get", pattern: "random", ns: measureGets(memory, plan) },
      { work: "set existing", pattern: "random", ns: measureSets(memory, plan) },
      ...measureScans(plan),
    ],
    digests: {},
    memory: [],
  };
}
