import {
  createStore,
  delMany,
  entries,
  get,
  getMany,
  set,
  setMany,
  type UseStore,
  update,
} from "idb-keyval";
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
  UPDATE,
  writeStamp,
} from "../store.js";
import { removeDatabase } from "./indexeddb.js";

/** It has no transactions: its `update` is atomic for one record, so records that are changed are changed singly. */
class IdbKeyvalStore implements Store {
  constructor(
    private readonly pairStore: UseStore,
    private readonly products: UseStore,
    private readonly end: () => Promise<void>,
  ) {}

  async gets(keys: readonly string[], from: number, to: number): Promise<number> {
    const found = await getMany<Uint8Array>(keys.slice(from, to), this.pairStore);
    return found.reduce((sum, value) => sum + looked(value!), 0);
  }

  sets(keys: readonly string[], values: readonly Uint8Array[], from: number, to: number) {
    const pairs: Pair[] = [];
    for (let i = from; i < to; i++) pairs.push([keys[i]!, values[i]!]);
    return setMany(pairs, this.pairStore);
  }

  async updates(keys: readonly string[], from: number, to: number, stamp: number): Promise<number> {
    let sum = 0;
    const change = (value: Uint8Array | undefined) => {
      sum += looked(value!);
      writeStamp(value!, stamp);
      return value!;
    };
    await Promise.all(
      keys.slice(from, to).map((key) => update<Uint8Array>(key, change, this.pairStore)),
    );
    return sum;
  }

  deletes(keys: readonly string[], from: number, to: number): Promise<void> {
    return delMany(keys.slice(from, to), this.pairStore);
  }

  async mixed({ kinds, keys, values }: Mixed, from: number, to: number, stamp: number) {
    const chosen = (wanted: number) => {
      const indexes: number[] = [];
      for (let i = from; i < to; i++) if (kinds[i] === wanted) indexes.push(i);
      return indexes;
    };
    const keysOf = (indexes: number[]) => indexes.map((i) => keys[i]!);
    const updated = keysOf(chosen(UPDATE));
    const inserted = chosen(INSERT).map((i): Pair => [keys[i]!, values[i]!]);
    const [found] = await Promise.all([
      getMany<Uint8Array>(keysOf(chosen(GET)), this.pairStore),
      this.updates(updated, 0, updated.length, stamp),
      setMany(inserted, this.pairStore),
      delMany(keysOf(chosen(DELETE)), this.pairStore),
    ]);
    return found.reduce((sum, value) => sum + looked(value!), 0);
  }

  /** It reads all or nothing. */
  async list(limit: number): Promise<Pair[]> {
    return (await this.pairs()).slice(0, limit);
  }

  pairs(): Promise<Pair[]> {
    return entries<string, Uint8Array>(this.pairStore);
  }

  restock(kind: Kind, stock: number): Promise<void> {
    const product = { stock, name: PRODUCT_NAME };
    return kind === "raw"
      ? set(PRODUCT_KEY, encodeProduct(product), this.pairStore)
      : set(PRODUCT_KEY, product, this.products);
  }

  async buy(kind: Kind, buyers: number): Promise<void> {
    let bought = false;
    const takeRaw = (record: Uint8Array | undefined) => {
      bought = record !== undefined && takeFrom(record);
      return record!;
    };
    const takeTyped = (product: Product | undefined) => {
      bought = product !== undefined && takeOneObject(product);
      return product!;
    };
    for (let buyer = 0; buyer < buyers; buyer++) {
      if (kind === "raw") await update(PRODUCT_KEY, takeRaw, this.pairStore);
      else await update(PRODUCT_KEY, takeTyped, this.products);
      if (!bought) throw refused(buyer);
    }
  }

  async product(kind: Kind): Promise<Product | undefined> {
    if (kind === "typed") return get<Product>(PRODUCT_KEY, this.products);
    const record = await get<Uint8Array>(PRODUCT_KEY, this.pairStore);
    return record && productOf(record);
  }

  close(): Promise<void> {
    return this.end();
  }
}

export const idbKeyval: Driver = {
  async open(name) {
    const pairs = createStore(`${name}-idb-keyval`, "pairs");
    const products = createStore(`${name}-idb-keyval-products`, "products");
    // It has no call that closes a database, so the connection is taken from a transaction.
    const end = async () => {
      for (const store of [pairs, products]) {
        await store("readonly", (objects) => objects.transaction.db.close());
      }
    };
    return new IdbKeyvalStore(pairs, products, end);
  },
  async remove(name) {
    await removeDatabase(`${name}-idb-keyval`);
    await removeDatabase(`${name}-idb-keyval-products`);
  },
};
