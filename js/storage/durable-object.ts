/** `durableObject()`: storage in a Durable Object of Cloudflare Workers, as rows of its SQLite database. */

import {
  badArgument,
  DatabaseBusyError,
  DatabaseNotFoundError,
  refuseMore,
  StorageUnavailableError,
} from "../errors/index.js";
import { fileName, namesOf, SHADOW_SUFFIX } from "./file-names.js";
import type { OpenedStorage, ReplacementFile, Storage, StorageFile } from "./storage.js";

/** Size of a row. It is small, because each commit rewrites the last row of the file. The limit is 2 MB. */
const PAGE = 16_384;

/** The default of the option `memory`. An isolate has 128 MB for all of its objects. */
const MEMORY = 4_194_304;

/** The part of a Durable Object's `ctx.storage` that is used. */
export interface DurableObjectStorageLike {
  readonly sql: {
    exec(query: string, ...bindings: unknown[]): { toArray(): Record<string, unknown>[] };
  };
  sync(): Promise<void>;
}

/** The databases of one object: their identities, and which of them are open. */
interface ObjectDatabases {
  readonly identities: Map<string, object>;
  readonly open: Set<string>;
}

/** The databases of each object, because objects of one class share their isolate and all globals. */
const databasesByObject = new WeakMap<object, ObjectDatabases>();

/**
 * A storage inside a Durable Object of Cloudflare Workers whose class has SQLite storage. Each database is a
 * table in it, named after the database with ".varve" at the end.
 *
 * - The writes of a turn are one commit, and the object's responses wait until it is stored: nothing that a
 *   client has received is ever lost. `await db.flushed` waits for the same.
 * - A transaction of the object itself (`ctx.storage.transaction`) is not one of the database; use
 *   `db.transaction`. If one rolls back what the database wrote meanwhile, the database refuses to go on and
 *   throws `StorageError`. Opened again, it is as the rollback left it.
 * - No timer is ever set, so the object can hibernate. `durability: "buffered"` counts as `"written"`, and
 *   writes do the maintenance, a slice at a time.
 * - `memory` is 4 MiB by default. A database that is read only now and then needs no more.
 *
 * ```ts
 * import { DurableObject } from "cloudflare:workers";
 *
 * export class Shop extends DurableObject {
 *   db = open("shop", { storage: durableObject(this.ctx.storage) });
 *
 *   async sold(id: string) {
 *     return (await this.db).has(`sold/${id}`);
 *   }
 * }
 * ```
 *
 * @throws TypeError for anything but the `ctx.storage` of a Durable Object
 */
export function durableObject(storage: DurableObjectStorageLike): Storage;
export function durableObject(storage: DurableObjectStorageLike, ...more: unknown[]): Storage {
  refuseMore("durableObject()", more);
  if (typeof storage !== "object" || storage === null) {
    throw badArgument(
      "durableObject() needs the ctx.storage of a Durable Object, which exists only inside one.",
      storage,
    );
  }
  const databases = databasesOf(storage);
  return {
    kind: "durable-object",
    memory: MEMORY,
    timers: false,
    identity(name) {
      const table = fileName(name);
      let identity = databases.identities.get(table);
      if (identity === undefined) {
        identity = Object.freeze({ table });
        databases.identities.set(table, identity);
      }
      return identity;
    },
    async open(name, mode): Promise<OpenedStorage> {
      const table = fileName(name);
      const sql = sqlOf(storage);
      if (databases.open.has(table)) throw busy(name);
      const isNew = !exists(sql, table);
      if (mode?.readOnly === true && isNew) throw missing(name);
      const file = new TableFile(sql, table, () => databases.open.delete(table));
      databases.open.add(table);
      return {
        file,
        sync: () => storage.sync(),
        openReplacement: async () => openReplacement(sql, table, file),
        removeLeftovers: () => drop(sql, table + SHADOW_SUFFIX),
        discard() {
          file.close();
          if (isNew) drop(sql, table);
        },
        estimate: () => ({ usage: file.getSize(), quota: undefined, persisted: undefined }),
      };
    },
    async destroy(name) {
      const table = fileName(name);
      const sql = sqlOf(storage);
      if (databases.open.has(table)) throw busy(name);
      if (!exists(sql, table)) return false;
      drop(sql, table + SHADOW_SUFFIX);
      drop(sql, table);
      return true;
    },
    async databases() {
      const tables = sqlOf(storage).exec("SELECT name FROM sqlite_master WHERE type = 'table'");
      return namesOf(tables.toArray().map(({ name }) => String(name)));
    },
  };
}

