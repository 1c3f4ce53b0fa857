import { deepStrictEqual, notDeepStrictEqual } from "node:assert";
import { inspect } from "node:util";
import { connect, memory, open } from "varve";
import { json, str, struct, u16 } from "varve/struct";
import { context, equal, suite, test, wasmOption } from "../harness.js";

suite("console output", () => {
  test("a database and its collections are shown by what they are, not by their fields", async () => {
    const db = await open("shop", { storage: memory(), ...wasmOption() });
    const Product = struct("Product", { stock: u16, name: str });
    const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
    db.set("key", "value");
    equal(inspect(db), `Database "shop" { keys: 1, durability: 'written' }`);
    equal(
      inspect(products),
      `Collection "products" { key: 'string', value: 'Product', indexes: [ 'byStock' ] }`,
    );
    await db.close();
    equal(inspect(db), 'Database "shop" { closed: true }');
  });

  test("clients are shown and compared without their fields", async () => {
    const collections = { products: json() };
    const [one, two] = [connect("one"), connect("two", { collections })];
    const shown = context().runtime === "bun" ? "Client [EventTarget] {}" : "Client {}";
    equal(inspect(one, { depth: 9 }), shown);
    equal(inspect(two.products, { depth: 9 }), `RemoteCollection { name: 'products' }`);
    equal(inspect(one.call, { depth: 9 }), "[Object: null prototype] {}");
    deepStrictEqual(two.products, two.collection("products"));
    deepStrictEqual({ at: one, call: two.call }, { at: one, call: two.call });
    notDeepStrictEqual(two.products, connect("three").call);
    equal(one.status.state, "idle");
    await Promise.all([one.close(), two.close()]);
  });
});
