import { execFileSync, spawnSync } from "node:child_process";
import fs, { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { type Database, file, open } from "varve";
import { summarize } from "../../demo/statistics.js";
import { Chromium } from "../browser/chromium.js";
import { cargoBuild } from "../cargo.js";
import type { BenchOptions } from "../options.js";
import { goal, type Row, row, type Section } from "../report.js";
import { check, type Found, flat, nested, noise, type Plan, planOf, write } from "./shape.js";
import type { BrowserWalks } from "./worker.js";

/** What a program of another language prints. */
interface Printed extends Found {
  ms: number;
  crc: number;
}

/** Goals: at most this part of the time that `sum` takes, and at most this much more with notes. */
const AGAINST_SUM = 0.5;
const NATIVE_AGAINST_SUM = 0.25;
const WITH_NOTES = 1.05;

/** The version of ZODB that is installed from PyPI. */
const ZODB = "ZODB==6.4";

const MIB = 1 << 20;

/** A Python that has ZODB, in an environment of its own. */
function python(root: string): string {
  const environment = join(root, ".build/zodb");
  const program = join(environment, "bin/python");
  if (!existsSync(join(environment, "installed"))) {
    const made = (words: string[]) => execFileSync(words[0] as string, words.slice(1));
    made(["python3", "-m", "venv", environment]);
    made([program, "-m", "pip", "install", "--quiet", ZODB]);
    writeFileSync(join(environment, "installed"), ZODB);
  }
  return program;
}

/** Milliseconds of a program of the system that reads a file. */
function programMs(program: string, path: string): number {
  const started = performance.now();
  const { status } = spawnSync(program, [path], { stdio: "ignore" });
  if (status !== 0) throw new Error(`${program} failed`);
  return performance.now() - started;
}

function sums(path: string, rounds: number): number[] {
  return Array.from({ length: Math.ceil(rounds / 2) }, () => programMs("sum", path));
}

function readMs(path: string): number {
  const buffer = new Uint8Array(MIB);
  const started = performance.now();
  const fd = fs.openSync(path, "r");
  while (fs.readSync(fd, buffer) > 0);
  fs.closeSync(fd);
  return performance.now() - started;
}

/** The checksum of all keys and values in order. */
function contentOf(db: Database): number {
  let crc = 0;
  for (const tx of db.log()) {
    for (const { key, value } of tx) {
      const bytes = typeof key === "string" ? Buffer.from(key) : (key as Uint8Array);
      crc = crc32(value as Uint8Array, crc32(bytes, crc));
    }
  }
  return crc;
}

const SUM = "sum";
const NATIVE = "varve, native Rust";
const WASM = "varve, wasm in Node";
const BROWSER = "varve, wasm in Chromium";

export async function historyBench({ root, quick }: BenchOptions): Promise<Section> {
  const folder = mkdtempSync(join(tmpdir(), "varve-bench-history-"));
  const rounds = quick ? 3 : 11;
  try {
    const program = join(cargoBuild(root, "history"), "release/history-bench");
    const interpreter = python(root);
    const script = join(root, "benches/history/zodb.py");
    const plan = planOf(quick);
    const storage = file(folder);
    const writer = await open("history", { storage });
    write(writer, plan);
    await writer.close();
    writeFileSync(join(folder, "plan.json"), JSON.stringify(plan));
    writeFileSync(join(folder, "noise.bin"), noise());
    execFileSync(interpreter, [script, "write", folder], { stdio: "inherit" });
    const path = join(folder, "history.varve");
    const theirs = join(folder, "zodb.fs");
    const db = await open("history", { storage, readOnly: true });
    const run = (words: readonly string[]): Printed =>
      JSON.parse(execFileSync(words[0] as string, words.slice(1), { encoding: "utf8" }));
    const rust = (how: string) => run([program, path, how]);
    const zodb = (how: string) => run([interpreter, script, how, folder]);
    compare(plan, contentOf(db), rust("content"), zodb("content"));
    const walks: Record<string, () => number> = {
      [`${SUM}: the file`]: () => programMs("sum", path),
      "cksum: the file": () => programMs("cksum", path),
      "bare reads in Node: the file": () => readMs(path),
      "ZODB: its own file": () => checked(plan, "ZODB", zodb("walk")),
      [`${NATIVE}: nested`]: () => checked(plan, NATIVE, rust("nested")),
      [`${NATIVE}: flat`]: () => checked(plan, NATIVE, rust("flat")),
      [`${WASM}: nested`]: () => timed(plan, WASM, () => nested(db)),
      [`${WASM}: flat`]: () => timed(plan, WASM, () => flat(db)),
    };
    const times: Record<string, number[]> = {};
    for (let i = -1; i < rounds; i += 1) {
      for (const [name, walk] of Object.entries(walks)) {
        const ms = walk();
        // The first round compiles, and reads the file into the system's cache.
        if (i >= 0) times[name] = [...(times[name] ?? []), ms];
      }
    }
    await db.close();
    const around = sums(path, rounds);
    const inBrowser = await browserWalks(root, quick, rounds);
    around.push(...sums(path, rounds));
    times[`${BROWSER}: nested`] = inBrowser.nested;
    times[`${BROWSER}: flat`] = inBrowser.flat;
    const sizes = [path, theirs].map((one) => (statSync(one).size / 1e6).toFixed(1));
    return section({ times, around, costs: await noteCosts(folder, quick), plan, sizes });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function compare(plan: Plan, ours: number, rust: Printed, zodb: Printed): void {
  check("native Rust", plan, rust);
  check("ZODB", plan, zodb);
  if (ours !== rust.crc || ours !== zodb.crc || rust.firsts !== zodb.firsts) {
    throw new Error("the files, or what the walks found in them, have different contents");
  }
}

function checked(plan: Plan, name: string, printed: Printed): number {
  check(name, plan, printed);
  return printed.ms;
}

function timed(plan: Plan, name: string, walk: () => Found): number {
  const started = performance.now();
  const found = walk();
  const ms = performance.now() - started;
  check(name, plan, found);
  return ms;
}

async function browserWalks(root: string, quick: boolean, rounds: number): Promise<BrowserWalks> {
  const browser = await Chromium.start(root, "benches/history/worker.ts");
  try {
    return await browser.run<BrowserWalks>("worker", { quick, rounds });
  } finally {
    await browser.close();
  }
}

/** A kind of commit: its name, and the lengths of the values that it writes. */
const COMMITS: readonly (readonly [name: string, lengths: readonly number[], commits: number])[] = [
  ["of ZODB's shape, 43 records of 820 bytes", Array.from({ length: 43 }, () => 820), 500],
  ["of one record of 64 bytes", [64], 20_000],
];

/** Microseconds of the processor for each commit, without and with a note, in pairs. */
async function noteCosts(folder: string, quick: boolean) {
  const bytes = noise();
  const note = "a reason of thirty characters.";
  const costs: { name: string; without: number[]; noted: number[] }[] = [];
  for (const [name, lengths, count] of COMMITS) {
    const commits = quick ? count / 10 : count;
    const of = async (options: { note: string } | undefined) => {
      const storage = file(mkdtempSync(join(folder, "notes-")));
      const db = await open("notes", { storage });
      const before = process.cpuUsage();
      for (let i = 0; i < commits; i += 1) {
        const write = () => {
          lengths.forEach((length, j) => {
            db.set(`${i}/${j}`, bytes.subarray(0, length));
          });
        };
        db.transaction(write, options);
        db.commit();
      }
      const { user, system } = process.cpuUsage(before);
      const each = (user + system) / commits;
      await db.close();
      return each;
    };
    const cost = { name, without: [] as number[], noted: [] as number[] };
    for (let i = -1; i < (quick ? 2 : 25); i += 1) {
      // In turn, so that neither always comes first.
      const pair: number[] = [];
      for (const isNoted of i % 2 === 0 ? [false, true] : [true, false]) {
        pair[isNoted ? 1 : 0] = await of(isNoted ? { note } : undefined);
      }
      if (i < 0) continue;
      cost.without.push(pair[0] as number);
      cost.noted.push(pair[1] as number);
    }
    costs.push(cost);
  }
  return costs;
}

interface Measured {
  times: Readonly<Record<string, readonly number[]>>;
  /** The times of `sum` just before and just after the walks in the browser. */
  around: readonly number[];
  costs: Awaited<ReturnType<typeof noteCosts>>;
  plan: Plan;
  sizes: readonly string[];
}

function section({ times, around, costs, plan, sizes: [ours, theirs] }: Measured): Section {
  const records = plan.transactions.flat().length.toLocaleString("en");
  const count = plan.transactions.length.toLocaleString("en");
  const group = `a walk over ${count} transactions with ${records} records`;
  const rows: Row[] = Object.entries(times).map(([name, ms]) => {
    const [store, work] = name.split(": ") as [string, string];
    return { group, ...row(work, store, "", "ms", ms) };
  });
  for (const { name, without, noted } of costs) {
    const group = "a commit";
    rows.push({ group, ...row(name, "without a note", "", "µs", without) });
    rows.push({ group, ...row(name, "with a note", "", "µs", noted) });
  }
  const sum = times[`${SUM}: the file`]!;
  // Of each round, since the machine may be busier in one than in another.
  const against = (name: string) =>
    name.startsWith(BROWSER)
      ? summarize(times[name]!).median / summarize(around).median
      : summarize(times[name]!.map((ms, i) => ms / (sum[i] as number))).median;
  const goals = [WASM, BROWSER, NATIVE].flatMap((store) =>
    ["nested", "flat"].map((work) => {
      const atMost = store === NATIVE ? NATIVE_AGAINST_SUM : AGAINST_SUM;
      const ratio = against(`${store}: ${work}`);
      return goal(`${store}, ${work}, against sum`, ratio, { atMost }, "times");
    }),
  );
  for (const { name, without, noted } of costs) {
    const ratio = summarize(noted.map((each, i) => each / (without[i] as number))).median;
    const what = `a commit ${name}, with a note`;
    goals.push(goal(what, ratio, { atMost: WITH_NOTES }, "times that without"));
  }
  return {
    title: "The log as history",
    layout: "lines",
    rows,
    goals,
    notes: [
      `The same transactions in a file of varve (${ours} MB) and in one that ZODB itself has written (${theirs} MB). Of each value the length and the first byte are read; before, a checksum of all keys and values was compared.`,
      "The walks of varve verify the checksum of every frame; ZODB's verifies none. sum and cksum are of coreutils, their start included. The file is in the system's cache.",
      "Each round does everything once; ratios are medians of those of the rounds. Walks in Chromium follow the others, on a file of the same content in OPFS; their ratio is to sum just before and just after.",
      "Commits: to the file, not flushed each; the time of the processor, with that of the system's writes. The ratio is that of the pairs, which take turns in coming first.",
    ],
  };
}
