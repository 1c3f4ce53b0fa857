/** The calls of a client: those of a database, from far away. */

import type { Key, Value } from "../bytes.js";
import type { BatchOperation } from "../database-writes.js";
import { asyncDispose } from "../dispose.js";
import type { Verification } from "../engine-reports.js";
import type { Listened } from "../platform.js";
import type { ByteRange, Range, TextRange } from "../range.js";
import type { DatabaseStats } from "../session.js";
import { split } from "./call-options.js";
import { RemoteCollection } from "./collection.js";
import { type CallOptions, type ClientStatus, Handle, type Link } from "./link.js";
import {
  byName,
  type RetryOptions,
  Tx,
  TxPart,
  transact,
  updateIf,
  withNames,
} from "./optimistic.js";
import { own } from "./own.js";
import { RemoteScan } from "./scan.js";
import type { Calls, Collections, ServedTypes, TxOf } from "./types.js";
import { changesOf, type KeyChange, rowsOf, type Watching, type WatchOptions } from "./watch.js";

/** A value of another realm's database, copied, and its version. */
export interface RemoteEntry {
  readonly value: Uint8Array<ArrayBuffer>;
  readonly version: number;
  readonly uncertain: boolean;
}

/** The options of `client.set`. */
export interface RemoteSetOptions extends CallOptions {
  /** As for `Database.set`. */
  ifVersion?: number | undefined;
}

/** The options of `client.updateIf`. */
export interface RemoteUpdateOptions extends RetryOptions {
  /** The record is changed only if this returns `true` for its bytes. */
  predicate?: ((bytes: Uint8Array<ArrayBuffer>) => boolean) | undefined;
  /** What a missing key counts as. */
  valueIfMissing?: Value | undefined;
}

/** A client of a database that serves these. */
export type ClientOf<S extends ServedTypes> = Client<S> & Collections<S>;

/**
 * A client of a database that a worker has open. Made by `connect`. Every call is a promise, and what it
 * resolves to is a copy, which is yours.
 *
 * Calls that are made in one task are one message and one commit. A write is answered when the database's
 * `durability` is reached, and is done exactly once, also when its owner ends before it has answered.
 * Every call may reject, beside what is listed there, with
 * - `OwnerUnavailableError` when no owner has answered in time; `applied` tells whether it was done
 * - `DatabaseClosedError` after `close`
 * - `VersionChangedError` when a newer build of the application has the database: nothing was done
 * - `SchemaMismatchError` when another build that says it is the same version has other collections
 * - what opening the database throws, and the reason of its `signal`
 *
 * The event `"status"` tells that `status` has changed, `"outdated"` that a newer build has the database:
 * save what the user has entered, and reload the page.
 */
export class Client<
  S extends ServedTypes = ServedTypes,
