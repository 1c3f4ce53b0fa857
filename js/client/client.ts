/** `Client`: the calls on a database that a worker has open. */

import type { BatchOperation } from "../database/database.js";
import type { Verification } from "../engine/reports.js";
import type { ExpiryOptions } from "../session/expiry.js";
import type { ByteRange, Range, TextRange } from "../session/key-range.js";
import type { DatabaseStats } from "../session/session.js";
import type { KeyChange, Watching, WatchOptions } from "../session/watching.js";
import type { Key, Value } from "../util/bytes.js";
import { asyncDispose } from "../util/dispose.js";
import type { Listened } from "../util/dom-types.js";
import type { CallOptions, ClientStatus } from "./connection/caller.js";
import { ClientHandle, type Connection } from "./connection/connection.js";
import { liveRows } from "./live-rows.js";
import { byName, hide } from "./named-properties.js";
import {
  type RemoteTransactionOptions,
  type RetryOptions,
  transact,
  txOf,
  updateIf,
} from "./optimistic.js";
import { split } from "./protocol/call-options.js";
import { changesOf } from "./protocol/client-subscriptions.js";
import { cloneArgs, listOf } from "./protocol/clone.js";
import { cloned } from "./protocol/json-values.js";
import type { RowsAnswer } from "./protocol/packed-rows.js";
import { RemoteCollection } from "./remote-collection.js";
import {
  logItems,
  logTransactions,
  type RemoteLogItem,
  type RemoteLogOptions,
  type RemoteLogTransaction,
} from "./remote-log.js";
import { RemoteScan } from "./remote-scan.js";
import { allRows, type RowDecoder, type RowSchema } from "./rows.js";
import type { Calls, Collections, RemoteCollectionOf, ServedTypes, TxOf } from "./types.js";

/** A value of a database in another realm, with its version. */
export interface RemoteEntry {
  /** A copy of the value. */
  readonly value: Uint8Array<ArrayBuffer>;
  /** The version of the value. Every write gives a higher one. */
  readonly version: number;
  /** Whether the value was salvaged from a damaged file whose lost writes may have changed or deleted the key. */
  readonly uncertain: boolean;
  /** From when on the key is absent; `undefined` if it does not expire. */
  readonly expires: Date | undefined;
}

/** The options of `client.set`. */
export interface RemoteSetOptions extends CallOptions, ExpiryOptions {
  /**
   * Sets the value only if the key still has this version; 0 means that the key is missing. As for
   * `Database.set`.
   */
  ifVersion?: number | undefined;
}

/** The options of `client.updateIf`. */
export interface RemoteUpdateOptions extends RetryOptions {
  /** The record is changed only if this returns `true` for its bytes. */
  predicate?: ((bytes: Uint8Array<ArrayBuffer>) => boolean) | undefined;
  /** The value that a missing key counts as having. */
  valueIfMissing?: Value | undefined;
}

/** A client of a database that has the collections of its worker as properties: those given to `connect`. */
export type ClientOf<S extends ServedTypes> = Client<S, keyof S["collections"]> & Collections<S>;

/**
 * A client of a database that a worker has open. Made by `connect`. Every call returns a promise, and what it
 * resolves to is a copy, which is yours.
 *
 * Calls made in one task are one message and one commit. A write is answered when the database's `durability`
 * is reached. It is done exactly once, also if its owner ends before it has answered. Besides the errors that
 * it lists, every call may reject with
 *
 * - `OwnerUnavailableError` if no owner answered in time; `applied` says whether it was done
 * - `DatabaseClosedError` after `close`
 * - `VersionChangedError` if a newer build of the application has the database: nothing was done
 * - `SchemaMismatchError` if another build that claims the same version has other collections
 * - the error of opening the database, and the reason of its `signal`
 *
 * The event `"status"` reports that `status` has changed. The event `"outdated"` reports that a newer build has
 * the database: save what the user has entered and reload the page.
 */
export class Client<
  S extends ServedTypes = ServedTypes,
  Declared extends keyof S["collections"] = never,
