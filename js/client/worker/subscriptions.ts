/**
 * The owner's side of `watch`: what has changed in ranges that clients look at, told after a commit. A range
 * is gone over once, when its watch begins; from then on the engine tells which keys are written, and nothing
 * else is read. Of a range with a limit, what lies behind the last of so many keys is not looked at either.
 */

import { Database } from "../../database/database.js";
import type { Engine } from "../../engine/engine.js";
import { RAW } from "../../engine/wasm-memory.js";
import { badArgument } from "../../errors/index.js";
import { type Bounds, boundsOf, type TextRange } from "../../session/key-range.js";
import { monotonicNow, queueMicrotask, setTimeout } from "../../util/clock.js";
import { decoder } from "../../util/text-coders.js";
import { toWire } from "../protocol/errors.js";
import type { Watch, WatchUpdate } from "../protocol/messages.js";
import { type Subscription, Subscriptions } from "../protocol/owner-subscriptions.js";
import type { ServedCollections } from "./collection-handlers.js";

/** So many keys are looked at in one step. */
const PAGE = 1_024;

/** When more keys of a keyspace than these are written before it is looked, ranges are gone over again. */
const MOST_KEYS = 10_000;

/** When more keys among the first so many are written than these, those are gone over again. */
const MOST_STEPS = 64;

/** Where the keys of a range lie, and what they are to who watches it. */
export interface WatchedRange {
  /** That of a collection changes when it is migrated. */
  readonly keyspace: () => number;
  readonly bounds: Bounds;
  readonly keyOf: (bytes: Uint8Array<ArrayBuffer>) => unknown;
}

/** What was told of a range. Keys are texts, which have the order of the bytes. */
interface Told {
  readonly reach: WatchedRange;
  keyspace: number;
  /** The versions that were told. */
  readonly known: Map<string, number>;
  /** The last of so many keys, where there is a limit and there are so many: none behind it is in the range. */
  last: string | undefined;
}

type Change = readonly [key: unknown, version: number];

/** All watches of one owner. */
export class Watches {
  private readonly owner: string;
  private readonly db: Database;
  private readonly engine: Engine;
  private readonly collections: ServedCollections;
  private readonly all: Subscriptions<Told>;
  /** What was written since it was looked, by keyspaces. Those in which nobody watches have no keys. */
  private written: Map<number, Written>;
  /** In which somebody watches. */
  private watched: Set<number>;
  private isDue: boolean;
  private unhear: (() => void) | undefined;

  constructor(owner: string, db: Database, collections: ServedCollections) {
    this.owner = owner;
    this.db = db;
    this.engine = Database.sessionOf(db).engine;
    this.collections = collections;
    this.all = new Subscriptions(owner);
    this.written = new Map();
    this.watched = new Set();
    this.isDue = false;
    this.unhear = undefined;
  }

  /** Begins a watch, and tells all that is there; or renews it, if its client has missed nothing. */
  add(watch: Watch, respond: (message: WatchUpdate) => void): void {
    const now = monotonicNow();
    if (this.all.renew(watch, respond, now)) return;
    const reach = this.watchedRangeOf(watch);
    const told = { reach, keyspace: reach.keyspace(), known: new Map(), last: undefined };
    this.all.begin(watch, respond, now, told, this.lookAt(told));
    this.watched.add(told.keyspace);
    this.unhear ??= this.engine.observeKeys(
      (keyspace, length) => this.note(keyspace, length),
      (keyspace) => this.noteCleared(keyspace),
    );
  }

  /** What its client is told when it cannot be begun. */
  refusal({ id }: Watch, error: unknown): WatchUpdate {
    const { owner } = this;
    const none = { epoch: 0, number: -1, isAll: false, changes: [] };
    return { type: "changes", owner, id, ...none, error: toWire(error) };
  }

  remove(watch: { client: number; id: number }): void {
    this.all.remove(watch);
    if (this.all.size === 0) this.stop();
  }

  stop(): void {
    this.all.clear();
    this.unhear?.();
    this.unhear = undefined;
  }

  // ---------------------------------------------------------------- what is written

  /** This key is about to be written, if nothing comes between. */
  private note(keyspace: number, length: number): void {
    const written = this.writtenIn(keyspace);
    // Another keyspace may become that of a watched collection: that alone is looked at.
    if (this.watched.has(keyspace)) written.add(textOf(this.engine.encoded(length)));
    this.scheduleNotify();
  }

