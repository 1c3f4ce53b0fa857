/** How `connect` starts the package's own worker. Bundlers recognize this call, and bundle the worker. */

import type { WorkerLike } from "./connection/caller.js";

export function packageWorker(): WorkerLike {
  return new Worker(new URL("./worker/index.js", import.meta.url), { type: "module" });
}
