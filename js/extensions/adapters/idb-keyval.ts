/** `varve/idb-keyval`: the functions of idb-keyval. It has no code of that. */

import type { Client } from "../../client/client.js";
import type { Database } from "../../database/database.js";
import { badCall } from "../../errors/base.js";
import { encoder } from "../../util/text-coders.js";
import { type Awaitable, type Raw, rawOf, using } from "../raw.js";
import { pack, unpack } from "./clone.js";
import { keyBytes, keyOf, type ValidKey } from "./idb-keys.js";

export type { ValidKey } from "./idb-keys.js";

/** What a value is if the caller does not say: as in idb-keyval, anything. */
type Anything = ReturnType<typeof JSON.parse>;

type ByteRaw = Raw<Uint8Array>;

/** A store, as `createStore` makes it: a part of a database. */
export interface UseStore {
  /** The database, or the promise of it. It is opened at the first call. */
  readonly open: () => Awaitable<ByteRaw>;
  /** What its keys in the database begin with. */
  readonly prefix: Uint8Array;
}

/** The databases that were opened by their names. */
const databases = new Map<string, Promise<ByteRaw>>();

/** Opens a database by its name: on a page through a client, since pages have no synchronous files. */
function named(name: string): Promise<ByteRaw> {
  let opening = databases.get(name);
  if (opening === undefined) {
    opening = (
      "document" in globalThis
        ? import("../../client/index.js").then(({ connect }): unknown => connect(name))
        : import("../../index.js").then(({ open }): unknown => open(name))
    ) as Promise<ByteRaw>;
    databases.set(name, opening);
    // The next call tries again.
    opening.catch(() => databases.delete(name));
  }
  return opening;
}

/**
 * A store of a database: of one that is opened at its first use, given its name, or of one that is open, or of a client.
 *
 * @param database a name: on a page it is opened by `connect`, elsewhere by `open`, and stays open. Or a database, as
 *   `open` gives it, or a client, as `connect` gives it.
 * @param storeName which store of the database it is. Stores of one database do not share keys.
 * @throws TypeError for anything else
 */
export function createStore(database: string | Database | Client, storeName: string): UseStore {
  if (typeof storeName !== "string") throw badCall("The name of a store must be a string.");
  // In quotes a name ends by itself, so that none begins with another one.
  const prefix = encoder.encode(`idb-keyval/${JSON.stringify(storeName)}`);
  if (typeof database === "string") return { open: () => named(database), prefix };
  const raw = rawOf(database, "createStore()", "") as unknown as ByteRaw;
  return { open: () => raw, prefix };
}

let defaultStore: UseStore | undefined;

/** Replaces the store of all calls that name none, which is `createStore("keyval-store", "keyval")`. */
export function setDefaultStore(store: UseStore): void {
  defaultStore = store;
}

/** A store, with the bytes of its keys, and what calls a function with its database. */
function placeOf(store: UseStore | undefined) {
  defaultStore ??= createStore("keyval-store", "keyval");
  const { open, prefix } = store ?? defaultStore;
  return {
    prefix,
    at: (key: unknown) => keyBytes(prefix, key),
    async on<R>(use: (raw: ByteRaw) => Awaitable<R>): Promise<R> {
      const raw = open();
      return use(raw instanceof Promise ? await raw : raw);
    },
  };
}

const unpacked = (stored: Uint8Array | undefined) => stored && unpack(stored);

/** Resolves to the value of a key, or `undefined` if there is none. */
export async function get<T = Anything>(
  key: ValidKey,
  customStore?: UseStore,
): Promise<T | undefined> {
  const { at, on } = placeOf(customStore);
  const place = at(key);
  return on((raw) => using(raw.get(place), unpacked) as Awaitable<T | undefined>);
}

/** Stores a value under a key. The value is copied before this returns. */
export async function set(key: ValidKey, value: unknown, customStore?: UseStore): Promise<void> {
  return setMany([[key, value]], customStore);
}

