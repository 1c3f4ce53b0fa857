/**
 * What changes in ranges of keys, for `watch` and `live` of databases and of clients. A range is read once, when its
 * watch begins. From then on the engine reports written keys, and nothing else is read. In a range with a limit, keys
 * behind the last one are not read either. Changes are looked up after the commit, when no write is pending.
 */

import type { Engine } from "../engine/engine.js";
import { clearTimeout, setTimeout, unref } from "../util/clock.js";
import { NEW_TURN } from "./call-guard.js";
import type { Bounds } from "./key-range.js";
import type { Session } from "./session.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** The keys read in one step. */
const PAGE = 1_024;

/** The size at which the engine ends a page of keys. */
const PAGE_BYTES = 65_536;

/**
 * The most written keys of a keyspace that are remembered until the next report. With more, ranges are read
 * again.
 */
const MAX_CHANGED_KEYS = 10_000;

/** The most written keys within a limited range that are looked up. With more, the range is read again. */
const MAX_SINGLE_READS = 64;

/** The longest wait for an expiry: after it, the clock is looked at again, which may have been set. */
const MAX_WAIT_MS = 3_600_000;

/** A range of keys, or of the entries of an index. */
export interface WatchedRange {
  /** The keyspace, which changes for a collection that is migrated. */
  readonly keyspace: () => number;
  readonly bounds: Bounds;
  /** If the keys are entries of an index: the records that they are of. */
  readonly records?: RecordsOf | undefined;
}

/** The records that the entries of an index are of. */
export interface RecordsOf {
  readonly keyspace: () => number;
  /** The key of an entry's record. */
  readonly keyOf: (entry: Bytes) => Bytes;
}

/** Is given what is different in a range. */
export interface Collector {
  /**
   * Adds a key (or entry of an index) and the version of its record; 0 if it has left the range. `text` has one character
   * for each byte of the key.
   */
  add(text: string, key: Bytes, version: number): void;
}

/** Begins to collect. `isAll`: whether all keys of the range are added, in its order, whatever was there before. */
export type Collect<C extends Collector> = (keyspace: number, isAll: boolean) => C;

/** The keys that were written, by keyspace. */
export type WrittenKeys = ReadonlyMap<number, Written>;

/**
 * Notes which keys are written, and when records expire. After the commit it calls `report` with these keys, if one is in
 * a keyspace that is followed, when `later` runs its task.
 */
export class KeyNotes {
  private readonly session: Session;
  private readonly report: (written: WrittenKeys) => void;
  private readonly later: (task: () => void) => void;
  private written: Map<number, Written> = new Map();
  /** The keyspaces that are followed. */
  private followed: Set<number> = new Set();
  /** Whether something was written, or has expired, since the last report. */
  private isDue = false;
  private isScheduled = false;
  /** Whether a report had to wait for another commit. */
  private isLate = false;
  /** Whether written keys were lost by a failed commit, so that everything is read again. */
  private areLost = false;
  /** The next expiry of a followed record, in seconds since 1970. */
  private expires = Number.POSITIVE_INFINITY;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopNoting: (() => void) | undefined;

  constructor(
    session: Session,
    report: (written: WrittenKeys) => void,
    later: (task: () => void) => void = soon,
  ) {
    this.session = session;
    this.report = report;
    this.later = later;
  }

  /** Follows a range until the next report, where it has to be followed again. */
  follow(range: RangeState): void {
    for (const keyspace of range.keyspaces) this.followed.add(keyspace);
    if (range.expires < this.expires) {
      this.expires = range.expires;
      this.awaitExpiry();
    }
    this.stopNoting ??= this.begin();
  }

  /** Ends it, until a range is followed. */
  stop(): void {
    this.stopNoting?.();
    this.stopNoting = undefined;
    clearTimeout(this.timer);
    this.forget();
  }

  private forget(): WrittenKeys {
    const { written } = this;
    this.written = new Map();
    this.followed = new Set();
    this.isDue = false;
    this.isLate = false;
    this.areLost = false;
    this.expires = Number.POSITIVE_INFINITY;
    return written;
  }

  private begin(): () => void {
    const { clock, commits, engine } = this.session;
    const stopObserving = engine.observeKeys(
      (keyspace, length) => this.noteWritten(keyspace, length),
      (keyspace) => this.noteCleared(keyspace),
    );
    const onCommit = (error?: Error) => {
      if (error !== undefined) {
        this.areLost = true;
        this.isDue = true;
      }
      if (this.isDue) this.schedule();
    };
    const onTime = () => this.noteTime();
    commits.commitListeners.add(onCommit);
    clock.listeners.add(onTime);
    return () => {
      stopObserving();
      commits.commitListeners.delete(onCommit);
      clock.listeners.delete(onTime);
    };
  }

