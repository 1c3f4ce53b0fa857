import { keyBytes } from "../run.js";
import type { OpenStore } from "../store.js";
import { COUNTER_AT, KEY_BYTES, looked } from "../workload.js";

const STORE = "pairs";
/** Pairs per request in a scan. */
const PAGE = 1_000;

type Pair = { key: IDBValidKey; value: Uint8Array };

/** A method of newer browsers that TypeScript's types lack. */
interface WithRecords extends IDBObjectStore {
  getAllRecords?(options: { query?: IDBKeyRange; count?: number }): IDBRequest<Pair[]>;
}

function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("an IndexedDB request failed"));
  });
}

function completed(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error ?? new Error("a transaction was aborted"));
  });
}

function increase(value: Uint8Array): void {
  const view = new DataView(value.buffer, value.byteOffset);
  view.setUint32(COUNTER_AT, (view.getUint32(COUNTER_AT, true) + 1) >>> 0, true);
}

/** All requests of a transaction are made at once, without waiting for one before the next. */
export const openIndexedDb: OpenStore = async (name) => {
  const request = indexedDB.open(name, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(STORE);
  const db = await settled(request);

  const write = async (work: (store: IDBObjectStore) => void) => {
    const transaction = db.transaction(STORE, "readwrite", { durability: "relaxed" });
    const done = completed(transaction);
    work(transaction.objectStore(STORE));
    await done;
  };
  const page = async (query: IDBKeyRange | undefined, count: number): Promise<Pair[]> => {
    const store: WithRecords = db.transaction(STORE).objectStore(STORE);
    if (store.getAllRecords !== undefined) {
      return settled(store.getAllRecords(query === undefined ? { count } : { query, count }));
    }
    const keys = settled(store.getAllKeys(query, count));
    const values: Promise<Uint8Array[]> = settled(store.getAll(query, count));
    const found = await values;
    return (await keys).map((key, index) => ({ key, value: found[index]! }));
  };
  const walk = async (from: string, limit: number, visit: (pair: Pair) => void) => {
    let query = IDBKeyRange.lowerBound(from);
    for (let left = limit; left > 0; ) {
      const pairs = await page(query, Math.min(PAGE, left));
      for (const pair of pairs) visit(pair);
      if (pairs.length < PAGE) return;
      left -= pairs.length;
      query = IDBKeyRange.lowerBound(pairs[pairs.length - 1]!.key, true);
    }
  };

  return {
    name: "IndexedDB",
    settings: "relaxed durability; requests of a transaction made at once",
    remarks: [
      "IndexedDB: relaxed durability is written to the system and not flushed. It runs fewer operations of the same plan: each sample is one transaction.",
    ],
    async gets(keys) {
      const store = db.transaction(STORE).objectStore(STORE);
      let sum = 0;
      await new Promise<void>((resolve, reject) => {
        let left = keys.length;
        for (const key of keys) {
          const one: IDBRequest<Uint8Array> = store.get(key);
          one.onsuccess = () => {
            sum += looked(one.result);
            left -= 1;
            if (left === 0) resolve();
          };
          one.onerror = () => reject(one.error);
        }
      });
      return sum;
    },
    sets: (keys, values, from, to) =>
      write((store) => {
        // A copy, because IndexedDB clones the whole buffer of a view.
        for (let i = from; i < to; i++)
          store.put(values[i & (values.length - 1)]!.slice(), keys[i]!);
      }),
    updates: (keys, from, to) =>
      write((store) => {
        const times = new Map<string, number>();
        for (let i = from; i < to; i++) times.set(keys[i]!, (times.get(keys[i]!) ?? 0) + 1);
        for (const [key, count] of times) {
          const one: IDBRequest<Uint8Array> = store.get(key);
          one.onsuccess = () => {
            const value = one.result;
            for (let i = 0; i < count; i++) increase(value);
            store.put(value, key);
          };
        }
      }),
    deletes: (keys, from, to) =>
      write((store) => {
        for (let i = from; i < to; i++) store.delete(keys[i]!);
      }),
    async scan(from, limit) {
      let sum = 0;
      await walk(from, limit, ({ key, value }) => {
        sum += (key as string).length + looked(value);
      });
      return sum;
    },
    async pairs(visit) {
      const bytes = new Uint8Array(KEY_BYTES);
      await walk("", Number.POSITIVE_INFINITY, ({ key, value }) => {
        visit(keyBytes(key as string, bytes), value);
      });
    },
    close: () => db.close(),
  };
};
