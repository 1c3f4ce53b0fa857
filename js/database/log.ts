/** `db.log()`: the log of the file as history, transaction by transaction and record by record. */

import { Catalog, decoded, isDropped } from "../collection/catalog.js";
import { indexKeyspaces } from "../collection/index-counts.js";
import { type Keys, storedKeys } from "../collection/keys.js";
import type { Engine } from "../engine/engine.js";
import { RAW, SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import { badArgument, CorruptionError, StaleViewError } from "../errors/index.js";
import type { Source } from "../session/cursor.js";
import { refuseUnknown } from "../session/options.js";
import type { Session } from "../session/session.js";
import { dispose } from "../util/dispose.js";
import { decoder, encoder, newDecoder } from "../util/text-coders.js";

/** The options of `log`: which transactions to walk over. */
export interface LogOptions {
  /**
   * Only transactions after this one, given by its number, or by any version of `getEntry`: those that wrote what
   * has a higher version. A `Date` selects those with a later time; a transaction without a time counts as
   * having that of the last one before it that has one.
   */
  since?: number | Date | undefined;
  /** Only transactions up to this one and with it, given like `since`. */
  until?: number | Date | undefined;
  /**
   * Whether the newest transaction comes first. The records of each come in the order in which they were written, and
   * `since` and `until` must be numbers. `false` by default.
   */
  reverse?: boolean | undefined;
  /** At most this many transactions. Unlimited by default. */
  limit?: number | undefined;
  /**
   * Whether transactions, their records, gaps and damage come as one stream. `false` by default: the walk gives
   * transactions, and each of them its records.
   */
  flat?: boolean | undefined;
}

/** Where compaction removed a part of the log. */
export interface LogGap {
  readonly type: "gap";
}

/** Where the log is damaged. The transactions to which the damaged bytes belong are left out; the walk goes on. */
export interface LogDamage {
  readonly type: "error";
  readonly error: CorruptionError;
  /** Position of the damaged bytes in the file. */
  readonly offset: number;
  /** How many bytes. */
  readonly length: number;
}

/** What a flat walk gives. */
export type LogItem = LogTransaction | LogRecord | LogGap | LogDamage;

/** The numbers of kinds of parts, and of records, in the engine. */
const CONTINUATION = 2;
const GAP = 3;
const DAMAGE = 4;
const MOVED = 1;
const DELETE = 2;
const EXTENT = 3;
const CHUNKED = 4;
const CLEAR = 5;

/** A part is this many numbers of 4 bytes. */
const PART = 6;
const TWO_32 = 2 ** 32;
const NEVER = Number.MAX_SAFE_INTEGER;
const PAGE = 1_024;
const COLLECTION = "collection/";
/** Up to this length a loop over ASCII characters beats a decoder. */
const SHORT = 48;

/** A keyspace: its collection and its keys. `undefined` if it has index entries, which are left out. */
interface Named {
  readonly collection: string | undefined;
  readonly keys: Keys<unknown> | undefined;
}

/** A record of the log: a key that was set or deleted, or a collection that was cleared. */
export class LogRecord {
  readonly type: "set" | "delete" | "clear";
  /** The collection; `undefined` for keys outside of collections, and for a collection that is not there any more. */
  readonly collection: string | undefined;
  /** The number of the collection in the file; 0 for keys outside of collections. */
  readonly keyspace: number;
  /**
   * The key in the form that its collection gives it. Bytes if it is not text, or if the collection is not there any
   * more; `undefined` for a clear.
   */
  readonly key: unknown;
  /** The version that the change gave the key. */
  readonly version: number;
  private readonly walk: Walk;
  private readonly step: number;

  /** @internal */
  constructor(
    walk: Walk,
    type: LogRecord["type"],
    named: Named,
    keyspace: number,
    key: unknown,
    version: number,
  ) {
    this.type = type;
    this.collection = named.collection;
    this.keyspace = keyspace;
    this.key = key;
    this.version = version;
    this.walk = walk;
    this.step = walk.step;
  }

  /**
   * The bytes of the value: a view that is valid until the next step of the walk. `undefined` for a deletion and a
   * clear, and for a value above half a MiB that was replaced since: such values are kept outside of the log.
   *
   * @throws StaleViewError after the next step
   */
  get value(): Uint8Array<ArrayBuffer> | undefined {
    if (this.type !== "set") return undefined;
    if (this.step !== this.walk.step) {
      throw new StaleViewError(
        "The value of a record of the log was read after the walk had gone on. Read it at once, and copy it with " +
          ".slice() to keep it.",
      );
    }
    return this.walk.value();
  }
}

/** A transaction of the log, and its records in the order in which they were written. */
export class LogTransaction implements Iterable<LogRecord, undefined> {
  readonly type = "transaction";
  /** Its number, which grows: the version of its first change. `since` takes it. */
  readonly number: number;
  /** When it was written; only transactions with a note have a time. */
  readonly time: Date | undefined;
  /** The note that `transaction` was given. */
  readonly note: string | undefined;
  /** The client that asked for it, if that is known. */
  readonly client: bigint | undefined;
  /**
   * Whether these are no transaction but records that compaction moved here. Which transactions wrote them is not
   * known any more. Their versions say when: of several records of a key, the one with the largest version counts.
   */
  readonly moved: boolean;
  /** Whether compaction removed a part of the log between it and the transaction that the walk gave before it. */
  readonly afterGap: boolean;
  private readonly walk: Walk;

  /** @internal */
  constructor(
    walk: Walk,
    number: number,
    moved: boolean,
    afterGap: boolean,
    note: Note | undefined,
  ) {
    this.number = number;
    this.time = note?.time;
    this.note = note?.note;
    this.client = note?.client;
    this.moved = moved;
    this.afterGap = afterGap;
    this.walk = walk;
  }

  /** The records that were not walked over yet. They end when the outer walk goes on. */
  [Symbol.iterator](): IterableIterator<LogRecord, undefined> {
    const next = (): IteratorResult<LogRecord, undefined> => {
      const record = this.walk.transaction === this ? this.walk.nextRecord() : undefined;
      return record === undefined ? { done: true, value: record } : { done: false, value: record };
    };
    const records: IterableIterator<LogRecord, undefined> = {
      next,
      [Symbol.iterator]: () => records,
    };
    return records;
  }
}

interface Note {
  readonly time: Date;
  readonly note: string;
  readonly client: bigint | undefined;
}

/** The checked options. */
export interface Selection {
  readonly since: number;
  readonly until: number;
  readonly sinceTime: number;
  readonly untilTime: number;
  readonly limit: number;
  readonly reverse: boolean;
}

/** A walk over the log, one step at a time. */
export class Walk {
  /** Counts the steps: a value is valid during its own. */
  step: number;
  transaction: LogTransaction | undefined;
  private readonly source: Source;
  private readonly selection: Selection;
  private session: Session;
  private handle: number;
  private parts: Uint32Array;
  private part: number;
  private base: number;
  /** The addresses of the next record and of the end of the part. */
  private at: number;
  private end: number;
  /** The address of the current record. */
  private current: number;
  private moved: boolean;
  private afterGap: boolean;
  /** The time of the last transaction that has one. */
  private time: number;
  /** How many more transactions it may show. */
  left: number;
  /** The sequence of the current segment, which grows. */
  sequence: number;
  private readonly spaces: Map<number, Named | undefined>;
  private readonly unknown: Set<number>;
  private heldIn: number;
  private tracked: Uint8Array<ArrayBuffer> | undefined;
  /** The first record of the current transaction, which was looked at to see whether there is one. */
  private ahead: LogRecord | undefined;

  constructor(source: Source, selection: Selection) {
    this.step = 0;
    this.transaction = undefined;
    this.source = source;
    this.selection = selection;
    this.session = source();
    this.handle = -1;
    this.parts = new Uint32Array(0);
    this.part = 0;
    this.base = 0;
    this.at = 0;
    this.end = 0;
    this.current = 0;
    this.moved = false;
    this.afterGap = false;
    this.time = Number.NEGATIVE_INFINITY;
    this.left = selection.limit;
    this.sequence = 0;
    this.spaces = new Map([[RAW, { collection: undefined, keys: undefined }]]);
    this.unknown = new Set();
    this.heldIn = -1;
    this.tracked = undefined;
    this.ahead = undefined;
  }

  /** The next transaction, gap or damage; what is left of the current transaction is skipped. */
  nextItem(): LogTransaction | LogGap | LogDamage | undefined {
    this.begin();
    this.transaction = undefined;
    this.ahead = undefined;
    this.at = this.end;
    for (;;) {
      const kind = this.nextPart();
      if (kind === undefined) return undefined;
      if (kind === CONTINUATION) continue;
      if (kind === GAP) {
        this.afterGap = true;
        return { type: "gap" };
      }
      if (kind === DAMAGE) return this.damage();
      if (this.left === 0) {
        this.stop();
        return undefined;
      }
      const transaction = this.beginTransaction(kind === MOVED);
      if (transaction !== undefined) return transaction;
    }
  }

  /** The next record of the current transaction. */
  nextRecord(): LogRecord | undefined {
    const { ahead } = this;
    if (ahead !== undefined) {
      this.ahead = undefined;
      return ahead;
    }
    this.begin();
    return this.readRecord();
  }

  /** Where the last record that was read ends in its segment, in bytes. */
  get offset(): number {
    return this.at - this.base;
  }

  /** Whether the current record says what its key is now. */
  isCurrent(): boolean {
    return this.session.engine.walkCurrent(this.handle, this.current - this.base);
  }

  /** The keyspace and the key of the current record as text that no other key has. */
  identity(keyspace: number): string {
    const { u8, memory } = this.session.engine;
    const { current } = this;
    let text = String.fromCharCode(keyspace);
    const end = current + 40 + memory.data.getUint16(current + 8, true);
    for (let at = current + 40; at < end; at++) text += String.fromCharCode(u8[at] as number);
    return text;
  }

  /** Begins a step, which ends the view of the one before. */
  private begin(): void {
    const session = this.source();
    this.session = session;
    this.release();
    session.guard.assertReadable();
    this.step += 1;
  }

  /** Ends the walk and frees its memory. */
  stop(): void {
    this.transaction = undefined;
    this.release();
    this.left = 0;
    this.part = this.parts.length;
    this.at = this.end;
    this.step += 1;
    if (this.handle >= 0 && this.session.guard.isOpen()) this.session.engine.walkEnd(this.handle);
    this.handle = -2;
  }

  private release(): void {
    const { engine } = this.session;
    if (this.heldIn === engine.turn && engine.rowsHeld > 0) engine.rowsHeld -= 1;
    this.heldIn = -1;
    const { tracked } = this;
    this.tracked = undefined;
    if (tracked !== undefined) this.session.untrack(tracked);
  }

  /** The value of the current record. */
  value(): Uint8Array<ArrayBuffer> | undefined {
    const { session, current } = this;
    const { engine } = session;
    session.guard.assertReadable();
    const { data } = engine.memory;
    const kind = data.getUint8(current + 4);
    let at: number;
    let length: number;
    if (kind === EXTENT || kind === CHUNKED) {
      at = engine.walkValue(this.handle, current - this.base);
      if (at === 0) return undefined;
      length = engine.foundLength();
    } else {
      at = current + 40 + ((data.getUint16(current + 8, true) + 7) & ~7);
      length = data.getUint32(current + 12, true);
    }
    if (this.heldIn !== engine.turn) {
      engine.rowsHeld += 1;
      this.heldIn = engine.turn;
    }
    if (!session.strict) return engine.viewAt(at, length);
    this.tracked ??= session.shownAt(at, length);
    return this.tracked;
  }

  /** Goes to the next part, in the next segment if need be, and returns its kind; `undefined` at the end. */
  private nextPart(): number | undefined {
    const { engine } = this.session;
    this.part += PART;
    if (this.part >= this.parts.length) {
      if (this.handle === -2) return undefined;
      if (this.handle === -1) {
        const { since, until, reverse } = this.selection;
        this.handle = engine.walkBegin(since, until, reverse);
      }
      // If this throws, the next step tries the same segment again.
      this.part = this.parts.length;
      const next = engine.walkNext(this.handle);
      if (next === undefined) {
        this.stop();
        return undefined;
      }
      this.parts = next.parts;
      this.base = next.base;
      this.sequence = next.sequence;
      this.part = 0;
    }
    const { parts, part, base } = this;
    this.at = base + (parts[part + 1] as number);
    this.end = base + (parts[part + 2] as number);
    return parts[part] as number;
  }

  private number(): number {
    const { parts, part } = this;
    return (parts[part + 4] as number) + (parts[part + 5] as number) * TWO_32;
  }

  private damage(): LogDamage {
    const offset = this.number();
    const length = this.parts[this.part + 2] as number;
    this.at = this.end;
    const { name, engine } = this.session;
    engine.assertSame();
    const error = new CorruptionError(
      `The log of the database "${name}" is damaged at byte ${offset} of the file: ${length} bytes of it are not ` +
        "what was written. The walk can go on behind them.",
    );
    return { type: "error", error, offset, length };
  }

  /** Begins the transaction of the current part; `undefined` if it is not wanted or has no records. */
  private beginTransaction(moved: boolean): LogTransaction | undefined {
    const number = this.number();
    const noteAt = this.parts[this.part + 3] as number;
    const note = noteAt === 0 ? undefined : this.noteAt(this.base + noteAt);
    if (note !== undefined) this.time = note.time.getTime();
    const { sinceTime, untilTime } = this.selection;
    const isWanted = !(this.time <= sinceTime) && !(this.time > untilTime);
    this.moved = moved;
    // Without a record it has only some of the database's own, such as entries of an index.
    const first = isWanted ? this.readRecord() : undefined;
    if (first === undefined) {
      this.at = this.end;
      return undefined;
    }
    this.ahead = first;
    this.left -= 1;
    this.transaction = new LogTransaction(this, number, moved, this.afterGap, note);
    this.afterGap = false;
    return this.transaction;
  }

  private noteAt(at: number): Note {
    const { u8, memory } = this.session.engine;
    const { data } = memory;
    const length = data.getUint32(at + 12, true);
    const from = at + 40;
    const client = data.getBigUint64(from + 16, true);
    return {
      time: new Date(data.getUint32(from + 8, true) + data.getUint32(from + 12, true) * TWO_32),
      note: textAt(u8, from + 32, length - 32),
      client: client === 0n ? undefined : client,
    };
  }

  /** The next record of the transaction, or `undefined` at its end, after which the next part can be taken. */
  private readRecord(): LogRecord | undefined {
    for (;;) {
      const record = this.recordOfPart();
      if (record !== undefined) return record;
      const next = this.part + PART;
      if (next < this.parts.length) {
        if (this.parts[next] !== CONTINUATION) return undefined;
      } else if (!this.goesOn()) return undefined;
      else continue;
      this.nextPart();
    }
  }

  /** Whether the transaction goes on in the next segment, which is then the current one. */
  private goesOn(): boolean {
    const kind = this.nextPart();
    if (kind === CONTINUATION) return true;
    // It is taken again by the next step.
    if (kind !== undefined) this.part -= PART;
    this.at = this.end;
    return false;
  }

  private recordOfPart(): LogRecord | undefined {
    const { engine } = this.session;
    const { data } = engine.memory;
    const { since, until } = this.selection;
    while (this.at < this.end) {
      const { at } = this;
      const kind = data.getUint8(at + 4);
      const lengths = data.getUint32(at + 8, true);
      const keyLength = lengths & 0xffff;
      let keyspace = lengths >>> 16;
      const keyAt = at + 40;
      this.at = keyAt + ((keyLength + 7) & ~7) + data.getUint32(at + 16, true);
      // Records of other kinds, and the database's own, are no changes that a program made.
      if (kind === 0 || kind > CLEAR || (keyspace === SYSTEM_KEYSPACE) !== (kind === CLEAR))
        continue;
      const version = data.getUint32(at + 24, true) + data.getUint32(at + 28, true) * TWO_32;
      if (this.moved && (version <= since || version > until)) continue;
      if (kind === CLEAR) keyspace = data.getUint32(keyAt + 6, false);
      const named = this.spaces.get(keyspace) ?? this.find(keyspace);
      if (named === undefined) continue;
      this.current = at;
      const type = kind === CLEAR ? "clear" : kind === DELETE ? "delete" : "set";
      const key =
        kind === CLEAR ? undefined : this.keyAt(named, engine, keyAt, keyLength, keyspace);
      return new LogRecord(this, type, named, keyspace, key, version);
    }
    return undefined;
  }

  private keyAt(
    { keys }: Named,
    engine: Engine,
    at: number,
    length: number,
    keyspace: number,
  ): unknown {
    const { u8 } = engine;
    try {
      if (keys === undefined && keyspace === RAW) return textOrBytesAt(u8, at, length);
      if (keys?.kind === "string") return textAt(u8, at, length);
      if (keys !== undefined) return keys.decode(u8.slice(at, at + length));
    } catch {
      // The bytes are more useful than an error.
    }
    return u8.slice(at, at + length);
  }

  /** The keyspace of this number, as the database describes it now. */
  private find(keyspace: number): Named | undefined {
    const { spaces, unknown } = this;
    if (spaces.has(keyspace)) return undefined;
    if (!unknown.has(keyspace)) {
      unknown.add(keyspace);
      this.readSpaces();
      if (spaces.has(keyspace)) return spaces.get(keyspace);
    }
    const named: Named = { collection: undefined, keys: undefined };
    spaces.set(keyspace, named);
    return named;
  }

  private readSpaces(): void {
    const { engine, settings } = this.session;
    for (const keyspace of indexKeyspaces(engine)) this.spaces.set(keyspace, undefined);
    if (!settings.ordered) {
      // Without order, names cannot be listed. Those that the program has declared are known.
      for (const { name, keyspace, declaration } of Catalog.of(engine).declared) {
        this.spaces.set(keyspace, { collection: name, keys: keysOf(declaration.key) });
      }
      return;
    }
    let lower: Uint8Array<ArrayBuffer> = encoder.encode(COLLECTION);
    const upper = lower.slice();
    upper[upper.length - 1] = (upper.at(-1) as number) + 1;
    for (;;) {
      const range = { lower, upper, lowerExcluded: true, upperIncluded: false, reverse: false };
      const { bytes, numbers, count } = engine.scan(range, PAGE, false, SYSTEM_KEYSPACE);
      const found = Array.from({ length: count }, (_, i) =>
        bytes.slice(numbers[i], numbers[i + 1]),
      );
      for (const key of found) {
        const descriptor = engine.get(key, SYSTEM_KEYSPACE);
        const stored = descriptor && decoded(key, descriptor);
        if (stored === undefined || isDropped(stored) || this.spaces.get(stored.keyspace)) continue;
        const collection = decoder.decode(key.subarray(COLLECTION.length));
        this.spaces.set(stored.keyspace, { collection, keys: keysOf(stored.json.key) });
      }
      if (count < PAGE) return;
      lower = found.at(-1) as Uint8Array<ArrayBuffer>;
    }
  }
}

/** The codec of stored keys; `undefined` if this version does not know their kind. */
function keysOf(kind: unknown): Keys<unknown> | undefined {
  try {
    return storedKeys(kind as string | readonly unknown[]);
  } catch {
    return undefined;
  }
}

function textAt(u8: Uint8Array<ArrayBuffer>, at: number, length: number): string {
  if (length <= SHORT) {
    let text = "";
    let all = 0;
    for (let i = at; i < at + length; i++) {
      const unit = u8[i] as number;
      all |= unit;
      text += String.fromCharCode(unit);
    }
    if (all < 0x80) return text;
  }
  return decoder.decode(u8.subarray(at, at + length));
}

const lenient = /* @__PURE__ */ newDecoder("utf-8", { ignoreBOM: true });

/** A text, or the bytes if they are none: without an exception, which takes longer than all the rest of a record. */
function textOrBytesAt(
  u8: Uint8Array<ArrayBuffer>,
  at: number,
  length: number,
): string | Uint8Array<ArrayBuffer> {
  for (let i = at; i < at + length; i++) {
    if ((u8[i] as number) < 0x80) continue;
    const bytes = u8.subarray(at, at + length);
    const text = lenient.decode(bytes);
    // The character may be that of the key itself.
    if (!text.includes("\ufffd")) return text;
    const again = encoder.encode(text);
    const isSame = again.length === length && again.every((byte, j) => byte === bytes[j]);
    return isSame ? text : bytes.slice();
  }
  return textAt(u8, at, length);
}

/** All between two cursors. */
export function between(since: number, until = NEVER): Selection {
  const limit = Number.POSITIVE_INFINITY;
  return { since, until, sinceTime: Number.NaN, untilTime: Number.NaN, limit, reverse: false };
}

/** Checks a bound, and returns its number and its time, of which one is given. */
function boundOf(option: string, given: unknown, none: number): [number: number, time: number] {
  const isDate = given instanceof Date;
  if (isDate && !Number.isNaN(given.getTime())) return [none, given.getTime()];
  if (given === undefined) return [none, Number.NaN];
  if (!isDate && Number.isSafeInteger(given) && (given as number) >= 0) {
    return [given as number, Number.NaN];
  }
  throw badArgument(
    `The option ${option} of log() must be the number of a transaction, 0 or more, or a valid Date.`,
    given,
  );
}

export function selectionOf(options: LogOptions): Selection {
  refuseUnknown("log()", options, ["since", "until", "reverse", "limit", "flat"]);
  const { limit = Number.POSITIVE_INFINITY, flat = false, reverse = false } = options;
  if (typeof flat !== "boolean") {
    throw badArgument("The option flat of log() must be true or false.", flat);
  }
  if (typeof reverse !== "boolean") {
    throw badArgument("The option reverse of log() must be true or false.", reverse);
  }
  if (reverse && (options.since instanceof Date || options.until instanceof Date)) {
    throw badArgument(
      "log() with reverse needs numbers for since and until: the time of a transaction without a note is that of one " +
        "before it, which comes later then.",
    );
  }
  if (options.limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 0)) {
    throw badArgument("The option limit of log() must be an integer, 0 or more.", limit);
  }
  const [since, sinceTime] = boundOf("since", options.since, 0);
  const [until, untilTime] = boundOf("until", options.until, NEVER);
  return { since, until, sinceTime, untilTime, limit, reverse };
}

