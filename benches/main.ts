import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { browserBench } from "./browser/host.js";
import { clientBench } from "./client/section.js";
import { keysBench } from "./keys/run.js";
import { browserLarge, nodeLarge } from "./large/section.js";
import { browserLong, nodeLong } from "./long/section.js";
import { nodeBench } from "./node/drop.js";
import { type Results, render, type Section } from "./report.js";
import { browserSizes } from "./sizes/browser/section.js";
import { nodeSizes } from "./sizes/node/section.js";
import { structBench } from "./struct/section.js";

export interface BenchOptions {
  /** The repository. */
  root: string;
  /** Few samples, to see that it works. */
  quick: boolean;
  /** For the sizes: only these numbers of keys, and only these stores. */
  sizes?: readonly number[] | undefined;
  stores?: readonly string[] | undefined;
}

const SECTIONS: Record<string, (options: BenchOptions) => Promise<Section>> = {
  node: nodeBench,
  keys: keysBench,
  browser: browserBench,
  struct: structBench,
  client: clientBench,
  sizes: nodeSizes,
  "sizes-browser": browserSizes,
  large: nodeLarge,
  "large-browser": browserLarge,
  long: nodeLong,
  "long-browser": browserLong,
};

function commit(root: string): string {
  try {
    const git = (...args: string[]) => execFileSync("git", args, { cwd: root, encoding: "utf8" });
    return `${git("rev-parse", "--short", "HEAD").trim()}${git("status", "--porcelain").trim() === "" ? "" : " with changes"}`;
  } catch {
    return "unknown";
  }
}

export async function main(options: BenchOptions & { sections: string[] }): Promise<void> {
  const chosen = options.sections.length > 0 ? options.sections : Object.keys(SECTIONS);
  const unknown = chosen.filter((name) => !(name in SECTIONS));
  if (unknown.length > 0) {
    throw new Error(
      `there is no benchmark ${unknown.join(", ")}; there are ${Object.keys(SECTIONS).join(", ")}`,
    );
  }
  const machine = {
    cpu: cpus()[0]?.model ?? "unknown",
    cores: cpus().length,
    // Above the number of cores, somebody else is at work and the figures say little.
    load: loadavg()[0],
    platform: `${process.platform} ${process.arch}`,
    node: process.version,
  };
  process.stdout.write(
    `${machine.cpu}, ${machine.cores} cores, load ${machine.load?.toFixed(1)}, Node ${machine.node}\n`,
  );
  const results: Results = {
    date: new Date().toISOString(),
    commit: commit(options.root),
    machine,
    sections: [],
  };
  const failed: string[] = [];
  for (const name of chosen) {
    const started = performance.now();
    try {
      const load = loadavg()[0];
      const section = { id: name, load, ...(await SECTIONS[name]!(options)) };
      results.sections.push(section);
      process.stdout.write(`\n${render(section)}\n`);
    } catch (error) {
      failed.push(name);
      process.stderr.write(`\n! ${name} failed: ${(error as Error).stack}\n`);
    }
    process.stderr.write(`· ${name} took ${Math.round((performance.now() - started) / 1e3)} s\n`);
    // After each, so that a late failure does not take the others with it.
    const folder = join(options.root, "benches/results");
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "latest.json"), `${JSON.stringify(results, null, 2)}\n`);
  }
  process.stdout.write(`\nAll samples are in benches/results/latest.json.\n`);
  if (failed.length > 0) throw new Error(`no figures of ${failed.join(", ")}`);
}
