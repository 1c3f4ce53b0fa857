import type { Database } from "varve";
import {
  added,
  blob,
  desc,
  f64,
  json,
  str,
  struct,
  u8,
  u16,
  u32,
  u64,
  vec,
  versioned,
} from "varve/struct";
import { assert, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const MISMATCH = { code: "VARVE_SCHEMA_MISMATCH" } as const;

const Old = struct("Product", { price: f64, stock: u8, name: str });
const New = struct("Product", { cents: u32, stock: u16, name: str });
const INDEXES = { byStock: "stock", byName: { fields: "name", unique: true } } as const;

interface OldProduct {
  price: number;
  stock: number;
  name: string;
}

const change = ({ price, stock, name }: OldProduct) => ({ cents: price * 100, stock, name });

/** Keys of every kind: records, and entries of indexes. */
function keysOfAllKinds(db: Database): number {
  const { records, indexEntries } = db.stats();
  return records + indexEntries;
}

function filled(db: Database, count: number) {
  const products = db.collection("products", Old, { key: u32 });
  for (let i = 0; i < count; i++) {
    products.set(i, { price: i, stock: i % 200, name: `product ${i}` });
  }
  return products;
}

function isConverted(db: Database, count: number): void {
  const products = db.collection("products", New, { key: u32, indexes: INDEXES });
  expect(products.count()).toBe(count);
  let i = 0;
  for (const [key, { cents, stock, name }] of products.entries()) {
    expect([key, cents, stock, name]).toStrictEqual([i, i * 100, i % 200, `product ${i}`]);
    i += 1;
  }
  expect(products.index.byStock.count()).toBe(count);
  expect(products.index.byName.get(`product ${count - 1}`)?.cents).toBe((count - 1) * 100);
}

everywhere("migrate", ({ storage }) => {
  test("a mismatch of schemas is refused with a difference field by field", async () => {
    const db = await opened(storage);
    filled(db, 1);
    throws(() => db.collection("products", New, { key: u32 }), {
      ...MISMATCH,
      message: /price \(f64\) is unexpected; stock is u8, not u16; cents \(u32\) is missing/,
    });
    const Turned = struct("Product", { name: str, stock: u8, price: f64 });
    throws(() => db.collection("products", Turned, { key: u32 }), {
      ...MISMATCH,
      message: /order of its fields is \(price, stock, name\), not \(name, stock, price\)/,
    });
    // The codec's own name does not affect its bytes.
    const Renamed = struct("Other", { price: f64, stock: u8, name: str });
    expect(db.collection("products", Renamed, { key: u32 }).count()).toBe(1);
  });

  test("records are converted by a function, with their indexes", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const old = filled(db, 500);
    const progress: number[] = [];
    const products = await db.migrate("products", New, {
      key: u32,
      indexes: INDEXES,
      migrate: change,
      onProgress: ({ records, total }) => {
        progress.push(records);
        expect(total).toBe(500);
      },
    });
    expect(progress[0]).toBe(0);
    expect(progress.at(-1)).toBe(500);
    expect(products.get(7)?.cents).toBe(700);
    throws(() => old.get(7), MISMATCH);
    throws(() => old.set(7, { price: 1, stock: 1, name: "" }), MISMATCH);
    throws(() => [...old.keys()], MISMATCH);
    isConverted(db, 500);
    db = await reopened(db, storage, name);
    isConverted(db, 500);
    throws(() => db.collection("products", Old, { key: u32 }), MISMATCH);
    // Objects from before the migration throw.
    expect(keysOfAllKinds(db)).toBe(3 * 500);
    expect(
      await db.migrate("products", New, { key: u32, indexes: INDEXES }).then((c) => c.count()),
    ).toBe(500);
  });

  test("without a function, fields of the same name are taken over", async () => {
    const db = await opened(storage);
    filled(db, 20);
    const Less = struct("Product", { name: str, stock: u32 });
    const products = await db.migrate("products", Less, { key: u32 });
    expect(products.get(7)?.snapshot()).toStrictEqual({ name: "product 7", stock: 7 });
    const objects = await db.migrate("products", json<{ name: string }>(), { key: u32 });
    expect(objects.get(7)).toStrictEqual({ name: "product 7", stock: 7 } as { name: string });
    const again = await db.migrate("products", Less, { key: u32 });
    expect(again.get(19)?.stock).toBe(19);
    await rejects(db.migrate("products", New, { key: u32 }), { ...BAD, message: /cents/ });
    expect(db.collection("products", Less, { key: u32 }).get(19)?.stock).toBe(19);
  });

  test("records may be left out, and a throwing function leaves the collection as it was", async () => {
    const db = await opened(storage);
    const products = filled(db, 50);
    await rejects(
      db.migrate("products", New, {
        key: u32,
        migrate: (old: OldProduct) => {
          if (old.stock === 30) throw new Error("no");
          return change(old);
        },
      }),
      { message: "no" },
    );
    expect(products.get(30)?.price).toBe(30);
    await rejects(
      db.migrate("products", New, { key: u32, migrate: (async () => {}) as never }),
      BAD,
    );
    await rejects(db.migrate("products", New, { key: u32, migrate: 1 as never }), BAD);
    await rejects(db.migrate("products", New, { key: str, migrate: change }), MISMATCH);
    await rejects(db.migrate("products", New, { keys: u32 } as never), BAD);
    products.set(30, { price: 1, stock: 31, name: "changed" });
    const migrated = await db.migrate("products", New, {
      key: u32,
      migrate: (old: OldProduct, key) => (key % 2 === 0 ? change(old) : undefined),
    });
    expect(migrated.count()).toBe(25);
    expect(migrated.get(30)?.snapshot()).toStrictEqual({ cents: 100, stock: 31, name: "changed" });
  });

  test("an aborted conversion continues, even after reopening, unless the collection was written to", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    filled(db, 300);
    const run = async (stopAt: number) => {
      let calls = 0;
      const ends = new AbortController();
      await db
        .migrate("products", New, {
          key: u32,
          indexes: INDEXES,
          migrate: (old: OldProduct) => {
            calls += 1;
            if (calls === stopAt) {
              ends.abort(new Error("enough"));
              // A slice ends with the first page of records that is done after 4 ms.
              for (const until = Date.now() + 6; Date.now() < until; );
            }
            return change(old);
          },
          signal: ends.signal,
        })
        .catch((error) => expect((error as Error).message).toBe("enough"));
      return calls;
    };
    const first = await run(10);
    assert(first >= 10 && first < 300, `${first} were done`);
    expect(db.collection("products", Old, { key: u32 }).get(7)?.price).toBe(7);
    db = await reopened(db, storage, name);
    const second = await run(10);
    // Old indexes stay unchanged, and writes to them are not lost.
    const old = db.collection("products", Old, { key: u32 });
    old.updateIf(0, (product) => {
      product.name = "product 0";
    });
    const third = await run(10);
    assert(first + second < 300 && third < 300, `${first}, ${second} and ${third} were done`);
    expect(await run(-1)).toBe(300 - third);
    isConverted(db, 300);
    expect(keysOfAllKinds(db)).toBe(3 * 300);
  });

  test("rekey gives each record a new key, and an aborted run continues", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const scores = db.collection("scores", Old);
    for (let i = 0; i < 300; i++) {
      scores.set(`${i % 7}/${i}`, { price: i, stock: i % 200, name: `product ${i}` });
    }
    const ends = new AbortController();
    let calls = 0;
    const rekey = (key: string, { price }: OldProduct): [number, number] => {
      calls += 1;
      if (calls === 10) {
        ends.abort(new Error("enough"));
        for (const until = Date.now() + 6; Date.now() < until; );
      }
      return [Number(key.split("/")[0]), price];
    };
    const given = { key: [u8, desc(f64)], rekey, migrate: change, indexes: INDEXES } as const;
    await rejects(db.migrate("scores", New, { ...given, signal: ends.signal }), {
      message: "enough",
    });
    const before = calls;
    expect(db.collection("scores", Old).count()).toBe(300);
    db = await reopened(db, storage, name);
    const migrated = await db.migrate("scores", New, given);
    assert(before > 9 && calls === 300, `${before} and then ${calls - before} keys were made`);
    const keys = [...migrated.keys()];
    expect([keys.length, keys[0], keys[1], keys[299]]).toStrictEqual([
      300,
      [0, 294],
      [0, 287],
      [6, 6],
    ]);
    expect(migrated.get([3, 10])?.snapshot()).toStrictEqual({
      cents: 1000,
      stock: 10,
      name: "product 10",
    });
    expect([...migrated.index.byName.keys({ eq: "product 10" })]).toStrictEqual([[3, 10]]);
    // Nothing has to change now.
    expect((await db.migrate("scores", New, given)).count()).toBe(300);
    expect(calls).toBe(300);
    throws(() => db.collection("scores", New), MISMATCH);
  });

  test("keys stay if rekey returns a duplicate or invalid key", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", json<number>());
    notes.set("a", 1);
    notes.set("b", 1);
    await rejects(db.migrate("notes", json<number>(), { key: u32 }), MISMATCH);
    await rejects(db.migrate("notes", json<number>(), { key: u32, rekey: 5 as never }), BAD);
    const twice = { key: u32, rekey: (_: string, value: number) => value };
    await rejects(db.migrate("notes", json<number>(), twice), {
      ...BAD,
      message: /another record's key: 1/,
    });
    await rejects(db.migrate("notes", json<number>(), { key: u32, rekey: () => -1 }), BAD);
    expect([...notes.entries()]).toStrictEqual([
      ["a", 1],
      ["b", 1],
    ]);
    let next = 0;
    const rekey = () => (next += 1);
    expect([
      ...(await db.migrate("notes", json<number>(), { key: u32, rekey })).keys(),
    ]).toStrictEqual([1, 2]);
    const back = { rekey: (key: number) => `${key}` };
    expect([...(await db.migrate("notes", json<number>(), back)).keys()]).toStrictEqual(["1", "2"]);
  });

  test("versioned structs are converted with the defaults of fields that a record lacks", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const V1 = versioned("Product", { stock: u16, name: str });
    const V2 = versioned("Product", {
      ...{ stock: u16, name: str, price: added(f64, Number.NaN), sold: added(u64, 5n) },
      note: added(str, "größe"),
      tags: added(vec(str), ["new", "sale"]),
      mark: added(blob, Uint8Array.of(1, 2)),
    });
    db.collection("products", V1).set("a", { stock: 1, name: "A" });
    db.collection("products", V2).set("b", { stock: 2, name: "B", price: 1, tags: [] });
    db = await reopened(db, storage, name);
    const seen: unknown[] = [];
    await db.migrate("products", json<number>(), {
      migrate: (old: { stock: number }) => {
        seen.push(old);
        return old.stock;
      },
    });
    const both = { sold: 5n, note: "größe", mark: Uint8Array.of(1, 2) };
    expect(seen).toStrictEqual([
      { stock: 1, name: "A", price: Number.NaN, tags: ["new", "sale"], ...both },
      { stock: 2, name: "B", price: 1, tags: [], ...both },
    ]);
  });

  test("the error names the record whose value cannot be converted", async () => {
    const db = await opened(storage);
    filled(db, 300);
    const Small = struct("Product", { price: u8, stock: u8, name: str });
    await rejects(db.migrate("products", Small, { key: u32 }), {
      ...BAD,
      message: /^The record 256 of "products": Product\.price: must be an integer from 0 to 255/,
    });
  });

  test("migrate is refused inside a transaction, which would not wait for it", async () => {
    const db = await opened(storage);
    const products = filled(db, 3);
    const begin = () => db.migrate("products", New, { key: u32 });
    throws(() => db.transaction(begin as () => never), BAD);
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(products.get(1)?.price).toBe(1);
  });

  test("the collection can be read but not written to during a conversion", async () => {
    const db = await opened(storage);
    const products = filled(db, 200);
    const done = db.migrate("products", New, {
      key: u32,
      migrate: change,
      onProgress: () => {
        if (products.count() === 0) return;
        expect(products.get(7)?.price).toBe(7);
        const value = { price: 1, stock: 1, name: "" };
        throws(() => products.set(7, value), { code: "VARVE_REENTRANCY" });
        throws(() => products.delete(7), { code: "VARVE_REENTRANCY" });
        throws(() => products.updateIf(7, () => {}), { code: "VARVE_REENTRANCY" });
        throws(() => products.clear(), { code: "VARVE_REENTRANCY" });
      },
    });
    expect((await done).count()).toBe(200);
  });

  test("indexes are built while the collection is written to", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const products = filled(db, 500);
    let steps = 0;
    const indexes = { byStock: "stock", byName: { fields: "name", unique: true } } as const;
    const indexed = await db.migrate("products", Old, {
      key: u32,
      indexes,
      onProgress: ({ records }) => {
        if (records === 500) return;
        steps += 1;
        products.delete(steps);
        products.set(499 - steps, { price: 0, stock: 255, name: `changed ${steps}` });
        throws(() => db.collection("products", Old, { key: u32, indexes }), MISMATCH);
      },
    });
    assert(steps > 0);
    expect(indexed.index.byStock.count()).toBe(indexed.count());
    expect(indexed.index.byStock.count({ eq: 255 })).toBe(steps);
    expect([...indexed.index.byName.keys()]).toStrictEqual(
      [...indexed.keys()].sort(byName(indexed)),
    );
    db = await reopened(db, storage, name);
    expect(
      db.collection("products", Old, { key: u32, indexes }).index.byStock.count({ eq: 255 }),
    ).toBe(steps);
    // Other indexes are dropped; without the option they stay.
    await db.migrate("products", Old, { key: u32 });
    const less = await db.migrate("products", Old, {
      key: u32,
      indexes: { byPrice: desc("price") },
    });
    expect(less.index.byPrice.count()).toBe(less.count());
    expect(keysOfAllKinds(db)).toBe(2 * less.count());
    throws(() => db.collection("products", Old, { key: u32, indexes }), MISMATCH);
  });

  test("a unique index over equal values is refused, and the collection is as it was", async () => {
    const db = await opened(storage);
    const products = filled(db, 300);
    const indexes = { byStock: { fields: "stock", unique: true } } as const;
    await rejects(db.migrate("products", Old, { key: u32, indexes }), {
      code: "VARVE_UNIQUE_VIOLATION",
    });
    expect(keysOfAllKinds(db)).toBe(300);
    products.set(1_000, { price: 1, stock: 5, name: "more" });
    await rejects(db.migrate("products", New, { key: u32, indexes, migrate: change }), {
      code: "VARVE_UNIQUE_VIOLATION",
    });
    expect(products.get(1_000)?.name).toBe("more");
  });

  test("old indexes stay until the new ones can replace them", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    filled(db, 300);
    const before = { by: "stock", byPrice: "price" } as const;
    await db.migrate("products", Old, { key: u32, indexes: before });
    const isAsItWas = () => {
      const { index } = db.collection("products", Old, { key: u32, indexes: before });
      expect([index.by.count(), index.byPrice.count()]).toStrictEqual([300, 300]);
      expect(keysOfAllKinds(db)).toBe(3 * 300);
    };
    const unique = { by: { fields: "stock", unique: true } } as const;
    const refused = await rejects(db.migrate("products", Old, { key: u32, indexes: unique }), {
      code: "VARVE_UNIQUE_VIOLATION",
    });
    expect((refused as { index?: unknown }).index).toBe("by");
    isAsItWas();
    // An interrupted build continues, and is updated meanwhile.
    const indexes = { by: desc("stock") } as const;
    const onProgress = ({ records }: { records: number }) => {
      if (records === 300) throw new Error("stop");
    };
    await rejects(db.migrate("products", Old, { key: u32, indexes, onProgress }), {
      message: "stop",
    });
    db = await reopened(db, storage, name);
    const old = db.collection("products", Old, { key: u32, indexes: before });
    old.set(7, { price: 7, stock: 255, name: "changed" });
    expect([...old.index.by.keys({ gt: 200 })]).toStrictEqual([7]);
    const now = await db.migrate("products", Old, { key: u32, indexes });
    expect([...now.index.by.keys({ limit: 1 })]).toStrictEqual([7]);
    expect(now.index.by.count()).toBe(300);
    // A migrated collection throws and does not look empty.
    throws(() => old.index.by.count(), MISMATCH);
    throws(() => [...old.index.byPrice.keys()], MISMATCH);
    expect(old.get(7)?.name).toBe("changed");
    db = await reopened(db, storage, name);
    expect(db.collection("products", Old, { key: u32, indexes }).index.by.count()).toBe(300);
    expect(keysOfAllKinds(db)).toBe(2 * 300);
  });

  test("versioned structs are read by earlier and later versions without a migration", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const V1 = versioned("Product", { stock: u16, name: str });
    const V2 = versioned("Product", { stock: u16, name: str, price: added(f64, 9.5) });
    db.collection("products", V1).set("a", { stock: 1, name: "A" });
    db = await reopened(db, storage, name);
    const later = db.collection("products", V2);
    expect(later.get("a")?.price).toBe(9.5);
    later.set("b", { stock: 2, name: "B", price: 1 });
    later.updateIf("a", (p) => {
      p.price = 3;
    });
    db = await reopened(db, storage, name);
    const earlier = db.collection("products", V1);
    expect([...earlier.values()].map((product) => product.name)).toStrictEqual(["A", "B"]);
    db = await reopened(db, storage, name);
    expect(
      [...db.collection("products", V2).values()].map((product) => product.price),
    ).toStrictEqual([3, 1]);
    // An index of a field that the earlier version does not have.
    await db.migrate("products", V2, { indexes: { byPrice: "price" } });
    db = await reopened(db, storage, name);
    const without = db.collection("products", V1);
    expect(without.get("b")?.name).toBe("B");
    throws(() => without.set("c", { stock: 3, name: "C" }), { ...MISMATCH, message: /byPrice/ });
    throws(() => without.delete("b"), MISMATCH);
    db = await reopened(db, storage, name);
    const { byPrice } = db.collection("products", V2, { indexes: { byPrice: "price" } }).index;
    expect([...byPrice.keys()]).toStrictEqual(["b", "a"]);
  });
});

/** Keys in the order of the names that their records have. */
function byName(products: { get(key: number): { readonly name: string } | undefined }) {
  return (a: number, b: number) => {
    const [one, other] = [products.get(a)?.name ?? "", products.get(b)?.name ?? ""];
    return one < other ? -1 : 1;
  };
}
