/** A program in Rust, crate/examples/shop.rs, and this one on the same file. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type DatabaseBusyError, file, open } from "varve";
import { toRust } from "varve/rust";
import { desc, f64, str, struct, u16, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { rejects } from "../support/errors.js";
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

describe("a Rust program and Node", () => {
  test("Rust reads Node's data, in the order of keys and of indexes", async () => {
    const { path } = await written();
    const lines = "yeezy 2 Yeezy Boost 350 V2\nzoom 300 größe 品\n";
    expect(shop(path, "list")).toStrictEqual([lines, 0]);
    expect(shop(path, "look")).toStrictEqual([lines, 0]);
    expect(shop(path, "by", "byStock")).toStrictEqual(["zoom\nyeezy\n", 0]);
    expect(shop(path, "by", "byName")).toStrictEqual(["yeezy\nzoom\n", 0]);
  });

  test("Rust changes the data, and Node finds every record and index entry", async () => {
    const { directory, path } = await written();
    expect(shop(path, "buy", "yeezy")).toStrictEqual(["bought\n", 0]);
    expect(shop(path, "buy", "yeezy")).toStrictEqual(["bought\n", 0]);
    expect(shop(path, "buy", "yeezy")).toStrictEqual(["sold out\n", 0]);
    expect(shop(path, "add", "air", "7", "Air")).toStrictEqual(["", 0]);
    expect(shop(path, "drop", "zoom")).toStrictEqual(["true\n", 0]);
    const { db, products: all } = await products(directory);
    expect(db.recovery.wasClean).toBe(true);
    expect([...all.entries()].map(([key, { stock, name }]) => [key, stock, name])).toStrictEqual([
      ["air", 7, "Air"],
      ["yeezy", 0, "Yeezy Boost 350 V2"],
    ]);
    expect([...all.index.byStock.keys()]).toStrictEqual(["air", "yeezy"]);
    expect([...all.index.byName.keys()]).toStrictEqual(["air", "yeezy"]);
    all.set("zoom", { stock: 1, name: "größe 品" });
    await db.close();
    expect(shop(path, "by", "byStock")).toStrictEqual(["air\nzoom\nyeezy\n", 0]);
  });

  test("a violation of Node's unique index is refused in Rust, and nothing is written", async () => {
    const { path } = await written();
    const [output, code] = shop(path, "add", "other", "1", "größe 品");
    assert(output.startsWith("shop: VARVE_UNIQUE_VIOLATION "), output);
    expect(code).toBe(1);
    expect(shop(path, "by", "byName")).toStrictEqual(["yeezy\nzoom\n", 0]);
  });

  test("Rust creates a collection and a database that Node opens", async () => {
    const directory = folder();
    const path = join(directory, "shop.varve");
    expect(shop(path, "add", "yeezy", "20001", "Yeezy Boost 350 V2")).toStrictEqual(["", 0]);
    const db = await open("shop", { storage: file(directory) });
    const all = db.collection("products", Product);
    expect(all.get("yeezy")?.snapshot()).toStrictEqual({
      stock: 20_001,
      name: "Yeezy Boost 350 V2",
    });
    // The next collection gets another keyspace.
    db.collection("scores", struct("Score", { points: f64 }), { key: [u32, str] }).set([1, "a"], {
      points: 1.5,
    });
    expect(all.count()).toBe(1);
    await db.close();
    expect(shop(path, "list")).toStrictEqual(["yeezy 20001 Yeezy Boost 350 V2\n", 0]);
  });

  test("Rust refuses another schema", async () => {
    const directory = folder();
    const db = await open("shop", { storage: file(directory) });
    db.collection("products", struct("Product", { stock: u32, name: str })).set("a", {
      stock: 1,
      name: "A",
    });
    await db.close();
    const [output, code] = shop(join(directory, "shop.varve"), "list");
    assert(output.startsWith("shop: VARVE_SCHEMA_MISMATCH "), output);
    assert(output.includes('"stock" is u32, not u16'), output);
    expect(code).toBe(1);
  });

  test("Rust and Node refuse a file that the other has open", async () => {
    const { directory, path } = await written();
    const { db } = await products(directory);
    const [output, code] = shop(path, "list");
    assert(
      output.startsWith(`shop: VARVE_DATABASE_BUSY the database ${path} is open in process`),
      output,
    );
    assert(output.includes(`process ${process.pid};`), output);
    expect(code).toBe(1);
    await db.close();
    const holder = spawn(program(), [path, "hold"], { stdio: ["pipe", "pipe", "inherit"] });
    onTestFinished(() => {
      holder.kill("SIGKILL");
    });
    await once(holder.stdout, "data");
    const busy = await rejects(products(directory), { code: "VARVE_DATABASE_BUSY" });
    expect((busy as DatabaseBusyError).pid).toBe(holder.pid);
    holder.kill("SIGKILL");
    await once(holder, "exit");
    // Its lock still exists, and is recognized as stale.
    assert(existsSync(`${path}.lock`));
    await (await products(directory)).db.close();
    expect(shop(path, "buy", "yeezy")).toStrictEqual(["bought\n", 0]);
    assert(!existsSync(`${path}.lock`));
  });

  test("Rust and Node show the same log, with the notes of both", async () => {
    const { directory, path } = await written();
    const { db, products: all } = await products(directory);
    db.transaction(() => all.set("air", { stock: 1, name: "Air" }), { note: "größer" });
    db.commit();
    db.set("raw", new Uint8Array(600_001));
    db.set("large", new Uint8Array(900_001));
    db.commit();
    db.clear();
    all.delete("zoom");
    await db.close();
    expect(shop(path, "deliver", "air", "a hundred more")).toStrictEqual(["", 0]);
    const [output, code] = shop(path, "log");
    expect(code).toBe(0);
    const again = await products(directory);
    const lines: string[] = [];
    for (const tx of again.db.log()) {
      lines.push(`${tx.number} ${+(tx.time ?? 0)} ${tx.note ?? ""}`);
      for (const { type, collection = "", key = "", version, value } of tx) {
        const kind = `${type[0]?.toUpperCase()}${type.slice(1)}`;
        lines.push(`  ${kind} ${collection} ${key} ${version} ${value?.length ?? 0}`);
      }
    }
    await again.db.close();
    expect(output.trimEnd().split("\n")).toStrictEqual(lines);
    const notes = lines.filter((line) => /größer|a hundred more/.test(line)).length;
    expect(notes).toBe(2);
    assert(lines.some((line) => line.includes("Delete products zoom")));
  });

  test("the struct of toRust is the one in the program", () => {
    const printed = toRust(Product);
    const example = readFileSync(join(context().root, "crate/examples/shop.rs"), "utf8");
    const struct = printed.slice(printed.indexOf("#[derive")).replaceAll("pub ", "");
    assert(example.includes(struct), struct);
  });
});
