/** Databases and clients whose values the hooks of each framework show. */

import { type Client, connect, memory, open, type Served, serve, type Watching } from "varve";
import { str, struct, u32 } from "varve/struct";
import { describe, onTestFinished } from "vitest";
import { wasmOption } from "../support/context.js";

export const Product = struct("Product", { stock: u32, name: str });

const COLLECTIONS = { products: { of: Product, indexes: { byStock: "stock" } } } as const;

/** A database of this realm. */
async function ofDatabase() {
  const db = await open("shop", { storage: memory(), ...wasmOption() });
  const { indexes } = COLLECTIONS.products;
  const products = db.collection("products", Product, { indexes });
  onTestFinished(() => db.close());
  return { to: db, products };
}

/** A client of a database that is served at the other end of a channel. */
async function ofClient() {
  const { port1, port2 } = new MessageChannel();
  const options = { storage: memory(), collections: COLLECTIONS, ...wasmOption() };
  serve("shop", options).listen(port1);
  const client = connect<Served<Record<never, never>, typeof COLLECTIONS>>("shop", {
    worker: () => port2,
  });
  onTestFinished(async () => {
    await (client as Client).close();
    port1.close();
    port2.close();
  });
  return { to: client, products: client.collection("products") };
}

/** A database or client, and its collection of products. */
export type Shop = Awaited<ReturnType<typeof ofDatabase | typeof ofClient>>;

/** Registers the same tests for a database and for a client. */
export function everySource(name: string, define: (make: () => Promise<Shop>) => void): void {
  describe(`${name} (a database)`, () => define(ofDatabase));
  describe(`${name} (a client)`, () => define(ofClient));
}

/** Products by their keys, with this stock. */
export async function fill({ products }: Shop, count: number, stock = (i: number) => i) {
  for (let i = 0; i < count; i += 1) {
    await products.set(key(i), { stock: stock(i), name: `product ${i}` });
  }
}

/** The key of a product. */
export function key(i: number): string {
  return `p${String(i).padStart(4, "0")}`;
}

/** Changes the name of a product. */
export async function rename({ products }: Shop, i: number, name: string, stock = i) {
  await products.set(key(i), { stock, name });
}

/** A collection that counts how often its ranges are followed, and how many of them are at present. */
export function counted<S extends Shop["products"]>(products: S) {
  const counts = { begun: 0, open: 0 };
  const source = new Proxy(products as Shop["products"], {
    get(of, name) {
      const value = Reflect.get(of, name, of);
      if (name !== "live") return value;
      return (...args: Parameters<S["live"]>): Watching => {
        counts.begun += 1;
        counts.open += 1;
        const { live } = of as { live(...args: unknown[]): Watching };
        const watching = live.apply(of, args);
        const close = () => {
          counts.open -= 1;
          watching.close();
        };
        return { ...watching, close, ended: watching.ended };
      };
    },
  });
  return { counts, source: source as S };
}
