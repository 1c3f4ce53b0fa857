import type { StoreId } from "../plan.js";
import type { Driver } from "../store.js";

/** Loads the code of one store: each is in a file of its own, so that a cold start loads no other. */
export async function loadDriver(id: StoreId): Promise<Driver> {
  switch (id) {
    case "varve":
      return (await import("./varve.js")).varve("written");
    case "varve-buffered":
      return (await import("./varve.js")).varve("buffered");
    case "varve-flushed":
      return (await import("./varve.js")).varve("flushed");
    case "sqlite":
      return (await import("./sqlite.js")).sqlite;
    case "indexeddb":
      return (await import("./indexeddb.js")).indexedDbTuned;
    case "indexeddb-naive":
      return (await import("./indexeddb.js")).indexedDbNaive;
    case "dexie":
      return (await import("./dexie.js")).dexie;
    case "idb-keyval":
      return (await import("./idb-keyval.js")).idbKeyval;
    case "localforage":
      return (await import("./localforage.js")).localForage;
    case "map":
      return (await import("./map.js")).map;
  }
}
