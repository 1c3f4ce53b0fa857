import { type Database, open, persist } from "varve";
import { cleanup, equal, ok, rejects, suite, test, turn, wasmOption } from "../harness.js";

/** A database that is closed with the test. */
async function opened(name: string): Promise<Database> {
  const db = await open(name, wasmOption());
  cleanup(() => db.close());
  return db;
}

/** Waits for the browser's answer, which `stats` then includes. */
async function told(db: Database, holds: (quota: number, usage: number) => boolean): Promise<void> {
  for (;;) {
    const { quota, usage } = db.stats();
    if (quota !== undefined && usage !== undefined && holds(quota, usage)) return;
    await turn(5);
  }
}

suite("storage quota of a browser", () => {
  test("stats: usage and quota of the origin are reported", async () => {
    const db = await opened("room");
    db.set("key", crypto.getRandomValues(new Uint8Array(50_000)));
    db.flush();
    const { fileBytes } = db.stats();
    await told(db, (quota, usage) => quota > usage && usage >= fileBytes);
    equal(db.stats().persisted, await navigator.storage.persisted());
  });
});

suite("persist in a worker", () => {
  test("persist: a page has to ask, unless it is granted already", async () => {
    const granted = await navigator.storage.persisted();
    ok(!("persist" in navigator.storage), "only pages can ask");
    if (granted) equal(await persist(), "granted");
    else await rejects(persist(), { name: "StorageUnavailableError", message: /main thread/ });
  });
});
