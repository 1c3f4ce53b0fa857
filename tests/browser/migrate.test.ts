import { Dexie } from "dexie";
import * as idbKeyvalModule from "idb-keyval";
import localforage from "localforage";
import { type CustomCodec, type Database, destroy, memory, open } from "varve";
import {
  describeIndexedDB,
  fromIndexedDB,
  fromLocalStorage,
  type MigrationError,
  type MigrationProgress,
} from "varve/migrate";
import { array, auto, blob, f64, json, str, struct, text, timestamp, u16, vec } from "varve/struct";
import { structured } from "varve/structured";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { contents, fill, oldDatabase, oldNames, settled } from "./old-stores.js";

async function fresh(): Promise<Database> {
  const db = await open("shop", { storage: memory(), ...wasmOption() });
  onTestFinished(() => db.close());
  return db;
}

/** Its types cannot be resolved as those of a module of Node. */
const idbKeyval = idbKeyvalModule as unknown as {
  setMany(entries: [string, unknown][]): Promise<void>;
  entries(): Promise<[string, unknown][]>;
};

interface Product {
  name: string;
  price: number;
}

const MISSING = "VARVE_DATABASE_NOT_FOUND";
const REFUSED = { name: "MigrationError", code: "VARVE_MIGRATION" };

describe("moving the stores of IndexedDB", () => {
  test("every record of a plain store arrives, and the old data stays", async () => {
    const pairs = Array.from(
      { length: 5_000 },
      (_, i) => [`p${i}`, { name: `n${i}`, price: i }] as const,
    );
    await oldDatabase("old", { products: pairs });
    const before = await contents("old", "products");
    const db = await fresh();
    const products = db.collection("products", json<Product>());
    const reports: MigrationProgress[] = [];
    const result = await fromIndexedDB("old", {
      to: db,
      stores: { products },
      onProgress: (progress) => reports.push(progress),
    });
    expect(result).toStrictEqual({
      before: false,
      stores: { products: { records: 5_000, skipped: 0 } },
    });
    expect(products.count()).toBe(5_000);
    for (const [key, value] of pairs) expect(products.get(key)).toStrictEqual(value);
    expect(await contents("old", "products")).toStrictEqual(before);
    for (const phase of ["checking", "copying", "comparing"]) {
      const last = reports.filter((report) => report.phase === phase).at(-1);
      expect(last).toStrictEqual({ phase, store: "products", records: 5_000, total: 5_000 });
    }
  });

  test("once done it does nothing more, and what the program wrote since stays", async () => {
    await oldDatabase("old", { products: [["a", 1]] });
    const db = await fresh();
    const products = db.collection("products", json<number>());
    await fromIndexedDB("old", { to: db, stores: { products } });
    products.set("a", 2);
    const again = await fromIndexedDB("old", { to: db, stores: { products } });
    expect(again).toStrictEqual({ before: true, stores: { products: { records: 1, skipped: 0 } } });
    expect(products.get("a")).toBe(2);
    // Also when the old database is gone.
    await settled(indexedDB.deleteDatabase("old"));
    expect((await fromIndexedDB("old", { to: db, stores: { products } })).before).toBe(true);
    expect((await oldNames()).includes("old")).toBe(false);
  });

  test("what idb-keyval has stored arrives", async () => {
    await settled(indexedDB.deleteDatabase("keyval-store"));
    const bytes = new Uint8Array([1, 2, 3]);
    await idbKeyval.setMany([
      ["text", "Boost"],
      ["object", { a: [1, { b: null }] }],
      ["bytes", bytes],
      ["date", new Date(5)],
      ["map", new Map([["a", 1]])],
    ]);
    const db = await fresh();
    const keyval = db.collection("settings", structured<unknown>());
    await fromIndexedDB("keyval-store", { to: db, stores: { keyval } });
    const expected = await idbKeyval.entries();
    expect([...keyval.entries()]).toStrictEqual(expected);
    expect(expected.length).toBe(5);
  });

  test("what localForage has stored arrives", async () => {
    await settled(indexedDB.deleteDatabase("localforage"));
    await localforage.setDriver(localforage.INDEXEDDB);
    await localforage.setItem("user", { name: "Ann", tags: ["a"] });
    await localforage.setItem("image", new Uint8Array([255, 0]));
    await localforage.setItem("photo", new Blob(["abc"], { type: "image/png" }));
    const db = await fresh();
    const items = db.collection("items", structured<unknown>());
    const value = async (given: unknown) =>
      given instanceof Blob ? { type: given.type, bytes: await given.arrayBuffer() } : given;
    const stores = { keyvaluepairs: { into: items, value } };
    await fromIndexedDB("localforage", { to: db, stores });
    expect(items.get("user")).toStrictEqual(await localforage.getItem("user"));
    expect(items.get("image")).toStrictEqual(await localforage.getItem("image"));
    const bytes = new TextEncoder().encode("abc").buffer;
    expect(items.get("photo")).toStrictEqual({ type: "image/png", bytes });
    expect(items.count()).toBe(3);
  });

  test("what Dexie has stored arrives, with numbers as keys, and its indexes are declared", async () => {
    await Dexie.delete("dexie");
    const dexie = new Dexie("dexie");
    dexie.version(1).stores({ products: "++id, price, &sku, *tags, [name+price]", logs: "" });
    const rows = Array.from({ length: 300 }, (_, i) => ({
      name: `n${i}`,
      price: i % 7,
      sku: `s${i}`,
      tags: ["a", `t${i}`],
    }));
    await dexie.table("products").bulkAdd(rows);
    await dexie.table("logs").put("x", 1);
    dexie.close();
    const described = await describeIndexedDB("dexie");
    const index = (
      name: string,
      keyPath: string | string[],
      unique = false,
      multiEntry = false,
    ) => ({
      name,
      keyPath,
      unique,
      multiEntry,
    });
    expect(described.products).toStrictEqual({
      keyPath: "id",
      autoIncrement: true,
      records: 300,
      indexes: [
        index("[name+price]", ["name", "price"]),
        index("price", "price"),
        index("sku", "sku", true),
        index("tags", "tags", false, true),
      ],
    });
    const db = await fresh();
    const Row = struct("Row", { id: u16, price: f64, name: str, sku: str, tags: vec(str) });
    const products = db.collection("products", Row, {
      key: auto(),
      indexes: {
        byPrice: "price",
        bySku: { fields: "sku", unique: true },
        byNameAndPrice: ["name", "price"],
      },
    });
    await fromIndexedDB("dexie", { to: db, stores: { products, logs: false } });
    expect(products.count()).toBe(300);
    expect(products.get(7)?.snapshot()).toStrictEqual({ id: 7, ...rows[6]! });
    const again = new Dexie("dexie");
    await again.open();
    const cheap = await again.table("products").where("price").below(2).primaryKeys();
    expect([...products.index.byPrice.keys({ lt: 2 })]).toStrictEqual(cheap);
    expect(products.index.bySku.get("s5")?.id).toBe(6);
    again.close();
    // The next number is one that was not in use.
    expect(products.push({ id: 301, price: 1, name: "n", sku: "new", tags: [] })).toBe(301);
  });

  test("plain objects of Dexie arrive in a collection with the indexes that they had, and are found the same", async () => {
    await Dexie.delete("dexie-plain");
    const dexie = new Dexie("dexie-plain");
    dexie.version(1).stores({ people: "++id, age, &email, *tags, [address.city+age]" });
    onTestFinished(() => dexie.close());
    const people = Array.from({ length: 100 }, (_, i) => ({
      // Some are in no index of ages, as in IndexedDB.
      ...(i % 5 > 0 && { age: i % 7 }),
      email: `e${i}`,
      tags: i % 3 > 0 ? ["all", `t${i % 4}`, "all"] : [],
      address: { city: `c${i % 3}` },
    }));
    await dexie.table("people").bulkAdd(people);
    const db = await fresh();
    interface Person {
      age?: number;
      email: string;
      tags: string[];
      address: { city: string };
    }
    const moved = db.collection("people", structured<Person>(), {
      key: auto(),
      indexes: {
        byAge: { fields: "age", type: f64 },
        byEmail: { fields: "email", type: str, unique: true },
        byTag: { fields: "tags", type: str, multiEntry: true },
        byCityAndAge: { fields: ["address.city", "age"], type: [str, f64] },
      },
    });
    await fromIndexedDB("dexie-plain", { to: db, stores: { people: moved } });
    const old = dexie.table("people");
    const { byAge, byEmail, byTag, byCityAndAge } = moved.index;
    expect([...byAge.keys()]).toStrictEqual(await old.orderBy("age").primaryKeys());
    expect([...byAge.keys({ lt: 2 })]).toStrictEqual(await old.where("age").below(2).primaryKeys());
    expect(byEmail.get("e41")?.age).toBe((await old.get({ email: "e41" })).age);
    for (const tag of ["all", "t2", "none"]) {
      expect([...byTag.keys({ eq: tag })]).toStrictEqual(
        await old.where("tags").equals(tag).primaryKeys(),
      );
    }
    expect([...byCityAndAge.keys({ gte: ["c1", 3], lt: ["c2"] })]).toStrictEqual(
      await old
        .where("[address.city+age]")
        .between(["c1", 3], ["c2", Dexie.minKey], true, false)
        .primaryKeys(),
    );
  });

  test("keys of every kind arrive in a collection of that kind, or are refused by name", async () => {
    const date = new Date(1_700_000_000_000);
    const bytes = new Uint8Array([0, 255]);
    await oldDatabase("old", {
      numbers: [
        [-1.5, "a"],
        [0, "b"],
        [Number.POSITIVE_INFINITY, "c"],
      ],
      dates: [[date, "a"]],
      bytes: [[bytes.buffer, "a"]],
      tuples: [
        [["x", 2], "a"],
        [["y", -3], "b"],
      ],
      mixed: [
        [1, "a"],
        ["1", "b"],
      ],
      empty: [],
    });
    const db = await fresh();
    const numbers = db.collection("numbers", text(), { key: f64 });
    const dates = db.collection("dates", text(), { key: timestamp });
    const binary = db.collection("binary", text(), { key: blob });
    const tuples = db.collection("tuples", text(), { key: [str, f64] });
    const mixed = db.collection("mixed", text());
    const into = { numbers, dates, bytes: binary, tuples, empty: mixed };
    const error = await rejects(fromIndexedDB("old", { to: db, stores: { ...into, mixed } }), {
      ...REFUSED,
      message: 'The record 1 of "mixed" cannot be moved: The keys of this collection are strings',
    });
    expect((error as MigrationError).key).toBe(1);
    expect(db.stats().records, "nothing is written").toBe(0);
    const key = (given: IDBValidKey) => `${typeof given} ${given}`;
    await fromIndexedDB("old", { to: db, stores: { ...into, mixed: { into: mixed, key } } });
    expect([...numbers.keys()]).toStrictEqual([-1.5, 0, Number.POSITIVE_INFINITY]);
    expect([...dates.keys()]).toStrictEqual([+date]);
    expect([...binary.keys()]).toStrictEqual([bytes]);
    expect([...tuples.entries()]).toStrictEqual([
      [["x", 2], "a"],
      [["y", -3], "b"],
    ]);
    expect([...mixed.entries()]).toStrictEqual([
      ["number 1", "a"],
      ["string 1", "b"],
    ]);
  });
});

