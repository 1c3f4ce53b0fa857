import { PRODUCT_NAME, type Product } from "../../demo/drop.js";
import { type Summary, summarize } from "../../demo/statistics.js";
import type { Grouping, Rival } from "./rivals/rival.js";

export interface SuiteOptions {
  /** Buyers per drop. */
  cycles: number;
  /** Measured drops per store and grouping, after the warm-up. */
  runs: number;
}

export interface Row {
  id: string;
  name: string;
  grouping: Grouping;
  durability: string;
  /** Milliseconds per drop. */
  ms: Summary;
  /** The product as read after closing and opening again. */
  contents: Product;
}

export interface FailedRow {
  id: string;
  name: string;
  grouping: Grouping;
  error: string;
}

export interface Listener {
  progress(done: number, total: number, doing: string): void;
  row(row: Row): void;
  failed(row: FailedRow): void;
}

export interface Contender {
  id: string;
  name: string;
  open(): Promise<Rival>;
}

export interface Verdict {
  /** Whether every store ran, and all hold the same product with one pair left. */
  equal: boolean;
  contents: Product | undefined;
}

/** Code is compiled in stages while it runs; the warm-up repeats short drops for this long. */
const WARMUP_MS = 250;
/** The most warm-up drops. With twenty, the fastest store was measured half compiled. */
const WARMUP_DROPS = 1_000;

const GROUPING_NAMES: Record<Grouping, string> = {
  all: "one commit for all",
  each: "a commit for each",
};

/** A page's clock has steps of a tenth of a millisecond: shorter drops are repeated until they take this long. */
const SAMPLE_MS = 2;

async function timed(rival: Rival, cycles: number, grouping: Grouping): Promise<number> {
  await rival.restock(cycles);
  const start = performance.now();
  await rival.serve(cycles, grouping);
  return performance.now() - start;
}

/** Milliseconds of one drop: the mean of as many as the clock's resolution needs. */
async function sample(rival: Rival, cycles: number, grouping: Grouping): Promise<number> {
  let ms = 0;
  let drops = 0;
  while (ms < SAMPLE_MS) {
    ms += await timed(rival, cycles, grouping);
    drops++;
  }
  return ms / drops;
}

async function warmUp(rival: Rival, cycles: number, grouping: Grouping): Promise<void> {
  const short = Math.max(1, Math.round(cycles / 10));
  const start = performance.now();
  for (let drop = 0; drop < WARMUP_DROPS; drop++) {
    await timed(rival, short, grouping);
    if (drop > 0 && performance.now() - start > WARMUP_MS) return;
  }
}

function messageOf(error: unknown): string {
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : undefined;
  return cause === undefined ? message : `${message} (${messageOf(cause)})`;
}

/**
 * Runs the drop on every store in turn, round by round, so that a slowdown of the machine affects all of
 * them. A store that fails is reported to the listener and skipped from then on.
 */
export async function runSuite(
  contenders: readonly Contender[],
  groupings: readonly Grouping[],
  { cycles, runs }: SuiteOptions,
  listener: Listener,
): Promise<Verdict> {
  const total = groupings.length * contenders.length * (runs + 1);
  let done = 0;
  const ended: Product[] = [];
  const step = (doing: string) => listener.progress(done++, total, doing);

  for (const grouping of groupings) {
    const running = new Map<Contender, { rival: Rival; samples: number[] }>();
    const attempt = async (contender: Contender, work: () => Promise<void>) => {
      try {
        await work();
      } catch (error) {
        running.delete(contender);
        const { id, name } = contender;
        listener.failed({ id, name, grouping, error: messageOf(error) });
      }
    };

    for (const contender of contenders) {
      step(`${contender.name}, ${GROUPING_NAMES[grouping]}: warming up`);
      await attempt(contender, async () => {
        const rival = await contender.open();
        running.set(contender, { rival, samples: [] });
        await warmUp(rival, cycles, grouping);
      });
    }
    for (let run = 1; run <= runs; run++) {
      for (const contender of contenders) {
        step(`${contender.name}, ${GROUPING_NAMES[grouping]}: run ${run} of ${runs}`);
        const entry = running.get(contender);
        if (entry === undefined) continue;
        await attempt(contender, async () => {
          entry.samples.push(await sample(entry.rival, cycles, grouping));
        });
      }
    }
    for (const [contender, { rival, samples }] of running) {
      await attempt(contender, async () => {
        const contents = await rival.reopenAndRead();
        const { id, name, durability } = rival;
        listener.row({ id, name, grouping, durability, ms: summarize(samples), contents });
        ended.push(contents);
        await rival.dispose();
      });
    }
  }
  listener.progress(total, total, "done");

  const equal =
    ended.length === groupings.length * contenders.length &&
    ended.every(({ stock, name }) => stock === 1 && name === PRODUCT_NAME);
  return { equal, contents: ended[0] };
}
