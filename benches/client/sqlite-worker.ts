/** The worker of a tab with SQLite: each tab has the file open and locks it for each call. */

import init from "@sqlite.org/sqlite-wasm";

/** A request from the page. */
export interface Request {
  readonly id: number;
  readonly key: string;
  /** The value to write; absent for a read. */
  readonly value?: Uint8Array;
}

const SQLITE_BUSY = 5;
const BUSY_MS = 2;

/** A write-ahead log needs memory shared by all connections, which tabs do not have. */
const TUNING = `
  PRAGMA journal_mode = persist;
  PRAGMA synchronous = normal;
  CREATE TABLE IF NOT EXISTS pairs (key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
`;

/** Retries until no other tab has the file locked. */
async function retryWhileBusy<T>(attempt: () => T): Promise<T> {
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      if ((error as { resultCode?: number }).resultCode !== SQLITE_BUSY) throw error;
      await new Promise((resolve) => setTimeout(resolve, BUSY_MS));
    }
  }
}

async function openDatabase() {
  const { oo1 } = await init();
  const db = await retryWhileBusy(() => new oo1.OpfsDb("/bench.sqlite3", "c"));
  await retryWhileBusy(() => db.exec(TUNING));
  return {
    read: db.prepare("SELECT value FROM pairs WHERE key = ?"),
    write: db.prepare("INSERT OR REPLACE INTO pairs VALUES (?, ?)"),
  };
}

const opening = openDatabase();
/** Requests run one after the other, so that a statement is never started while it waits for the lock. */
let last: Promise<unknown> = opening;

async function answer({ id, key, value }: Request): Promise<void> {
  const { read, write } = await opening;
  const found = await retryWhileBusy(() => {
    try {
      if (value === undefined) return read.bind(key).step() ? read.getBlob(0) : null;
      return write.bind([key, value]).step() ? null : null;
    } finally {
      (value === undefined ? read : write).reset(true);
    }
  });
  postMessage({ id, found });
}

addEventListener("message", ({ data }: MessageEvent<Request>) => {
  last = last.then(() => answer(data));
});
