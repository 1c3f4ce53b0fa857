/** The owner's side of `watch`: what has changed in ranges that clients look at, told after a commit. */

import type { Database } from "../database.js";
import type { TextRange } from "../range.js";
import { keyName, type Seen, type Watch } from "./messages.js";
import type { ServedCollections } from "./served.js";

/** A client renews its watches more often; one that does not is gone. */
const LEASE_MS = 90_000;

interface Watched {
  readonly watch: Watch;
  readonly respond: (message: Seen) => void;
  readonly until: number;
  /** By the names of keys: the keys, and the versions that were told. */
  known: Map<string, readonly [key: unknown, version: number]>;
  number: number;
}

/** All watches of one owner. */
export class Watches {
  private readonly owner: string;
  private readonly db: Database;
  private readonly collections: ServedCollections;
  private readonly all: Map<string, Watched>;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(owner: string, db: Database, collections: ServedCollections) {
    this.owner = owner;
    this.db = db;
    this.collections = collections;
    this.all = new Map();
    this.timer = undefined;
  }

  /** Begins a watch or renews it, and tells all that is there. */
  add(watch: Watch, respond: (message: Seen) => void): void {
    const known = this.look(watch);
    const one = { watch, respond, until: Date.now() + LEASE_MS, known, number: 1 };
    this.all.set(`${watch.client}/${watch.id}`, one);
    const changes = [...known.values()];
    respond({ type: "seen", owner: this.owner, id: watch.id, number: 1, changes });
  }

  remove({ client, id }: { client: number; id: number }): void {
    this.all.delete(`${client}/${id}`);
  }

  /** Something was committed: looks what, when this task is over. */
  changed(): void {
    if (this.all.size === 0) return;
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      for (const [name, one] of this.all) {
        if (one.until < Date.now()) this.all.delete(name);
        else this.tell(one);
      }
    });
  }

  stop(): void {
    clearTimeout(this.timer);
    this.all.clear();
  }

  private tell(one: Watched): void {
    const { known, watch, respond } = one;
    const now = this.look(watch);
    const changes: (readonly [unknown, number])[] = [];
    for (const [name, entry] of now) if (known.get(name)?.[1] !== entry[1]) changes.push(entry);
    for (const [name, [key]] of known) if (!now.has(name)) changes.push([key, 0]);
    one.known = now;
    if (changes.length === 0) return;
    one.number += 1;
    const { owner } = this;
    respond({ type: "seen", owner, id: watch.id, number: one.number, changes });
  }

  private look({ place, range }: Watch): Watched["known"] {
    const found: Watched["known"] = new Map();
    if (place === undefined) {
      for (const key of this.db.keys(range as TextRange)) {
        found.set(keyName(key), [key, this.db.getEntry(key)?.version ?? 0]);
      }
      return found;
    }
    const collection = this.collections.get(place);
    for (const key of collection.keys(range as object)) {
      found.set(keyName(key), [key, collection.getEntry(key)?.version ?? 0]);
    }
    return found;
  }
}
