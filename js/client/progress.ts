/** How far long work in a worker has come. Types only. */

import type { MigrateProgress } from "../collection/migrate.js";
import type { CompactProgress, ExportProgress, OpenProgress, VerifyProgress } from "../options.js";

/** What the worker that has the database is doing, and its progress. */
export type ClientProgress =
  | OpenProgress
  | ({ readonly doing: "migrating" } & MigrateProgress)
  | ({ readonly doing: "compacting" } & CompactProgress)
  | ({ readonly doing: "verifying" } & VerifyProgress)
  | ({ readonly doing: "exporting" } & ExportProgress);
