/** Takes samples of several ways to do one thing, in turn, so that their ratios are of one moment. */

/** One way of doing one work. */
export interface Way {
  work: string;
  store: string;
  /** What it is, in a word or two. */
  about: string;
  /** Operations of one sample. */
  count: number;
  /** Does them all and gives a sum, which keeps the compiler from leaving anything out. */
  run(): number;
  /** Milliseconds within the last run that are not part of the work. */
  aside?: () => number;
  /** What the sum has to be. */
  sum?: number;
}

/** What was measured of it: nanoseconds of one operation, for each sample. */
export interface Measured {
  work: string;
  store: string;
  about: string;
  ns: number[];
}

export interface Tables {
  [group: string]: Measured[];
}

const WARM_UP = 20;

/** One sample of each way in each round, those of a later round in the opposite order. */
export async function measure(ways: readonly Way[], samples: number): Promise<Measured[]> {
  const ns = ways.map(() => [] as number[]);
  const order = ways.map((way, index) => ({ way, index }));
  for (let round = 0; round < WARM_UP + samples; round++) {
    for (const { way, index } of order) {
      const start = performance.now();
      const sum = way.run();
      const elapsed = performance.now() - start - (way.aside?.() ?? 0);
      if (way.sum !== undefined && sum !== way.sum) {
        throw new Error(`${way.store}, ${way.work}: the sum is ${sum} and not ${way.sum}`);
      }
      if (round >= WARM_UP) ns[index]!.push((elapsed * 1e6) / way.count);
    }
    order.reverse();
    // Work of one sample that a store does between turns is not to fall into another's.
    await new Promise((resolve) => setTimeout(resolve));
  }
  return ways.map(({ work, store, about }, index) => ({ work, store, about, ns: ns[index]! }));
}
