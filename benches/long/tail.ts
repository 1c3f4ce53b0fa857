/**
 * What a tail adds to an opening: a file as a crash left it, and the same file as it was closed before,
 * opened in turn by code that has opened both before; beside bare reads of as many bytes as the tail has.
 * Once with both files in the system's cache, and once with neither.
 */

import { spawnSync } from "node:child_process";
import { closeSync, copyFileSync, fsyncSync, openSync, readSync, statSync } from "node:fs";

const MIB = 1_048_576;
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

/** Milliseconds that reading the last bytes of a file takes, in pieces of 1 MiB. */
function rawRead(path: string, bytes: number): number {
  const block = new Uint8Array(MIB);
  const fd = openSync(path, "r");
  const end = statSync(path).size;
  const start = performance.now();
  for (let at = Math.max(0, end - bytes); at < end; at += MIB) {
    readSync(fd, block, 0, Math.min(MIB, end - at), at);
  }
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
}

/** Samples in ms: of opening the two, and of reading; none from the medium where the cache stays. */
export type Added = Record<
  "closed" | "crashed" | "read" | "closedCold" | "crashedCold" | "readCold",
  number[]
>;

export async function whatATailAdds(pair: Pair, rounds: number): Promise<Added> {
  const { closed, crashed, bytes, timedOpen } = pair;
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
    added.read.push(rawRead(crashed, bytes));
  }
  for (let i = 0; i < rounds && forget(closed) && forget(crashed); i++) {
    await inTurn(
      i,
      async () => forget(closed) && added.closedCold.push(await timedOpen(closed)),
      async () => forget(crashed) && added.crashedCold.push(await timedOpen(crashed)),
    );
    forget(crashed);
    added.readCold.push(rawRead(crashed, bytes));
  }
  return added;
}
