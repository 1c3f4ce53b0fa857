import type { Database, Pin } from "varve";
import { json, struct, u32 } from "varve/struct";
import { expect, test } from "vitest";
import { CLOSED, refuseAll } from "../support/closed.js";
import { rejects } from "../support/errors.js";
import { everywhere, opened } from "./storages.js";

const Product = struct("Product", { price: u32 });

everywhere("a closed database", ({ storage }) => {
  test("every call throws DatabaseClosedError", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const pin = db.pin("a") as Pin;
    const products = db.collection("products", Product, { indexes: { byPrice: "price" } });
    const jobs = db.collection("jobs", json<number>(), { key: u32 });
    products.set("a", { price: 1 });
    const ref = products.ref("a");
    const then = db.snapshot();
    await db.close();
    await refuseAll<Database>(db, {
      at: (of) => of.at(0),
      batch: (of) => of.batch([]),
      changes: (of) => of.changes({ since: 0 }),
      clear: (of) => of.clear(),
      close: "stays",
      collection: (of) => of.collection("more", json()),
      commit: (of) => of.commit(),
      committed: (of) => of.committed,
      compact: (of) => of.compact(),
      count: (of) => of.count(),
      delete: (of) => of.delete("a"),
      durability: "stays",
      entries: (of) => of.entries(),
      export: (of) => of.export(),
      flush: (of) => of.flush(),
      flushed: (of) => of.flushed,
      follow: (of) => of.follow(),
      get: (of) => of.get("a"),
      getEntry: (of) => of.getEntry("a"),
      getMany: (of) => of.getMany(["a"]),
      getText: (of) => of.getText("a"),
      has: (of) => of.has("a"),
      history: "stays",
      keys: (of) => of.keys(),
      lastCommit: (of) => of.lastCommit,
      live: (of) => of.live(),
      log: (of) => of.log(),
      migrate: (of) => of.migrate("more", json()),
      pack: (of) => of.pack({ before: 0 }),
      pin: (of) => of.pin("a"),
      recovery: "stays",
      retain: (of) => of.retain("a", 0),
      set: (of) => of.set("a", "1"),
      snapshot: (of) => of.snapshot(),
      stats: (of) => of.stats(),
      touch: (of) => of.touch("a", { expireIn: 1_000 }),
      transaction: (of) => of.transaction(() => 1),
      undo: (of) => of.undo(1),
      updateIf: (of) => of.updateIf("a", () => {}),
      values: (of) => of.values(),
      verify: (of) => of.verify(),
      watch: (of) => of.watch(),
    });
    expect([db.recovery.created, db.durability]).toStrictEqual([true, "written"]);
    await refuseAll(pin, { bytes: (of) => of.bytes, dispose: "stays" });
    await refuseAll(then, {
      close: "stays",
      collection: (of) => of.collection("more", json()),
      count: (of) => of.count(),
      end: "stays",
      entries: (of) => of.entries(),
      get: (of) => of.get("a"),
      getEntry: (of) => of.getEntry("a"),
      getMany: (of) => of.getMany(["a"]),
      getText: (of) => of.getText("a"),
      has: (of) => of.has("a"),
      keys: (of) => of.keys(),
      values: (of) => of.values(),
    });
    await refuseAll(ref, { value: (of) => of.value });
    await refuseAll(jobs, {
      batch: (of) => of.batch([]),
      clear: (of) => of.clear(),
      committed: "stays",
      count: (of) => of.count(),
      delete: (of) => of.delete(1),
      entries: (of) => of.entries(),
      find: (of) => of.find(1),
      fromJsonLines: (of) => of.fromJsonLines(new Blob(['{"key":1,"value":2}']).stream()),
      get: (of) => of.get(1),
      getEntry: (of) => of.getEntry(1),
      getMany: (of) => of.getMany([1]),
      has: (of) => of.has(1),
      index: "stays",
      keys: (of) => of.keys(),
      live: (of) => of.live(),
      name: "stays",
      push: (of) => (of as unknown as { push(value: number): number }).push(1),
      reach: "stays",
      ref: (of) => of.ref(1),
      set: (of) => of.set(1, 2),
      toJsonLines: (of) => of.toJsonLines(),
      touch: (of) => of.touch(1, { expireIn: 1_000 }),
      updateIf: (of) => of.updateIf(1, () => 2),
      values: (of) => of.values(),
      watch: (of) => of.watch(),
    });
    await refuseAll(products.index.byPrice, {
      count: (of) => of.count(),
      entries: (of) => of.entries(),
      get: (of) => of.get(1),
      keys: (of) => of.keys(),
      live: (of) => of.live(),
      name: "stays",
      reach: (of) => of.reach("values()", undefined),
      unique: "stays",
      values: (of) => of.values(),
      visit: (of) => of.visit("values()", undefined, () => {}),
      watch: (of) => of.watch(),
    });
  });

  test("closing the database in a progress callback ends the operation", async () => {
    for (const call of ["compact", "verify"] as const) {
      const db = await opened(storage);
      db.set("a", "1");
      let closing: Promise<void> | undefined;
      const onProgress = () => {
        closing ??= db.close();
      };
      await rejects(db[call]({ onProgress }), CLOSED);
      await closing;
    }
  });
});
