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

/** Contents by name: they last as long as the worker. */
const maps = new Map<string, MapStore>();

class MapStore implements Store {
  readonly #pairs = new Map<string, Uint8Array>();
  readonly #products = new Map<string, Product>();

  gets(keys: readonly string[], from: number, to: number): number {
    let sum = 0;
    for (let i = from; i < to; i++) sum += looked(this.#pairs.get(keys[i]!)!);
    return sum;
  }

  sets(keys: readonly string[], values: readonly Uint8Array[], from: number, to: number): void {
    for (let i = from; i < to; i++) {
      const held = this.#pairs.get(keys[i]!);
      if (held?.length === values[i]!.length) held.set(values[i]!);
      else this.#pairs.set(keys[i]!, values[i]!.slice());
    }
  }

  updates(keys: readonly string[], from: number, to: number, stamp: number): number {
    let sum = 0;
    for (let i = from; i < to; i++) {
      const value = this.#pairs.get(keys[i]!)!;
      sum += looked(value);
      writeStamp(value, stamp);
    }
    return sum;
  }

  deletes(keys: readonly string[], from: number, to: number): void {
    for (let i = from; i < to; i++) this.#pairs.delete(keys[i]!);
  }

  mixed({ kinds, keys, values }: Mixed, from: number, to: number, stamp: number): number {
    let sum = 0;
    for (let i = from; i < to; i++) {
      const kind = kinds[i];
      if (kind === GET) sum += looked(this.#pairs.get(keys[i]!)!);
      else if (kind === INSERT) this.#pairs.set(keys[i]!, values[i]!.slice());
      else if (kind === DELETE) this.#pairs.delete(keys[i]!);
      else writeStamp(this.#pairs.get(keys[i]!)!, stamp);
    }
    return sum;
  }

  list(limit: number): Pair[] {
    const first = [...this.#pairs.keys()].sort().slice(0, limit);
    return first.map((key) => [key, this.#pairs.get(key)!]);
  }

  pairs(): Pair[] {
    return [...this.#pairs];
  }

  restock(kind: Kind, stock: number): void {
    const product = { stock, name: PRODUCT_NAME };
    if (kind === "raw") this.#pairs.set(PRODUCT_KEY, encodeProduct(product));
    else this.#products.set(PRODUCT_KEY, product);
  }

  buy(kind: Kind, buyers: number): void {
    for (let buyer = 0; buyer < buyers; buyer++) {
      const taken =
        kind === "raw"
          ? takeFrom(this.#pairs.get(PRODUCT_KEY)!)
          : takeOneObject(this.#products.get(PRODUCT_KEY)!);
      if (!taken) throw refused(buyer);
    }
  }

  product(kind: Kind): Product | undefined {
    if (kind === "typed") return this.#products.get(PRODUCT_KEY);
    const record = this.#pairs.get(PRODUCT_KEY);
    return record && productOf(record);
  }

  close(): void {}
}

export const map: Driver = {
  async open(name) {
    const store = maps.get(name) ?? new MapStore();
    maps.set(name, store);
    return store;
  },
  async remove(name) {
    maps.delete(name);
  },
};
