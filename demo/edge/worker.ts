/**
 * The product drop at the edge: one Durable Object sells a product to the clients in the order of their
 * requests.
 */

import { type DurableObjectStorageLike, durableObject, open } from "varve";
import { str, struct, text, u16 } from "varve/struct";

const Product = struct("Product", { stock: u16, name: str });

interface Env {
  readonly DROPS: {
    idFromName(name: string): unknown;
    get(id: unknown): { fetch(request: Request): Promise<Response> };
  };
}

export class Drop {
  readonly #shop: ReturnType<typeof opened>;

  constructor({ storage }: { storage: DurableObjectStorageLike }) {
    this.#shop = opened(storage);
  }

  async fetch(request: Request): Promise<Response> {
    const { db, products, orders } = await this.#shop;
    const product = products.get("yeezy");
    if (request.method !== "POST") {
      return Response.json({ stock: product?.stock, orders: orders.count() });
    }
    const buyer = await request.text();
    // A client that retries because the answer was lost must not buy twice.
    const sold =
      orders.has(buyer) ||
      db.transaction(() => {
        const left = products.updateIf(
          "yeezy",
          (product) => {
            product.stock -= 1;
          },
          { predicate: (product) => product.stock > 0 },
        );
        if (left) orders.set(buyer, new Date().toISOString());
        return left;
      });
    // The runtime holds the answer back until the sale is stored.
    return Response.json(sold);
  }
}

async function opened(storage: DurableObjectStorageLike) {
  const db = await open("shop", { storage: durableObject(storage) });
  const products = db.collection("products", Product);
  const orders = db.collection("orders", text());
  if (!products.has("yeezy")) products.set("yeezy", { stock: 20_001, name: "Yeezy Boost 350 V2" });
  return { db, products, orders };
}

export default {
  fetch: (request: Request, { DROPS }: Env) => DROPS.get(DROPS.idFromName("drop")).fetch(request),
};
