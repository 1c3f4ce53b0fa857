/**
 * The owner's side of `watch`: what has changed in ranges that clients look at, told after a commit. A range
 * is gone over once, when its watch begins; from then on the engine tells which keys are written.
 */

import { Database } from "../database.js";
import type { Engine } from "../engine.js";
import { RAW } from "../engine-memory.js";
import { badArgument } from "../errors.js";
import { type Bounds, boundsOf, isWithin, type TextRange } from "../range.js";
import type { Seen, Watch } from "./messages.js";
import type { ServedCollections } from "./served.js";
import { toWire } from "./wire-errors.js";

/** A client renews its watches more often; one that does not is gone. */
const LEASE_MS = 90_000;

/** So many keys are looked at in one step. */
const PAGE = 1_024;

/** When more keys than these are written before it is looked, ranges are gone over again. */
const MOST_KEYS = 10_000;

/** Where the keys of a range lie, and what they are to who watches it. */
export interface Reach {
  /** That of a collection changes when it is migrated. */
  readonly keyspace: () => number;
  readonly bounds: Bounds;
  readonly keyOf: (bytes: Uint8Array<ArrayBuffer>) => unknown;
}

interface Watched {
  readonly watch: Watch;
  readonly reach: Reach;
  respond: (message: Seen) => void;
  until: number;
  keyspace: number;
  /** By the bytes of keys: the versions that were told. */
  known: Map<string, number>;
  number: number;
}

type Change = readonly [key: unknown, version: number];

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** All watches of one owner. */
export class Watches {
  private readonly owner: string;
  private readonly db: Database;
  private readonly engine: Engine;
  private readonly collections: ServedCollections;
  private readonly all: Map<string, Watched>;
  /** Keys that were written since it was looked, by keyspaces. */
  private written: Map<number, Map<string, Uint8Array<ArrayBuffer>>>;
  private count: number;
  private isDue: boolean;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private unhear: (() => void) | undefined;

  constructor(owner: string, db: Database, collections: ServedCollections) {
    this.owner = owner;
    this.db = db;
    this.engine = Database.sessionOf(db).engine;
    this.collections = collections;
    this.all = new Map();
    this.written = new Map();
    this.count = 0;
    this.isDue = false;
    this.timer = undefined;
    this.unhear = undefined;
  }

  /** Begins a watch, and tells all that is there; or renews it, if its client has missed nothing. */
  add(watch: Watch, respond: (message: Seen) => void): void {
    const name = nameOf(watch);
    const until = Date.now() + LEASE_MS;
    const before = this.all.get(name);
    if (before !== undefined && before.number === watch.number) {
      Object.assign(before, { respond, until });
      return;
    }
    const reach = this.reachOf(watch);
    const known = new Map<string, number>();
    const number = before?.number ?? 0;
    const one = { watch, reach, respond, until, keyspace: reach.keyspace(), known, number };
    this.tell(one, this.lookAt(one), true);
    this.all.set(name, one);
    this.unhear ??= this.engine.hearKeys((keyspace, length) => this.note(keyspace, length));
  }

  /** What its client is told when it cannot be begun. */
  refusal({ id }: Watch, error: unknown): Seen {
    const { owner } = this;
    return { type: "seen", owner, id, number: -1, isAll: false, changes: [], error: toWire(error) };
  }

  remove(watch: { client: number; id: number }): void {
    this.all.delete(nameOf(watch));
    if (this.all.size === 0) this.stop();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.all.clear();
    this.unhear?.();
    this.unhear = undefined;
  }

  // ---------------------------------------------------------------- what is written

