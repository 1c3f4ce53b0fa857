/**
 * The package for Cloudflare Workers, where wasm cannot be compiled at run time: it is imported as a module,
 * which the platform compiles when the Worker is deployed.
 */

import type { Database } from "./database/database.js";
import { loadOnDemand } from "./database/lazy-imports.js";
import { openWith } from "./database/opening.js";
import { moduleFrom } from "./engine/load-wasm.js";
import type { OpenOptions } from "./session/options.js";
import { registerRest } from "./util/modules.js";
import wasm from "./varve.wasm";

export * from "./index.js";

/** The same as `open` on other platforms. */
export function open(name: string, options: OpenOptions = {}): Promise<Database> {
  registerRest(loadOnDemand);
  return openWith((given) => moduleFrom(given ?? wasm), name, options);
}
