import { Buffer } from "node:buffer";
import { type Database, memory, open } from "varve";
import { fromIndexedDB, fromLocalStorage, fromSQLite, type MigrationProgress } from "varve/migrate";
import { blob, f64, json, option, str, struct, text, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";

const Product = struct("Product", {
  id: u32,
  name: str,
  price: f64,
  note: option(str),
  image: blob,
});

const Image = struct("Image", { image: blob });

async function fresh(): Promise<Database> {
  const db = await open("shop", { storage: memory(), ...wasmOption() });
  onTestFinished(() => db.close());
  return db;
}

interface Row {
  id: number;
  name: string;
  price: number;
  note: string | null;
  image: Uint8Array;
}

/** Rows as better-sqlite3 gives them: bytes are Buffers. */
function rowsOf(count: number): Row[] {
  return Array.from({ length: count }, (_, id) => ({
    id,
    name: `n${id}`,
    price: id / 8,
    note: id % 2 ? "x" : null,
    image: Buffer.from([id % 256]),
  }));
}

function stored(rows: readonly Row[]) {
  return rows.map(({ id, note, image, ...row }) => [
    id,
    { id, ...row, note: note ?? undefined, image: new Uint8Array(image) },
  ]);
}

const key = (_: number, row: Row) => row.id;
const REFUSED = { name: "MigrationError", code: "VARVE_MIGRATION" };
const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };

