/** A walk over the log of the file, segment by segment as the engine verifies it. */

import type { Engine } from "../engine/engine.js";
import { RAW, SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import { CorruptionError } from "../errors/index.js";
import type { Source } from "../session/cursor.js";
import type { Session } from "../session/session.js";
import { decoder, encoder, newDecoder } from "../util/text-coders.js";
import { type KeyspaceName, KeyspaceNames } from "./keyspace-names.js";
import {
  CHUNKED,
  CLEAR,
  CONTINUATION,
  DAMAGE,
  DELETE,
  EXTENT,
  GAP,
  MOVED,
  PART,
  TWO_32,
} from "./log-layout.js";
import type { Selection } from "./log-options.js";
import {
  type LogDamage,
  type LogGap,
  LogRecord,
  LogTransaction,
  type Note,
  type WalkPosition,
} from "./log-records.js";

/** Values of `handle` before the first step and after the end; those of a walk are 0 or more. */
const NOT_BEGUN = -1;
const ENDED = -2;
/** Up to this length a loop over ASCII characters beats a decoder. */
const SHORT = 48;

/** A walk over the log, one step at a time. */
export class Walk implements WalkPosition {
  /** Counts the steps: a value is valid during its own. */
  step: number;
  transaction: LogTransaction | undefined;
  private readonly source: Source;
  private readonly selection: Selection;
  private session: Session;
  private handle: number;
  /** The parts of the current segment, the index of the current one, and the address of the segment. */
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
  private readonly names: KeyspaceNames;
  /** The turn of the engine in which the current value was given: until it ends, its memory is not used again. */
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
    this.handle = NOT_BEGUN;
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
    this.names = new KeyspaceNames();
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
    return this.session.engine.log.isCurrent(this.handle, this.current - this.base);
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
    if (this.handle >= 0 && this.session.guard.isOpen()) this.session.engine.log.end(this.handle);
    this.handle = ENDED;
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
      at = engine.log.valueAt(this.handle, current - this.base);
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
      if (this.handle === ENDED) return undefined;
      if (this.handle === NOT_BEGUN) {
        const { since, until, reverse } = this.selection;
        this.handle = engine.log.begin(since, until, reverse);
      }
      // If this throws, the next step tries the same segment again.
      this.part = this.parts.length;
      const next = engine.log.next(this.handle);
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
      const named = this.names.of(keyspace, this.session);
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
    { keys }: KeyspaceName,
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
