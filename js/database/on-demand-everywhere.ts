/** The modules that are loaded on first use, with those for Node: what `open` loads, wherever it is called. */

import * as nodeFile from "../storage/node/file.js";
import { ON_DEMAND } from "./on-demand.js";

/** By their paths. */
export const MODULES: Readonly<Record<string, unknown>> = {
  ...ON_DEMAND,
  "storage/node/file": nodeFile,
};
