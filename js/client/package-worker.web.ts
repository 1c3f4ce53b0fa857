/** As `package-worker.ts`, in the bundles for pages without a bundler, which may be served by another origin. */

import type { WorkerLike } from "./connection/caller.js";

export function packageWorker(): WorkerLike {
  const url = new URL("./worker.js", import.meta.url);
  if (url.origin === location.origin) return new Worker(url, { type: "module" });
  // A worker must come from the page's origin, as a blob does. What it imports may come from elsewhere.
  const program = new Blob([`import ${JSON.stringify(url)};`], { type: "text/javascript" });
  const own = URL.createObjectURL(program);
  const worker = new Worker(own, { type: "module" });
  const revoke = () => URL.revokeObjectURL(own);
  worker.addEventListener("message", revoke, { once: true });
  worker.addEventListener("error", revoke, { once: true });
  return worker;
}
