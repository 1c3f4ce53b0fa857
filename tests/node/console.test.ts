import { inspect } from "node:util";
import { memory, open } from "varve";
import { str, struct, u16 } from "varve/struct";
import { equal, suite, test, wasmOption } from "../harness.js";

suite("what a console shows", () => {
  test("of a database and its collections: what they are, and not how they are made", async () => {
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
});
