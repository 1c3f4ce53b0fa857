/**
 * The owner's side of `watch` and `live`: the changes in watched ranges, sent after each commit. A range is read once,
 * when its watch begins. From then on the engine reports written keys, and nothing else is read. In a range
 * with a limit, keys behind the last one are not read either. The values for `live` are read in the same synchronous
 * step in which the changes are found, so that each message is of one moment.
 */

import { Database } from "../../database/database.js";
import type { Engine } from "../../engine/engine.js";
import { RAW } from "../../engine/wasm-memory.js";
import { badArgument } from "../../errors/index.js";
import { NEW_TURN } from "../../session/call-guard.js";
import { type Bounds, boundsOf, type TextRange } from "../../session/key-range.js";
import type { Session } from "../../session/session.js";
import { monotonicNow, queueMicrotask, setTimeout } from "../../util/clock.js";
import { decoder } from "../../util/text-coders.js";
import { toWire } from "../protocol/errors.js";
import type { Watch, WatchUpdate } from "../protocol/messages.js";
import { type Subscription, Subscriptions } from "../protocol/owner-subscriptions.js";
import type { ValueForm } from "../protocol/packed-rows.js";
import { keyFormOf, plain, type ServedCollections } from "./collection-handlers.js";
import { packRange, ValuePacker } from "./row-packer.js";

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

/** A watched range of keys, and the conversion of its keys for the client. */
export interface WatchedRange {
  /** The keyspace, which changes for a collection that is migrated. */
  readonly keyspace: () => number;
  readonly bounds: Bounds;
  readonly keyOf: (bytes: Uint8Array<ArrayBuffer>) => unknown;
  /** How rows are sent, if the watch is for rows. */
  readonly rows?: RowForm | undefined;
}

/** How the rows of a watch are sent. */
interface RowForm {
  /** How the client decodes the keys; `undefined` if only the worker can. */
  readonly keys: "text" | "bytes" | undefined;
  /** The form of the packed values; `undefined` if only the worker can decode them. */
  readonly values: ValueForm | undefined;
  /** The decoded value of a key. */
  readonly get: (key: unknown) => unknown;
}

/** The state of a watch, as last reported. Keys are strings with the order of their bytes. */
interface WatchState {
  readonly range: WatchedRange;
  keyspace: number;
  /** The reported versions, by key. */
  readonly known: Map<string, number>;
  /** The last key of a range that has a limit and is full: no key behind it is in the range. */
  last: string | undefined;
  /** No known key expires before this time, in seconds since 1970. Only watches of rows need it. */
  expires: number;
}

/** What a message says. */
type Contents = Pick<WatchUpdate, "changes" | "rows">;

/** All watches of one owner. */
export class Watches {
  private readonly owner: string;
  private readonly db: Database;
  private readonly engine: Engine;
  private readonly collections: ServedCollections;
  private readonly all: Subscriptions<WatchState>;
  /** The keys written since the last report, by keyspace; only those of watched keyspaces are kept. */
  private written: Map<number, Written>;
  /** The keyspaces that are watched. */
  private watched: Set<number>;
  private isDue: boolean;
  private unobserve: (() => void) | undefined;

  constructor(owner: string, db: Database, collections: ServedCollections) {
    this.owner = owner;
    this.db = db;
    this.engine = Database.sessionOf(db).engine;
    this.collections = collections;
    this.all = new Subscriptions(owner);
    this.written = new Map();
    this.watched = new Set();
    this.isDue = false;
    this.unobserve = undefined;
  }

  /** Begins a watch with a full answer, or renews it if its client has missed no message. */
  add(watch: Watch, respond: (message: WatchUpdate) => void): void {
    const now = monotonicNow();
    if (this.all.renew(watch, respond, now)) return;
    const range = this.watchedRangeOf(watch);
    const state: WatchState = {
      range,
      keyspace: range.keyspace(),
      known: new Map(),
      last: undefined,
      expires: Number.POSITIVE_INFINITY,
    };
    const { changes, rows } = this.readRange(state, true);
    this.all.begin(watch, respond, now, state, changes, rows);
    this.watched.add(state.keyspace);
    this.unobserve ??= this.engine.observeKeys(
      (keyspace, length) => this.noteWritten(keyspace, length),
      (keyspace) => this.noteCleared(keyspace),
    );
  }

