/** The commands on collections. */

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { transform } from "esbuild";
import { type Database, file, open } from "varve";
import { codecOf } from "varve/codec";
import {
  added,
  auto,
  desc,
  enum8,
  f64,
  flatten,
  json,
  type Memory,
  option,
  str,
  struct,
  text,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
  union,
  vec,
  versioned,
} from "varve/struct";
import { structured } from "varve/structured";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { database, folder, printed, varve } from "./support.js";

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
  const scores = db.collection("scores", Page, {
    key: [u32, desc(f64), str, timestamp, u64],
    indexes: { byLimit: { fields: [desc("limit"), "offset"], unique: true } },
  });
  scores.set([7, 1.5, "ann", yeezy.addedAt, 2n ** 63n], { offset: 1, limit: 2 });
  scores.set([7, -1.5, "bob", yeezy.addedAt, 1n], { offset: 3, limit: 4 });
  scores.set([8, 1.5, "ann", yeezy.addedAt, 1n], { offset: 5, limit: 6 });
  db.collection("counts", Page, { key: u16 }).set(258, { offset: 0, limit: 0 });
  db.collection("sessions", json<{ user: string }>()).set("a1", { user: "ann" });
  db.collection("notes", text()).set("n", "a note");
}

const shop = () => database(fill);

