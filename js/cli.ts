#!/usr/bin/env node
/** The command `varve`, as installed. */

import { main } from "./cli/main.js";

// Not process.exit(): what was printed has to reach whoever reads it.
process.exitCode = await main(process.argv.slice(2));
