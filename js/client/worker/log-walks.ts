/**
 * Walks of clients over the log, a page at a time. The owner keeps a walk between two pages, so that it need not begin
 * again. One that it does not have any more, or that another owner had, is found again by its cursor.
 */

import { Database } from "../../database/database.js";
import { type LogOptions, selectionOf } from "../../database/log-options.js";
import type { LogItem } from "../../database/log-records.js";
import { Walk } from "../../database/log-walk.js";
import { monotonicNow } from "../../util/clock.js";
import { toWire } from "../protocol/errors.js";
import type { LogCursor, LogPage, LogPageItem } from "../protocol/log-pages.js";

/** The items of the first page, which is small for loops that need only a few. */
const FIRST_ITEMS = 64;
const MAX_ITEMS = 1_024;

/** The size of keys and values at which a page ends. */
const MAX_PAGE_BYTES = 262_144;

/** The time after which a page ends, whatever it has: the owner has other work too. */
const SLICE_MS = 20;

/** How many items are between two looks at the clock. */
const CLOCK_ITEMS = 64;

/** How many walks are kept. Each has up to 2 MiB of memory. */
const MAX_WALKS = 4;

/** How long a walk is kept for a client that does not go on. */
const IDLE_MS = 60_000;

const START: Omit<LogCursor, "left"> = { sequence: 0, offset: 0, damaged: -1 };

/** A walk, and how far the client has come. */
interface Kept {
  readonly walk: Walk;
  after: LogCursor;
  /** Whether items up to `after` are still to be passed over. */
  isSeeking: boolean;
  usedAt: number;
}

const walksOf = new WeakMap<Database, Map<number, Kept>>();

function keptIn(db: Database): Map<number, Kept> {
  let kept = walksOf.get(db);
  if (kept === undefined) {
    kept = new Map();
    walksOf.set(db, kept);
  }
  return kept;
}

/** The next page of the walk with this number. `null`: the first one. */
export function logPage(
  db: Database,
  id: number,
  options: LogOptions | undefined,
  cursor: LogCursor | null,
): LogPage {
  const selection = selectionOf(options ?? {});
  const session = Database.sessionOf(db);
  // A message with writes is committed behind its last request. The client asks again, and is shown them.
  if (cursor === null && session.guard.depth > 0) return { items: [], after: null };
  const all = keptIn(db);
  const now = monotonicNow();
  let kept = all.get(id);
  if (kept !== undefined && !isSame(kept.after, cursor)) {
    endLog(db, id);
    kept = undefined;
  }
  for (const [other, { usedAt }] of all) {
    if (other !== id && usedAt + IDLE_MS < now) endLog(db, other);
  }
  if (kept === undefined) {
    const walk = new Walk(() => Database.sessionOf(db), { ...selection });
    const isSeeking = cursor !== null;
    if (isSeeking) walk.left = Number.POSITIVE_INFINITY;
    kept = { walk, after: cursor ?? { ...START, left: walk.left }, isSeeking, usedAt: now };
  }
  kept.usedAt = now;
  // The order of the map is that of the last use.
  all.delete(id);
  all.set(id, kept);
  for (const other of all.keys()) {
    if (all.size <= MAX_WALKS) break;
    endLog(db, other);
  }
  const items: LogPageItem[] = [];
  const goesOn = fill(kept, items, now, cursor === null ? FIRST_ITEMS : MAX_ITEMS);
  if (!goesOn) endLog(db, id);
  return { items, after: goesOn ? kept.after : undefined };
}

/** Ends a walk and frees its memory. */
export function endLog(db: Database, id: number): void {
  const all = keptIn(db);
  all.get(id)?.walk.stop();
  all.delete(id);
}

function isSame(a: LogCursor, b: LogCursor | null): boolean {
  return (
    a.sequence === b?.sequence &&
    a.offset === b.offset &&
    a.damaged === b.damaged &&
    a.left === b.left
  );
}

/** Fills a page, and returns whether the walk goes on behind it. */
function fill(kept: Kept, items: LogPageItem[], began: number, most: number): boolean {
  const { walk } = kept;
  let bytes = 0;
  const addRecord = () => {
    const record = walk.nextRecord();
    if (record === undefined) return false;
    if (kept.isSeeking) {
      if (!isBehind(walk, kept.after)) return true;
      // The client has begun this transaction.
      found(kept, kept.after.left);
    }
    const { type, collection, keyspace, key, version } = record;
    const value = record.value?.slice();
    items.push({ type, collection, keyspace, key, value, version });
    bytes += (value?.length ?? 0) + ((key as { length?: number } | undefined)?.length ?? 0);
    reach(kept, walk.offset, -1);
    return true;
  };
  for (let steps = 1; items.length < most && bytes < MAX_PAGE_BYTES; steps += 1) {
    if (steps % CLOCK_ITEMS === 0 && monotonicNow() > began + SLICE_MS) break;
    if (walk.transaction !== undefined && addRecord()) continue;
    const item = walk.nextItem();
    if (item === undefined) return false;
    if (kept.isSeeking) {
      if (!isNew(item, kept)) continue;
      const left = kept.after.left - (item.type === "transaction" ? 1 : 0);
      if (left < 0) return false;
      found(kept, left);
    }
    if (item.type === "transaction") {
      const { type, number, time, note, client, moved, afterGap } = item as RemoteHead;
      items.push({ type, number, time, note, client, moved, afterGap });
      // With its first record, so that the cursor is behind both.
      addRecord();
    } else if (item.type === "error") {
      items.push({ ...(item as Damage), error: toWire((item as Damage).error) });
      reach(kept, undefined, (item as Damage).offset);
    } else {
      items.push({ type: "gap" });
      reach(kept, undefined, -1);
    }
  }
  return true;
}

type RemoteHead = Extract<LogItem, { type: "transaction" }>;
type Damage = Extract<LogItem, { type: "error" }>;

/** Whether an item is behind the cursor. A transaction is if its first record is. */
function isNew(item: LogItem, { walk, after }: Kept): boolean {
  if (item.type === "transaction") return isBehind(walk, after);
  if (walk.sequence !== after.sequence) return walk.sequence > after.sequence;
  return item.type === "error" && item.offset > after.damaged;
}

/** Whether the record that was read last is behind the cursor. */
function isBehind({ sequence, offset }: Walk, after: LogCursor): boolean {
  return sequence > after.sequence || (sequence === after.sequence && offset > after.offset);
}

/** Ends seeking: what comes now is for the client. */
function found(kept: Kept, left: number): void {
  kept.walk.left = left;
  kept.isSeeking = false;
}

/** Moves the cursor on: behind a record, or behind damage. */
function reach(kept: Kept, offset: number | undefined, damaged: number): void {
  const { walk, after } = kept;
  const { sequence, left } = walk;
  const isSameSegment = sequence === after.sequence;
  kept.after = {
    sequence,
    offset: offset ?? (isSameSegment ? after.offset : 0),
    damaged: isSameSegment ? Math.max(damaged, after.damaged) : damaged,
    left,
  };
}
