import { summarize } from "../../demo/statistics.js";
import type { BenchOptions } from "../options.js";
import { goal, type Row, row, type Section } from "../report.js";
import type { BrowserRequest, BrowserResult } from "./calls.js";
import { Chromium } from "./chromium.js";

export async function browserBench({ root, quick }: BenchOptions): Promise<Section> {
  const request: BrowserRequest = quick
    ? { samples: 3, runs: 2, cycles: 2_000 }
    : { samples: 21, runs: 7, cycles: 20_000 };
  const browser = await Chromium.start(root, "benches/browser/calls.ts");
  try {
    const { calls, drops, equal } = await browser.run<BrowserResult>("calls", request);
    if (!equal) throw new Error("the stores did not end with equal contents");
    return section(calls, drops, browser.version, request.cycles);
  } finally {
    await browser.close();
  }
}

const GROUPINGS = { all: "one commit for all", each: "a commit for each" };

function section(
  calls: BrowserResult["calls"],
  drops: BrowserResult["drops"],
  version: string,
  cycles: number,
): Section {
  const rows: Row[] = [
    ...calls.map(({ work, store, durability, ns }) => row(work, store, durability, "ns", ns)),
    ...drops.map(({ name, grouping, durability, ms }) =>
      row(
        `drop of ${cycles.toLocaleString("en")}, ${GROUPINGS[grouping]}`,
        name,
        durability,
        "ms",
        ms,
      ),
    ),
  ];
  const get = { atMost: 70 };
  const update = { atMost: 90 };
  const call = (id: string) => summarize(calls.find((one) => one.id === id)!.ns).median;
  const drop = (id: string, grouping: keyof typeof GROUPINGS) =>
    summarize(drops.find((one) => one.id === id && one.grouping === grouping)!.ms).median;
  const against = (id: string, grouping: keyof typeof GROUPINGS) =>
    drop(id, grouping) / drop("varve", grouping);
  return {
    title: "Chromium, a worker on OPFS, profile on disk",
    rows,
    goals: [
      goal("get of 64 bytes by string key, view included, one key", call("get1"), get, "ns"),
      goal("the same against a Map", call("get1") / call("map1"), { atMost: 4 }, "times"),
      goal("get, 64 keys in turn", call("get"), get, "ns"),
      goal("the same against a Map", call("get") / call("map"), { atMost: 4 }, "times"),
      goal("updateIf, one key", call("updateIf1"), update, "ns"),
      goal("updateIf with a predicate, one key", call("updateIfWhen1"), update, "ns"),
      goal("updateIf, 64 keys in turn", call("updateIf"), update, "ns"),
      goal(
        "drop against SQLite in one transaction",
        against("sqlite", "all"),
        { atLeast: 50 },
        "times faster",
      ),
      goal(
        "drop against IndexedDB, a transaction each, varve one write per turn",
        drop("indexeddb", "each") / drop("varve", "all"),
        { atLeast: 3000 },
        "times faster",
      ),
    ],
    notes: [
      version,
      `Further ratios to varve: ${[
        `SQLite by raw calls in one transaction ${against("sqlite-raw", "all").toFixed(1)}`,
        `IndexedDB in one transaction ${against("indexeddb", "all").toFixed(0)}`,
        `SQLite, a commit for each on both sides ${against("sqlite", "each").toFixed(1)}`,
        `IndexedDB, a commit for each on both sides ${against("indexeddb", "each").toFixed(0)}`,
      ].join("; ")}.`,
      "Single calls: 200,000 gets or 20,000 writes per sample, all in one turn, with the one write at its end. A key that comes twice in a row is encoded once, so one key is the best case and 64 in turn the ordinary one.",
      "SQLite: pool of OPFS files, WAL, exclusive locking, synchronous=normal, statements prepared once, the key bound with each. By raw calls: the C functions on a key bound once, which no program with more than one key can do; it shows what the engine alone costs.",
      "Every store is closed and opened again at the end, and all hold one pair of the right name.",
    ],
  };
}
