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

const PAIRS = "pairs";
const PRODUCTS = "products";

type Found = { key: IDBValidKey; value: Uint8Array };

/** A method of newer browsers that TypeScript's types lack. */
interface WithRecords extends IDBObjectStore {
  getAllRecords?(options: { query?: IDBKeyRange; count?: number }): IDBRequest<Found[]>;
}

export function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("an IndexedDB request failed"));
  });
}

function completed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () =>
      reject(transaction.error ?? new Error("an IndexedDB transaction was aborted"));
  });
}

/** Removes a database of IndexedDB, whichever library made it. */
export async function removeDatabase(name: string): Promise<void> {
  await settled(indexedDB.deleteDatabase(name));
}

async function openDatabase(name: string): Promise<IDBDatabase> {
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => {
    request.result.createObjectStore(PAIRS);
    request.result.createObjectStore(PRODUCTS);
  };
  return await settled(request);
}

/** The pairs from a key on, in order. */
async function pairsFrom(store: WithRecords, start: string, count?: number): Promise<Pair[]> {
  const query = IDBKeyRange.lowerBound(start);
  if (store.getAllRecords !== undefined) {
    const found = await settled(
      store.getAllRecords(count === undefined ? { query } : { query, count }),
    );
    return found.map(({ key, value }) => [key as string, value]);
  }
  const keys = settled(store.getAllKeys(query, count));
  const values: Promise<Uint8Array[]> = settled(store.getAll(query, count));
  const found = await values;
  return (await keys).map((key, index) => [key as string, found[index]!]);
}

function sumOf(pairs: readonly Pair[]): number {
  let sum = 0;
  for (const [key, value] of pairs) sum += key.length + looked(value);
  return sum;
}

/** What both ways of using IndexedDB share, outside of what is measured. */
abstract class IndexedDbStore {
  constructor(protected readonly db: IDBDatabase) {}

  protected reader(): IDBObjectStore {
    return this.db.transaction(PAIRS).objectStore(PAIRS);
  }

  list(limit: number): Promise<Pair[]> {
    return pairsFrom(this.reader(), "", limit);
  }

  pairs(): Promise<Pair[]> {
    return pairsFrom(this.reader(), "");
  }

  async restock(kind: Kind, stock: number): Promise<void> {
    const name = kind === "raw" ? PAIRS : PRODUCTS;
    const transaction = this.db.transaction(name, "readwrite");
    const done = completed(transaction);
    const product: Product = { stock, name: PRODUCT_NAME };
    const stored = kind === "raw" ? encodeProduct(product) : product;
    transaction.objectStore(name).put(stored, PRODUCT_KEY);
    await done;
  }

  async product(kind: Kind): Promise<Product | undefined> {
    const name = kind === "raw" ? PAIRS : PRODUCTS;
    const request = this.db.transaction(name).objectStore(name).get(PRODUCT_KEY);
    const found: Uint8Array | Product | undefined = await settled(request);
    return found instanceof Uint8Array ? productOf(found) : found;
  }

  close(): void {
    this.db.close();
  }
}

/** Takes one from the product in whichever form it is stored. */
function take(product: Uint8Array | Product | undefined): boolean {
  if (product === undefined) return false;
  return product instanceof Uint8Array ? takeFrom(product) : takeOneObject(product);
}

/** All requests of a transaction are made at once, and it is committed without waiting for their answers. */
class TunedStore extends IndexedDbStore implements Store {
  async #write(work: (store: IDBObjectStore) => void, name = PAIRS): Promise<void> {
    const transaction = this.db.transaction(name, "readwrite", { durability: "relaxed" });
    const done = completed(transaction);
    work(transaction.objectStore(name));
    await done;
  }

  gets(keys: readonly string[], from: number, to: number): Promise<number> {
    const store = this.reader();
    return new Promise((resolve, reject) => {
      let sum = 0;
      let left = to - from;
      for (let i = from; i < to; i++) {
        const request: IDBRequest<Uint8Array> = store.get(keys[i]!);
        request.onsuccess = () => {
          sum += looked(request.result);
          left -= 1;
          if (left === 0) resolve(sum);
        };
        request.onerror = () => reject(request.error);
      }
    });
  }

  sets(keys: readonly string[], values: readonly Uint8Array[], from: number, to: number) {
    return this.#write((store) => {
      for (let i = from; i < to; i++) store.put(values[i]!, keys[i]!);
      store.transaction.commit();
    });
  }

  async updates(keys: readonly string[], from: number, to: number, stamp: number): Promise<number> {
    let sum = 0;
    await this.#write((store) => {
      for (let i = from; i < to; i++) {
        const request: IDBRequest<Uint8Array> = store.get(keys[i]!);
        request.onsuccess = () => {
          sum += looked(request.result);
          writeStamp(request.result, stamp);
          store.put(request.result, keys[i]!);
        };
      }
    });
    return sum;
  }

  deletes(keys: readonly string[], from: number, to: number): Promise<void> {
    return this.#write((store) => {
      for (let i = from; i < to; i++) store.delete(keys[i]!);
      store.transaction.commit();
    });
  }

  async mixed(
    { kinds, keys, values }: Mixed,
    from: number,
    to: number,
    stamp: number,
  ): Promise<number> {
    let sum = 0;
    await this.#write((store) => {
      for (let i = from; i < to; i++) {
        const kind = kinds[i];
        if (kind === INSERT) store.put(values[i]!, keys[i]!);
        else if (kind === DELETE) store.delete(keys[i]!);
        else {
          const request: IDBRequest<Uint8Array> = store.get(keys[i]!);
          request.onsuccess = () => {
            if (kind === GET) sum += looked(request.result);
            else {
              writeStamp(request.result, stamp);
              store.put(request.result, keys[i]!);
            }
          };
        }
      }
    });
    return sum;
  }

  async ranges(starts: readonly string[], from: number, to: number, limit: number) {
    const store = this.reader();
    const found = starts.slice(from, to).map((start) => pairsFrom(store, start, limit));
    return (await Promise.all(found)).reduce((sum, pairs) => sum + sumOf(pairs), 0);
  }

  async buy(kind: Kind, buyers: number, commitEach: boolean): Promise<void> {
    const name = kind === "raw" ? PAIRS : PRODUCTS;
    const within = commitEach ? 1 : buyers;
    for (let bought = 0; bought < buyers; bought += within) {
      let left = within;
      await this.#write((store) => {
        // The next read is queued behind the write without waiting for it: requests of a transaction run in order.
        const next = () => {
          const request: IDBRequest<Uint8Array | Product | undefined> = store.get(PRODUCT_KEY);
          request.onsuccess = () => {
            if (!take(request.result)) {
              store.transaction.abort();
              return;
            }
            store.put(request.result, PRODUCT_KEY);
            left -= 1;
            if (left > 0) next();
            else store.transaction.commit();
          };
        };
        next();
      }, name).catch((cause: unknown) => {
        throw Object.assign(refused(bought + within - left), { cause });
      });
    }
  }
}

