import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { summarize } from "../../demo/statistics.js";
import { Chromium } from "../browser/chromium.js";
import { cargoBuildWasm } from "../cargo.js";
import type { BenchOptions } from "../options.js";
import { figure, type Goal, goal, type Row, row, type Section } from "../report.js";
import type { Request as NodeRequest } from "./child.js";
import type { Step, StepResult } from "./steps.js";
import type { TailBound, TailCost } from "./tail.js";
import type { Request as WorkerRequest } from "./worker.js";

const MIB = 1_048_576;
const MEMORY = 64 * MIB;
const TAILS =
  "What a tail adds to an opening is the time of opening a file as a crash left it, minus that of the same file as it was closed before, opened right before or after it: the median of such differences, in a process that is warm, against the median time of the reads that only the first opening makes. From the medium: after both files were evicted from the system's cache.";

/** A store and its space factor. */
interface Contender<Id extends string> {
  store: Id;
  spaceFactor: number;
}

type Run<Id extends string> = (contender: Contender<Id>, step: Step) => Promise<StepResult>;

interface Amounts {
  /** Whether to measure what a tail adds to an opening. */
  measuresTails: boolean;
  sizes: readonly number[];
  opens: number;
  crashes: number;
  tail: number;
  /** Keys that are overwritten, and the number of overwrites. */
  keys: number;
  overwrites: number;
}

function amountsFor({ quick, sizes }: BenchOptions): Amounts {
  return quick
    ? {
        measuresTails: true,
        sizes: sizes ?? [10_000, 100_000],
        opens: 4,
        crashes: 2,
        tail: 10_000,
        keys: 20_000,
        overwrites: 100_000,
      }
    : {
        measuresTails: true,
        sizes: sizes ?? [10_000, 100_000, 1_000_000, 5_000_000],
        opens: 10,
        crashes: 3,
        tail: 100_000,
        keys: 100_000,
        overwrites: 1_000_000,
      };
}

/** Collects the section's rows and goals. */
class Table {
  readonly rows: Row[] = [];
  readonly goals: Goal[] = [];
  readonly notes = new Set<string>();
  private readonly digests = new Map<string, Map<string, string>>();

  add(
    group: string,
    work: string,
    unit: Row["unit"],
    store: string,
    samples: readonly number[],
  ): void {
    if (samples.length === 0) return;
    this.rows.push({
      group,
      ...row(`${group}: ${work}`, store, "survives the process", unit, samples),
    });
  }

  /** Checks that the same work led to the same contents in every store. */
  compare(work: string, store: string, { digest }: StepResult): void {
    if (digest === undefined) return;
    const digests = this.digests.get(work) ?? new Map<string, string>();
    this.digests.set(work, digests.set(store, digest));
    if (new Set(digests.values()).size === 1) return;
    throw new Error(`${work}: contents differ: ${JSON.stringify([...digests])}`);
  }

  get compared(): number {
    return [...this.digests.values()].reduce((sum, digests) => sum + digests.size, 0);
  }
}

const median = (samples: readonly number[]) => summarize(samples).median;

/** The given percentile of the samples. */
function percentile(samples: readonly number[], percent: number): number {
  const sorted = [...samples].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor((sorted.length * percent) / 100))] ?? 0;
}

async function openings<Id extends string>(
  table: Table,
  contenders: readonly Contender<Id>[],
  run: Run<Id>,
  fresh: () => Promise<void>,
  amounts: Amounts,
): Promise<void> {
  for (const size of amounts.sizes) {
    const group = `${size.toLocaleString("en")} keys`;
    const tail = Math.min(amounts.tail, size);
    for (const contender of contenders) {
      await fresh();
      const step = (step: Step["step"], count: number, seed: number) =>
        run(contender, { step, size, count, seed });
      const { name, samples: loaded } = await step("load", 0, 1);
      const { groups = [], closes = [] } = loaded;
      const keyTimes = groups.map((ms) => ms * 1e3);
      table.add(group, "load in random order, in groups of 1,000, each key", "ns", name, keyTimes);
      table.add(group, "close after the load", "ms", name, closes);
      const { samples } = await step("reopen", amounts.opens, 1);
      table.add(group, "open after a close, with the first get", "ms", name, samples.opens ?? []);
      table.add(group, "first range of 10 after that", "ms", name, samples.ranges ?? []);
      table.add(group, "close after one write", "ms", name, samples.closes ?? []);
      const crashed: number[] = [];
      for (let i = 0; i < amounts.crashes; i++) {
        await step("tail", tail, 2 + i);
        const after = await step("crashed", tail, 2 + i);
        crashed.push(...(after.samples.crashed ?? []));
        table.compare(`${group}, crash ${i + 1}`, name, after);
      }
      const overwritten = `${tail.toLocaleString("en")} overwrites`;
      table.add(
        group,
        `open after a crash behind ${overwritten}, with the first get`,
        "ms",
        name,
        crashed,
      );
      if (contender.store !== "varve") continue;
      if (size === 1_000_000) {
        table.goals.push(
          goal(`open after a close, ${group}`, median(samples.opens ?? []), { atMost: 50 }, "ms"),
        );
      }
      // What a short tail adds is smaller than the noise between two openings: medians of 120 pairs were
      // negative.
      if (!amounts.measuresTails || tail < 10_000) continue;
      const rounds = (size > 10_000 ? 3 : 30) * amounts.opens;
      const opens = { size, count: rounds, seed: 1, tail };
      const { samples: added } = await run(contender, { step: "added", ...opens });
      const { samples: least } = await run(contender, { step: "least", ...opens });
      addTail(table, group, overwritten, added as unknown as TailCost);
      addLeast(table, group, least as unknown as TailBound);
    }
  }
}

