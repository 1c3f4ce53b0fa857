import type { Product } from "../../../demo/drop.js";

/** How a run's purchases are grouped into commits. */
export type Grouping = "all" | "each";

/**
 * One store in the drop. Every rival uses the fastest form that its own documentation offers; where there was
 * a choice, the faster one was measured and kept.
 */
export interface Rival {
  readonly id: string;
  readonly name: string;
  /** What an acknowledged purchase survives. */
  readonly durability: string;
  /** Sets the stock and commits. Not measured. */
  restock(cycles: number): Promise<void>;
  /** Serves the buyers: each reads stock and name, and takes one if the stock is not empty. Measured. */
  serve(cycles: number, grouping: Grouping): Promise<void>;
  /** Closes, opens again, and reads what is there. */
  reopenAndRead(): Promise<Product>;
  /** Closes and removes what was stored. */
  dispose(): Promise<void>;
}

/** The error for a purchase that failed; it ends the drop. */
export function refused(store: string, cycle: number): Error {
  return new Error(`${store} refused buyer ${cycle + 1}`);
}
