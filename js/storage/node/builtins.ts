/// <reference types="node" />
/** Access to `node:` modules without imports, which bundlers for browsers would try to resolve. */

import type * as ChildProcess from "node:child_process";
import type * as Fs from "node:fs";
import type * as Os from "node:os";
import type * as Path from "node:path";
import { StorageUnavailableError } from "../../errors/index.js";
import { clearInterval, isFake, setInterval, setTimeout } from "../../util/clock.js";

/** The modules that file storage uses. */
export interface Builtins {
  fs: typeof Fs;
  path: typeof Path;
  os: typeof Os;
  childProcess: typeof ChildProcess;
  /** Unlike those of jsdom, they can let the process end. */
  timers: Pick<typeof globalThis, "setTimeout" | "setInterval" | "clearInterval">;
  process: NodeJS.Process;
}

let found: Builtins | undefined;

/**
 * The modules of Node, or those of Deno and Bun with the same names. They are loaded at run time without an import,
 * because even a lazy import ends up in bundles for browsers.
 *
 * @throws StorageUnavailableError if there are none
 */
export function builtins(): Builtins {
  if (found !== undefined) return found;
  const { process } = globalThis as { process?: NodeJS.Process };
  if (typeof process?.getBuiltinModule !== "function") {
    throw new StorageUnavailableError(
      typeof process?.versions?.node === "string"
        ? `file() needs Node 20.16 or later (or a current Deno or Bun); this is ${process.version}.`
        : "file() needs the file system of Node, Deno or Bun, and there is none here. In a " +
            "browser, open the database in a worker with opfs().",
    );
  }
  found = {
    fs: process.getBuiltinModule("node:fs"),
    path: process.getBuiltinModule("node:path"),
    os: process.getBuiltinModule("node:os"),
    childProcess: process.getBuiltinModule("node:child_process"),
    timers: timersOf(process),
    process,
  };
  return found;
}

/** Fake timers replace those of `node:timers` too, also later, so this is a copy, or others if they are fake already. */
function timersOf(process: NodeJS.Process): Builtins["timers"] {
  const timers = process.getBuiltinModule("node:timers");
  return [timers.setTimeout, timers.setInterval].some(isFake)
    ? { setTimeout, setInterval, clearInterval }
    : { ...timers };
}

/** Whether this runtime has the modules of Node. */
export function hasBuiltins(): boolean {
  const { process } = globalThis as { process?: NodeJS.Process };
  return typeof process?.getBuiltinModule === "function";
}

/** A permission of Deno other than those for files. */
export type DenoPermission =
  | { name: "sys"; kind: "hostname" | "statfs" }
  /** Also needed to check whether another process exists. */
  | { name: "run" };

/**
 * Whether Deno has granted a permission already. If not, it is not requested, because Deno would prompt its user.
 * Other runtimes have no permissions.
 */
export function permitted(permission: DenoPermission): boolean {
  const { Deno } = globalThis as {
    Deno?: { permissions: { querySync(asked: DenoPermission): { state: string } } };
  };
  return Deno === undefined || Deno.permissions.querySync(permission).state === "granted";
}