/**
 * What a tail adds to an opening, compared with reading it. It is the median difference of many pairs,
 * because it is smaller than the noise of the machine, and the minima of both openings may be from different
 * times.
 */
function addTail(table: Table, group: string, tail: string, added: TailCost): void {
  for (const [from, closed, crashed, reads] of [
    ["the system's cache", added.closed, added.crashed, added.read],
    ["the medium", added.closedCold, added.crashedCold, added.readCold],
  ] as const) {
    table.add(group, `opened again and again, from ${from}`, "ms", "varve", closed);
    table.add(group, `likewise behind a crash and ${tail}, from ${from}`, "ms", "varve", crashed);
    table.add(group, `bare reads of what these add, from ${from}`, "ms", "bare file", reads);
    if (reads.length === 0) continue;
    const adds = median(crashed.map((ms, i) => ms - closed[i]!));
    table.goals.push(
      goal(
        `what ${tail} add to opening ${group}, against reading them from ${from}`,
        adds / median(reads),
        { atMost: 2 },
        "times as long",
      ),
    );
  }
}

/**
 * The lower bound of an opening that verifies the tail and updates an index: it shows whether twice the reads
 * can be reached.
 */
function addLeast(table: Table, group: string, { read, verified, lookedUp }: TailBound): void {
  const cached = "from the system's cache into wasm memory";
  const reads = `bare reads of what these add, ${cached}`;
  for (const [work, samples] of [
    [reads, read],
    [`${reads}, with their checksum`, verified],
    [`${reads}, with their checksum and a look for each key in a table like the index`, lookedUp],
  ] as const) {
    table.add(group, work, "ms", "bare file", samples);
  }
  if (read.length === 0) return;
  const times = (samples: readonly number[]) => figure(median(samples) / median(read));
  table.notes.add(
    `The tail of ${group}, ${cached}: reading it and its checksum take ${times(verified)} times as long as reading it, with one lookup for each key in a table like the index ${times(lookedUp)} times. An opening also finds frames, hashes keys, and changes the index.`,
  );
}

async function longRun<Id extends string>(
  table: Table,
  contenders: readonly Contender<Id>[],
  run: Run<Id>,
  fresh: () => Promise<void>,
  { keys: size, overwrites }: Amounts,
): Promise<void> {
  const group = `${overwrites.toLocaleString("en")} zipfian overwrites of ${size.toLocaleString("en")} keys`;
  for (const contender of contenders) {
    await fresh();
    const loaded = await run(contender, { step: "load", size, count: 0, seed: 1 });
    const done = await run(contender, { step: "overwrite", size, count: overwrites, seed: 9 });
    const { groups = [], busy = [], idle = [], diskSpace = [], written = [] } = done.samples;
    const { maintenanceSteps = [], excess = [] } = done.samples;
    const varied =
      contender.store === "varve" ? `varve, spaceFactor ${contender.spaceFactor}` : loaded.name;
    const payload = 116;
    for (const [when, some] of [
      ["", groups],
      [", while maintenance runs", busy],
      [", while it has nothing to do", idle],
    ] as const) {
      const times = some.map((ms) => ms * 1e3);
      table.add(group, `a write, in groups of 1,000${when}`, "ns", varied, times);
    }
    table.add(
      group,
      "files, beside the bytes of keys and values",
      "times",
      varied,
      diskSpace.map((bytes) => bytes / (size * payload)),
    );
    table.add(
      group,
      "written, beside the bytes of keys and values",
      "times",
      varied,
      written.map((bytes) => bytes / (overwrites * payload)),
    );
    table.compare(group, varied, done);
    if (maintenanceSteps.length === 0) continue;
    const shares = [50, 99, 100].map((percent) => percentile(maintenanceSteps, percent).toFixed(2));
    table.notes.add(
      `${varied}: ${maintenanceSteps.length.toLocaleString("en")} maintenance steps between turns, without the platform's flush: p50 ${shares[0]}, p99 ${shares[1]}, at most ${shares[2]} ms.`,
    );
    if (contender.spaceFactor !== 1.5) continue;
    table.goals.push(
      goal("maintenance steps, p99", percentile(maintenanceSteps, 99), { atMost: 1 }, "ms"),
    );
    table.goals.push(
      goal(
        "size of the file, against 1.5 times the live bytes, two checkpoints and four segments",
        Math.max(...excess),
        { atMost: 1 },
        "times",
      ),
    );
  }
}

