/**
 * What years do to a store, in steps that each run in a program of their own: some end in order, one
 * dies with the store open.
 */

import { newDigest } from "../sizes/digest.js";
import type { Store } from "../sizes/store.js";
import { Chooser, KEY_BYTES, keysOf, VALUE_BYTES, Values } from "../sizes/workload.js";
import type { Added, Least } from "./tail.js";

export type StepName = "load" | "reopen" | "tail" | "crashed" | "added" | "least" | "overwrite";

export interface Step {
  step: StepName;
  /** Keys that are there. */
  size: number;
  /** Openings that are timed, or writes of the step. */
  count: number;
  /** Writes of the tail that openings are about. */
  tail?: number;
  seed: number;
}

/** A store of which it is known what it does with its files. */
export interface Watched extends Store {
  /** Bytes that live records take, where the store tells. */
  live?(): { liveBytes: number; fileBytes: number };
  /** Milliseconds of each slice of housekeeping so far, without the platform's flush. */
  slices?(): readonly number[];
}

/** A store as it was closed, the same behind a tail of so many bytes, and a key that is in both. */
export interface Kept {
  closed: string;
  crashed: string;
  bytes: number;
  key: string;
}

export interface Tails {
  /** Copies a store's file to the medium. */
  keep(from: string, to: string): void;
  /** Opens the two in turn up to the first get: see `whatATailAdds`. */
  added(kept: Kept, rounds: number): Promise<Added>;
  /** What any opening of the second does with its tail: see `leastForATail`. */
  least(kept: Kept, of: { keys: number; records: number }, rounds: number): Promise<Least>;
}

export interface Around {
  open(name: string): Promise<Watched>;
  turn(): Promise<void>;
  wrap(buffer: ArrayBuffer, offset: number, length: number): Uint8Array;
  /** Bytes that the files of a store take. */
  room(name: string): Promise<number>;
  /** Bytes handed to the system so far, where that can be told. */
  written(): number | undefined;
  /** Where it can be told what a tail adds to an opening. */
  tails?: Tails;
}

/** Samples by what they are of, in ms or bytes, and the contents' checksum. */
export interface StepResult {
  name: string;
  settings: string;
  samples: Record<string, number[]>;
  digest?: string;
}

/** Writes that are handed on together. */
const GROUP = 1_000;
const NAME = "long";
/** What it was before its last crash, and after it. */
const [CLOSED, CRASHED] = ["closed", "crashed"];
/** Bytes of a record that holds one of these keys and values, with its header. */
const RECORD = 40 + KEY_BYTES + 8 * Math.ceil(VALUE_BYTES / 8);

export async function runStep(step: Step, around: Around): Promise<StepResult> {
  // What is compiled is compiled before anything is timed.
  const small = await around.open("warm");
  await write(small, around, new Uint32Array([2, 4, 6]), 1);
  await small.close();
  switch (step.step) {
    case "load":
      return load(step, around);
    case "reopen":
      return reopen(step, around);
    case "tail":
      return tail(step, around);
    case "crashed":
      return crashed(step, around);
    case "added":
      return added(step, around);
    case "least":
      return least(step, around);
    case "overwrite":
      return overwrite(step, around);
  }
}

/** Writes these keys in groups; `after` is called behind each with the milliseconds that it took. */
async function write(
  store: Watched,
  { turn, wrap }: Around,
  numbers: Uint32Array,
  seed: number,
  after?: (ms: number) => void | Promise<void>,
): Promise<void> {
  const values = new Values(wrap);
  for (let i = 0; i < seed; i++) values.renew();
  for (let from = 0; from < numbers.length; from += GROUP) {
    const keys = keysOf(numbers.subarray(from, from + GROUP));
    values.renew();
    const start = performance.now();
    await store.sets(keys, values.all, 0, keys.length);
    await turn();
    await after?.(performance.now() - start);
  }
}

async function digestOf(store: Store, size: number): Promise<string> {
  const digest = await newDigest();
  const possible = keysOf(Uint32Array.from({ length: size }, (_, i) => 2 * i));
  await store.pairs((key, value) => digest.add(key, value), possible);
  return digest.end();
}

