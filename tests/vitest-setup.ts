/** Lets Vitest run the tests, which register themselves through tests/harness.ts, and tells them where they run. */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, it } from "vitest";
import type { Context } from "./harness.js";

const root = process.cwd();
const build = process.env.VARVE_BUILD === "debug" ? "debug" : "release";
const directory = mkdtempSync(join(tmpdir(), "varve-tests-"));
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const context: Context = {
  runtime: "node",
  build,
  thorough: process.env.VARVE_THOROUGH === "1",
  wasm:
    build === "debug"
      ? await WebAssembly.compile(readFileSync(join(root, "dist/varve.debug.wasm")))
      : undefined,
  directory,
  root,
  limitStorage: undefined,
  startWorker: undefined,
};
Object.assign(globalThis, { varveTests: context, varveRegister: { describe, it } });
