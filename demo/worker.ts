import type { Report, Request } from "./messages.js";
import { indexedDbRival } from "./rivals/indexeddb.js";
import { sqliteRival } from "./rivals/sqlite.js";
import { varveRival } from "./rivals/varve.js";
import { type Contender, runSuite } from "./suite.js";

/**
 * The stores run in a worker because only workers have synchronous access to files. varve is first: the ratio
 * of a row is relative to the first row of its table.
 */
const contenders: Contender[] = [
  { id: "varve", name: "varve", open: varveRival },
  { id: "sqlite", name: "SQLite (wasm)", open: () => sqliteRival() },
  { id: "indexeddb", name: "IndexedDB", open: indexedDbRival },
];

function report(message: Report): void {
  self.postMessage(message);
}

/** The message if this browser lacks file access, checked before anything starts. */
function missingSupport(): string | undefined {
  if (!self.isSecureContext) {
    return "This page was not loaded securely, so the browser offers no file storage. Open it by https or as http://localhost.";
  }
  if (typeof navigator.storage?.getDirectory !== "function") {
    return "This browser has no private file system (OPFS), or has disabled it. Some browsers disable it in private windows; try an ordinary window.";
  }
  if (!("createSyncAccessHandle" in FileSystemFileHandle.prototype)) {
    return "This browser's private file system has no synchronous handles. A current Chromium, Firefox or Safari has them.";
  }
  return undefined;
}

/** How long to wait for a stopped worker. Another tab that runs this page is not waited for longer. */
const STOPPED_MS = 5_000;

/**
 * Waits until no other worker of this page runs: a stopped one may live, and keep its files open, a moment
 * longer. The lock is held until this worker ends.
 */
function stoppedWorkersEnded(): Promise<void> {
  return new Promise((resolve) => {
    const held = () => {
      resolve();
      return new Promise<never>(() => {});
    };
    const signal = AbortSignal.timeout(STOPPED_MS);
    navigator.locks.request("varve demo", { signal }, held).catch(() => resolve());
  });
}

async function run({ cycles, runs }: Request): Promise<void> {
  const missing = missingSupport();
  if (missing !== undefined) {
    report({ type: "unavailable", message: missing });
    return;
  }
  await stoppedWorkersEnded();
  const verdict = await runSuite(
    contenders,
    ["all", "each"],
    { cycles, runs },
    {
      progress: (done, total, doing) => report({ type: "progress", done, total, doing }),
      row: (row) => report({ type: "row", row }),
      failed: (row) => report({ type: "failed", row }),
    },
  );
  report({ type: "done", verdict });
}

// When SQLite's loader fails, it neither resolves nor rejects; this message is the only sign.
self.addEventListener("unhandledrejection", ({ reason }) => {
  report({ type: "unavailable", message: `The run broke off. ${String(reason)}` });
});

self.onmessage = ({ data }: MessageEvent<Request>) => {
  // A worker's `error` event does not report rejected promises, so they are reported here.
  run(data).catch((error: unknown) => {
    report({ type: "unavailable", message: `The run broke off. ${String(error)}` });
  });
};
