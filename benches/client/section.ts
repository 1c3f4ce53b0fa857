import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { summarize } from "../../demo/statistics.js";
import type { BenchOptions } from "../options.js";
import { type Goal, goal, type Row, row, type Section } from "../report.js";
import type { Times } from "./tab.js";

/** The methods of `drive.mjs`. */
interface Tabs {
  cold(store: string, samples: number): Promise<{ ms: number[]; bytes: number[] }>;
  trips(store: string, effort: { rounds: number; width: number }): Promise<Trips>;
  writes(store: string, count: number, effort: { ms: number; samples: number }): Promise<Writes>;
  gaps(store: string, how: string, samples: number): Promise<number[]>;
}
type Trips = Record<"own" | "other", Times>;
type Writes = Record<"alone" | "together", number[]>;

interface Driver {
  readonly hasPglite: boolean;
  withBundles<T>(use: (files: unknown) => Promise<T>): Promise<T>;
  withTabs<T>(
    browserName: string,
    files: unknown,
    use: (tabs: Tabs, version: string) => Promise<T>,
  ): Promise<T>;
}

/** The number of measurements of a store: fewer for slow ones. */
interface Effort {
  readonly title: string;
  readonly opens: number;
  readonly rounds: number;
  readonly width: number;
  readonly tabs: readonly number[];
  readonly samples: number;
  /** How often the owner's tab is closed, killed or frozen, for stores that have an owner. */
  readonly gaps: Readonly<Record<string, number>>;
}

const GAPS = { closed: 5, killed: 5, frozen: 5 };

const STORES: Record<string, Effort> = {
  varve: {
    title: "varve",
    opens: 5,
    rounds: 9,
    width: 1_000,
    tabs: [1, 2, 8],
    samples: 3,
    gaps: GAPS,
  },
  indexeddb: {
    title: "IndexedDB",
    opens: 3,
    rounds: 3,
    width: 100,
    tabs: [1, 2, 8],
    samples: 1,
    gaps: {},
  },
  sqlite: {
    title: "sqlite-wasm",
    opens: 2,
    rounds: 1,
    width: 20,
    tabs: [1, 2, 8],
    samples: 1,
    gaps: {},
  },
  pglite: {
    title: "PGlite",
    opens: 1,
    rounds: 2,
    width: 50,
    tabs: [1, 2],
    samples: 1,
    gaps: { closed: 1 },
  },
};

/** Firefox runs fewer stores, and has no way to freeze a tab. */
const BROWSERS = {
  chromium: { title: "Chromium", stores: ["varve", "indexeddb", "sqlite", "pglite"] },
  firefox: { title: "Firefox", stores: ["varve", "indexeddb"] },
} as const;

type BrowserName = keyof typeof BROWSERS;

const WRITE_MS = 400;

export async function clientBench({ root, quick }: BenchOptions): Promise<Section> {
  const path = pathToFileURL(join(root, "benches/client/drive.mjs")).href;
  const driver = (await import(path)) as Driver;
  const rows: Row[] = [];
  const goals: Goal[] = [];
  const notes: string[] = [];
  await driver.withBundles(async (files) => {
    for (const browserName of Object.keys(BROWSERS) as BrowserName[]) {
      await driver.withTabs(browserName, files, async (tabs, version) => {
        notes.push(version);
        for (const store of BROWSERS[browserName].stores) {
          if (store === "pglite" && !driver.hasPglite) continue;
          process.stderr.write(`· ${BROWSERS[browserName].title}: ${STORES[store]?.title}\n`);
          const found = await measured(browserName, store, tabs, quick);
          rows.push(...found.rows);
          goals.push(...found.goals);
          notes.push(...found.notes);
        }
      });
    }
  });
  return {
    title: "Tabs: one database for all of them",
    layout: "side by side",
    rows,
    goals,
    notes: [...notes, ...NOTES],
  };
}

