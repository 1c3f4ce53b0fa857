/** Provides the context of tests in Vitest, and removes their files at the end. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import type { Context } from "./context.js";

declare module "vitest" {
  interface ProvidedContext {
    run: Pick<Context, "build" | "thorough" | "long" | "root"> & {
      readonly directory: string;
      /** The flags of Node, also for the programs that tests start. */
      readonly execArgv: readonly string[];
    };
  }
}

export default function setup(project: TestProject): () => void {
  const directory = mkdtempSync(join(tmpdir(), "varve-tests-"));
  project.provide("run", {
    build: process.env.VARVE_BUILD === "debug" ? "debug" : "release",
    thorough: process.env.VARVE_THOROUGH === "1",
    long: process.env.VARVE_THOROUGH === "1" && process.env.VARVE_LONG === "1",
    directory,
    root: project.config.root,
    execArgv: project.config.execArgv,
  });
  return () => rmSync(directory, { recursive: true, force: true });
}
