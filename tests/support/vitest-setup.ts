/** Prepares a process of Vitest for the tests. Vitest runs this before each file; all files share one process. */

import "./timers.js";
import { mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, inject } from "vitest";
import type { Context } from "./context.js";

/** Variables that Vitest sets. They are removed, so that programs of tests run as those of a user. */
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
  const { build, thorough, long, directory, root } = inject("run");
  return {
    runtime: "node",
    build,
    thorough,
    long,
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

/** Vitest takes a microsecond per element, so longer arrays of bytes are compared by one call. */
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
