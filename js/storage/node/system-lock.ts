/**
 * The system's own lock on an open file. It works between all processes of a machine, even if they cannot see each
 * other, and is released when its process ends, however it ends. The Rust crate takes the same lock. It is available
 * in Deno on Linux and macOS, and in Node and Bun on macOS.
 */

import type { Builtins } from "./builtins.js";

/** Releases the system's lock. */
export type Unlock = () => void;

/** Flag of `open` on macOS that also takes the lock. Node passes it on to the system. */
const O_EXLOCK = 0x20;

interface DenoFiles {
  openSync(
    path: string,
    options: { read: true; write: true },
  ): { tryLockSync?(exclusive: true): boolean; close(): void };
}

/**
 * Takes the system's lock on the file at a path. Returns `undefined` if there is no such file, or if the runtime or
 * the file system has no such lock.
 */
export function lockBySystem(node: Builtins, path: string): Unlock | "busy" | undefined {
  const { platform } = node.process;
  const { Deno } = globalThis as { Deno?: DenoFiles };
  try {
    // On Windows the lock would keep this program itself from reading.
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
