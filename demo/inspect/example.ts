/** An example for the inspector: structs with an index, some of them overwritten or deleted, a large value, and notes. */

import type { Database } from "varve";
import { enum8, f64, str, struct, timestamp, u16, u32 } from "varve/struct";

const Product = struct("Product", {
  stock: u16,
  state: enum8("on sale", "sold out", "withdrawn"),
  sold: u32,
  price: f64,
  listed: timestamp,
  name: str,
});

const PRODUCTS = 6_000;
const ADJECTIVES = ["Light", "Heavy", "Blue", "Folding", "Small", "Electric", "Wooden", "Quiet"];
const NOUNS = ["kettle", "lamp", "chair", "bicycle", "backpack", "radio", "table", "fan", "clock"];

/** Fills a database with the same content each time. Takes well under a second. */
export async function fillExample(db: Database): Promise<void> {
  const products = db.collection("products", Product, { indexes: { byPrice: "price" } });
  const key = (i: number) => `product-${String(i).padStart(4, "0")}`;
  // Compaction would remove what is to be seen.
  db.retain("example", db.lastCommit);
  for (let i = 0; i < PRODUCTS; i += 1) {
    products.set(key(i), {
      stock: 10 + ((i * 7) % 90),
      state: "on sale",
      sold: 0,
      price: 5 + ((i * 37) % 1_000) / 10,
      listed: Date.UTC(2026, 0, 1) + i * 60_000,
      name: `${ADJECTIVES[i % ADJECTIVES.length]} ${NOUNS[(i * 5) % NOUNS.length]} ${i}`,
    });
    if (i % 500 === 499) await db.committed;
  }
  db.set(
    "readme",
    "The example of the inspector: products, an index of their prices, and a photo.",
  );
  db.set(
    "photo",
    new Uint8Array(900_000).map((_, i) => (i * i) >> 7),
  );
  await db.committed;
  for (let day = 1; day <= 8; day += 1) {
    for (let i = day; i < PRODUCTS; i += 9) {
      products.updateIf(key(i), (product) => {
        product.stock -= 1;
        product.sold += 1;
      });
    }
    await db.committed;
    if (day % 4 === 0) {
      db.transaction(
        () => {
          for (let i = day; i < PRODUCTS; i += 40) {
            products.updateIf(key(i), (product) => {
              product.price = Math.round(product.price * 90) / 100;
            });
          }
        },
        { note: `everything 10 % cheaper, day ${day}` },
      );
      await db.committed;
    }
  }
  db.transaction(
    () => {
      for (let i = 0; i < PRODUCTS; i += 13) products.delete(key(i));
    },
    { note: "withdrawn products removed" },
  );
  await db.committed;
  for (let order = 1; order <= 40; order += 1) {
    db.transaction(
      () => {
        products.updateIf(key(order), (product) => {
          product.stock -= 1;
          product.sold += 1;
        });
      },
      { note: `order ${1_000 + order}` },
    );
    await db.committed;
  }
  db.retain("example", undefined);
}
