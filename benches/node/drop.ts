import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Database, file, open } from "varve";
import { PRODUCT_NAME, productDrop, readProduct } from "../../demo/drop.js";
import { summarize } from "../../demo/statistics.js";
import { cargoBuild } from "../cargo.js";
import type { BenchOptions } from "../options.js";
import { goal, row, type Section } from "../report.js";

const CYCLES = 20_000;
const TURNS = 100;
const WRITTEN = "written: survives the process";

interface Contents {
  stock: number;
  name: string;
}

/** Checks that all but one pair of the right shoe are sold. */
function check({ stock, name }: Contents, store: string): void {
  if (stock !== 1 || name !== PRODUCT_NAME) {
    throw new Error(`${store} ended with ${stock} of "${name}"`);
  }
}

/** A database that stays open, as in a program that runs for a while. */
class OpenDatabase {
  private constructor(
    private readonly directory: string,
    private readonly db: Database,
  ) {}

  static async open(folder: string): Promise<OpenDatabase> {
    const directory = mkdtempSync(join(folder, "varve-"));
    return new OpenDatabase(directory, await open("drop", { storage: file(directory) }));
  }

  /** Runs one drop in a separate turn, including the commit at its end. */
  async drop(commitEach: boolean): Promise<number> {
    const result = productDrop(this.db, { cycles: CYCLES, commitEach });
    check(result, "varve");
    await new Promise((resolve) => setImmediate(resolve));
    return result.ms;
  }

  async closeAndCheck(): Promise<void> {
    await this.db.close();
    const again = await open("drop", { storage: file(this.directory) });
    check(readProduct(again), "varve, opened again,");
    await again.close();
  }
}

/** The first drop of a new process, compilation included. */
function firstDrop(root: string, folder: string): number {
  const script = join(root, ".build/bench/first.mjs");
  const args = [script, mkdtempSync(join(folder, "first-"))];
  const result: Contents & { ms: number } = JSON.parse(
    execFileSync(process.execPath, args, { encoding: "utf8" }),
  );
  check(result, "varve");
  return result.ms;
}

/**
 * One sample of GrausDB in a separate process, after a warm-up by default. The process checks its own
 * contents too.
 */
function grausDrop(program: string, folder: string, ...more: string[]): number {
  const args = ["--directory", join(folder, "graus"), "--cycles", String(CYCLES), ...more];
  const output: Contents & { ms: number[] } = JSON.parse(
    execFileSync(program, args, { encoding: "utf8" }),
  );
  check(output, "GrausDB");
  return output.ms[0]!;
}

export async function nodeBench({ root, quick }: BenchOptions): Promise<Section> {
  const rounds = quick ? 3 : 15;
  const program = join(cargoBuild(root, "graus"), "release", "graus-drop");
  const folder = mkdtempSync(join(tmpdir(), "varve-bench-"));
  const times = {
    turn: [] as number[],
    each: [] as number[],
    graus: [] as number[],
    predicate: [] as number[],
    first: [] as number[],
    grausFirst: [] as number[],
    long: [] as number[],
    longEach: [] as number[],
  };
  try {
    const db = await OpenDatabase.open(folder);
    for (let warm = 0; warm < 20; warm++) await db.drop(warm % 4 === 0);
    // Round by round, so that a slowdown of the machine affects all of them.
    for (let round = 0; round < rounds; round++) {
      times.turn.push(await db.drop(false));
      times.graus.push(grausDrop(program, folder));
      times.each.push(await db.drop(true));
      times.predicate.push(grausDrop(program, folder, "--predicate"));
      times.first.push(firstDrop(root, folder));
      times.grausFirst.push(grausDrop(program, folder, "--warmup", "0"));
    }
    for (let turn = 0; turn < TURNS; turn++) times.long.push(await db.drop(false));
    for (let turn = 0; turn < TURNS; turn++) times.longEach.push(await db.drop(true));
    await db.closeAndCheck();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }

  const median = (samples: number[]) => summarize(samples).median;
  const graus = median(times.graus);
  // The mean of the long run against the median of the short ones, so that one slow turn in a hundred counts
  // too.
  const perTurn = (samples: number[]) => samples.reduce((sum, ms) => sum + ms, 0) / samples.length;
  const drop = "drop of 20,000";
  const long = "drops of 20,000, a hundred more in that file";
  return {
    title: "The product drop in files (Node, GrausDB native)",
    rows: [
      row(`${drop}, one write per turn`, "varve", WRITTEN, "ms", times.turn),
      row(`${drop}, a write per update`, "varve", WRITTEN, "ms", times.each),
      row(`${drop}, a write per update`, "GrausDB", WRITTEN, "ms", times.graus),
      row(
        `${drop}, a write per update`,
        "GrausDB with its own predicate",
        WRITTEN,
        "ms",
        times.predicate,
      ),
      row(`first ${drop}, one write per turn`, "varve, new process", WRITTEN, "ms", times.first),
      row(
        `first ${drop}, a write per update`,
        "GrausDB, new process",
        WRITTEN,
        "ms",
        times.grausFirst,
      ),
      row(`${long}, one write per turn`, "varve", WRITTEN, "ms", times.long),
      row(`${long}, a write per update`, "varve", WRITTEN, "ms", times.longEach),
    ],
    goals: [
      goal("drop, one write per turn", median(times.turn), { atMost: 4 }, "ms"),
      goal("the same against GrausDB", graus / median(times.turn), { atLeast: 7 }, "times faster"),
      goal("the same, aimed at", graus / median(times.turn), { atLeast: 10 }, "times faster"),
      goal(
        "drop, a write per update, against GrausDB",
        graus / median(times.each),
        { atLeast: 1 },
        "times as fast",
      ),
      goal(
        "2,000,000 cycles, one write per turn, time per cycle against 20,000",
        perTurn(times.long) / median(times.turn),
        { atMost: 1.1 },
        "times",
      ),
      goal(
        "2,000,000 cycles, a write per update, time per cycle against 20,000",
        perTurn(times.longEach) / median(times.each),
        { atMost: 1.1 },
        "times",
      ),
    ],
    notes: [
      "varve keeps one database open, as a program does; its code is fully compiled after the first drops. GrausDB gets an empty folder for each sample, since it compacts at 1 MiB of garbage. The first drop of a new process has its own row.",
      "After every drop one pair of the right name is left, and again when the file was closed and opened.",
      "GrausDB is measured in its fastest form: stock is checked inside the callback, which saves the read for its own predicate. It cannot group writes.",
      "None of the stores flushes within a drop.",
    ],
  };
}
