/**
 * The modules that are not needed before some of their functions are called, in one: for each one of its own, bundlers
 * would split what it shares with the rest into chunks, and an `open()` would load twenty files.
 *
 * A worker that serves a database has them at once (`eager-imports.ts`). Files of Node are left out, because browsers
 * have none.
 */

import * as jsonLines from "../collection/json-lines.js";
import * as migrate from "../collection/migrate.js";
import * as strictViews from "../session/strict-views.js";
import * as bytes from "../storage/bytes.js";
import * as exporting from "./export.js";
import * as importing from "./import.js";
import * as pack from "./pack.js";
import * as verify from "./verify.js";

/** By their paths. */
export const ON_DEMAND: Readonly<Record<string, unknown>> = {
  "collection/json-lines": jsonLines,
  "collection/migrate": migrate,
  "database/export": exporting,
  "database/import": importing,
  "database/pack": pack,
  "database/verify": verify,
  "session/strict-views": strictViews,
  "storage/bytes": bytes,
};