async function measured(browserName: BrowserName, store: string, tabs: Tabs, quick: boolean) {
  const effort = quick ? reduced(STORES[store]!) : STORES[store]!;
  const { title } = effort;
  const rows: Row[] = [];
  const notes: string[] = [];
  const add = (group: string, work: string, unit: Row["unit"], samples: number[], by = title) =>
    rows.push({
      group: `${BROWSERS[browserName].title}: ${group}`,
      ...row(work, by, "", unit, samples),
    });

  const { ms, bytes } = await tabs.cold(store, effort.opens);
  add("the first visit", "until it has written and read", "ms", ms);
  add("the first visit", "downloaded, compressed", "bytes", bytes);

  const trips = await tabs.trips(store, effort);
  for (const [tab, title] of [
    ["own", "of the tab that has the file"],
    ["other", "of another tab"],
  ] as const) {
    for (const mode of ["alone", "pipelined"]) {
      const of = (kind: string) => trips[tab][`${kind}, ${mode}`] ?? [];
      const group = `a round trip ${title}, ${mode}`;
      add(group, "read", "µs", of("get"));
      add(group, "write", "µs", of("set"));
      if (store !== "varve") continue;
      const echo = tab === "own" ? "echo" : "echo by a port";
      add(group, "read", "µs", of(echo), "bare echo");
      add(group, "write", "µs", of(echo), "bare echo");
      add(group, "write", "µs", of("echo after a write"), "echo after a bare write");
    }
  }

  for (const count of effort.tabs) {
    const { alone, together } = await tabs.writes(store, count, {
      ms: WRITE_MS,
      samples: effort.samples,
    });
    const tabsTitle = count === 1 ? "1 tab" : `${count} tabs`;
    add("writes per second", `${tabsTitle}, one after the other`, "per s", alone);
    add("writes per second", `${tabsTitle}, 64 at once`, "per s", together);
  }

  const gaps: Record<string, number[]> = {};
  for (const [how, samples] of Object.entries(effort.gaps)) {
    if (how === "frozen" && browserName === "firefox") continue;
    try {
      gaps[how] = await tabs.gaps(store, how, samples);
    } catch (error) {
      // Rivals that find no new owner get a note instead of a row.
      if (store === "varve") throw error;
      notes.push(`${title}, the owner's tab is ${how}: ${error}.`);
      continue;
    }
    add("longest time unanswered", `the owner's tab is ${how}`, "ms", gaps[how]);
  }
  // Only varve has goals.
  const goals = store === "varve" ? goalsOf(BROWSERS[browserName].title, trips, gaps) : [];
  return { rows, goals, notes };
}

function reduced(effort: Effort): Effort {
  const gaps = Object.fromEntries(Object.keys(effort.gaps).map((how) => [how, 1]));
  return { ...effort, opens: 1, rounds: 1, tabs: [1, 2], samples: 1, gaps };
}

function goalsOf(where: string, { own, other }: Trips, gaps: Record<string, number[]>): Goal[] {
  const median = (samples: number[] | undefined) => summarize(samples ?? []).median;
  const trip = (what: string, times: Times, call: string, floor: string) =>
    goal(`${where}: ${what}`, median(times[call]) / median(times[floor]), { atMost: 1.5 }, "times");
  const gap = (how: string, atMost: number) =>
    goal(`${where}: until answered, the owner ${how}`, median(gaps[how]), { atMost }, "ms");
  return [
    trip("read against an echo", own, "get, alone", "echo, alone"),
    trip("write against an echo", own, "set, alone", "echo, alone"),
    trip(
      "write against an echo after a bare write",
      own,
      "set, alone",
      "echo after a write, alone",
    ),
    trip(
      "read of another tab against an echo by a port",
      other,
      "get, alone",
      "echo by a port, alone",
    ),
    trip("read, pipelined, against an echo", own, "get, pipelined", "echo, pipelined"),
    trip("write, pipelined, against an echo", own, "set, pipelined", "echo, pipelined"),
    gap("closed", 50),
    gap("killed", 500),
  ];
}

const NOTES = [
  "Values of 64 bytes. An echo is `postMessage` to a worker that posts the same back; requests of another tab go through a MessagePort to a worker of the tab that has the file, so they are compared with an echo through such a port. A bare write appends 248 bytes, what a set writes, to a file of OPFS.",
  "Alone: one call after the other, after 50 that are not counted. Pipelined: all calls in one task.",
  "Unanswered: the longest time without an answer in another tab that writes all the time while the owner's tab is closed, killed by SIGKILL to its process, or frozen by the DevTools protocol.",
  "PGlite elects a leader among tabs as well: opfs-ahp, relaxed durability. IndexedDB has no owner; its durability is relaxed. With sqlite-wasm's `opfs` every tab opens the file, and locks it for each call. Of these stores, only it needs cross-origin isolation (COOP and COEP headers). Journal persist, synchronous normal, since its tabs cannot have a write-ahead log. It has no owner.",
  "The first visit: an origin where nothing is stored or cached, files compressed by brotli 9, from the beginning of the page's load.",
];
