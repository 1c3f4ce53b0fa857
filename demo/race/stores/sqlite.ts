import init, { type OpfsSAHPoolDatabase, type SAHPoolUtil } from "@sqlite.org/sqlite-wasm";
import { encodeProduct, PRODUCT_KEY, PRODUCT_NAME, type Product } from "../../drop.js";
import { productOf, takeFrom } from "../products.js";
import {
  DELETE,
  type Driver,
  GET,
  INSERT,
  type Kind,
  LARGE,
  looked,
  type Mixed,
  type Pair,
  refused,
  type Store,
  writeStamp,
} from "../store.js";

/**
 * The pool of synchronous file handles is SQLite's fastest store in a browser, and needs no special headers. WAL
 * without shared memory needs exclusive locking, and with WAL SQLite advises "normal": a commit is written but not
 * flushed. Its documentation advises tables without row ids for small rows, and with them for large ones.
 */
const SETUP = `
  PRAGMA page_size = 4096;
  PRAGMA locking_mode = exclusive;
  PRAGMA journal_mode = wal;
  PRAGMA synchronous = normal;
  PRAGMA temp_store = memory;
  PRAGMA cache_size = -16384;
  CREATE TABLE IF NOT EXISTS pairs(key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
  CREATE TABLE IF NOT EXISTS large(key TEXT PRIMARY KEY, value BLOB NOT NULL);
  CREATE TABLE IF NOT EXISTS product(id TEXT PRIMARY KEY, stock INTEGER NOT NULL, name TEXT NOT NULL) WITHOUT ROWID;
`;

const DIRECTORY = "/sqlite-race";

function prepare(db: OpfsSAHPoolDatabase) {
  const tableOf = (table: string) => ({
    get: db.prepare(`SELECT value FROM ${table} WHERE key = ?`),
    set: db.prepare(`INSERT OR REPLACE INTO ${table} VALUES (?, ?)`),
    update: db.prepare(`UPDATE ${table} SET value = ? WHERE key = ?`),
    remove: db.prepare(`DELETE FROM ${table} WHERE key = ?`),
  });
  return {
    pairs: tableOf("pairs"),
    large: tableOf("large"),
    range: db.prepare("SELECT key, value FROM pairs WHERE key >= ? ORDER BY key LIMIT ?"),
    product: db.prepare("SELECT stock, name FROM product WHERE id = ?"),
    take: db.prepare("UPDATE product SET stock = stock - 1 WHERE id = ? AND stock > 0"),
  };
}

class SqliteStore implements Store {
  readonly #statements: ReturnType<typeof prepare>;

  constructor(private readonly db: OpfsSAHPoolDatabase) {
    db.exec(SETUP);
    this.#statements = prepare(db);
  }

