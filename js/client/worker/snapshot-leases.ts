/**
 * Snapshots of clients. The owner keeps each as long as its client reads it: one that was not read for a while ends, since
 * its client may have ended, and while it is open no space of the file is used again.
 */

import type { Database } from "../../database/database.js";
import { Snapshot } from "../../database/snapshot.js";
import { badArgument, describe, SnapshotClosedError } from "../../errors/index.js";
import type { Range } from "../../session/key-range.js";
import type { Key } from "../../util/bytes.js";
import { clearTimeout, setTimeout } from "../../util/clock.js";
import type { Cursor } from "../protocol/packed-rows.js";
import type { ServedCollections } from "./collection-handlers.js";
import { entryOf, manyOf, rowsOf } from "./handlers.js";

/** The longest time that a client may ask for. */
const MAX_LEASE_MS = 3_600_000;

interface Lease {
  readonly snapshot: Snapshot;
  readonly collections: ServedCollections;
  readonly ms: number;
  timer: ReturnType<typeof setTimeout> | undefined;
}

type Call = (of: Snapshot, db: Database, ...args: never[]) => unknown;

const CALLS: Readonly<Record<string, Call>> = {
  get: (of, _, key: Key) => of.get(key)?.slice(),
  getText: (of, _, key: Key) => of.getText(key),
  has: (of, _, key: Key) => of.has(key),
  count: (of, _, range?: Range) => of.count(range),
  getMany: (of, _, keys: Key[]) => manyOf(of, keys),
  getEntry: (of, _, key: Key) => entryOf(of, key),
};
for (const call of ["keys", "values", "entries"] as const) {
  (CALLS as Record<string, Call>)[call] = (of, db, range?: Range, cursor?: Cursor | null) =>
    rowsOf(db, call, range, cursor, Snapshot.keyspaceOf(of));
}

/** The snapshots of the clients of one owner. */
export class SnapshotLeases {
  private readonly db: Database;
  private readonly collections: ServedCollections;
  private readonly all: Map<number, Lease>;

  constructor(db: Database, collections: ServedCollections) {
    this.db = db;
    this.collections = collections;
    this.all = new Map();
  }

  /** Keeps the snapshot that `open` takes under this number. It ends when it is not read for `ms`. */
  take(call: string, id: number, ms: number, open: () => Snapshot): void {
    if (typeof ms !== "number" || !(ms > 0 && ms <= MAX_LEASE_MS)) {
      throw badArgument(
        `The option lease of ${call} must be a number of ms up to ${MAX_LEASE_MS}.`,
        ms,
      );
    }
    const known = this.all.get(id);
    // A request may be repeated.
    if (known === undefined) {
      const snapshot = open();
      const collections = this.collections.asOf(snapshot);
      this.all.set(id, { snapshot, collections, ms, timer: undefined });
    }
    this.renew(id);
  }

  /** Performs a call on a snapshot. @throws SnapshotClosedError if it has ended, or another owner took it */
  read(id: number, call: string, args: readonly unknown[], name?: string, index?: string): unknown {
    const lease = this.renew(id);
    if (lease === undefined) {
      throw new SnapshotClosedError(
        "This snapshot was closed, was not read for longer than its lease, or the worker that kept it has ended. " +
          "Take another.",
      );
    }
    const { snapshot, collections } = lease;
    if (name !== undefined) return collections.perform(name, call, args as never[], index);
    if (!Object.hasOwn(CALLS, call)) throw badArgument(`A snapshot has no call ${describe(call)}.`);
    return (CALLS[call] as Call)(snapshot, this.db, ...(args as never[]));
  }

  end(id: number): void {
    const lease = this.all.get(id);
    if (lease === undefined) return;
    this.all.delete(id);
    clearTimeout(lease.timer);
    lease.snapshot.close();
  }

  /** The database is closed, which ends all snapshots. */
  stop(): void {
    for (const { timer } of this.all.values()) clearTimeout(timer);
    this.all.clear();
  }

  private renew(id: number): Lease | undefined {
    const lease = this.all.get(id);
    if (lease === undefined) return undefined;
    clearTimeout(lease.timer);
    lease.timer = setTimeout(() => this.end(id), lease.ms);
    return lease;
  }
}
