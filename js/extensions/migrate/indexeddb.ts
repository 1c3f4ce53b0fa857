/** `fromIndexedDB`: moves object stores of IndexedDB, whichever library has filled them. */

import { badArgument, DatabaseNotFoundError, describe } from "../../errors/index.js";
import { refuseUnknown } from "../../session/options.js";
import { sizeOf } from "./compare.js";
import { MigrationError } from "./errors.js";
import {
  checkCommon,
  checkName,
  type Found,
  type Mapping,
  type Migrated,
  type MigrationOptions,
  mappingOf,
  migrate,
  type Part,
} from "./run.js";
import type { AnyCollection } from "./target.js";

/** An index of an object store of IndexedDB. */
export interface StoreIndex {
  readonly name: string;
  /** The path of the field, or the paths of several. */
  readonly keyPath: string | readonly string[];
  readonly unique: boolean;
  /** Whether a record has an entry for each item of an array. */
  readonly multiEntry: boolean;
}

/** An object store of IndexedDB. */
export interface StoreDescription {
  /** The path of the field that is the key; `undefined` if keys are given apart from the values. */
  readonly keyPath: string | readonly string[] | undefined;
  /** Whether IndexedDB assigns the keys: numbers from 1. */
  readonly autoIncrement: boolean;
  /** Number of records. */
  readonly records: number;
  readonly indexes: readonly StoreIndex[];
}

/** The options of `fromIndexedDB`. */
export interface FromIndexedDBOptions extends MigrationOptions {
  /**
   * For each object store of the database the collection that it goes into, or how its records are mapped; `false` for one
   * that is left out. A store that is not named ends the migration before anything is written.
   */
  stores: Readonly<Record<string, AnyCollection | Mapping | false>>;
  /**
   * Whether the old database may be missing, as for users who never had it: then nothing is moved. By default that is an
   * error.
   */
  optional?: boolean | undefined;
}

/** The store in which localForage tries out whether it can store blobs. It has no data of the program. */
const LOCALFORAGE_PROBE = "local-forage-detect-blob-support";

/** Bytes of a slice, and records of one, roughly. */
const SLICE_BYTES = 1 << 20;
const SLICE_RECORDS = 1_000;

/**
 * Moves the object stores of an IndexedDB database into collections: those of idb-keyval, localForage, Dexie and others.
 *
 * ```ts
 * await fromIndexedDB("keyval-store", { to: shop, stores: { keyval: settings } });
 * ```
 *
 * Every record is first checked: a value or key that would not arrive as it is ends the migration before anything is
 * written, and the error names it. Then the records are copied, in commits of up to a thousand, and both sides are compared,
 * record by record. When it resolves, everything is on disk. The old database is only read, and stays; delete it with
 * `indexedDB.deleteDatabase(name)`. Called again, it goes on where it was ended, and does nothing once it is done. Of
 * several tabs, one moves the data, and the others wait for it.
 *
 * Let nothing write to the old database meanwhile. It waits for the end of an upgrade of the old database in another tab;
 * an upgrade or deletion that begins meanwhile gets its way, and ends the migration.
 *
 * @throws (rejects) TypeError for a wrong option
 * @throws (rejects) DatabaseNotFoundError if there is no IndexedDB database of this name and not `optional`; none is created
 * @throws (rejects) MigrationError for a record that cannot be moved, a store that is missing or not named, or a change
 * @throws (rejects) the reason of `signal`, what `onProgress` throws, and what writing to the database throws
 */
export async function fromIndexedDB(
  name: string,
  options: FromIndexedDBOptions,
): Promise<Migrated> {
  const call = "fromIndexedDB()";
  checkName(call, name);
  checkCommon(call, options, ["stores", "optional"]);
  const { stores, signal, optional, mark = `varve/migrate/indexeddb/${name}` } = options;
  if (Object.prototype.toString.call(stores) !== "[object Object]") {
    throw badArgument(
      `The option stores of ${call} must be an object: a collection for each store.`,
      stores,
    );
  }
  if (optional !== undefined && typeof optional !== "boolean") {
    throw badArgument(`The option optional of ${call} must be true or false.`, optional);
  }
  const mappings = Object.entries(stores).flatMap(([store, given]) =>
    given === false ? [] : [[store, mappingOf(`The store ${describe(store)}`, given)] as const],
  );
  const source = {
    name: nameOf(name),
    stores: mappings.map(([store]) => store),
    async use(work: (parts: readonly Part[]) => Promise<void>, isBegun: boolean) {
      let db: IDBDatabase;
      try {
        db = await opened(name, signal);
      } catch (error) {
        if (!(error instanceof DatabaseNotFoundError)) throw error;
        if (isBegun) throw goneSince(name, mark, error);
        if (optional) return;
        throw error;
      }
      const old = new OldDatabase(name, db);
      try {
        checkStores(name, old.names(), stores);
        await work(mappings.map(([store, mapping]) => partOf(old, store, mapping)));
      } finally {
        old.close();
      }
    },
  };
  return migrate(source, mark, options);
}

