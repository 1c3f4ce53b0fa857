/**
 * The package in Cloudflare Workers, where wasm may not be compiled at run time: it comes as a module,
 * which the platform has compiled when the Worker was deployed.
 */

import type { Database } from "./database/database.js";
import { openWith } from "./database/open.js";
import { moduleFrom } from "./engine/load-wasm.js";
import type { OpenOptions } from "./session/options.js";
import wasm from "./varve.wasm";

export * from "./index.js";

/** As `open` anywhere else. */
export function open(name: string, options: OpenOptions = {}): Promise<Database> {
  return openWith((given) => moduleFrom(given ?? wasm), name, options);
}
