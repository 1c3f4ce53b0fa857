/**
 * The long life of a store, in steps that each run in a separate process: some close the store, one is killed
 * with the store open.
 */

import { newDigest } from "../sizes/digest.js";
import type { Store } from "../sizes/store.js";
import { Chooser, KEY_BYTES, keysOf, VALUE_BYTES, Values } from "../sizes/workload.js";
import type { TailBound, TailCost } from "./tail.js";

export type StepName = "load" | "reopen" | "tail" | "crashed" | "added" | "least" | "overwrite";

export interface Step {
  step: StepName;
  /** Keys in the store. */
  size: number;
  /** Timed openings, or writes of the step. */
  count: number;
  /** Writes in the tail. */
  tail?: number;
  seed: number;
}

/** A store that reports how it uses its files. */
export interface MeasuredStore extends Store {
  /** Bytes of live records, if the store reports them. */
  live?(): { liveBytes: number; fileBytes: number };
  /** Milliseconds of each maintenance step so far, without the platform's flush. */
  maintenanceSteps?(): readonly number[];
}

/** The same store closed, and crashed with a tail of `bytes` bytes, and a key in both. */
export interface Copies {
  closed: string;
  crashed: string;
  bytes: number;
  key: string;
}

export interface Tails {
  /** Copies a store's file and flushes the copy. */
  copyFlushed(from: string, to: string): void;
  /** Opens the two in turn, up to the first get: see `costOfTail`. */
  added(copies: Copies, rounds: number): Promise<TailCost>;
  /** The lower bound for opening the second: see `lowerBoundOfTail`. */
  least(copies: Copies, of: { keys: number; records: number }, rounds: number): Promise<TailBound>;
}

export interface Environment {
  open(name: string): Promise<MeasuredStore>;
  turn(): Promise<void>;
  wrap(buffer: ArrayBuffer, offset: number, length: number): Uint8Array;
  /** Disk space of a store's files. */
  diskSpace(name: string): Promise<number>;
  /** Bytes written to the system so far, if they can be counted. */
  written(): number | undefined;
  /** For stores where the cost of a tail is measured. */
  tails?: Tails;
}

/** Samples by name, in ms or bytes, and the contents' checksum. */
export interface StepResult {
  name: string;
  settings: string;
  samples: Record<string, number[]>;
  digest?: string;
}

/** Writes per commit. */
const GROUP = 1_000;
const NAME = "long";
/** Copies of the store before and after its last crash. */
const [CLOSED, CRASHED] = ["closed", "crashed"];
/** Bytes of a record with a key and value of this benchmark, including the header. */
const RECORD = 40 + KEY_BYTES + 8 * Math.ceil(VALUE_BYTES / 8);

export async function runStep(step: Step, environment: Environment): Promise<StepResult> {
  // Warms up the code before anything is timed.
  const small = await environment.open("warm");
  await write(small, environment, new Uint32Array([2, 4, 6]), 1);
  await small.close();
  switch (step.step) {
    case "load":
      return load(step, environment);
    case "reopen":
      return reopen(step, environment);
    case "tail":
      return tail(step, environment);
    case "crashed":
      return crashed(step, environment);
    case "added":
      return added(step, environment);
    case "least":
      return least(step, environment);
    case "overwrite":
      return overwrite(step, environment);
  }
}

