// Results of a benchmark or a long run, stored with the machine, the commit and the start time.

import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { ask, root } from "./lib.mjs";

/** The load is taken at the start: later it is the run's own. */
export function begin() {
  return { date: new Date().toISOString(), commit: commit(), machine: machine() };
}

/** Writes `benches/results/<name>.json`. */
export function keep(name, start, results) {
  const folder = join(root, "benches/results");
  mkdirSync(folder, { recursive: true });
  const text = JSON.stringify({ ...start, ...results }, null, 2);
  writeFileSync(join(folder, `${name}.json`), `${text}\n`);
}

function machine() {
  return {
    cpu: cpus()[0]?.model ?? "unknown",
    cores: cpus().length,
    // Above the number of cores, other programs run too and times are unreliable.
    load: loadavg()[0],
    platform: `${process.platform} ${process.arch}`,
    node: process.version,
  };
}

function commit() {
  const name = ask("git", ["rev-parse", "--short", "HEAD"]);
  if (name === undefined) return "unknown";
  return ask("git", ["status", "--porcelain"]) === "" ? name : `${name} with changes`;
}
