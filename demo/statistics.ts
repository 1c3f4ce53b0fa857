/** A set of samples: its median, extremes and quartiles. */
export interface Summary {
  samples: number[];
  median: number;
  min: number;
  max: number;
  lowerQuartile: number;
  upperQuartile: number;
}

/** Between two samples, the value in proportion. The samples are in order, and there is at least one. */
export function quantile(sorted: readonly number[], q: number): number {
  const position = (sorted.length - 1) * q;
  const below = sorted[Math.floor(position)]!;
  const above = sorted[Math.ceil(position)]!;
  return below + (above - below) * (position - Math.floor(position));
}

/** Needs at least one sample; the samples keep the order in which they were taken. */
export function summarize(samples: readonly number[]): Summary {
  if (samples.length === 0) throw new RangeError("no samples to summarize");
  const sorted = [...samples].sort((a, b) => a - b);
  return {
    samples: [...samples],
    median: quantile(sorted, 0.5),
    min: sorted[0]!,
    max: sorted[sorted.length - 1]!,
    lowerQuartile: quantile(sorted, 0.25),
    upperQuartile: quantile(sorted, 0.75),
  };
}
