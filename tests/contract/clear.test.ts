/** `clear`: a keyspace is emptied by one record, a range key by key. */

import type { Database } from "varve";
import { str, struct, u16, u32 } from "varve/struct";
import { assert, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

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

interface Bounds {
  readonly lower?: Uint8Array;
  readonly upper?: Uint8Array;
  readonly reverse: boolean;
}

/** The internals of a database that these tests use. */
interface Inside {
  readonly session: { readonly engine: { scan(range: Bounds, ...more: unknown[]): unknown } };
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
    assert(added(db, () => expect(db.clear()).toBe(COUNT)) < 256);
    assert(added(db, () => expect(products.clear()).toBe(COUNT)) < 512);
    expect([db.count(), products.count(), db.clear(), products.clear()]).toStrictEqual([
      0, 0, 0, 0,
    ]);
    db.commit();
    fill(db);
    db.commit();
    // A range that holds all keys is handled like any other.
    assert(added(db, () => expect(db.clear({ gte: "key", limit: COUNT })).toBe(COUNT)) < 256);
    const { keys, records, indexEntries } = db.stats();
    expect([keys, records, indexEntries]).toStrictEqual([0, 0, 0]);
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
      expect([...db.keys()]).toStrictEqual([keyOf(7), "new"]);
      expect(db.has(keyOf(8))).toBe(false);
      expect(db.getMany([keyOf(7), keyOf(8)]).map((value) => value?.length)).toStrictEqual([
        5,
        undefined,
      ]);
      const products = productsOf(db);
      expect(products.count()).toBe(COUNT);
      expect([...products.index.byStock.keys({ gte: 5, lt: 6 })].length).toBe(COUNT / 100);
      expect((await db.verify()).ok).toBe(true);
      db = await reopened(db, storage, name);
      if (round === 1) await db.compact();
    }
    productsOf(db).clear();
    db.clear();
    await db.compact();
    assert(db.stats().fileBytes < 5_000_000, `${db.stats().fileBytes} bytes`);
    expect(db.stats().liveBytes < 2_000).toBe(true);
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
      expect(db.clear()).toBe(COUNT + 1);
      db.set(keyOf(1), "again");
      undo(() => {
        expect(products.clear()).toBe(COUNT);
        expect(db.clear()).toBe(1);
        expect([...products.index.byName.keys()].length).toBe(0);
      });
      expect([...db.keys()]).toStrictEqual([keyOf(1)]);
      expect(products.count()).toBe(COUNT);
      products.clear();
      products.set(3, { stock: 1, name: "product 5" });
      expect(db.clear()).toBe(1);
      db.delete(keyOf(2));
    });
    expect(db.count()).toBe(COUNT);
    expect([...db.keys()].length).toBe(COUNT);
    expect(new TextDecoder().decode(db.get(keyOf(1)))).toBe("value 1");
    expect(products.get(3)?.name.toString()).toBe("product 3");
    expect([...products.index.byName.keys({ gte: "product 5", lte: "product 5" })].length).toBe(1);
  });

  test("clear of a range deletes key by key, from either end, up to its limit", async () => {
    const db = await opened(storage);
    fill(db);
    expect(db.clear({ gte: keyOf(100), lt: keyOf(200) })).toBe(100);
    expect(db.clear({ limit: 50 })).toBe(50);
    expect(db.clear({ limit: 50, reverse: true })).toBe(50);
    expect(db.clear({ gt: "z", lt: "a" })).toBe(0);
    expect(db.clear({ limit: 0 })).toBe(0);
    const left = [...db.keys()];
    expect([left.length, left[0], left.at(-1)]).toStrictEqual([
      COUNT - 200,
      keyOf(50),
      keyOf(COUNT - 51),
    ]);
    expect(db.count({ gte: keyOf(100), lt: keyOf(200) })).toBe(0);
    throws(
      () =>
        db.transaction(() => {
          expect(db.clear({ lt: keyOf(1_000) })).toBe(850);
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    expect([...db.keys()]).toStrictEqual(left);
  });

  test("clear of a range of indexed records passes each key once, from either end", async () => {
    const db = await opened(storage);
    const products = stock(db);
    const { engine } = (db as unknown as Inside).session;
    const scan = engine.scan.bind(engine);
    const starts: (Uint8Array | undefined)[] = [];
    engine.scan = (range, ...more) => {
      starts.push(range.reverse ? range.upper : range.lower);
      return scan(range, ...more);
    };
    for (const reverse of [false, true]) {
      starts.length = 0;
      expect(products.clear({ gte: 1, lt: COUNT - 1, reverse, limit: 1_300 })).toBe(1_300);
      const numbers = starts.map((start) => new DataView((start as Uint8Array).slice().buffer));
      const keys = numbers.map((view) => view.getUint32(0));
      expect(keys).toStrictEqual(reverse ? [COUNT - 1, COUNT - 1_025] : [1, 1_024]);
    }
    expect(products.count()).toBe(400);
    expect(products.index.byStock.count()).toBe(400);
  });

  test("clear frees the space of values in extents and in chunks", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    for (let i = 0; i < 300; i++) db.set(keyOf(i), "small");
    db.set("apart", filled(1_000_000, 1));
    db.set("chunks", filled(700_000, 2));
    db.flush();
    expect(db.clear()).toBe(302);
    db.set("chunks", filled(600_000, 3));
    db.flush();
    db = await reopened(db, storage, name);
    expect(db.get("apart")).toBe(undefined);
    expect(db.get("chunks")?.[599_999]).toBe(3);
    await db.compact();
    assert(db.stats().liveBytes < 700_000, `${db.stats().liveBytes} bytes live`);
    expect((await db.verify()).ok).toBe(true);
    expect(db.get("chunks")?.length).toBe(600_000);
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
    expect([cleared, db.count(), products.count()]).toStrictEqual([2 * COUNT, 0, 0]);
    const copy = await opened(storage, { from: bytes });
    expect([copy.count(), productsOf(copy).count()]).toStrictEqual([COUNT, COUNT]);
  });
});
