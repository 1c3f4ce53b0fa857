import type { Database } from "varve";
import {
  blob,
  desc,
  enum8,
  f64,
  fixedStr,
  json,
  option,
  str,
  struct,
  u16,
  u32,
} from "varve/struct";
import { expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const TAKEN = { code: "VARVE_UNIQUE_VIOLATION" } as const;
const MISMATCH = { code: "VARVE_SCHEMA_MISMATCH" } as const;

const Product = struct("Product", {
  price: f64,
  stock: u16,
  brand: str,
  sku: u32,
  size: option(enum8("S", "M", "L")),
});

const INDEXES = {
  byPrice: "price",
  byBrandStock: ["brand", desc("stock")],
  bySku: { fields: "sku", unique: true },
  bySize: "size",
} as const;

const productsOf = (db: Database) => db.collection("products", Product, { indexes: INDEXES });

function filledProducts(db: Database) {
  const products = productsOf(db);
  products.set("a", { price: 10, stock: 5, brand: "Nike", sku: 1, size: "S" });
  products.set("b", { price: -2.5, stock: 7, brand: "Adidas", sku: 2, size: "L" });
  products.set("c", { price: 10, stock: 9, brand: "Nike", sku: 3 });
  products.set("d", { price: 1e9, stock: 0, brand: "Nik", sku: 4, size: "M" });
  return products;
}

everywhere("an index", ({ storage }) => {
  test("an index orders records by its fields, then by their keys", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    filledProducts(db);
    for (const again of [false, true]) {
      if (again) db = await reopened(db, storage, name);
      const { byPrice, byBrandStock, bySku, bySize } = productsOf(db).index;
      expect([...byPrice.keys()]).toStrictEqual(["b", "a", "c", "d"]);
      expect([...byPrice.keys({ reverse: true })]).toStrictEqual(["d", "c", "a", "b"]);
      expect([...byPrice.keys({ gte: 10, lt: 1e9 })]).toStrictEqual(["a", "c"]);
      expect([...byPrice.keys({ eq: 10 })]).toStrictEqual(["a", "c"]);
      expect([...byPrice.keys({ gt: 10 })]).toStrictEqual(["d"]);
      expect([...byPrice.keys({ lte: 10, limit: 2 })]).toStrictEqual(["b", "a"]);
      expect([...byBrandStock.keys()]).toStrictEqual(["b", "d", "c", "a"]);
      expect([...byBrandStock.keys({ eq: ["Nike"] })]).toStrictEqual(["c", "a"]);
      expect([...byBrandStock.keys({ eq: ["Nike", 5] })]).toStrictEqual(["a"]);
      expect([...byBrandStock.keys({ gte: ["Nik"], lt: ["Nike"] })]).toStrictEqual(["d"]);
      expect([...byBrandStock.keys({ gt: ["Nike", 9] })]).toStrictEqual(["a"]);
      expect(bySku.get(3)?.brand).toBe("Nike");
      expect(bySku.get(5)).toBe(undefined);
      expect([...bySize.keys()]).toStrictEqual(["c", "a", "d", "b"]);
      expect([...bySize.keys({ gte: "M" })]).toStrictEqual(["d", "b"]);
      expect([...bySize.keys({ eq: null })]).toStrictEqual(["c"]);
      expect(bySize.get(undefined)?.sku).toBe(3);
      throws(() => byPrice.get(undefined as never), BAD);
      expect(byPrice.count()).toBe(4);
      expect(byPrice.count({ eq: 10 })).toBe(2);
      expect([...byPrice.entries({ gt: 0 })].map(([key, { stock }]) => [key, stock])).toStrictEqual(
        [
          ["a", 5],
          ["c", 9],
          ["d", 0],
        ],
      );
      expect([...byPrice.values()].map(({ sku }) => sku)).toStrictEqual([2, 1, 3, 4]);
      expect(db.count()).toBe(0);
    }
  });

  test("an index follows every kind of write", async () => {
    const db = await opened(storage);
    const products = filledProducts(db);
    const { byPrice, byBrandStock } = products.index;
    products.updateIf("a", (p) => {
      p.price = 2e9;
    });
    expect([...byPrice.keys()]).toStrictEqual(["b", "c", "d", "a"]);
    products.updateIf("b", (p) => {
      p.brand = "Puma and a longer name";
    });
    expect([...byBrandStock.keys()]).toStrictEqual(["d", "c", "a", "b"]);
    products.updateIf("c", (p) => ({ ...p.snapshot(), price: 3e9, brand: "A" }));
    expect([...byPrice.keys()]).toStrictEqual(["b", "d", "a", "c"]);
    expect([...byBrandStock.keys()]).toStrictEqual(["c", "d", "a", "b"]);
    products.updateIf("e", () => {}, {
      valueIfMissing: { price: -10, stock: 1, brand: "", sku: 5 },
    });
    expect([...byPrice.keys({ limit: 1 })]).toStrictEqual(["e"]);
    products.set("e", { price: 0, stock: 1, brand: "Z", sku: 5 });
    expect([...byPrice.keys()]).toStrictEqual(["b", "e", "d", "a", "c"]);
    products.delete("d");
    expect(products.delete("d")).toBe(false);
    products.batch([
      { type: "delete", key: "e" },
      { type: "set", key: "f", value: { price: 5, stock: 2, brand: "Z", sku: 6 } },
    ]);
    expect([...byPrice.keys()]).toStrictEqual(["b", "f", "a", "c"]);
    expect(products.clear({ gte: "b", lt: "f" })).toBe(2);
    expect([...byPrice.keys()]).toStrictEqual(["f", "a"]);
    expect(products.clear()).toBe(2);
    expect([...byPrice.keys()]).toStrictEqual([]);
    expect(byBrandStock.count()).toBe(0);
  });

  test("an index is restored when writes are rolled back", async () => {
    const db = await opened(storage);
    const products = filledProducts(db);
    const { byPrice, bySku } = products.index;
    throws(
      () =>
        db.transaction(() => {
          products.delete("a");
          products.updateIf("b", (p) => {
            p.price = 100;
          });
          products.clear();
          filledProducts(db);
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    throws(
      () =>
        products.updateIf("a", (p) => {
          p.price = 0;
          throw new Error("no");
        }),
      { message: "no" },
    );
    expect(products.updateIf("a", () => {}, { predicate: () => false })).toBe(false);
    throws(() => products.updateIf("a", (p) => ({ ...p.snapshot(), price: Number.NaN })), BAD);
    throws(() => products.set("x", { price: Number.NaN, stock: 1, brand: "", sku: 9 }), BAD);
    expect(products.has("x")).toBe(false);
    expect([...byPrice.keys()]).toStrictEqual(["b", "a", "c", "d"]);
    expect([...bySku.keys()]).toStrictEqual(["a", "b", "c", "d"]);
    expect(products.get("a")?.price).toBe(10);
  });

  test("a unique index refuses a second record, and nothing is written", async () => {
    const db = await opened(storage);
    const products = filledProducts(db);
    const taken = { price: 0, stock: 0, brand: "", sku: 2 };
    throws(() => products.set("x", taken), {
      ...TAKEN,
      message: /"products".*sku.*2.*"bySku"/s,
    });
    throws(() => products.set("a", taken), TAKEN);
    throws(
      () =>
        products.updateIf("a", (p) => {
          p.sku = 2;
        }),
      TAKEN,
    );
    throws(
      () =>
        products.batch([
          { type: "delete", key: "a" },
          { type: "set", key: "x", value: taken },
        ]),
      TAKEN,
    );
    expect([...products.keys()]).toStrictEqual(["a", "b", "c", "d"]);
    expect([...products.index.byPrice.keys()]).toStrictEqual(["b", "a", "c", "d"]);
    expect(products.get("a")?.sku).toBe(1);
    products.set("b", { ...taken, price: 3 });
    db.transaction(() => {
      products.delete("b");
      products.set("x", taken);
    });
    expect([...products.index.bySku.keys()]).toStrictEqual(["a", "x", "c", "d"]);
  });

  test("a record that moves during an iteration is seen once, where it was", async () => {
    const db = await opened(storage);
    const products = filledProducts(db);
    for (let i = 0; i < 500; i++) {
      products.set(`${i}`, { price: 20 + i, stock: 1, brand: "Puma", sku: 100 + i });
    }
    const before = [...products.index.byPrice.keys()];
    const seen: string[] = [];
    for (const key of products.index.byPrice.keys()) {
      seen.push(key);
      products.updateIf(key, (product) => {
        product.price += 7.5;
      });
      // New entries ahead of the iteration are skipped too.
      products.set(`new ${key}`, { price: 5e9, stock: 1, brand: "Puma", sku: 9000 + seen.length });
    }
    expect(seen).toStrictEqual(before);
    expect(products.get("0")?.price).toBe(27.5);
    const down: string[] = [];
    for (const key of products.index.byPrice.keys({ reverse: true, lt: 1e9 })) {
      down.push(key);
      products.updateIf(key, (product) => {
        product.price -= 7.5;
      });
      if (key === "100") products.delete("50");
    }
    expect(down).toStrictEqual(before.filter((key) => key !== "d" && key !== "50").reverse());
  });

  test("paging with after passes through equal values", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product, { key: u32, indexes: INDEXES });
    for (let i = 0; i < 30; i++) {
      products.set(i, { price: Math.floor(i / 10), stock: 0, brand: `b${i % 3}`, sku: i });
    }
    const pages = (reverse: boolean) => {
      const seen: number[] = [];
      for (let after: readonly [number, number] | undefined; ; ) {
        const page = [...products.index.byPrice.entries({ after, reverse, limit: 4 })];
        if (page.length === 0) return seen;
        seen.push(...page.map(([key]) => key));
        const [key, product] = page.at(-1) as (typeof page)[number];
        after = [product.price, key];
      }
    };
    const all = Array.from({ length: 30 }, (_, i) => i);
    expect(pages(false)).toStrictEqual(all);
    expect(pages(true)).toStrictEqual(all.reverse());
    expect(
      [...products.index.byBrandStock.keys({ after: [["b1", 0], 25] })].slice(0, 2),
    ).toStrictEqual([28, 2]);
  });

  test("an index of text supports prefixes", async () => {
    const db = await opened(storage);
    const Word = struct("Word", { text: str });
    const words = db.collection("words", Word, {
      indexes: { up: "text", down: desc("text") },
    });
    for (const text of ["a", "ab", "ab\u0000", "abc", "b", "ž", "žluť"]) words.set(text, { text });
    expect([...words.index.up.keys({ prefix: "ab" })]).toStrictEqual(["ab", "ab\u0000", "abc"]);
    expect([...words.index.up.keys({ eq: "ab" })]).toStrictEqual(["ab"]);
    expect([...words.index.up.keys({ prefix: "ž", gt: "ž" })]).toStrictEqual(["žluť"]);
    expect([...words.index.down.keys({ prefix: "ab" })]).toStrictEqual(["abc", "ab\u0000", "ab"]);
    expect([...words.index.down.keys({ lt: "b" })]).toStrictEqual(["žluť", "ž"]);
  });

  test("an index of optional text, fixed text or bytes supports prefixes", async () => {
    const db = await opened(storage);
    const Word = struct("Word", { maybe: option(str), code: fixedStr(3), raw: blob });
    const words = db.collection("words", Word, {
      indexes: { byMaybe: "maybe", down: desc("maybe"), byCode: "code", byRaw: "raw" },
    });
    for (const code of ["a", "ab", "abc", "b"]) {
      words.set(code, { maybe: code, code, raw: new TextEncoder().encode(code) });
    }
    words.set("none", { maybe: undefined, code: "", raw: new Uint8Array(0) });
    const { byMaybe, down, byCode, byRaw } = words.index;
    expect([...byMaybe.keys({ prefix: "ab" })]).toStrictEqual(["ab", "abc"]);
    expect([...down.keys({ prefix: "ab" })]).toStrictEqual(["abc", "ab"]);
    expect([...byCode.keys({ prefix: "ab" })]).toStrictEqual(["ab", "abc"]);
    expect([...byRaw.keys({ prefix: new TextEncoder().encode("ab") })]).toStrictEqual([
      "ab",
      "abc",
    ]);
    // A missing value has no prefix.
    expect([
      byMaybe.count({ prefix: "" }),
      byMaybe.count(),
      byCode.count({ prefix: "" }),
    ]).toStrictEqual([4, 5, 5]);
  });

  test("an index is updated by programs that do not declare it", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    filledProducts(db);
    db = await reopened(db, storage, name);
    const plain = db.collection("products", Product);
    plain.delete("a");
    plain.updateIf("b", (p) => {
      p.price = 100;
    });
    throws(() => plain.set("x", { price: 0, stock: 0, brand: "", sku: 2 }), TAKEN);
    expect([...productsOf(db).index.byPrice.keys()]).toStrictEqual(["c", "b", "d"]);
  });

  test("declaring an index is refused if records exist without it or its definition differs", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const plain = db.collection("products", Product);
    plain.set("a", { price: 1, stock: 1, brand: "", sku: 1 });
    throws(() => productsOf(db), { ...MISMATCH, message: /byPrice.*db\.migrate/ });
    plain.clear();
    filledProducts(db);
    db = await reopened(db, storage, name);
    const other = { ...INDEXES, byPrice: "stock" } as const;
    throws(() => db.collection("products", Product, { indexes: other }), MISMATCH);
    throws(() => db.collection("products", Product, { indexes: { more: "sku" } }), MISMATCH);
    expect([...productsOf(db).index.byPrice.keys()]).toStrictEqual(["b", "a", "c", "d"]);
  });

  test("an index may be over a field of a nested struct, by its path", async () => {
    const name = freshName();
    const Size = struct("Size", { width: u16, height: u16 });
    const Case = struct("Case", { outer: Size, inner: Size });
    const Box = struct("Box", { label: str, size: Size, case: Case });
    const boxesOf = (of: Database) =>
      of.collection("boxes", Box, {
        indexes: {
          byWidth: "size.width",
          byHeight: { fields: ["case.inner.height", desc("size.height")], unique: true },
        },
      });
    const box = (width: number, height: number, inner: number) => ({
      label: "",
      size: { width, height },
      case: { outer: { width, height }, inner: { width: 1, height: inner } },
    });
    let db = await opened(storage, {}, name);
    boxesOf(db).set("a", box(3, 1, 7));
    boxesOf(db).set("b", box(1, 5, 6));
    boxesOf(db).set("c", box(2, 9, 6));
    for (const again of [false, true]) {
      if (again) db = await reopened(db, storage, name);
      const boxes = boxesOf(db);
      expect([...boxes.index.byWidth.keys()]).toStrictEqual(["b", "c", "a"]);
      expect([...boxes.index.byWidth.keys({ gte: 2 })]).toStrictEqual(["c", "a"]);
      expect(boxes.index.byWidth.get(3)?.size.height).toBe(1);
      expect([...boxes.index.byHeight.keys()]).toStrictEqual(["c", "b", "a"]);
      expect([...boxes.index.byHeight.keys({ eq: [6] })]).toStrictEqual(["c", "b"]);
      const taken = { ...TAKEN, message: /case\.inner\.height and size\.height/ };
      throws(() => boxes.set("d", box(0, 9, 6)), taken);
      expect(boxes.count()).toBe(3);
    }
    boxesOf(db).updateIf("a", (b) => {
      b.size.width = 0;
    });
    boxesOf(db).updateIf("b", (b) => {
      b.assign({ size: { width: 9, height: 5 } });
    });
    expect([...boxesOf(db).index.byWidth.keys()]).toStrictEqual(["a", "c", "b"]);
    for (const path of ["size.depth", "size", "size.", ".width", "label.width", "case.width"]) {
      throws(() => db.collection("others", Box, { indexes: { x: path } } as never), BAD);
    }
  });

  test("an index needs fields that exist and can be sorted", async () => {
    const db = await opened(storage);
    const Inner = struct("Inner", { a: u16 });
    const Outer = struct("Outer", { inner: Inner });
    for (const indexes of [
      { x: "none" },
      { x: [] },
      { x: 1 },
      { x: { fields: "price", uniq: 1 } },
      1,
    ]) {
      throws(() => db.collection("products", Product, { indexes } as never), BAD);
    }
    throws(() => db.collection("outer", Outer, { indexes: { x: "inner" } } as never), BAD);
    throws(() => db.collection("json", json(), { indexes: { x: "a" } } as never), BAD);
    const products = productsOf(db);
    throws(() => products.index.byPrice.keys({ gt: "1" } as never), BAD);
    throws(() => products.index.byPrice.keys({ above: 1 } as never), BAD);
    throws(() => products.index.byBrandStock.keys({ eq: "Nike" } as never), BAD);
    throws(() => products.index.byPrice.keys({ after: 1 } as never), BAD);
    const points = await opened(storage, { ordered: false });
    throws(() => productsOf(points), BAD);
  });
});