/** Values of every kind that IndexedDB holds. */
const EVERY: Readonly<Record<string, unknown>> = {
  text: "é\u0000",
  surrogate: "\ud800",
  number: 1.5,
  nan: Number.NaN,
  minusZero: -0,
  infinity: Number.POSITIVE_INFINITY,
  bigint: 5n,
  huge: -(2n ** 100n),
  true: true,
  null: null,
  undefined: undefined,
  date: new Date(5),
  badDate: new Date(Number.NaN),
  regexp: /a/gi,
  map: new Map([[{ a: 1 }, new Set(["x"])]]),
  set: new Set([1, "1"]),
  array: [1, [undefined], { a: null }],
  object: { a: { b: [1] }, "c d": "", 5: 1 },
  nothing: { a: undefined },
  bytes: new Uint8Array([1, 2]),
  floats: new Float64Array([1.5]),
  bigints: new BigInt64Array([-1n]),
  clamped: new Uint8ClampedArray([3]),
  buffer: new Uint8Array([1, 2]).buffer,
  view: new DataView(new Uint8Array([7]).buffer),
  error: new RangeError("x"),
  wrapped: Object(1),
  cycle: (() => {
    const self: Record<string, unknown> = { a: 1 };
    self.self = self;
    return self;
  })(),
  blob: new Blob(["a"]),
  file: new File(["a"], "a.txt"),
  image: new ImageData(1, 1),
  point: new DOMPoint(1, 2),
  deep: { list: [{ when: new Date(5) }] },
};

