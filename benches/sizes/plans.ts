import type { BenchOptions } from "../options.js";
import type { Plan } from "./workload.js";

const MIB = 1_048_576;
const FULL = [1_000, 100_000, 1_000_000, 5_000_000];
const QUICK = [1_000, 100_000];

export function sizesOf({ quick, sizes }: BenchOptions): readonly number[] {
  return sizes ?? (quick ? QUICK : FULL);
}

/** The amounts of work at a size, and the memory that a store may use: enough for all live values. */
export function planFor(size: number, { quick }: BenchOptions): { plan: Plan; memory: number } {
  const many = size >= 1_000_000;
  const ops = quick ? 10_000 : many ? 20_000 : 50_000;
  return {
    plan: {
      size,
      ops,
      writes: ops,
      fresh: Math.min(size, ops),
      batch: 1_000,
      singles: quick ? 500 : 2_000,
      warmup: quick || many ? 2 : 3,
      samples: quick ? 3 : many ? 5 : 7,
      compareOften: size <= 1_000_000,
    },
    memory: (size <= 100_000 ? 64 : size <= 1_000_000 ? 1_024 : 2_048) * MIB,
  };
}

/**
 * As much as GrausDB can do: at 1 MiB of garbage it copies, for every key, the rest of its log from that key
 * on, which at a thousand keys filled a disk of 70 GB. All writes together stay below that.
 */
export function planForGraus(plan: Plan): Plan {
  return { ...plan, writes: 500, fresh: 250, singles: 0, warmup: 0, samples: 2 };
}

/** For stores whose operations take up to tenths of a millisecond instead of nanoseconds. */
export function planForSlow(plan: Plan, writes: number): Plan {
  return {
    ...plan,
    ops: Math.min(plan.ops, 5 * writes),
    writes,
    fresh: Math.min(plan.size, writes),
    singles: Math.min(plan.singles, writes / 10),
    warmup: 1,
    samples: 3,
  };
}
