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

/** What opening the one file reads and opening the other does not: the tail, where it lies, and none of the room behind it. */
async function tailOf({ closed, crashed, bytes, readsOf }: Pair): Promise<Read[]> {
  const common = new Set((await readsOf(closed)).map(({ at, length }) => `${at} ${length}`));
  const added = (await readsOf(crashed)).filter(({ at, length }) => !common.has(`${at} ${length}`));
  let left = bytes;
  const tail = added.map(({ at, length: whole }) => {
    const length = Math.min(left, whole);
    left -= length;
    return { at, length };
  });
  if (left < 0.1 * bytes) return tail.filter(({ length }) => length > 0);
  throw new Error(`Of a tail of ${bytes} bytes, ${left} were not read.`);
}

/** Milliseconds that these reads take, all into the same memory. */
function rawRead(path: string, reads: readonly Read[]): number {
  const block = new Uint8Array(Math.max(...reads.map(({ length }) => length)));
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
    added.read.push(rawRead(crashed, tail));
  }
  for (let i = 0; i < rounds && forget(closed) && forget(crashed); i++) {
    await inTurn(
      i,
      async () => forget(closed) && added.closedCold.push(await timedOpen(closed)),
      async () => forget(crashed) && added.crashedCold.push(await timedOpen(crashed)),
    );
    forget(crashed);
    added.readCold.push(rawRead(crashed, tail));
  }
  return added;
}
