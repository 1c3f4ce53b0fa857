/** A tab with SQLite's `opfs` store: every tab has the file open, and locks it for each call. */

import type { Request } from "./sqlite-worker.js";
import { offerTab } from "./tab.js";

const VALUE = new Uint8Array(64);

offerTab(async () => {
  const worker = new Worker("/sqlite-worker.js", { type: "module" });
  const waiting = new Map<number, (found: unknown) => void>();
  let count = 0;
  worker.onmessage = ({ data: { id, found } }) => {
    waiting.get(id)?.(found);
    waiting.delete(id);
  };
  const ask = (request: Omit<Request, "id">) =>
    new Promise((resolve) => {
      count += 1;
      waiting.set(count, resolve);
      worker.postMessage({ id: count, ...request });
    });
  const key = `tab/${crypto.randomUUID()}`;
  return {
    get: () => ask({ key }),
    set: () => ask({ key, value: VALUE }),
    owns: () => false,
  };
});
