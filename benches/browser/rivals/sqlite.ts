import init, {
  type OpfsSAHPoolDatabase,
  type PreparedStatement,
  type SAHPoolUtil,
  type Sqlite3Static,
} from "@sqlite.org/sqlite-wasm";
import { PRODUCT_KEY, PRODUCT_NAME, type Product } from "../../../demo/drop.js";
import { type Rival, refused } from "./rival.js";

/**
 * The pool of synchronous file handles is SQLite's fastest store in a browser, and needs no special headers.
 * Measured here, drop of 20,000 with a commit for each, ms: journal delete 980-1,170, truncate 2,310, persist
 * 1,160, WAL 600. WAL without shared memory needs exclusive locking. With WAL, SQLite advises "normal": a
 * commit is written but not flushed, so that a power loss may lose recent commits but never the database, as
 * with varve's "written". Pages of 8,192 and 512 bytes were slower.
 */
const TUNING = `
  PRAGMA page_size = 4096;
  PRAGMA locking_mode = exclusive;
  PRAGMA journal_mode = wal;
  PRAGMA synchronous = normal;
  PRAGMA temp_store = memory;
  PRAGMA cache_size = -16384;
`;

/** Both statements are prepared once; each purchase binds the key, as a program with many keys has to. */
interface Statements {
  read: PreparedStatement;
  take: PreparedStatement;
}

/** Serves one buyer. Returns false if the stock is empty. */
type Purchase = () => boolean;

/** Through SQLite's object API, as its documentation advises for speed: prepare, bind, step, reset. */
function throughObjects(statements: Statements): Purchase {
  return () => {
    const { read, take } = statements;
    if (!read.bind(PRODUCT_KEY).step()) return false;
    const found = read.getInt(0) !== 0 && read.getString(1) === PRODUCT_NAME;
    read.reset();
    if (found) take.bind(PRODUCT_KEY).stepReset();
    return found;
  };
}

/** The raw exports used here, for which the module has no types. */
interface RawSqlite {
  sqlite3_step(statement: number): number;
  sqlite3_reset(statement: number): number;
  sqlite3_column_int(statement: number, column: number): number;
  sqlite3_column_text(statement: number, column: number): number;
  sqlite3_column_bytes(statement: number, column: number): number;
}

/**
 * Calls the raw C functions with the key bound once, and compares the name in SQLite's own memory: this
 * measures the engine alone. A program with more than one key cannot do this.
 */
function throughRawCalls(sqlite3: Sqlite3Static, statements: Statements): Purchase {
  const raw: RawSqlite = sqlite3.wasm.exports;
  const { SQLITE_ROW, SQLITE_DONE } = sqlite3.capi;
  const read = Number(statements.read.bind(PRODUCT_KEY).pointer);
  const take = Number(statements.take.bind(PRODUCT_KEY).pointer);
  const name = new TextEncoder().encode(PRODUCT_NAME);
  return () => {
    if (raw.sqlite3_step(read) !== SQLITE_ROW || raw.sqlite3_column_int(read, 0) === 0)
      return false;
    const at = raw.sqlite3_column_text(read, 1);
    if (raw.sqlite3_column_bytes(read, 1) !== name.length) return false;
    const heap = sqlite3.wasm.heap8u();
    for (let i = 0; i < name.length; i++) if (heap[at + i] !== name[i]) return false;
    raw.sqlite3_reset(read);
    const taken = raw.sqlite3_step(take) === SQLITE_DONE;
    raw.sqlite3_reset(take);
    return taken;
  };
}

class SqliteRival implements Rival {
  readonly id: string;
  readonly name: string;
  readonly #file: string;
  readonly durability = "WAL, normal: survives a crash of tab or browser";
  #db: OpfsSAHPoolDatabase;
  #statements: Statements;

  constructor(
    private readonly sqlite3: Sqlite3Static,
    private readonly pool: SAHPoolUtil,
    private readonly raw: boolean,
  ) {
    this.id = raw ? "sqlite-raw" : "sqlite";
    this.name = raw ? "SQLite, raw calls" : "SQLite (wasm)";
    this.#file = `/drop-bench-${this.id}.sqlite3`;
    pool.unlink(this.#file);
    this.#db = this.#open();
    this.#statements = this.#prepare();
  }

  #open(): OpfsSAHPoolDatabase {
    const db = new this.pool.OpfsSAHPoolDb(this.#file);
    db.exec(TUNING);
    db.exec(
      "CREATE TABLE IF NOT EXISTS product(id TEXT PRIMARY KEY, stock INTEGER NOT NULL, name TEXT NOT NULL) WITHOUT ROWID",
    );
    return db;
  }

  #prepare(): Statements {
    return {
      read: this.#db.prepare("SELECT stock, name FROM product WHERE id = ?"),
      take: this.#db.prepare("UPDATE product SET stock = stock - 1 WHERE id = ? AND stock > 0"),
    };
  }

  #close(): void {
    this.#statements.read.finalize();
    this.#statements.take.finalize();
    this.#db.close();
  }

  async restock(cycles: number): Promise<void> {
    this.#db.exec({
      sql: "INSERT OR REPLACE INTO product VALUES (?, ?, ?)",
      bind: [PRODUCT_KEY, cycles + 1, PRODUCT_NAME],
    });
  }

  async serve(cycles: number, grouping: "all" | "each"): Promise<void> {
    const buy = this.raw
      ? throughRawCalls(this.sqlite3, this.#statements)
      : throughObjects(this.#statements);
    // Without BEGIN each writing statement is a transaction of its own.
    if (grouping === "all") this.#db.exec("BEGIN");
    for (let cycle = 0; cycle < cycles; cycle++) {
      if (!buy()) throw refused(this.name, cycle);
    }
    if (grouping === "all") this.#db.exec("COMMIT");
  }

  async reopenAndRead(): Promise<Product> {
    this.#close();
    this.#db = this.#open();
    this.#statements = this.#prepare();
    const { read } = this.#statements;
    if (!read.bind(PRODUCT_KEY).step()) throw new Error("SQLite holds no product");
    const product = { stock: read.getInt(0) ?? -1, name: read.getString(1) ?? "" };
    read.reset();
    return product;
  }

  async dispose(): Promise<void> {
    this.#close();
    this.pool.unlink(this.#file);
  }
}

let pool: Promise<{ sqlite3: Sqlite3Static; util: SAHPoolUtil }> | undefined;

/** Sets up the module and its pool once per worker: a second pool in the same folder is refused. */
function poolOnce() {
  pool ??= (async () => {
    const sqlite3 = await init();
    // Capacity for two databases, their WALs, and temporary files.
    return { sqlite3, util: await sqlite3.installOpfsSAHPoolVfs({ initialCapacity: 8 }) };
  })();
  return pool;
}

/** SQLite on its OPFS pool; `raw` for the bare C functions instead of the object API. */
export async function sqliteRival({ raw = false } = {}): Promise<Rival> {
  const { sqlite3, util } = await poolOnce();
  return new SqliteRival(sqlite3, util, raw);
}
