/**
 * Imports the modules that are otherwise loaded on demand, so that a worker that serves is a single file. Vite
 * before 8 makes workers of one file or, unless configured, none. No second file is loaded before the database
 * opens. And in a service worker nothing can be loaded on demand.
 *
 * Files of Node are left out, because browsers have none: the package's bundles for Node add them.
 */

import * as jsonLines from "../../collection/json-lines.js";
import * as migrate from "../../collection/migrate.js";
import * as exporting from "../../database/export.js";
import * as importing from "../../database/import.js";
import * as pack from "../../database/pack.js";
import * as verify from "../../database/verify.js";
import * as wasmInline from "../../engine/wasm-inline.js";
import * as strictViews from "../../session/strict-views.js";
import * as bytes from "../../storage/bytes.js";
import { register } from "../../util/modules.js";

/** Exported, so that no bundler drops it as unused. */
export const EAGER_MODULES: Readonly<Record<string, unknown>> = {
  "collection/json-lines": jsonLines,
  "collection/migrate": migrate,
  "database/export": exporting,
  "database/import": importing,
  "database/pack": pack,
  "database/verify": verify,
  "engine/wasm-inline": wasmInline,
  "session/strict-views": strictViews,
  "storage/bytes": bytes,
};

register(EAGER_MODULES);
