import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { summarize } from "../../demo/statistics.js";
import type { BenchOptions } from "../options.js";
import { type Goal, goal, type Row, row, type Section } from "../report.js";
import { SIZES } from "./rows.js";

/** The methods of `drive.mjs`. */
interface Lists {
  variants(): Promise<[store: string, variant: string][]>;
  cold(store: string, variant: string, size: number): Promise<number>;
  warm(size: number, rounds: number, warmUp: number): Promise<Record<string, number[]>>;
  longest(store: string, variant: string, size: number): Promise<number>;
}

interface Driver {
  withLists(
    browserName: string,
    use: (lists: Lists, version: string) => Promise<void>,
  ): Promise<void>;
}

/** Goals: at most this part of the time that Dexie's `toArray` takes in the same run. */
const AGAINST_DEXIE = { "varve, json()": 0.25, "varve, views": 0.1 } as const;

/** The longest task of a page that still shows every frame, in milliseconds. */
const FRAME_MS = 16;

export async function listsBench({ root, quick }: BenchOptions): Promise<Section> {
  const path = pathToFileURL(join(root, "benches/lists/drive.mjs")).href;
  const driver = (await import(path)) as Driver;
  const rows: Row[] = [];
  const goals: Goal[] = [];
  const [colds, rounds] = quick ? [1, 2] : [7, 15];
  await driver.withLists("chromium", async (lists, version) => {
    const variants = await lists.variants();
    for (const size of SIZES) {
      const title = `${size.toLocaleString("en")} records`;
      const cold: Record<string, number[]> = {};
      const longest: Record<string, number[]> = {};
      for (let i = 0; i < colds; i += 1) {
        for (const [store, variant] of variants) {
          const name = `${store}/${variant}`;
          cold[name] ??= [];
          longest[name] ??= [];
          cold[name].push(await lists.cold(store, variant, size));
          if (size === Math.max(...SIZES))
            longest[name].push(await lists.longest(store, variant, size));
        }
      }
      const warm = await lists.warm(size, rounds, 5);
      for (const [when, times] of [
        ["first time on a page", cold],
        ["warm", warm],
      ] as const) {
        for (const [store, variant] of variants) {
          const each = times[`${store}/${variant}`]!.map((ms) => (ms * 1_000) / size);
          rows.push({
            group: `Chromium ${version}: ${title}, ${when}`,
            ...row(variant, store, "", "µs", each),
          });
        }
        const median = (name: string) => summarize(times[name]!).median;
        for (const [store, atMost] of Object.entries(AGAINST_DEXIE)) {
          for (const variant of WITH_GOALS[store]!) {
            const ratio = median(`${store}/${variant}`) / median("Dexie/toArray");
            goals.push(
              goal(
                `${title}, ${when}: ${store}, ${variant}, against Dexie`,
                ratio,
                { atMost },
                "times",
              ),
            );
          }
        }
      }
      for (const [store, variant] of variants) {
        const tasks = longest[`${store}/${variant}`]!;
        if (tasks.length === 0) continue;
        rows.push({
          group: `Chromium ${version}: ${title}, the page's longest task`,
          ...row(variant, store, "", "ms", tasks),
        });
        if (store.startsWith("varve")) {
          goals.push(
            goal(
              `${title}: the longest task, ${store}, ${variant}`,
              summarize(tasks).median,
              { atMost: FRAME_MS },
              "ms",
            ),
          );
        }
      }
    }
  });
  return { title: "Lists on a page", layout: "side by side", rows, goals, notes: NOTES };
}

const WITH_GOALS: Record<string, readonly string[]> = {
  "varve, json()": ["for await", "all()"],
  "varve, views": ["for await", "all()"],
};

const NOTES = [
  "Microseconds for each record of 130 bytes as JSON, on the main thread of a page: all values of a collection are listed, and one field of each is added up. getMany and bulkGet take 100 keys a call. The contents are compared before.",
  "The first time: on a new page, 50 ms after its store was opened. Warm: after 5 rounds of all variants on one page, then in turn.",
  "The floors: a worker posts the same records, as objects or as one transferred buffer of their JSON text.",
  "The longest task: the longest time in which the page answered no message to itself, during the first list of a new page.",
];
