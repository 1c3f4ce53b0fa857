/** A tab with PGlite, which elects one tab as the leader that has the database. */

import { PGliteWorker } from "@electric-sql/pglite/worker";
import { offerTab } from "./tab.js";

const VALUE = new Uint8Array(64);

offerTab(async () => {
  const worker = new Worker("/pglite-worker.js", { type: "module" });
  const db = await PGliteWorker.create(worker, {
    dataDir: "opfs-ahp://bench",
    relaxedDurability: true,
  });
  await db.exec("CREATE TABLE IF NOT EXISTS pairs (key TEXT PRIMARY KEY, value BYTEA)");
  const key = `tab/${crypto.randomUUID()}`;
  const set =
    "INSERT INTO pairs VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = EXCLUDED.value";
  return {
    get: () => db.query("SELECT value FROM pairs WHERE key = $1", [key]),
    set: () => db.query(set, [key, VALUE]),
    owns: () => db.isLeader,
  };
});
