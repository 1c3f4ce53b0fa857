/** A tab with IndexedDB, which every tab opens by itself. */

import { offerTab } from "./tab.js";

const VALUE = new Uint8Array(64);

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

offerTab(async () => {
  const opening = indexedDB.open("bench");
  opening.onupgradeneeded = () => opening.result.createObjectStore("values");
  const db = await done(opening);
  const key = `tab/${crypto.randomUUID()}`;
  const store = (mode: IDBTransactionMode) =>
    db.transaction("values", mode, { durability: "relaxed" }).objectStore("values");
  return {
    get: () => done(store("readonly").get(key)),
    set: () =>
      new Promise<void>((resolve, reject) => {
        const values = store("readwrite");
        values.put(VALUE, key);
        values.transaction.oncomplete = () => resolve();
        values.transaction.onabort = () => reject(values.transaction.error);
      }),
    owns: () => false,
  };
});
