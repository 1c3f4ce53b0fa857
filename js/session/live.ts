/** `watch` and `live` of an open database: the changes in ranges, reported after each commit. */

import { badCall } from "../errors/index.js";
import { queueMicrotask } from "../util/clock.js";
import type { CommitScheduler } from "./commit-scheduler.js";
import { KeptRows } from "./kept-rows.js";
import type { Session } from "./session.js";
import {
  type Collector,
  KeyNotes,
  RangeState,
  textOf,
  type WatchedRange,
  type WrittenKeys,
} from "./watched-ranges.js";
import {
  type Begin,
  type EndListener,
  type KeyChange,
  subscribed,
  type Watching,
  type WatchOptions,
} from "./watching.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** What is watched. */
export interface LocalRange extends WatchedRange {
  readonly source: () => Session;
  /** What is called when the handle closes; `undefined` for a snapshot, where nothing changes. */
  readonly closers: Set<() => void> | undefined;
  /** The key of a record, from that of the engine or the entry of an index. */
  readonly keyOf: (bytes: Bytes) => unknown;
}

/** A range whose records are read. */
export interface LocalRows extends LocalRange {
  /** A copy of the record whose value is at this address. Its length is the engine's `foundLength()`. */
  readonly valueAt: (session: Session, at: number) => unknown;
}

/** A range that is watched, and what is called. */
interface LocalWatch {
  readonly state: RangeState;
  /** Looks for changes; calls the listener if there are some. */
  update(written: WrittenKeys): void;
  /** Ends it, for a reason or because the handle was closed. */
  end(reason?: unknown): void;
}

/** All watches of one open database, whichever handle they are of. */
class LocalWatches {
  private readonly all: Set<LocalWatch> = new Set();
  private readonly notes: KeyNotes;

  constructor(session: Session) {
    this.notes = new KeyNotes(session, (written) => this.updateAll(written));
  }

  add(watch: LocalWatch): void {
    this.all.add(watch);
    this.notes.follow(watch.state);
  }

  remove(watch: LocalWatch): void {
    if (this.all.delete(watch) && this.all.size === 0) this.notes.stop();
  }

  private updateAll(written: WrittenKeys): void {
    for (const watch of this.all) {
      try {
        watch.update(written);
        this.notes.follow(watch.state);
      } catch (error) {
        watch.end(error);
      }
    }
  }
}

/** The watches of open databases, by what their handles share. */
const known = new WeakMap<CommitScheduler, LocalWatches>();

function watchesOf(session: Session): LocalWatches {
  let watches = known.get(session.commits);
  if (watches === undefined) {
    watches = new LocalWatches(session);
    known.set(session.commits, watches);
  }
  return watches;
}

/**
 * Begins to watch a range. `read` is called at once, and then whenever something was written. It returns what reports the
 * changes, if there are some.
 */
function begun(
  call: string,
  range: LocalRange,
  onEnd: EndListener,
  read: (state: RangeState, written: WrittenKeys | undefined) => (() => void) | undefined,
): () => void {
  const { closers } = range;
  if (closers === undefined) throw unchanging(call);
  const session = range.source();
  session.guard.assertOutsideCallback(call);
  const watches = watchesOf(session);
  const state = new RangeState(session, range);
  let isOver = false;
  const update = (written?: WrittenKeys) => {
    const report = read(state, written);
    // If a listener throws, that is an uncaught error, and neither a write nor the watch fails.
    if (report) queueMicrotask(() => isOver || report());
  };
  update();
  const close = () => {
    isOver = true;
    watches.remove(watch);
    closers.delete(ended);
  };
  const watch: LocalWatch = {
    state,
    update,
    end(reason) {
      close();
      // What came before the reason is still reported. After the handle was closed, nothing is.
      isOver = reason === undefined;
      onEnd(reason);
    },
  };
  const ended = () => watch.end();
  closers.add(ended);
  watches.add(watch);
  return close;
}

