/** `db.changes()`, `db.follow()` and `db.retain()`: what happened since a cursor. */

import { IS_WHOLE } from "../engine/engine-log.js";
import { SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import { badArgument } from "../errors/index.js";
import type { Source } from "../session/cursor.js";
import { refuseUnknown } from "../session/options.js";
import type { RetainMark, Session } from "../session/session.js";
import { endable } from "../util/loops.js";
import { decoder, encoder } from "../util/text-coders.js";
import { iterator } from "./log.js";
import { between } from "./log-options.js";
import type { LogRecord, LogTransaction } from "./log-records.js";
import { Walk } from "./log-walk.js";

/** The options of `changes`. */
export interface ChangesOptions {
  /** What changed after this commit: a `lastCommit`, the number of a transaction, or a version. 0 for all. */
  since: number;
  /** Only keys whose last change is at most this version. */
  until?: number | undefined;
  /** Only this collection. */
  collection?: string | undefined;
}

/** The options of `follow`. */
export interface FollowOptions {
  /**
   * Begins after this commit: the `number` of the last transaction that was handled, or a `lastCommit`. Without it,
   * begins at the mark `retain`, if there is one; else with the next commit.
   */
  since?: number | undefined;
  /** Ends the loop: it throws the reason of the signal. */
  signal?: AbortSignal | undefined;
  /**
   * Only records of this collection, and transactions that have some. After 256 others comes one without records, so that
   * the `number` goes on, and the mark with it.
   */
  collection?: string | undefined;
  /** The name of a mark, which moves along with what was handled, so that compaction takes nothing that was not. */
  retain?: string | undefined;
}

/** A record of a transaction of `follow`: a copy, which stays as it is. */
export interface FollowedRecord
  extends Pick<LogRecord, "type" | "collection" | "keyspace" | "key" | "version"> {
  /** A copy of the value. `undefined` as in `LogRecord.value`. */
  readonly value: Uint8Array<ArrayBuffer> | undefined;
}

/** A transaction of `follow`: a copy, which stays as it is. */
export interface FollowedTransaction
  extends Pick<LogTransaction, "number" | "time" | "note" | "client"> {
  /** Its records, in the order in which they were written. */
  readonly records: readonly FollowedRecord[];
}

const MARKS = encoder.encode("marks");
const MAX_NAME = 255;
/** A mark moves at least once in this many transactions. */
const ITEMS_PER_MARK = 256;

/** The marks of a database, in the order in which they were set. */
export function marksOf({ engine }: Session): RetainMark[] {
  const bytes = engine.get(MARKS, SYSTEM_KEYSPACE)?.slice() ?? new Uint8Array(0);
  const data = new DataView(bytes.buffer);
  const marks: RetainMark[] = [];
  for (let at = 0; at + 24 <= bytes.length; ) {
    const length = data.getUint32(at + 16, true);
    const name = decoder.decode(bytes.subarray(at + 24, at + 24 + length));
    marks.push({ name, cursor: Number(data.getBigUint64(at, true)) });
    at += 24 + ((length + 7) & ~7);
  }
  return marks;
}

function isCursor(given: unknown): given is number {
  return Number.isSafeInteger(given) && (given as number) >= 0;
}

function cursorOf(call: string, option: string, given: unknown): number {
  if (isCursor(given)) return given;
  throw badArgument(
    `${option} of ${call} must be a cursor: a number of a commit, 0 or more, as from lastCommit.`,
    given,
  );
}

function collectionOf(call: string, given: unknown): string | undefined {
  if (given === undefined || (typeof given === "string" && given !== "")) return given;
  throw badArgument(`The option collection of ${call} must be the name of a collection.`, given);
}

function checkName(what: string, name: unknown): asserts name is string {
  const bytes = typeof name === "string" ? encoder.encode(name) : [];
  // A lone surrogate would be replaced by another character.
  const isName = bytes.length > 0 && decoder.decode(bytes as Uint8Array) === name;
  if (isName && bytes.length <= MAX_NAME) return;
  throw badArgument(`${what} must be text of 1 to 255 bytes of UTF-8.`, name);
}

/** Sets or drops a mark. */
export function retain(session: Session, name: unknown, cursor: unknown): void {
  session.guard.assertWritable("retain()");
  checkName("The name of a mark", name);
  const drops = cursor === undefined || cursor === null;
  session.engine.log.retain(name, drops ? -1 : cursorOf("retain()", "The cursor", cursor));
  if (!session.commits.queued) session.commits.queue();
}

/** What changed since a cursor: each key once, as it is now. */
export function changesOf(source: Source, options: ChangesOptions): Iterable<LogRecord, undefined> {
  refuseUnknown("changes()", options, ["since", "until", "collection"]);
  const since = cursorOf("changes()", "The option since", options.since);
  const until =
    options.until === undefined
      ? undefined
      : cursorOf("changes()", "The option until", options.until);
  const collection = collectionOf("changes()", options.collection);
  const isWanted = (record: LogRecord) =>
    (collection === undefined || record.collection === collection) &&
    (until === undefined || record.version <= until) &&
    record.version > since;
  return {
    [Symbol.iterator]() {
      const walk = new Walk(source, between(since));
      return iterator(walk, changedRecords(walk, source, since, isWanted));
    },
  };
}

/** Returns the function that gives the next change. */
function changedRecords(
  walk: Walk,
  source: Source,
  since: number,
  isWanted: (record: LogRecord) => boolean,
): () => LogRecord | undefined {
  // Keyspaces whose clear was given; deletions by key: the last one counts, which the walk shows last.
  const cleared = new Set<number>();
  const deleted = new Map<string, LogRecord>();
  /** What comes before the walk goes on, the next one last. */
  let waiting: LogRecord[] = [];
  let begun = false;
  const begin = (session: Session) => {
    begun = true;
    const known = session.engine.log.since(since);
    if (known === 0) throw session.engine.log.expired();
    // Only where something is gone may a clear follow what was set after it, because it was moved.
    if ((known & IS_WHOLE) !== 0) return;
    const ahead = new Walk(source, between(since));
    for (let record = nextOf(ahead); record !== undefined; record = nextOf(ahead)) {
      if (record.type !== "clear" || cleared.has(record.keyspace)) continue;
      if (!isWanted(record) || !ahead.isCurrent()) continue;
      cleared.add(record.keyspace);
      waiting.push(record);
    }
  };
  return () => {
    const session = source();
    session.guard.assertOutsideCallback("changes()");
    // What is pending is committed, so that the index says what is committed.
    if (session.engine.pending() !== 0) session.commits.commit();
    if (!begun) {
      // Only now: on a full disk these deletions are lost together with what was written before them.
      session.engine.deleteDue();
      if (session.engine.pending() !== 0) session.commits.commit();
      begin(session);
    }
    for (;;) {
      const next = waiting.pop();
      if (next !== undefined) return next;
      const record = nextOf(walk);
      if (record === undefined) {
        waiting = [...deleted.values()].sort((a, b) => b.version - a.version);
        deleted.clear();
        return waiting.pop();
      }
      if (!isWanted(record) || !walk.isCurrent()) continue;
      if (record.type === "delete") {
        const identity = walk.identity(record.keyspace);
        const last = deleted.get(identity);
        if (last === undefined || last.version < record.version) deleted.set(identity, record);
      } else if (record.type === "set") {
        return record;
      } else if (!cleared.has(record.keyspace)) {
        cleared.add(record.keyspace);
        return record;
      }
    }
  };
}

/** The next record of a walk. Damage is thrown. */
function nextOf(walk: Walk): LogRecord | undefined {
  for (;;) {
    const record = walk.transaction === undefined ? undefined : walk.nextRecord();
    if (record !== undefined) return record;
    const item = walk.nextItem();
    if (item === undefined) return undefined;
    if (item.type === "error") throw item.error;
  }
}

/** The transactions since a cursor, and then each that is committed. `closers` are called when the handle closes. */
export function followed(
  source: Source,
  options: FollowOptions,
  closers: Set<() => void>,
): AsyncIterable<FollowedTransaction> {
  refuseUnknown("follow()", options, ["since", "signal", "collection", "retain"]);
  const { signal, retain: name } = options;
  const collection = collectionOf("follow()", options.collection);
  if (name !== undefined) checkName("The option retain of follow()", name);
  let since = options.since;
  if (since !== undefined) cursorOf("follow()", "The option since", since);
  else if (name !== undefined) since = markNamed(source(), name);
  const from = since ?? source().engine.log.lastCommit();
  let hasBegun = false;
  return {
    [Symbol.asyncIterator]() {
      // A second loop begins again, or goes on from the mark: what is before that may be forgotten.
      const mark = hasBegun && name !== undefined && markNamed(source(), name);
      hasBegun = true;
      const follower = new Follower(source, mark || from, collection, name);
      return endable(follower.items(signal, closers), () => follower.stop());
    },
  };
}

/** The cursor of a mark; `undefined` if there is none of this name. */
function markNamed(session: ReturnType<Source>, name: string): number | undefined {
  return marksOf(session).find((mark) => mark.name === name)?.cursor;
}

class Follower {
  private readonly source: Source;
  private readonly collection: string | undefined;
  private readonly mark: string | undefined;
  /** The last transaction that was handled, or that was seen not to be wanted. */
  private cursor: number;
  /** Where the mark belongs: the `number` that the program has, with which it may go on after a restart. */
  private markAt: number;
  /** How many were handled since the mark moved. */
  private handled: number;
  /** How many were left out since the last one that was given. */
  private passed: number;
  private walk: Walk | undefined;
  /** The newest commit when the walk began. */
  private seen: number;
  private isStopped = false;
  /** Has a loop that waits look again. */
  private wake: (() => void) | undefined;

  constructor(
    source: Source,
    since: number,
    collection: string | undefined,
    mark: string | undefined,
  ) {
    this.source = source;
    this.collection = collection;
    this.mark = mark;
    this.cursor = since;
    this.markAt = since;
    this.handled = 0;
    this.passed = 0;
    this.walk = undefined;
    this.seen = since;
  }

  /** Has a loop that waits end. */
  stop(): void {
    this.isStopped = true;
    this.wake?.();
  }

  async *items(
    signal: AbortSignal | undefined,
    closers: Set<() => void>,
  ): AsyncGenerator<FollowedTransaction, void, undefined> {
    const { commitListeners } = this.source().commits;
    const onChange = () => this.wake?.();
    commitListeners.add(onChange);
    closers.add(onChange);
    signal?.addEventListener("abort", onChange);
    try {
      if (this.mark !== undefined) this.move();
      for (;;) {
        signal?.throwIfAborted();
        if (this.isStopped || this.isClosed()) return;
        const item = this.next();
        if (item !== undefined) {
          yield item;
          // The next one is asked for, so this one was handled.
          this.cursor = item.number;
          this.markAt = item.number;
          this.handled += 1;
          this.passed = 0;
          if (this.handled >= ITEMS_PER_MARK) this.move();
          continue;
        }
        if (this.handled > 0) this.move();
        if (this.source().engine.log.lastCommit() > this.cursor) continue;
        await new Promise<void>((resolve) => {
          this.wake = resolve;
        });
      }
    } finally {
      commitListeners.delete(onChange);
      closers.delete(onChange);
      signal?.removeEventListener("abort", onChange);
      this.walk?.stop();
      if (this.handled > 0 && this.isOpen() && this.source().guard.depth === 0) this.move();
    }
  }

  private isOpen(): boolean {
    return this.source().guard.isOpen();
  }

  /** Whether the handle was closed, and not the database lost to a failure, which `next` throws. */
  private isClosed(): boolean {
    return !this.isOpen() && this.source().guard.isUsable();
  }

  /** Moves the mark to what was handled. */
  private move(): void {
    this.handled = 0;
    if (this.mark !== undefined) retain(this.source(), this.mark, this.markAt);
  }

  /** The next transaction; `undefined` if there is none yet. */
  private next(): FollowedTransaction | undefined {
    const { engine, guard } = this.source();
    guard.assertReadable();
    const newest = engine.log.lastCommit();
    if (this.walk === undefined) {
      // The engine notes where what is newer will begin, even if nothing is yet.
      const known = engine.log.since(this.cursor);
      if (newest === this.cursor) return undefined;
      if ((known & IS_WHOLE) === 0) throw engine.log.expired();
      this.walk = new Walk(this.source, between(this.cursor));
      this.seen = newest;
    }
    for (;;) {
      const item = this.walk.nextItem();
      if (item === undefined) break;
      if (item.type === "error") throw item.error;
      if (item.type === "gap") throw engine.log.expired();
      const copy = item.moved ? undefined : this.copied(item);
      if (copy !== undefined) return copy;
    }
    this.walk = undefined;
    this.cursor = Math.max(this.cursor, this.seen);
    return undefined;
  }

  private copied(transaction: LogTransaction): FollowedTransaction | undefined {
    const records: FollowedRecord[] = [];
    for (const record of transaction) {
      const { type, collection, keyspace, key, version } = record;
      if (this.collection !== undefined && collection !== this.collection) continue;
      records.push({ type, collection, keyspace, key, version, value: record.value?.slice() });
    }
    if (records.length === 0) {
      this.passed += 1;
      // Otherwise the program's cursor would fall behind, and the mark with it.
      if (this.passed < ITEMS_PER_MARK) return undefined;
    }
    const { number, time, note, client } = transaction;
    return { number, time, note, client, records };
  }
}
