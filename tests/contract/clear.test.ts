/** `clear`: a keyspace is emptied by one record, a range key by key. */

import type { Database } from "varve";
import { str, struct, u16, u32 } from "varve/struct";
import { deepEqual, equal, ok, test, throws } from "../harness.js";
import { everywhere, filled, freshName, opened, reopened } from "./places.js";

const Product = struct("Product", { stock: u16, name: str });
const INDEXES = { byStock: "stock", byName: { fields: "name", unique: true } } as const;
const COUNT = 3_000;

function keyOf(i: number): string {
  return `key ${String(i).padStart(5, "0")}`;
}

function fill(db: Database): void {
  for (let i = 0; i < COUNT; i++) db.set(keyOf(i), `value ${i}`);
}

function productsOf(db: Database) {
  return db.collection("products", Product, { key: u32, indexes: INDEXES });
}

function stock(db: Database): ReturnType<typeof productsOf> {
  const products = productsOf(db);
  for (let i = 0; i < COUNT; i++) products.set(i, { stock: i % 100, name: `product ${i}` });
  return products;
}

/** Bytes that a call adds to the pending writes. */
function added(db: Database, act: () => void): number {
  const before = db.stats().pendingBytes;
  act();
  return db.stats().pendingBytes - before;
}

everywhere("clear()", ({ storage }) => {
  test("clear records one entry per keyspace and index, whatever their size", async () => {
    const db = await opened(storage);
    fill(db);
    const products = stock(db);
    db.commit();
    ok(added(db, () => equal(db.clear(), COUNT)) < 256);
    ok(added(db, () => equal(products.clear(), COUNT)) < 512);
    deepEqual([db.count(), products.count(), db.clear(), products.clear()], [0, 0, 0, 0]);
    db.commit();
    fill(db);
    db.commit();
    // A range that holds all keys is handled like any other.
    ok(added(db, () => equal(db.clear({ gte: "key", limit: COUNT }), COUNT)) < 256);
    const { keys, records, indexEntries } = db.stats();
    deepEqual([keys, records, indexEntries], [0, 0, 0]);
  });

  test("clear leaves other keyspaces and later sets alone", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    fill(db);
    stock(db);
    db.clear();
    db.set(keyOf(7), "again");
    db.set("new", "value");
    db.commit();
    for (let round = 0; round < 3; round++) {
      deepEqual([...db.keys()], [keyOf(7), "new"]);
      equal(db.has(keyOf(8)), false);
      deepEqual(
        db.getMany([keyOf(7), keyOf(8)]).map((value) => value?.length),
        [5, undefined],
      );
      const products = productsOf(db);
      equal(products.count(), COUNT);
      equal([...products.index.byStock.keys({ gte: 5, lt: 6 })].length, COUNT / 100);
      equal((await db.verify()).ok, true);
      db = await reopened(db, storage, name);
      if (round === 1) await db.compact();
    }
    productsOf(db).clear();
    db.clear();
    await db.compact();
    ok(db.stats().fileBytes < 5_000_000, `${db.stats().fileBytes} bytes`);
    equal(db.stats().liveBytes < 2_000, true);
  });

  test("clear is rolled back with its transaction, with writes before and after it", async () => {
    const db = await opened(storage);
    fill(db);
    const products = stock(db);
    const undone = new Error("undone");
    const undo = (body: () => void) =>
      throws(
        () =>
          db.transaction(() => {
            body();
            throw undone;
          }),
        { message: "undone" },
      );
    undo(() => {
      db.set("before", "value");
      equal(db.clear(), COUNT + 1);
      db.set(keyOf(1), "again");
      undo(() => {
        equal(products.clear(), COUNT);
        equal(db.clear(), 1);
        equal([...products.index.byName.keys()].length, 0);
      });
      deepEqual([...db.keys()], [keyOf(1)]);
      equal(products.count(), COUNT);
      products.clear();
      products.set(3, { stock: 1, name: "product 5" });
      equal(db.clear(), 1);
      db.delete(keyOf(2));
    });
    equal(db.count(), COUNT);
    equal([...db.keys()].length, COUNT);
    equal(new TextDecoder().decode(db.get(keyOf(1))), "value 1");
    equal(products.get(3)?.name.toString(), "product 3");
    equal([...products.index.byName.keys({ gte: "product 5", lte: "product 5" })].length, 1);
  });

  test("clear of a range deletes key by key, from either end, up to its limit", async () => {
    const db = await opened(storage);
    fill(db);
    equal(db.clear({ gte: keyOf(100), lt: keyOf(200) }), 100);
    equal(db.clear({ limit: 50 }), 50);
    equal(db.clear({ limit: 50, reverse: true }), 50);
    equal(db.clear({ gt: "z", lt: "a" }), 0);
    equal(db.clear({ limit: 0 }), 0);
    const left = [...db.keys()];
    deepEqual([left.length, left[0], left.at(-1)], [COUNT - 200, keyOf(50), keyOf(COUNT - 51)]);
    equal(db.count({ gte: keyOf(100), lt: keyOf(200) }), 0);
    throws(
      () =>
        db.transaction(() => {
          equal(db.clear({ lt: keyOf(1_000) }), 850);
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    deepEqual([...db.keys()], left);
  });

  test("clear frees the space of values in extents and in chunks", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    for (let i = 0; i < 300; i++) db.set(keyOf(i), "small");
    db.set("apart", filled(1_000_000, 1));
    db.set("pieces", filled(700_000, 2));
    db.flush();
    equal(db.clear(), 302);
    db.set("pieces", filled(600_000, 3));
    db.flush();
    db = await reopened(db, storage, name);
    equal(db.get("apart"), undefined);
    equal(db.get("pieces")?.[599_999], 3);
    await db.compact();
    ok(db.stats().liveBytes < 700_000, `${db.stats().liveBytes} bytes live`);
    equal((await db.verify()).ok, true);
    equal(db.get("pieces")?.length, 600_000);
  });

  test("clear of all keys during an export does not change the exported data", async () => {
    const db = await opened(storage);
    fill(db);
    const products = stock(db);
    let cleared = 0;
    const stream = db.export({
      onProgress: () => {
        if (cleared === 0) cleared = db.clear() + products.clear();
      },
    });
    const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
    deepEqual([cleared, db.count(), products.count()], [2 * COUNT, 0, 0]);
    const copy = await opened(storage, { from: bytes });
    deepEqual([copy.count(), productsOf(copy).count()], [COUNT, COUNT]);
  });
});
