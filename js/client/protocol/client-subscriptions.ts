/** The client's half of `watch` and `live`. */

import {
  type Begin,
  type End,
  type EndListener,
  type KeyChange,
  subscribed,
  type WatchOptions,
} from "../../session/watching.js";
import { clearInterval, setInterval } from "../../util/clock.js";
import { fromWire } from "./errors.js";
import { type ChangedRows, keyName, type Watch, type WatchUpdate } from "./messages.js";
import type { RequestQueue } from "./request-queue.js";

/** The interval of renewals, without which an owner drops the watches of a client. */
const RENEW_MS = 30_000;

/** Called with the changes in a range; the first time, with every key in it. */
export type ChangeListener = (changes: readonly KeyChange<unknown>[], isFirst: boolean) => void;

/** Called with the changed rows of a range; the first time, and when an owner has begun again, with all of them. */
export type RowsListener = (
  update: Pick<WatchUpdate, "changes" | "isAll"> & {
    readonly rows: ChangedRows;
    /** Whether it is of another database than the update before: the file was lost, and made again. */
    readonly isOther: boolean;
  },
) => void;

/** Begins a watch of a range: of its rows, if `rows` is given, and of keys otherwise. Returns a function that ends it. */
export type Subscribe = (
  listener: ChangeListener | RowsListener,
  onEnd: EndListener,
  rows?: Watch["rows"],
) => End;

export interface WatchEntry {
  /** The client whose watch this is. */
  readonly client: unknown;
  readonly collection: string | undefined;
  readonly index?: string | undefined;
  readonly range: unknown;
  /** How messages name the call. */
  readonly call?: string | undefined;
  /** Set if it is a watch of rows, as in the message `Watch`. */
  readonly rows?: Watch["rows"];
  readonly onChanges: ChangeListener | RowsListener;
  readonly onEnd: EndListener;
  readonly knownVersions: Map<string, readonly [key: unknown, version: number]>;
  /** Whether any owner has given a full answer. */
  hasBegun: boolean;
  /** The epoch of the present owner's last full answer; 0 if there was none. */
  epoch: number;
  /** The number of its last message. */
  lastMessage: number;
  /** The last `created` of a message. */
  created?: number | undefined;
}

/** All watches of one client. */
export class WatchList {
  private readonly requests: RequestQueue;
  private readonly all = new Map<number, WatchEntry>();
  private lastId = 0;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(requests: RequestQueue) {
    this.requests = requests;
  }

  add(entry: Omit<WatchEntry, "hasBegun" | "epoch" | "lastMessage">): End {
    this.lastId += 1;
    const id = this.lastId;
    this.all.set(id, { ...entry, hasBegun: false, epoch: 0, lastMessage: 0 });
    this.timer ??= setInterval(() => this.renew(false, true), RENEW_MS);
    this.requests.blockingWatches.add(id);
    this.sendWatch(id);
    return () => this.end(id);
  }

  /**
   * Sends the watches again: to another owner, which does not know them, or to the same one, which may have
   * missed or dropped them.
   */
  renew(isOther: boolean, isAll = isOther): void {
    for (const [id, watch] of this.all) {
      if (isOther) watch.epoch = 0;
      if (isAll || watch.epoch === 0) this.sendWatch(id);
    }
  }

  receive({ id, epoch, number, isAll, created, changes, rows, error }: WatchUpdate): void {
    const watch = this.all.get(id);
    if (watch === undefined) return;
    if (error) {
      this.end(id);
      watch.onEnd(fromWire(error));
      return;
    }
    if (isAll || number < 0) this.requests.unblock(id);
    // A late message, or a repeated one.
    if (number < 0 || epoch < watch.epoch || (epoch === watch.epoch && number <= watch.lastMessage))
      return;
    if (!isAll && (epoch !== watch.epoch || number !== watch.lastMessage + 1)) {
      // A message was lost, or the owner has ended the watch.
      this.sendWatch(id);
      return;
    }
    const isFirst = !watch.hasBegun;
    watch.hasBegun = true;
    watch.epoch = epoch;
    watch.lastMessage = number;
    const isOther = created !== undefined && created !== watch.created;
    watch.created = created ?? watch.created;
    if (watch.rows) {
      // An owner of an earlier build sends none; it resigns when it learns of this one.
      if (rows) (watch.onChanges as RowsListener)({ changes, isAll, isOther, rows });
      return;
    }
    const news = isAll ? differenceTo(watch, changes, isOther) : changes;
    for (const [key, version] of news) {
      if (version === 0) watch.knownVersions.delete(keyName(key));
      else watch.knownVersions.set(keyName(key), [key, version]);
    }
    if (!isFirst && news.length === 0) return;
    (watch.onChanges as ChangeListener)(
      news.map(([key, version]) => ({ key, version })),
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
    const { collection, index, range, call, rows, epoch, lastMessage } = this.all.get(
      id,
    ) as WatchEntry;
    const { build } = this.requests;
    const sent = { collection, index, range, call, rows, build, epoch, number: lastMessage };
    this.requests.send({ type: "watch", id, ...sent });
  }
}

/** The difference between the known versions and a full answer: changed and removed keys. */
function differenceTo(
  { knownVersions }: WatchEntry,
  contents: WatchUpdate["changes"],
  isOther: boolean,
): WatchUpdate["changes"] {
  const removed = new Map(knownVersions);
  const added = contents.filter(([key, version]) => {
    const name = keyName(key);
    removed.delete(name);
    return isOther || knownVersions.get(name)?.[1] !== version;
  });
  return [...added, ...[...removed.values()].map(([key]) => [key, 0] as const)];
}

/** The changes in a range, for a listener or a loop. */
export function changesOf<K>(
  add: Subscribe,
  to?: ((changes: readonly KeyChange<K>[]) => void) | WatchOptions,
  more: readonly unknown[] = [],
) {
  const begin: Begin<readonly KeyChange<K>[]> = (listener, onEnd) =>
    add((changes, isFirst) => {
      if (!isFirst) listener(changes as readonly KeyChange<K>[]);
    }, onEnd);
  return subscribed(begin, ({ key }) => keyName(key), to, more);
}
