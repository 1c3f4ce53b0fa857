import { Dexie, type Table } from "dexie";
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

class DexieStore implements Store {
  readonly #pairs: Table<Uint8Array, string>;
  readonly #products: Table<Product, string>;

  constructor(private readonly db: Dexie) {
    this.#pairs = db.table("pairs");
    this.#products = db.table("products");
  }

  async gets(keys: readonly string[], from: number, to: number): Promise<number> {
    const found = await this.#pairs.bulkGet(keys.slice(from, to));
    return found.reduce((sum, value) => sum + looked(value!), 0);
  }

  async sets(keys: readonly string[], values: readonly Uint8Array[], from: number, to: number) {
    await this.#pairs.bulkPut(values.slice(from, to), keys.slice(from, to));
  }

  updates(keys: readonly string[], from: number, to: number, stamp: number): Promise<number> {
    return this.db.transaction("rw", this.#pairs, () => this.#update(keys.slice(from, to), stamp));
  }

  async #update(keys: string[], stamp: number): Promise<number> {
    const found = await this.#pairs.bulkGet(keys);
    let sum = 0;
    for (const value of found) {
      sum += looked(value!);
      writeStamp(value!, stamp);
    }
    await this.#pairs.bulkPut(found as Uint8Array[], keys);
    return sum;
  }

  async deletes(keys: readonly string[], from: number, to: number): Promise<void> {
    await this.#pairs.bulkDelete(keys.slice(from, to));
  }

  mixed({ kinds, keys, values }: Mixed, from: number, to: number, stamp: number): Promise<number> {
    const chosen = (wanted: number) => {
      const indexes: number[] = [];
      for (let i = from; i < to; i++) if (kinds[i] === wanted) indexes.push(i);
      return indexes;
    };
    const keysOf = (indexes: number[]) => indexes.map((i) => keys[i]!);
    return this.db.transaction("rw", this.#pairs, async () => {
      const found = await this.#pairs.bulkGet(keysOf(chosen(GET)));
      await this.#update(keysOf(chosen(UPDATE)), stamp);
      const inserted = chosen(INSERT);
      await this.#pairs.bulkPut(
        inserted.map((i) => values[i]!),
        keysOf(inserted),
      );
      await this.#pairs.bulkDelete(keysOf(chosen(DELETE)));
      return found.reduce((sum, value) => sum + looked(value!), 0);
    });
  }

  /** Keys lie outside of the values, so that both are asked for. */
  async #from(start: string, limit: number): Promise<Pair[]> {
    const range = () => this.#pairs.where(":id").aboveOrEqual(start).limit(limit);
    const [keys, values] = await Promise.all([range().primaryKeys(), range().toArray()]);
    return keys.map((key, index) => [key, values[index]!]);
  }

  async ranges(starts: readonly string[], from: number, to: number, limit: number) {
    const found = await this.db.transaction("r", this.#pairs, () =>
      Promise.all(starts.slice(from, to).map((start) => this.#from(start, limit))),
    );
    let sum = 0;
    for (const [key, value] of found.flat()) sum += key.length + looked(value);
    return sum;
  }

  list(limit: number): Promise<Pair[]> {
    return this.#from("", limit);
  }

  pairs(): Promise<Pair[]> {
    return this.#from("", Number.POSITIVE_INFINITY);
  }

  async restock(kind: Kind, stock: number): Promise<void> {
    const product = { stock, name: PRODUCT_NAME };
    if (kind === "raw") await this.#pairs.put(encodeProduct(product), PRODUCT_KEY);
    else await this.#products.put(product, PRODUCT_KEY);
  }

  async buy(kind: Kind, buyers: number, commitEach: boolean): Promise<void> {
    const table = kind === "raw" ? this.#pairs : this.#products;
    const one = async (buyer: number) => {
      if (kind === "raw") {
        const record = await this.#pairs.get(PRODUCT_KEY);
        if (record === undefined || !takeFrom(record)) throw refused(buyer);
        await this.#pairs.put(record, PRODUCT_KEY);
      } else {
        const product = await this.#products.get(PRODUCT_KEY);
        if (product === undefined || !takeOneObject(product)) throw refused(buyer);
        await this.#products.put(product, PRODUCT_KEY);
      }
    };
    if (commitEach) {
      for (let buyer = 0; buyer < buyers; buyer++) {
        await this.db.transaction("rw", table, () => one(buyer));
      }
      return;
    }
    await this.db.transaction("rw", table, async () => {
      for (let buyer = 0; buyer < buyers; buyer++) await one(buyer);
    });
  }

  async product(kind: Kind): Promise<Product | undefined> {
    if (kind === "typed") return this.#products.get(PRODUCT_KEY);
    const record = await this.#pairs.get(PRODUCT_KEY);
    return record && productOf(record);
  }

  close(): void {
    this.db.close();
  }
}

export const dexie: Driver = {
  async open(name) {
    const db = new Dexie(`${name}-dexie`, { chromeTransactionDurability: "relaxed" });
    db.version(1).stores({ pairs: "", products: "" });
    await db.open();
    return new DexieStore(db);
  },
  remove: (name) => Dexie.delete(`${name}-dexie`),
};
