/** Snapshots of a remote database, also of past commits. Functions, so that a page that does not use them does not load them. */

import { badCall, ReadOnlyError } from "../errors/index.js";
import { checkedOptions } from "../session/checked-options.js";
import { asyncDispose } from "../util/dispose.js";
import { Client } from "./client.js";
import type { Caller, CallOptions } from "./connection/caller.js";
import { CALL_NAME, split } from "./protocol/call-options.js";
import { HISTORY } from "./protocol/history-pages.js";
import type { Storing } from "./protocol/json-values.js";
import { RemoteCollection } from "./remote-collection.js";
import { type AnyClient, ask, callerOf, randomId } from "./remote-history.js";
import type { RemoteCollectionOf, ServedTypes } from "./types.js";

/** The options of `snapshot` and `at` of a client. */
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
    const named = { ...checkedOptions(`${call}()`, options), [CALL_NAME]: call };
    return this.link.request(HISTORY, wrapped, false, named);
  }

  watch(): never {
    throw badCall("A snapshot does not change, so it cannot be watched. Watch the client.");
  }

  storingOf(collection: string): Storing {
    return this.link.storingOf(collection);
  }
}

/** The calls of a client that read, which a snapshot has too. */
const READS = [
  "get",
  "getText",
  "getEntry",
  "getMany",
  "has",
  "count",
  "keys",
  "values",
  "entries",
] as const satisfies readonly (keyof Client)[];

/** A remote database as it was at one moment: when `snapshot` was called, or as of a past commit, by `at`. */
export class RemoteSnapshot<S extends ServedTypes = ServedTypes> {
  /** Resolves to the value that a key had, or `undefined` if it had none. */
  declare readonly get: Client["get"];
  /** Resolves to the value that a key had as a string. */
  declare readonly getText: Client["getText"];
  /** Resolves to the value that a key had with its version. */
  declare readonly getEntry: Client["getEntry"];
  /** Resolves to the values that several keys had, in the order of the keys. */
  declare readonly getMany: Client["getMany"];
  /** Resolves to whether a key had a value. */
  declare readonly has: Client["has"];
  /** Resolves to the number of keys outside of collections, in total or in a range. */
  declare readonly count: Client["count"];
  /** The keys of a range, or all keys, in order. */
  declare readonly keys: Client["keys"];
  /** The values of a range, or all values, in the order of their keys. */
  declare readonly values: Client["values"];
  /** The keys and values of a range, or all of them, as pairs in the order of the keys. */
  declare readonly entries: Client["entries"];
  private readonly link: Caller;
  private readonly client: Caller;
  private readonly id: number;

  static {
    const { prototype } = Client as unknown as { prototype: Record<string, unknown> };
    // They send what they ask for by the `link` of the object that they belong to.
    for (const name of [...READS, "scan", "requestRead"]) {
      Object.defineProperty(RemoteSnapshot.prototype, name, { value: prototype[name] });
    }
  }

  /** @internal */
  constructor(client: Caller, id: number) {
    this.link = new SnapshotCaller(client, id);
    this.client = client;
    this.id = id;
  }

  /** A collection as it was, to be read. */
  collection<Name extends keyof S["collections"] & string>(
    name: Name,
  ): RemoteCollectionReader<RemoteCollectionOf<S["collections"][Name]>> {
    return new RemoteCollection(name, this.link) as unknown as RemoteCollectionReader<
      RemoteCollectionOf<S["collections"][Name]>
    >;
  }

  /** Ends the snapshot, so that the owner frees what it kept. */
  async close(): Promise<void> {
    await ask(this.client, ["endSnapshot", this.id]);
  }

  /** Ends the snapshot at the end of an `await using` block. */
  [asyncDispose](): Promise<void> {
    return this.close();
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
  return taken(client, "snapshot", options);
}

/**
 * The content as it was after a past commit, `Database.at`, which the worker that has the file keeps for this page as a
 * snapshot. For databases that keep their history. A number means the transaction with this number in `client.log`, or that
 * which gave a key this version, or the last one before; a `Date` the last transaction that was not later.
 *
 * ```ts
 * await using past = await at(shop, number);
 * console.log(await past.getText("price"), await past.collection("products").count());
 * ```
 *
 * It ends as a snapshot does. Calls that were made before it in the same task are committed, and count as well.
 *
 * @throws (rejects) TypeError for a point that is none, for a number above `lastCommit`, if no transaction has a time up to
 * the `Date`, for a bad option, and if the database does not keep its history
 * @throws (rejects) CursorExpiredError if `pack` has forgotten it, or the file was salvaged since
 * @throws (rejects) CorruptionError, StorageError if the log is damaged or cannot be read; OwnerUnavailableError in a
 * service worker while no tab has the file
 */
export async function at<S extends ServedTypes, D extends keyof S["collections"]>(
  client: Client<S, D>,
  point: number | Date,
  options?: RemoteSnapshotOptions,
): Promise<RemoteSnapshot<S>> {
  return taken(client, "at", options, point);
}

async function taken<S extends ServedTypes>(
  client: AnyClient,
  call: "snapshot" | "at",
  options?: RemoteSnapshotOptions,
  point?: number | Date,
): Promise<RemoteSnapshot<S>> {
  const link = callerOf(client);
  const [given, callOptions] = split(options);
  const { lease = DEFAULT_LEASE_MS, ...others } = (given ?? {}) as RemoteSnapshotOptions;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    throw badCall(`${call}() has no option ${unknown}, only lease, signal, timeout.`);
  const id = randomId();
  try {
    await ask(link, [call, id, lease, point], callOptions);
  } catch (error) {
    // The owner may have taken it, although its answer did not come in time.
    ask(link, ["endSnapshot", id]).catch(() => {});
    throw error;
  }
  return new RemoteSnapshot(link, id);
}
