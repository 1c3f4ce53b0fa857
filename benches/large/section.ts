import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { summarize } from "../../demo/statistics.js";
import { Chromium } from "../browser/chromium.js";
import type { BenchOptions } from "../options.js";
import { type Goal, goal, row, type Section } from "../report.js";
import type { LargeResult } from "./platform.js";

function section(title: string, { lines, notes }: LargeResult): Section {
  const median = (id: string) => summarize(lines.find((one) => one.id === id)!.samples).median;
  const ratio = (what: string, ours: string, theirs: string, atMost: number): Goal =>
    goal(what, median(ours) / median(theirs), { atMost }, "times as long");
  const sizes: [string, number][] = [
    ["64 KiB", 65_536],
    ["4 MiB", 4_194_304],
  ];
  return {
    title,
    rows: lines.map(({ group, work, store, durability, unit, samples }) => ({
      group,
      ...row(`${group}: ${work}`, store, durability, unit, samples),
    })),
    goals: [
      ratio("cold read against the same calls of read", "cold", "coldRaw", 1.5),
      ...sizes.flatMap(([name, size]) =>
        [
          ["write of the same bytes", `write${size}`],
          ["the same calls of write", `same${size}`],
        ].map(([what, theirs]) =>
          ratio(`write of ${name}, new, against ${what}`, `set${size}`, theirs!, 1.2),
        ),
      ),
      ...["index", "wasm"].map((id) =>
        goal(
          `memory per key, ${id === "index" ? "index table" : 'wasm memory beyond "memory"'}, keys sorted`,
          median(`memory, ${id}, after the first range`),
          { atMost: 60 },
          "bytes",
        ),
      ),
    ],
    notes: [
      ...notes,
      `Bulk load at ${(median("bulk") / median("bulkRaw")).toFixed(2)} of the bare file's speed. A copy takes ${sizes
        .map(
          ([name, size]) =>
            `${(median(`copy${size}`) / median(`view${size}`)).toFixed(0)} times as long as a view at ${name}`,
        )
        .join(", ")}.`,
    ],
  };
}

export async function nodeLarge({ root, quick }: BenchOptions): Promise<Section> {
  const { status, stdout, error } = spawnSync(
    process.execPath,
    [join(root, ".build/bench/large.mjs"), quick ? "quick" : "full"],
    { stdio: ["ignore", "pipe", "inherit"], encoding: "utf8" },
  );
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`the process ended with code ${status}`);
  return section("More than memory, and large values, in Node", JSON.parse(stdout) as LargeResult);
}

export async function browserLarge({ root, quick }: BenchOptions): Promise<Section> {
  const browser = await Chromium.start(root, "benches/large/worker.ts");
  try {
    const result = await browser.run<LargeResult>("worker", { quick });
    const title = "More than memory, and large values, in Chromium on OPFS";
    return section(title, { ...result, notes: [browser.version, ...result.notes] });
  } finally {
    await browser.close();
  }
}
