/** Where the tests run, which the runner says, and what that changes for a test. */

import { onTestFinished } from "vitest";
import { currentTimers, platformTimers, type Timers } from "./timers.js";

/** What the runner tells the tests about where they run. */
export interface Context {
  runtime: "node" | "deno" | "bun" | "worker" | "page";
  /** Which build of the wasm this run is about. */
  build: "release" | "debug";
  /** In one of all runs: what finds more the longer it searches is to search for long. */
  thorough: boolean;
  /**
   * The wasm of that build. Hand it to `open(name, { wasm })` when it is there; `undefined` means
   * the package's own, which is the release build.
   */
  wasm: WebAssembly.Module | undefined;
  /** A fresh folder for files, in runtimes that have some; emptied by the runner. */
  directory: string | undefined;
  /** The repository's root as a path, or in browsers the URL that serves it (ends without "/"). */
  root: string;
  /**
   * In browsers: has the runner limit what this origin may store to so many bytes; `undefined` takes
   * the limit away.
   */
  limitStorage: ((bytes: number | undefined) => Promise<void>) | undefined;
  /** In a browser's worker: starts another worker beside it, with this module as its program. */
  startWorker: ((program: string) => OtherWorker) | undefined;
}

/** A worker beside the one that runs the tests. */
export interface OtherWorker {
  /** The first message that it posts; rejects when it fails before that. */
  said: Promise<unknown>;
  /** Ends it, in the middle of whatever it does. */
  kill(): Promise<void>;
}

/** Where this run takes place: the runner sets it before it imports tests. */
export function context(): Context {
  const { varveTests } = globalThis as { varveTests?: Context };
  if (varveTests === undefined) throw new Error("The runner has set no context.");
  return varveTests;
}

/** `{ wasm }` for `open`'s options when the run is about another build than the package's own. */
export function wasmOption(): { wasm?: WebAssembly.Module } {
  const { wasm } = context();
  return wasm === undefined ? {} : { wasm };
}

/** Has everything in this realm, the package included, use another clock until the test ends; gives the platform's. */
export function replaceClock(parts: Partial<Timers>): Readonly<Timers> {
  Object.assign(currentTimers, parts);
  onTestFinished(() => {
    Object.assign(currentTimers, platformTimers);
  });
  return platformTimers;
}