/** Makes a shadow table. The writes of one turn are atomic, so the replacement is one step. */
function openReplacement(sql: Sql, table: string, main: TableFile): ReplacementFile {
  const next = table + SHADOW_SUFFIX;
  const file = new TableFile(sql, next, () => {});
  return {
    file,
    takeOver() {
      file.close();
      const old = `${table}.old`;
      sql.exec(`ALTER TABLE "${table}" RENAME TO "${old}"`);
      try {
        sql.exec(`ALTER TABLE "${next}" RENAME TO "${table}"`);
      } catch (error) {
        sql.exec(`ALTER TABLE "${old}" RENAME TO "${table}"`);
        throw error;
      }
      sql.exec(`DROP TABLE "${old}"`);
      main.reset();
    },
    remove() {
      file.close();
      drop(sql, next);
    },
  };
}

type Sql = DurableObjectStorageLike["sql"];

function databasesOf(storage: object): ObjectDatabases {
  let databases = databasesByObject.get(storage);
  if (databases === undefined) {
    databases = { identities: new Map(), open: new Set() };
    databasesByObject.set(storage, databases);
  }
  return databases;
}

/** The `sql` of a storage. If the class has no SQLite storage, it is missing or throws. */
function sqlOf(storage: DurableObjectStorageLike): Sql {
  let cause: unknown;
  try {
    const { sql } = storage as Partial<DurableObjectStorageLike>;
    if (typeof sql?.exec === "function") return sql;
  } catch (error) {
    cause = error;
  }
  throw new StorageUnavailableError(
    "durableObject() needs the ctx.storage of a Durable Object with SQLite storage. " +
      "List its class under new_sqlite_classes in the migrations of the Worker's configuration.",
    { cause },
  );
}

function drop(sql: Sql, table: string): void {
  sql.exec(`DROP TABLE IF EXISTS "${table}"`);
}

function exists(sql: Sql, table: string): boolean {
  const query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?";
  return sql.exec(query, table).toArray().length > 0;
}

/** The mark before the first write: no page has this number. */
const UNMARKED = { page: -1, bytes: null };

/**
 * A file stored as rows. All rows but the last have the same length; number and length of the last row give the size
 * of the file. A missing row before it reads as zeros.
 */
class TableFile implements StorageFile {
  readonly #sql: Sql;
  readonly #table: string;
  readonly #closed: () => void;
  /** Set if the rows were changed by other code. */
  #torn: Error | undefined;
  #size: number;
  #open: boolean;
  /** The page that was loaded last, cached because the next commit continues at the end of the last one. */
  #page: number;
  #bytes: Uint8Array<ArrayBuffer>;
  /** The page where the last write began, and the bytes of its row since. */
  #mark: { readonly page: number; readonly bytes: Uint8Array<ArrayBuffer> | null };

