/**
 * What a tail adds to an opening: a file as a crash left it, and the same file as it was closed before, are
 * opened in turn by code that is warm; and the bytes that only the first opening reads are read without a
 * database. Once with both files in the system's cache, and once with neither.
 */

import { spawnSync } from "node:child_process";
import { closeSync, copyFileSync, fsyncSync, openSync, readSync } from "node:fs";
import { instantiateAlone } from "../wasm.js";

/** Openings before the timed ones, which run code that is not optimized yet. */
const WARM = 4;

/** Copies a file and flushes the copy. */
export function copyFlushed(from: string, to: string): void {
  copyFileSync(from, to);
  const fd = openSync(to, "r+");
  fsyncSync(fd);
  closeSync(fd);
}

/** Evicts a file from the system's cache. Returns whether the system supports that. */
function evict(path: string): boolean {
  const { status } = spawnSync("dd", [`if=${path}`, "iflag=nocache", "count=0"]);
  return status === 0;
}

/** A read: its offset and its length. */
export interface Read {
  at: number;
  length: number;
}

const SEGMENT = 1_048_576;

/**
 * The reads that only the opening of the crashed file makes: the tail after its checkpoint, limited to the
 * bytes written. Segments are read whole, and no other read has that length.
 */
async function tailOf({ closed, crashed, bytes, readsOf }: Pair): Promise<Read[]> {
  const segments = async (path: string) =>
    (await readsOf(path)).filter(({ length }) => length === SEGMENT);
  const common = new Set((await segments(closed)).map(({ at }) => at));
  const added = (await segments(crashed)).filter(({ at }) => !common.has(at));
  let left = bytes;
  return added.map(({ at }) => {
    const length = Math.min(left, SEGMENT);
    left -= length;
    return { at, length };
  });
}

/** Milliseconds of these reads, all into the same memory, and of the callback after each. */
function rawRead(
  path: string,
  reads: readonly Read[],
  block: Uint8Array = new Uint8Array(SEGMENT),
  after?: (length: number) => void,
): number {
  const fd = openSync(path, "r");
  const start = performance.now();
  for (const { at, length } of reads) {
    readSync(fd, block, 0, length, at);
    after?.(length);
  }
  const ms = performance.now() - start;
  closeSync(fd);
  return ms;
}

/** The exports of benches/tail. */
interface TailWasm {
  memory: WebAssembly.Memory;
  tail_prepare(segment: number, slotsLog2: number): number;
  tail_checksum(length: number): number;
  tail_look_up(count: number): number;
}

/** The two files, and how to open one up to the first get and close it again; only the opening is timed. */
export interface Pair {
  closed: string;
  crashed: string;
  /** Bytes of the tail. */
  bytes: number;
  timedOpen(path: string): Promise<number>;
  /** The reads of such an opening, in order. */
  readsOf(path: string): Promise<Read[]>;
}

/** Samples in ms of opening the two, and of reading; none from the medium if the cache cannot be evicted. */
export type TailCost = Record<
  "closed" | "crashed" | "read" | "closedCold" | "crashedCold" | "readCold",
  number[]
>;

/**
 * Samples in ms of the work that grows with a tail: the reads alone, with checksums, and with an index lookup
 * for each key too.
 */
export type TailBound = Record<"read" | "verified" | "lookedUp", number[]>;

/**
 * The lower bound for opening with a tail that is in the system's cache: each segment is read into wasm
 * memory, its checksum is computed there, and for each of its records one slot of a table as large as the
 * index is read. These reads do not depend on each other.
 */
export async function lowerBoundOfTail(
  pair: Pair,
  { wasm, keys, records }: { wasm: string; keys: number; records: number },
  rounds: number,
): Promise<TailBound> {
  const least: TailBound = { read: [], verified: [], lookedUp: [] };
  const tail = await tailOf(pair);
  if (tail.length === 0) return least;
  const { memory, tail_prepare, tail_checksum, tail_look_up } =
    await instantiateAlone<TailWasm>(wasm);
  // The index is at most three quarters full.
  const at = tail_prepare(SEGMENT, Math.ceil(Math.log2((keys + 1) * (4 / 3))));
  const block = new Uint8Array(memory.buffer, at, SEGMENT);
  let sum = 0;
  const verify = (length: number) => {
    sum ^= tail_checksum(length);
  };
  const lookUp = (length: number) => {
    verify(length);
    sum ^= tail_look_up(Math.round((length * records) / pair.bytes));
  };
  const read = (after?: (length: number) => void) => rawRead(pair.crashed, tail, block, after);
  for (let i = -WARM; i < rounds; i++) {
    const [bare, verified, lookedUp] = [read(), read(verify), read(lookUp)];
    if (i < 0) continue;
    least.read.push(bare);
    least.verified.push(verified);
    least.lookedUp.push(lookedUp);
  }
  if (!Number.isInteger(sum)) throw new Error("no checksum was computed");
  return least;
}

export async function costOfTail(pair: Pair, rounds: number): Promise<TailCost> {
  const { closed, crashed, timedOpen } = pair;
  const tail = await tailOf(pair);
  const added: TailCost = {
    closed: [],
    crashed: [],
    read: [],
    closedCold: [],
    crashedCold: [],
    readCold: [],
  };
  for (let i = 0; i < WARM; i++) {
    await timedOpen(closed);
    await timedOpen(crashed);
  }
  /** Alternates the order, because the second one pays for the first one's garbage. */
  const inTurn = async (
    i: number,
    first: () => Promise<unknown>,
    second: () => Promise<unknown>,
  ) => {
    await (i % 2 === 0 ? first() : second());
    await (i % 2 === 0 ? second() : first());
  };
  for (let i = 0; i < rounds; i++) {
    await inTurn(
      i,
      async () => added.closed.push(await timedOpen(closed)),
      async () => added.crashed.push(await timedOpen(crashed)),
    );
    // The tail may be empty, if a checkpoint was written after the last write.
    if (tail.length > 0) added.read.push(rawRead(crashed, tail));
  }
  for (let i = 0; i < rounds && evict(closed) && evict(crashed); i++) {
    await inTurn(
      i,
      async () => evict(closed) && added.closedCold.push(await timedOpen(closed)),
      async () => evict(crashed) && added.crashedCold.push(await timedOpen(crashed)),
    );
    evict(crashed);
    if (tail.length > 0) added.readCold.push(rawRead(crashed, tail));
  }
  return added;
}
