#!/usr/bin/env node
/** The command `varve`, as installed. */

import { main } from "./cli/main.js";

// Not process.exit(), which would lose output that is not written yet.
process.exitCode = await main(process.argv.slice(2));
