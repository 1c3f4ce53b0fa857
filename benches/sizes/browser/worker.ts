import { open, opfs } from "varve";
import { handleRequests } from "../../browser/handle-requests.js";
import { removeAll, turn } from "../../browser/platform.js";
import { measureFloor } from "../floor.js";
import { openMap } from "../map.js";
import { runStore, type StoreResult } from "../run.js";
import type { OpenStore } from "../store.js";
import { varveStore } from "../varve.js";
import type { Plan } from "../workload.js";
import { openIndexedDb } from "./indexeddb.js";
import { openSqliteWasm } from "./sqlite.js";

/** One store at one size, which a worker measures. */
export interface Request {
  store: keyof typeof OPEN | "floor";
  plan: Plan;
  memory: number;
}

const FOLDER = "bench-sizes";

const openVarve: OpenStore = async (name, { memory }) =>
  varveStore(await open(name, { storage: opfs(FOLDER), memory }), memory);

const OPEN = {
  varve: openVarve,
  sqlite: openSqliteWasm,
  indexeddb: openIndexedDb,
  map: openMap,
} satisfies Record<string, OpenStore>;

function removeDatabase(name: string): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase(name);
    request.onsuccess = resolve;
    request.onerror = () => reject(request.error);
  });
}

handleRequests<Request, StoreResult>(async ({ store, plan, memory }, progress) => {
  if (store === "floor") return measureFloor(plan);
  const name = `sizes-${store}`;
  await removeAll();
  await removeDatabase(name);
  return runStore(plan, {
    open: () => OPEN[store](name, { memory }),
    turn,
    wrap: (buffer, offset, length) => new Uint8Array(buffer, offset, length),
    progress: (doing) => progress(`${store}, ${plan.size} keys: ${doing}`),
  });
});