  /** The message for a watch that cannot begin. */
  refusal({ id }: Watch, error: unknown, wire = toWire(error)): WatchUpdate {
    const { owner } = this;
    const none = { epoch: 0, number: -1, isAll: false, changes: [] };
    return { type: "changes", owner, id, ...none, error: wire };
  }

  remove(watch: { client: number; id: number }): void {
    this.all.remove(watch);
    if (this.all.size === 0) this.stop();
  }

  stop(): void {
    this.all.clear();
    this.unobserve?.();
    this.unobserve = undefined;
  }

  // ---------------------------------------------------------------- written keys

  /** Records that this key is about to be written. */
  private noteWritten(keyspace: number, length: number): void {
    const written = this.writtenIn(keyspace);
    // Another keyspace may become that of a watched collection. Then the whole range is read.
    if (this.watched.has(keyspace)) written.add(textOf(this.engine.encoded(length)));
    this.scheduleNotify();
  }

  /** Records that keys of this keyspace are about to be deleted; the engine does not report which. */
  private noteCleared(keyspace: number): void {
    this.writtenIn(keyspace).isUnknown = true;
    this.scheduleNotify();
  }

  private writtenIn(keyspace: number): Written {
    let written = this.written.get(keyspace);
    if (written === undefined) {
      written = new Written();
      this.written.set(keyspace, written);
    }
    return written;
  }

  private scheduleNotify(): void {
    if (this.isDue) return;
    this.isDue = true;
    // The write itself follows, and then its commit.
    queueMicrotask(() => {
      const notifyLater = () => setTimeout(() => this.notifyAll());
      this.db.committed.then(notifyLater, notifyLater);
    });
  }

  private notifyAll(): void {
    const { all, written } = this;
    this.written = new Map();
    this.watched = new Set();
    this.isDue = false;
    all.endLapsed(monotonicNow());
    for (const subscription of all) {
      try {
        const { changes, rows } = this.changesIn(subscription.state, written);
        all.notify(subscription, changes, rows);
        this.watched.add(subscription.state.keyspace);
      } catch (error) {
        this.end(subscription, error);
      }
    }
    if (all.size === 0) this.stop();
  }

  /**
   * Ends a watch whose range is bad. After any other error, the client begins it again, with this owner or
   * the next.
   */
  private end(subscription: Subscription<WatchState>, error: unknown): void {
    if (isBadArgument(error)) {
      this.all.remove(subscription.watch);
      subscription.respond(this.refusal(subscription.watch, error));
    } else {
      this.all.endForRestart(subscription);
    }
  }

  /** The keys whose versions differ from the reported ones. Only written keys are read. */
  private changesIn(state: WatchState, all: ReadonlyMap<number, Written>): Contents {
    const { range, last } = state;
    const keyspace = range.keyspace();
    if (keyspace !== state.keyspace) {
      state.keyspace = keyspace;
      return this.readRange(state);
    }
    const written = all.get(keyspace);
    if (written === undefined || range.bounds.limit === 0) return NOTHING;
    const keys = written.within(
      last === undefined ? range.bounds : upTo(range.bounds, bytesOf(last)),
    );
    if (keys === undefined) return this.readRange(state);
    // Nothing reports that a key has expired.
    if (range.rows !== undefined && keys.length > 0 && state.expires <= this.now())
      return this.readRange(state);
    const isLimited = range.bounds.limit !== Number.POSITIVE_INFINITY;
    return isLimited && keys.length > MAX_SINGLE_READS
      ? this.readRange(state)
      : this.readKeys(state, keys);
  }

  // ---------------------------------------------------------------- reading ranges

