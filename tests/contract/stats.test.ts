/** The counts of `stats`, by name: keys, records, index entries. */

import type { Database } from "varve";
import { json, str, struct, u16, u32 } from "varve/struct";
import { expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const Product = struct("Product", { stock: u16, name: str });
const INDEXES = { byStock: "stock", byName: { fields: "name", unique: true } } as const;

function counts(db: Database): [keys: number, records: number, indexEntries: number] {
  const { keys, records, indexEntries } = db.stats();
  return [keys, records, indexEntries];
}

/** Three keys, five products with two indexes, and two jobs. */
function filled(db: Database): void {
  for (const key of ["a", "b", "c"]) db.set(key, "value");
  const products = db.collection("products", Product, { indexes: INDEXES });
  for (let i = 0; i < 5; i++) products.set(`${i}`, { stock: 1, name: `product ${i}` });
  const jobs = db.collection("jobs", json<number>());
  jobs.set("x", 1);
  jobs.set("y", 2);
}

everywhere("stats", ({ storage }) => {
  test("stats names keys, records and index entries, and db.count() counts the keys", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    expect(counts(db)).toStrictEqual([0, 0, 0]);
    filled(db);
    expect(counts(db)).toStrictEqual([3, 10, 10]);
    expect(db.count()).toBe(3);
    // Counting needs neither open collections nor key order.
    db = await reopened(db, storage, name, { ordered: false });
    expect(counts(db)).toStrictEqual([3, 10, 10]);
    db.delete("a");
    expect(counts(db)).toStrictEqual([2, 9, 10]);
    db = await reopened(db, storage, name);
    db.collection("products", Product).delete("0");
    expect(counts(db)).toStrictEqual([2, 8, 8]);
    db.collection("products", Product).clear();
    expect(counts(db)).toStrictEqual([2, 4, 0]);
    expect("count" in db.stats()).toBe(false);
  });

  test("writes of a transaction count until they are rolled back", async () => {
    const db = await opened(storage);
    throws(
      () =>
        db.transaction(() => {
          filled(db);
          expect(counts(db)).toStrictEqual([3, 10, 10]);
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    expect(counts(db)).toStrictEqual([0, 0, 0]);
    filled(db);
    expect(counts(db)).toStrictEqual([3, 10, 10]);
  });

  test("counts are the same after a migration and in a copy", async () => {
    const db = await opened(storage);
    filled(db);
    await db.migrate("products", Product, { indexes: { byStock: "stock" } });
    expect(counts(db)).toStrictEqual([3, 10, 5]);
    const More = struct("Product", { stock: u32, name: str, price: u16 });
    await db.migrate("products", More, {
      migrate: (old: { stock: number; name: string }) => ({ ...old, price: 1 }),
      indexes: { byPrice: "price", byBoth: ["price", "stock"] },
    });
    expect(counts(db)).toStrictEqual([3, 10, 10]);
    const bytes = await new Response(db.export()).arrayBuffer();
    const copy = await opened(storage, { from: bytes });
    expect(counts(copy)).toStrictEqual([3, 10, 10]);
  });
});
