/** The worker of a tab with PGlite. */

import { PGlite } from "@electric-sql/pglite";
import { worker } from "@electric-sql/pglite/worker";

worker({ init: (options) => PGlite.create(options) });