  /** Reads these keys of the range, and those that take the place of removed ones. */
  private readKeys(state: WatchState, keys: readonly string[]): Contents {
    const { range, known, last } = state;
    const { limit, reverse } = range.bounds;
    const before = new Map<string, number | undefined>();
    const note = (text: string, version: number) => {
      if (!before.has(text)) before.set(text, known.get(text));
      if (version === 0) known.delete(text);
      else known.set(text, version);
    };
    for (const text of keys) {
      const version = this.versionOf(bytesOf(text), state);
      if ((known.get(text) ?? 0) !== version) note(text, version);
    }
    if (last !== undefined && known.size < limit) {
      // Keys behind the last one move up.
      const rest = behind(range.bounds, bytesOf(last), limit - known.size);
      for (const key of this.keysIn(rest, state.keyspace)) {
        note(textOf(key), this.versionOf(key, state));
      }
    }
    while (known.size > limit) note(lastOf(known, reverse), 0);
    // The keys are the same if none has come or gone. Finding the last one takes longer than everything else.
    const isOther = [...before].some(
      ([text, version]) => (version === undefined) === known.has(text),
    );
    if (isOther) state.last = known.size === limit ? lastOf(known, reverse) : undefined;
    const changes = this.collect(state);
    for (const [text, version = 0] of before) {
      const now = known.get(text) ?? 0;
      if (now !== version) changes.add(text, bytesOf(text), now);
    }
    return changes.contents();
  }

  /** Reads the whole range: the keys with other versions than the reported ones, and removed keys. */
  private readRange(state: WatchState, isAll = false): Contents {
    const { range, keyspace, known } = state;
    const changes = this.collect(state, isAll);
    const present = new Set<string>();
    state.last = undefined;
    state.expires = Number.POSITIVE_INFINITY;
    for (const key of this.keysIn(range.bounds, keyspace)) {
      const text = textOf(key);
      const version = this.versionOf(key, state);
      present.add(text);
      if (present.size === range.bounds.limit) state.last = text;
      if (known.get(text) === version) continue;
      known.set(text, version);
      changes.add(text, key, version);
    }
    for (const text of known.keys()) {
      if (present.has(text)) continue;
      known.delete(text);
      changes.add(text, bytesOf(text), 0);
    }
    return changes.contents();
  }

  private collect({ range, keyspace }: WatchState, isAll = false): Collected {
    return new Collected(Database.sessionOf(this.db), range, keyspace, isAll);
  }

  private versionOf(key: Uint8Array<ArrayBuffer>, state: WatchState): number {
    const { engine } = this;
    const version = engine.version(engine.encodeKey(key), state.keyspace);
    const expires = engine.foundExpiry();
    if (expires !== 0 && expires < state.expires) state.expires = expires;
    return version;
  }

  /** The time in seconds since 1970 up to which records have expired: one time for a whole turn. */
  private now(): number {
    const { guard } = Database.sessionOf(this.db);
    if ((guard.gate & NEW_TURN) !== 0) guard.onNewTurn?.();
    return this.engine.now;
  }

