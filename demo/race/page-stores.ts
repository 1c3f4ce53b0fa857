/** What a page uses of each store: single reads and writes, each awaited. Loaded when the round trips begin. */

import type { Durability } from "varve";
import { connect } from "varve/client";
import type { Extent, StoreId } from "./plan.js";
import type { Pair } from "./store.js";
import { looked } from "./store.js";
import { StoreWorker } from "./store-worker.js";
import { loadDriver } from "./stores/index.js";

const NAME = "race-page";

export interface PageStore {
  /** Returns `looked` of the value. */
  get(key: string): Promise<number>;
  set(key: string, value: Uint8Array): Promise<void>;
  pairs(): Promise<Pair[]>;
  close(): Promise<void>;
}

const LEVELS: Partial<Record<StoreId, Durability>> = {
  "varve-buffered": "buffered",
  varve: "written",
  "varve-flushed": "flushed",
};

export async function openPageStore(id: StoreId, extent: Extent): Promise<PageStore> {
  const durability = LEVELS[id];
  if (durability !== undefined) return varveClient(durability);
  if (id === "sqlite" || id === "map") return inWorker(id, extent);
  const driver = await loadDriver(id);
  await driver.remove(NAME);
  const store = await driver.open(NAME);
  return {
    get: async (key) => store.gets([key], 0, 1),
    set: async (key, value) => store.sets([key], [value], 0, 1),
    pairs: async () => store.pairs(),
    async close() {
      await store.close();
      await driver.remove(NAME);
    },
  };
}

function varveClient(durability: Durability): PageStore {
  const url = new URL(`./serve.js?durability=${durability}`, import.meta.url);
  let worker: Worker | undefined;
  // A name of its own: all clients of a name share one owner, and with it that owner's durability.
  const client = connect(`${NAME}-${durability}`, {
    worker() {
      worker = new Worker(url, { type: "module" });
      return worker;
    },
  });
  return {
    async get(key) {
      const value = await client.get(key);
      return looked(value!);
    },
    set: (key, value) => client.set(key, value),
    pairs: () => client.entries().all(),
    async close() {
      await client.clear();
      await client.close();
      worker?.terminate();
    },
  };
}

/** SQLite's synchronous files are in workers only, so a page sends it messages; likewise the Map, as the floor of these. */
async function inWorker(store: StoreId, extent: Extent): Promise<PageStore> {
  const worker = new StoreWorker();
  await worker.call({ do: "open", store, name: NAME, extent, fill: false, remove: true });
  return {
    get: (key) => worker.call({ do: "get", key }),
    set: (key, value) => worker.call({ do: "set", key, value }),
    pairs: () => worker.call({ do: "pairs" }),
    async close() {
      await worker.call({ do: "close" });
      worker.end();
    },
  };
}