  /** Records that this key is about to be written. */
  private noteWritten(keyspace: number, length: number): void {
    // Another keyspace may become that of a watched collection. Then the whole range is read.
    this.isDue = true;
    const written = this.writtenIn(keyspace);
    if (this.followed.has(keyspace)) written.add(textOf(this.session.engine.encoded(length)));
  }

  /** Records that keys of this keyspace are about to be deleted; the engine does not report which. */
  private noteCleared(keyspace: number): void {
    this.isDue = true;
    this.writtenIn(keyspace).isUnknown = true;
  }

  private writtenIn(keyspace: number): Written {
    let written = this.written.get(keyspace);
    if (written === undefined) {
      written = new Written();
      this.written.set(keyspace, written);
    }
    return written;
  }

  /** Records that time has gone on. */
  private noteTime(): void {
    if (this.expires > this.session.engine.now) return;
    this.isDue = true;
    this.schedule();
  }

  /** The engine reports no expiry, and a database that is not called looks at no clock. */
  private awaitExpiry(): void {
    clearTimeout(this.timer);
    const { settings } = this.session;
    if (!settings.timers || this.expires === Number.POSITIVE_INFINITY) return;
    const wait = Math.min(Math.max(this.expires * 1000 - Date.now(), 0), MAX_WAIT_MS);
    this.timer = setTimeout(() => {
      const { guard } = this.session;
      if (!guard.isOpen()) return;
      if (this.expires * 1000 > Date.now()) this.awaitExpiry();
      else {
        this.isDue = true;
        this.schedule();
      }
    }, wait);
    // It does not keep a program alive.
    unref(this.timer);
  }

  private schedule(): void {
    if (this.isScheduled) return;
    this.isScheduled = true;
    // A report that had to wait is made before anything else is written.
    (this.isLate ? soon : this.later)(() => this.reportNow());
  }

  private reportNow(): void {
    this.isScheduled = false;
    const { commits, engine, guard } = this.session;
    if (!this.isDue || this.stopNoting === undefined) return;
    if (guard.isOpen()) {
      if (engine.pending() !== 0) {
        // What is pending may still be undone. Its commit is followed by the report.
        this.isLate = true;
        return;
      }
      // All records are looked at by the same time.
      try {
        if ((guard.gate & NEW_TURN) !== 0) guard.onNewTurn?.();
      } catch (error) {
        commits.fail(error as Error);
      }
    }
    const { areLost } = this;
    const written = this.forget();
    clearTimeout(this.timer);
    this.report(areLost ? UNKNOWN : written);
  }
}

function soon(task: () => void): void {
  // Not queueMicrotask: the fake clocks of tests delay it.
  Promise.resolve().then(task);
}

/** A range that is watched: what was reported of it. Keys are strings with the order of their bytes. */
export class RangeState {
  readonly range: WatchedRange;
  /** No known key expires before this time, in seconds since 1970. */
  expires = Number.POSITIVE_INFINITY;
  private readonly session: Session;
  private keyspace: number;
  private recordKeyspace: number;
  /** The reported versions, by key. */
  private readonly known: Map<string, number> = new Map();
  /** The last key of a range that has a limit and is full: no key behind it is in the range. */
  private last: string | undefined;
  /** When the known keys expire that do, in seconds since 1970. */
  private readonly expiries: Map<string, number> = new Map();
  /** Entries of an index, by the keys of their records: of most records one, of others a set. */
  private readonly entries: Map<string, string | Set<string>> | undefined;

  constructor(session: Session, range: WatchedRange) {
    this.session = session;
    this.range = range;
    this.keyspace = range.keyspace();
    this.recordKeyspace = range.records?.keyspace() ?? this.keyspace;
    this.entries = range.records && new Map();
    this.last = undefined;
  }

  /** The keyspaces whose keys matter. */
  get keyspaces(): readonly number[] {
    return [this.keyspace, this.recordKeyspace];
  }

  /** The keys whose versions differ from the reported ones. Only written keys, and those that have expired, are read. */
  changes<C extends Collector>(written: WrittenKeys, collect: Collect<C>): C | undefined {
    const { range } = this;
    const keyspace = range.keyspace();
    const recordKeyspace = range.records?.keyspace() ?? keyspace;
    if (keyspace !== this.keyspace || recordKeyspace !== this.recordKeyspace) {
      this.keyspace = keyspace;
      this.recordKeyspace = recordKeyspace;
      return this.readAll(collect);
    }
    if (range.bounds.limit === 0) return undefined;
    if (written === UNKNOWN) return this.readAll(collect);
    const keys = this.writtenKeys(written);
    if (keys === undefined) return this.readAll(collect);
    const due = this.dueKeys();
    const all = due.length === 0 ? keys : [...new Set([...keys, ...due])];
    if (all.length === 0) return undefined;
    const isLimited = range.bounds.limit !== Number.POSITIVE_INFINITY;
    return isLimited && all.length > MAX_SINGLE_READS
      ? this.readAll(collect)
      : this.readKeys(all, collect);
  }

