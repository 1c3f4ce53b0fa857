/** Prepares a process of Vitest for the tests. Vitest runs this before each file, all of which share one process. */

import "./timers.js";
import { mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject } from "vitest";
import type { Context } from "./context.js";

/** What Vitest sets for its own processes. The programs that tests start are to run as a user's do. */
const ENVIRONMENT = [
  "TEST",
  "VITEST",
  "VITEST_MODE",
  "VITEST_POOL_ID",
  "VITEST_WORKER_ID",
  "NODE_ENV",
  "FORCE_TTY",
  "SSR",
];

async function contextHere(): Promise<Context> {
  const { build, thorough, directory, root } = inject("run");
  return {
    runtime: "node",
    build,
    thorough,
    wasm:
      build === "debug"
        ? await WebAssembly.compile(readFileSync(join(root, "dist/varve.debug.wasm")))
        : undefined,
    directory: mkdtempSync(join(directory, "process-")),
    root,
    limitStorage: undefined,
    startWorker: undefined,
  };
}

/** Vitest takes a microsecond for each element of an array: from this length on, bytes are compared at once. */
const LARGE_BYTES = 1_000;

function equalBytes(a: unknown, b: unknown): boolean | undefined {
  if (!(a instanceof Uint8Array && b instanceof Uint8Array)) return undefined;
  if (a.constructor !== b.constructor || a.length < LARGE_BYTES) return undefined;
  return Buffer.compare(a, b) === 0;
}

for (const name of ENVIRONMENT) delete process.env[name];
process.execArgv = [...inject("run").execArgv];
const realm = globalThis as { varveTests?: Context };
if (realm.varveTests === undefined) {
  realm.varveTests = await contextHere();
  expect.addEqualityTesters([equalBytes]);
}
