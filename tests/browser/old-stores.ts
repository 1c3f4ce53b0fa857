/** Databases of IndexedDB, as programs and libraries leave them behind. */

import { assert } from "vitest";

type Pairs = readonly (readonly [key: IDBValidKey, value: unknown])[];

/** The settled result of a request. */
export function settled<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Makes a database of IndexedDB with these stores, in the place of one of that name. */
export async function oldDatabase(
  name: string,
  stores: Readonly<Record<string, Pairs>>,
  options: IDBObjectStoreParameters = {},
): Promise<void> {
  await settled(indexedDB.deleteDatabase(name));
  const request = indexedDB.open(name, 3);
  request.onupgradeneeded = () => {
    for (const store of Object.keys(stores)) request.result.createObjectStore(store, options);
  };
  const db = await settled(request);
  for (const [store, pairs] of Object.entries(stores)) await fill(db, store, pairs);
  db.close();
}

/** Puts records into a store whose keys are apart from the values. */
export async function fill(db: IDBDatabase, store: string, pairs: Pairs): Promise<void> {
  const transaction = db.transaction(store, "readwrite");
  const done = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  for (const [key, value] of pairs) transaction.objectStore(store).put(value, key);
  await done;
}

/** The names of the databases of IndexedDB. */
export async function oldNames(): Promise<(string | undefined)[]> {
  return (await indexedDB.databases()).map(({ name }) => name);
}

/** Everything in a store, as IndexedDB gives it. */
export async function contents(name: string, store: string): Promise<[IDBValidKey, unknown][]> {
  const db = await settled(indexedDB.open(name));
  const from = db.transaction(store).objectStore(store);
  const [keys, values] = await Promise.all([settled(from.getAllKeys()), settled(from.getAll())]);
  db.close();
  assert(keys.length === values.length, "each has a key");
  return keys.map((key, i) => [key, values[i]]);
}
