/**
 * The lock that the system itself keeps on an open file. It holds between all processes of a machine, whatever
 * they can see of each other, and is gone with whoever had it, however that ended. Rust takes the same one.
 * Not every runtime gives it: Deno does on Linux and macOS, Node and Bun do on macOS.
 */

import type { Builtins } from "./builtins.js";

/** Lets a lock of the system go. */
export type Unlock = () => void;

/** Of `open` in macOS: takes the lock in the same step, which Node hands through. */
const O_EXLOCK = 0x20;

interface DenoFiles {
  openSync(
    path: string,
    options: { read: true; write: true },
  ): { tryLockSync?(exclusive: true): boolean; close(): void };
}

/**
 * Takes the system's lock on the file at a path. `undefined` where there is no such file, or the runtime or the file
 * system has no such lock.
 */
export function lockBySystem(node: Builtins, path: string): Unlock | "busy" | undefined {
  const { platform } = node.process;
  const { Deno } = globalThis as { Deno?: DenoFiles };
  try {
    // On Windows it would keep this very program from reading.
    if (platform === "win32") return undefined;
    if (Deno !== undefined) return lockInDeno(Deno, path);
    return platform === "darwin" ? lockAtOpening(node, path) : undefined;
  } catch {
    return undefined;
  }
}

function lockInDeno(Deno: DenoFiles, path: string): Unlock | "busy" | undefined {
  const opened = Deno.openSync(path, { read: true, write: true });
  let locked: boolean | undefined;
  try {
    locked = opened.tryLockSync?.(true);
    return locked === true ? () => opened.close() : locked === false ? "busy" : undefined;
  } finally {
    if (locked !== true) opened.close();
  }
}

function lockAtOpening({ fs }: Builtins, path: string): Unlock | "busy" {
  const { O_RDWR, O_NONBLOCK } = fs.constants;
  try {
    const fd = fs.openSync(path, O_RDWR | O_NONBLOCK | O_EXLOCK);
    return () => fs.closeSync(fd);
  } catch (error) {
    if ((error as { code?: unknown }).code === "EAGAIN") return "busy";
    throw error;
  }
}
