import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { file, open } from "varve";
import { PRODUCT_NAME, productDrop, readProduct } from "../../demo/drop.js";
import { summarize } from "../../demo/statistics.js";
import { cargoBuild } from "../cargo.js";
import type { BenchOptions } from "../main.js";
import { goal, row, type Section } from "../report.js";

const CYCLES = 20_000;
const TURNS = 100;
const WRITTEN = "written: survives the process";

interface Contents {
  stock: number;
  name: string;
}

/** All stores that are compared must have sold all but one pair of the same shoe. */
function check({ stock, name }: Contents, store: string): void {
  if (stock !== 1 || name !== PRODUCT_NAME) {
    throw new Error(`${store} ended with ${stock} of "${name}"`);
  }
}

/**
 * Drops in one fresh database, each a turn of its own; the times of each. Then it is opened again.
 */
async function varveDrops(
  folder: string,
  { turns, commitEach }: { turns: number; commitEach: boolean },
): Promise<number[]> {
  const directory = mkdtempSync(join(folder, "varve-"));
  const db = await open("drop", { storage: file(directory) });
  const times: number[] = [];
  for (let turn = 0; turn < turns; turn++) {
    times.push(productDrop(db, { cycles: CYCLES, commitEach }).ms);
    // The end of the turn, with whatever the database does then.
    await new Promise((resolve) => setImmediate(resolve));
  }
  await db.close();
  const again = await open("drop", { storage: file(directory) });
  check(readProduct(again), "varve");
  await again.close();
  rmSync(directory, { recursive: true });
  return times;
}

/** One sample of GrausDB after a warm-up, in a process of its own. It checks its own contents as well. */
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
    long: [] as number[],
    longEach: [] as number[],
  };
  try {
    for (let warm = 0; warm < 3; warm++) {
      await varveDrops(folder, { turns: 2, commitEach: false });
      await varveDrops(folder, { turns: 2, commitEach: true });
    }
    // Round by round, so that a machine that slows down slows all of them down.
    for (let round = 0; round < rounds; round++) {
      times.turn.push(...(await varveDrops(folder, { turns: 1, commitEach: false })));
      times.graus.push(grausDrop(program, folder));
      times.each.push(...(await varveDrops(folder, { turns: 1, commitEach: true })));
      times.predicate.push(grausDrop(program, folder, "--predicate"));
    }
    times.long.push(...(await varveDrops(folder, { turns: TURNS, commitEach: false })));
    times.longEach.push(...(await varveDrops(folder, { turns: TURNS, commitEach: true })));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }

  const median = (samples: number[]) => summarize(samples).median;
  const graus = median(times.graus);
  // All of the long run against the middle of the short ones: one slow turn in a hundred counts too.
  const perTurn = (samples: number[]) => samples.reduce((sum, ms) => sum + ms, 0) / samples.length;
  const drop = "drop of 20,000";
  const long = "drops of 20,000, a hundred in one file";
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
      "Every sample runs on an empty folder, is closed, opened again, and must hold one pair.",
      "GrausDB is measured in its fastest form: stock is checked inside the callback, which spares it the read of its own predicate. It has no form that groups writes.",
      "None of the stores flushes within a drop.",
    ],
  };
}