/** Those that a codec refuses, each with the part that the error names. */
type Refused = Readonly<Record<string, string>>;

const IN_JSON: Refused = {
  nan: "",
  minusZero: "",
  infinity: "",
  bigint: "",
  huge: "",
  undefined: "",
  date: "",
  badDate: "",
  regexp: "",
  map: "",
  set: "",
  array: "[1][0]",
  bytes: "",
  floats: "",
  bigints: "",
  clamped: "",
  buffer: "",
  view: "",
  error: "",
  wrapped: "",
  cycle: "",
  blob: "",
  file: "",
  image: "",
  point: "",
  deep: ".list[0].when",
};

/** Objects of the platform, which nothing can store as they are. */
const STRUCTURED: Refused = {
  undefined: "",
  blob: "",
  file: "",
  image: "",
  point: "",
};

describe("values of every kind arrive whole, or are refused before anything is written", () => {
  for (const [name, codec, refused] of [
    ["json()", json<unknown>(), IN_JSON],
    ["structured()", structured<unknown>(), STRUCTURED],
  ] as const) {
    test(`in ${name}`, async () => {
      const refusals: Record<string, string | undefined> = {};
      for (const [kind, value] of Object.entries(EVERY)) {
        await oldDatabase("old", {
          store: [
            ["first", "fine"],
            ["key", value],
          ],
        });
        const db = await fresh();
        const store = db.collection("store", codec as CustomCodec<unknown>);
        try {
          await fromIndexedDB("old", { to: db, stores: { store } });
          const [, [, expected] = []] = await contents("old", "store");
          if (kind === "cycle") {
            const copy = store.get("key") as { a: number; self: unknown };
            assert(copy.self === copy && copy.a === 1, "it contains itself");
            continue;
          }
          const isEmptied = name === "json()" && kind === "nothing";
          expect(store.get("key"), kind).toStrictEqual(isEmptied ? {} : expected);
        } catch (error) {
          const { code, path, key, store: from, message } = error as MigrationError;
          assert(code === "VARVE_MIGRATION", `${kind}: ${message}`);
          expect([from, key]).toStrictEqual(["store", "key"]);
          expect(db.stats().records + db.count(), kind).toBe(0);
          refusals[kind] = path;
        }
      }
      expect(refusals).toStrictEqual({ ...refused });
    });
  }

  test("in a schema: dates become milliseconds, and what does not fit is refused by its path", async () => {
    const Row = struct("Row", { at: timestamp, data: blob, size: array(f64, 2), name: str });
    const row = {
      at: new Date(5),
      data: new Uint8Array([1]),
      size: new Float64Array([1, 2]),
      name: "a",
    };
    const wrong: readonly (readonly [object, string])[] = [
      [{ ...row, name: 5 }, "Row.name"],
      [{ ...row, more: 5 }, "more"],
      [{ ...row, size: [1] }, "Row.size"],
    ];
    for (const [value, part] of wrong) {
      await oldDatabase("old", {
        rows: [
          ["a", row],
          ["b", value],
        ],
      });
      const db = await fresh();
      const rows = db.collection("rows", Row);
      const error = await rejects(fromIndexedDB("old", { to: db, stores: { rows } }), REFUSED);
      assert(error.message.includes('The record "b" of "rows"'), error.message);
      assert(error.message.includes(part), error.message);
      expect(db.stats().records).toBe(0);
    }
    await oldDatabase("old", { rows: [["a", row]] });
    const db = await fresh();
    const rows = db.collection("rows", Row);
    await fromIndexedDB("old", { to: db, stores: { rows } });
    const plain = { at: 5, data: new Uint8Array([1]), size: [1, 2], name: "a" };
    expect(rows.get("a")?.snapshot()).toStrictEqual(plain);
  });

  test("in raw keys: bytes stay bytes and text is UTF-8", async () => {
    await oldDatabase("old", {
      files: [
        ["text", "é"],
        ["bytes", new Uint8Array([1, 2])],
        ["buffer", new Uint8Array([3]).buffer],
      ],
      others: [["floats", new Float64Array([1])]],
    });
    const db = await fresh();
    const stores = { files: db, others: db };
    const error = await rejects(fromIndexedDB("old", { to: db, stores }), REFUSED);
    assert(error.message.includes("raw keys have only bytes and text"), error.message);
    expect(db.count()).toBe(0);
    await fromIndexedDB("old", { to: db, stores: { ...stores, others: false } });
    expect(db.getText("text")).toBe("é");
    expect(db.get("bytes")?.slice()).toStrictEqual(new Uint8Array([1, 2]));
    expect(db.get("buffer")?.slice()).toStrictEqual(new Uint8Array([3]));
  });

  test("mapped: `value` may wait, and leaves out what it returns undefined for", async () => {
    await oldDatabase("old", {
      files: [
        ["a", new Blob(["xyz"])],
        ["b", "no blob"],
      ],
    });
    const db = await fresh();
    const value = async (given: unknown) =>
      given instanceof Blob ? new Uint8Array(await given.arrayBuffer()) : undefined;
    const key = (old: string) => `file/${old}`;
    const result = await fromIndexedDB("old", {
      to: db,
      stores: { files: { into: db, key, value } },
    });
    expect(result.stores).toStrictEqual({ files: { records: 1, skipped: 1 } });
    expect(db.getText("file/a")).toBe("xyz");
    expect(db.has("file/b")).toBe(false);
  });
});

