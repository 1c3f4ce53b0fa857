/** The worker of the page with varve, whose calls of the platform are recorded. */

import { mark } from "./trace.js";
import served from "./varve-worker.js";

mark("script run");

export default served;