/**
 * Resolves to the object stores of an IndexedDB database with their keys and indexes, which say what to declare for the
 * collections. It reads no records.
 *
 * @throws (rejects) DatabaseNotFoundError if there is no IndexedDB database of this name; none is created
 * @throws (rejects) the reason of `signal`
 */
export async function describeIndexedDB(
  name: string,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<Record<string, StoreDescription>> {
  const call = "describeIndexedDB()";
  checkName(call, name);
  refuseUnknown(call, options, ["signal"]);
  const old = new OldDatabase(name, await opened(name, options.signal));
  try {
    const described: [string, StoreDescription][] = [];
    for (const store of old.names()) described.push([store, await old.describe(store)]);
    return Object.fromEntries(described);
  } finally {
    old.close();
  }
}

/** The error for an old database that was there when an earlier call began, and is not any more. */
function goneSince(name: string, mark: string, cause: Error): DatabaseNotFoundError {
  return new DatabaseNotFoundError(
    `T${nameOf(name).slice(1)} is gone, and an earlier call had not moved all of it. To keep what was copied, delete the key ` +
      `${describe(mark)} and set optional: true.`,
    { cause },
  );
}

function nameOf(name: string): string {
  return `the IndexedDB database ${describe(name)}`;
}

/** Refuses names of stores that are not there, and stores that are not named. */
function checkStores(name: string, names: readonly string[], given: object): void {
  const listed = names.map(describe).join(", ") || "none";
  for (const store of Object.keys(given)) {
    if (names.includes(store)) continue;
    throw new MigrationError(
      `There is no store ${describe(store)} in ${nameOf(name)}. Its stores are: ${listed}.`,
      { store },
    );
  }
  for (const store of names) {
    if (Object.hasOwn(given, store) || store === LOCALFORAGE_PROBE) continue;
    throw new MigrationError(
      `The option stores does not name ${describe(store)}, a store of ${nameOf(name)}. Give it a collection, or ` +
        `false to leave it out.`,
      { store },
    );
  }
}

function partOf(old: OldDatabase, name: string, mapping: Mapping): Part {
  return {
    name,
    mapping,
    total: () => old.request(name, (store) => store.count()),
    walk: (after) => old.walk(name, after === undefined ? undefined : keyOf(after as KeyForm)),
  };
}

/** @throws DatabaseNotFoundError if there is none */
function opened(name: string, signal: AbortSignal | undefined): Promise<IDBDatabase> {
  const { indexedDB } = globalThis as { indexedDB?: IDBFactory };
  if (indexedDB === undefined) {
    throw new MigrationError(
      "There is no IndexedDB here. Call this in a page or worker of a browser.",
    );
  }
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const request = requested(indexedDB, name);
    const abort = () => reject(signal?.reason);
    signal?.addEventListener("abort", abort);
    let isMissing = false;
    const done = () => signal?.removeEventListener("abort", abort);
    request.onupgradeneeded = () => {
      // It would be created by this: undone, nothing is left of it.
      isMissing = true;
      request.transaction?.abort();
    };
    request.onsuccess = () => {
      done();
      if (signal?.aborted) request.result.close();
      else resolve(request.result);
    };
    request.onerror = (event) => {
      // Firefox would report it as an error of the page too.
      event.preventDefault();
      done();
      const cause = request.error;
      reject(
        isMissing
          ? new DatabaseNotFoundError(
              `There is no IndexedDB database ${describe(name)} at this origin; none was created. indexedDB.databases() ` +
                "lists those that are there.",
            )
          : new MigrationError(`T${nameOf(name).slice(1)} cannot be opened: ${cause?.message}`, {
              cause,
            }),
      );
    };
  });
}

