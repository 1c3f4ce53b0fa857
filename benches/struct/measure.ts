/** Takes samples of several forms of the same work in turn, so that their ratios are from the same time. */

/** One form of one kind of work. */
export interface Variant {
  work: string;
  store: string;
  /** A short description. */
  about: string;
  /** Operations of one sample. */
  count: number;
  /** Does them all and returns a sum, which keeps the compiler from removing any. */
  run(): number;
  /** Milliseconds within the last run that are not part of the work. */
  aside?: () => number;
  /** The expected sum. */
  sum?: number;
}

/** The samples: nanoseconds per operation. */
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

/** One sample of each form in each round, in the opposite order in later rounds. */
export async function measure(variants: readonly Variant[], samples: number): Promise<Measured[]> {
  const ns = variants.map(() => [] as number[]);
  const order = variants.map((variant, index) => ({ variant, index }));
  for (let round = 0; round < WARM_UP + samples; round++) {
    for (const { variant, index } of order) {
      const start = performance.now();
      const sum = variant.run();
      const elapsed = performance.now() - start - (variant.aside?.() ?? 0);
      if (variant.sum !== undefined && sum !== variant.sum) {
        throw new Error(
          `${variant.store}, ${variant.work}: the sum is ${sum} and not ${variant.sum}`,
        );
      }
      if (round >= WARM_UP) ns[index]!.push((elapsed * 1e6) / variant.count);
    }
    order.reverse();
    // A store's work between turns must not count in the next sample.
    await new Promise((resolve) => setTimeout(resolve));
  }
  return variants.map(({ work, store, about }, index) => ({ work, store, about, ns: ns[index]! }));
}