/** Writes these keys in batches; `after` is called after each with its milliseconds. */
async function write(
  store: MeasuredStore,
  { turn, wrap }: Environment,
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

async function load({ size, seed }: Step, environment: Environment): Promise<StepResult> {
  const store = await environment.open(NAME);
  const order = new Chooser(size, seed).shuffled(
    Uint32Array.from({ length: size }, (_, i) => 2 * i),
  );
  const groups: number[] = [];
  await write(store, environment, order, seed, (ms) => void groups.push(ms));
  const { name, settings } = store;
  const start = performance.now();
  await store.close();
  return { name, settings, samples: { groups, closes: [performance.now() - start] } };
}

/** A key that exists. */
const [KEY] = keysOf(new Uint32Array([2])) as [string];

async function timedOpen(environment: Environment): Promise<{ store: MeasuredStore; ms: number }> {
  const start = performance.now();
  const store = await environment.open(NAME);
  await store.gets([KEY]);
  return { store, ms: performance.now() - start };
}

async function reopen({ count }: Step, environment: Environment): Promise<StepResult> {
  const [opens, ranges, closes]: [number[], number[], number[]] = [[], [], []];
  for (let i = 0; ; i++) {
    const { store, ms } = await timedOpen(environment);
    opens.push(ms);
    const start = performance.now();
    await store.scan?.("user", 10);
    ranges.push(performance.now() - start);
    const { name, settings } = store;
    await write(store, environment, new Uint32Array([2]), 1);
    const end = performance.now();
    await store.close();
    closes.push(performance.now() - end);
    await environment.turn();
    if (i + 1 === count) return { name, settings, samples: { opens, ranges, closes } };
  }
}

/** Overwrites keys at random and leaves the store open: the caller then kills the process. */
async function tail({ size, count, seed }: Step, environment: Environment): Promise<StepResult> {
  environment.tails?.copyFlushed(NAME, CLOSED);
  const store = await environment.open(NAME);
  const { name, settings } = store;
  await write(store, environment, new Chooser(size, seed).existing("random", count), seed);
  return { name, settings, samples: {} };
}

async function crashed({ size }: Step, environment: Environment): Promise<StepResult> {
  environment.tails?.copyFlushed(NAME, CRASHED);
  const { store, ms } = await timedOpen(environment);
  const { name, settings } = store;
  const digest = await digestOf(store, size);
  await store.close();
  return { name, settings, digest, samples: { crashed: [ms] } };
}

/** The copies made by the last two steps. */
const copiesWithTail = (tail: number): Copies => ({
  closed: CLOSED,
  crashed: CRASHED,
  bytes: tail * RECORD,
  key: KEY,
});

/** Opens each copy `count` times. */
async function added({ count, tail = 0 }: Step, { tails }: Environment): Promise<StepResult> {
  const samples = await tails?.added(copiesWithTail(tail), count);
  return { name: "", settings: "", samples: { ...samples } };
}

async function least({ size, count, tail = 0 }: Step, { tails }: Environment): Promise<StepResult> {
  const samples = await tails?.least(copiesWithTail(tail), { keys: size, records: tail }, count);
  return { name: "", settings: "", samples: { ...samples } };
}

async function overwrite(
  { size, count, seed }: Step,
  environment: Environment,
): Promise<StepResult> {
  const store = await environment.open(NAME);
  const { name, settings } = store;
  const [groups, diskSpace, excess]: number[][] = [[], [], []];
  /** Times of the batches during which maintenance ran, and of the others. */
  const [busy, idle]: number[][] = [[], []];
  let stepsBefore = 0;
  const before = environment.written();
  const numbers = new Chooser(size, seed).existing("zipfian", count);
  await write(store, environment, numbers, seed, async (ms) => {
    groups!.push(ms);
    const maintenanceSteps = store.maintenanceSteps?.().length;
    if (maintenanceSteps !== undefined) {
      (maintenanceSteps > stepsBefore ? busy : idle)!.push(ms);
      stepsBefore = maintenanceSteps;
    }
    if (groups!.length % 20 !== 0) return;
    const bytes = await environment.diskSpace(NAME);
    diskSpace!.push(bytes);
    const live = store.live?.();
    if (live !== undefined) excess!.push(live.fileBytes / bound(live.liveBytes, size));
  });
  const written = environment.written();
  const samples = { groups, busy, idle, diskSpace, excess } as Record<string, number[]>;
  if (before !== undefined && written !== undefined) samples.written = [written - before];
  samples.maintenanceSteps = [...(store.maintenanceSteps?.() ?? [])];
  const digest = await digestOf(store, size);
  await store.close();
  return { name, settings, digest, samples };
}

const MIB = 1_048_576;

/** The bound of the file's size: 1.5 times the live bytes, two checkpoints and four segments. */
function bound(liveBytes: number, size: number): number {
  const checkpoint = Math.ceil((9 * size + 65_536) / MIB) * MIB;
  return Math.ceil((1.5 * liveBytes) / MIB) * MIB + 2 * checkpoint + 4 * MIB;
}
