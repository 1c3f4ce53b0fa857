/**
 * Imports the modules that are otherwise loaded on demand, so that a worker that serves is a single file. Vite
 * before 8 makes workers of one file or, unless configured, none. No second file is loaded before the database
 * opens. And in a service worker nothing can be loaded on demand.
 *
 * Files of Node are left out, because browsers have none: the package's bundles for Node add them.
 */

import { ON_DEMAND } from "../../database/on-demand.js";
import * as wasmInline from "../../engine/wasm-inline.js";
import { register } from "../../util/modules.js";

/** Exported, so that no bundler drops it as unused. */
export const EAGER_MODULES: Readonly<Record<string, unknown>> = {
  ...ON_DEMAND,
  "engine/wasm-inline": wasmInline,
};

register(EAGER_MODULES);