describe("varve on collections", () => {
  test("list prints keys and values of a collection, structs and JSON as JSON", async () => {
    const path = await shop();
    expect(await printed("list", path)).toBe("raw\n");
    expect(await printed("list", path, "--collection", "products")).toBe("yeezy\nzero\n");
    const values = await printed("list", path, "--collection", "products", "--values");
    const [first = "", second = ""] = values.split("\n");
    expect(JSON.parse(first.slice("yeezy\t".length)).name).toBe(yeezy.name);
    assert(second.includes("\\\\u001b[31m"), second);
    const lines = await printed("list", path, "--collection", "sessions", "--values", "--json");
    expect(JSON.parse(lines)).toStrictEqual({ key: "a1", bytes: 14, value: { user: "ann" } });
    expect(
      await printed("list", path, "--collection", "products", "--reverse", "--limit", "1"),
    ).toBe("zero\n");
    expect(await printed("list", path, "--collection", "notes", "--values")).toBe("n\ta note\n");
  });

  test("keys that are numbers, dates and tuples are printed and read as JSON", async () => {
    const path = await shop();
    const at = 1_790_000_000_123;
    const lines = [
      `[7,1.5,"ann",${at},"9223372036854775808"]\n`,
      `[7,-1.5,"bob",${at},"1"]\n`,
      `[8,1.5,"ann",${at},"1"]\n`,
    ];
    const scores = ["--collection", "scores"];
    expect(await printed("list", path, ...scores)).toBe(lines.join(""));
    expect(await printed("list", path, ...scores, "--prefix", "[7,-1.5]")).toBe(lines[1]);
    expect(await printed("list", path, ...scores, "--start", "[8]")).toBe(lines[2]);
    expect(await printed("list", path, ...scores, "--end", "8")).toBe(`${lines[0]}${lines[1]}`);
    const json = await printed("list", path, ...scores, "--json", "--values", "--limit", "1");
    const { key, value } = JSON.parse(json);
    expect([key, value]).toStrictEqual([JSON.parse(lines[0] ?? ""), { offset: 1, limit: 2 }]);
    expect(await printed("get", path, lines[1] ?? "", ...scores)).toBe('{"offset":3,"limit":4}\n');
    const written = '[7,-1.5,"bob","2026-09-21T14:13:20.123Z",1]';
    expect(await printed("get", path, written, ...scores)).toBe('{"offset":3,"limit":4}\n');
    expect(await printed("list", path, "--collection", "counts")).toBe("258\n");
    expect(await printed("get", path, "258", "--collection", "counts")).toBe(
      '{"offset":0,"limit":0}\n',
    );
    for (const word of ["ann", '["ann"]', "[7]", "1e99"]) {
      const { code, stdout } = await varve(["get", path, word, ...scores]);
      expect([code, stdout.length], word).toStrictEqual([2, 0]);
    }
  });

  test("get prints the value of a key of a collection", async () => {
    const path = await shop();
    const shown = JSON.parse(await printed("get", path, "yeezy", "--collection", "products"));
    expect([shown.stock, shown.tags, shown.price]).toStrictEqual([20_001, ["a", "b"], null]);
    expect(shown.shape).toStrictEqual({ Boxed: { offset: 3, limit: 4 } });
    expect(await printed("get", path, "n", "--collection", "notes")).toBe("a note");
    const document = JSON.parse(
      await printed("get", path, "a1", "--collection", "sessions", "--json"),
    );
    expect([document.found, document.value]).toStrictEqual([true, { user: "ann" }]);
    const missing = await varve(["get", path, "raw", "--collection", "products"]);
    expect([missing.code, missing.stdout.length]).toStrictEqual([1, 0]);
  });

  test("collections are named if nothing is found outside of them", async () => {
    const path = await database((db) => {
      for (const name of ["products", "notes"]) db.collection(name, text()).set("a", "b");
    });
    const named = 'It has collections (use --collection): "notes", "products".\n';
    const listed = await varve(["list", path]);
    expect([listed.code, listed.stdout.length, listed.stderr]).toStrictEqual([
      1,
      0,
      `varve: The file has no keys outside of collections. ${named}`,
    ]);
    const got = await varve(["get", path, "a"]);
    expect([got.code, got.stderr]).toStrictEqual([
      1,
      `varve: There is no key a in ${path}. ${named}`,
    ]);
    const empty = await database(() => {});
    expect(await printed("list", empty)).toBe("");
  });

  test("a record with endlessly overlapping parts is named, and the others are printed", async () => {
    const Deep = struct("Deep", { lists: vec(vec(vec(u8))) });
    const bytes = new Uint8Array(8_192);
    const data = new DataView(bytes.buffer);
    for (let at = 0; at < bytes.length; at += 8) data.setUint32(at + 4, bytes.length / 8, true);
    // A codec with the schema's fingerprint that writes these bytes.
    const crafted = Object.assign(
      Object.create(codecOf(Deep)) as ReturnType<typeof codecOf<unknown>>,
      {
        size: () => bytes.length,
        write: (memory: Memory, at: number) => memory.u8.set(bytes, at),
      },
    );
    const path = await database((db) => {
      db.collection("deep", Deep).set("a", { lists: [[new Uint8Array([1, 2])]] });
      // Types accept schemas only.
      db.collection("deep", crafted as unknown as typeof Deep).set("b", { lists: [] });
    });
    expect(await printed("get", path, "a", "--collection", "deep")).toBe('{"lists":[[[1,2]]]}\n');
    for (const args of [
      ["get", path, "b"],
      ["list", path, "--values"],
      ["list", path, "--values", "--json"],
    ]) {
      const { code, stdout, stderr } = await varve([...args, "--collection", "deep"]);
      expect(code, stderr).toBe(3);
      assert(/^varve: Deep\.lists.*: range: parts overlap too often\n$/.test(stderr), stderr);
      expect(stdout.toString().includes("[[[1,2]]]")).toBe(args[0] === "list");
    }
    expect(await printed("list", path, "--collection", "deep")).toBe("a\nb\n");
    assert((await printed("verify", path)).startsWith("ok: "));
  });

  test("stat counts the records of a collection and describes it", async () => {
    const path = await shop();
    const shown = await printed("stat", path, "--collection", "products");
    assert(/^records {2}2$/m.test(shown), shown);
    assert(shown.includes("{stock:u16,name:&str,state:e8(new,sold out)"), shown);
    const document = JSON.parse(await printed("stat", path, "--collection", "notes", "--json"));
    expect([document.records, document.key, document.value]).toStrictEqual([
      1,
      "string",
      { kind: "text" },
    ]);
  });

  test("a missing collection exits with code 1", async () => {
    const path = await shop();
    for (const args of [
      ["list", path],
      ["get", path, "key"],
      ["stat", path],
    ]) {
      const { code, stderr } = await varve([...args, "--collection", "orders"]);
      expect([code, stderr]).toStrictEqual([
        1,
        'varve: There is no collection "orders" in this file.\n',
      ]);
    }
  });
});

