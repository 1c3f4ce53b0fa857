import { join } from "node:path";
import { keyBytes } from "../run.js";
import type { OpenStore } from "../store.js";
import { COUNTER_AT, KEY_BYTES, looked } from "../workload.js";
import { increase, rival } from "./rivals.js";

/** The used part of classic-level's API. */
type Operation = { type: "put"; key: string; value: Uint8Array } | { type: "del"; key: string };
interface Iterator {
  nextv(count: number): Promise<[string, Buffer][]>;
  close(): Promise<void>;
}
interface Level {
  open(options: object): Promise<void>;
  getSync(key: string): Buffer | undefined;
  getMany(keys: readonly string[]): Promise<(Buffer | undefined)[]>;
  put(key: string, value: Uint8Array, options?: { sync: boolean }): Promise<void>;
  del(key: string): Promise<void>;
  batch(operations: Operation[], options?: { sync: boolean }): Promise<void>;
  iterator(options?: { gte?: string; limit?: number }): Iterator;
  close(): Promise<void>;
}

const MIB = 1_048_576;
const PAGE = 1_000;
/** A key that no sample uses. */
const SYNCED = "synced";
const NOTHING = Buffer.alloc(0);

export function openLevel(root: string): OpenStore {
  const { ClassicLevel } = rival(root, "classic-level") as {
    ClassicLevel: new (path: string, options: object) => Level;
  };
  return async (folder, { memory, flushing }) => {
    const encodings = { keyEncoding: "utf8", valueEncoding: "buffer" };
    const db = new ClassicLevel(join(folder, "sizes.level"), encodings);
    await db.open({ cacheSize: memory, writeBufferSize: 64 * MIB, compression: false });
    const walk = async (
      options: { gte?: string; limit?: number },
      visit: (key: string, value: Buffer) => void,
    ) => {
      const iterator = db.iterator(options);
      for (;;) {
        const page = await iterator.nextv(PAGE);
        if (page.length === 0) break;
        for (const [key, value] of page) visit(key, value);
      }
      await iterator.close();
    };
    return {
      name: "classic-level",
      settings: `sync false, no compression, cache ${memory / MIB} MiB, write buffer 64 MiB`,
      remarks: [
        "classic-level: a batch is in the log file and survives the process. Reads by getSync, scans by nextv of 1,000. An update reads, changes the copy and puts it in the group's batch, where later updates of the group look first.",
        "classic-level: flushed by sync: true, each second of a put of nothing, which flushes the log with all before it, and with each group of its batch.",
      ],
      gets(keys) {
        let sum = 0;
        for (let i = 0; i < keys.length; i++) sum += looked(db.getSync(keys[i]!)!);
        return sum;
      },
      async many(keys) {
        let sum = 0;
        for (const value of await db.getMany(keys)) sum += looked(value!);
        return sum;
      },
      sets(keys, values, from, to) {
        const mask = values.length - 1;
        if (to - from === 1) return db.put(keys[from]!, values[from & mask]!);
        const operations: Operation[] = [];
        for (let i = from; i < to; i++) {
          operations.push({ type: "put", key: keys[i]!, value: values[i & mask]! });
        }
        return db.batch(operations, { sync: flushing === "each group" });
      },
      updates(keys, from, to) {
        const changed = new Map<string, Buffer>();
        for (let i = from; i < to; i++) {
          const key = keys[i]!;
          let value = changed.get(key);
          if (value === undefined) {
            value = db.getSync(key)!;
            changed.set(key, value);
          }
          increase(value, COUNTER_AT);
        }
        return db.batch(Array.from(changed, ([key, value]) => ({ type: "put", key, value })));
      },
      deletes(keys, from, to) {
        const operations: Operation[] = [];
        for (let i = from; i < to; i++) operations.push({ type: "del", key: keys[i]! });
        return db.batch(operations);
      },
      async sync() {
        // This flushes the log, with all earlier writes in it.
        if (flushing !== "each second") return;
        await db.put(SYNCED, NOTHING, { sync: true });
        await db.del(SYNCED);
      },
      async scan(from, limit) {
        let sum = 0;
        await walk({ gte: from, limit }, (key, value) => {
          sum += key.length + looked(value);
        });
        return sum;
      },
      pairs(visit) {
        const bytes = new Uint8Array(KEY_BYTES);
        return walk({}, (key, value) => visit(keyBytes(key, bytes), value));
      },
      close: () => db.close(),
    };
  };
}
