/// <reference types="node" />
/** The way to `node:` modules that leaves no trace for a browser's bundler to trip over. */

import type * as ChildProcess from "node:child_process";
import type * as Fs from "node:fs";
import type * as Os from "node:os";
import type * as Path from "node:path";
import type * as Timers from "node:timers";
import { StorageUnavailableError } from "../../errors/index.js";

/** The modules that file storage uses. */
export interface Builtins {
  fs: typeof Fs;
  path: typeof Path;
  os: typeof Os;
  childProcess: typeof ChildProcess;
  timers: typeof Timers;
  process: NodeJS.Process;
}

let found: Builtins | undefined;

/**
 * The modules of Node, or what Deno and Bun have under the same names. They are asked for at run
 * time, not imported: an import, even a lazy one, ends up in what bundlers make for browsers.
 *
 * @throws StorageUnavailableError where there are none
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
    timers: process.getBuiltinModule("node:timers"),
    process,
  };
  return found;
}

/** Whether this runtime has files in the manner of Node. */
export function hasBuiltins(): boolean {
  const { process } = globalThis as { process?: NodeJS.Process };
  return typeof process?.getBuiltinModule === "function";
}

/** What Deno asks its user about, beside files. */
export type DenoPermission =
  | { name: "sys"; kind: "hostname" | "statfs" }
  /** Also for whether another process is there. */
  | { name: "run" };

/**
 * Whether this may be done without Deno asking its user, who was to allow nothing but files. Other
 * runtimes do not ask.
 */
export function permitted(permission: DenoPermission): boolean {
  const { Deno } = globalThis as {
    Deno?: { permissions: { querySync(asked: DenoPermission): { state: string } } };
  };
  return Deno === undefined || Deno.permissions.querySync(permission).state === "granted";
}
