/**
 * What clients ask about the past: the last commit, what has changed, transactions as they come, and snapshots, also of
 * past commits. These requests are jobs, since a client that follows waits for the next commit. The owner keeps an iteration
 * between two pages. One that it does not have any more, or that another owner had, begins again: `follow` at the cursor of
 * the request, `changes` from its start.
 */

import type { ChangesOptions, FollowOptions } from "../../database/changes.js";
import { Database } from "../../database/database.js";
import { cursorIn } from "../../database/past.js";
import { badArgument, describe } from "../../errors/index.js";
import { refuseUnknown } from "../../session/options.js";
import { clearTimeout, monotonicNow, nextTask, setTimeout } from "../../util/clock.js";
import type { ChangesPage, FollowPage } from "../protocol/history-pages.js";
import type { RemoteLogRecord } from "../protocol/log-pages.js";
import type { SnapshotLeases } from "./snapshot-leases.js";

/** The items of a page, and the size of their keys and values at which it ends. */
const MAX_ITEMS = 1_024;
const MAX_PAGE_BYTES = 262_144;

/** The time after which a page ends, whatever it has: the owner has other work too. */
const SLICE_MS = 20;
/** How many items are between two looks at the clock. */
const CLOCK_ITEMS = 64;

/** How long a request waits for the next commit at most. It is answered in half of its own time. */
const WAIT_MS = 20_000;

/**
 * How many iterations are kept, and for how long if the client does not go on. One that reads has up to 2 MiB. One that is
 * given up begins again, so with fewer, loops of `changes` that take turns would never reach their end.
 */
const MAX_KEPT = 32;
const IDLE_MS = 60_000;

/** What a request has beside its arguments. */
export interface HistoryContext {
  readonly signal: AbortSignal;
  /** When the client gives the request up, by the monotonic clock. */
  readonly deadline: number;
  readonly leases: SnapshotLeases;
}

/** An iteration. `at`: the number of its next page, or the cursor behind which it goes on. */
interface Kept {
  readonly end: () => void;
  at: number;
  usedAt: number;
  /** The request that waits for its page, as it may be repeated: the last one goes on. */
  page?: object | undefined;
}

interface KeptChanges extends Kept {
  readonly records: Iterator<RemoteLogRecord, undefined>;
}

type Followed = FollowPage["items"][number];

interface KeptFollower extends Kept {
  readonly transactions: AsyncIterator<Followed, void>;
  /** The transaction that was asked for and is not there yet. */
  next: Promise<IteratorResult<Followed, void>> | undefined;
}

const iterationsOf = new WeakMap<Database, Map<number, Kept>>();

/** The iteration of this number if it is where the client is; else a new one. */
function kept<K extends Kept>(db: Database, id: number, at: number, begin: () => K): K {
  let all = iterationsOf.get(db);
  if (all === undefined) {
    all = new Map();
    iterationsOf.set(db, all);
  }
  const now = monotonicNow();
  let found = all.get(id);
  if (found !== undefined && found.at !== at) {
    found.end();
    found = undefined;
  }
  found ??= begin();
  found.usedAt = now;
  // The order of the map is that of the last use.
  all.delete(id);
  all.set(id, found);
  // One that waits is in use, and has no memory of its own.
  const others = [...all].filter(([other, { page }]) => other !== id && page === undefined);
  for (const [i, [other, { usedAt }]] of others.entries()) {
    if (others.length - i >= MAX_KEPT || usedAt + IDLE_MS < now) end(db, other);
  }
  return found as K;
}

function end(db: Database, id: number): void {
  const all = iterationsOf.get(db);
  all?.get(id)?.end();
  all?.delete(id);
}

/** The next page of what has changed. `at`: its number. */
function changesPage(db: Database, id: number, at: number, options: ChangesOptions): ChangesPage {
  const session = Database.sessionOf(db);
  session.guard.assertOutsideCallback("changes()");
  // Before `until` is known: what has expired is deleted there.
  if (at === 0) session.engine.deleteDue();
  db.commit();
  const { until = db.lastCommit } = Object(options) as ChangesOptions;
  const iteration = kept<KeptChanges>(db, id, at, () => {
    const records = db.changes({ ...options, until })[Symbol.iterator]();
    return { records, end: () => records.return?.(), at, usedAt: 0 };
  });
  const items: RemoteLogRecord[] = [];
  const began = monotonicNow();
  let bytes = 0;
  for (;;) {
    const { done, value: record } = iteration.records.next();
    if (done) break;
    const { type, collection, keyspace, key, version } = record;
    const value = record.value?.slice();
    items.push({ type, collection, keyspace, key, value, version });
    bytes += sizeOf(key, value);
    const isLate = items.length % CLOCK_ITEMS === 0 && monotonicNow() > began + SLICE_MS;
    if (items.length >= MAX_ITEMS || bytes >= MAX_PAGE_BYTES || isLate) {
      iteration.at = at + 1;
      return { items, until, goesOn: true };
    }
  }
  end(db, id);
  return { items, until, goesOn: false };
}