/** Stores several values, all of them or none. */
export async function setMany(
  entries: readonly (readonly [ValidKey, unknown])[],
  customStore?: UseStore,
): Promise<void> {
  const { at, on } = placeOf(customStore);
  const all = entries.map(([key, value]) => [at(key), pack(value)] as const);
  return on((raw) =>
    raw.transaction((tx) => {
      for (const [key, value] of all) tx.set(key, value);
    }),
  );
}

/** Resolves to the values of several keys, `undefined` for those that are missing, as of one moment. */
export async function getMany<T = Anything>(
  keys: readonly ValidKey[],
  customStore?: UseStore,
): Promise<(T | undefined)[]> {
  const { at, on } = placeOf(customStore);
  const all = keys.map(at);
  return on((raw) => using(raw.getMany(all), (found) => found.map(unpacked) as (T | undefined)[]));
}

/**
 * Replaces a value by what `updater` makes of it, or of `undefined` if there is none, without another write in between. On
 * a client `updater` may run several times.
 */
export async function update<T = Anything>(
  key: ValidKey,
  updater: (oldValue: T | undefined) => T,
  customStore?: UseStore,
): Promise<void> {
  const { at, on } = placeOf(customStore);
  const place = at(key);
  return on((raw) =>
    raw.transaction((tx) =>
      using(tx.get(place), (stored) => {
        tx.set(place, pack(updater(unpacked(stored) as T | undefined)));
      }),
    ),
  );
}

/** Deletes a key. */
export async function del(key: ValidKey, customStore?: UseStore): Promise<void> {
  return delMany([key], customStore);
}

/** Deletes several keys, all of them or none. */
export async function delMany(keys: readonly ValidKey[], customStore?: UseStore): Promise<void> {
  const { at, on } = placeOf(customStore);
  const all = keys.map(at);
  return on((raw) =>
    raw.transaction((tx) => {
      for (const key of all) tx.delete(key);
    }),
  );
}

/** Deletes everything in the store. */
export async function clear(customStore?: UseStore): Promise<void> {
  const { prefix, on } = placeOf(customStore);
  return on((raw) => using(raw.clear({ prefix }), () => {}));
}

/** Resolves to all keys, in the order of IndexedDB: numbers, dates, strings, bytes, arrays. */
export async function keys<KeyType extends ValidKey>(customStore?: UseStore): Promise<KeyType[]> {
  return list(customStore, "keys", (key: Uint8Array, start) => keyOf(key, start) as KeyType);
}

/** Resolves to all values, in the order of their keys. */
export async function values<T = Anything>(customStore?: UseStore): Promise<T[]> {
  return list(customStore, "values", (value: Uint8Array) => unpack(value) as T);
}

/** Resolves to all keys with their values, in the order of the keys. */
export async function entries<KeyType extends ValidKey, ValueType = Anything>(
  customStore?: UseStore,
): Promise<[KeyType, ValueType][]> {
  return list(customStore, "entries", ([key, value]: [Uint8Array, Uint8Array], start) => [
    keyOf(key, start) as KeyType,
    unpack(value) as ValueType,
  ]);
}

/** What a scan of a database or of a client gives, as of one moment. */
function list<Row, T>(
  store: UseStore | undefined,
  what: "keys" | "values" | "entries",
  use: (row: Row, start: number) => T,
): Promise<T[]> {
  const { prefix, on } = placeOf(store);
  return on(async (raw) => {
    const rows = raw[what](what === "values" ? { prefix } : { prefix, keyAs: "bytes" }) as
      | Iterable<Row>
      | { all(): Promise<Row[]> };
    const all: T[] = [];
    // A view of a database is used before the next step.
    for (const row of Symbol.iterator in rows ? rows : await rows.all()) {
      all.push(use(row, prefix.length));
    }
    return all;
  });
}
