import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { STORE_IDS, STORES, WORKLOAD_IDS, WORKLOADS } from "../../demo/race/plan.js";
import { figuresOf, type Results, spreadOf } from "../../demo/race/results.js";
import { compact, expand, fromHash, toHash, toJson, toMarkdown } from "../../demo/race/share.js";
import { summaryOf } from "../../demo/race/summary.js";
import { comparison, left, percent, timeInWords } from "../../demo/race/words.js";
import { context } from "../support/context.js";

const RESULTS: Results = {
  at: "2026-11-28T03:00",
  length: "quick",
  machine: { browser: "Chromium 156", system: "Linux", cores: 2, memory: 8, clock: 0.1 },
  notes: ["The tab was in the background for a while."],
  rows: {
    "get-random": {
      varve: { kind: "measured", p50: 50, p95: 60, p99: 70, q1: 45, q3: 55, slices: 12 },
      sqlite: { kind: "measured", p50: 1900, p95: 2000, p99: 2100, q1: 1800, q3: 2000, slices: 9 },
      dexie: { kind: "void", reason: "its contents are wrong" },
      localforage: { kind: "failed", reason: "QuotaExceededError: no room" },
    },
    range: { map: { kind: "absent", reason: "has no ranges" } },
  },
};

async function messageOf(work: () => unknown): Promise<string> {
  try {
    await work();
  } catch (error) {
    return String(error);
  }
  return "nothing was thrown";
}

describe("results of a race", () => {
  test("every store and every workload is described once", () => {
    expect(STORES.map(({ id }) => id)).toStrictEqual([...STORE_IDS]);
    expect(WORKLOADS.map(({ id }) => id)).toStrictEqual([...WORKLOAD_IDS]);
    for (const { measures, unit, commits } of WORKLOADS) {
      assert(/^[A-Z].*\.$/.test(measures), `one sentence: ${measures}`);
      assert(unit !== "" && commits !== "");
    }
  });

  test("figures are percentiles of the slices, and the spread is the width of their middle half", () => {
    const figures = figuresOf(Array.from({ length: 101 }, (_, i) => 200 - i));
    expect(figures).toStrictEqual({ p50: 150, p95: 195, p99: 199, q1: 125, q3: 175, slices: 101 });
    expect(spreadOf(figures)).toBe(50 / 150);
  });

  test("times and comparisons are said with three digits, and in words", () => {
    expect(timeInWords(55.8)).toBe("55.8 ns");
    expect(timeInWords(999.7)).toBe("1.00 µs");
    expect(timeInWords(2_641_000)).toBe("2.64 ms");
    expect(timeInWords(10_424_000_000)).toBe("10.4 s");
    expect(comparison(1_900, 50)).toBe("38 times as long");
    expect(comparison(50, 125)).toBe("2.5 times as fast");
    expect(comparison(51, 50)).toBe("the same");
    expect(percent(0.031)).toBe("3.1 %");
    expect(left(12_300)).toBe("about 13 seconds left");
    expect(left(400_000)).toBe("about 7 minutes left");
  });

  test("a sentence says where varve is ahead of the fastest other store, and where it is behind", () => {
    const figures = (p50: number) => figuresOf([p50]);
    expect(summaryOf(RESULTS)).toBe(
      "varve, written, has the shortest median of the stores, or one within 5 % of it, in 1 of 1 workloads.",
    );
    const measured = (p50: number) => ({ kind: "measured" as const, ...figures(p50) });
    const cold = { varve: measured(90), sqlite: measured(80), indexeddb: measured(30) };
    expect(summaryOf({ ...RESULTS, rows: { ...RESULTS.rows, "cold-list": cold } })).toBe(
      "varve, written, has the shortest median of the stores, or one within 5 % of it, in 1 of 2 workloads. It is behind in Cold open and first list (IndexedDB, tuned is 3.0 times as fast).",
    );
    expect(summaryOf({ ...RESULTS, rows: {} })).toBe(undefined);
  });

  test("every record of another machine has all workloads, and all contents were equal", async () => {
    const folder = join(context().root, "demo/records");
    const names = readdirSync(folder);
    assert(names.length > 0, "there is something to compare with");
    for (const name of names) {
      const { rows, length } = expand(JSON.parse(readFileSync(join(folder, name), "utf8")));
      expect(length, name).toBe("full");
      for (const { id } of WORKLOADS) {
        const outcomes = Object.entries(rows[id] ?? {});
        expect(outcomes.length, `${name}: ${id}`).toBe(STORES.length);
        for (const [store, { kind }] of outcomes) {
          assert(kind === "measured" || kind === "absent", `${name}: ${id}, ${store}: ${kind}`);
        }
      }
    }
  });

  test("a link and JSON hold all of the results", async () => {
    const hash = await toHash(RESULTS);
    assert(/^#race=[\w-]+$/.test(hash), hash);
    expect(await fromHash(hash)).toStrictEqual(RESULTS);
    expect(expand(JSON.parse(toJson(RESULTS)))).toStrictEqual(RESULTS);
    expect(await fromHash("#how")).toBe(undefined);
  });

  test("a link that is cut off, or holds something else, is refused with what is wrong", async () => {
    const hash = await toHash(RESULTS);
    const cut = await messageOf(() => fromHash(hash.slice(0, 60)));
    assert(/UnreadableError: it is cut off or damaged/.test(cut), cut);
    const other = await messageOf(() => expand({ ...compact(RESULTS), format: "varve race 9" }));
    assert(/not of the format "varve race 1"/.test(other), other);
    const rows = { "get-random": { varve: [1, 2, "<b>", 4, 5, 6] } };
    const wrong = await messageOf(() => expand({ ...compact(RESULTS), rows }));
    assert(/neither figures nor a reason/.test(wrong), wrong);
    const unknown = { ...compact(RESULTS), rows: { "no-such": {}, range: { none: [1] } } };
    expect(expand(unknown).rows).toStrictEqual({ range: {} });
  });

  test("Markdown has a row for each store, with its time and the comparison or the reason", () => {
    const text = toMarkdown(RESULTS);
    assert(text.includes("| varve, written | 50.0 ns | 60.0 ns | 70.0 ns | 20 % |  |"), text);
    assert(
      text.includes("| SQLite (wasm) | 1.90 µs | 2.00 µs | 2.10 µs | 11 % | 38 times as long |"),
    );
    assert(text.includes("| Dexie | | | | | void: its contents are wrong |"), text);
    assert(text.includes("Chromium 156, Linux, 2 cores, 8 GB or more"), text);
  });
});