async function section<Id extends string>(
  title: string,
  contenders: readonly Contender<Id>[],
  run: Run<Id>,
  fresh: () => Promise<void>,
  amounts: Amounts,
): Promise<Section> {
  const table = new Table();
  const noted: Run<Id> = async (contender, step) => {
    const result = await run(contender, step);
    if (step.step === "load") table.notes.add(`${result.name}: ${result.settings}.`);
    return result;
  };
  await openings(
    table,
    contenders.filter(({ spaceFactor }) => spaceFactor === 1.5),
    noted,
    fresh,
    amounts,
  );
  await longRun(table, contenders, noted, fresh, amounts);
  return {
    title,
    layout: "side by side",
    rows: table.rows,
    goals: table.goals,
    notes: [
      "Each step runs in a process of its own, which opens and closes a small database first; for a crash, the process is killed with the store open, after its last writes were written to the system. The first opening after it takes over the lock of the killed program and runs code that is not optimized yet.",
      ...(amounts.measuresTails ? [TAILS] : []),
      "Writes without maintenance are mostly the first ones, while the file still grows.",
      `Contents were compared ${table.compared} times, all pairs in order: all stores had equal contents.`,
      ...table.notes,
    ],
  };
}

const FACTORS = [1.5, 1.2, 3];

export async function nodeLong(options: BenchOptions): Promise<Section> {
  const { root } = options;
  const base = mkdtempSync(join(tmpdir(), "varve-long-"));
  let folder = base;
  let runs = 0;
  const wanted = (id: string) => options.stores?.includes(id) ?? true;
  const contenders: Contender<NodeRequest["store"]>[] = [
    ...FACTORS.map((spaceFactor) => ({ store: "varve" as const, spaceFactor })),
    ...(["lmdb", "level"] as const).filter(wanted).map((store) => ({ store, spaceFactor: 1.5 })),
  ];
  const wasm = cargoBuildWasm(root, "tail");
  const run: Run<NodeRequest["store"]> = async ({ store, spaceFactor }, step) => {
    const request: NodeRequest = { root, folder, store, memory: MEMORY, spaceFactor, step, wasm };
    process.stderr.write(`  [${store}, ${step.size} keys] ${step.step}\n`);
    const { status, signal, stdout, error } = spawnSync(
      process.execPath,
      [join(root, ".build/bench/long.mjs"), JSON.stringify(request)],
      { stdio: ["ignore", "pipe", "inherit"], encoding: "utf8", maxBuffer: 2 ** 28 },
    );
    if (error !== undefined) throw error;
    const died = step.step === "tail" ? signal === "SIGKILL" : status === 0;
    if (!died)
      throw new Error(`${store}, ${step.step}: it ended with ${signal ?? `code ${status}`}`);
    return JSON.parse(stdout) as StepResult;
  };
  const fresh = async () => {
    rmSync(folder, { recursive: true, force: true });
    folder = join(base, String(runs++));
    mkdirSync(folder, { recursive: true });
  };
  try {
    return await section("Years, in Node on files", contenders, run, fresh, amountsFor(options));
  } finally {
    rmSync(base, { recursive: true, force: true });
  }
}

export async function browserLong(options: BenchOptions): Promise<Section> {
  const browser = await Chromium.start(options.root, "benches/long/worker.ts");
  const contenders: Contender<WorkerRequest["store"]>[] = [
    { store: "varve", spaceFactor: 1.5 },
    { store: "sqlite", spaceFactor: 1.5 },
  ];
  const run: Run<WorkerRequest["store"]> = async ({ store, spaceFactor }, step) => {
    const request: WorkerRequest = { store, memory: MEMORY, spaceFactor, step };
    return browser.run<StepResult>("worker", request);
  };
  const fresh = async () => {
    await browser.run("worker", { clear: true });
  };
  try {
    const amounts = amountsFor(options);
    const fewer = {
      ...amounts,
      measuresTails: false,
      overwrites: amounts.overwrites / 2,
      sizes: amounts.sizes.filter((size) => size <= 1_000_000),
    };
    const made = await section("Years, in Chromium on OPFS", contenders, run, fresh, fewer);
    return { ...made, notes: [browser.version, ...made.notes] };
  } finally {
    await browser.close();
  }
}
