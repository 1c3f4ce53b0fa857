/** The client's side of `watch` and `live`. */

import {
  badCall,
  DatabaseClosedError,
  OwnerUnavailableError,
  VersionChangedError,
} from "../../errors/index.js";
import { clearInterval, queueMicrotask, setInterval, setTimeout } from "../../util/clock.js";
import { dispose } from "../../util/dispose.js";
import { checkedOptions, noFunction } from "./call-options.js";
import { fromWire } from "./errors.js";
import { keyName, type WatchUpdate } from "./messages.js";
import type { RequestQueue } from "./request-queue.js";

/** A key that has changed. */
export interface KeyChange<K> {
  /** The key. */
  readonly key: K;
  /** Its version now; 0 if the key is missing now. */
  readonly version: number;
}

/** A watch, which goes on until it is closed by `close()` or at the end of a `using` block. */
export interface Watching extends Disposable {
  /** Ends the watch. */
  close(): void;
  /**
   * Resolves when the watch is closed, by anyone, or with its client. Rejects with the reason if it cannot go
   * on: the range is bad, the collection does not exist, a key or value cannot be read.
   */
  readonly ended: Promise<void>;
}

/** Between two renewals, without which an owner takes the client for gone. */
const RENEW_MS = 30_000;

/** A read that failed is repeated after so long. */
const RETRY_MS = 1_000;

/** Called with the changes in a range; the first time, with everything that is there. */
export type ChangeListener = (changes: readonly KeyChange<unknown>[], isFirst: boolean) => void;

/** Called when a watch has ended: closed with its client, or for a reason. No changes come after it. */
export type EndListener = (reason?: unknown) => void;

/** Ends a watch. */
type End = () => void;

/** Begins a watch of a range. Returns a function that ends it. */
export type Subscribe = (onChanges: ChangeListener, onEnd: EndListener) => End;

/** The options of a watch without a listener. */
export interface WatchOptions {
  /** Ends the loop when it is aborted: the loop throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

export interface WatchEntry {
  /** The client that watches. */
  readonly client: unknown;
  readonly collection: string | undefined;
  readonly range: unknown;
  readonly onChanges: ChangeListener;
  readonly onEnd: EndListener;
  readonly knownVersions: Map<string, readonly [key: unknown, version: number]>;
  /** Whether any owner has given a full answer. */
  isBegun: boolean;
  /** The epoch of the present owner's last full answer, 0 if there was none, and the last message of it. */
  epoch: number;
  number: number;
}

/** All watches of one client. */
export class WatchList {
  private readonly requests: RequestQueue;
  private readonly all = new Map<number, WatchEntry>();
  private lastId = 0;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(sender: RequestQueue) {
    this.requests = sender;
  }

  add(wanted: Omit<WatchEntry, "isBegun" | "epoch" | "number">): End {
    this.lastId += 1;
    const id = this.lastId;
    this.all.set(id, { ...wanted, isBegun: false, epoch: 0, number: 0 });
    this.timer ??= setInterval(() => this.renew(false, true), RENEW_MS);
    this.requests.blockingWatches.add(id);
    this.sendWatch(id);
    return () => this.end(id);
  }

  /**
   * Asks for the watches again: another owner, which knows none of them, or the same one, which may have
   * missed or may forget them.
   */
  renew(isOther: boolean, isAll = isOther): void {
    for (const [id, one] of this.all) {
      if (isOther) one.epoch = 0;
      if (isAll || one.epoch === 0) this.sendWatch(id);
    }
  }

  receive({ id, epoch, number, isAll, changes, error }: WatchUpdate): void {
    const one = this.all.get(id);
    if (one === undefined) return;
    if (error) {
      this.end(id);
      one.onEnd(fromWire(error));
      return;
    }
    if (isAll || number < 0) this.requests.unblock(id);
    // Late, or not for the first time.
    if (number < 0 || epoch < one.epoch || (epoch === one.epoch && number <= one.number)) return;
    if (!isAll && (epoch !== one.epoch || number !== one.number + 1)) {
      // Something in between was lost, or the owner has ended the watch.
      this.sendWatch(id);
      return;
    }
    const isFirst = !one.isBegun;
    one.isBegun = true;
    one.epoch = epoch;
    one.number = number;
    const subscribed = isAll ? differenceTo(one, changes) : changes;
    for (const [key, version] of subscribed) {
      if (version === 0) one.knownVersions.delete(keyName(key));
      else one.knownVersions.set(keyName(key), [key, version]);
    }
    if (!isFirst && subscribed.length === 0) return;
    one.onChanges(
      subscribed.map(([key, version]) => ({ key, version })),
      isFirst,
    );
  }

  /** Ends all watches, or those of one client. */
  stop(reason?: unknown, onlyOf?: unknown): void {
    for (const [id, { client, onEnd }] of this.all) {
      if (onlyOf !== undefined && client !== onlyOf) continue;
      this.end(id);
      onEnd(reason);
    }
  }

