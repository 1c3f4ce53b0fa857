// What came of a long run is kept beside what else is measured, with the machine and the commit.

import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { ask, root } from "../../scripts/lib.mjs";

/** The load counts at the beginning: in the end it is the run's own. */
export function begin() {
  const machine = {
    cpu: cpus()[0]?.model ?? "unknown",
    cores: cpus().length,
    load: loadavg()[0],
    platform: `${process.platform} ${process.arch}`,
    node: process.version,
  };
  const commit = ask("git", ["rev-parse", "--short", "HEAD"]) ?? "unknown";
  return { date: new Date().toISOString(), commit, machine };
}

/** Writes `benches/results/<name>.json`. */
export function keep(name, begun, told) {
  const results = join(root, "benches/results");
  mkdirSync(results, { recursive: true });
  writeFileSync(
    join(results, `${name}.json`),
    `${JSON.stringify({ ...begun, ...told }, null, 2)}\n`,
  );
}
