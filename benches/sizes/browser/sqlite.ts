import init from "@sqlite.org/sqlite-wasm";
import { keyBytes } from "../run.js";
import type { OpenStore } from "../store.js";
import { COUNTER_AT, KEY_BYTES, looked } from "../workload.js";

const KIB = 1_024;
/** SQLite's wasm is limited to 2 GiB, and needs memory beyond its cache. */
const LARGEST_CACHE = 1_024 * KIB * KIB;

function increase(value: Uint8Array): void {
  const view = new DataView(value.buffer, value.byteOffset);
  view.setUint32(COUNTER_AT, (view.getUint32(COUNTER_AT, true) + 1) >>> 0, true);
}

let pool: ReturnType<typeof installPool> | undefined;

/** Installed once: a second pool in the same folder is refused. */
async function installPool() {
  const sqlite3 = await init();
  return sqlite3.installOpfsSAHPoolVfs({ initialCapacity: 8, directory: "/bench-sizes-sqlite" });
}

export const openSqliteWasm: OpenStore = async (name, { memory }) => {
  pool ??= installPool();
  const db = new (await pool).OpfsSAHPoolDb(`/${name}.sqlite3`);
  const cache = Math.min(memory, LARGEST_CACHE);
  db.exec(`
    PRAGMA page_size = 4096;
    PRAGMA locking_mode = exclusive;
    PRAGMA journal_mode = wal;
    PRAGMA synchronous = off;
    PRAGMA wal_autocheckpoint = 20000;
    PRAGMA temp_store = memory;
    PRAGMA cache_size = -${cache / KIB};
    CREATE TABLE IF NOT EXISTS pairs(key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
  `);
  const get = db.prepare("SELECT value FROM pairs WHERE key = ?");
  const set = db.prepare("INSERT OR REPLACE INTO pairs VALUES (?, ?)");
  const update = db.prepare("UPDATE pairs SET value = ? WHERE key = ?");
  const remove = db.prepare("DELETE FROM pairs WHERE key = ?");
  const range = db.prepare("SELECT key, value FROM pairs WHERE key >= ? ORDER BY key LIMIT ?");
  const read = (key: string): Uint8Array => {
    get.bind(key).step();
    const value = get.getBlob(0)!;
    get.reset();
    return value;
  };
  const inBatches = (from: number, to: number, work: (at: number) => void) => {
    if (to - from > 1) db.exec("BEGIN");
    for (let i = from; i < to; i++) work(i);
    if (to - from > 1) db.exec("COMMIT");
  };
  const walk = (from: string, limit: number, visit: (key: string, value: Uint8Array) => void) => {
    range.bind([from, limit]);
    while (range.step()) visit(range.getString(0)!, range.getBlob(1)!);
    range.reset();
  };
  return {
    name: "sqlite-wasm",
    settings: `pool of OPFS files, WAL, exclusive, synchronous=OFF, a checkpoint every 20,000 pages, cache ${cache / KIB / KIB} MiB, statements prepared once`,
    gets(keys) {
      let sum = 0;
      for (let i = 0; i < keys.length; i++) sum += looked(read(keys[i]!));
      return sum;
    },
    sets(keys, values, from, to) {
      const mask = values.length - 1;
      inBatches(from, to, (i) => set.bind([keys[i]!, values[i & mask]!]).stepReset());
    },
    updates(keys, from, to) {
      inBatches(from, to, (i) => {
        const value = read(keys[i]!);
        increase(value);
        update.bind([value, keys[i]!]).stepReset();
      });
    },
    deletes(keys, from, to) {
      inBatches(from, to, (i) => remove.bind(keys[i]!).stepReset());
    },
    scan(from, limit) {
      let sum = 0;
      walk(from, limit, (key, value) => {
        sum += key.length + looked(value);
      });
      return sum;
    },
    pairs(visit) {
      const bytes = new Uint8Array(KEY_BYTES);
      walk("", -1, (key, value) => visit(keyBytes(key, bytes), value));
    },
    close() {
      for (const statement of [get, set, update, remove, range]) statement.finalize();
      db.close();
    },
  };
};
