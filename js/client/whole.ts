/**
 * What is loaded on demand elsewhere, and comes with a worker that serves: such a worker is one file
 * then. Vite before 8 makes workers of one file or, without being configured, none; and nobody waits
 * for a second file before the database is opened.
 */

import { lineWriter } from "../collection/lines.js";
import { migrate } from "../collection/migrate.js";
import { exported } from "../export.js";
import { fill } from "../fill.js";
import { openImage } from "../storage/image.js";
import { openAt } from "../storage/node-file.js";
import { Watch } from "../strict.js";
import { verified } from "../verify.js";
import { wasmBase64 } from "../wasm-inline.js";

/** Kept where no bundler can know that nobody looks at it. */
export const WHOLE: readonly unknown[] = [
  lineWriter,
  migrate,
  exported,
  fill,
  openImage,
  openAt,
  Watch,
  verified,
  wasmBase64,
];