> extends (EventTarget as new () => Listened) {
  /** The procedures of the worker, by name: `client.call.buy("yeezy")`. Each call is one transaction there. */
  declare readonly call: Calls<S>;
  declare private readonly link: ClientHandle;
  declare private readonly known: Map<string, unknown>;
  declare private readonly declared: Readonly<Record<string, unknown>>;

  /** @internal */
  constructor(to: Connection, timeout: number, declared: Readonly<Record<string, unknown>>) {
    super();
    const link = new ClientHandle(to, timeout, (event) => this.dispatchEvent(new Event(event)));
    const procedures = byName(
      (name) =>
        (...args: unknown[]) =>
          link.request("call", () => cloned([name, ...args], `What ${name}() was given`), true),
    );
    hide(this, { link, call: procedures, known: new Map(), declared });
  }

  /**
   * A collection that the worker serves: `client.collection("products")`. With the option `collections` of
   * `connect` it is also a property, `client.products`. If the worker has none of this name, its calls reject.
   */
  collection<Name extends keyof S["collections"] & string>(
    name: Name,
  ): RemoteCollectionOf<S["collections"][Name]> {
    let collection = this.known.get(name);
    if (collection === undefined) {
      collection = new RemoteCollection(name, this.link, schemaOf(this.declared, name));
      this.known.set(name, collection);
    }
    return collection as RemoteCollectionOf<S["collections"][Name]>;
  }

  /** The state of the connection and its owner, and why calls wait. The event `"status"` reports changes. */
  get status(): ClientStatus {
    return this.link.status;
  }

  /** Resolves when an owner has answered for the first time. Rejects if the database cannot be opened. */
  get ready(): Promise<void> {
    return this.link.ready;
  }

  /** Resolves to the value of a key, or `undefined` if the key is missing. */
  get(key: Key, options?: CallOptions): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.requestRead("get", [key], options);
  }

  /**
   * Resolves to the value of a key as a string, or `undefined` if the key is missing.
   *
   * @throws (rejects) TypeError if the value is not UTF-8
   */
  getText(key: Key, options?: CallOptions): Promise<string | undefined> {
    return this.requestRead("getText", [key], options);
  }

  /** Resolves to the value of a key with its version, or `undefined` if the key is missing. */
  getEntry(key: Key, options?: CallOptions): Promise<RemoteEntry | undefined> {
    return this.requestRead("getEntry", [key], options);
  }

  /** Resolves to the values of several keys, in the order of the keys, as of one moment. */
  async getMany(
    keys: Iterable<Key>,
    options?: CallOptions,
  ): Promise<(Uint8Array<ArrayBuffer> | undefined)[]> {
    const answer: RowsAnswer = await this.requestRead("getMany", [listOf(keys)], options);
    return allRows(answer, { row: "values" }) as Promise<(Uint8Array<ArrayBuffer> | undefined)[]>;
  }

  /** Resolves to whether the key has a value. */
  has(key: Key, options?: CallOptions): Promise<boolean> {
    return this.requestRead("has", [key], options);
  }

  /** Resolves to the number of keys outside of collections, in total or in a range. */
  count(range?: Range, options?: CallOptions): Promise<number> {
    return this.requestRead("count", [range], options);
  }

  /** The keys of a range, or all keys, in order: for use in `for await`, or `.all()`. */
  keys(range: ByteRange, options?: CallOptions): RemoteScan<Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange, options?: CallOptions): RemoteScan<string>;
  keys(range?: Range, options?: CallOptions): RemoteScan<Uint8Array | string> {
    return this.scan("keys", range, options);
  }

  /** The values of a range, or all values, in the order of their keys. */
  values(range?: Range, options?: CallOptions): RemoteScan<Uint8Array<ArrayBuffer>> {
    return this.scan("values", range, options);
  }

  /** The keys and values of a range, or all of them, as pairs in the order of the keys. */
  entries(
    range: ByteRange,
    options?: CallOptions,
  ): RemoteScan<[Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>;
  entries(range?: TextRange, options?: CallOptions): RemoteScan<[string, Uint8Array<ArrayBuffer>]>;
  entries(range?: Range, options?: CallOptions): RemoteScan<[Uint8Array | string, Uint8Array]> {
    return this.scan("entries", range, options);
  }

  /**
   * Stores a value under a key. With `ifVersion` only if the key has that version. The bytes are copied
   * before this returns.
   *
   * @throws (rejects) ConflictError if the key has another version; nothing was written
   */
  set(key: Key, value: Value, options?: RemoteSetOptions): Promise<void> {
    const [setOptions, callOptions] = split(options);
    return this.requestWrite("set", [key, value, setOptions], callOptions);
  }

  /**
   * Changes when a key expires; its value stays. Resolves to whether the key was there. `expireIn` counts from when the
   * owner does it.
   */
  touch(key: Key, options: ExpiryOptions & CallOptions): Promise<boolean> {
    const [expiry, callOptions] = split(options);
    return this.requestWrite("touch", [key, expiry], callOptions);
  }

  /** Deletes a key. Resolves to whether it was there. */
  delete(key: Key, options?: CallOptions): Promise<boolean> {
    return this.requestWrite("delete", [key], options);
  }

  /** Deletes all keys, or those of a range: all of them or none. Resolves to how many were deleted. */
  clear(range?: Range, options?: CallOptions): Promise<number> {
    return this.requestWrite("clear", [range], options);
  }

  /** Runs several writes in the given order, all of them or none. */
  async batch(operations: readonly BatchOperation[], options?: CallOptions): Promise<void> {
    return this.requestWrite("batch", [listOf(operations)], options);
  }

  /**
   * Reads a value, lets `change` change a copy of its bytes or return new ones, and writes the result if the
   * key has not been written meanwhile. Otherwise it reads again and repeats, so `change` may run several
   * times. Resolves to whether the value was changed: `false` if the key is missing and there is no
   * `valueIfMissing`, or if `predicate` refused.
   *
   * @throws (rejects) ConflictError if other writes came first each time; what `change` throws; TypeError if
   * `change` is asynchronous or a generator
   */
  updateIf(
    key: Key,
    change: (bytes: Uint8Array<ArrayBuffer>) => unknown,
    options?: RemoteUpdateOptions,
  ): Promise<boolean> {
    return updateIf(this.link, undefined, key, change, options);
  }

  /**
   * Runs `body`, whose writes are held back until it is done. Then all of them are made if no key that it read
   * has changed meanwhile; otherwise none is made, and `body` runs again.
   *
   * ```ts
   * await shop.transaction(async (tx) => {
   *   const products = tx.collection("products");
   *   const product = await products.get("yeezy");
   *   if (product === undefined || product.stock === 0) throw new Error("sold out");
   *   products.set("yeezy", { ...product, stock: product.stock - 1 });
   *   tx.set("sold/yeezy", "1");
   * }, { note: "sold" });
   * ```
   *
   * @throws (rejects) ConflictError if other writes came first each time; what `body` throws; TypeError if
   * `body` is a generator, and for a note that is too long or no text
   */
  transaction<T>(
    body: (tx: TxOf<S, Declared>) => T | PromiseLike<T>,
    options?: RemoteTransactionOptions,
  ): Promise<T> {
    const run: Parameters<typeof transact<T>>[4] = (log) =>
      body(txOf(log, Object.keys(this.declared)) as TxOf<S, Declared>);
    return transact("transaction", this.link, options, body, run);
  }

  /**
   * Reports after each commit which keys of a range have changed, and their versions, whichever client,
   * procedure or worker wrote them. The changes of several commits in a short time come together. Without a
   * listener it is an async iterable. The watch begins with the loop. Changes that come while the loop body
   * runs are given together, each key once. `break` and `signal` end it.
   *
   * ```ts
   * for await (const changes of shop.watch({ prefix: "cart/" })) { … }
   * ```
   *
   * Requests made after this are sent once the watch has begun, so it reports their changes. No change is
   * missed if another tab becomes owner. A key that was set and then set back between two reports has another
   * version, and is reported. A key that expires is reported then.
   *
   * The owner checks the range. If the range is bad or cannot be read, the loop throws the reason; with a
   * listener, `ended` rejects with it, which is an unhandled rejection unless it is handled, as with every
   * promise. An error that a listener throws does not affect the watch: it is an uncaught error.
   *
   * @throws TypeError for bad options, a generator, or a range that cannot be sent
   * @throws DatabaseClosedError, VersionChangedError if it cannot begin; a loop throws these itself
   */
  watch(range: TextRange, listener: (changes: readonly KeyChange<string>[]) => void): Watching;
  watch(
    range?: TextRange,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<string>[], void, undefined>;
  watch(
    range: TextRange = {},
    to?: WatchOptions | ((changes: readonly KeyChange<string>[]) => void),
    ...more: unknown[]
  ) {
    return changesOf(this.link.watch(undefined, range, "watch()"), to, more);
  }

  /**
   * Gives the keys and values of a range now, and again after every change in it: each time all of them, as
   * of one moment, without a gap. Only changed rows are sent. The array is a new one each time, but a row that
   * has not changed may be the same object as before: copy a row before you change it or transfer its bytes.
   * Without a listener it is an async iterable; a loop that is slower than the changes is given the latest
   * state. Everything else is as for `watch`.
   */
  live(range: TextRange, listener: (rows: [string, Uint8Array<ArrayBuffer>][]) => void): Watching;
  live(
    range?: TextRange,
    options?: WatchOptions,
  ): AsyncGenerator<[string, Uint8Array<ArrayBuffer>][], void, undefined>;
  live(
    range: TextRange = {},
    to?: WatchOptions | ((rows: [string, Uint8Array<ArrayBuffer>][]) => void),
    ...more: unknown[]
  ) {
    return liveRows(this.link.watch(undefined, range, "live()"), range, [], undefined, to, more);
  }

  /**
   * The log of the file as history: its transactions, the oldest first, and in each its records, as `Database.log`.
   * Everything is a copy. Nothing is requested before a loop, and each loop starts again.
   *
   * ```ts
   * for await (const tx of shop.log({ since: lastSeen })) {
   *   for await (const { type, key, value } of tx) console.log(tx.note, type, key, value);
   * }
   * ```
   *
   * The owner reads on as far as the loop has come, a part of at most 256 KiB at a time beside a single value that is
   * larger. If another tab becomes the owner, the walk goes on where it was: nothing is missing and nothing comes twice.
   *
   * Damage is thrown, and calling `next` again goes on behind it. With `flat: true`, transactions, records, gaps and
   * damage come as one stream.
   *
   * @throws (in the loop) TypeError for a bad option; CorruptionError, unless it is flat
   */
  log(options: RemoteLogOptions & { readonly flat: true }): AsyncIterable<RemoteLogItem, undefined>;
  log(
    options?: RemoteLogOptions & { readonly flat?: false | undefined },
  ): AsyncIterable<RemoteLogTransaction, undefined>;
  log(options?: RemoteLogOptions): AsyncIterable<RemoteLogItem, undefined> {
    const [logOptions, callOptions] = split(options);
    const request = (walk: number, after?: unknown) =>
      after === undefined
        ? this.requestRead("endLog", [walk], callOptions)
        : this.requestRead("log", [walk, logOptions, after], callOptions);
    const walk = options?.flat === true ? logItems : logTransactions;
    return { [Symbol.asyncIterator]: () => walk(request) };
  }

  /** Resolves when everything requested before is in the file. */
  commit(options?: CallOptions): Promise<void> {
    return this.requestRead("commit", [], options);
  }

  /**
   * Resolves when everything requested before has been flushed to disk. Rejects with `FileLostError` if the browser has
   * removed the file since the owner opened it: reads and `export` still work until the owner goes, and the next one
   * makes a new database.
   */
  flush(options?: CallOptions): Promise<void> {
    return this.requestRead("flush", [], options);
  }

  /** Resolves to counts and sizes, as `Database.stats`. */
  stats(options?: CallOptions): Promise<DatabaseStats> {
    return this.requestRead("stats", [], options);
  }

  /**
   * Frees all space in the file that no current data needs, while the owner goes on with everything
   * else. `signal` ends it, and what was done until then stays done. `status.progress` reports the progress.
   * If the owner changes, the next owner starts it again. `timeout` is one hour by default.
   */
  compact(options?: CallOptions): Promise<void> {
    return this.requestRead("compact", [], options);
  }

  /** Verifies everything in the file that the database relies on. Otherwise as `compact`. */
  verify(options?: CallOptions): Promise<Verification> {
    return this.requestRead("verify", [], options);
  }

  /**
   * Resolves to all live data as of one moment, as a database file, which `open` takes as `from`. Otherwise
   * as `compact`.
   */
  export(options?: CallOptions): Promise<Blob> {
    return this.requestRead("export", [], options);
  }

  /**
   * Closes this client after everything requested before is answered. With the last client of this database
   * in this page or worker, the worker releases the database and ends.
   */
  close(): Promise<void> {
    return this.link.close();
  }

  /** Closes this client at the end of an `await using` block. */
  [asyncDispose](): Promise<void> {
    return this.close();
  }

  private scan<T>(row: RowDecoder["row"], range: unknown, options?: CallOptions): RemoteScan<T> {
    const read = (after?: unknown) => this.requestRead(row, [range, after], options);
    return new RemoteScan(read, { row }, () => this.link.writes);
  }

  private requestRead<T>(
    call: string,
    args: readonly unknown[],
    options?: CallOptions,
  ): Promise<T> {
    return this.link.request(call, () => cloneArgs(args), false, options) as Promise<T>;
  }

  private requestWrite<T>(
    call: string,
    args: readonly unknown[],
    options?: CallOptions,
  ): Promise<T> {
    return this.link.request(call, () => cloneArgs(args), true, options) as Promise<T>;
  }
}

/** The schema of a collection, if `connect` was given one. */
function schemaOf(declared: Readonly<Record<string, unknown>>, name: string) {
  if (!Object.hasOwn(declared, name)) return undefined;
  const given = declared[name] as { of?: unknown } | null | undefined;
  const schema = (given?.of ?? given) as Partial<RowSchema> | null | undefined;
  const isSchema = schema?.kind?.kind === "struct" && typeof schema.view === "function";
  return isSchema ? (schema as RowSchema) : undefined;
}
