/** What a process or a worker is told to measure. A part has one to itself, and so its own code. */

import { measureFlat } from "./flat.js";
import { measureMany } from "./many.js";
import type { Measured } from "./measure.js";
import { measureRows } from "./rows.js";
import { measureViews, type Rivals } from "./views.js";

export interface Request {
  part: "views" | "many" | "rows" | "flat";
  quick: boolean;
  /** Which of the processes that measure this part it is, where that takes several. */
  turn: number;
}

/**
 * In how many processes a part is measured, each with its own luck in how code is compiled: in one of
 * twenty workers of Chromium a typed `updateIf` took 1.8 times a raw one, and 1.1 in all others.
 */
export const TURNS = { views: 3, many: 5, rows: 5, flat: 6 } as const;

export function work({ part, quick, turn }: Request, rivals: Rivals): Promise<Measured[]> {
  // Many short ones: those that the scheduler cuts are few then, and the median is of the others.
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
