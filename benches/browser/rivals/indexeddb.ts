import { PRODUCT_KEY, PRODUCT_NAME, type Product } from "../../../demo/drop.js";
import { type Rival, refused } from "./rival.js";

const NAME = "drop-bench-indexeddb";
const STORE = "products";

function settled<T>(request: IDBRequest<T>): Promise<T> {
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

async function openDatabase(): Promise<IDBDatabase> {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  return await settled(request);
}

/** Relaxed durability is IndexedDB's counterpart of "written": written to the system, not flushed. */
function begin(db: IDBDatabase): IDBTransaction {
  return db.transaction(STORE, "readwrite", { durability: "relaxed" });
}

/**
 * Serves buyers one after the other inside one transaction. The next read is queued behind the write without
 * waiting for it: requests of a transaction run in order, and this halves the round trips.
 */
function serveWithin(transaction: IDBTransaction, cycles: number): void {
  const store = transaction.objectStore(STORE);
  let cycle = 0;
  const buy = () => {
    const read: IDBRequest<Product | undefined> = store.get(PRODUCT_KEY);
    read.onsuccess = () => {
      const product = read.result;
      if (product === undefined || product.stock === 0 || product.name !== PRODUCT_NAME) {
        transaction.abort();
        return;
      }
      product.stock -= 1;
      store.put(product, PRODUCT_KEY);
      cycle += 1;
      if (cycle < cycles) buy();
      else transaction.commit();
    };
  };
  buy();
}

/** IndexedDB: one store, products as plain objects under a string key. */
export async function indexedDbRival(): Promise<Rival> {
  let db = await openDatabase();
  return {
    id: "indexeddb",
    name: "IndexedDB",
    durability: "relaxed: survives a crash of tab or browser",
    async restock(cycles) {
      const transaction = begin(db);
      const done = completed(transaction);
      transaction
        .objectStore(STORE)
        .put({ stock: cycles + 1, name: PRODUCT_NAME } satisfies Product, PRODUCT_KEY);
      transaction.commit();
      await done;
    },
    async serve(cycles, grouping) {
      const within = grouping === "all" ? cycles : 1;
      for (let cycle = 0; cycle < cycles; cycle += within) {
        const transaction = begin(db);
        const done = completed(transaction);
        serveWithin(transaction, within);
        await done.catch((cause: unknown) => {
          const error = refused("IndexedDB", cycle);
          error.cause = cause;
          throw error;
        });
      }
    },
    async reopenAndRead() {
      db.close();
      db = await openDatabase();
      const read: IDBRequest<Product | undefined> = db
        .transaction(STORE)
        .objectStore(STORE)
        .get(PRODUCT_KEY);
      const product = await settled(read);
      if (product === undefined) throw new Error("IndexedDB holds no product");
      return { stock: product.stock, name: product.name };
    },
    async dispose() {
      db.close();
      await settled(indexedDB.deleteDatabase(NAME));
    },
  };
}
