import type { Report, Request } from "./messages.js";
import { indexedDbRival } from "./rivals/indexeddb.js";
import { sqliteRival } from "./rivals/sqlite.js";
import { varveRival } from "./rivals/varve.js";
import { type Contender, runSuite } from "./suite.js";

/*
 * The stores live here because files can be used synchronously in workers only.
 * varve is first: a row's ratio is against the first row of its table.
 */
const contenders: Contender[] = [
  { id: "varve", name: "varve", open: varveRival },
  { id: "sqlite", name: "SQLite (wasm)", open: () => sqliteRival() },
  { id: "indexeddb", name: "IndexedDB", open: indexedDbRival },
];

function report(message: Report): void {
  self.postMessage(message);
}

/** What is missing for files in this browser, said once and before anything starts. */
function obstacle(): string | undefined {
  if (!self.isSecureContext) {
    return "This page was not loaded securely, so the browser offers no file storage. Open it by https or as http://localhost.";
  }
  if (typeof navigator.storage?.getDirectory !== "function") {
    return "This browser has no private file system (OPFS), or has it switched off. Private windows of some browsers do that; try an ordinary window.";
  }
  if (!("createSyncAccessHandle" in FileSystemFileHandle.prototype)) {
    return "This browser's private file system has no synchronous handles. A current Chromium, Firefox or Safari has them.";
  }
  return undefined;
}

/** How long to wait for a worker that was stopped. Another tab that runs the page is not waited for longer. */
const STOPPED_MS = 5_000;

/**
 * Waits until no other worker of this page runs. One that was stopped may live, and keep its files, a moment longer. The
 * lock is held until this worker ends.
 */
function stoppedWorkersGone(): Promise<void> {
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
  const missing = obstacle();
  if (missing !== undefined) {
    report({ type: "unavailable", message: missing });
    return;
  }
  await stoppedWorkersGone();
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

// SQLite's loader, when it cannot load, neither answers nor throws; this is the only sign of it.
self.addEventListener("unhandledrejection", ({ reason }) => {
  report({ type: "unavailable", message: `The run broke off. ${String(reason)}` });
});

self.onmessage = ({ data }: MessageEvent<Request>) => {
  // A rejected promise would be lost here: a worker's `error` event does not tell of it.
  run(data).catch((error: unknown) => {
    report({ type: "unavailable", message: `The run broke off. ${String(error)}` });
  });
};
