import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { summarize } from "../../demo/statistics.js";
import { Chromium } from "../browser/chromium.js";
import type { BenchOptions } from "../options.js";
import { type Goal, goal, type Row, row, type Section } from "../report.js";
import type { Measured } from "./measure.js";
import { bundleSizes } from "./sizes.js";
import { type Request, TURNS } from "./work.js";

const PARTS = {
  views: "a record of a number and a string",
  many: "the same beside eight other schemas",
  flat: "nine fields, five of them flattened or not",
  rows: "a row of 291 bytes in an ordered table",
} as const;
type Part = keyof typeof PARTS;
type Run = (request: Request) => Promise<Measured[]>;

/** Both platforms in one run, so that the ratios are from the same machine and time. */
export async function structBench({ root, quick }: BenchOptions): Promise<Section> {
  const node = await onPlatform("Node", quick, async (request) => runChild(root, request));
  const browser = await Chromium.start(root, "benches/struct/worker.ts");
  try {
    const chromium = await onPlatform("Chromium", quick, (request) =>
      browser.run("worker", request),
    );
    const sizes = await bundleSizes(root);
    return {
      title: "Structs: typed views beside raw bytes and decoded objects",
      layout: "side by side",
      rows: [...node.rows, ...chromium.rows, ...sizes.rows],
      goals: [...node.goals, ...chromium.goals, ...sizes.goals],
      notes: [browser.version, ...NOTES],
    };
  } finally {
    await browser.close();
  }
}

/** Runs a part in a separate process, so that no code is compiled for another part. */
function runChild(root: string, request: Request): Measured[] {
  const { status, signal, stdout, error } = spawnSync(
    process.execPath,
    [join(root, ".build/bench/struct.mjs"), JSON.stringify({ root, ...request })],
    { stdio: ["ignore", "pipe", "inherit"], encoding: "utf8", maxBuffer: 2 ** 28 },
  );
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`${request.part} ended with ${signal ?? `code ${status}`}`);
  return JSON.parse(stdout) as Measured[];
}

async function onPlatform(name: string, quick: boolean, run: Run) {
  const rows: Row[] = [];
  const goals: Goal[] = [];
  for (const part of Object.keys(PARTS) as Part[]) {
    process.stderr.write(`· ${name}: ${PARTS[part]}\n`);
    const turns: Measured[][] = [];
    for (let turn = 0; turn < TURNS[part]; turn++) turns.push(await run({ part, quick, turn }));
    const measured = pooled(turns);
    const group = `${name}: ${PARTS[part]}`;
    for (const { work, store, about, ns } of measured) {
      rows.push({ group, ...row(work, store, about, "ns", ns) });
    }
    if (part === "rows") rows.push(...NATIVE.map((one) => ({ group, ...one })));
    goals.push(
      ...GOALS[part](medians(measured)).map((one) => ({ ...one, what: `${name}: ${one.what}` })),
    );
  }
  return { rows, goals };
}

/** Merges the samples of all processes, which may list the forms in a different order. */
function pooled([first = [], ...others]: readonly Measured[][]): Measured[] {
  return first.map((one) => {
    const same = ({ work, store, about }: Measured) =>
      work === one.work && store === one.store && about === one.about;
    return {
      ...one,
      ns: [one, ...others.flatMap((turn) => turn.filter(same))].flatMap(({ ns }) => ns),
    };
  });
}

/** Figures of VeryLightSQL's native implementation, measured separately. */
const NATIVE: Row[] = (
  [
    ["insert 100 rows in order, each", 460],
    ["insert 100 rows in random order, each", 559],
    ["a cursor over 50 rows, each", 8],
    ["find a row among 50", 38],
  ] as const
).map(([work, ns]) => row(work, "VeryLightSQL, native", "raw bytes, recorded", "ns", [ns]));

type Median = (work: string, store: string) => number;

function medians(measured: readonly Measured[]): Median {
  return (work, store) => {
    const found = measured.find((one) => one.work.startsWith(work) && one.store === store);
    if (found === undefined) throw new Error(`nothing was measured of ${store}, ${work}`);
    return summarize(found.ns).median;
  };
}

const GOALS: Record<Part, (median: Median) => Goal[]> = {
  views: (median) => {
    const work = "read a number of a view that is kept";
    const more = median(work, "varve") - median(work, "raw DataView");
    return [goal("a checked read above a raw one", more, { atMost: 3 }, "ns")];
  },
  many: (median) => {
    const [raw, typed] = ["raw bytes", "typed view"].map(
      (store) => (work: string) => median(work, store),
    ) as [(work: string) => number, (work: string) => number];
    const kept = "read a number of a view that is kept";
    const update = "updateIf with a predicate";
    return [
      goal(
        "many schemas: a checked read above a raw one",
        typed(kept) - raw(kept),
        { atMost: 3 },
        "ns",
      ),
      goal(
        `many schemas: ${update}, typed against raw`,
        typed(update) / raw(update),
        { atMost: 1.3 },
        "times",
      ),
    ];
  },
  flat: (median) =>
    ["read", "write", "JSON out", "JSON in"].map((work) =>
      goal(
        `${work}, flattened against plain`,
        median(work, "flattened") / median(work, "plain fields"),
        { atMost: 1.05 },
        "times",
      ),
    ),
  rows: (median) => {
    const typed = (work: string, most: number) =>
      goal(
        `${work}, typed against raw`,
        median(work, "typed view") / median(work, "raw bytes"),
        { atMost: most },
        "times",
      );
    const kept = "read a number of a record that is at hand";
    const more = median(kept, "ref") - median(kept, "typed view");
    return [
      ...NATIVE.map(({ work }) => typed(work, 1.5)),
      goal("what a ref checks at each access", more, { atMost: 2.5 }, "ns"),
      typed("updateIf with a predicate, keys are strings", 1.3),
      typed("updateIf with a predicate, keys are numbers", 1.3),
    ];
  },
};

const NOTES = [
  `Each part runs in ${TURNS.views} to ${TURNS.flat} separate processes or workers; flattened and plain fields each are first in half of them. Samples of all variants are taken in turn, forwards and backwards. Medians are of all samples.`,
  "All forms are compared with each other first, and every sample's sum is checked.",
  "Flattened and plain fields are read from kept views, in three loops, after six other schemas were read: a program has several, and all share the code of their getters.",
  "A typed read checks that the view is valid and, for types with invalid values, the value; the raw one checks nothing. 256 records in turn.",
  "msgpackr with records (structures it knows), FlatBuffers with what its compiler would generate, JSON from a string. Formats that must decode have no view to keep.",
  "Rows: memory storage, a fresh table and one commit for each hundred inserts. Raw inserts store bytes that were encoded before; the others start from an object.",
  "The native figures of VeryLightSQL were recorded on the machine that the goals come from, one sample each.",
];
