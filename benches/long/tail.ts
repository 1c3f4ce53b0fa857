/**
 * What a tail adds to an opening: a file as a crash left it, and the same file as it was closed before,
 * opened in turn by code that has opened both before; beside bare reads of what the first one reads and the
 * other does not. Once with both files in the system's cache, and once with neither.
 */

import { spawnSync } from "node:child_process";
import { closeSync, copyFileSync, fsyncSync, openSync, readSync } from "node:fs";

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

/** Milliseconds that these reads take, all into the same memory. */
function rawRead(path: string, reads: readonly Read[]): number {
  const block = new Uint8Array(SEGMENT);
  const fd = openSync(path, "r");
  const start = performance.now();
  for (const { at, length } of reads) readSync(fd, block, 0, length, at);
  const ms = performance.now() - start;
  closeSync(fd);
  return ms;
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
