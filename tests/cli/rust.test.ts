/** A program in Rust, crate/examples/shop.rs, and this one on the same file. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type DatabaseBusyError, file, open } from "varve";
import { toRust } from "varve/rust";
import { desc, f64, str, struct, u16, u32 } from "varve/struct";
import { cleanup, context, deepEqual, equal, ok, rejects, suite, test } from "../harness.js";
import { program, shop } from "./example.js";
import { folder } from "./support.js";

const Product = struct("Product", { stock: u16, name: str });
const INDEXES = {
  byStock: desc("stock"),
  byName: { fields: "name", unique: true },
} as const;

async function products(directory: string) {
  const db = await open("shop", { storage: file(directory) });
  return { db, products: db.collection("products", Product, { indexes: INDEXES }) };
}

/** A database with two products; closed. */
async function written(): Promise<{ directory: string; path: string }> {
  const directory = folder();
  const { db, products: all } = await products(directory);
  all.set("yeezy", { stock: 2, name: "Yeezy Boost 350 V2" });
  all.set("zoom", { stock: 300, name: "größe 品" });
  await db.close();
  return { directory, path: join(directory, "shop.varve") };
}

suite("a Rust program and Node", () => {
  test("Rust reads Node's data, in the order of keys and of indexes", async () => {
    const { path } = await written();
    const lines = "yeezy 2 Yeezy Boost 350 V2\nzoom 300 größe 品\n";
    deepEqual(shop(path, "list"), [lines, 0]);
    deepEqual(shop(path, "look"), [lines, 0]);
    deepEqual(shop(path, "by", "byStock"), ["zoom\nyeezy\n", 0]);
    deepEqual(shop(path, "by", "byName"), ["yeezy\nzoom\n", 0]);
  });

  test("Rust changes the data, and Node finds every record and index entry", async () => {
    const { directory, path } = await written();
    deepEqual(shop(path, "buy", "yeezy"), ["bought\n", 0]);
    deepEqual(shop(path, "buy", "yeezy"), ["bought\n", 0]);
    deepEqual(shop(path, "buy", "yeezy"), ["sold out\n", 0]);
    deepEqual(shop(path, "add", "air", "7", "Air"), ["", 0]);
    deepEqual(shop(path, "drop", "zoom"), ["true\n", 0]);
    const { db, products: all } = await products(directory);
    equal(db.recovery.wasClean, true);
    deepEqual(
      [...all.entries()].map(([key, { stock, name }]) => [key, stock, name]),
      [
        ["air", 7, "Air"],
        ["yeezy", 0, "Yeezy Boost 350 V2"],
      ],
    );
    deepEqual([...all.index.byStock.keys()], ["air", "yeezy"]);
    deepEqual([...all.index.byName.keys()], ["air", "yeezy"]);
    all.set("zoom", { stock: 1, name: "größe 品" });
    await db.close();
    deepEqual(shop(path, "by", "byStock"), ["air\nzoom\nyeezy\n", 0]);
  });

  test("a violation of Node's unique index is refused in Rust, and nothing is written", async () => {
    const { path } = await written();
    const [said, code] = shop(path, "add", "other", "1", "größe 品");
    ok(said.startsWith("shop: VARVE_UNIQUE_VIOLATION "), said);
    equal(code, 1);
    deepEqual(shop(path, "by", "byName"), ["yeezy\nzoom\n", 0]);
  });

  test("Rust creates a collection and a database that Node opens", async () => {
    const directory = folder();
    const path = join(directory, "shop.varve");
    deepEqual(shop(path, "add", "yeezy", "20001", "Yeezy Boost 350 V2"), ["", 0]);
    const db = await open("shop", { storage: file(directory) });
    const all = db.collection("products", Product);
    deepEqual(all.get("yeezy")?.snapshot(), { stock: 20_001, name: "Yeezy Boost 350 V2" });
    // The next collection gets another keyspace.
    db.collection("scores", struct("Score", { points: f64 }), { key: [u32, str] }).set([1, "a"], {
      points: 1.5,
    });
    equal(all.count(), 1);
    await db.close();
    deepEqual(shop(path, "list"), ["yeezy 20001 Yeezy Boost 350 V2\n", 0]);
  });

  test("Rust refuses another schema", async () => {
    const directory = folder();
    const db = await open("shop", { storage: file(directory) });
    db.collection("products", struct("Product", { stock: u32, name: str })).set("a", {
      stock: 1,
      name: "A",
    });
    await db.close();
    const [said, code] = shop(join(directory, "shop.varve"), "list");
    ok(said.startsWith("shop: VARVE_SCHEMA_MISMATCH "), said);
    ok(said.includes('"stock" is u32, not u16'), said);
    equal(code, 1);
  });

  test("Rust and Node refuse a file that the other has open", async () => {
    const { directory, path } = await written();
    const { db } = await products(directory);
    const [said, code] = shop(path, "list");
    ok(said.startsWith(`shop: VARVE_DATABASE_BUSY the database ${path} is open in process`), said);
    ok(said.includes(`process ${process.pid};`), said);
    equal(code, 1);
    await db.close();
    const holder = spawn(program(), [path, "hold"], { stdio: ["pipe", "pipe", "inherit"] });
    cleanup(() => holder.kill("SIGKILL"));
    await once(holder.stdout, "data");
    const busy = await rejects(products(directory), { code: "VARVE_DATABASE_BUSY" });
    equal((busy as DatabaseBusyError).pid, holder.pid);
    holder.kill("SIGKILL");
    await once(holder, "exit");
    // Its lock is still there, and is recognized as dead.
    ok(existsSync(`${path}.lock`));
    await (await products(directory)).db.close();
    deepEqual(shop(path, "buy", "yeezy"), ["bought\n", 0]);
    ok(!existsSync(`${path}.lock`));
  });

  test("the struct of toRust is the one in the program", () => {
    const printed = toRust(Product);
    const example = readFileSync(join(context().root, "crate/examples/shop.rs"), "utf8");
    const struct = printed.slice(printed.indexOf("#[derive")).replaceAll("pub ", "");
    ok(example.includes(struct), struct);
  });
});
