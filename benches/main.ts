import { loadavg } from "node:os";
import { browserBench } from "./browser/host.js";
import { clientBench } from "./client/section.js";
import { pastBench } from "./history/past.js";
import { historyBench } from "./history/section.js";
import { keysBench } from "./keys/run.js";
import { browserLarge, nodeLarge } from "./large/section.js";
import { listsBench } from "./lists/section.js";
import { browserLong, nodeLong } from "./long/section.js";
import { nativeBench } from "./native/section.js";
import { nodeBench } from "./node/drop.js";
import type { BenchOptions } from "./options.js";
import { pageBench } from "./page/section.js";
import { type Results, render, type Section } from "./report.js";
import { browserSizes } from "./sizes/browser/section.js";
import { nodeSizes } from "./sizes/node/section.js";
import { structBench } from "./struct/section.js";

const SECTIONS: Record<string, (options: BenchOptions) => Promise<Section>> = {
  node: nodeBench,
  keys: keysBench,
  browser: browserBench,
  struct: structBench,
  client: clientBench,
  page: pageBench,
  lists: listsBench,
  native: nativeBench,
  history: historyBench,
  past: pastBench,
  sizes: nodeSizes,
  "sizes-browser": browserSizes,
  large: nodeLarge,
  "large-browser": browserLarge,
  long: nodeLong,
  "long-browser": browserLong,
};

/** The exports of scripts/record.mjs. */
interface Recording {
  begin(): Omit<Results, "sections">;
  keep(name: string, start: Omit<Results, "sections">, results: Pick<Results, "sections">): void;
}

export async function main(
  options: BenchOptions & { sections: string[] },
  { begin, keep }: Recording,
): Promise<void> {
  const chosen = options.sections.length > 0 ? options.sections : Object.keys(SECTIONS);
  const unknown = chosen.filter((name) => !(name in SECTIONS));
  if (unknown.length > 0) {
    throw new Error(
      `there is no benchmark ${unknown.join(", ")}; there are ${Object.keys(SECTIONS).join(", ")}`,
    );
  }
  const start = begin();
  const { machine } = start;
  process.stdout.write(
    `${machine.cpu}, ${machine.cores} cores, load ${machine.load?.toFixed(1)}, Node ${machine.node}\n`,
  );
  const sections: Section[] = [];
  const failed: string[] = [];
  for (const name of chosen) {
    const started = performance.now();
    try {
      const load = loadavg()[0];
      const section = { id: name, load, ...(await SECTIONS[name]!(options)) };
      sections.push(section);
      process.stdout.write(`\n${render(section)}\n`);
    } catch (error) {
      failed.push(name);
      process.stderr.write(`\n! ${name} failed: ${(error as Error).stack}\n`);
    }
    process.stderr.write(`· ${name} took ${Math.round((performance.now() - started) / 1e3)} s\n`);
    // Written after each section, so that a later failure does not lose earlier results.
    keep("latest", start, { sections });
  }
  process.stdout.write(`\nAll samples are in benches/results/latest.json.\n`);
  if (failed.length > 0) throw new Error(`no figures of ${failed.join(", ")}`);
}