describe("JSON nested a hundred thousand deep", () => {
  test("list and get print deep JSON like any other, in lines and in documents", async () => {
    const text = `${"[".repeat(100_000)} "a  b" ${"]".repeat(100_000)}`;
    const path = await database(() => {});
    const db = await open("shop", { storage: file(dirname(path)) });
    await db.collection("notes", json()).fromJsonLines(`{"key":"a","value":${text}}\n`);
    await db.close();
    const inOneLine = text.replace(' "a  b" ', '"a  b"');
    const of = ["--collection", "notes"];
    const about = `{"key":"a","bytes":${text.length},"value":${inOneLine}}\n`;
    expect(await printed("list", path, ...of, "--values", "--json")).toBe(about);
    assert((await printed("list", path, ...of, "--values")).startsWith("a\t[["));
    expect(await printed("get", path, "a", ...of)).toBe(`${text}\n`);
    const { value, ...rest } = JSON.parse(await printed("get", path, "a", ...of, "--json"));
    assert(Array.isArray(value));
    expect(rest).toStrictEqual({
      found: true,
      key: "a",
      bytes: text.length,
      version: rest.version,
    });
  });
});

describe("values of structured()", () => {
  test("get and list print their readable form, and schema their codec", async () => {
    const path = await database((db) => {
      const drafts = db.collection("drafts", structured<unknown>());
      drafts.set("a", { at: new Date(5), tags: new Set(["x"]), big: 5n });
      const circle: unknown[] = [];
      circle.push(circle);
      drafts.set("b", circle);
    });
    const of = ["--collection", "drafts"];
    const text =
      '{"at":{"$Date":"1970-01-01T00:00:00.005Z"},"tags":{"$Set":["x"]},"big":{"$BigInt":"5"}}';
    expect(await printed("get", path, "a", ...of)).toBe(`${text}\n`);
    expect(await printed("list", path, "--values", ...of)).toBe(
      `a\t${text}\nb\t{"$shared":[{"$ref":0}]}\n`,
    );
    expect(JSON.parse(await printed("get", path, "a", ...of, "--json")).value).toStrictEqual(
      JSON.parse(text),
    );
    expect(await printed("schema", path, "--ts")).toBe(
      '// db.collection("drafts", structured())\nimport { structured } from "varve/structured";\n',
    );
  });
});

