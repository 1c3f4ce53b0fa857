/**
 * The owner's half of watching, without engine, timers or ports: which watches there are, how long each is
 * kept, and how what they are told is numbered.
 *
 * Every full answer begins an epoch, and the messages of an epoch are numbered without gaps. Epochs only
 * grow, whatever was forgotten meanwhile, so a client takes each full answer that is newer than its last one,
 * and knows from any other message whether it has missed something.
 */

import type { Watch, WatchUpdate } from "./messages.js";

/**
 * A client renews its watches three times within this time, in milliseconds. One that does not may be gone.
 * A client that only stood still, as its machine slept or a dialog was open, is told to begin again.
 */
export const LEASE_MS = 90_000;

/** A watch of a client. */
export interface Subscription<T> {
  readonly watch: Watch;
  /** What the owner keeps for it. */
  readonly state: T;
  respond: (message: WatchUpdate) => void;
  until: number;
  readonly epoch: number;
  /** The number of the last message of its epoch. */
  number: number;
}

type Changes = WatchUpdate["changes"];

/**
 * Never starts again in a realm. An owner's name belongs to one realm, in which it may have the database
 * several times, one after the other.
 */
let lastEpoch = 0;

/** All watches of one owner. Times are of a monotonic clock. */
export class Subscriptions<T> {
  private readonly owner: string;
  private readonly nextEpoch: () => number;
  private readonly all: Map<string, Subscription<T>> = new Map();

  /** `nextEpoch` gives a higher number each time, for as long as an owner of this name may be asked. */
  constructor(owner: string, nextEpoch: () => number = nextOfRealm) {
    this.owner = owner;
    this.nextEpoch = nextEpoch;
  }

  get size(): number {
    return this.all.size;
  }

  [Symbol.iterator](): IterableIterator<Subscription<T>> {
    return this.all.values();
  }

  /** Keeps a watch for longer. Returns false if its client needs a full answer, for which `begin` is called. */
  renew(watch: Watch, respond: Subscription<T>["respond"], now: number): boolean {
    const one = this.all.get(nameOf(watch));
    if (one === undefined || one.epoch !== watch.epoch || one.number !== watch.number) return false;
    one.respond = respond;
    one.until = now + LEASE_MS;
    return true;
  }

  /** Begins a watch, or begins it again, with all that is there now. */
  begin(
    watch: Watch,
    respond: Subscription<T>["respond"],
    now: number,
    state: T,
    all: Changes,
  ): void {
    const epoch = this.nextEpoch();
    const one = { watch, state, respond, until: now + LEASE_MS, epoch, number: 0 };
    this.all.set(nameOf(watch), one);
    this.send(one, true, all);
  }

  /** Tells a watch what has changed since the last message. */
  notify(one: Subscription<T>, changes: Changes): void {
    if (changes.length > 0) this.send(one, false, changes);
  }

  /** Ends the watches that were not renewed in time. Their clients are told, which may be there all the same. */
  expire(now: number): void {
    for (const one of this.all.values()) if (one.until < now) this.restart(one);
  }

  /** Ends a watch whose client begins it again, if it still wants it. */
  restart(one: Subscription<T>): void {
    const { watch, respond } = one;
    this.remove(watch);
    // Of an epoch that nobody knows: something is missing before it.
    respond(this.message(watch.id, this.nextEpoch(), 0, false, []));
  }

  remove(watch: Pick<Watch, "client" | "id">): void {
    this.all.delete(nameOf(watch));
  }

  clear(): void {
    this.all.clear();
  }

  private send(one: Subscription<T>, isAll: boolean, changes: Changes): void {
    one.number += 1;
    one.respond(this.message(one.watch.id, one.epoch, one.number, isAll, changes));
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