async function load({ size, seed }: Step, around: Around): Promise<StepResult> {
  const store = await around.open(NAME);
  const order = new Chooser(size, seed).shuffled(
    Uint32Array.from({ length: size }, (_, i) => 2 * i),
  );
  const groups: number[] = [];
  await write(store, around, order, seed, (ms) => void groups.push(ms));
  const { name, settings } = store;
  await store.close();
  return { name, settings, samples: {} };
}

/** A key that is there. */
const [KEY] = keysOf(new Uint32Array([2])) as [string];

async function timedOpen(around: Around): Promise<{ store: Watched; ms: number }> {
  const start = performance.now();
  const store = await around.open(NAME);
  await store.gets([KEY]);
  return { store, ms: performance.now() - start };
}

async function reopen({ count }: Step, around: Around): Promise<StepResult> {
  const [opens, ranges]: [number[], number[]] = [[], []];
  for (let i = 0; ; i++) {
    const { store, ms } = await timedOpen(around);
    opens.push(ms);
    const start = performance.now();
    await store.scan?.("user", 1);
    ranges.push(performance.now() - start);
    const { name, settings } = store;
    await store.close();
    await around.turn();
    if (i + 1 === count) return { name, settings, samples: { opens, ranges } };
  }
}

/** Overwrites keys at random and ends with the store open: whoever runs this kills it then. */
async function tail({ size, count, seed }: Step, around: Around): Promise<StepResult> {
  around.tails?.keep(NAME, CLOSED);
  const store = await around.open(NAME);
  const { name, settings } = store;
  await write(store, around, new Chooser(size, seed).existing("random", count), seed);
  return { name, settings, samples: {} };
}

async function crashed({ size }: Step, around: Around): Promise<StepResult> {
  around.tails?.keep(NAME, CRASHED);
  const { store, ms } = await timedOpen(around);
  const { name, settings } = store;
  const digest = await digestOf(store, size);
  await store.close();
  return { name, settings, digest, samples: { crashed: [ms] } };
}

/** What the last two steps kept. */
const keptBehind = (tail: number): Kept => ({
  closed: CLOSED,
  crashed: CRASHED,
  bytes: tail * RECORD,
  key: KEY,
});

/** Opens what was kept, so many times each. */
async function added({ count, tail = 0 }: Step, { tails }: Around): Promise<StepResult> {
  const samples = await tails?.added(keptBehind(tail), count);
  return { name: "", settings: "", samples: { ...samples } };
}

async function least({ size, count, tail = 0 }: Step, { tails }: Around): Promise<StepResult> {
  const samples = await tails?.least(keptBehind(tail), { keys: size, records: tail }, count);
  return { name: "", settings: "", samples: { ...samples } };
}

async function overwrite({ size, count, seed }: Step, around: Around): Promise<StepResult> {
  const store = await around.open(NAME);
  const { name, settings } = store;
  const [groups, room, excess]: number[][] = [[], [], []];
  /** Of the groups, those beside which housekeeping ran, and the others. */
  const [beside, alone]: number[][] = [[], []];
  let slicesBefore = 0;
  const before = around.written();
  const numbers = new Chooser(size, seed).existing("zipfian", count);
  await write(store, around, numbers, seed, async (ms) => {
    groups!.push(ms);
    const slices = store.slices?.().length;
    if (slices !== undefined) {
      (slices > slicesBefore ? beside : alone)!.push(ms);
      slicesBefore = slices;
    }
    if (groups!.length % 20 !== 0) return;
    const bytes = await around.room(NAME);
    room!.push(bytes);
    const live = store.live?.();
    if (live !== undefined) excess!.push(live.fileBytes / bound(live.liveBytes, size));
  });
  const written = around.written();
  const samples = { groups, beside, alone, room, excess } as Record<string, number[]>;
  if (before !== undefined && written !== undefined) samples.written = [written - before];
  samples.slices = [...(store.slices?.() ?? [])];
  const digest = await digestOf(store, size);
  await store.close();
  return { name, settings, digest, samples };
}

const MIB = 1_048_576;

/** What the file may come to: 1.5 times what lives, two checkpoints and four segments. */
function bound(liveBytes: number, size: number): number {
  const checkpoint = Math.ceil((9 * size + 65_536) / MIB) * MIB;
  return Math.ceil((1.5 * liveBytes) / MIB) * MIB + 2 * checkpoint + 4 * MIB;
}