describe("varve schema", () => {
  test("schema prints the declarations of all collections as TypeScript", async () => {
    const path = await shop();
    expect(
      await printed("schema", path, "--ts"),
    ).toBe(`// db.collection("counts", Page, { key: u16 })
// db.collection("notes", text())
// db.collection("products", Product)
// db.collection("scores", Page, { key: [u32, desc(f64), str, timestamp, u64], indexes: {"byLimit":{"fields":[{"desc":"limit"},"offset"],"unique":true}} })
// db.collection("sessions", json())
import { desc, enum8, f64, flatten, json, option, str, struct, text, timestamp, u16, u32, u64, u8, union, vec } from "varve/struct";

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
`);
    expect(await printed("schema", path)).toBe(await printed("schema", path, "--ts"));
  });

  test("values of an earlier version of a struct are printed and read with the defaults of the later one", async () => {
    const directory = folder();
    const db = await open("versions", { storage: file(directory) });
    db.collection("all", versioned("Row", { n: u16, name: str })).set("old", { n: 1, name: "x" });
    const fields = { n: u16, name: str, price: added(f64, 9.5), note: added(str, 'a "b"') };
    db.collection("all", versioned("Row", fields)).set("new", { n: 2, name: "y", price: 1 });
    await db.close();
    const path = join(directory, "versions.varve");
    const shown = await printed("schema", path, "--ts");
    assert(shown.includes('  price: added(f64, 9.5),\n  note: added(str, "a \\"b\\""),\n'), shown);
    assert((await printed("schema", path, "--rust")).includes("    #[varve(added = 9.5)]\n"));
    expect(
      await printed("list", path, "--collection", "all", "--values"),
    ).toBe(`new\t{"n":2,"name":"y","price":1,"note":"a \\\\"b\\\\""}
old\t{"n":1,"name":"x","price":9.5,"note":"a \\\\"b\\\\""}
`);
  });

  test("schema notes that number keys may be auto() keys, which are stored in the same way", async () => {
    const path = await database((db) => {
      db.collection("log", text(), { key: auto() }).push("first");
      db.collection("pairs", text(), { key: [u53, u53] }).set([1, 2], "pair");
    });
    expect(
      await printed("schema", path, "--ts"),
    ).toBe(`// db.collection("log", text(), { key: u53 /* or auto() */ })
// db.collection("pairs", text(), { key: [u53, u53] })
import { text, u53 } from "varve/struct";
`);
  });

  test("the printed TypeScript compiles and declares the same", async () => {
    const folder = join(context().root, `.build/printed-${process.pid}`);
    mkdirSync(folder, { recursive: true });
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const source = `import { codecOf } from "varve/codec";
${await printed("schema", await shop())}
console.log(JSON.stringify([codecOf(Page).fingerprint, codecOf(Product).fingerprint]));
`;
    writeFileSync(join(folder, "printed.ts"), source);
    const run = (...args: string[]) =>
      execFileSync(process.execPath, args, { cwd: folder, encoding: "utf8" });
    const tsc = join(context().root, "node_modules/typescript/bin/tsc");
    const flags =
      "--ignoreConfig --noEmit --strict --skipLibCheck --module NodeNext --target ES2022 --types node";
    expect(run(tsc, ...flags.split(" "), "printed.ts")).toBe("");
    const { code } = await transform(source, { loader: "ts", format: "esm" });
    writeFileSync(join(folder, "printed.mjs"), code);
    const { fingerprint } = codecOf(Page);
    expect(JSON.parse(run("printed.mjs"))).toStrictEqual([
      fingerprint,
      codecOf(Product).fingerprint,
    ]);
  });

  test("schema prints the structs of all collections as Rust", async () => {
    const shown = await printed("schema", await shop(), "--rust");
    for (const part of [
      '// The collection "counts" holds "Page" with keys of [{"kind":"u16"}]\n',
      '// The collection "products" holds "Product" with keys of "string"\n',
      '// The collection "sessions" holds json with keys of "string"\n',
      "use varve::schema::{Opt, Record};\n",
      'pub enum State {\n    #[varve(rename = "new")]\n    New,\n    #[varve(rename = "sold out")]\n    SoldOut,\n}\n',
      "    #[varve(flatten)]\n    pub page: Page,\n",
      '    #[varve(rename = "addedAt", timestamp)]\n    pub added_at: i64,\n',
      "pub enum Shape {\n    Flat,\n    Boxed(Page),\n}\n",
    ]) {
      assert(shown.includes(part), `${part}\n\n${shown}`);
    }
  });

  test("schema prints descriptors as stored, and nothing for a file without collections", async () => {
    const all = JSON.parse(await printed("schema", await shop(), "--json"));
    expect(
      all.map(({ name, key, value }: { name: string; key: unknown; value: { kind: string } }) => [
        name,
        key,
        value.kind,
      ]),
    ).toStrictEqual([
      ["counts", [{ kind: "u16" }], "struct"],
      ["notes", "string", "text"],
      ["products", "string", "struct"],
      [
        "scores",
        [
          { kind: "u32" },
          { desc: { kind: "f64" } },
          { kind: "str" },
          { kind: "timestamp" },
          { kind: "u64" },
        ],
        "struct",
      ],
      ["sessions", "string", "json"],
    ]);
    expect(all[3].indexes).toStrictEqual({
      byLimit: { fields: [{ desc: "limit" }, "offset"], unique: true },
    });
    const path = await database((db) => db.set("key", "value"));
    expect(await printed("schema", path)).toBe("");
    expect(await printed("schema", path, "--rust")).toBe("");
    expect((await varve(["schema", path, "--ts", "--rust"])).code).toBe(2);
  });
});