  /** Reads the whole range: the keys with other versions than the reported ones, and removed keys. */
  readAll<C extends Collector>(collect: Collect<C>, isAll = false): C {
    const { range, keyspace, known } = this;
    const changes = collect(keyspace, isAll);
    const present = new Set<string>();
    this.last = undefined;
    this.expires = Number.POSITIVE_INFINITY;
    for (const key of this.keysIn(range.bounds)) {
      const text = textOf(key);
      const version = this.versionOf(text, key);
      present.add(text);
      if (present.size === range.bounds.limit) this.last = text;
      if (known.get(text) === version) continue;
      known.set(text, version);
      changes.add(text, key, version);
    }
    for (const text of known.keys()) {
      if (present.has(text)) continue;
      this.forget(text);
      changes.add(text, bytesOf(text), 0);
    }
    return changes;
  }

  /** The written keys within the range, in the order in which they were written. `undefined` if there may be others. */
  private writtenKeys(written: WrittenKeys): readonly string[] | undefined {
    const { entries, last, range } = this;
    const bounds = last === undefined ? range.bounds : upTo(range.bounds, bytesOf(last));
    const own = written.get(this.keyspace)?.within(bounds);
    if (own === undefined && written.has(this.keyspace)) return undefined;
    if (entries === undefined) return own ?? [];
    // A record may change while its entry stays.
    const records = written.get(this.recordKeyspace)?.within(EVERYTHING);
    if (records === undefined && written.has(this.recordKeyspace)) return undefined;
    const all = new Set(own);
    for (const record of records ?? []) {
      const known = entries.get(record) ?? [];
      for (const entry of typeof known === "string" ? [known] : known) all.add(entry);
    }
    return [...all];
  }

  /** Reads these keys of the range, and those that take the place of removed ones. */
  private readKeys<C extends Collector>(keys: readonly string[], collect: Collect<C>): C {
    const { range, known, last } = this;
    const { limit, reverse } = range.bounds;
    const before = new Map<string, number | undefined>();
    const note = (text: string, version: number) => {
      if (!before.has(text)) before.set(text, known.get(text));
      if (version === 0) this.forget(text);
      else known.set(text, version);
    };
    for (const text of keys) {
      const version = this.versionOf(text, bytesOf(text));
      if ((known.get(text) ?? 0) !== version) note(text, version);
    }
    if (last !== undefined && known.size < limit) {
      // Keys behind the last one move up.
      const rest = behind(range.bounds, bytesOf(last), limit - known.size);
      for (const key of this.keysIn(rest)) {
        const text = textOf(key);
        note(text, this.versionOf(text, key));
      }
    }
    while (known.size > limit) note(lastOf(known, reverse), 0);
    // The keys are the same if none has come or gone. Finding the last one takes longer than everything else.
    const isOther = [...before].some(
      ([text, version]) => (version === undefined) === known.has(text),
    );
    if (isOther) this.last = known.size === limit ? lastOf(known, reverse) : undefined;
    const changes = collect(this.keyspace, false);
    for (const [text, version = 0] of before) {
      const now = known.get(text) ?? 0;
      if (now !== version) changes.add(text, bytesOf(text), now);
    }
    return changes;
  }

  private versionOf(text: string, key: Bytes): number {
    const { records } = this.range;
    const { engine } = this.session;
    let version = engine.version(engine.encodeKey(key), this.keyspace);
    if (records !== undefined && version !== 0) {
      const record = records.keyOf(key);
      version = engine.version(engine.encodeKey(record), this.recordKeyspace);
      if (version !== 0) this.noteEntry(textOf(record), text);
    }
    const expires = engine.foundExpiry();
    if (version === 0 || expires === 0) {
      this.expiries.delete(text);
      return version;
    }
    this.expiries.set(text, expires);
    this.expires = Math.min(this.expires, expires);
    return version;
  }

  /** The known keys that have expired. Looks at all that expire only once one of them may have. */
  private dueKeys(): string[] {
    const { now } = this.session.engine;
    const due: string[] = [];
    if (this.expires > now) return due;
    this.expires = Number.POSITIVE_INFINITY;
    for (const [text, expires] of this.expiries) {
      if (expires <= now) due.push(text);
      else this.expires = Math.min(this.expires, expires);
    }
    return due;
  }