  private end(id: number): void {
    if (!this.all.delete(id)) return;
    this.requests.unblock(id);
    this.requests.send({ type: "unwatch", id });
    if (this.all.size === 0) {
      clearInterval(this.timer);
      this.timer = undefined;
    }
  }

  private sendWatch(id: number): void {
    const { collection, range, epoch, number } = this.all.get(id) as WatchEntry;
    this.requests.send({ type: "watch", id, collection: collection, range, epoch, number });
  }
}

/** All that is there was told: what of it is new, and what is gone. */
function differenceTo(
  { knownVersions }: WatchEntry,
  there: WatchUpdate["changes"],
): WatchUpdate["changes"] {
  const removed = new Map(knownVersions);
  const added = there.filter(([key, version]) => {
    const name = keyName(key);
    removed.delete(name);
    return knownVersions.get(name)?.[1] !== version;
  });
  return [...added, ...[...removed.values()].map(([key]) => [key, 0] as const)];
}

/** What a watch hears, told to a listener, or for a loop. */
export function changesOf<K>(
  add: Subscribe,
  to?: ((changes: readonly KeyChange<K>[]) => void) | WatchOptions,
  more: readonly unknown[] = [],
) {
  const begin: Begin<readonly KeyChange<K>[]> = (listener, onEnd) =>
    add((changes, isFirst) => {
      if (!isFirst) listener(changes as readonly KeyChange<K>[]);
    }, onEnd);
  return subscribed(begin, merged, to, more);
}

/** What is in a range now and after every change, told to a listener, or for a loop. */
export function rowsOf<T>(
  add: Subscribe,
  read: () => Promise<T>,
  to?: ((rows: T) => void) | WatchOptions,
  more: readonly unknown[] = [],
) {
  const begin: Begin<T> = (listener, onEnd) => liveRows(add, read, listener, onEnd);
  return subscribed(begin, (_, rows) => rows, to, more);
}

type Begin<T> = (listener: (one: T) => void, onEnd: EndListener) => End;

function subscribed<T>(
  begin: Begin<T>,
  merge: (waiting: T, more: T) => T,
  to: ((one: T) => void) | WatchOptions | undefined,
  more: readonly unknown[],
) {
  if (more.length > 0) {
    throw badCall(
      "A watch takes a listener or options, not both. With a listener, close() ends it.",
    );
  }
  if (typeof to !== "function")
    return stream(begin, merge, checkedOptions("A watch", to, ["signal"]));
  if (/Generator/.test(to[Symbol.toStringTag as never])) {
    throw noFunction("A watch");
  }
  let onEnd: EndListener = () => {};
  const ended = new Promise<void>((resolve, reject) => {
    onEnd = (reason) => {
      // That a newer build has the database is told by an event.
      if (reason === undefined || reason instanceof VersionChangedError) resolve();
      else reject(reason);
    };
  });
  const end = begin(to, onEnd);
  const close = () => {
    end();
    onEnd();
  };
  return { close, ended, [dispose]: close };
}

/** Each key once, as it was last. */
function merged<K>(waiting: readonly KeyChange<K>[], more: readonly KeyChange<K>[]) {
  return [...new Map([...waiting, ...more].map((one) => [keyName(one.key), one])).values()];
}

/** What is told, to go over. What comes while the loop is at work waits as one. */
async function* stream<T>(
  begin: Begin<T>,
  merge: (waiting: T, more: T) => T,
  { signal }: WatchOptions,
) {
  let waiting: T | undefined;
  let end: { readonly reason: unknown } | undefined;
  let wake = () => {};
  const abort = () => wake();
  const listener = (one: T) => {
    waiting = waiting === undefined ? one : merge(waiting, one);
    wake();
  };
  const onEnd = (reason?: unknown) => {
    end = { reason };
    wake();
  };
  signal?.addEventListener("abort", abort);
  const close = begin(listener, onEnd);
  try {
    for (;;) {
      signal?.throwIfAborted();
      const one = waiting;
      waiting = undefined;
      if (one !== undefined) yield one;
      else if (end === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      } else if (end.reason === undefined) return;
      else throw end.reason;
    }
  } finally {
    close();
    signal?.removeEventListener("abort", abort);
  }
}

/** Reads all when the watch begins and whenever something has changed, once at a time. */
function liveRows<T>(
  add: Subscribe,
  read: () => Promise<T>,
  listener: (rows: T) => void,
  onEnd: EndListener,
): End {
  let isReading = false;
  let isStale = false;
  let isOver = false;
  const refresh = async () => {
    isStale = true;
    if (isReading) return;
    isReading = true;
    while (isStale && !isOver) {
      isStale = false;
      try {
        const rows = await read();
        // What a listener throws ends nothing.
        queueMicrotask(() => isOver || listener(rows));
      } catch (error) {
        // That the client goes is told by the watch. Only that nobody answers passes by itself.
        if (isOver || error instanceof DatabaseClosedError) return;
        isStale = error instanceof OwnerUnavailableError;
        if (isStale) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        else {
          close();
          onEnd(error);
        }
      }
    }
    isReading = false;
  };
  const end = add(refresh, onEnd);
  const close = () => {
    isOver = true;
    end();
  };
  return close;
}
