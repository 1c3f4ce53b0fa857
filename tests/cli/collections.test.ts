/** What the commands tell of collections. */

import { dirname, join } from "node:path";
import type { Database } from "varve";
import {
  enum8,
  f64,
  flatten,
  json,
  option,
  str,
  struct,
  text,
  timestamp,
  u8,
  u16,
  union,
  vec,
} from "varve/struct";
import { deepEqual, equal, ok, suite, test } from "../harness.js";
import { database, printed, varve } from "./support.js";

const Page = struct("Page", { offset: u16, limit: u8 });
const Product = struct("Product", {
  stock: u16,
  name: str,
  state: enum8("new", "sold out"),
  addedAt: timestamp,
  page: flatten(Page),
  tags: vec(str),
  price: option(f64),
  shape: union({ Flat: null, Boxed: Page }),
});

const yeezy = {
  stock: 20_001,
  name: "Yeezy Boost 350 V2",
  state: "new",
  addedAt: new Date(1_790_000_000_123),
  offset: 1,
  limit: 2,
  tags: ["a", "b"],
  price: undefined,
  shape: { type: "Boxed", value: { offset: 3, limit: 4 } },
} as const;

function fill(db: Database): void {
  db.set("raw", "value");
  const products = db.collection("products", Product);
  products.set("yeezy", yeezy);
  products.set("zero", { ...yeezy, stock: 0, name: "\x1b[31m" });
  db.collection("sessions", json<{ user: string }>()).set("a1", { user: "ann" });
  db.collection("notes", text()).set("n", "a note");
}

const shop = () => database(fill);

suite("varve on collections", () => {
  test("lists keys and values of one, structs and JSON as JSON", async () => {
    const path = await shop();
    equal(await printed("list", path), "raw\n");
    equal(await printed("list", path, "--collection", "products"), "yeezy\nzero\n");
    const values = await printed("list", path, "--collection", "products", "--values");
    const [first = "", second = ""] = values.split("\n");
    equal(JSON.parse(first.slice("yeezy\t".length)).name, yeezy.name);
    ok(second.includes("\\\\u001b[31m"), second);
    const lines = await printed("list", path, "--collection", "sessions", "--values", "--json");
    deepEqual(JSON.parse(lines), { key: "a1", bytes: 14, value: { user: "ann" } });
    equal(
      await printed("list", path, "--collection", "products", "--reverse", "--limit", "1"),
      "zero\n",
    );
    equal(await printed("list", path, "--collection", "notes", "--values"), "n\ta note\n");
  });

  test("gets the value of a key of one", async () => {
    const path = await shop();
    const shown = JSON.parse(await printed("get", path, "yeezy", "--collection", "products"));
    deepEqual([shown.stock, shown.tags, shown.price], [20_001, ["a", "b"], null]);
    deepEqual(shown.shape, { Boxed: { offset: 3, limit: 4 } });
    equal(await printed("get", path, "n", "--collection", "notes"), "a note");
    const document = JSON.parse(
      await printed("get", path, "a1", "--collection", "sessions", "--json"),
    );
    deepEqual([document.found, document.value], [true, { user: "ann" }]);
    const missing = await varve(["get", path, "raw", "--collection", "products"]);
    deepEqual([missing.code, missing.stdout.length], [1, 0]);
  });

  test("counts the records of one and tells what it holds", async () => {
    const path = await shop();
    const shown = await printed("stat", path, "--collection", "products");
    ok(/^records {2}2$/m.test(shown), shown);
    ok(shown.includes("{stock:u16,name:&str,state:e8(new,sold out)"), shown);
    const document = JSON.parse(await printed("stat", path, "--collection", "notes", "--json"));
    deepEqual([document.records, document.key, document.value], [1, "string", { kind: "text" }]);
  });

  test("says with exit code 1 that there is no such collection", async () => {
    const path = await shop();
    for (const args of [
      ["list", path],
      ["get", path, "key"],
      ["stat", path],
    ]) {
      const { code, stderr } = await varve([...args, "--collection", "orders"]);
      deepEqual([code, stderr], [1, 'varve: There is no collection "orders" in this file.\n']);
    }
  });
});

suite("varve schema", () => {
  test("prints the declarations of all collections as TypeScript", async () => {
    const path = await shop();
    equal(
      await printed("schema", path, "--ts"),
      `// keys: string: db.collection("notes", text())
// keys: string: db.collection("products", Product)
// keys: string: db.collection("sessions", json())
import { enum8, f64, flatten, json, option, str, struct, text, timestamp, u16, u8, union, vec } from "varve/struct";

export const Page = struct("Page", {
  offset: u16,
  limit: u8,
});

export const Product = struct("Product", {
  stock: u16,
  name: str,
  state: enum8("new", "sold out"),
  addedAt: timestamp,
  page: flatten(Page),
  tags: vec(str),
  price: option(f64),
  shape: union({ Flat: null, Boxed: Page }),
});
`,
    );
    equal(await printed("schema", path), await printed("schema", path, "--ts"));
  });

  test("prints the structs of all collections as Rust", async () => {
    const shown = await printed("schema", await shop(), "--rust");
    for (const part of [
      '// keys: string: the collection "products" holds "Product"\n',
      '// keys: string: the collection "sessions" holds json\n',
      "use varve::schema::{Opt, Record};\n",
      'pub enum State {\n    #[varve(rename = "new")]\n    New,\n    #[varve(rename = "sold out")]\n    SoldOut,\n}\n',
      "    #[varve(flatten)]\n    pub page: Page,\n",
      '    #[varve(rename = "addedAt", timestamp)]\n    pub added_at: i64,\n',
      "pub enum Shape {\n    Flat,\n    Boxed(Page),\n}\n",
    ]) {
      ok(shown.includes(part), `${part}\n\n${shown}`);
    }
  });

  test("prints descriptors as they are stored, and nothing for a file without collections", async () => {
    const all = JSON.parse(await printed("schema", await shop(), "--json"));
    deepEqual(
      all.map(({ name, key, value }: { name: string; key: string; value: { kind: string } }) => [
        name,
        key,
        value.kind,
      ]),
      [
        ["notes", "string", "text"],
        ["products", "string", "struct"],
        ["sessions", "string", "json"],
      ],
    );
    const path = await database((db) => db.set("key", "value"));
    equal(await printed("schema", path), "");
    equal(await printed("schema", path, "--rust"), "");
    equal((await varve(["schema", path, "--ts", "--rust"])).code, 2);
  });
});

suite("varve salvage", () => {
  test("copies collections with what tells of them", async () => {
    const path = await shop();
    const copy = join(dirname(path), "copy.varve");
    const said = await printed("salvage", path, copy);
    ok(said.startsWith("copied 1 key and 3 collections with 4 records ("), said);
    for (const args of [
      ["schema", "--json"],
      ["list", "--values"],
      ["list", "--collection", "products", "--values"],
      ["list", "--collection", "sessions", "--values"],
      ["list", "--collection", "notes", "--values"],
    ]) {
      const [command = "", ...more] = args;
      equal(await printed(command, copy, ...more), await printed(command, path, ...more));
    }
    ok((await printed("verify", copy)).startsWith("ok: "));
  });
});
