/** The package's own worker, which `connect` starts if it is given none. */

import { serveAny } from "./serve.js";

serveAny();
