/** The same as reading-worker.ts, with everything that is loaded on demand elsewhere. */

import "varve/worker";
import { read } from "./reading.js";

read();