/** Checks what a call was given before it begins, as every call of a database does. */
function check(call: string, { closers, source }: LocalRange): void {
  if (closers === undefined) throw unchanging(call);
  source().guard.assertOutsideCallback(call);
}

function unchanging(call: string): Error {
  return badCall(
    `A snapshot never changes, so it has no ${call}. Call it on a collection of the database.`,
  );
}

/** The changes in a range, for a listener or a loop. */
export function watchRange<K>(
  call: string,
  range: LocalRange,
  to: ((changes: readonly KeyChange<K>[]) => void) | WatchOptions | undefined,
  more: readonly unknown[],
) {
  check(call, range);
  const names = new WeakMap<KeyChange<K>, string>();
  const begin: Begin<readonly KeyChange<K>[]> = (listener, onEnd) => {
    const nothing: Collector = { add() {} };
    return begun(call, range, onEnd, (state, written) => {
      if (written === undefined) {
        state.readAll(() => nothing, true);
        return;
      }
      const changed = state.changes(written, () => new ChangedKeys<K>(range, names))?.list() ?? [];
      return changed.length > 0 ? () => listener(changed) : undefined;
    });
  };
  const merge = (waiting: readonly KeyChange<K>[], others: readonly KeyChange<K>[]) => [
    ...new Map([...waiting, ...others].map((one) => [names.get(one), one])).values(),
  ];
  return subscribed(begin, merge, to, more);
}

/** Changed keys. A record whose entry in an index has moved is one of them. */
class ChangedKeys<K> implements Collector {
  private readonly range: LocalRange;
  private readonly names: WeakMap<KeyChange<K>, string>;
  private readonly all: Map<string, KeyChange<K>> = new Map();

  constructor(range: LocalRange, names: WeakMap<KeyChange<K>, string>) {
    this.range = range;
    this.names = names;
  }

  add(text: string, key: Bytes, version: number): void {
    const { all, names, range } = this;
    const name = range.records === undefined ? text : textOf(range.records.keyOf(key));
    if (version === 0 && all.has(name)) return;
    const change: KeyChange<K> = { key: range.keyOf(key) as K, version };
    names.set(change, name);
    all.set(name, change);
  }

  list(): readonly KeyChange<K>[] {
    return [...this.all.values()];
  }
}

/** The contents of a range now and after every change, for a listener or a loop. */
export function liveRange<T>(
  call: string,
  range: LocalRows,
  to: ((rows: T) => void) | WatchOptions | undefined,
  more: readonly unknown[],
): Watching | AsyncGenerator<T, void, undefined> {
  check(call, range);
  const begin: Begin<T> = (listener, onEnd) => {
    const kept = new KeptRows(range.bounds.reverse);
    return begun(call, range, onEnd, (state, written) => {
      const collect = (keyspace: number, isAll: boolean) =>
        new ChangedRows(range, range.records?.keyspace() ?? keyspace, isAll);
      const changed =
        written === undefined ? state.readAll(collect, true) : state.changes(written, collect);
      if (changed === undefined || (written !== undefined && changed.changes.length === 0)) return;
      kept.apply(changed, changed.rows);
      const list = kept.list() as T;
      return () => listener(list);
    });
  };
  return subscribed(begin, (_, rows) => rows, to, more);
}

/** Changed rows, with copies of their records. */
class ChangedRows implements Collector {
  readonly changes: [text: string, version: number][] = [];
  readonly rows: [key: unknown, value: unknown][] = [];
  readonly isAll: boolean;
  private readonly range: LocalRows;
  private readonly keyspace: number;

  constructor(range: LocalRows, keyspace: number, isAll: boolean) {
    this.isAll = isAll;
    this.range = range;
    this.keyspace = keyspace;
  }

  add(text: string, key: Bytes, version: number): void {
    const { changes, keyspace, range, rows } = this;
    changes.push([text, version]);
    if (version === 0) return;
    const session = range.source();
    const { engine } = session;
    const record = range.records?.keyOf(key) ?? key;
    const at = engine.find(engine.encodeKey(record), keyspace);
    rows.push([range.keyOf(key), range.valueAt(session, at)]);
  }
}
