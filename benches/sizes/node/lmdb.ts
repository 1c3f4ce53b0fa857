import { join } from "node:path";
import { promisify } from "node:util";
import { keyBytes } from "../run.js";
import type { OpenStore } from "../store.js";
import { COUNTER_AT, KEY_BYTES, looked } from "../workload.js";
import { increase, rival } from "./rivals.js";

/** The used part of lmdb's API. */
interface Lmdb {
  getBinaryFast(key: string): Buffer | undefined;
  getBinary(key: string): Buffer | undefined;
  getMany(keys: readonly string[]): Promise<(Buffer | undefined)[]>;
  put(key: string, value: Uint8Array): Promise<boolean>;
  putSync(key: string, value: Uint8Array): void;
  remove(key: string): Promise<boolean>;
  removeSync(key: string): void;
  transactionSync(body: () => void): void;
  getRange(options: { start?: string; limit?: number }): Iterable<{ key: string; value: Buffer }>;
  /** A method that lmdb's types lack: it flushes a noSync store. */
  sync(done: (error: Error | null) => void): void;
  readonly flushed: PromiseLike<boolean>;
  close(): Promise<void>;
}

const UNSYNCED = { noSync: true, useWritemap: true };

const MAP = 8 * 2 ** 30;

export function openLmdb(root: string): OpenStore {
  const { open } = rival(root, "lmdb") as { open(options: object): Lmdb };
  return async (folder, { flushing = "default" }) => {
    const db = open({
      path: join(folder, "sizes.lmdb"),
      encoding: "binary",
      mapSize: MAP,
      ...(flushing === "each group" ? {} : UNSYNCED),
    });
    return {
      name: "lmdb",
      settings: "noSync, useWritemap; reads by getBinaryFast",
      remarks: [
        "lmdb: a commit is in the shared map, which survives the process and is never synced. getBinaryFast gives a buffer that is good until the next get, as varve's view is until the turn's end. Groups are puts of one event turn, awaited; each by itself is putSync.",
        "lmdb: its getMany looks up the keys in another thread; single calls of getBinaryFast take less time, as the rows of get show.",
        "lmdb: flushed each second with the same settings, by sync(); flushed with each group with its own defaults, waiting for db.flushed. Between two syncs power loss may leave a damaged database, says its documentation of MDB_NOSYNC with MDB_WRITEMAP, where varve leaves what some commit left: it has no setting that promises as much and syncs once a second.",
      ],
      gets(keys) {
        let sum = 0;
        for (let i = 0; i < keys.length; i++) sum += looked(db.getBinaryFast(keys[i]!)!);
        return sum;
      },
      async many(keys) {
        let sum = 0;
        for (const value of await db.getMany(keys)) sum += looked(value!);
        return sum;
      },
      async sets(keys, values, from, to) {
        const mask = values.length - 1;
        if (to - from === 1) return db.putSync(keys[from]!, values[from & mask]!);
        let last: Promise<boolean> | undefined;
        for (let i = from; i < to; i++) last = db.put(keys[i]!, values[i & mask]!);
        await last;
      },
      updates(keys, from, to) {
        db.transactionSync(() => {
          for (let i = from; i < to; i++) {
            const value = db.getBinary(keys[i]!)!;
            increase(value, COUNTER_AT);
            db.putSync(keys[i]!, value);
          }
        });
      },
      async deletes(keys, from, to) {
        let last: Promise<boolean> | undefined;
        for (let i = from; i < to; i++) last = db.remove(keys[i]!);
        await last;
      },
      async sync() {
        if (flushing === "each group") await db.flushed;
        else await promisify(db.sync.bind(db))();
      },
      scan(from, limit) {
        let sum = 0;
        for (const { key, value } of db.getRange({ start: from, limit })) {
          sum += key.length + looked(value);
        }
        return sum;
      },
      pairs(visit) {
        const bytes = new Uint8Array(KEY_BYTES);
        for (const { key, value } of db.getRange({})) visit(keyBytes(key, bytes), value);
      },
      close: () => db.close(),
    };
  };
}
