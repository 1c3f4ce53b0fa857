import { type OpenedStorage, open, type Storage, type StorageFile } from "varve";
import { varveStore } from "../sizes/varve.js";
import type { MeasuredStore } from "./steps.js";

/** Bytes and time that a storage has used. */
export interface Counts {
  written: number;
  /** Milliseconds within the platform's flush. */
  flushing: number;
}

/** Wraps a storage and counts the written bytes. */
function countingStorage(storage: Storage, counts: Counts): Storage {
  const file = (inner: StorageFile): StorageFile => ({
    read: (buffer, options) => inner.read(buffer, options),
    write(buffer, options) {
      counts.written += buffer.length;
      return inner.write(buffer, options);
    },
    truncate: (size) => inner.truncate(size),
    getSize: () => inner.getSize(),
    flush() {
      const start = performance.now();
      inner.flush();
      counts.flushing += performance.now() - start;
    },
    close: () => inner.close(),
  });
  return {
    kind: storage.kind,
    identity: (name) => storage.identity(name),
    async open(name, mode): Promise<OpenedStorage> {
      const opened = await storage.open(name, mode);
      return { file: file(opened.file) };
    },
  };
}

/** Times maintenance steps: they are the only timers without a delay here. */
function timeMaintenance(counts: Counts): number[] {
  const maintenanceSteps: number[] = [];
  const { setTimeout } = globalThis;
  const timed = (task: () => void, ms?: number): unknown => {
    if (ms !== 0) return setTimeout(task, ms);
    const step = () => {
      const [start, flushing] = [performance.now(), counts.flushing];
      task();
      maintenanceSteps.push(performance.now() - start - (counts.flushing - flushing));
    };
    return setTimeout(step, 0);
  };
  globalThis.setTimeout = timed as typeof globalThis.setTimeout;
  return maintenanceSteps;
}

export interface Settings {
  memory: number;
  spaceFactor: number;
}

/** Opens databases in a storage, and reports how they use it. */
export function measuredVarve(storage: Storage, { memory, spaceFactor }: Settings) {
  const counts: Counts = { written: 0, flushing: 0 };
  const maintenanceSteps = timeMaintenance(counts);
  const counting = countingStorage(storage, counts);
  return {
    counts,
    async open(name: string): Promise<MeasuredStore> {
      const db = await open(name, { storage: counting, memory, spaceFactor });
      const store = varveStore(db, memory);
      return {
        ...store,
        settings: `${store.settings}, spaceFactor ${spaceFactor}`,
        live: () => db.stats(),
        maintenanceSteps: () => maintenanceSteps,
      };
    },
  };
}
