/**
 * Snapshots of clients. The owner keeps each as long as its client reads it: one that was not read for a while ends, since
 * its client may have ended, and while it is open no space of the file is used again.
 */

import type { Database } from "../../database/database.js";
import { Snapshot } from "../../database/snapshot.js";
import { badArgument, describe, SnapshotClosedError } from "../../errors/index.js";
import type { Range } from "../../session/key-range.js";
import { clearTimeout, setTimeout } from "../../util/clock.js";
import type { Cursor } from "../protocol/packed-rows.js";
import type { ServedCollections } from "./collection-handlers.js";
import { READS, rowsOf } from "./handlers.js";

/** The longest time that a client may ask for. */
const MAX_LEASE_MS = 3_600_000;

interface Lease {
  readonly snapshot: Snapshot;
  readonly collections: ServedCollections;
  readonly ms: number;
  timer: ReturnType<typeof setTimeout> | undefined;
}

const RANGES: readonly string[] = ["keys", "values", "entries"];

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
    if (RANGES.includes(call)) {
      const [range, cursor] = args as [Range?, (Cursor | null)?];
      return rowsOf(this.db, call as "keys", range, cursor, Snapshot.keyspaceOf(snapshot));
    }
    if (!Object.hasOwn(READS, call)) throw badArgument(`A snapshot has no call ${describe(call)}.`);
    return (READS[call] as (typeof READS)[string])(snapshot, ...(args as never[]));
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
