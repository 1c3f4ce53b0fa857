/** The worker of one store. It measures, compares the contents with what they must be, and answers the page. */

import { encodeProduct, PRODUCT_KEY, PRODUCT_NAME } from "../drop.js";
import { clockStep, type FileTimes } from "./environment.js";
import { Meter } from "./measure.js";
import { type Answer, type Checked, type Command, messageOf } from "./messages.js";
import type { Extent, StoreId } from "./plan.js";
import type { Driver, Kind, Store } from "./store.js";
import { loadDriver } from "./stores/index.js";
import { fill, Model, type Task, taskOf } from "./tasks.js";
import { contentsOf, keysOf } from "./work.js";

/** How long to wait for a stopped worker of the same store, which may keep its files open a moment longer. */
const STOPPED_MS = 5_000;

/** A stopped worker holds the lock until it has ended. */
function stoppedWorkerEnded(store: StoreId): Promise<void> {
  return new Promise((resolve) => {
    const held = () => {
      resolve();
      return new Promise<never>(() => {});
    };
    const signal = AbortSignal.timeout(STOPPED_MS);
    navigator.locks.request(`varve race ${store}`, { signal }, held).catch(() => resolve());
  });
}

/** What a worker has open. */
class Open {
  readonly model: Model;
  readonly step = clockStep();
  task: Task | undefined;
  meter: Meter | undefined;

  constructor(
    readonly driver: Driver,
    readonly name: string,
    readonly store: Store,
    readonly extent: Extent,
  ) {
    this.model = new Model(extent);
  }
}

let opened: Open | undefined;

function current(): Open {
  if (opened === undefined) throw new Error("no store is open");
  return opened;
}

async function execute(command: Command): Promise<unknown> {
  switch (command.do) {
    case "open": {
      const { store, name, extent } = command;
      await stoppedWorkerEnded(store);
      const driver = await loadDriver(store);
      if (command.remove) await driver.remove(name);
      opened = new Open(driver, name, await driver.open(name), extent);
      if (command.fill) await fill(opened.store, extent);
      return undefined;
    }
    case "start": {
      const { store, extent, model, step } = current();
      if (command.workload === "range" && store.ranges === undefined) return "has no ranges";
      const task = taskOf(command.workload, store, extent, model);
      const meter = new Meter(task, store, extent, step);
      await meter.warmUp();
      Object.assign(current(), { task, meter });
      return undefined;
    }
    case "turn":
      return current().meter?.turn();
    case "finish": {
      const { task, meter, store, model } = current();
      await meter?.check();
      await task?.finish();
      const checked: Checked = {
        found: await contentsOf(await store.pairs()),
        expected: await contentsOf(model.all()),
      };
      await task?.cleanUp?.();
      await store.rest?.();
      return checked;
    }
    case "first drop":
      return firstDrop(command);
    case "cold list":
      return coldList(command);
    case "get":
      return current().store.gets([command.key], 0, 1);
    case "set":
      await current().store.sets([command.key], [command.value], 0, 1);
      return undefined;
    case "pairs":
      return current().store.pairs();
    case "close": {
      const { store, model } = current();
      await store.close();
      return contentsOf(model.all());
    }
    case "probe":
      return probe();
    case "remove": {
      await stoppedWorkerEnded(command.store);
      const driver = await loadDriver(command.store);
      for (const name of command.names) await driver.remove(name);
      return undefined;
    }
  }
}

/** What TypeScript's types have in the library for workers only. */
interface SyncFileHandle extends FileSystemFileHandle {
  createSyncAccessHandle(): Promise<{
    write(bytes: Uint8Array, at: { at: number }): number;
    flush(): void;
    close(): void;
  }>;
}

async function probe(): Promise<FileTimes> {
  const name = "varve-race-probe";
  const root = await navigator.storage.getDirectory();
  const file = (await root.getFileHandle(name, { create: true })) as SyncFileHandle;
  const handle = await file.createSyncAccessHandle();
  const bytes = new Uint8Array(4_096);
  const times = 20;
  let write = 0;
  let flush = 0;
  for (let i = 0; i < times; i++) {
    const start = performance.now();
    handle.write(bytes, { at: i * bytes.length });
    const written = performance.now();
    handle.flush();
    write += written - start;
    flush += performance.now() - written;
  }
  handle.close();
  await root.removeEntry(name);
  return { write: write / times, flush: flush / times };
}

/** The first drop of this worker: nothing of the store has run before. Opening it is not measured. */
async function firstDrop({
  store: id,
  name,
  extent,
  workload,
}: Extract<Command, { do: "first drop" }>): Promise<{ ns: number; checked: Checked }> {
  await stoppedWorkerEnded(id);
  const driver = await loadDriver(id);
  await driver.remove(name);
  const store = await driver.open(name);
  const kind: Kind = workload === "drop-first-typed" ? "typed" : "raw";
  const buyers = extent.firstBuyers;
  await store.restock(kind, buyers + 1);
  const start = performance.now();
  await store.buy(kind, buyers, false);
  await store.settle?.();
  const ms = performance.now() - start;
  const product = await store.product(kind);
  const found = product === undefined ? [] : [product];
  const checked = {
    found: await contentsOf(found.map((one) => [PRODUCT_KEY, encodeProduct(one)])),
    expected: await contentsOf([[PRODUCT_KEY, encodeProduct({ stock: 1, name: PRODUCT_NAME })]]),
  };
  await store.close();
  await driver.remove(name);
  return { ns: (ms * 1e6) / buyers, checked };
}

/** From the store's code, which this worker has not loaded yet, to its first ten records. */
async function coldList({
  store: id,
  name,
  extent,
  expected,
}: Extract<Command, { do: "cold list" }>): Promise<{ ns: number; checked: Checked }> {
  await stoppedWorkerEnded(id);
  const start = performance.now();
  const driver = await loadDriver(id);
  const store = await driver.open(name);
  // A Map has no file: filling it is its counterpart of reading one.
  if (id === "map") await fill(store, extent);
  const first = await store.list(10);
  const ms = performance.now() - start;
  const numbers = Uint32Array.from({ length: 10 }, (_, i) => 2 * i);
  const isFirst = keysOf(numbers).every((key, i) => first[i]?.[0] === key);
  if (!isFirst) throw new Error(`the list begins with ${first.map(([key]) => key).join(", ")}`);
  const found = await contentsOf(await store.pairs());
  // What a Map has held is gone with the worker before: it holds what it was filled with.
  const filled = () => contentsOf(new Model(extent).all());
  const checked: Checked = { found, expected: id === "map" ? await filled() : expected };
  await store.close();
  return { ns: ms * 1e6, checked };
}

function answer(message: Answer): void {
  self.postMessage(message);
}

// When SQLite's loader fails, it neither resolves nor rejects; this message is the only sign.
self.addEventListener("unhandledrejection", ({ reason }) => {
  answer({ ok: false, error: messageOf(reason) });
});

self.onmessage = ({ data }: MessageEvent<Command>) => {
  execute(data).then(
    (result) => answer({ ok: true, result }),
    (error: unknown) => answer({ ok: false, error: messageOf(error) }),
  );
};
