// Runs crate/examples/torture.rs: programs that die and whose files fail, without end. The result of a run
// that ended by --seconds or --states goes to benches/results/torture.json.

import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { entry, must, root } from "./lib.mjs";
import { begin, keep } from "./record.mjs";

const TORTURE = ["--quiet", "-p", "varve", "--example", "torture", "--profile", "torture"];

entry(async () => {
  await must("cargo", ["build", ...TORTURE]);
  const folder = join(root, ".build/torture");
  mkdirSync(folder, { recursive: true });
  const [image, results] = [join(folder, "failed.varve"), join(folder, "results.json")];
  rmSync(results, { force: true });
  const start = begin();
  const env = { ...process.env, VARVE_KEEP_IMAGE: image, VARVE_KEEP_RESULTS: results };
  const args = ["run", ...TORTURE, "--", ...process.argv.slice(2)];
  // Ctrl-C ends the program; this script ends after it.
  process.on("SIGINT", () => undefined);
  const child = spawn("cargo", args, { cwd: root, env, stdio: "inherit" });
  process.exitCode = await new Promise((done) => child.on("close", (code) => done(code ?? 1)));
  if (existsSync(results)) keep("torture", start, JSON.parse(readFileSync(results, "utf8")));
});