describe("varve salvage", () => {
  test("salvage copies collections with their descriptors", async () => {
    const path = await shop();
    const copy = join(dirname(path), "copy.varve");
    const output = await printed("salvage", path, copy);
    assert(output.startsWith("copied 1 key and 5 collections with 8 records ("), output);
    for (const args of [
      ["schema", "--json"],
      ["list", "--values"],
      ["list", "--collection", "products", "--values"],
      ["list", "--collection", "scores", "--values"],
      ["list", "--collection", "sessions", "--values"],
      ["list", "--collection", "notes", "--values"],
    ]) {
      const [command = "", ...more] = args;
      expect(await printed(command, copy, ...more)).toBe(await printed(command, path, ...more));
    }
    assert((await printed("verify", copy)).startsWith("ok: "));
  });

  test("salvage rebuilds the indexes of plain objects, and those of many values", async () => {
    const indexes = {
      byCity: { fields: ["address.city"], type: [str] },
      byTag: { fields: "tags", type: u16, multiEntry: true },
    } as const;
    const directory = folder();
    const open_ = (name: string) => open(name, { storage: file(directory) });
    interface User {
      address: { city: string };
      tags: number[];
    }
    const db = await open_("shop");
    const users = db.collection("users", json<User>(), { indexes });
    const drafts = db.collection("drafts", structured<User>(), { indexes });
    const Post = struct("Post", { tags: vec(u16) });
    const byTag = { fields: "tags", multiEntry: true } as const;
    const posts = db.collection("posts", Post, { indexes: { byTag } });
    for (let i = 0; i < 1_000; i += 1) {
      const user = { address: { city: `city ${i}` }, tags: [i, 1_000 + i, i] };
      users.set(`user ${i}`, user);
      drafts.set(`draft ${i}`, user);
      posts.set(`post ${i}`, user);
      if (i % 100 === 99) db.commit();
    }
    await db.close();
    const path = join(directory, "shop.varve");
    const printed_ = await printed("schema", path);
    assert(
      printed_.includes(
        '{ indexes: {"byCity":{"fields":["address.city"],"type":[str]},' +
          '"byTag":{"fields":"tags","multiEntry":true,"type":u16}} }',
      ),
      printed_,
    );
    const bytes = readFileSync(path);
    bytes[bytes.indexOf("user 345") + 3]! ^= 1;
    writeFileSync(path, bytes);
    expect((await varve(["salvage", path, join(directory, "copy.varve")])).code).toBe(1);
    const copy = await open_("copy");
    const all = [
      copy.collection("users", json<User>(), { indexes }),
      copy.collection("drafts", structured<User>(), { indexes }),
    ];
    assert(all[0]!.count() < 1_000, "records of a frame were lost");
    for (const users of all) {
      const { byCity, byTag: byTags } = users.index;
      const keys = [...users.keys()].sort();
      assert(keys.length >= 700, `${keys.length} keys`);
      expect([...byCity.keys()].sort()).toStrictEqual(keys);
      expect([...byTags.keys({ lt: 1_000 })].sort()).toStrictEqual(keys);
      expect(byTags.count()).toBe(2 * keys.length);
    }
    const salvaged = copy.collection("posts", Post, { indexes: { byTag } });
    expect(salvaged.index.byTag.count()).toBe(2 * salvaged.count());
    await copy.close();
  });

  test("salvage rebuilds the indexes of a damaged file from its records", async () => {
    const indexes = { byOffset: "offset", byLimit: { fields: ["limit", "offset"] } } as const;
    const directory = folder();
    const open_ = (name: string) => open(name, { storage: file(directory) });
    const db = await open_("shop");
    const pages = db.collection("pages", Page, { indexes });
    for (let i = 0; i < 3_000; i += 1) {
      pages.set(`page ${i}`, { offset: 3_000 - i, limit: i % 7 });
      if (i % 100 === 99) db.commit();
    }
    await db.close();
    const path = join(directory, "shop.varve");
    const bytes = readFileSync(path);
    bytes[bytes.indexOf("page 1234") + 3]! ^= 1;
    writeFileSync(path, bytes);
    const { code, stdout } = await varve(["salvage", path, join(directory, "copy.varve")]);
    expect(code).toBe(1);
    assert(stdout.toString().includes("uncertain: "), stdout.toString());
    const copy = await open_("copy");
    const all = copy.collection("pages", Page, { indexes });
    const keys = [...all.keys()].sort();
    assert(keys.length >= 2_890 && keys.length < 3_000, `${keys.length} keys`);
    expect([...all.index.byOffset.keys()].sort()).toStrictEqual(keys);
    expect([...all.index.byLimit.keys()].sort()).toStrictEqual(keys);
    const offsets = [...all.index.byOffset.values()].map(({ offset }) => offset);
    expect(offsets).toStrictEqual([...offsets].sort((a, b) => a - b));
    await copy.close();
  });
});
