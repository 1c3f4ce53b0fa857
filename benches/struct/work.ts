/** What a process or a worker is told to measure. A part has one to itself, and so its own code. */

import { measureFlat } from "./flat.js";
import type { Measured } from "./measure.js";
import { measureRows } from "./rows.js";
import { measureViews, type Rivals } from "./views.js";

export interface Request {
  part: "views" | "rows" | "flat";
  quick: boolean;
}

export function work({ part, quick }: Request, rivals: Rivals): Promise<Measured[]> {
  const samples = quick ? 3 : 25;
  switch (part) {
    case "views":
      return measureViews(rivals, quick ? 3 : 101, 1);
    case "rows":
      return measureRows(samples, quick ? 2 : 20);
    case "flat":
      return measureFlat(quick ? 5 : 81);
  }
}
