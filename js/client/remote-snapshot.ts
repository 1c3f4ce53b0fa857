/** Snapshots of a remote database. A function, so that a page that does not use it does not load it. */

import { badCall, ReadOnlyError } from "../errors/index.js";
import type { ByteRange, Range, TextRange } from "../session/key-range.js";
import type { Key } from "../util/bytes.js";
import { asyncDispose } from "../util/dispose.js";
import type { Client, RemoteEntry } from "./client.js";
import type { Caller, CallOptions } from "./connection/caller.js";
import { split } from "./protocol/call-options.js";
import { cloneArgs, listOf } from "./protocol/clone.js";
import { HISTORY } from "./protocol/history-pages.js";
import type { RowsAnswer } from "./protocol/packed-rows.js";
import { RemoteCollection } from "./remote-collection.js";
import { ask, callerOf } from "./remote-history.js";
import { RemoteScan } from "./remote-scan.js";
import { allRows, type RowDecoder } from "./rows.js";
import type { RemoteCollectionOf, ServedTypes } from "./types.js";

/** The options of `snapshot` of a client. */
export interface RemoteSnapshotOptions extends CallOptions {
  /** After how many ms without a call on it the owner ends the snapshot: a minute by default, an hour at most. */
  lease?: number | undefined;
}

/** The calls of a client's collection that read: what `collection` of a snapshot gives. */
export type RemoteCollectionReader<C> = Pick<
  C,
  Extract<
    keyof C,
    | "name"
    | "index"
    | "views"
    | "get"
    | "has"
    | "getMany"
    | "getEntry"
    | "count"
    | "keys"
    | "values"
    | "entries"
  >
>;

const DEFAULT_LEASE_MS = 60_000;

/** Sends calls to the owner that has a snapshot. */
class SnapshotCaller implements Caller {
  readonly retryQueue: Caller["retryQueue"];
  readonly closers: Caller["closers"];
  /** Writes change nothing here. */
  readonly writes = 0;
  private readonly link: Caller;
  private readonly id: number;

  constructor(link: Caller, id: number) {
    this.retryQueue = link.retryQueue;
    this.closers = link.closers;
    this.link = link;
    this.id = id;
  }

  async request(...given: Parameters<Caller["request"]>): Promise<unknown> {
    const [call, args, writes, options, collection, index] = given;
    if (writes) throw new ReadOnlyError("A snapshot can only be read. Write to the client.");
    const wrapped = () => ["read", this.id, call, args(), collection, index];
    return this.link.request(HISTORY, wrapped, false, options);
  }

  watch(): never {
    throw badCall("A snapshot does not change, so it cannot be watched. Watch the client.");
  }

  isJson(collection: string): boolean | undefined {
    return this.link.isJson(collection);
  }
}

/** Everything in a remote database as it was when `snapshot` was called, by the calls of the client that read. */
export class RemoteSnapshot<S extends ServedTypes = ServedTypes> {
  private readonly caller: Caller;
  private readonly link: Caller;
  private readonly id: number;

  /** @internal */
  constructor(link: Caller, id: number) {
    this.caller = new SnapshotCaller(link, id);
    this.link = link;
    this.id = id;
  }

  /** A collection as it was, to be read. */
  collection<Name extends keyof S["collections"] & string>(
    name: Name,
  ): RemoteCollectionReader<RemoteCollectionOf<S["collections"][Name]>> {
    return new RemoteCollection(name, this.caller) as unknown as RemoteCollectionReader<
      RemoteCollectionOf<S["collections"][Name]>
    >;
  }

  /** Resolves to the value that a key had, or `undefined` if it had none. */
  get(key: Key, options?: CallOptions): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.request("get", [key], options);
  }

  /** Resolves to the value that a key had as a string. */
  getText(key: Key, options?: CallOptions): Promise<string | undefined> {
    return this.request("getText", [key], options);
  }

  /** Resolves to the value that a key had with its version. */
  getEntry(key: Key, options?: CallOptions): Promise<RemoteEntry | undefined> {
    return this.request("getEntry", [key], options);
  }

  /** Resolves to the values that several keys had, in the order of the keys. */
  async getMany(
    keys: Iterable<Key>,
    options?: CallOptions,
  ): Promise<(Uint8Array<ArrayBuffer> | undefined)[]> {
    const answer: RowsAnswer = await this.request("getMany", [listOf(keys)], options);
    return allRows(answer, { row: "values" }) as Promise<(Uint8Array<ArrayBuffer> | undefined)[]>;
  }

  /** Resolves to whether a key had a value. */
  has(key: Key, options?: CallOptions): Promise<boolean> {
    return this.request("has", [key], options);
  }

  /** Resolves to the number of keys outside of collections, in total or in a range. */
  count(range?: Range, options?: CallOptions): Promise<number> {
    return this.request("count", [range], options);
  }

  /** The keys of a range, or all keys, in order. */
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

  /** Ends the snapshot, so that the owner frees what it kept. */
  async close(): Promise<void> {
    await ask(this.link, ["endSnapshot", this.id]);
  }

  /** Ends the snapshot at the end of an `await using` block. */
  [asyncDispose](): Promise<void> {
    return this.close();
  }

  private scan<T>(row: RowDecoder["row"], range: unknown, options?: CallOptions): RemoteScan<T> {
    const read = (after?: unknown) => this.request(row, [range, after], options);
    return new RemoteScan(read, { row }, () => 0);
  }

  private request<T>(call: string, args: readonly unknown[], options?: CallOptions): Promise<T> {
    return this.caller.request(call, () => cloneArgs(args), false, options) as Promise<T>;
  }
}

/**
 * Takes a snapshot, `Database.snapshot`, which the worker that has the file keeps for this page: all of its calls show one
 * moment, also across many requests. What was requested before is in it, and what is requested after it is not.
 *
 * ```ts
 * await using then = await snapshot(shop);
 * for await (const [id, product] of then.collection("products").entries()) await upload(id, product);
 * ```
 *
 * It ends with `close`, when no call was made on it for its `lease`, and when another tab becomes the owner. After that every
 * call rejects with `SnapshotClosedError`: take another and begin again. While it is open, the file grows by what is
 * written.
 *
 * @throws (rejects) TypeError for a bad option; OwnerUnavailableError in a service worker while no tab has the file
 */
export async function snapshot<S extends ServedTypes, D extends keyof S["collections"]>(
  client: Client<S, D>,
  options?: RemoteSnapshotOptions,
): Promise<RemoteSnapshot<S>> {
  const link = callerOf(client);
  const [given, callOptions] = split(options);
  const { lease = DEFAULT_LEASE_MS, ...others } = (given ?? {}) as RemoteSnapshotOptions;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    throw badCall(`snapshot() has no option ${unknown}, only lease, signal, timeout.`);
  const id = Math.floor(Math.random() * Number.MAX_SAFE_INTEGER);
  try {
    await ask(link, ["snapshot", id, lease], callOptions);
  } catch (error) {
    // The owner may have taken it, although its answer did not come in time.
    ask(link, ["endSnapshot", id]).catch(() => {});
    throw error;
  }
  return new RemoteSnapshot(link, id);
}
