// Programs that die and whose files fail, without end: crate/examples/torture.rs.

import { spawn } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { entry, must, root } from "./lib.mjs";

const TORTURE = ["--quiet", "-p", "varve", "--example", "torture", "--profile", "torture"];

entry(async () => {
  await must("cargo", ["build", ...TORTURE]);
  const kept = join(root, ".build/torture");
  mkdirSync(kept, { recursive: true });
  const env = { ...process.env, VARVE_KEEP_IMAGE: join(kept, "failed.varve") };
  const args = ["run", ...TORTURE, "--", ...process.argv.slice(2)];
  // Ctrl-C is for the program; this one ends when that has.
  process.on("SIGINT", () => undefined);
  const child = spawn("cargo", args, { cwd: root, env, stdio: "inherit" });
  process.exitCode = await new Promise((done) => child.on("close", (code) => done(code ?? 1)));
});
