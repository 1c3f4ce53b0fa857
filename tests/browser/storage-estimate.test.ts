import { type Database, open, persist } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { turn } from "../support/values.js";

/** A database that is closed with the test. */
async function opened(name: string): Promise<Database> {
  const db = await open(name, wasmOption());
  onTestFinished(() => db.close());
  return db;
}

/** Waits for the browser's answer, which `stats` then includes. */
async function reported(
  db: Database,
  holds: (quota: number, usage: number) => boolean,
): Promise<void> {
  for (;;) {
    const { quota, usage } = db.stats();
    if (quota !== undefined && usage !== undefined && holds(quota, usage)) return;
    await turn(5);
  }
}

describe("storage quota of a browser", () => {
  test("stats: usage and quota of the origin are reported", async () => {
    const db = await opened("estimate");
    db.set("key", crypto.getRandomValues(new Uint8Array(50_000)));
    db.flush();
    const { fileBytes } = db.stats();
    await reported(db, (quota, usage) => quota > usage && usage >= fileBytes);
    expect(db.stats().persisted).toBe(await navigator.storage.persisted());
  });
});

describe("persist in a worker", () => {
  test("persist: a page has to ask, unless it is granted already", async () => {
    const granted = await navigator.storage.persisted();
    assert(!("persist" in navigator.storage), "only pages can ask");
    if (granted) expect(await persist()).toBe("granted");
    else await rejects(persist(), { name: "StorageUnavailableError", message: /main thread/ });
  });
});
