import { deepStrictEqual, notDeepStrictEqual } from "node:assert";
import { inspect } from "node:util";
import { connect, memory, open } from "varve";
import { json, str, struct, u16 } from "varve/struct";
import { describe, expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";

describe("console output", () => {
  test("a database and its collections are shown by what they are, not by their fields", async () => {
    const db = await open("shop", { storage: memory(), ...wasmOption() });
    const Product = struct("Product", { stock: u16, name: str });
    const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
    db.set("key", "value");
    expect(inspect(db)).toBe(`Database "shop" { keys: 1, durability: 'written' }`);
    expect(inspect(products)).toBe(
      `Collection "products" { key: 'string', value: 'Product', indexes: [ 'byStock' ] }`,
    );
    expect(inspect(products.index)).toBe("[ 'byStock' ]");
    expect(inspect({ of: db.collection("plain", json()).index })).toBe("{ of: [] }");
    await db.close();
    expect(inspect(db)).toBe('Database "shop" { closed: true }');
  });

  test("clients are shown and compared without their fields", async () => {
    const collections = { products: json() };
    const [one, two] = [connect("one"), connect("two", { collections })];
    const shown = context().runtime === "bun" ? "Client [EventTarget] {}" : "Client {}";
    expect(inspect(one, { depth: 9 })).toBe(shown);
    expect(inspect(two.products, { depth: 9 })).toBe(`RemoteCollection { name: 'products' }`);
    expect(inspect(one.call, { depth: 9 })).toBe("[Object: null prototype] {}");
    deepStrictEqual(two.products, two.collection("products"));
    deepStrictEqual({ at: one, call: two.call }, { at: one, call: two.call });
    notDeepStrictEqual(two.products, connect("three").call);
    expect(one.status.state).toBe("idle");
    await Promise.all([one.close(), two.close()]);
  });
});
