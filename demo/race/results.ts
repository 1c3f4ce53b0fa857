import { quantile } from "../statistics.js";
import type { Length, StoreId, WorkloadId } from "./plan.js";

/** Nanoseconds an operation, over the slices of a store's turns. */
export interface Figures {
  p50: number;
  p95: number;
  p99: number;
  /** The middle half lies between them. */
  q1: number;
  q3: number;
  slices: number;
}

export type Outcome =
  | ({ kind: "measured" } & Figures)
  /** The contents were not what the workload must leave, so the times say nothing. */
  | { kind: "void"; reason: string }
  | { kind: "failed"; reason: string }
  /** The store has nothing of the kind. */
  | { kind: "absent"; reason: string };

export type Rows = Partial<Record<WorkloadId, Partial<Record<StoreId, Outcome>>>>;

export interface Machine {
  browser: string;
  system: string;
  cores: number;
  /** Gigabytes, as the browser says; 0 if it does not. */
  memory: number;
  /** The clock's step in milliseconds. */
  clock: number;
}

export interface Results {
  /** The day and time, ISO 8601. */
  at: string;
  length: Length;
  machine: Machine;
  /** What may have disturbed the race. */
  notes: string[];
  rows: Rows;
}

/** With four digits, as links and records hold them, so that they show the same as the page that measured. */
export function figuresOf(slices: readonly number[]): Figures {
  const sorted = [...slices].sort((a, b) => a - b);
  const at = (q: number) => Number(quantile(sorted, q).toPrecision(4));
  return {
    p50: at(0.5),
    p95: at(0.95),
    p99: at(0.99),
    q1: at(0.25),
    q3: at(0.75),
    slices: sorted.length,
  };
}

/** The width of the middle half, as a part of the median. */
export function spreadOf({ p50, q1, q3 }: Figures): number {
  return (q3 - q1) / p50;
}