/** As one writes it at first: a transaction for each request, and each is awaited. */
class NaiveStore extends IndexedDbStore implements Store {
  async #get<T>(key: string, name = PAIRS): Promise<T> {
    return await settled<T>(this.db.transaction(name).objectStore(name).get(key));
  }

  async #put(key: string, value: unknown, name = PAIRS): Promise<void> {
    const transaction = this.db.transaction(name, "readwrite");
    const done = completed(transaction);
    transaction.objectStore(name).put(value, key);
    await done;
  }

  async #delete(key: string): Promise<void> {
    const transaction = this.db.transaction(PAIRS, "readwrite");
    const done = completed(transaction);
    transaction.objectStore(PAIRS).delete(key);
    await done;
  }

  async gets(keys: readonly string[], from: number, to: number): Promise<number> {
    let sum = 0;
    for (let i = from; i < to; i++) sum += looked(await this.#get<Uint8Array>(keys[i]!));
    return sum;
  }

  async sets(keys: readonly string[], values: readonly Uint8Array[], from: number, to: number) {
    for (let i = from; i < to; i++) await this.#put(keys[i]!, values[i]!);
  }

  async updates(keys: readonly string[], from: number, to: number, stamp: number): Promise<number> {
    let sum = 0;
    for (let i = from; i < to; i++) sum += await this.#update(keys[i]!, stamp);
    return sum;
  }

  async #update(key: string, stamp: number): Promise<number> {
    const value = await this.#get<Uint8Array>(key);
    writeStamp(value, stamp);
    await this.#put(key, value);
    return looked(value);
  }

  async deletes(keys: readonly string[], from: number, to: number): Promise<void> {
    for (let i = from; i < to; i++) await this.#delete(keys[i]!);
  }

  async mixed({ kinds, keys, values }: Mixed, from: number, to: number, stamp: number) {
    let sum = 0;
    for (let i = from; i < to; i++) {
      const kind = kinds[i];
      const key = keys[i]!;
      if (kind === GET) sum += looked(await this.#get<Uint8Array>(key));
      else if (kind === INSERT) await this.#put(key, values[i]!);
      else if (kind === DELETE) await this.#delete(key);
      else await this.#update(key, stamp);
    }
    return sum;
  }

  /** With a cursor, as most examples do it. */
  async ranges(starts: readonly string[], from: number, to: number, limit: number) {
    let sum = 0;
    for (let i = from; i < to; i++) sum += await this.#range(starts[i]!, limit);
    return sum;
  }

  #range(start: string, limit: number): Promise<number> {
    return new Promise((resolve, reject) => {
      const pairs: Pair[] = [];
      const request = this.reader().openCursor(IDBKeyRange.lowerBound(start));
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const cursor = request.result;
        if (cursor !== null) pairs.push([cursor.key as string, cursor.value]);
        if (cursor === null || pairs.length === limit) resolve(sumOf(pairs));
        else cursor.continue();
      };
    });
  }

  async buy(kind: Kind, buyers: number): Promise<void> {
    const name = kind === "raw" ? PAIRS : PRODUCTS;
    for (let buyer = 0; buyer < buyers; buyer++) {
      const product = await this.#get<Uint8Array | Product | undefined>(PRODUCT_KEY, name);
      if (!take(product)) throw refused(buyer);
      await this.#put(PRODUCT_KEY, product, name);
    }
  }
}

export const indexedDbTuned: Driver = {
  open: async (name) => new TunedStore(await openDatabase(`${name}-indexeddb`)),
  remove: (name) => removeDatabase(`${name}-indexeddb`),
};

export const indexedDbNaive: Driver = {
  open: async (name) => new NaiveStore(await openDatabase(`${name}-naive`)),
  remove: (name) => removeDatabase(`${name}-naive`),
};