  /** Keys of this keyspace are about to be deleted, and nobody is told which. */
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
    // The write itself comes next, and then its commit.
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
    all.expire(monotonicNow());
    for (const one of all) {
      try {
        all.notify(one, this.changesIn(one.state, written));
        this.watched.add(one.state.keyspace);
      } catch (error) {
        this.end(one, error);
      }
    }
    if (all.size === 0) this.stop();
  }

  /** What cannot be read for a reason of its own is over; anything else is begun again, here or elsewhere. */
  private end(one: Subscription<Told>, error: unknown): void {
    if (isBadArgument(error)) {
      this.all.remove(one.watch);
      one.respond(this.refusal(one.watch, error));
    } else {
      this.all.restart(one);
    }
  }

  /** What of it has other versions than were told, of which nothing is read that was not written. */
  private changesIn(told: Told, all: ReadonlyMap<number, Written>): Change[] {
    const { reach, last } = told;
    const keyspace = reach.keyspace();
    if (keyspace !== told.keyspace) {
      told.keyspace = keyspace;
      return this.lookAt(told);
    }
    const written = all.get(keyspace);
    if (written === undefined || reach.bounds.limit === 0) return [];
    const keys = written.within(
      last === undefined ? reach.bounds : upTo(reach.bounds, bytesOf(last)),
    );
    if (keys === undefined) return this.lookAt(told);
    const isCut = reach.bounds.limit !== Number.POSITIVE_INFINITY;
    return isCut && keys.length > MOST_STEPS ? this.lookAt(told) : this.lookFor(told, keys);
  }

  // ---------------------------------------------------------------- what is there

  /** Looks for these keys, which lie in the range, and for those that take the place of others. */
  private lookFor(told: Told, keys: readonly string[]): Change[] {
    const { reach, known, last } = told;
    const { limit, reverse } = reach.bounds;
    const before = new Map<string, number | undefined>();
    const note = (text: string, version: number) => {
      if (!before.has(text)) before.set(text, known.get(text));
      if (version === 0) known.delete(text);
      else known.set(text, version);
    };
    for (const text of keys) {
      const version = this.versionOf(bytesOf(text), told.keyspace);
      if ((known.get(text) ?? 0) !== version) note(text, version);
    }
    if (last !== undefined && known.size < limit) {
      // Those behind the last one move up.
      const rest = behind(reach.bounds, bytesOf(last), limit - known.size);
      for (const key of this.keysIn(rest, told.keyspace)) {
        note(textOf(key), this.versionOf(key, told.keyspace));
      }
    }
    while (known.size > limit) note(lastOf(known, reverse), 0);
    if (before.size > 0) told.last = known.size === limit ? lastOf(known, reverse) : undefined;
    const changes: Change[] = [];
    for (const [text, version = 0] of before) {
      const now = known.get(text) ?? 0;
      if (now !== version) changes.push([reach.keyOf(bytesOf(text)), now]);
    }
    return changes;
  }

  /** Goes over the range: which keys have other versions than were told, or are gone. */
  private lookAt(told: Told): Change[] {
    const { reach, keyspace, known } = told;
    const changes: Change[] = [];
    const there = new Set<string>();
    told.last = undefined;
    for (const key of this.keysIn(reach.bounds, keyspace)) {
      const text = textOf(key);
      const version = this.versionOf(key, keyspace);
      there.add(text);
      if (there.size === reach.bounds.limit) told.last = text;
      if (known.get(text) === version) continue;
      known.set(text, version);
      changes.push([reach.keyOf(key), version]);
    }
    for (const text of known.keys()) {
      if (there.has(text)) continue;
      known.delete(text);
      changes.push([reach.keyOf(bytesOf(text)), 0]);
    }
    return changes;
  }

  private versionOf(key: Uint8Array<ArrayBuffer>, keyspace: number): number {
    const { engine } = this;
    return engine.version(engine.encodeKey(key), keyspace);
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
      if (count < PAGE) return;
      left -= count;
      if (reverse) [upper, upperIncluded] = [key, false];
      else [lower, lowerExcluded] = [key, true];
    }
  }

  /** @throws TypeError for a range that is none, or where keys are in no order */
  private watchedRangeOf({ collection, range }: Watch): WatchedRange {
    Database.sessionOf(this.db).checkRange("watch()");
    if (collection !== undefined)
      return this.collections.get(collection).reach("watch()", range as object);
    const bounds = boundsOf("watch()", range as TextRange, true);
    const keyOf = (key: Uint8Array) => (bounds.asBytes ? key : stringOf(key));
    return { keyspace: () => RAW, bounds, keyOf };
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

/** The part of a range up to a key of it, with that key. */
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

/** The last one in the order in which a range is gone over. */
function lastOf(known: ReadonlyMap<string, number>, reverse: boolean): string {
  let last: string | undefined;
  for (const text of known.keys()) {
    if (last === undefined || text > last !== reverse) last = text;
  }
  return last as string;
}

/** The keys of one keyspace that were written. */
class Written {
  /** Whether others were written, and nobody knows which. */
  isUnknown = false;
  /** With the order in which they were written. */
  private readonly keys: Map<string, number> = new Map();
  /** In order, as soon as that is asked for. */
  private sorted: readonly string[] | undefined;
  /** The first and the last of them, when there are too many to know each. */
  private ends: [string, string] | undefined;

  add(key: string): void {
    const { ends, keys } = this;
    if (ends !== undefined) {
      if (key < ends[0]) ends[0] = key;
      if (key > ends[1]) ends[1] = key;
      return;
    }
    keys.set(key, keys.size);
    if (keys.size <= MOST_KEYS) return;
    const all = [...keys.keys()].sort();
    this.ends = [all[0] as string, all[all.length - 1] as string];
    keys.clear();
  }

  /** Those within bounds, in the order in which they were written. `undefined`: there may be some, and nobody knows which. */
  within({ lower, lowerExcluded, upper, upperIncluded }: Bounds): readonly string[] | undefined {
    if (this.isUnknown) return undefined;
    this.sorted ??= [...this.keys.keys()].sort();
    const keys = this.ends ?? this.sorted;
    const turn = (key: string) => this.keys.get(key) as number;
    const from = lower === undefined ? 0 : placeOf(keys, textOf(lower), lowerExcluded);
    const to = upper === undefined ? keys.length : placeOf(keys, textOf(upper), upperIncluded);
    if (this.ends === undefined) return keys.slice(from, to).sort((a, b) => turn(a) - turn(b));
    return from < keys.length && to > 0 ? undefined : [];
  }
}

/** How many of these come before a key, or with it. */
function placeOf(sorted: readonly string[], key: string, isWith: boolean): number {
  let [from, to] = [0, sorted.length];
  while (from < to) {
    const middle = (from + to) >>> 1;
    const one = sorted[middle] as string;
    if (one < key || (isWith && one === key)) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** One character for each byte. */
function textOf(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}
