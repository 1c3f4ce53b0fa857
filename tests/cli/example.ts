/** The example in Rust, crate/examples/shop.rs, as a program. */

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { context, ok } from "../harness.js";

let built: string | undefined;

/** The example, as `cargo test` builds it too. */
export function program(): string {
  if (built !== undefined) return built;
  const { root } = context();
  const args = ["build", "--quiet", "--package", "varve", "--example", "shop", "--profile", "test"];
  execFileSync("cargo", args, { cwd: root, stdio: ["ignore", "ignore", "inherit"] });
  built = join(process.env.CARGO_TARGET_DIR ?? join(root, "target"), "debug/examples/shop");
  ok(existsSync(built), built);
  return built;
}

/** What the example says, on either output, and how it ends. */
export function shop(path: string, ...words: string[]): [said: string, code: number | null] {
  const { stdout, stderr, status } = spawnSync(program(), [path, ...words], { encoding: "utf8" });
  return [stdout + stderr, status];
}