  /** This key is about to be written, if nothing comes between. */
  private note(keyspace: number, length: number): void {
    if (this.count < MOST_KEYS) {
      const key = this.engine.encoded(length);
      let keys = this.written.get(keyspace);
      if (keys === undefined) {
        keys = new Map();
        this.written.set(keyspace, keys);
      }
      keys.set(textOf(key), key);
    }
    this.count += 1;
    if (this.isDue) return;
    this.isDue = true;
    // The write itself comes next, and then its commit.
    queueMicrotask(() => {
      const soon = () => {
        this.timer = setTimeout(() => this.tellAll());
      };
      this.db.committed.then(soon, soon);
    });
  }

  private tellAll(): void {
    const { written } = this;
    const isTooMuch = this.count >= MOST_KEYS;
    this.written = new Map();
    this.count = 0;
    this.isDue = false;
    const now = Date.now();
    for (const [name, one] of this.all) {
      try {
        if (one.until < now) this.all.delete(name);
        else this.tellOne(one, isTooMuch ? undefined : written);
      } catch (error) {
        this.all.delete(name);
        // For a key that is no string it is over. A database that is closing is open again elsewhere.
        if (isBadArgument(error)) one.respond(this.refusal(one.watch, error));
      }
    }
    if (this.all.size === 0) this.stop();
  }

  private tellOne(one: Watched, written: typeof this.written | undefined): void {
    const keyspace = one.reach.keyspace();
    const isElsewhere = keyspace !== one.keyspace;
    one.keyspace = keyspace;
    // What comes to be among the first so many is not only what was written.
    const isCut = one.reach.bounds.limit !== Number.POSITIVE_INFINITY;
    if (isElsewhere || isCut || written === undefined) this.tell(one, this.lookAt(one));
    else this.tell(one, this.changesIn(one, written.get(keyspace)));
  }

  private tell(one: Watched, changes: readonly Change[], isAll = false): void {
    if (changes.length === 0 && !isAll) return;
    one.number += 1;
    const { owner } = this;
    one.respond({ type: "seen", owner, id: one.watch.id, number: one.number, isAll, changes });
  }

  /** Which of these keys have other versions than were told. */
  private changesIn(
    { reach, keyspace, known }: Watched,
    written: ReadonlyMap<string, Uint8Array<ArrayBuffer>> | undefined,
  ): Change[] {
    const changes: Change[] = [];
    if (written === undefined) return changes;
    const { engine } = this;
    for (const [text, key] of written) {
      if (!isWithin(reach.bounds, key)) continue;
      const version = engine.version(engine.encodeKey(key), keyspace);
      if ((known.get(text) ?? 0) === version) continue;
      if (version === 0) known.delete(text);
      else known.set(text, version);
      changes.push([reach.keyOf(key), version]);
    }
    return changes;
  }

  // ---------------------------------------------------------------- what is there

  /** Goes over the range: which keys have other versions than were told, or are gone. */
  private lookAt({ reach, keyspace, known }: Watched): Change[] {
    const { engine } = this;
    const changes: Change[] = [];
    const there = new Set<string>();
    for (const key of this.keysIn(reach.bounds, keyspace)) {
      const text = textOf(key);
      const version = engine.version(engine.encodeKey(key), keyspace);
      there.add(text);
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
  private reachOf({ place, range }: Watch): Reach {
    Database.sessionOf(this.db).admitRange("watch()");
    if (place !== undefined) return this.collections.get(place).reach("watch()", range as object);
    const bounds = boundsOf("watch()", range as TextRange, true);
    const keyOf = (key: Uint8Array) => (bounds.asBytes ? key : stringOf(key));
    return { keyspace: () => RAW, bounds, keyOf };
  }
}

function nameOf({ client, id }: { client: number; id: number }): string {
  return `${client}/${id}`;
}

function isBadArgument(error: unknown): boolean {
  return (error as { code?: unknown }).code === "VARVE_BAD_ARGUMENT";
}

function stringOf(key: Uint8Array): string {
  try {
    return utf8.decode(key);
  } catch {
    throw badArgument(
      'A key in this range is not UTF-8. Get keys as bytes with the option keyAs: "bytes".',
    );
  }
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