  /** Without BEGIN, each statement is a transaction of its own. */
  #commit(count: number, work: () => void): void {
    if (count === 1) {
      work();
      return;
    }
    this.db.exec("BEGIN");
    work();
    this.db.exec("COMMIT");
  }

  #tableOf(key: string) {
    return key.startsWith(LARGE) ? this.#statements.large : this.#statements.pairs;
  }

  gets(keys: readonly string[], from: number, to: number): number {
    const { get } = this.#tableOf(keys[from]!);
    let sum = 0;
    for (let i = from; i < to; i++) {
      get.bind(keys[i]!).step();
      sum += looked(get.getBlob(0)!);
      get.reset();
    }
    return sum;
  }

  sets(keys: readonly string[], values: readonly Uint8Array[], from: number, to: number): void {
    const { set } = this.#tableOf(keys[from]!);
    this.#commit(to - from, () => {
      for (let i = from; i < to; i++) set.bind([keys[i]!, values[i]!]).stepReset();
    });
  }

  updates(keys: readonly string[], from: number, to: number, stamp: number): number {
    let sum = 0;
    this.#commit(to - from, () => {
      for (let i = from; i < to; i++) sum += this.#update(keys[i]!, stamp);
    });
    return sum;
  }

  #update(key: string, stamp: number): number {
    const { get, update } = this.#statements.pairs;
    get.bind(key).step();
    const value = get.getBlob(0)!;
    get.reset();
    const seen = looked(value);
    writeStamp(value, stamp);
    update.bind([value, key]).stepReset();
    return seen;
  }

  deletes(keys: readonly string[], from: number, to: number): void {
    const { remove } = this.#tableOf(keys[from]!);
    this.#commit(to - from, () => {
      for (let i = from; i < to; i++) remove.bind(keys[i]!).stepReset();
    });
  }

  mixed({ kinds, keys, values }: Mixed, from: number, to: number, stamp: number): number {
    const { get, set, remove } = this.#statements.pairs;
    let sum = 0;
    this.#commit(to - from, () => {
      for (let i = from; i < to; i++) {
        const kind = kinds[i];
        const key = keys[i]!;
        if (kind === GET) {
          get.bind(key).step();
          sum += looked(get.getBlob(0)!);
          get.reset();
        } else if (kind === INSERT) set.bind([key, values[i]!]).stepReset();
        else if (kind === DELETE) remove.bind(key).stepReset();
        else this.#update(key, stamp);
      }
    });
    return sum;
  }

  #walk(start: string, limit: number, visit: (key: string, value: Uint8Array) => void): void {
    const { range } = this.#statements;
    range.bind([start, limit]);
    while (range.step()) visit(range.getString(0)!, range.getBlob(1)!);
    range.reset();
  }

  ranges(starts: readonly string[], from: number, to: number, limit: number): number {
    let sum = 0;
    for (let i = from; i < to; i++) {
      this.#walk(starts[i]!, limit, (key, value) => {
        sum += key.length + looked(value);
      });
    }
    return sum;
  }

  list(limit: number): Pair[] {
    const pairs: Pair[] = [];
    this.#walk("", limit, (key, value) => pairs.push([key, value]));
    return pairs;
  }

  pairs(): Pair[] {
    const pairs = this.list(-1);
    const large = this.db.prepare("SELECT key, value FROM large");
    while (large.step()) pairs.push([large.getString(0)!, large.getBlob(1)!]);
    large.finalize();
    return pairs;
  }

  restock(kind: Kind, stock: number): void {
    if (kind === "raw") {
      const bytes = encodeProduct({ stock, name: PRODUCT_NAME });
      this.#statements.pairs.set.bind([PRODUCT_KEY, bytes]).stepReset();
      return;
    }
    this.db.exec({
      sql: "INSERT OR REPLACE INTO product VALUES (?, ?, ?)",
      bind: [PRODUCT_KEY, stock, PRODUCT_NAME],
    });
  }

  buy(kind: Kind, buyers: number, commitEach: boolean): void {
    const take = kind === "raw" ? this.#takeRaw() : this.#takeTyped();
    // A raw purchase is a read and a write, so that it needs a transaction to be one commit.
    const each = (buyer: number) => {
      if (!take()) throw refused(buyer);
    };
    if (commitEach) {
      for (let buyer = 0; buyer < buyers; buyer++) each(buyer);
      return;
    }
    this.#commit(buyers, () => {
      for (let buyer = 0; buyer < buyers; buyer++) each(buyer);
    });
  }

  #takeRaw(): () => boolean {
    const { get, update } = this.#statements.pairs;
    return () => {
      get.bind(PRODUCT_KEY).step();
      const record = get.getBlob(0)!;
      get.reset();
      const taken = takeFrom(record);
      if (taken) update.bind([record, PRODUCT_KEY]).stepReset();
      return taken;
    };
  }

  #takeTyped(): () => boolean {
    const { product, take } = this.#statements;
    return () => {
      if (!product.bind(PRODUCT_KEY).step()) return false;
      const found = product.getInt(0) !== 0 && product.getString(1) === PRODUCT_NAME;
      product.reset();
      if (found) take.bind(PRODUCT_KEY).stepReset();
      return found;
    };
  }

  product(kind: Kind): Product | undefined {
    const statement = kind === "raw" ? this.#statements.pairs.get : this.#statements.product;
    const found = statement.bind(PRODUCT_KEY).step();
    const product = !found
      ? undefined
      : kind === "raw"
        ? productOf(statement.getBlob(0)!)
        : { stock: statement.getInt(0)!, name: statement.getString(1)! };
    statement.reset();
    return product;
  }

  close(): void {
    const { pairs, large, ...others } = this.#statements;
    const all = [pairs, large, others].flatMap((statements) => Object.values(statements));
    for (const statement of all) statement.finalize();
    this.db.close();
  }
}

let pool: Promise<SAHPoolUtil> | undefined;

/** Installed once in a worker: a second pool in the same folder is refused. */
function poolOnce(): Promise<SAHPoolUtil> {
  pool ??= (async () => {
    const sqlite3 = await init();
    // Capacity for a few databases, their WALs, and temporary files.
    return sqlite3.installOpfsSAHPoolVfs({ initialCapacity: 8, directory: DIRECTORY });
  })();
  return pool;
}

export const sqlite: Driver = {
  async open(name) {
    return new SqliteStore(new (await poolOnce()).OpfsSAHPoolDb(`/${name}.sqlite3`));
  },
  async remove(name) {
    const util = await poolOnce();
    for (const end of ["", "-wal", "-journal"]) util.unlink(`/${name}.sqlite3${end}`);
  },
};
