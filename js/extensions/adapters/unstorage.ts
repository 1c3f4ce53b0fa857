/** `varve/unstorage`: a driver for unstorage, of which it has no code. */

import { type Awaitable, expiryIn, rawOf, textOf, using } from "../raw.js";

/** The options of the driver. */
export interface VarveDriverOptions {
  /**
   * What the keys in the database begin with, `"unstorage/"` by default. Everything else in the database stays
   * untouched.
   */
  prefix?: string | undefined;
  /** After how many seconds items expire, unless their `setItem` has a `ttl` of its own. Without it, they stay. */
  ttl?: number | undefined;
}

/** The options of a call of unstorage: `ttl`, in seconds. What drivers do not know they ignore. */
type CallOptions = { readonly ttl?: number } & Readonly<Record<string, unknown>>;

/** What an item is known by: its length in bytes and, if it expires, in how many seconds. */
export interface VarveItemMeta {
  readonly size: number;
  readonly ttl?: number;
  readonly [key: string]: number | undefined;
}

/** A driver, as `createStorage` takes it. */
export interface VarveDriver {
  readonly name: string;
  readonly options: VarveDriverOptions;
  /** The database or client. */
  getInstance(): object;
  hasItem(key: string): Awaitable<boolean>;
  getItem(key: string): Awaitable<string | null>;
  getItems(
    items: readonly { readonly key: string }[],
  ): Awaitable<{ key: string; value: string | null }[]>;
  /** The bytes of an item, also of one that was stored as text. */
  getItemRaw(key: string): Awaitable<Uint8Array | null>;
  setItem(key: string, value: string, options?: CallOptions): Awaitable<void>;
  /** Stores all of them or, if one is refused, none. */
  setItems(
    items: readonly {
      readonly key: string;
      readonly value: string;
      readonly options?: CallOptions;
    }[],
    options?: CallOptions,
  ): Awaitable<void>;
  /** Stores text or bytes. */
  setItemRaw(key: string, value: unknown, options?: CallOptions): Awaitable<void>;
  removeItem(key: string): Awaitable<void>;
  getKeys(base?: string): Promise<string[]>;
  clear(base?: string): Awaitable<void>;
  getMeta(key: string): Awaitable<VarveItemMeta | null>;
  /** Reports what changes below the prefix by any write, and what expires; with a client, in any tab. */
  watch: (callback: (event: "update" | "remove", key: string) => unknown) => () => void;
}

/** What a database and a client have. */
interface Watched {
  watch(
    range: { readonly prefix: string },
    listener: (changes: readonly { readonly key: string; readonly version: number }[]) => void,
  ): { close(): void };
}

const nothing = () => {};

/**
 * Keeps the items of unstorage as raw keys of a database, or of a client of one.
 *
 * ```ts
 * const storage = createStorage({ driver: varveDriver(db) });
 * await storage.setItem("users:ann", { age: 30 }, { ttl: 3600 }); // in seconds
 * ```
 *
 * The database stays yours: `dispose` does not close it. Every call fails with the errors of the database, such as
 * `DatabaseClosedError`, and with a `TypeError` (`VARVE_BAD_ARGUMENT`) for a `ttl` that is no number, or a raw value that
 * is neither text nor bytes.
 *
 * @throws TypeError if `to` is no database, as `open` gives it, and no client, as `connect` gives it
 */
export function varveDriver(to: object, options: VarveDriverOptions = {}): VarveDriver {
  const { prefix = "unstorage/" } = options;
  const raw = rawOf(to, "varveDriver()", prefix);
  const at = (key = "") => prefix + key;
  const expiry = (given?: CallOptions, common?: CallOptions) => {
    const ttl: unknown = given?.ttl ?? common?.ttl ?? options.ttl;
    // 0 is none, as with the drivers of unstorage.
    return ttl === 0 ? undefined : expiryIn(typeof ttl === "number" ? ttl * 1000 : ttl);
  };
  const set = (key: string, value: unknown, given?: CallOptions) =>
    raw.set(at(key), value as string, expiry(given));
  return {
    name: "varve",
    options,
    getInstance: () => to,
    hasItem: (key) => raw.has(at(key)),
    getItem: (key) => using(raw.get(at(key)), (found) => textOf(found) ?? null),
    getItems: (items) =>
      using(raw.getMany(items.map(({ key }) => at(key))), (found) =>
        items.map(({ key }, index) => ({ key, value: textOf(found[index]) ?? null })),
      ),
    getItemRaw: (key) => using(raw.get(at(key)), (found) => found?.slice() ?? null),
    setItem: set,
    setItemRaw: set,
    setItems(items, common) {
      const all = items.map(
        ({ key, value, options }) => [at(key), value, expiry(options, common)] as const,
      );
      return using(
        raw.transaction((tx) => {
          for (const item of all) tx.set(...item);
        }),
        nothing,
      );
    },
    removeItem: (key) => using(raw.delete(at(key)), nothing),
    async getKeys(base) {
      const keys = [];
      for await (const key of raw.keys({ prefix: at(base) })) keys.push(key.slice(prefix.length));
      return keys;
    },
    clear: (base) => using(raw.clear({ prefix: at(base) }), nothing),
    getMeta: (key) =>
      using(raw.getEntry(at(key)), (found) => {
        if (found === undefined) return null;
        const { value, expires } = found;
        const size = value.length;
        return expires ? { size, ttl: Math.ceil((+expires - Date.now()) / 1000) } : { size };
      }),
    watch(callback) {
      const watching = (to as Watched).watch({ prefix }, (changes) => {
        for (const { key, version } of changes) {
          callback(version ? "update" : "remove", key.slice(prefix.length));
        }
      });
      return () => watching.close();
    },
  };
}

export default varveDriver;