  constructor(sql: Sql, table: string, closed: () => void) {
    this.#sql = sql;
    this.#table = `"${table}"`;
    this.#closed = closed;
    this.#torn = undefined;
    this.#open = true;
    this.#page = -1;
    this.#bytes = new Uint8Array(0);
    this.#size = 0;
    this.#mark = UNMARKED;
    this.#run(
      "CREATE TABLE IF NOT EXISTS TABLE_NAME (page INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
    );
    this.reset();
  }

  /** Resets the state after the table was replaced. */
  reset(): void {
    this.#forget();
    this.#mark = UNMARKED;
    this.#size = this.#measure().size;
  }

  read(buffer: Uint8Array, { at }: { at: number }): number {
    this.#admit();
    const end = Math.min(at + buffer.length, this.#size);
    for (let from = at; from < end; ) {
      const page = Math.floor(from / PAGE);
      const start = from - page * PAGE;
      const stop = Math.min(PAGE, end - page * PAGE);
      buffer.set(this.#load(page).subarray(start, stop), from - at);
      from += stop - start;
    }
    return Math.max(0, end - at);
  }

  write(buffer: Uint8Array, { at }: { at: number }): number {
    this.#assertKept();
    const end = at + buffer.length;
    if (at > this.#size) this.truncate(at);
    const size = Math.max(this.#size, end);
    for (let from = at; from < end; ) {
      const page = Math.floor(from / PAGE);
      const start = from - page * PAGE;
      const stop = Math.min(PAGE, end - page * PAGE);
      const bytes = start === 0 && stop === PAGE ? new Uint8Array(PAGE) : this.#load(page);
      bytes.set(buffer.subarray(from - at, from - at + stop - start), start);
      this.#store(page, bytes, Math.min(PAGE, size - page * PAGE), from === at);
      from += stop - start;
      this.#size = Math.max(this.#size, from);
    }
    return buffer.length;
  }

  truncate(size: number): void {
    this.#assertKept();
    if (size === this.#size) return;
    const last = Math.ceil(size / PAGE) - 1;
    const old = Math.floor(this.#size / PAGE);
    if (old < last && this.#size % PAGE !== 0) {
      // Extend the old last page to full length, which stays valid if the next row is refused.
      this.#store(old, this.#load(old), PAGE, false);
      this.#size = (old + 1) * PAGE;
    }
    if (last >= 0) {
      const bytes = this.#load(last);
      const length = size - last * PAGE;
      bytes.fill(0, Math.min(length, Math.max(0, this.#size - last * PAGE)));
      this.#store(last, bytes, length, true);
    }
    if (size < this.#size) {
      this.#run("DELETE FROM TABLE_NAME WHERE page > ?", last);
      if (last < 0) this.reset();
    }
    this.#size = size;
  }

  getSize(): number {
    this.#admit();
    return this.#size;
  }

  /** Needs no flush: the platform stores the writes of a turn atomically before any response leaves the object. */
  flush(): void {
    this.#assertKept();
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    this.#forget();
    this.#closed();
  }

  #admit(): void {
    if (!this.#open) throw this.#torn ?? lost(`The table ${this.#table} is closed.`);
  }

  /**
   * Throws, now and on all later calls, if other code has changed the rows, because further writes would tear the file.
   */
  #assertKept(): void {
    this.#admit();
    const { size, isMarked } = this.#measure();
    if (size === this.#size && isMarked) return;
    this.#torn = lost(
      `The table ${this.#table} was changed outside the database, perhaps by a transaction of ` +
        "ctx.storage that was rolled back. What the database wrote in it is gone. Use " +
        "db.transaction() instead.",
    );
    this.close();
    throw this.#torn;
  }

  /** The size of the file by its rows, and whether the last write is still in them. */
  #measure(): { size: number; isMarked: boolean } {
    const { page, bytes } = this.#mark;
    const [last] = this.#run(
      "SELECT page, length(bytes) AS length, (SELECT bytes FROM TABLE_NAME WHERE page = ?) IS ? AS same " +
        "FROM TABLE_NAME ORDER BY page DESC LIMIT 1",
      page,
      bytes,
    );
    if (last === undefined) return { size: 0, isMarked: bytes === null };
    return { size: Number(last.page) * PAGE + Number(last.length), isMarked: last.same === 1 };
  }

  /** All bytes of a page, padded with zeros. A write stores the array or drops it from the cache. */
  #load(page: number): Uint8Array<ArrayBuffer> {
    if (this.#page === page) return this.#bytes;
    const [row] = this.#run("SELECT bytes FROM TABLE_NAME WHERE page = ?", page);
    const bytes = new Uint8Array(PAGE);
    if (row !== undefined) bytes.set(new Uint8Array(row.bytes as ArrayBuffer));
    this.#page = page;
    this.#bytes = bytes;
    return bytes;
  }

  /** Stores a page. With `mark`, it is the page that is checked before the next write. */
  #store(page: number, bytes: Uint8Array<ArrayBuffer>, length: number, mark: boolean): void {
    // If the row is refused, the cached page is not what is stored.
    this.#forget();
    const query = "INSERT OR REPLACE INTO TABLE_NAME (page, bytes) VALUES (?, ?)";
    const stored = bytes.slice(0, length);
    this.#run(query, page, stored);
    if (mark || page === this.#mark.page) this.#mark = { page, bytes: stored };
    this.#page = page;
    this.#bytes = bytes;
  }

  #forget(): void {
    this.#page = -1;
  }

  #run(query: string, ...bindings: unknown[]): Record<string, unknown>[] {
    try {
      return this.#sql.exec(query.replaceAll("TABLE_NAME", this.#table), ...bindings).toArray();
    } catch (cause) {
      // The platform's errors have no code, so they are recognized by their text.
      if (/no such table/.test(String(cause))) {
        throw lost(`The table ${this.#table} is gone, perhaps by ctx.storage.deleteAll().`, {
          cause,
        });
      }
      if (!/SQLITE_FULL|database or disk is full/.test(String(cause))) throw cause;
      throw Object.assign(new Error("This Durable Object is full.", { cause }), { code: "ENOSPC" });
    }
  }
}

/** An error for a lost file, for which the database's message advises to open it again. */
function lost(message: string, options?: ErrorOptions): Error {
  return Object.assign(new Error(message, options), { code: "EBADF" });
}

function missing(name: string): Error {
  return new DatabaseNotFoundError(
    `There is no database "${name}" in this Durable Object, and readOnly creates none.`,
  );
}

function busy(name: string): Error {
  return new DatabaseBusyError(
    `The database "${name}" is already open in this Durable Object. Close it first.`,
  );
}
