import { type Database, open } from "varve";
import { Chooser, keysOf, Random } from "../sizes/workload.js";
import type { Amounts, LargeResult, Platform } from "./platform.js";
import { type Call, recordedStorage } from "./recorded-storage.js";

const VALUE = 1_024;
const NAME = "cold";
const COMMIT_SIZE = 500;

/** Every value begins with the number of its key, so that a read can be checked. */
async function fill(db: Database, count: number, turn: () => Promise<void>): Promise<void> {
  const value = new Uint8Array(VALUE).fill(7);
  const words = new Uint32Array(value.buffer);
  for (let start = 0; start < count; start += COMMIT_SIZE) {
    const numbers = Uint32Array.from({ length: COMMIT_SIZE }, (_, i) => start + i);
    for (const [i, key] of keysOf(numbers).entries()) {
      words[0] = start + i;
      db.set(key, value);
    }
    await turn();
  }
}

/** Gets the keys in this order and checks that each value belongs to its key. */
function getAll(db: Database, keys: readonly string[], numbers: Uint32Array): void {
  for (let i = 0; i < keys.length; i++) {
    const view = db.get(keys[i]!)!;
    const number = view[0]! | (view[1]! << 8) | (view[2]! << 16) | (view[3]! << 24);
    if (view.length !== VALUE || number !== numbers[i]) {
      throw new Error(`${keys[i]} shows value ${number}`);
    }
  }
}

interface Order {
  id: string;
  work: string;
  /** Numbers of the keys of a sample, or of a warm-up turn before the samples. */
  slice(index: number): Uint32Array;
}

/**
 * Random reads of a database four times its memory: all keys in one random order, over and over, so that each
 * was used least recently when it is read again and none is in memory; and each key at random, so that some
 * are. The database's reads are recorded once and then repeated on a bare file: the same calls, at the same
 * offsets, in the same order.
 */
export async function coldReads(platform: Platform, amounts: Amounts): Promise<LargeResult> {
  const { coldMemory: memory, coldReads: count } = amounts;
  const total = Math.ceil((4 * memory) / VALUE / count) * count;
  const order = new Chooser(total, 5).shuffled(Uint32Array.from({ length: total }, (_, i) => i));
  platform.progress(`cold reads: ${total} values of ${VALUE} bytes`);
  const db = await open(NAME, { storage: platform.storage, memory });
  await fill(db, total, platform.turn);
  await db.close();

  const orders: Order[] = [
    {
      id: "cold",
      work: `a value of ${VALUE} bytes`,
      slice: (index) => order.subarray((index * count) % total, ((index * count) % total) + count),
    },
    {
      id: "some",
      work: `a value of ${VALUE} bytes, some in memory`,
      slice(index) {
        const random = new Random(11 + index);
        return Uint32Array.from({ length: count }, () => random.below(total));
      },
    },
  ];
  const parts: LargeResult[] = [];
  for (const one of orders) parts.push(await measure(platform, amounts, total, one));
  await platform.remove(NAME);
  return {
    lines: parts.flatMap(({ lines }) => lines),
    notes: parts.flatMap(({ notes }) => notes),
  };
}

async function measure(
  platform: Platform,
  amounts: Amounts,
  total: number,
  order: Order,
): Promise<LargeResult> {
  const { coldMemory: memory, coldReads: count, samples } = amounts;
  const slice = (index: number) => {
    const numbers = order.slice(index);
    return { numbers, keys: keysOf(numbers) };
  };
  const slices = total / count;
  const reads: Call[] = [];

  let db = await open(NAME, { storage: recordedStorage(platform.storage, { reads }), memory });
  for (let index = 0; index < slices; index++) {
    const { keys, numbers } = slice(index);
    getAll(db, keys, numbers);
    await platform.turn();
  }
  const recordedCalls: Call[][] = [];
  for (let sample = 0; sample < samples; sample++) {
    const { keys, numbers } = slice(slices + sample);
    const before = reads.length;
    getAll(db, keys, numbers);
    await platform.turn();
    recordedCalls.push(reads.slice(before));
  }
  const held = db.stats().memoryBytes;
  await db.close();
  const all = recordedCalls.flat();
  const bytes = all.reduce((sum, { length }) => sum + length, 0) / all.length;

  db = await open(NAME, { storage: platform.storage, memory });
  for (let index = 0; index < slices; index++) {
    const { keys, numbers } = slice(index);
    getAll(db, keys, numbers);
    await platform.turn();
  }
  const ours: number[] = [];
  for (let sample = 0; sample < samples; sample++) {
    platform.progress(`cold reads of ${order.work}: sample ${sample + 1} of ${samples}`);
    const { keys, numbers } = slice(slices + sample);
    const start = performance.now();
    getAll(db, keys, numbers);
    await platform.turn();
    ours.push(((performance.now() - start) * 1e6) / count);
  }
  await db.close();

  const raw = await platform.raw(NAME, true);
  const buffer = new Uint8Array(Math.max(...new Set(all.map(({ length }) => length))));
  const views = new Map(all.map(({ length }) => [length, buffer.subarray(0, length)]));
  const theirs: number[] = [];
  // The first pass is a warm-up and not counted.
  for (const [round, calls] of [...recordedCalls, ...recordedCalls].entries()) {
    const start = performance.now();
    let sum = 0;
    for (const { at, length } of calls) sum += raw.read(views.get(length)!, at);
    await platform.turn();
    if (sum === 0) throw new Error("the file is empty");
    if (round >= samples) theirs.push(((performance.now() - start) * 1e6) / count);
  }
  raw.close();

  const mib = (value: number) => `${Math.round(value / 1_048_576).toLocaleString("en")} MiB`;
  const line = {
    group: "Cold random reads",
    work: order.work,
    unit: "ns" as const,
  };
  return {
    lines: [
      { id: order.id, ...line, store: "varve", durability: "verified", samples: ours },
      {
        id: `${order.id}Raw`,
        ...line,
        store: "the same calls of read",
        durability: "as it is",
        samples: theirs,
      },
    ],
    notes: [
      `Cold reads: ${total.toLocaleString("en")} values of ${VALUE} bytes, ${mib(total * VALUE)} with memory ${mib(memory)} (${mib(held)} held at the end), ${order.id === "cold" ? "in one random order over and over" : "each at random"}. ${(all.length / (samples * count)).toFixed(3)} reads of the file for each get, of ${Math.round(bytes).toLocaleString("en")} bytes on average; the time of the bare calls is per get as well. The file is in the system's page cache for both.`,
    ],
  };
}
