import { open, opfs } from "varve";
import { answer } from "../../browser/answer.js";
import { runStore, type StoreResult } from "../run.js";
import type { OpenStore } from "../store.js";
import { varveStore } from "../varve.js";
import type { Plan } from "../workload.js";
import { openIndexedDb } from "./indexeddb.js";
import { openSqliteWasm } from "./sqlite.js";

/** What a worker is told: one store, one size. */
export interface Request {
  store: keyof typeof OPEN;
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
} satisfies Record<string, OpenStore>;

/** Nothing of an earlier run is to be left, be it only for the room. */
async function removeAll(name: string): Promise<void> {
  const root = await navigator.storage.getDirectory();
  const names: string[] = [];
  for await (const entry of root.keys()) names.push(entry);
  for (const entry of names) await root.removeEntry(entry, { recursive: true });
  await new Promise((resolve, reject) => {
    const request = indexedDB.deleteDatabase(name);
    request.onsuccess = resolve;
    request.onerror = () => reject(request.error);
  });
}

/** An event that nothing delays: timers wait for 4 ms once they follow each other. */
function turn(): Promise<void> {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}

answer<Request, StoreResult>(async ({ store, plan, memory }, progress) => {
  const name = `sizes-${store}`;
  await removeAll(name);
  return runStore(plan, {
    open: () => OPEN[store](name, { memory }),
    turn,
    wrap: (buffer, offset, length) => new Uint8Array(buffer, offset, length),
    progress: (doing) => progress(`${store}, ${plan.size} keys: ${doing}`),
  });
});
