/**
 * The package in Cloudflare Workers, where wasm may not be compiled at run time: it comes as a module,
 * which the platform has compiled when the Worker was deployed.
 */

import type { Database } from "./database.js";
import { openWith } from "./open.js";
import type { OpenOptions } from "./options.js";
import wasm from "./varve.wasm";
import { moduleFrom } from "./wasm/load.js";

export * from "./index.js";

/** As `open` anywhere else. */
export function open(name: string, options: OpenOptions = {}): Promise<Database> {
  return openWith((given) => moduleFrom(given ?? wasm), name, options);
}
