/**
 * The owner's half of watching, without engine, timers or ports: which watches exist, how long each is kept,
 * and how its messages are numbered.
 *
 * Every full answer begins an epoch, and the messages of an epoch are numbered without gaps. Epochs only
 * grow, even if the owner has dropped watches meanwhile. So a client accepts every full answer newer than its
 * last one, and detects by any other message whether it has missed one.
 */

import type { Watch, WatchUpdate } from "./messages.js";

/**
 * A client renews its watches three times within this time, in milliseconds. A client that does not may have
 * ended. If it was only suspended, because its machine slept or a dialog was open, it is asked to begin again.
 */
export const WATCH_LEASE_MS = 90_000;

/** A watch of a client. */
export interface Subscription<T> {
  readonly watch: Watch;
  /** The owner's own state for the watch. */
  readonly state: T;
  respond: (message: WatchUpdate) => void;
  until: number;
  readonly epoch: number;
  /** The number of the last message of its epoch. */
  number: number;
}

type Changes = WatchUpdate["changes"];
type Rows = WatchUpdate["rows"];

/**
 * The last epoch of this realm, which never restarts: an owner's name belongs to one realm, which may own the
 * database several times in a row.
 */
let lastEpoch = 0;

/** All watches of one owner. Times are of a monotonic clock. */
export class Subscriptions<T> {
  private readonly owner: string;
  private readonly nextEpoch: () => number;
  private readonly created: number | undefined;
  private readonly all: Map<string, Subscription<T>> = new Map();

  /**
   * `nextEpoch` returns a higher number each time, for as long as messages to an owner of this name may
   * arrive. `created` is that of `WatchUpdate`.
   */
  constructor(owner: string, nextEpoch: () => number = nextOfRealm, created?: number) {
    this.owner = owner;
    this.nextEpoch = nextEpoch;
    this.created = created;
  }

  get size(): number {
    return this.all.size;
  }

  [Symbol.iterator](): IterableIterator<Subscription<T>> {
    return this.all.values();
  }

  /** Extends a watch. Returns false if its client needs a full answer, for which `begin` is to be called. */
  renew(watch: Watch, respond: Subscription<T>["respond"], now: number): boolean {
    const subscription = this.all.get(nameOf(watch));
    if (
      subscription === undefined ||
      subscription.epoch !== watch.epoch ||
      subscription.number !== watch.number
    )
      return false;
    subscription.respond = respond;
    subscription.until = now + WATCH_LEASE_MS;
    return true;
  }

  /** Begins a watch, or restarts it, with the whole contents of its range. */
  begin(
    watch: Watch,
    respond: Subscription<T>["respond"],
    now: number,
    state: T,
    all: Changes,
    rows?: Rows,
  ): void {
    const epoch = this.nextEpoch();
    const subscription = { watch, state, respond, until: now + WATCH_LEASE_MS, epoch, number: 0 };
    this.all.set(nameOf(watch), subscription);
    this.send(subscription, true, all, rows);
  }

  /** Sends the changes since the last message to a watch. */
  notify(subscription: Subscription<T>, changes: Changes, rows?: Rows): void {
    if (changes.length > 0) this.send(subscription, false, changes, rows);
  }

  /** Ends the watches that were not renewed in time. Their clients are notified, in case they still exist. */
  endLapsed(now: number): void {
    for (const subscription of this.all.values())
      if (subscription.until < now) this.endForRestart(subscription);
  }

  /** Ends a watch. Its client begins it again if it still wants it. */
  endForRestart(subscription: Subscription<T>): void {
    const { watch, respond } = subscription;
    this.remove(watch);
    // A new epoch shows the client that messages before this one are missing.
    respond(this.message(watch.id, this.nextEpoch(), 0, false, []));
  }

  remove(watch: Pick<Watch, "client" | "id">): void {
    this.all.delete(nameOf(watch));
  }

  clear(): void {
    this.all.clear();
  }

  private send(subscription: Subscription<T>, isAll: boolean, changes: Changes, rows: Rows): void {
    subscription.number += 1;
    const { watch, epoch, number } = subscription;
    const message = {
      ...this.message(watch.id, epoch, number, isAll, changes),
      ...(rows && { rows }),
      ...(isAll && this.created !== undefined && { created: this.created }),
    };
    subscription.respond(message);
  }

  private message(
    id: number,
    epoch: number,
    number: number,
    isAll: boolean,
    changes: Changes,
  ): WatchUpdate {
    return { type: "changes", owner: this.owner, id, epoch, number, isAll, changes };
  }
}

function nextOfRealm(): number {
  lastEpoch += 1;
  return lastEpoch;
}

function nameOf({ client, id }: Pick<Watch, "client" | "id">): string {
  return `${client}/${id}`;
}
