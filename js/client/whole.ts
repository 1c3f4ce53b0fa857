/**
 * What is loaded on demand elsewhere, and comes with a worker that serves: such a worker is one file
 * then. Vite before 8 makes workers of one file or, without being configured, none; nobody waits for a
 * second file before the database is opened; and in a service worker nothing can be loaded on demand.
 */

import * as lines from "../collection/lines.js";
import * as migrate from "../collection/migrate.js";
import * as exporting from "../export.js";
import * as fill from "../fill.js";
import { register } from "../modules.js";
import * as image from "../storage/image.js";
import * as nodeFile from "../storage/node-file.js";
import * as strict from "../strict.js";
import * as verify from "../verify.js";
import * as wasmInline from "../wasm-inline.js";

/** Kept where no bundler can know that nobody looks at it. */
export const WHOLE: Readonly<Record<string, unknown>> = {
  "collection/lines": lines,
  "collection/migrate": migrate,
  export: exporting,
  fill,
  "storage/image": image,
  "storage/node-file": nodeFile,
  strict,
  verify,
  "wasm-inline": wasmInline,
};

register(WHOLE);
