/** The package's own worker, which `connect` starts where it is given none. */

import { serveAny } from "./serve.js";

serveAny();