/** @throws MigrationError where the platform denies storage, as in a sandboxed frame */
function requested(indexedDB: IDBFactory, name: string): IDBOpenDBRequest {
  try {
    return indexedDB.open(name);
  } catch (cause) {
    throw new MigrationError(`IndexedDB is denied here: ${(cause as Error).message}`, { cause });
  }
}

/** An open database of IndexedDB. */
class OldDatabase {
  private readonly name: string;
  private readonly db: IDBDatabase;
  private lost: string | undefined;

  constructor(name: string, db: IDBDatabase) {
    this.name = name;
    this.db = db;
    // Otherwise the upgrade or deletion would wait for this migration.
    db.onversionchange = ({ newVersion }) =>
      this.end(newVersion === null ? "is being deleted" : "is being upgraded");
    db.onclose = () => this.end("was closed by the browser");
  }

  private end(why: string): void {
    this.lost ??= why;
    this.db.close();
  }

  close(): void {
    this.db.close();
  }

  names(): string[] {
    return [...this.db.objectStoreNames];
  }

  /** Runs requests in one transaction, and resolves to the result of the last. */
  async request<T>(store: string, ask: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
    try {
      if (this.lost === undefined) {
        return await resultOf(ask(this.db.transaction(store, "readonly").objectStore(store)));
      }
    } catch (cause) {
      if (this.lost === undefined) {
        throw new MigrationError(
          `The store ${describe(store)} of ${nameOf(this.name)} cannot be read: ${(cause as Error).message}`,
          { cause, store },
        );
      }
    }
    throw new MigrationError(
      `T${nameOf(this.name).slice(1)} ${this.lost}, by another tab or by this program. If it is still there afterwards, ` +
        "call this again, to go on.",
      { store },
    );
  }

  async describe(name: string): Promise<StoreDescription> {
    let described: Omit<StoreDescription, "records"> | undefined;
    const records = await this.request(name, (store) => {
      const indexes = [...store.indexNames].map((index) => {
        const { keyPath, unique, multiEntry } = store.index(index);
        return { name: index, keyPath, unique, multiEntry };
      });
      const { keyPath, autoIncrement } = store;
      described = { keyPath: keyPath ?? undefined, autoIncrement, indexes };
      return store.count();
    });
    return { ...(described as Omit<StoreDescription, "records">), records };
  }

  async *walk(name: string, after: IDBValidKey | undefined): AsyncGenerator<Found[]> {
    let last = after;
    // The first slices are small, because values may be large.
    let count = 16;
    for (;;) {
      const range = last === undefined ? null : IDBKeyRange.lowerBound(last, true);
      let keys: IDBRequest<IDBValidKey[]> | undefined;
      const values: unknown[] = await this.request(name, (store) => {
        keys = store.getAllKeys(range, count);
        return store.getAll(range, count);
      });
      const found = (keys as IDBRequest<IDBValidKey[]>).result.map((key, i) => ({
        key,
        value: values[i],
        at: formOf(key),
      }));
      if (found.length === 0) return;
      yield found;
      if (found.length < count) return;
      last = found.at(-1)?.key;
      const size = Math.max(1, sizeOf(values, 16 * SLICE_BYTES));
      const fitting = Math.floor((SLICE_BYTES * found.length) / size);
      count = Math.min(SLICE_RECORDS, count * 4, Math.max(1, fitting));
    }
  }
}

function resultOf<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = (event) => {
      event.preventDefault();
      reject(request.error);
    };
  });
}

/** A key of IndexedDB as JSON. */
type KeyForm =
  | readonly ["number" | "date" | "string", string]
  | readonly ["bytes", readonly number[]]
  | readonly ["array", readonly KeyForm[]];

function formOf(key: IDBValidKey): KeyForm {
  if (typeof key === "string") return ["string", key];
  // Infinity is a key, and no JSON.
  if (typeof key === "number") return ["number", String(key)];
  if (Array.isArray(key)) return ["array", key.map(formOf)];
  if (key instanceof Date) return ["date", String(+key)];
  const bytes = ArrayBuffer.isView(key)
    ? new Uint8Array(key.buffer, key.byteOffset, key.byteLength)
    : new Uint8Array(key as ArrayBuffer);
  return ["bytes", [...bytes]];
}

function keyOf([kind, form]: KeyForm): IDBValidKey {
  switch (kind) {
    case "string":
      return form;
    case "number":
      return Number(form);
    case "date":
      return new Date(Number(form));
    case "bytes":
      return new Uint8Array(form).buffer;
    default:
      return form.map(keyOf);
  }
}