describe("a migration that ends in the middle", () => {
  /** A database of IndexedDB whose records the program moves. */
  async function large(count: number) {
    const pairs = Array.from(
      { length: count },
      (_, i) => [i, { n: i, text: "x".repeat(100) }] as const,
    );
    await oldDatabase("old", { rows: pairs });
    return pairs;
  }

  test("goes on where its worker was killed, and nothing is doubled", async () => {
    const { startWorker, root } = context();
    assert(startWorker !== undefined, "in a worker");
    const pairs = await large(8_000);
    for (const phase of ["checking", "copying", "comparing"]) {
      const name = `migrate-${phase}`;
      await destroy(name);
      const worker = startWorker(`
        import { open } from "${root}/dist/index.js";
        import { f64, json } from "${root}/dist/struct.js";
        import { fromIndexedDB } from "${root}/dist/extensions/migrate/index.js";
        const db = await open("${name}");
        const rows = db.collection("rows", json(), { key: f64 });
        let isReached = false;
        const value = (old) => {
          // It is killed while it waits for this.
          return isReached ? new Promise(() => {}) : old;
        };
        await fromIndexedDB("old", { to: db, stores: { rows: { into: rows, value } }, onProgress({ phase, records }) {
          if (phase !== "${phase}" || records < 2_000 || isReached) return;
          isReached = true;
          self.postMessage(records);
        } });
      `);
      const reached = Number(await worker.firstMessage);
      assert(reached >= 2_000 && reached < 8_000, `${phase} ${reached}`);
      await worker.kill();
      const db = await opened(name);
      const rows = db.collection("rows", json<Row>(), { key: f64 });
      const copied = { checking: 0, copying: reached, comparing: 8_000 }[phase];
      expect(rows.count(), phase).toBe(copied);
      const before = db.lastCommit;
      const first: Partial<Record<string, number>> = {};
      const result = await fromIndexedDB("old", {
        to: db,
        stores: { rows },
        onProgress: (now) => {
          first[now.phase] ??= now.records;
        },
      });
      expect(result.stores).toStrictEqual({ rows: { records: 8_000, skipped: 0 } });
      expect([...rows.entries()]).toStrictEqual(pairs);
      if (phase === "copying") assert((first.copying ?? 0) > reached, "it does not begin again");
      if (phase === "comparing") {
        assert(first.copying === undefined && first.checking === undefined, "nothing is copied");
        assert(db.lastCommit - before < 5, "only the mark is written");
      }
      await db.close();
      await destroy(name);
    }
  });

  interface Row {
    n: number;
    text: string;
  }

  async function opened(name: string): Promise<Database> {
    for (let tries = 0; ; tries += 1) {
      try {
        return await open(name, wasmOption());
      } catch (error) {
        // The killed worker's files are released a moment later.
        if (tries === 50) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  test("ends at once when its signal is aborted, and goes on afterwards", async () => {
    const pairs = await large(5_000);
    const db = await fresh();
    const rows = db.collection("rows", json<Row>(), { key: f64 });
    for (const phase of ["checking", "copying", "comparing"]) {
      const controller = new AbortController();
      const reason = new Error(phase);
      const error = await rejects(
        fromIndexedDB("old", {
          to: db,
          stores: { rows },
          signal: controller.signal,
          onProgress: (now) => now.phase === phase && controller.abort(reason),
        }),
      );
      expect(error).toBe(reason);
    }
    await fromIndexedDB("old", { to: db, stores: { rows } });
    expect([...rows.entries()]).toStrictEqual(pairs);
    const aborted = AbortSignal.abort(new Error("before"));
    await rejects(fromIndexedDB("old", { to: db, stores: { rows }, signal: aborted }), {
      message: "before",
    });
  });

  test("what onProgress throws ends it, and it goes on afterwards", async () => {
    const pairs = await large(3_000);
    const db = await fresh();
    const rows = db.collection("rows", json<Row>(), { key: f64 });
    const onProgress = ({ phase, records }: MigrationProgress) => {
      if (phase === "copying" && records > 1_000) throw new Error("enough");
    };
    await rejects(fromIndexedDB("old", { to: db, stores: { rows }, onProgress }), {
      message: "enough",
    });
    assert(rows.count() > 1_000 && rows.count() < 3_000, `${rows.count()}`);
    await fromIndexedDB("old", { to: db, stores: { rows } });
    expect([...rows.entries()]).toStrictEqual(pairs);
  });

  test("of two at once, one moves the data, and the other finds it done", async () => {
    await large(3_000);
    const db = await fresh();
    const rows = db.collection("rows", json<Row>(), { key: f64 });
    const both = await Promise.all(
      [1, 2].map(() => fromIndexedDB("old", { to: db, stores: { rows } })),
    );
    expect(both.map(({ before }) => before)).toStrictEqual([false, true]);
    expect(rows.count()).toBe(3_000);
  });
});

describe("what a migration refuses", () => {
  test("a database that is not there, without creating it", async () => {
    await settled(indexedDB.deleteDatabase("nowhere"));
    const db = await fresh();
    const moving = fromIndexedDB("nowhere", { to: db, stores: { a: db } });
    await rejects(moving, { code: MISSING, message: 'no IndexedDB database "nowhere"' });
    await rejects(describeIndexedDB("nowhere"), { code: MISSING });
    await rejects(describeIndexedDB("nowhere", null as never), { code: "VARVE_BAD_ARGUMENT" });
    const result = await fromIndexedDB("nowhere", { to: db, stores: { a: db }, optional: true });
    expect(result).toStrictEqual({ before: false, stores: { a: { records: 0, skipped: 0 } } });
    expect(db.count()).toBe(0);
    expect((await oldNames()).includes("nowhere")).toBe(false);
  });

  test("a store that is not there, and one that is not named", async () => {
    await oldDatabase("old", { a: [["k", "v"]], b: [] });
    const db = await fresh();
    await rejects(fromIndexedDB("old", { to: db, stores: { a: db, b: db, c: db } }), {
      ...REFUSED,
      message: 'no store "c" in the IndexedDB database "old". Its stores are: "a", "b"',
    });
    await rejects(fromIndexedDB("old", { to: db, stores: { a: db } }), {
      ...REFUSED,
      message: 'does not name "b"',
    });
    expect(db.count()).toBe(0);
  });

  test("stores that are all left out still have to be named", async () => {
    await oldDatabase("old", { a: [["k", "v"]] });
    const db = await fresh();
    await rejects(fromIndexedDB("old", { to: db, stores: {} }), {
      ...REFUSED,
      message: 'does not name "a"',
    });
    await settled(indexedDB.deleteDatabase("nowhere"));
    await rejects(fromIndexedDB("nowhere", { to: db, stores: { a: false } }), { code: MISSING });
    const left = await fromIndexedDB("old", { to: db, stores: { a: false } });
    expect(left).toStrictEqual({ before: false, stores: {} });
  });

  test("an old database that is gone before all of it was moved, also with `optional`", async () => {
    await oldDatabase("old", { a: [["k", "v"]] });
    const db = await fresh();
    const stores = { a: db.collection("a", text()) };
    const onProgress = ({ phase }: MigrationProgress) => {
      if (phase === "comparing") throw new Error("enough");
    };
    await rejects(fromIndexedDB("old", { to: db, stores, onProgress }), { message: "enough" });
    await settled(indexedDB.deleteDatabase("old"));
    await rejects(fromIndexedDB("old", { to: db, stores, optional: true }), {
      code: MISSING,
      message: "an earlier call had not moved all of it",
    });
    assert(db.delete("varve/migrate/indexeddb/old"), "as the message says");
    const { before } = await fromIndexedDB("old", { to: db, stores, optional: true });
    expect([before, stores.a.get("k")]).toStrictEqual([false, "v"]);
  });

  test("the same key in two stores that go into one collection, before anything is written", async () => {
    await oldDatabase("old", { a: [["x", 1]], b: [["x", 2]] });
    const db = await fresh();
    const one = db.collection("one", json<number>());
    for (const replace of [false, true]) {
      await rejects(fromIndexedDB("old", { to: db, stores: { a: one, b: one }, replace }), {
        ...REFUSED,
        message: 'have the same new key, "x"; the second is the one of "b"',
      });
    }
    expect(one.count() + db.count()).toBe(0);
    await oldDatabase("old", { a: [["x", 1]], b: [["y", 2]] });
    await fromIndexedDB("old", { to: db, stores: { a: one, b: one } });
    expect([...one.values()]).toStrictEqual([1, 2]);
  });

  test("an old store that is emptied before it is copied", async () => {
    await oldDatabase("old", { a: [["x", 1]] });
    const db = await fresh();
    const a = db.collection("a", json<number>());
    const old = await settled(indexedDB.open("old"));
    let cleared: Promise<unknown> | undefined;
    const onProgress = () => {
      cleared ??= settled(old.transaction("a", "readwrite").objectStore("a").clear());
    };
    await rejects(fromIndexedDB("old", { to: db, stores: { a }, onProgress }), {
      ...REFUSED,
      message: "had 1 records to copy when it was checked, and 0 when it was copied",
    });
    await cleared;
    old.close();
  });

  test("a key that is there already, unless it may be replaced", async () => {
    await oldDatabase("old", {
      a: [
        ["x", "old"],
        ["y", "old"],
      ],
    });
    const db = await fresh();
    const a = db.collection("a", text());
    a.set("y", "new");
    await rejects(fromIndexedDB("old", { to: db, stores: { a } }), {
      ...REFUSED,
      message: 'The collection "a" has a record with the key "y" already',
    });
    expect([...a.entries()]).toStrictEqual([["y", "new"]]);
    await fromIndexedDB("old", { to: db, stores: { a }, replace: true });
    expect([...a.entries()]).toStrictEqual([
      ["x", "old"],
      ["y", "old"],
    ]);
  });

  test("two records with the same new key, before anything is written", async () => {
    await oldDatabase("old", {
      a: [
        ["x", 1],
        ["y", 2],
      ],
    });
    const db = await fresh();
    const a = db.collection("a", json<number>());
    const stores = { a: { into: a, key: () => "same" } };
    for (const replace of [false, true]) {
      await rejects(fromIndexedDB("old", { to: db, stores, replace }), {
        ...REFUSED,
        message: "have the same new key",
      });
    }
    expect(a.count()).toBe(0);
  });

  test("two records with the same value in a unique index, by the name of the second", async () => {
    const row = (sku: string) => ({ sku });
    const pairs = Array.from({ length: 50 }, (_, i) => [i, row(i === 40 ? "7" : `${i}`)] as const);
    await oldDatabase("old", { a: pairs });
    const db = await fresh();
    const Row = struct("Row", { sku: str });
    const indexes = { bySku: { fields: "sku", unique: true } } as const;
    const a = db.collection("a", Row, { key: f64, indexes });
    const error = await rejects(fromIndexedDB("old", { to: db, stores: { a } }), {
      ...REFUSED,
      message: 'The record 40 of "a" cannot be moved: ',
      cause: true,
    });
    expect((error.cause as { code?: string }).code).toBe("VARVE_UNIQUE_VIOLATION");
    expect(a.count(), "those before it").toBe(40);
  });

  test("an old record that changes meanwhile, and one that is added", async () => {
    for (const change of [
      ["x", 9],
      ["z", 9],
    ] as const) {
      await oldDatabase("old", {
        a: [
          ["x", 1],
          ["y", 2],
        ],
      });
      const db = await fresh();
      const a = db.collection("a", json<number>());
      const old = await settled(indexedDB.open("old"));
      let changed: Promise<void> | undefined;
      const onProgress = ({ phase }: MigrationProgress) => {
        if (phase === "copying") changed ??= fill(old, "a", [change]);
      };
      const error = await rejects(
        fromIndexedDB("old", { to: db, stores: { a }, onProgress }),
        REFUSED,
      );
      assert(/meanwhile/.test(error.message), error.message);
      await changed;
      old.close();
      const mark = "varve/migrate/indexeddb/old";
      assert(db.delete(mark), "as the message says");
      await fromIndexedDB("old", { to: db, stores: { a }, replace: true });
      expect(a.get(change[0])).toBe(9);
    }
  });

  test("functions that do not always return the same", async () => {
    await oldDatabase("old", { a: [["x", 1]] });
    const db = await fresh();
    const a = db.collection("a", json<number>());
    const stores = { a: { into: a, value: () => Math.random() } };
    await rejects(fromIndexedDB("old", { to: db, stores }), {
      ...REFUSED,
      message: "the functions key and value do not always return the same",
    });
  });

  test("an old database that is upgraded or deleted meanwhile: that gets its way", async () => {
    for (const upgrade of [true, false]) {
      await oldDatabase("old", { a: Array.from({ length: 3_000 }, (_, i) => [i, i] as const) });
      const db = await fresh();
      const a = db.collection("a", json<number>(), { key: f64 });
      let request: IDBOpenDBRequest | undefined;
      const onProgress = () => {
        request ??= upgrade ? indexedDB.open("old", 4) : indexedDB.deleteDatabase("old");
      };
      const error = await rejects(
        fromIndexedDB("old", { to: db, stores: { a }, onProgress }),
        REFUSED,
      );
      const why = upgrade ? "is being upgraded" : "is being deleted";
      assert(error.message.includes(`The IndexedDB database "old" ${why}`), error.message);
      assert(request !== undefined, "it was requested");
      const upgraded = await settled(request as IDBRequest<unknown>);
      if (!upgrade) continue;
      (upgraded as IDBDatabase).close();
      await fromIndexedDB("old", { to: db, stores: { a } });
      expect(a.count()).toBe(3_000);
    }
  });

  test("it waits for an upgrade that is under way, and can be aborted meanwhile", async () => {
    await oldDatabase("old", { a: [["x", "1"]] });
    const holder = await settled(indexedDB.open("old"));
    // The upgrade waits for this connection, which does not close.
    const upgrade = indexedDB.open("old", 4);
    const db = await fresh();
    const controller = new AbortController();
    const moving = fromIndexedDB("old", { to: db, stores: { a: db }, signal: controller.signal });
    const waiting = fromIndexedDB("old", {
      to: db,
      stores: { a: db },
      mark: "other",
      replace: true,
    });
    setTimeout(() => controller.abort(new Error("too long")), 50);
    await rejects(moving, { message: "too long" });
    expect(db.count()).toBe(0);
    holder.close();
    (await settled(upgrade)).close();
    await waiting;
    expect(db.getText("x")).toBe("1");
  });

  test("a mark that is something else", async () => {
    await oldDatabase("old", { a: [["x", "1"]] });
    const db = await fresh();
    db.set("mine", "text");
    const error = await rejects(
      fromIndexedDB("old", { to: db, stores: { a: db }, mark: "mine" }),
      REFUSED,
    );
    assert(error.message.includes("has another value"), error.message);
    expect(db.getText("mine")).toBe("text");
  });

  test("wrong arguments", async () => {
    await oldDatabase("old", { a: [["x", "1"]] });
    const [db, other] = [
      await fresh(),
      await open("other", { storage: memory(), ...wasmOption() }),
    ];
    onTestFinished(() => other.close());
    const bad = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };
    type Options = Parameters<typeof fromIndexedDB>[1];
    const wrong: readonly (readonly [unknown, string])[] = [
      [undefined, "must be an object"],
      [{ to: db }, "stores"],
      [{ to: db, stores: [] }, "stores"],
      [{ to: db, stores: { a: "b" } }, "must be an object"],
      [{ to: db, stores: { a: {} } }, "needs a collection"],
      [{ to: db, stores: { a: { into: db, value: 1 } } }, "must be a function"],
      [{ to: db, stores: { a: { into: db, map: 1 } } }, 'no option "map"'],
      [{ to: db, stores: { a: other } }, "a collection of the database"],
      [{ to: db, stores: { a: other.collection("a", text()) } }, "a collection of the database"],
      [{ to: {}, stores: { a: db } }, "The option to"],
      [{ stores: { a: db } }, "The option to"],
      [{ to: db, stores: { a: db }, mark: "" }, "mark"],
      [{ to: db, stores: { a: db }, replace: 1 }, "replace"],
      [{ to: db, stores: { a: db }, onProgress: 1 }, "onProgress"],
      [{ to: db, stores: { a: db }, signal: {} }, "signal"],
    ];
    for (const [options, message] of wrong) {
      await rejects(fromIndexedDB("old", options as Options), { ...bad, message });
    }
    await rejects(fromIndexedDB(undefined as unknown as string, { to: db, stores: {} }), bad);
    expect(db.count()).toBe(0);
  });

  test("localStorage in a worker, which has none", async () => {
    const db = await fresh();
    await rejects(fromLocalStorage({ to: db, into: db }), {
      ...REFUSED,
      message: "workers have none",
    });
  });
});