/** A walk as an iterator that a loop may leave early. */
export function iterator<T>(
  walk: Walk,
  next: () => T | undefined,
): IterableIterator<T, undefined> & Disposable {
  const steps: IterableIterator<T, undefined> & Disposable = {
    next() {
      const value = next();
      return value === undefined ? { done: true, value: undefined } : { done: false, value };
    },
    return() {
      walk.stop();
      return { done: true, value: undefined };
    },
    [dispose]: () => walk.stop(),
    [Symbol.iterator]: () => steps,
  };
  return steps;
}

/** The transactions of the log. Damage is thrown; the next step goes on behind it. */
export function transactionsOf(
  source: Source,
  options: LogOptions,
): Iterable<LogTransaction, undefined> {
  const selection = selectionOf(options);
  return {
    [Symbol.iterator]() {
      const walk = new Walk(source, selection);
      return iterator(walk, () => {
        for (;;) {
          const item = walk.nextItem();
          if (item?.type === "gap") continue;
          if (item?.type === "error") throw item.error;
          return item;
        }
      });
    },
  };
}

/** The transactions of the log and their records, gaps and damage, as one stream. */
export function itemsOf(source: Source, options: LogOptions): Iterable<LogItem, undefined> {
  const selection = selectionOf(options);
  return {
    [Symbol.iterator]() {
      const walk = new Walk(source, selection);
      return iterator<LogItem>(walk, () => {
        const record = walk.transaction === undefined ? undefined : walk.nextRecord();
        return record ?? walk.nextItem();
      });
    },
  };
}
