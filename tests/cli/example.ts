/** The example in Rust, crate/examples/shop.rs, as a program. */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { assert } from "vitest";
import { context } from "../support/context.js";

/** The example, which run-node.mjs has built. */
export function program(): string {
  const target = process.env.CARGO_TARGET_DIR ?? join(context().root, "target");
  const path = join(target, "debug/examples/shop");
  assert(existsSync(path), path);
  return path;
}

/** The output of the example on both streams, and its exit code. */
export function shop(path: string, ...words: string[]): [output: string, code: number | null] {
  const { stdout, stderr, status } = spawnSync(program(), [path, ...words], { encoding: "utf8" });
  return [stdout + stderr, status];
}
