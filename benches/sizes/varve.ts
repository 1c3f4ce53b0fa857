import type { Database } from "varve";
import { keyBytes } from "./run.js";
import type { Store } from "./store.js";
import { COUNTER_AT, KEY_BYTES, looked } from "./workload.js";

const MIB = 1_048_576;

function increase(view: Uint8Array): void {
  for (let at = COUNTER_AT; at < COUNTER_AT + 4; at++) {
    const next = (view[at]! + 1) & 0xff;
    view[at] = next;
    if (next !== 0) return;
  }
}

/** varve on any storage. A batch is a turn: it is committed when the caller of the loop yields. */
export function varveStore(db: Database, memory: number): Store {
  /** A turn commits at its end; batches of one write commit explicitly. */
  const single = (from: number, to: number) => {
    if (to - from === 1) db.commit();
  };
  return {
    name: "varve",
    settings: `durability "written" (it flushes once a second, which no other does), memory ${memory / MIB} MiB`,
    gets(keys) {
      let sum = 0;
      for (let i = 0; i < keys.length; i++) sum += looked(db.get(keys[i]!)!);
      return sum;
    },
    many(keys) {
      let sum = 0;
      for (const value of db.getMany(keys)) sum += looked(value!);
      return sum;
    },
    sets(keys, values, from, to) {
      const mask = values.length - 1;
      for (let i = from; i < to; i++) db.set(keys[i]!, values[i & mask]!);
      single(from, to);
    },
    updates(keys, from, to) {
      for (let i = from; i < to; i++) db.updateIf(keys[i]!, increase);
      single(from, to);
    },
    deletes(keys, from, to) {
      for (let i = from; i < to; i++) db.delete(keys[i]!);
      single(from, to);
    },
    sync: () => db.flush(),
    scan(from, limit) {
      let sum = 0;
      for (const [key, value] of db.entries({ gte: from, limit }))
        sum += key.length + looked(value);
      return sum;
    },
    scans: {
      "values only": (from, limit) => {
        let sum = 0;
        for (const value of db.values({ gte: from, limit })) sum += looked(value);
        return sum;
      },
      "keys only": (from, limit) => {
        let sum = 0;
        for (const key of db.keys({ gte: from, limit })) sum += key.length;
        return sum;
      },
    },
    pairs(visit) {
      const bytes = new Uint8Array(KEY_BYTES);
      for (const [key, value] of db.entries()) visit(keyBytes(key, bytes), value);
    },
    memory() {
      const { indexBytes, memoryBytes, wasmBytes } = db.stats();
      return { index: indexBytes, values: memoryBytes, wasm: wasmBytes };
    },
    close: () => db.close(),
  };
}
