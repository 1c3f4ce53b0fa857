import localforage from "localforage";
import { encodeProduct, PRODUCT_KEY, PRODUCT_NAME, type Product } from "../../drop.js";
import { productOf, takeFrom, takeOneObject } from "../products.js";
import {
  DELETE,
  type Driver,
  GET,
  INSERT,
  type Kind,
  looked,
  type Mixed,
  type Pair,
  refused,
  type Store,
  writeStamp,
} from "../store.js";
import { removeDatabase } from "./indexeddb.js";

/** It has calls for single records only. Those of a batch are made at once. */
class LocalForageStore implements Store {
  constructor(
    private readonly pairStore: LocalForage,
    private readonly products: LocalForage,
  ) {}

  async #read(key: string): Promise<number> {
    return looked((await this.pairStore.getItem<Uint8Array>(key))!);
  }

  async #update(key: string, stamp: number): Promise<number> {
    const value = (await this.pairStore.getItem<Uint8Array>(key))!;
    writeStamp(value, stamp);
    await this.pairStore.setItem(key, value);
    return looked(value);
  }

  async #sum(from: number, to: number, work: (i: number) => Promise<number>): Promise<number> {
    const all: Promise<number>[] = [];
    for (let i = from; i < to; i++) all.push(work(i));
    return (await Promise.all(all)).reduce((sum, one) => sum + one, 0);
  }

  gets(keys: readonly string[], from: number, to: number): Promise<number> {
    return this.#sum(from, to, (i) => this.#read(keys[i]!));
  }

  async sets(keys: readonly string[], values: readonly Uint8Array[], from: number, to: number) {
    await this.#sum(from, to, async (i) => {
      await this.pairStore.setItem(keys[i]!, values[i]!);
      return 0;
    });
  }

  updates(keys: readonly string[], from: number, to: number, stamp: number): Promise<number> {
    return this.#sum(from, to, (i) => this.#update(keys[i]!, stamp));
  }

  async deletes(keys: readonly string[], from: number, to: number): Promise<void> {
    await this.#sum(from, to, async (i) => {
      await this.pairStore.removeItem(keys[i]!);
      return 0;
    });
  }

  mixed({ kinds, keys, values }: Mixed, from: number, to: number, stamp: number): Promise<number> {
    return this.#sum(from, to, async (i) => {
      const key = keys[i]!;
      const kind = kinds[i];
      if (kind === GET) return await this.#read(key);
      if (kind === INSERT) await this.pairStore.setItem(key, values[i]!);
      else if (kind === DELETE) await this.pairStore.removeItem(key);
      else await this.#update(key, stamp);
      return 0;
    });
  }

  async list(limit: number): Promise<Pair[]> {
    const pairs: Pair[] = [];
    if (limit === 0) return pairs;
    await this.pairStore.iterate<Uint8Array, true | undefined>((value, key) => {
      pairs.push([key, value]);
      // A result ends the iteration.
      return pairs.length === limit ? true : undefined;
    });
    return pairs;
  }

  pairs(): Promise<Pair[]> {
    return this.list(Number.POSITIVE_INFINITY);
  }

  async restock(kind: Kind, stock: number): Promise<void> {
    const product = { stock, name: PRODUCT_NAME };
    if (kind === "raw") await this.pairStore.setItem(PRODUCT_KEY, encodeProduct(product));
    else await this.products.setItem(PRODUCT_KEY, product);
  }

  async buy(kind: Kind, buyers: number): Promise<void> {
    for (let buyer = 0; buyer < buyers; buyer++) {
      if (kind === "raw") {
        const record = await this.pairStore.getItem<Uint8Array>(PRODUCT_KEY);
        if (record === null || !takeFrom(record)) throw refused(buyer);
        await this.pairStore.setItem(PRODUCT_KEY, record);
      } else {
        const product = await this.products.getItem<Product>(PRODUCT_KEY);
        if (product === null || !takeOneObject(product)) throw refused(buyer);
        await this.products.setItem(PRODUCT_KEY, product);
      }
    }
  }

  async product(kind: Kind): Promise<Product | undefined> {
    if (kind === "typed") return (await this.products.getItem<Product>(PRODUCT_KEY)) ?? undefined;
    const record = await this.pairStore.getItem<Uint8Array>(PRODUCT_KEY);
    return record === null ? undefined : productOf(record);
  }

  /** It has no call that closes a database. Its connections close with the worker, or when the database is removed. */
  close(): void {}
}

function instance(name: string, storeName: string): LocalForage {
  return localforage.createInstance({ name, storeName, driver: localforage.INDEXEDDB });
}

export const localForage: Driver = {
  async open(name) {
    const pairs = instance(`${name}-localforage`, "pairs");
    const products = instance(`${name}-localforage-products`, "products");
    await Promise.all([pairs.ready(), products.ready()]);
    return new LocalForageStore(pairs, products);
  },
  async remove(name) {
    await removeDatabase(`${name}-localforage`);
    await removeDatabase(`${name}-localforage-products`);
  },
};
