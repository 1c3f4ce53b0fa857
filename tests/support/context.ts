/** The environment of the tests, as set by the runner. */

import { onTestFinished } from "vitest";
import { currentTimers, platformTimers, type Timers } from "./timers.js";

/** The environment in which tests run. */
export interface Context {
  runtime: "node" | "deno" | "bun" | "worker" | "page";
  /** The build of the wasm to test. */
  build: "release" | "debug";
  /** Whether tests try every case, and random tests more than a few seeds. True in one of the runs. */
  thorough: boolean;
  /** Whether random programs are as long as every night: the thorough run with `VARVE_LONG=1`. */
  long: boolean;
  /**
   * The wasm of that build, for `open(name, { wasm })`. `undefined` for the release build, which is the package's
   * own.
   */
  wasm: WebAssembly.Module | undefined;
  /** A new folder, in runtimes that have files. The runner removes it. */
  directory: string | undefined;
  /** The repository's root as a path, or in browsers the URL that serves it (ends without "/"). */
  root: string;
  /**
   * In browsers: limits the storage of this origin to a number of bytes; `undefined` removes the limit.
   */
  limitStorage: ((bytes: number | undefined) => Promise<void>) | undefined;
  /** In a browser's worker: starts another worker beside it, with this module as its program. */
  startWorker: ((program: string) => OtherWorker) | undefined;
}

/** A worker beside the one that runs the tests. */
export interface OtherWorker {
  /** The first message that it posts. Rejects if it fails before. */
  firstMessage: Promise<unknown>;
  /** Terminates it, whatever it is doing. */
  kill(): Promise<void>;
}

/** The context, which the runner sets before it imports tests. */
export function context(): Context {
  const { varveTests } = globalThis as { varveTests?: Context };
  if (varveTests === undefined) throw new Error("The runner has set no context.");
  return varveTests;
}

/** The option `wasm` of `open`, if another build than the package's own is tested. */
export function wasmOption(): { wasm?: WebAssembly.Module } {
  const { wasm } = context();
  return wasm === undefined ? {} : { wasm };
}

/** Replaces the clock of this realm, also for the package, until the test ends. Returns the platform's clock. */
export function replaceClock(parts: Partial<Timers>): Readonly<Timers> {
  Object.assign(currentTimers, parts);
  onTestFinished(() => {
    Object.assign(currentTimers, platformTimers);
  });
  return platformTimers;
}
