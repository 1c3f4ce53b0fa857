import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { summarize } from "../../demo/statistics.js";
import type { BenchOptions } from "../options.js";
import { type Goal, goal, type Row, row, type Section } from "../report.js";
import { LIST, type Note, noteOf, type Start } from "./start.js";
import type { Step } from "./trace.js";

interface Visit extends Start {
  /** The steps of the start, where they are recorded. */
  readonly trace?: readonly Step[];
  /** What the page listed at its end, if it has written all records. */
  readonly filled?: readonly Note[];
}

/** The methods of `drive.mjs`. */
interface Pages {
  visits(store: string): Promise<Record<VisitName, Visit> & { bytes: number }>;
}

interface Driver {
  withBundles<T>(use: (files: unknown) => Promise<T>): Promise<T>;
  withPages<T>(
    browserName: string,
    files: unknown,
    use: (pages: Pages, version: string) => Promise<T>,
  ): Promise<T>;
}

const STORES: Readonly<Record<string, string>> = {
  varve: "varve",
  floor: "floor",
  dexie: "Dexie",
  "idb-keyval": "idb-keyval",
};

const VISITS = {
  first: "first visit: the first write",
  write: "next visit: the first write",
  list: `next visit: the first list of ${LIST}`,
  second: `second tab: the first list of ${LIST}`,
} as const;

type VisitName = keyof typeof VISITS;

const VISIT_NAMES = Object.keys(VISITS) as VisitName[];

const BROWSERS = { chromium: "Chromium", firefox: "Firefox" } as const;

type BrowserName = keyof typeof BROWSERS;

/** The times of one store: since its modules were loaded, and since the navigation began. */
interface Times {
  readonly call: Record<VisitName, number[]>;
  readonly navigation: Record<VisitName, number[]>;
  readonly bytes: number[];
}

export async function pageBench({ root, quick }: BenchOptions): Promise<Section> {
  const path = pathToFileURL(join(root, "benches/page/drive.mjs")).href;
  const driver = (await import(path)) as Driver;
  const rows: Row[] = [];
  const goals: Goal[] = [];
  const notes: string[] = [];
  await driver.withBundles(async (files) => {
    for (const browserName of Object.keys(BROWSERS) as BrowserName[]) {
      await driver.withPages(browserName, files, async (pages, version) => {
        notes.push(version);
        const title = BROWSERS[browserName];
        const times = await visitsOf(pages, quick ? 2 : 9);
        rows.push(...rowsOf(title, times));
        goals.push(...goalsOf(title, times));
        rows.push(...(await stepsOf(title, pages, quick ? 1 : 3)));
      });
    }
  });
  return {
    title: "A page's start: until the first answer",
    layout: "side by side",
    rows,
    goals,
    notes: [...notes, ...NOTES],
  };
}

/** All stores in turn, in the other order every second time. */
async function visitsOf(pages: Pages, samples: number): Promise<Map<string, Times>> {
  const stores = Object.keys(STORES);
  const none = () => ({ first: [], write: [], list: [], second: [] });
  const times = new Map<string, Times>(
    stores.map((store) => [store, { call: none(), navigation: none(), bytes: [] }]),
  );
  // The first round warms up the browser and the host.
  for (let round = -1; round < samples; round += 1) {
    for (const store of round % 2 === 0 ? stores : [...stores].reverse()) {
      const { bytes, ...visits } = await pages.visits(store);
      check(store, visits);
      if (round < 0) continue;
      const of = times.get(store)!;
      of.bytes.push(bytes);
      for (const name of VISIT_NAMES) {
        const { imported, answered } = visits[name];
        of.call[name].push(answered - imported);
        of.navigation[name].push(answered);
      }
    }
  }
  return times;
}

function check(store: string, { first, list, second }: Record<VisitName, Visit>): void {
  const expected = Array.from({ length: LIST }, (_, index) => noteOf(index));
  for (const found of [first.filled, list.notes, second.notes]) {
    if (!isDeepStrictEqual(found, expected)) throw new Error(`${store} lists other records`);
  }
}

function rowsOf(browser: string, times: ReadonlyMap<string, Times>): Row[] {
  const rows: Row[] = [];
  for (const [store, { call, navigation, bytes }] of times) {
    const add = (group: string, work: string, unit: Row["unit"], samples: readonly number[]) =>
      rows.push({ group: `${browser}: ${group}`, ...row(work, STORES[store]!, "", unit, samples) });
    for (const name of VISIT_NAMES) {
      add("from the end of the page's imports", VISITS[name], "ms", call[name]);
    }
    for (const name of VISIT_NAMES) {
      add("from the beginning of the navigation", VISITS[name], "ms", navigation[name]);
    }
    add("from the beginning of the navigation", "downloaded, compressed", "bytes", bytes);
  }
  return rows;
}

function goalsOf(browser: string, times: ReadonlyMap<string, Times>): Goal[] {
  const median = (store: string, name: VisitName) => summarize(times.get(store)!.call[name]).median;
  return VISIT_NAMES.map((name) =>
    goal(
      `${browser}, ${VISITS[name]}, against the floor`,
      median("varve", name) / median("floor", name),
      { atMost: 1.4 },
      "times",
    ),
  );
}

/** The steps of varve's start, as `trace.ts` records them: the milliseconds after the page's imports. */
const STEPS: readonly [name: string, step: string, end: "from" | "to"][] = [
  ["the worker's script begins to run", "script begins", "to"],
  ["the worker's script has run", "script run", "to"],
  ["the wasm is compiled", "compile", "to"],
  ["the lock is granted", "lock varve:opfs:/", "to"],
  ["the file is looked up", "getFileHandle", "to"],
  ["the file's handle is there", "createSyncAccessHandle", "to"],
  ["the first bytes are read", "getSize", "to"],
  ["the requests arrive", "message requests", "to"],
  ["the page has the answer", "page: receives responses ", "to"],
];

async function stepsOf(browser: string, pages: Pages, samples: number): Promise<Row[]> {
  const found = new Map<string, number[]>();
  for (let round = -1; round < samples; round += 1) {
    const visits = await pages.visits("varve-traced");
    if (round < 0) continue;
    for (const visit of ["first", "write"] as const) {
      const { imported, trace = [] } = visits[visit];
      for (const [name, step, end] of STEPS) {
        const at = trace.find((one) => one.name === step)?.[end];
        if (at === undefined) continue;
        const key = `${visit}:${name}`;
        found.set(key, [...(found.get(key) ?? []), at - imported]);
      }
    }
  }
  const rows: Row[] = [];
  for (const [name] of STEPS) {
    for (const visit of ["first", "write"] as const) {
      const samples = found.get(`${visit}:${name}`);
      if (samples === undefined) continue;
      const group = `${browser}: the steps of varve's start, after the page's imports`;
      rows.push({ group, ...row(name, VISITS[visit], "", "ms", samples) });
    }
  }
  return rows;
}

const NOTES = [
  "Every sample is a page of its own, in a process of its own, in an origin of its own; the stores take turns. First visit: nothing stored, nothing in the browser's cache. Next visit: the third one and later, with ten records stored and the files in the cache. Profile on disk, files compressed by brotli 9, from this machine.",
  "The floor is a bare worker (a module of 1 KB) that gets a file's handle, reads it, writes one record, flushes and answers; in a second tab, such a worker that opens nothing, and then a round trip by BroadcastChannel to the first tab's worker. A store's page makes its first call as soon as its modules are loaded.",
  "Records of about 130 bytes as JSON; the lists of all stores are compared.",
  "The steps are recorded by replacing the platform's functions in the worker, in runs of their own, which are slower for it.",
];