> extends (EventTarget as new () => Listened) {
  /**
   * The procedures of the worker, by name: `client.call.buy("yeezy")`. Each is one transaction there.
   */
  readonly call: Calls<S>;
  private readonly link: Handle;

  /** @internal */
  constructor(to: Link, timeout: number) {
    super();
    const link = new Handle(to, timeout, (event) => this.dispatchEvent(new Event(event)));
    this.link = link;
    this.call = byName(
      (name) =>
        (...args: unknown[]) =>
          link.request("call", () => structuredClone([name, ...args]), true),
    );
  }

  /** @internal With its collections. */
  withCollections(): this {
    return withNames(this, Client<S>, (name) => new RemoteCollection(name, this.link)) as this;
  }

  /** Who has the database, and why one waits. It changes with the event `"status"`. */
  get status(): ClientStatus {
    return this.link.status;
  }

  /** Resolves when an owner was heard for the first time, and rejects if the database cannot be opened. */
  get ready(): Promise<void> {
    return this.link.ready;
  }

  /** The value of a key. */
  get(key: Key, options?: CallOptions): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.ask("get", [key], options);
  }

  /** The value of a key as a string. Rejects with a TypeError if it is not UTF-8. */
  getText(key: Key, options?: CallOptions): Promise<string | undefined> {
    return this.ask("getText", [key], options);
  }

  /** The value of a key and its version. */
  getEntry(key: Key, options?: CallOptions): Promise<RemoteEntry | undefined> {
    return this.ask("getEntry", [key], options);
  }

  /** The values of several keys, in their order, as of one moment. */
  getMany(
    keys: Iterable<Key>,
    options?: CallOptions,
  ): Promise<(Uint8Array<ArrayBuffer> | undefined)[]> {
    return this.ask("getMany", [keys], options);
  }

  /** Whether there is a value for this key. */
  has(key: Key, options?: CallOptions): Promise<boolean> {
    return this.ask("has", [key], options);
  }

  /** How many keys there are, or how many of them lie in a range. */
  count(range?: Range, options?: CallOptions): Promise<number> {
    return this.ask("count", [range], options);
  }

  /** The keys of a range, in order: to go over with `for await`, or `.all()`. */
  keys(range: ByteRange, options?: CallOptions): RemoteScan<Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange, options?: CallOptions): RemoteScan<string>;
  keys(range?: Range, options?: CallOptions): RemoteScan<Uint8Array | string> {
    return new RemoteScan((after) => this.ask("keys", [range, after], options));
  }

  /** The values of a range, in the order of their keys. */
  values(range?: Range, options?: CallOptions): RemoteScan<Uint8Array<ArrayBuffer>> {
    return new RemoteScan((after) => this.ask("values", [range, after], options));
  }

  /** The keys of a range with their values. */
  entries(
    range: ByteRange,
    options?: CallOptions,
  ): RemoteScan<[Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>;
  entries(range?: TextRange, options?: CallOptions): RemoteScan<[string, Uint8Array<ArrayBuffer>]>;
  entries(range?: Range, options?: CallOptions): RemoteScan<[Uint8Array | string, Uint8Array]> {
    return new RemoteScan((after) => this.ask("entries", [range, after], options));
  }

  /**
   * Sets a key. With `ifVersion` only if it has that version, else it rejects with `ConflictError`.
   * The bytes are copied before this returns.
   */
  set(key: Key, value: Value, options?: RemoteSetOptions): Promise<void> {
    const [told, mine] = split(options);
    return this.tell("set", [key, value, told], mine);
  }

  /** Deletes a key, and says whether it was there. */
  delete(key: Key, options?: CallOptions): Promise<boolean> {
    return this.tell("delete", [key], options);
  }

  /** Deletes all keys, or those of a range, all or none, and says how many. */
  clear(range?: Range, options?: CallOptions): Promise<number> {
    return this.tell("clear", [range], options);
  }

  /** Does all of it or nothing. */
  batch(operations: readonly BatchOperation[], options?: CallOptions): Promise<void> {
    return this.tell("batch", [operations], options);
  }

  /**
   * Reads a value, has `change` change a copy of its bytes or return new ones, and writes that if
   * nobody has written to the key meanwhile; else it reads again and repeats, so that `change` may run
   * several times. Says whether it was changed: not if the key is missing, or if `predicate` refused.
   *
   * @throws (rejects) ConflictError when others were faster each time; what `change` throws
   */
  updateIf(
    key: Key,
    change: (bytes: Uint8Array<ArrayBuffer>) => unknown,
    options?: RemoteUpdateOptions,
  ): Promise<boolean> {
    return updateIf(this.link, undefined, key, change, options);
  }

  /**
   * Runs `body`, whose writes are held back until it is done; then all of them are made if nothing that
   * it has read was changed meanwhile, or else none, and `body` runs again.
   *
   * ```ts
   * await shop.transaction(async (tx) => {
   *   const product = await tx.products.get("yeezy");
   *   if (product === undefined || product.stock === 0) throw new Error("sold out");
   *   tx.products.set("yeezy", { ...product, stock: product.stock - 1 });
   *   tx.set("sold/yeezy", "1");
   * });
   * ```
   *
   * @throws (rejects) ConflictError when others were faster each time; what `body` throws
   */
  transaction<T>(body: (tx: TxOf<S>) => T | PromiseLike<T>, options?: RetryOptions): Promise<T> {
    return transact("transaction", this.link, options, (log) =>
      body(withNames(new Tx(log), Tx, (name) => new TxPart(log, name)) as TxOf<S>),
    );
  }

  /**
   * Hears after each commit which keys of a range have changed, and their versions, whoever has written
   * them: a client in whatever tab, a procedure, or the worker itself. What several commits change in a
   * short time is told at once. Without a listener it is something to go over, which begins with the
   * loop, and in which what changes while that is at work is told together, each key once; `break` and
   * `signal` end it.
   *
   * ```ts
   * for await (const changes of shop.watch({ prefix: "cart/" })) { … }
   * ```
   *
   * Whatever is asked for afterwards is told: it is sent when the watch has begun. Nothing is missed when
   * another tab becomes owner. A key that was set and set back between two looks has another version, and
   * is told.
   *
   * It is the owner who knows what a range may be. If this one is none, or cannot be read, the loop throws
   * the reason, or `ended` of what a listener is given rejects with it: an unhandled rejection if
   * nobody takes it, like that of every promise. What a listener throws is its own: it is an uncaught error.
   *
   * @throws TypeError for options that are none, DataCloneError for a range that cannot travel
   * @throws DatabaseClosedError, VersionChangedError when it cannot begin; those a loop throws
   */
  watch(range: TextRange, listener: (changes: readonly KeyChange<string>[]) => void): Watching;
  watch(
    range?: TextRange,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<string>[], void, undefined>;
  watch(
    range: TextRange = {},
    to?: WatchOptions | ((changes: readonly KeyChange<string>[]) => void),
  ) {
    return changesOf(this.link.watch(undefined, range), to);
  }

  /**
   * Gives the keys and values of a range now, and again after every change in it, each time all of
   * them as of one moment. What changes while it is read is given by the next one: there is no gap.
   * Without a listener it is something to go over; a loop that is slower is given the last state. All else
   * is as for `watch`.
   */
  live(range: TextRange, listener: (rows: [string, Uint8Array<ArrayBuffer>][]) => void): Watching;
  live(
    range?: TextRange,
    options?: WatchOptions,
  ): AsyncGenerator<[string, Uint8Array<ArrayBuffer>][], void, undefined>;
  live(
    range: TextRange = {},
    to?: WatchOptions | ((rows: [string, Uint8Array<ArrayBuffer>][]) => void),
  ) {
    return rowsOf(this.link.watch(undefined, range), () => this.entries(range).all(), to);
  }

  /** Resolves when all that was asked for before has been handed to the file. */
  commit(options?: CallOptions): Promise<void> {
    return this.ask("commit", [], options);
  }

  /** Resolves when all that was asked for before has been flushed to the medium. */
  flush(options?: CallOptions): Promise<void> {
    return this.ask("flush", [], options);
  }

  /** Counts and sizes. */
  stats(options?: CallOptions): Promise<DatabaseStats> {
    return this.ask("stats", [], options);
  }

  /**
   * Gives back all room in the file that nothing current needs, while the owner goes on with all else.
   * `signal` ends it, and what was done until then stays done; `status.progress` tells how far it is. The next
   * owner begins it anew. It has an hour, if `timeout` says nothing else.
   */
  compact(options?: CallOptions): Promise<void> {
    return this.ask("compact", [], options);
  }

  /** Verifies all of the file that the database relies on; for the rest as `compact`. */
  verify(options?: CallOptions): Promise<Verification> {
    return this.ask("verify", [], options);
  }

  /**
   * All that lives in the database, as of one moment, as a file of its own, which `open` takes as `from`; for
   * the rest as `compact`.
   */
  export(options?: CallOptions): Promise<Blob> {
    return this.ask("export", [], options);
  }

  /**
   * Closes this client, when what was asked for before is answered. With the last client of this
   * database in this page or worker, the worker hands the database over and ends.
   */
  close(): Promise<void> {
    return this.link.close();
  }

  /** Closes this client at the end of an `await using` block. */
  [asyncDispose](): Promise<void> {
    return this.close();
  }

  private ask<T>(call: string, args: readonly unknown[], options?: CallOptions): Promise<T> {
    return this.link.request(call, () => own(args), false, options) as Promise<T>;
  }

  private tell<T>(call: string, args: readonly unknown[], options?: CallOptions): Promise<T> {
    return this.link.request(call, () => own(args), true, options) as Promise<T>;
  }
}
