import {
  array,
  blob,
  eq,
  fixedStr,
  json,
  option,
  str,
  struct,
  u16,
  u32,
  type View,
  vec,
  type Writable,
} from "varve/struct";
import { assert, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

const Product = struct("Product", { stock: u16, name: str });
const Size = struct("Size", { width: u16, height: u16 });
const Order = struct("Order", { size: Size, sides: array(u16, 2), tags: vec(str) });
const YEEZY = { stock: 20_001, name: "Yeezy Boost 350 V2" };

const buyOne = (product: Writable<typeof Product>) => {
  product.stock -= 1;
};

everywhere("a collection of structs", ({ storage }) => {
  test("records are read and changed in place", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    let products = db.collection("products", Product);
    products.set("yeezy", YEEZY);
    expect(products.get("yeezy")?.stock).toBe(20_001);
    expect(products.get("yeezy")?.name).toBe("Yeezy Boost 350 V2");
    const buy = () =>
      products.updateIf("yeezy", buyOne, {
        predicate: (p) => p.stock > 19_999,
      });
    expect([buy(), buy(), buy()]).toStrictEqual([true, true, false]);
    db = await reopened(db, storage, name);
    products = db.collection("products", Product);
    expect(products.get("yeezy")?.snapshot()).toStrictEqual({ ...YEEZY, stock: 19_999 });
    expect(products.get("none")).toBe(undefined);
  });

  test("an update changes the length of a text, or the whole value", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product);
    products.set("yeezy", YEEZY);
    for (const text of ["", "short", "long ".repeat(1_000), "🐎"]) {
      products.updateIf("yeezy", (p) => {
        p.name = text;
        p.stock += 1;
      });
      expect(products.get("yeezy")?.name).toBe(text);
    }
    expect(products.get("yeezy")?.stock).toBe(20_005);
    products.updateIf("yeezy", (p) => ({ stock: p.stock, name: `${p.name}!` }));
    expect(products.get("yeezy")?.snapshot()).toStrictEqual({ stock: 20_005, name: "🐎!" });
    products.updateIf(
      "new",
      (p) => {
        p.stock += 1;
      },
      {
        valueIfMissing: { stock: 1, name: "" },
      },
    );
    expect(products.get("new")?.stock).toBe(2);
  });

  test("a shorter text leaves no bytes of the longer one that it replaces", async () => {
    const db = await opened(storage);
    const Name = struct("Name", { name: fixedStr(300), id: u16 });
    const names = db.collection("names", Name);
    const long = "long ".repeat(60);
    for (const name of ["short", "🐎", ""]) {
      // A refused record lies where the next one is written.
      throws(() => names.set("one", { name: long, id: -1 }), BAD);
      names.set("one", { name, id: 1 });
      // Nonzero bytes after the text would be refused here.
      expect(names.get("one")?.snapshot()).toStrictEqual({ name, id: 1 });
      names.set("one", { name: long, id: 2 });
      names.set("one", { name, id: 3 });
      expect(names.get("one")?.snapshot()).toStrictEqual({ name, id: 3 });
    }
    const Line = struct("Line", { title: fixedStr(16), text: str });
    const notes = db.collection("notes", struct("Note", { lines: array(Line, 1) }));
    notes.set("one", { lines: [{ title: "a long title", text: "text" }] });
    notes.updateIf("one", (note) => {
      note.assign({ lines: [{ title: "short", text: "another text" }] });
      expect(note.lines.at(0)?.title).toBe("short");
    });
    expect(notes.get("one")?.snapshot()).toStrictEqual({
      lines: [{ title: "short", text: "another text" }],
    });
  });

  test("fields are taken in any order, also from a prototype", async () => {
    const db = await opened(storage);
    const sizes = db.collection("sizes", Size);
    class Square {
      readonly width = 7;
      get height() {
        return this.width;
      }
    }
    const values = [
      { width: 3, height: 4 },
      { height: 4, width: 3 },
      { depth: 5, width: 3, height: 4 },
      { width: 3, depth: 5, height: 4 },
      { width: 3, height: 4, depth: 5 },
      Object.create({ width: 3, height: 4 }),
      Object.create({ width: 3 }, { height: { value: 4, enumerable: false } }),
    ];
    for (const value of values) {
      sizes.set("one", value);
      expect(sizes.get("one")?.snapshot()).toStrictEqual({ width: 3, height: 4 });
    }
    sizes.set("one", new Square());
    expect(sizes.get("one")?.snapshot()).toStrictEqual({ width: 7, height: 7 });
    throws(() => sizes.set("one", { height: 4 } as never), { ...BAD, message: /^Size\.width: / });
    throws(() => sizes.set("one", { width: 4 } as never), { ...BAD, message: /^Size\.height: / });
    expect(sizes.get("one")?.snapshot()).toStrictEqual({ width: 7, height: 7 });
  });

  test("a throwing callback restores every byte", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product);
    products.set("yeezy", YEEZY);
    for (const change of [{ stock: 1 }, { name: "other" }, { name: "Yeezy Boost 350 V3" }]) {
      throws(
        () =>
          products.updateIf("yeezy", (p) => {
            p.assign(change);
            throw new Error("no");
          }),
        { message: "no" },
      );
      throws(
        () =>
          products.updateIf("yeezy", (p) => {
            p.stock = 65_536;
          }),
        BAD,
      );
      expect(products.get("yeezy")?.snapshot()).toStrictEqual(YEEZY);
    }
    expect(products.updateIf("yeezy", () => {}, { predicate: (p) => p.name === "another" })).toBe(
      false,
    );
    expect(products.get("yeezy")?.snapshot()).toStrictEqual(YEEZY);
  });

  test("views refuse assignment, and end when they may", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product);
    products.set("yeezy", YEEZY);
    const view = products.get("yeezy") as { stock: number };
    throws(() => {
      view.stock = 1;
    }, BAD);
    let kept: { stock: number } | undefined;
    products.updateIf("yeezy", (p) => {
      kept = p;
    });
    throws(() => kept?.stock, { code: "VARVE_STALE_VIEW" });
    throws(
      () => {
        (kept as { stock: number }).stock = 1;
      },
      { code: "VARVE_STALE_VIEW" },
    );
    const last = products.get("yeezy");
    await db.close();
    throws(() => last?.stock, { code: "VARVE_STALE_VIEW" });
  });

  test("views of an ended update stay ended in every later one", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product);
    const archive = db.collection("archive", Product);
    const orders = db.collection("orders", Order);
    for (const collection of [products, archive]) {
      for (const key of ["yeezy", "other"]) collection.set(key, YEEZY);
    }
    const order = { size: { width: 1, height: 2 }, sides: [1, 2], tags: ["a"] };
    for (const key of ["first", "second"]) orders.set(key, order);

    const uses: (() => unknown)[] = [];
    products.updateIf("yeezy", (p) => {
      uses.push(
        () => p.stock,
        () => p.name,
        () => (p.stock = 1),
        () => (p.name = "Yeezy Boost 350 V3"),
        () => p.snapshot(),
        () => JSON.stringify(p),
        () => p.assign({ stock: 1 }),
        () => eq(p, "name", "Yeezy"),
        () => Product.encode(p),
      );
    });
    orders.updateIf("first", (one) => {
      const { size, sides, tags } = one;
      uses.push(
        () => one.size,
        () => one.sides,
        () => one.assign({ tags: ["b"] }),
        () => size.width,
        () => (size.width = 9),
        () => sides.at(0),
        () => sides.set(0, 9),
        () => [...tags],
        () => tags.set(0, "b"),
      );
    });
    const allEnded = () => {
      for (const use of uses) throws(use, { code: "VARVE_STALE_VIEW" });
    };
    allEnded();
    const check = () => allEnded();
    const refuse = () => {
      allEnded();
      return false;
    };
    for (const key of ["yeezy", "other"]) {
      for (const collection of [products, archive]) {
        assert(collection.updateIf(key, check));
        assert(!collection.updateIf(key, check, { predicate: refuse }));
        allEnded();
      }
    }
    for (const key of ["first", "second"]) {
      assert(orders.updateIf(key, check));
      // A value that has moved and an aborted update end their views, too.
      assert(
        orders.updateIf(key, (one) => {
          one.assign({ tags: ["a", "b"] });
          allEnded();
        }),
      );
      throws(
        () =>
          orders.updateIf(key, (one) => {
            one.size.width = 9;
            allEnded();
            throw new Error("no");
          }),
        { message: "no" },
      );
      allEnded();
    }
    for (const collection of [products, archive]) {
      for (const key of ["yeezy", "other"])
        expect(collection.get(key)?.snapshot()).toStrictEqual(YEEZY);
    }
    expect(orders.get("second")?.snapshot()).toStrictEqual({ ...order, tags: ["a", "b"] });
  });

  test("nested updates in several databases do not affect each other", async () => {
    const filled = async () => {
      const products = (await opened(storage)).collection("products", Product);
      products.set("yeezy", YEEZY);
      return products;
    };
    const [outer, middle, inner] = await Promise.all([filled(), filled(), filled()]);
    const kept: { stock: number }[] = [];
    for (let round = 1; round <= 3; round++) {
      outer.updateIf("yeezy", (first) => {
        first.stock = round;
        middle.updateIf("yeezy", (second) => {
          second.name = `the second, number ${round}`;
          inner.updateIf("yeezy", (third) => {
            third.stock = 3 * round;
            first.stock += 100;
            kept.push(third);
          });
          second.stock = 2 * round;
          throws(() => kept.at(-1)?.stock, { code: "VARVE_STALE_VIEW" });
          kept.push(second);
        });
        expect(first.stock).toBe(100 + round);
        first.name = `the first, number ${round}`;
        kept.push(first);
        for (const one of kept.slice(0, -1)) {
          throws(() => (one.stock = 7), { code: "VARVE_STALE_VIEW" });
        }
      });
      expect(
        [outer, middle, inner].map((products) => products.get("yeezy")?.snapshot()),
      ).toStrictEqual([
        { stock: 100 + round, name: `the first, number ${round}` },
        { stock: 2 * round, name: `the second, number ${round}` },
        { stock: 3 * round, name: YEEZY.name },
      ]);
      for (const one of kept) throws(() => one.stock, { code: "VARVE_STALE_VIEW" });
    }
  });

  test("a view never shows another record, however much is written", async () => {
    const db = await opened(storage, { memory: 4 << 20 });
    const products = db.collection("products", Product);
    products.set("yeezy", YEEZY);
    let view = products.get("yeezy");
    let expired = 0;
    for (let i = 0; i < 20; i++) {
      for (let j = 0; j < 5; j++)
        products.set(`key ${i} ${j}`, { stock: j, name: "x".repeat(40_000) });
      db.set(`raw ${i}`, filled(40_000, 7));
      products.updateIf("yeezy", buyOne);
      await turn();
      try {
        const stock = view?.stock as number;
        assert(stock <= 20_001 && stock >= 20_001 - i - 1, `it shows ${stock}`);
        expect(view?.name).toBe(YEEZY.name);
      } catch (error) {
        expect((error as { code?: string }).code).toBe("VARVE_STALE_VIEW");
        expired += 1;
        view = products.get("yeezy");
      }
    }
    assert(expired > 0, "its memory was used again");
    expect(products.get("yeezy")?.stock).toBe(20_001 - 20);
  });

  test("strict views: all views end at every yield", async () => {
    const db = await opened(storage, { strictViews: true });
    const products = db.collection("products", Product);
    products.set("yeezy", YEEZY);
    const view = products.get("yeezy");
    expect(view?.stock).toBe(20_001);
    products.updateIf("yeezy", buyOne);
    expect(products.get("yeezy")?.stock).toBe(20_000);
    await turn();
    throws(() => view?.stock, { code: "VARVE_STALE_VIEW" });
    for (const [, one] of products.entries()) expect(one.stock).toBe(20_000);
  });

  test("strict views: a view of an iteration ends at the next step, alone", async () => {
    const db = await opened(storage, { strictViews: true });
    const indexes = { byStock: "stock" } as const;
    const products = db.collection("products", Product, { indexes });
    for (const [index, key] of ["a", "b", "c"].entries()) {
      products.set(key, { stock: index, name: `${key}${key}` });
    }
    const { byStock } = products.index;
    const stale = { code: "VARVE_STALE_VIEW" };
    for (const scan of [products.values(), byStock.values(), byStock.values({ reverse: true })]) {
      const first = products.get("a");
      let before: View<typeof Product> | undefined;
      for (const product of scan) {
        expect(product.name.length).toBe(2);
        if (before !== undefined) {
          throws(() => before?.stock, stale);
          throws(() => before?.name, stale);
          throws(() => before?.snapshot(), stale);
        }
        before = product;
      }
      throws(() => before?.stock, stale);
      expect(first?.stock).toBe(0);
    }
    for (const [, product] of [...products.entries(), ...byStock.entries()]) {
      throws(() => product.name, stale);
    }
    // Index.get() is not a step of any iteration.
    const found = byStock.get(1);
    expect(found?.name).toBe("bb");
    expect(byStock.get(2)?.name).toBe("cc");
    expect(found?.name).toBe("bb");
    await turn();
    throws(() => found?.name, stale);
    products.set("copy", { stock: 9, name: "" });
    for (const product of products.values({ limit: 1 })) products.set("copy", product);
    expect(products.get("copy")?.snapshot()).toStrictEqual({ stock: 0, name: "aa" });
  });

  test("strict views: an update that assigns to an unknown field throws", async () => {
    const db = await opened(storage, { strictViews: true });
    const products = db.collection("products", Product);
    products.set("yeezy", YEEZY);
    const misspelt = (product: Writable<typeof Product>) => {
      product.stock = 1;
      (product as unknown as { sotck: number }).sotck = 9;
    };
    throws(() => products.updateIf("yeezy", misspelt), {
      name: "TypeError",
      message: /sotck|extensible/,
    });
    expect(products.get("yeezy")?.snapshot()).toStrictEqual(YEEZY);
    assert(products.updateIf("yeezy", buyOne));
    assert(products.updateIf("yeezy", (product) => product.assign({ name: "another length" })));
    expect(products.get("yeezy")?.snapshot()).toStrictEqual({
      stock: 20_000,
      name: "another length",
    });
    const notes = db.collection("notes", json<{ b?: number }>());
    notes.set("a", {});
    notes.updateIf("a", (note) => {
      note.b = 1;
    });
    expect(notes.get("a")).toStrictEqual({ b: 1 });
  });

  test("an invalid value writes nothing, and the error names the field", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product);
    const bad: [unknown, RegExp][] = [
      [{ stock: -1, name: "" }, /Product\.stock/],
      [{ stock: 1 }, /Product\.name/],
      [{ stock: 1, name: "\ud800" }, /Product\.name/],
      [undefined, /Product/],
    ];
    for (const [value, message] of bad) {
      throws(() => products.set("yeezy", value as typeof YEEZY), { ...BAD, message });
    }
    const hostile = {
      get stock(): number {
        db.set("raw", "x");
        return 1;
      },
      name: "",
    };
    const stocks = db.collection("stocks", struct("Stock", { stock: u16 }));
    throws(() => stocks.set("yeezy", hostile), { code: "VARVE_REENTRANCY" });
    expect(stocks.count() + products.count()).toBe(0);
    expect(db.count()).toBe(0);
    // All out-of-line parts are read before the database is written to.
    products.set("yeezy", hostile);
    expect(db.getText("raw")).toBe("x");
    expect(products.get("yeezy")?.snapshot()).toStrictEqual({ stock: 1, name: "" });
    products.set("yeezy", YEEZY);
    products.set("copy", products.get("yeezy") as unknown as typeof YEEZY);
    expect(products.get("copy")?.snapshot()).toStrictEqual(YEEZY);
  });

  test("an object spread from a view is refused, because absent fields would be lost silently", async () => {
    const db = await opened(storage);
    const Offer = struct("Offer", { stock: u16, price: option(u16) });
    const offers = db.collection("offers", Offer);
    offers.set("a", { stock: 1, price: 5 });
    const spread = () => ({ ...offers.get("a"), stock: 2 });
    const refused = { code: "VARVE_BAD_ARGUMENT", message: /view\.snapshot\(\)/ };
    throws(() => offers.set("a", spread()), refused);
    throws(() => offers.updateIf("a", (offer) => ({ ...offer, stock: 2 })), refused);
    let ended: object = {};
    let within: object = {};
    offers.updateIf("a", (offer) => {
      ended = offer;
      within = { ...offer, stock: 2 };
    });
    throws(() => offers.set("a", { ...ended, stock: 2 }), refused);
    throws(() => offers.set("a", { ...within, stock: 2 }), refused);
    const elsewhere = Offer.view(Offer.encode({ stock: 1, price: 6 }));
    throws(() => offers.set("a", { ...elsewhere, stock: 2 }), refused);
    const copies = db.collection("copies", json<unknown>());
    throws(() => copies.set("a", { ...elsewhere }), refused);
    for (const value of [
      { $v: 1 },
      { $v: null },
      { $v: { m: null } },
      { $v: { m: { data: 1 } } },
    ]) {
      copies.set("a", value);
      expect(copies.get("a")).toStrictEqual(value);
    }
    expect(offers.get("a")?.snapshot()).toStrictEqual({ stock: 1, price: 5 });
    offers.updateIf("a", (offer) => ({ ...offer.snapshot(), stock: 2 }));
    expect(offers.get("a")?.snapshot()).toStrictEqual({ stock: 2, price: 5 });
  });

  test("spreading or cloning a view throws and gives no access to the memory", async () => {
    const db = await opened(storage);
    const orders = db.collection("orders", Order);
    const order = { size: { width: 1, height: 2 }, sides: [1, 2], tags: ["a"] };
    orders.set("one", order);
    const refused = { ...BAD, message: /\{ \.\.\.view\.snapshot\(\)/ };
    const refuses = (view: object) => {
      throws(() => structuredClone(view), { name: "DataCloneError" });
      throws(() => structuredClone({ rows: [{ ...view }] }), { name: "DataCloneError" });
      throws(() => JSON.stringify({ ...view, id: 1 }), refused);
    };
    const all = (view: View<typeof Order> | undefined) => {
      for (const one of [view, view?.size, view?.sides, view?.tags]) refuses(one as object);
      expect(JSON.parse(JSON.stringify({ rows: [view] }))).toStrictEqual({ rows: [order] });
      expect(structuredClone({ ...view?.snapshot(), id: 1 }) as unknown).toStrictEqual({
        ...order,
        id: 1,
      });
    };
    all(orders.get("one"));
    all(Order.view(Order.encode(order)));
    orders.updateIf("one", (view) => {
      all(view as unknown as View<typeof Order>);
      view.assign({ tags: ["another length"] });
      refuses(view);
    });
    const notes = db.collection("notes", json<unknown>());
    throws(() => notes.set("a", { orders: [{ ...orders.get("one") }] }), refused);
    expect(notes.count()).toBe(0);
  });

  test("a page of copies made during an iteration is right, however large the records are", async () => {
    const db = await opened(storage, { memory: 1 << 20 });
    const Photo = struct("Photo", { id: u32, pixels: blob });
    const photos = db.collection("photos", Photo, { key: u32 });
    for (let id = 0; id < 12; id++) {
      photos.set(id, { id, pixels: filled(700_000, id) });
      await db.committed;
    }
    const range = { after: 1, limit: 10 };
    const page = Array.from(photos.entries(range), ([key, photo]) => ({
      key,
      ...photo.snapshot(),
    }));
    const isWhole = (byte: number, { id, pixels }: (typeof page)[number]) =>
      id === byte && pixels.length === 700_000 && pixels.every((one) => one === byte);
    expect(page.map((photo) => isWhole(photo.key, photo))).toStrictEqual(
      Array<boolean>(10).fill(true),
    );
  });

  test("a ref shows its record across yields and writes", async () => {
    const name = freshName();
    const db = await opened(storage, { memory: 4 << 20 }, name);
    const products = db.collection("products", Product);
    const ref = products.ref("yeezy");
    expect(products.ref("yeezy").value).toBe(undefined);
    products.set("yeezy", YEEZY);
    expect(ref.value, "as long as nothing is written").toBe(ref.value);
    expect(ref.value?.stock).toBe(20_001);
    for (let i = 1; i <= 20; i++) {
      await turn();
      products.updateIf("yeezy", buyOne);
      expect(ref.value?.stock).toBe(20_001 - i);
      for (let j = 0; j < 10; j++)
        products.set(`${i} ${j}`, { stock: 0, name: "x".repeat(40_000) });
      expect(ref.value?.stock).toBe(20_001 - i);
    }
    await db.compact();
    expect(ref.value?.stock).toBe(19_981);
    throws(
      () =>
        db.transaction(() => {
          products.delete("yeezy");
          assert(!ref.value, "it was deleted");
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    expect(ref.value?.stock).toBe(19_981);
    products.set("yeezy", YEEZY);
    expect(ref.value?.name).toBe(YEEZY.name);
    const other = await opened(storage, { memory: 4 << 20 }, name);
    await db.close();
    throws(() => ref.value, { code: "VARVE_DATABASE_CLOSED" });
    await other.close();
    throws(() => ref.value, { code: "VARVE_DATABASE_CLOSED" });
  });

  test("a ref keeps its key if the program changes the array", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product, { key: [u32, str] });
    const key: [number, string] = [1, "a"];
    const ref = products.ref(key);
    key[0] = 2;
    products.set([1, "a"], YEEZY);
    expect(ref.value?.stock).toBe(20_001);
    throws(() => products.ref([1, 2] as never), BAD);
  });

  test("getMany and iterations work on more than fits in memory", async () => {
    const db = await opened(storage, { memory: 4 << 20 });
    const products = db.collection("products", Product, { key: u32 });
    for (let i = 0; i < 150; i++) {
      products.set(i, { stock: i, name: "x".repeat(40_000) });
      if (i % 10 === 0) await turn();
    }
    let sum = 0;
    for (const [key, product] of products.entries()) {
      expect(product.stock).toBe(key);
      sum += product.name.length;
    }
    expect(sum).toBe(150 * 40_000);
    expect(products.getMany([5, 999, 140, 6]).map((product) => product?.stock)).toStrictEqual([
      5,
      undefined,
      140,
      6,
    ]);
    expect(products.getEntry(7)?.value.stock).toBe(7);
  });
});
