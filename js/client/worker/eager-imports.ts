/**
 * What is loaded on demand elsewhere, and comes with a worker that serves: such a worker is one file
 * then. Vite before 8 makes workers of one file or, without being configured, none; nobody waits for a
 * second file before the database is opened; and in a service worker nothing can be loaded on demand.
 */

import * as jsonLines from "../../collection/json-lines.js";
import * as migrate from "../../collection/migrate.js";
import * as exporting from "../../database/export.js";
import * as importing from "../../database/import.js";
import * as verify from "../../database/verify.js";
import * as wasmInline from "../../engine/wasm-inline.js";
import * as strictViews from "../../session/strict-views.js";
import * as bytes from "../../storage/bytes.js";
import * as nodeFile from "../../storage/node/file.js";
import { register } from "../../util/modules.js";

/** Exported, so that no bundler drops it as unused. */
export const EAGER_MODULES: Readonly<Record<string, unknown>> = {
  "collection/json-lines": jsonLines,
  "collection/migrate": migrate,
  "database/export": exporting,
  "database/import": importing,
  "database/verify": verify,
  "engine/wasm-inline": wasmInline,
  "session/strict-views": strictViews,
  "storage/bytes": bytes,
  "storage/node/file": nodeFile,
};

register(EAGER_MODULES);