describe("moving the rows of a query", () => {
  test("rows of an array, of an iterator and of an asynchronous one arrive", async () => {
    const rows = rowsOf(3_000);
    async function* later() {
      for (const row of rows) yield await row;
    }
    for (const given of [rows, () => rows.values(), later, async () => rows]) {
      const db = await fresh();
      const into = db.collection("products", Product, { key: u32, indexes: { byPrice: "price" } });
      const reports: MigrationProgress[] = [];
      const onProgress = (now: MigrationProgress) => reports.push(now);
      const result = await fromSQLite({
        table: "products",
        rows: given,
        to: db,
        into,
        key,
        onProgress,
      });
      expect(result).toStrictEqual({
        before: false,
        stores: { products: { records: 3_000, skipped: 0 } },
      });
      const there = Array.from(into.entries(), ([id, view]) => [id, view.snapshot()]);
      expect(there).toStrictEqual(stored(rows));
      expect([...into.index.byPrice.keys({ lt: 1 })]).toStrictEqual([0, 1, 2, 3, 4, 5, 6, 7]);
      const total = given === rows ? 3_000 : undefined;
      const last = { phase: "comparing", store: "products", records: 3_000, total };
      expect(reports.at(-1)).toStrictEqual(last);
    }
  });

  test("rows of node:sqlite arrive, where the runtime has it", async () => {
    // By a name that bundlers do not look up: Node 20 and Bun have no such module.
    const name = "node:sqlite";
    const sqlite: unknown = await import(name).catch(() => undefined);
    const rows = rowsOf(300);
    let query: () => Iterable<object> = () =>
      rows.map((row) => Object.assign(Object.create(null) as Row, row));
    if (sqlite !== undefined) {
      const { DatabaseSync } = sqlite as { DatabaseSync: new (path: string) => Sqlite };
      const old = new DatabaseSync(":memory:");
      onTestFinished(() => old.close());
      old.exec(
        "CREATE TABLE products (id INTEGER PRIMARY KEY, name, price REAL, note, image BLOB)",
      );
      const insert = old.prepare("INSERT INTO products VALUES (?, ?, ?, ?, ?)");
      for (const { id, name, price, note, image } of rows) insert.run(id, name, price, note, image);
      query = () => old.prepare("SELECT * FROM products ORDER BY id").iterate();
    }
    const db = await fresh();
    const into = db.collection("products", Product, { key: u32 });
    await fromSQLite({ table: "products", rows: query, to: db, into, key });
    const there = Array.from(into.entries(), ([id, view]) => [id, view.snapshot()]);
    expect(there).toStrictEqual(stored(rows));
  });

  interface Sqlite {
    exec(statement: string): void;
    prepare(statement: string): {
      run(...values: unknown[]): void;
      iterate(): Iterable<object>;
    };
    close(): void;
  }

  test("one that ended in the middle goes on, and nothing is doubled or replaced", async () => {
    const rows = rowsOf(4_000);
    const db = await fresh();
    const into = db.collection("products", json<Partial<Row>>(), { key: u32 });
    let isWrong = true;
    const value = ({ id, name }: Row) => ({ id, name });
    const onProgress = ({ phase, records }: MigrationProgress) => {
      if (isWrong && phase === "copying" && records > 1_500) throw new Error("enough");
    };
    const options = { table: "products", rows, to: db, into, key, value, onProgress };
    await rejects(fromSQLite(options), { message: "enough" });
    const copied = into.count();
    assert(copied > 1_500 && copied < 4_000, `${copied}`);
    isWrong = false;
    await fromSQLite(options);
    expect([...into.entries()]).toStrictEqual(rows.map((row) => [row.id, value(row)]));
    expect((await fromSQLite(options)).before).toBe(true);
  });

  test("what cannot be stored is refused by its row and path, before anything is written", async () => {
    const good = rowsOf(1)[0] as Row;
    const wrong: readonly (readonly [object, string])[] = [
      [{ ...good, id: 1, price: "1" }, "Product.price"],
      [{ ...good, id: -1 }, "must be an integer"],
      [{ ...good, id: 0 }, "have the same new key, 0"],
      [{ ...good, id: 1, more: 1 }, "more"],
    ];
    for (const [row, part] of wrong) {
      const db = await fresh();
      const into = db.collection("products", Product, { key: u32 });
      const moving = fromSQLite({ table: "products", rows: [good, row], to: db, into, key });
      const error = await rejects(moving, REFUSED);
      assert(error.message.includes(part), error.message);
      expect((error as { key?: unknown }).key).toBe(1);
      expect(db.stats().records).toBe(0);
    }
  });

  test("rows that come in another order the next time are noticed", async () => {
    const rows = rowsOf(2_000);
    const db = await fresh();
    const into = db.collection("products", json<Row>(), { key: u32 });
    const value = ({ id, name }: Row) => ({ id, name });
    let times = 0;
    const onProgress = ({ phase, records }: MigrationProgress) => {
      if (times === 2 && phase === "copying" && records > 500) throw new Error("enough");
    };
    const given = () => {
      times += 1;
      return times < 3 ? rows : [...rows].reverse();
    };
    const options = { table: "products", rows: given, to: db, into, key, value, onProgress };
    await rejects(fromSQLite(options), { message: "enough" });
    await rejects(fromSQLite(options), REFUSED);
  });

  test("rows that are lists of values arrive as such, also with Buffers in them", async () => {
    const db = await fresh();
    const into = db.collection("images", Image, { key: u32 });
    await fromSQLite({
      table: "images",
      rows: [[7, Buffer.from([1, 2])]],
      to: db,
      into,
      key: (_: number, [id]: [number]) => id,
      value: ([, image]: [number, Uint8Array]) => ({ image }),
    });
    expect(into.get(7)?.snapshot()).toStrictEqual({ image: new Uint8Array([1, 2]) });
    const lists = db.collection("lists", json<unknown>(), { key: u32 });
    const rows = [[1, Buffer.from([1])]];
    const moving = fromSQLite({
      table: "lists",
      rows,
      to: db,
      into: lists,
      key: (_: number, [id]: [number]) => id,
    });
    await rejects(moving, {
      ...REFUSED,
      message: "[1] is a Uint8Array, and would become an Object",
    });
  });

  test("rows that can be read only once are refused, and nothing counts as moved", async () => {
    const db = await fresh();
    const into = db.collection("products", json<Partial<Row>>(), { key: u32 });
    const value = ({ id, name }: Row) => ({ id, name });
    const once = rowsOf(3).values();
    const options = { table: "products", to: db, into, key, value };
    await rejects(fromSQLite({ ...options, rows: () => once }), {
      ...REFUSED,
      message: "or it can be read only once",
    });
    const { before, stores } = await fromSQLite({ ...options, rows: () => rowsOf(3).values() });
    expect([before, stores.products?.records]).toStrictEqual([false, 3]);
  });

  test("the mark of another source is refused, and that of localStorage is not that of sessionStorage", async () => {
    const db = await fresh();
    const into = db.collection("products", json<Partial<Row>>(), { key: u32 });
    const options = { rows: [{ id: 1 }], to: db, into, key, mark: "moved" };
    await fromSQLite({ ...options, table: "products" });
    await rejects(fromSQLite({ ...options, rows: [{ id: 2 }], table: "orders" }), {
      ...REFUSED,
      message: 'is the mark of moving the table "products", and this is the table "orders"',
    });
    const own = Object.getOwnPropertyDescriptor(globalThis, "sessionStorage");
    onTestFinished(() => {
      if (own === undefined) Reflect.deleteProperty(globalThis, "sessionStorage");
      else Object.defineProperty(globalThis, "sessionStorage", own);
    });
    const [local, session] = ["a", "b"].map((item) => ({
      length: 1,
      key: (i: number) => (i === 0 ? item : null),
      getItem: () => item,
    }));
    Object.defineProperty(globalThis, "sessionStorage", { value: session, configurable: true });
    const moved = [];
    for (const storage of [local, session]) {
      moved.push((await fromLocalStorage({ to: db, into: db, storage })).before);
    }
    expect(moved).toStrictEqual([false, false]);
    expect(db.getText("a")).toBe("a");
    expect(db.getText("b")).toBe("b");
  });

  test("two keys that are the same bytes, and one that is the mark's, are refused as such", async () => {
    const same = [{ id: "a" }, { id: new Uint8Array([97]) }];
    for (const rows of [same, [{ id: "varve/migrate/sqlite/files" }]]) {
      const db = await fresh();
      const error = await rejects(
        fromSQLite({
          table: "files",
          rows,
          to: db,
          into: db,
          key: (_: number, row: { id: string | Uint8Array }) => row.id,
          value: () => "x",
        }),
        { ...REFUSED, cause: true },
      );
      assert(
        error.message.includes("the same bytes, or one has the key of the mark"),
        error.message,
      );
      expect(db.count()).toBe(0);
    }
  });

  test("a value of very many parts is compared without delay", async () => {
    const db = await fresh();
    const numbers = Array.from({ length: 200_000 }, (_, i) => i);
    const fields = Object.fromEntries(numbers.map((i) => [`f${i}`, i]));
    const into = db.collection("products", json<unknown>(), { key: u32 });
    const rows = [
      { id: 1, numbers },
      { id: 2, fields },
    ];
    const began = performance.now();
    await fromSQLite({ table: "products", rows, to: db, into, key });
    const ms = performance.now() - began;
    assert(ms < 10_000, `${ms} ms`);
    expect(into.get(1)).toStrictEqual(rows[0]);
    // A set is too long to be passed as arguments, and a value that contains itself has no end.
    const set = new Set(numbers);
    const codec = { encode: () => new Uint8Array(1), decode: () => set };
    const sets = db.collection("sets", codec, { key: u32 });
    const value = () => set;
    await fromSQLite({ table: "sets", rows: [{ id: 1 }], to: db, into: sets, key, value });
    expect(sets.count()).toBe(1);
  });

  test("a query that fails says so, and wrong arguments are refused", async () => {
    const db = await fresh();
    const into = db.collection("products", text(), { key: u32 });
    const options = { table: "products", rows: [], to: db, into, key };
    const failing = () => {
      throw new Error("no such table: products");
    };
    await rejects(fromSQLite({ ...options, rows: failing }), { message: "no such table" });
    await rejects(fromSQLite({ ...options, rows: rowsOf(1).values() as never }), {
      ...BAD,
      message: "an iterator gives them once",
    });
    await rejects(fromSQLite({ ...options, rows: (() => 5) as never }), BAD);
    await rejects(fromSQLite({ ...options, rows: [5] as never }), BAD);
    await rejects(fromSQLite({ ...options, key: undefined as never }), { ...BAD, message: "key" });
    await rejects(fromSQLite({ ...options, table: "" }), { ...BAD, message: "table" });
    await rejects(fromSQLite(undefined as never), BAD);
    expect(db.stats().records + db.count()).toBe(0);
  });

  test("a runtime without IndexedDB and localStorage says so", async () => {
    const db = await fresh();
    await rejects(fromIndexedDB("old", { to: db, stores: { a: db } }), {
      ...REFUSED,
      message: "no IndexedDB here",
    });
    const storage = new Map([
      ["a", "1"],
      ["b", "2"],
    ]);
    const items = {
      length: 2,
      key: (i: number) => [...storage.keys()][i] ?? null,
      getItem: (item: string) => storage.get(item) ?? null,
    };
    for (const wrong of [5, null, storage, { getItem: () => "x" }]) {
      const moving = fromLocalStorage({ to: db, into: db, storage: wrong as never });
      await rejects(moving, { ...BAD, message: "an object with length, key() and getItem()" });
    }
    expect(db.count()).toBe(0);
    await fromLocalStorage({ to: db, into: db, storage: items });
    expect(db.getText("b")).toBe("2");
  });
});
