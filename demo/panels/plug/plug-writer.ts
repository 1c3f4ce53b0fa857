/** The worker that dies while it writes, and the one that opens the database after it. */

import { type Durability, open, opfs, type Recovery, type Verification } from "varve";
import { commitsOf, differences, type Shape, writeCommit } from "./commits.js";

/** Commits of 100 KB, so that a worker that is ended has mostly begun one. */
const SHAPE: Shape = { records: 2_048, perCommit: 128, bytes: 1_024 };

/** Held by the worker that has the database. */
const LOCK = "varve plug";

export type Order = { do: "write"; durability: Durability } | { do: "check" };

/** What the database is like after the crash. */
export interface Found {
  commits: number;
  difference: string | undefined;
  recovery: Recovery;
  verification: Verification;
  openedMs: number;
}

export type Report =
  | { kind: "opened"; commits: number }
  | { kind: "acknowledged"; commits: number }
  | { kind: "found"; found: Found }
  | { kind: "failed"; reason: string };

/** What a worker reports here arrives until it has ended; what it posts itself, only until `terminate()` is called. */
let port: MessagePort;
const report = (message: Report) => port.postMessage(message);

function openPlug(durability: Durability) {
  return open("plug", { storage: opfs("varve-demo"), durability });
}

/** Writes until this worker is ended. Each commit is acknowledged as `durability` promises it. */
async function write(durability: Durability): Promise<void> {
  const db = await openPlug(durability);
  const before = commitsOf(db);
  report({ kind: "opened", commits: before });
  for (let n = before + 1; ; n++) {
    writeCommit(db, n, SHAPE);
    await (durability === "flushed" ? db.flushed : db.committed);
    report({ kind: "acknowledged", commits: n });
  }
}

/** Opens what the crash has left, and checks all of it. */
async function check(): Promise<void> {
  const start = performance.now();
  const db = await openPlug("written");
  const openedMs = performance.now() - start;
  const { recovery } = db;
  const commits = commitsOf(db);
  const difference = differences(db, SHAPE);
  const verification = await db.verify();
  await db.close();
  report({ kind: "found", found: { commits, difference, recovery, verification, openedMs } });
}

self.onmessage = ({ data, ports }: MessageEvent<Order>) => {
  port = ports[0]!;
  // The browser frees the lock when the worker has ended.
  const work = navigator.locks.request(LOCK, () =>
    data.do === "write" ? write(data.durability) : check(),
  );
  work.catch((error: unknown) => report({ kind: "failed", reason: String(error) }));
};