function sizeOf(key: unknown, value: Uint8Array | undefined): number {
  return (value?.length ?? 0) + ((key as { length?: number } | undefined)?.length ?? 0);
}

/** The transactions behind a cursor. If there is none yet, waits for one. */
async function followPage(
  db: Database,
  id: number,
  since: number,
  options: FollowOptions,
  { signal, deadline }: HistoryContext,
): Promise<FollowPage> {
  // A mark would move with what was sent, not with what the client has handled.
  refuseUnknown("follow()", options, ["collection"]);
  const iteration = kept<KeptFollower>(db, id, since, () => {
    const stop = new AbortController();
    const transactions = db
      .follow({ ...options, since, signal: stop.signal })
      [Symbol.asyncIterator]();
    return { transactions, next: undefined, end: () => stop.abort(), at: since, usedAt: 0 };
  });
  const page = {};
  iteration.page = page;
  const isOurs = () => iteration.page === page && iterationsOf.get(db)?.get(id) === iteration;
  /** What is answered when a later request took the place of this one: its client asks again if it waits. */
  const nothing = { items: [], cursor: since };
  const items: Followed[] = [];
  const began = monotonicNow();
  const wait = Math.min(WAIT_MS, (deadline - began) / 2);
  let bytes = 0;
  /** The last commit when the wait was over. */
  let reached: number | undefined;
  while (items.length < MAX_ITEMS && bytes < MAX_PAGE_BYTES) {
    if (items.length > 0 && monotonicNow() > began + wait + SLICE_MS) break;
    iteration.next ??= iteration.transactions.next();
    const waits = items.length === 0 && reached === undefined;
    const over = waits ? overIn(wait, signal) : { promise: nextTask(), cancel() {} };
    let found: IteratorResult<Followed, void> | undefined;
    try {
      found = (await Promise.race([iteration.next, over.promise])) ?? undefined;
    } catch (error) {
      if (!isOurs()) return nothing;
      end(db, id);
      throw error;
    } finally {
      over.cancel();
    }
    if (!isOurs()) return nothing;
    if (found === undefined && waits) {
      // Not all commits wake followers, so the cursor may pass only what is looked at after this.
      try {
        db.commit();
        reached = db.lastCommit;
        continue;
      } catch {
        // The failure is reported to the callers whose writes they were.
        break;
      }
    }
    if (found === undefined || found.done) break;
    iteration.next = undefined;
    items.push(found.value);
    iteration.at = found.value.number;
    for (const { key, value } of found.value.records) bytes += sizeOf(key, value);
  }
  // What is pending then is rejected by the end of the iteration, which no caller waits for.
  iteration.next?.catch(() => {});
  iteration.page = undefined;
  if (items.length === 0) iteration.at = Math.max(since, reached ?? since);
  return { items, cursor: iteration.at };
}

/** A promise that resolves after a time, or when a signal is aborted. */
function overIn(ms: number, signal: AbortSignal): { promise: Promise<void>; cancel: () => void } {
  let cancel = () => {};
  const promise = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, Math.max(0, ms));
    const onAbort = () => resolve();
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) resolve();
    cancel = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
    };
  });
  return { promise, cancel };
}

type Call = (db: Database, context: HistoryContext, ...args: never[]) => unknown;

const CALLS: Readonly<Record<string, Call>> = {
  lastCommit(db) {
    db.commit();
    return db.lastCommit;
  },
  changes: (db, _, id: number, at: number, options: ChangesOptions) =>
    changesPage(db, id, at, options),
  follow: (db, context, id: number, since: number, options: FollowOptions) =>
    followPage(db, id, since, options, context),
  end: (db, _, id: number) => end(db, id),
  snapshot: (db, { leases }, id: number, lease: number) =>
    leases.take("snapshot()", id, lease, () => db.snapshot()),
  at: (db, { leases }, id: number, lease: number, point: number | Date) =>
    leases.take("at()", id, lease, () => db.at(point)),
  // The number of the commit, with which the client then asks for the work: once some of it is done, a time may mean another.
  pack: (db, _, before: unknown) =>
    cursorIn(() => Database.sessionOf(db), "The option before of pack()", before),
  read: (_, { leases }, ...args: Parameters<SnapshotLeases["read"]>) => leases.read(...args),
  endSnapshot: (_, { leases }, id: number) => leases.end(id),
};

/** Answers a request for history. */
export async function historyJob(
  db: Database,
  context: HistoryContext,
  [call, ...args]: readonly unknown[],
): Promise<unknown> {
  if (!Object.hasOwn(CALLS, call as string))
    throw badArgument(`The owner has no call ${describe(call)}.`);
  return (CALLS[call as string] as Call)(db, context, ...(args as never[]));
}