  private forget(text: string): void {
    const { entries, expiries, known, range } = this;
    known.delete(text);
    expiries.delete(text);
    if (entries === undefined || range.records === undefined) return;
    const record = textOf(range.records.keyOf(bytesOf(text)));
    // The record may have other entries.
    const own = entries.get(record);
    if (own === text) entries.delete(record);
    else if (typeof own === "object") {
      own.delete(text);
      if (own.size === 1) for (const rest of own) entries.set(record, rest);
    }
  }

  private noteEntry(record: string, text: string): void {
    const { entries } = this;
    const own = entries?.get(record);
    if (own === undefined) entries?.set(record, text);
    else if (typeof own === "object") own.add(text);
    else if (own !== text) entries?.set(record, new Set([own, text]));
  }

  private *keysIn(bounds: Bounds): Generator<Bytes> {
    const { engine }: { engine: Engine } = this.session;
    let { lower, upper, lowerExcluded, upperIncluded, limit: left } = bounds;
    const { reverse } = bounds;
    while (left > 0) {
      const range = { lower, upper, lowerExcluded, upperIncluded, reverse };
      const { bytes, numbers, count } = engine.scan(
        range,
        Math.min(PAGE, left),
        false,
        this.keyspace,
      );
      let key = new Uint8Array(0);
      for (let i = 0; i < count; i++) {
        key = bytes.slice(numbers[i], numbers[i + 1]);
        yield key;
      }
      // A page of long keys has fewer than were asked for.
      if (count < PAGE && bytes.length < PAGE_BYTES) return;
      left -= count;
      if (reverse) [upper, upperIncluded] = [key, false];
      else [lower, lowerExcluded] = [key, true];
    }
  }
}

/** The part of a range up to one of its keys, with that key. */
function upTo(bounds: Bounds, key: Bytes): Bounds {
  return bounds.reverse
    ? { ...bounds, lower: key, lowerExcluded: false }
    : { ...bounds, upper: key, upperIncluded: true };
}

/** The part of a range behind a key. */
function behind(bounds: Bounds, key: Bytes, limit: number): Bounds {
  return bounds.reverse
    ? { ...bounds, limit, upper: key, upperIncluded: false }
    : { ...bounds, limit, lower: key, lowerExcluded: true };
}

/** The last key in the order in which a range is read. */
function lastOf(known: ReadonlyMap<string, number>, reverse: boolean): string {
  let last: string | undefined;
  for (const text of known.keys()) {
    if (last === undefined || text > last !== reverse) last = text;
  }
  return last as string;
}

const EVERYTHING = {
  lower: undefined,
  lowerExcluded: false,
  upper: undefined,
  upperIncluded: false,
};

/** The written keys of one keyspace. */
class Written {
  /** Whether further keys were deleted that the engine has not named. */
  isUnknown = false;
  /** The keys, with the order in which they were last written. */
  private readonly keys: Map<string, number> = new Map();
  private count = 0;
  /** The keys in order, computed when needed. */
  private sorted: readonly string[] | undefined;
  /** The first and the last key, once there are too many to keep each. */
  private ends: [string, string] | undefined;

  add(key: string): void {
    const { ends, keys } = this;
    if (ends !== undefined) {
      if (key < ends[0]) ends[0] = key;
      if (key > ends[1]) ends[1] = key;
      return;
    }
    this.count += 1;
    keys.set(key, this.count);
    if (keys.size <= MAX_CHANGED_KEYS) return;
    const all = [...keys.keys()].sort();
    this.ends = [all[0] as string, all[all.length - 1] as string];
    keys.clear();
  }

  /**
   * The keys within bounds, in the order in which they were last written. `undefined` if there may be unknown
   * ones.
   */
  within({
    lower,
    lowerExcluded,
    upper,
    upperIncluded,
  }: Pick<Bounds, "lower" | "lowerExcluded" | "upper" | "upperIncluded">):
    | readonly string[]
    | undefined {
    if (this.isUnknown) return undefined;
    this.sorted ??= [...this.keys.keys()].sort();
    const keys = this.ends ?? this.sorted;
    const position = (key: string) => this.keys.get(key) as number;
    const from = lower === undefined ? 0 : indexOf(keys, textOf(lower), lowerExcluded);
    const to = upper === undefined ? keys.length : indexOf(keys, textOf(upper), upperIncluded);
    if (this.ends === undefined)
      return keys.slice(from, to).sort((a, b) => position(a) - position(b));
    return from < keys.length && to > 0 ? undefined : [];
  }
}

/** Keys that are not known: every range is read again. */
const UNKNOWN: WrittenKeys = new Map();

/** The number of keys before a key, or up to it. */
function indexOf(sorted: readonly string[], key: string, isWith: boolean): number {
  let [from, to] = [0, sorted.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    const other = sorted[middle] as string;
    if (other < key || (isWith && other === key)) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** The bytes as a string with one character each. */
export function textOf(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function bytesOf(text: string): Bytes {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}
