/**
 * What a tail adds to an opening: a file as a crash left it, and the same file as it was closed before,
 * opened in turn by code that has opened both before; beside bare reads of what the first one reads and the
 * other does not. Once with both files in the system's cache, and once with neither.
 */

import { spawnSync } from "node:child_process";
import { closeSync, copyFileSync, fsyncSync, openSync, readSync } from "node:fs";
import { instantiateAlone } from "../wasm.js";

/** Openings before the timed ones: the first ones run code that is not optimized yet. */
const WARM = 4;

/** Copies a file to the medium. */
export function keep(from: string, to: string): void {
  copyFileSync(from, to);
  const fd = openSync(to, "r+");
  fsyncSync(fd);
  closeSync(fd);
}

/** Has the system forget what it caches of a file. Answers whether that can be asked for here. */
function forget(path: string): boolean {
  const { status } = spawnSync("dd", [`if=${path}`, "iflag=nocache", "count=0"]);
  return status === 0;
}

/** A read: where it begins, and how many bytes it asks for. */
export interface Read {
  at: number;
  length: number;
}

const SEGMENT = 1_048_576;

/**
 * What opening the one file reads of the log and opening the other does not: the tail behind its checkpoint, where
 * it lies, and at most as many bytes as were written. Segments are read whole, and nothing else is as long.
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

/** Milliseconds that these reads take, all into the same memory, and what is done there after each. */
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
interface LeastWasm {
  memory: WebAssembly.Memory;
  tail_prepare(segment: number, placesLog2: number): number;
  tail_checksum(length: number): number;
  tail_look(count: number): number;
}

/** The two files, and how one is opened up to the first get and closed again: the milliseconds before that. */
export interface Pair {
  closed: string;
  crashed: string;
  /** Bytes of the tail. */
  bytes: number;
  timedOpen(path: string): Promise<number>;
  /** The reads of such an opening, in order. */
  readsOf(path: string): Promise<Read[]>;
}

/** Samples in ms: of opening the two, and of reading; none from the medium where the cache stays. */
export type Added = Record<
  "closed" | "crashed" | "read" | "closedCold" | "crashedCold" | "readCold",
  number[]
>;

/** Samples in ms of what grows with a tail in any opening: reads, with checksums, with a look for each key too. */
export type Least = Record<"read" | "verified" | "looked", number[]>;

/**
 * The least that opening can do with a tail which the system has in its cache: each segment is read into wasm
 * memory, its checksum is computed there, and a place of a table as large as the index is looked at for each of
 * its records, none of which waits for another.
 */
export async function leastForATail(
  pair: Pair,
  { wasm, keys, records }: { wasm: string; keys: number; records: number },
  rounds: number,
): Promise<Least> {
  const least: Least = { read: [], verified: [], looked: [] };
  const tail = await tailOf(pair);
  if (tail.length === 0) return least;
  const { memory, tail_prepare, tail_checksum, tail_look } =
    await instantiateAlone<LeastWasm>(wasm);
  // Three quarters of the index's places are in use at most.
  const at = tail_prepare(SEGMENT, Math.ceil(Math.log2((keys + 1) * (4 / 3))));
  const block = new Uint8Array(memory.buffer, at, SEGMENT);
  let sum = 0;
  const verify = (length: number) => {
    sum ^= tail_checksum(length);
  };
  const look = (length: number) => {
    verify(length);
    sum ^= tail_look(Math.round((length * records) / pair.bytes));
  };
  const read = (after?: (length: number) => void) => rawRead(pair.crashed, tail, block, after);
  for (let i = -WARM; i < rounds; i++) {
    const [bare, verified, looked] = [read(), read(verify), read(look)];
    if (i < 0) continue;
    least.read.push(bare);
    least.verified.push(verified);
    least.looked.push(looked);
  }
  if (!Number.isInteger(sum)) throw new Error("no checksum was computed");
  return least;
}

export async function whatATailAdds(pair: Pair, rounds: number): Promise<Added> {
  const { closed, crashed, timedOpen } = pair;
  const tail = await tailOf(pair);
  const added: Added = {
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
  /** Each is the first of the two in every other round: what one leaves to be collected the next one pays. */
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
    // Behind a checkpoint that was taken on the way there may be none.
    if (tail.length > 0) added.read.push(rawRead(crashed, tail));
  }
  for (let i = 0; i < rounds && forget(closed) && forget(crashed); i++) {
    await inTurn(
      i,
      async () => forget(closed) && added.closedCold.push(await timedOpen(closed)),
      async () => forget(crashed) && added.crashedCold.push(await timedOpen(crashed)),
    );
    forget(crashed);
    if (tail.length > 0) added.readCold.push(rawRead(crashed, tail));
  }
  return added;
}
