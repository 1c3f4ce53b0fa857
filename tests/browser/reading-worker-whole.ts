/** The same as reading-worker.ts, with the modules that are otherwise loaded on demand. */

import "varve/worker";
import { read } from "./reading.js";

read();
