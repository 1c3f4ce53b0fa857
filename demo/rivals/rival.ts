import type { Product } from "../drop.js";

/** How a run's purchases are grouped into commits. */
export type Grouping = "all" | "each";

/**
 * One store, told to do the same drop as the others. Every rival is written in the fastest form that its
 * own documentation offers; where there was a choice, the faster one was measured and kept.
 */
export interface Rival {
  readonly id: string;
  readonly name: string;
  /** What is true of a purchase once the store has acknowledged it. */
  readonly durability: string;
  /** Fills the shelf, committed. Not measured. */
  restock(cycles: number): Promise<void>;
  /** Serves the buyers: read stock and name, take one if there is one. Measured. */
  serve(cycles: number, grouping: Grouping): Promise<void>;
  /** Closes, opens again, and reads what is there. */
  reopenAndRead(): Promise<Product>;
  /** Closes and removes what was stored. */
  dispose(): Promise<void>;
}

/** The error of a purchase that could not be made; a drop in which one fails is no drop. */
export function refused(store: string, cycle: number): Error {
  return new Error(`${store} refused buyer ${cycle + 1}`);
}
