/** The measurement that a process or a worker runs: one part each, so that parts share no compiled code. */

import { measureFlat } from "./flat.js";
import { measureMany } from "./many.js";
import type { Measured } from "./measure.js";
import { measureRows } from "./rows.js";
import { measureViews, type Rivals } from "./views.js";

export interface Request {
  part: "views" | "many" | "rows" | "flat";
  quick: boolean;
  /** The index of the process, for parts that are measured in several. */
  turn: number;
}

/**
 * The number of processes that measure a part, because compilation differs between them: in one of twenty
 * workers of Chromium a typed `updateIf` took 1.8 times a raw one, and 1.1 in all others.
 */
export const TURNS = { views: 3, many: 5, rows: 5, flat: 6 } as const;

export function work({ part, quick, turn }: Request, rivals: Rivals): Promise<Measured[]> {
  // Many short samples: the scheduler interrupts few of them, and the median ignores those.
  const samples = quick ? 5 : Math.ceil(151 / TURNS[part]);
  switch (part) {
    case "views":
      return measureViews(rivals, samples, 1);
    case "many":
      return measureMany(samples);
    case "rows":
      return measureRows(samples, 3);
    case "flat":
      return measureFlat(samples, turn);
  }
}