  private *keysIn(bounds: Bounds, keyspace: number): Generator<Uint8Array<ArrayBuffer>> {
    let { lower, upper, lowerExcluded, upperIncluded, limit: left } = bounds;
    const { reverse } = bounds;
    while (left > 0) {
      const range = { lower, upper, lowerExcluded, upperIncluded, reverse };
      const { bytes, numbers, count } = this.engine.scan(
        range,
        Math.min(PAGE, left),
        false,
        keyspace,
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

  /** @throws TypeError for an invalid range, or a database without an order of keys */
  private watchedRangeOf({ collection, range, call = "watch()", rows }: Watch): WatchedRange {
    Database.sessionOf(this.db).checkRange(call);
    if (collection !== undefined) {
      const of = this.collections.get(collection);
      const { keyKind, ...reach } = of.reach(call, range as object);
      if (rows === undefined) return reach;
      const keys = keyFormOf(keyKind);
      const values = this.collections.formOf(collection, rows);
      return { ...reach, rows: { keys, values, get: (key) => plain(of.get(key)) } };
    }
    const bounds = boundsOf(call, range as TextRange, true);
    const keyOf = (key: Uint8Array) => (bounds.asBytes ? key : stringOf(key));
    const keys = bounds.asBytes ? "bytes" : "text";
    const form = rows && ({ keys, values: "bytes", get: keyOf } as const);
    return { keyspace: () => RAW, bounds, keyOf, rows: form } as WatchedRange;
  }
}

const NOTHING: Contents = { changes: [] };

/** Changes that are found one after the other, for one message. */
class Collected {
  private readonly session: Session;
  private readonly range: WatchedRange;
  private readonly keyspace: number;
  /** Whether all rows of the range are added, in its order. Together they are read in less time. */
  private readonly isAll: boolean;
  private readonly changes: [key: unknown, version: number][] = [];
  private readonly keys: unknown[] = [];
  private readonly values: unknown[] = [];
  private readonly packer: ValuePacker | undefined;

  constructor(session: Session, range: WatchedRange, keyspace: number, isAll: boolean) {
    this.session = session;
    this.isAll = isAll;
    this.range = range;
    this.keyspace = keyspace;
    const form = range.rows?.values;
    this.packer = form && new ValuePacker(form);
  }

  add(text: string, key: Uint8Array<ArrayBuffer>, version: number): void {
    const { changes, isAll, keys, keyspace, packer, range, session, values } = this;
    const { engine } = session;
    const { keyOf, rows } = range;
    if (rows === undefined) {
      changes.push([keyOf(key), version]);
      return;
    }
    changes.push([text, version]);
    if (version === 0) return;
    if (rows.keys === undefined) keys.push(keyOf(key));
    if (packer === undefined) values.push(rows.get(keyOf(key)));
    else if (!isAll) {
      const at = engine.find(engine.encodeKey(key), keyspace);
      packer.add(engine.u8, at, engine.foundLength());
    }
  }

  contents(): Contents {
    const { changes, isAll, keyspace, packer, range, session } = this;
    const { bounds, rows } = range;
    if (rows === undefined) return { changes };
    const values =
      packer === undefined
        ? { rows: this.values }
        : isAll
          ? packRange(
              { session, keyspace, bounds, form: rows.values, keyForm: undefined },
              undefined,
            )
          : packer.answer();
    return { changes, rows: { keys: rows.keys ?? this.keys, values } };
  }
}

function isBadArgument(error: unknown): boolean {
  return (error as { code?: unknown }).code === "VARVE_BAD_ARGUMENT";
}

function stringOf(key: Uint8Array): string {
  try {
    return decoder.decode(key);
  } catch {
    throw badArgument(
      'A key in this range is not UTF-8. Get keys as bytes with the option keyAs: "bytes".',
    );
  }
}

/** The part of a range up to one of its keys, with that key. */
function upTo(bounds: Bounds, key: Uint8Array<ArrayBuffer>): Bounds {
  return bounds.reverse
    ? { ...bounds, lower: key, lowerExcluded: false }
    : { ...bounds, upper: key, upperIncluded: true };
}

/** The part of a range behind a key. */
function behind(bounds: Bounds, key: Uint8Array<ArrayBuffer>, limit: number): Bounds {
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

/** The written keys of one keyspace. */
class Written {
  /** Whether further keys were deleted that the engine has not named. */
  isUnknown = false;
  /** The keys, with the order in which they were written. */
  private readonly keys: Map<string, number> = new Map();
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
    keys.set(key, keys.size);
    if (keys.size <= MAX_CHANGED_KEYS) return;
    const all = [...keys.keys()].sort();
    this.ends = [all[0] as string, all[all.length - 1] as string];
    keys.clear();
  }

  /**
   * The keys within bounds, in the order in which they were written. `undefined` if there may be unknown
   * ones.
   */
  within({ lower, lowerExcluded, upper, upperIncluded }: Bounds): readonly string[] | undefined {
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
function textOf(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}
