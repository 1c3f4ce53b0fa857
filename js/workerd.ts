/**
 * The package in Cloudflare Workers, where wasm may not be compiled at run time: it comes as a module,
 * which the platform has compiled when the Worker was deployed.
 */

import type { Database } from "./database.js";
import { open as openWith } from "./open.js";
import type { OpenOptions } from "./options.js";
import wasm from "./varve.wasm";

export * from "./index.js";

/** As `open` anywhere else. */
export async function open(name: string, options: OpenOptions = {}): Promise<Database> {
  // What is wrong with options that are none is told there.
  if (typeof options !== "object" || options === null) return openWith(name, options);
  return openWith(name, { ...options, wasm: options.wasm ?? wasm });
}
