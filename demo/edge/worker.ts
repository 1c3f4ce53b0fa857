/** The product drop at the edge: one Durable Object sells a product to whoever asks first. */

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
    // Who asks again, because an answer was lost, has bought once.
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
    // It leaves the object when the sale is kept, and not before.
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
