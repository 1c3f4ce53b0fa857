/**
 * Access to the wasm memory from JavaScript: writes keys and values into it, and makes views and pages of keys
 * from it. Nothing here calls into the module.
 *
 * `Engine` extends this class instead of holding an instance, so that the hot path reads plain fields. The typed
 * arrays are rebuilt after the memory has grown, which is detected by `u8.length === 0`.
 */

import { badArgument } from "../errors/index.js";
import type { Memory } from "../struct/codec.js";
import {
  asBytes,
  bufferOf,
  byteLengthOf,
  isOrdinary,
  type Key,
  MAX_KEY,
  MAX_VALUE,
  markDetached,
  refuseLoneSurrogates,
  refuseLost,
  type Value,
} from "../util/bytes.js";
import { encoder } from "../util/text-coders.js";
import { allocated, Code, failureOf } from "./error-codes.js";

/** The keyspace of keys outside of collections. Collections use those above 1. */
export const RAW = 0;

/** The keyspace of the database's own records, such as the descriptors of collections. */
export const SYSTEM_KEYSPACE = 1;

/** A range of keys and the order in which to visit them. A missing bound is `undefined`. */
export interface KeyRange {
  readonly lower: Uint8Array<ArrayBuffer> | undefined;
  readonly lowerExcluded: boolean;
  readonly upper: Uint8Array<ArrayBuffer> | undefined;
  readonly upperIncluded: boolean;
  readonly reverse: boolean;
}

/** A page of keys in order, copied out of the engine's memory. An empty page means that there are no more. */
export interface Page {
  /** Number of keys. */
  readonly count: number;
  /**
   * The start of each key in `bytes`, and the end of the last one. If values were requested, the address and
   * length of each follow from index `values` on; an address of 0 means that the value is not in memory, and the
   * position of its record, or 0, follows instead of the length.
   */
  readonly numbers: Uint32Array<ArrayBuffer>;
  readonly values: number;
  /** The keys, concatenated. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** The engine's `changes` at the time: while it is equal, the addresses of the values are valid. */
  readonly changes: number;
}

/**
 * Rows with their values, one after the other. All arrays are views of the engine's memory, and valid until its next
 * call.
 */
export interface CopiedRows {
  /** Number of rows. */
  readonly count: number;
  /** The end of each key and of each value. */
  readonly keyEnds: Uint32Array<ArrayBuffer>;
  readonly valueEnds: Uint32Array<ArrayBuffer>;
  readonly keys: Uint8Array<ArrayBuffer>;
  readonly values: Uint8Array<ArrayBuffer>;
}

/** Encodes keys of one kind at the start of an area, and returns the length even if it exceeds the area. */
export interface KeyWriter<K> {
  write(area: Uint8Array, key: K): number;
}

/** Up to this length a loop over the characters beats `encodeInto`. */
export const SHORT_TEXT = 64;

/** Up to this length a loop over the bytes beats `set`. */
const SHORT_BYTES = 12;

/**
 * Values up to this length are copied through the second key area. That avoids reading an array's `buffer`,
 * which takes 15 ns, or 100 ns if V8 holds the bytes of a new array inline and has to allocate the buffer.
 */
export const SHORT_VALUE = 1_024;

/** Number of keys that one `find_many` call looks up. Their offsets lie before them in the second key area. */
const MANY = 256;
const MANY_HEAD = 4 + 12 * MANY;

/** Size of the queue of buffered sets, which lies behind the second key area. */
const QUEUE = 8_192;
/** Size of the header of each set in the queue, before its key. */
const QUEUE_HEAD = 40;

/**
 * Value of `queueLimit` after a call that trapped: nothing may be queued or called any more, because the state of
 * the module is unknown. A stack overflow can end a call anywhere and leave no stack to report it; setting this
 * flag needs none.
 */
export const BROKEN = -1;

/** The length that is passed for a missing bound. */
const NO_BOUND = 0xffff_ffff;

/** Arrays up to this length are remembered in `lastValue`, so that one that a program refills costs less. */
const MAX_CACHED_VALUE = 4_096;

/** Offset of the report slots in the result block, in units of 8 bytes. */
const REPORT = 2;

/** Number of views that are cached for reuse. */
const VIEWS = 1_024;

/** The memory of one wasm instance. */
export class WasmMemory {
  /** All of the wasm memory. Its length is 0 once the memory has grown. */
  u8!: Uint8Array<ArrayBuffer>;
  /** The same memory for typed views, with its epoch. */
  readonly memory: Memory;
  /** Counts events that may change the addresses of values: writes, and detached views. */
  changes: number;
  /**
   * Whether values are returned as copies until the turn ends: the views of this turn fill all the memory that
   * may be kept for views, so values read from now on share a small buffer that is reused at once.
   */
  mustCopy: boolean;
  /** Whether views were given out in this turn that must stay valid until it ends. */
  viewsHeld: boolean;
  /** Number of iterations that gave out a view in this turn that must stay valid until their next step. */
  rowsHeld: number;
  /** Counts turns. */
  turn: number;
  /** Counts events that may have undone writes: rollbacks and failures. */
  rollbacks: number;
  protected u32!: Uint32Array<ArrayBuffer>;
  protected f64!: Float64Array<ArrayBuffer>;
  protected buffer!: ArrayBuffer;
  /** The first key area: holds the encoded key of the next call. */
  protected scratch!: Uint8Array<ArrayBuffer>;
  protected readonly scratchAt: number;
  /** The second key area: holds a second key, or a short value for the first one. */
  protected second!: Uint8Array<ArrayBuffer>;
  protected readonly secondAt: number;
  /** The queue of buffered sets. They are applied before any other call, or when the queue is full. */
  protected queue!: Uint8Array<ArrayBuffer>;
  /** Start of the queue. */
  protected readonly queueAt: number;
  /** End of the buffered sets. */
  protected queueEnd: number;
  /** End of the usable queue; 0 if sets are not buffered, `BROKEN` if a call trapped. */
  protected queueLimit: number;
  /** Index in `u32` of a call's result code and, next, of its length. */
  protected readonly codeAt: number;
  protected readonly lengthAt: number;
  protected readonly reportAt: number;
  readonly name: string;
  /** The text whose encoding is in the scratch area, so that reading and then writing a key encodes it once. */
  private lastKey: string;
  private lastKeyLength: number;
  /** Counts how often the content of the scratch area was replaced. */
  private forgotten: number;
  /** The array that was inspected last: reading its `buffer` again would cost 25 ns. */
  protected lastValue!: Uint8Array;
  /** Cache of recent views, and their addresses; 0 for an empty slot. */
  private readonly views: Uint8Array<ArrayBuffer>[];
  private readonly viewsAt: Uint32Array<ArrayBuffer>;

  protected constructor(name: string, buffer: ArrayBuffer, scratchAt: number, resultAt: number) {
    this.name = name;
    this.scratchAt = scratchAt;
    this.secondAt = scratchAt + MAX_KEY + 1;
    this.queueAt = this.secondAt + MAX_KEY + 1;
    this.queueEnd = this.queueAt;
    this.queueLimit = 0;
    this.codeAt = resultAt >>> 2;
    this.lengthAt = this.codeAt + 1;
    this.reportAt = (resultAt >>> 3) + REPORT;
    this.changes = 0;
    this.rollbacks = 0;
    this.mustCopy = false;
    this.viewsHeld = false;
    this.rowsHeld = 0;
    this.turn = 0;
    this.memory = { data: new DataView(buffer), u8: new Uint8Array(buffer), epoch: 0 };
    this.lastKey = "";
    this.lastKeyLength = 0;
    this.forgotten = 0;
    this.viewsAt = new Uint32Array(VIEWS);
    this.use(buffer);
    this.views = Array.from({ length: VIEWS }, () => this.u8);
  }

  // ---------------------------------------------------------------- views

  /** A new view of the memory at an address that the engine returned. */
  viewAt(at: number, length: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.buffer, at, length);
  }

  /** A new view of the value found last, at this address; a copy if `mustCopy` is set. */
  freshView(at: number): Uint8Array<ArrayBuffer> {
    const length = this.u32[this.lengthAt] as number;
    return this.mustCopy ? this.copyAt(at, length) : new Uint8Array(this.buffer, at, length);
  }

  /**
   * Ends a turn: its views need not stay valid any longer. They are detached later, and all at once, when the engine is
   * about to reuse memory that one may show (`Engine.endTurn`, `refresh`), or when the memory grows (`renew`). With
   * `strictViews` each view is a copy, which is detached at once (`strict-views.ts`).
   */
  releaseViews(): void {
    this.viewsHeld = false;
    this.rowsHeld = 0;
    this.turn += 1;
  }

  /** A copy of the memory at an address that the engine returned. */
  copyAt(at: number, length: number): Uint8Array<ArrayBuffer> {
    return allocated(this.name, () => this.u8.slice(at, at + length));
  }

  /** A typed view of a copy of the value found last, at this address. */
  copied<View>(
    codec: { view(memory: Memory, at: number, length: number): View },
    at: number,
  ): View {
    const u8 = this.copyAt(at, this.foundLength());
    return codec.view({ data: new DataView(u8.buffer), u8, epoch: 0 }, 0, u8.length);
  }

  /**
   * A view of the memory at an address that the engine returned. A cached view of the same bytes is reused:
   * reading and then changing a record makes one view instead of two, and reading the same few records
   * repeatedly makes no new ones.
   */
  view(at: number, length: number): Uint8Array<ArrayBuffer> {
    const { views, viewsAt } = this;
    const slot = ((at >>> 3) ^ (at >>> 13)) & (VIEWS - 1);
    if (viewsAt[slot] === at) {
      const known = views[slot] as Uint8Array<ArrayBuffer>;
      if (known.length === length) return known;
    }
    const view = new Uint8Array(this.buffer, at, length);
    viewsAt[slot] = at;
    views[slot] = view;
    return view;
  }

  /** The page of keys that the engine wrote at an address. `capacity` is the number of keys that it has space for. */
  protected pageAt(at: number, capacity: number, withValues: boolean): Page {
    const count = this.u32[this.lengthAt] as number;
    const values = capacity + 1;
    const from = at >>> 2;
    const keys = from + values + (withValues ? 2 * capacity : 0);
    const numbers = this.u32.slice(from, from + (withValues ? values + 2 * count : count + 1));
    const bytes = this.u8.slice(keys << 2, (keys << 2) + (numbers[count] as number));
    return { count, numbers, values, bytes, changes: this.changes };
  }

  /** The rows that the engine wrote at an address, whose values it has copied. They are views of its memory. */
  protected rowsAt(at: number, capacity: number): CopiedRows {
    const count = this.u32[this.lengthAt] as number;
    const from = at >>> 2;
    const keyEnds = this.u32.subarray(from + 1, from + 1 + count);
    const valueEnds = this.u32.subarray(from + capacity + 1, from + capacity + 1 + count);
    const keys = at + 4 * (1 + 3 * capacity);
    const values = this.f64[(this.codeAt >>> 1) + 1] as number;
    return {
      count,
      keyEnds,
      valueEnds,
      keys: this.u8.subarray(keys, keys + (keyEnds[count - 1] ?? 0)),
      values: this.u8.subarray(values, values + (valueEnds[count - 1] ?? 0)),
    };
  }

  /** Rebuilds all typed arrays on this buffer, after the memory has grown or its views were detached. */
  protected renew(buffer: ArrayBuffer): void {
    markDetached(this.buffer);
    this.use(buffer);
  }

  /** Drops all references to the memory. */
  protected abandon(): void {
    this.renew(new ArrayBuffer(0));
    this.views.fill(this.u8);
  }

  /** Makes this buffer the memory. An empty buffer leaves none. */
  private use(buffer: ArrayBuffer): void {
    const { memory, secondAt, queueAt } = this;
    const area = (from: number, to: number) => this.u8.subarray(from, to);
    this.changes += 1;
    this.buffer = buffer;
    this.u8 = new Uint8Array(buffer);
    this.u32 = new Uint32Array(buffer);
    this.f64 = new Float64Array(buffer);
    this.scratch = area(this.scratchAt, secondAt);
    this.second = area(secondAt, queueAt);
    this.queue = area(queueAt, queueAt + QUEUE);
    memory.data = new DataView(buffer);
    memory.u8 = this.u8;
    memory.epoch += 1;
    // The array remembered as inspected may have been a view of the old memory.
    this.lastValue = this.u8;
    this.viewsAt.fill(0);
  }

  // ---------------------------------------------------------------- keys

  /** Length of the value that was found or staged last. */
  foundLength(): number {
    return this.u32[this.lengthAt] as number;
  }

  /** Encodes a key into the scratch area and returns its length in bytes. */
  encodeKey(key: Key): number {
    if (typeof key !== "string") return this.encodeBytes(key);
    if (key === this.lastKey && this.lastKeyLength !== 0) return this.lastKeyLength;
    if (key.length > SHORT_TEXT) return this.encodeText(key);
    const length = this.copyAscii(key, this.scratchAt);
    if (length <= 0) return this.encodeText(key);
    this.lastKey = key;
    this.lastKeyLength = length;
    return length;
  }

  private encodeText(key: string): number {
    this.forgetKey();
    if (key.length === 0) throw this.refusal(Code.EmptyKey);
    if (key.length > MAX_KEY) throw this.refusal(Code.KeyTooLong);
    refuseLoneSurrogates("key", key);
    const { read, written } = encoder.encodeInto(key, this.scratch);
    if (read < key.length || written > MAX_KEY) throw this.refusal(Code.KeyTooLong);
    return written;
  }

  private encodeBytes(key: Exclude<Key, string>): number {
    const bytes = key instanceof Uint8Array ? key : asBytes("key", key);
    refuseLost("key", bytes);
    const length = byteLengthOf(bytes);
    if (length === 0) throw this.refusal(Code.EmptyKey);
    if (length > MAX_KEY) throw this.refusal(Code.KeyTooLong);
    this.forgetKey();
    copy(bytes, length, this.scratch, 0);
    return length;
  }

  /** Encodes the note of a transaction into the second key area and returns its length. */
  encodeNote(note: unknown): number {
    if (typeof note !== "string") {
      throw badArgument("The option note of transaction() must be a string.", note);
    }
    const length = note.length <= SHORT_TEXT ? this.copyAscii(note, this.secondAt) : -1;
    if (length >= 0) return length;
    refuseLoneSurrogates("note", note);
    const { read, written } = encoder.encodeInto(note, this.second);
    if (read < note.length) {
      throw badArgument(
        "The option note of transaction() must have at most 65,536 bytes of UTF-8.",
      );
    }
    return written;
  }

  /** A copy of the key that was encoded last. */
  encoded(length: number): Uint8Array<ArrayBuffer> {
    return this.scratch.slice(0, length);
  }

  /** As `encodeKey`, for a key with its own encoder. Returns its length. */
  encodeBy<K>(writer: KeyWriter<K>, key: K): number {
    this.forgetKey();
    const { scratch, forgotten } = this;
    let length = writer.write(scratch, key);
    if (this.forgotten !== forgotten || this.lastKeyLength !== 0 || this.scratch !== scratch) {
      length = this.encodeSeparately(writer, key);
    }
    if (length > MAX_KEY) throw this.refusal(Code.KeyTooLong);
    return length;
  }

  /**
   * Encodes a key again in a separate array, because its own code, such as a getter, called the database and so
   * overwrote the scratch area.
   */
  private encodeSeparately<K>(writer: KeyWriter<K>, key: K): number {
    const area = new Uint8Array(MAX_KEY + 1);
    const length = writer.write(area, key);
    this.forgetKey();
    this.scratch.set(area);
    return length;
  }

  /** Copies a key of a page into the scratch area. */
  protected encodeFromPage(bytes: Uint8Array, start: number, end: number): void {
    this.forgetKey();
    const { scratch } = this;
    for (let from = start, to = 0; from < end; from++, to++) scratch[to] = bytes[from] as number;
  }

  /**
   * Encodes the keys from index `from` on one after another into the second scratch area, preceded by their
   * offsets and the end of the last one. Returns how many fit. A key that is too long for the area is written as
   * an empty key, which no record has.
   */
  protected encodeMany(keys: readonly Key[], from: number): number {
    const { u8, u32, scratchAt, secondAt } = this;
    const starts = secondAt >>> 2;
    const first = secondAt + MANY_HEAD;
    const end = secondAt + MAX_KEY + 1;
    const most = Math.min(MANY, keys.length - from);
    let at = first;
    let count = 0;
    for (; count < most; count++) {
      const key = keys[from + count] as Key;
      u32[starts + count] = at - first;
      let length = -1;
      if (typeof key === "string" && key.length <= SHORT_TEXT && at % 4 === 0) {
        if (at + SHORT_TEXT > end) break;
        length = this.copyAscii(key, at);
      }
      if (length <= 0) {
        length = this.encodeKey(key);
        if (at + length > end) {
          if (count > 0) break;
          length = 0;
        }
        u8.copyWithin(at, scratchAt, scratchAt + length);
      }
      at += length;
    }
    u32[starts + count] = at - first;
    return count;
  }

  /**
   * Appends the views of the values found for `count` keys, and `undefined` for those not found in memory.
   * Returns the indexes of the latter.
   */
  protected viewsOfMany(count: number, views: (Uint8Array<ArrayBuffer> | undefined)[]): number[] {
    const { u32 } = this;
    const values = (this.secondAt >>> 2) + MANY + 1;
    const missing: number[] = [];
    for (let i = values; i < values + 2 * count; i += 2) {
      const at = u32[i] as number;
      if (at === 0) missing.push(views.length);
      views.push(at === 0 ? undefined : this.view(at, u32[i + 1] as number));
    }
    return missing;
  }

  /** Writes the bounds into the two scratch areas and returns their lengths. */
  protected encodeBounds({ lower, upper }: KeyRange): [number, number] {
    this.forgetKey();
    if (lower !== undefined) this.u8.set(lower, this.scratchAt);
    if (upper !== undefined) this.u8.set(upper, this.secondAt);
    return [lower?.length ?? NO_BOUND, upper?.length ?? NO_BOUND];
  }

  /** Marks the content of the scratch area as replaced. */
  protected forgetKey(): void {
    this.lastKey = "";
    this.lastKeyLength = 0;
    this.forgotten += 1;
  }

  // ---------------------------------------------------------------- values

  /**
   * Checks that bytes can be a value, and returns them or a copy. A view of this memory is copied, because the
   * call that allocates the new record may reuse the memory of the old one. An array whose buffer another thread
   * may grow or resize is copied too.
   */
  protected inspect(bytes: Uint8Array, length: number): Uint8Array {
    refuseLost("value", bytes);
    if (length > MAX_VALUE) throw this.refusal(Code.ValueTooLong);
    const buffer = bufferOf(bytes);
    // Not slice(), which a subclass may override: that of a Buffer makes no copy.
    if (buffer === this.buffer || !isOrdinary(buffer)) {
      const copy = allocated(this.name, () => new Uint8Array(bytes));
      return copy.length === length ? copy : copy.subarray(0, length);
    }
    if (length <= MAX_CACHED_VALUE) this.lastValue = bytes;
    return bytes;
  }

  protected encodeValue(text: string): Uint8Array<ArrayBuffer> {
    return allocated(this.name, () => encoder.encode(text));
  }

  /**
   * Copies a short value into the second key area. It is read once, whatever memory it lies in. If another thread
   * makes the array longer meanwhile, the copy throws instead of writing beyond that area.
   */
  protected stage(bytes: Uint8Array, length: number): void {
    refuseLost("value", bytes);
    copy(bytes, length, this.second, 0);
  }

  // ---------------------------------------------------------------- the queue

  /**
   * Appends a set to the queue if it fits, and if key and value only need to be copied. Returns whether it did.
   * The set takes as many bytes of the queue as its record will take of the log, because the engine has reported
   * how many bytes of records are sure to fit there.
   */
  protected waits(key: Key, value: Value, keyspace: number): boolean {
    const keyUnits = lengthOf(key);
    const units = lengthOf(value);
    const { queueEnd, u32 } = this;
    const keyAt = queueEnd + QUEUE_HEAD;
    const keyLength = this.enqueue(key, keyUnits, keyAt);
    if (keyLength <= 0) return false;
    const valueAt = keyAt + ((keyLength + 7) & ~7);
    const length = this.enqueue(value, units, valueAt);
    const end = valueAt + ((length + 7) & ~7);
    if (length <= 0 || end > this.queueLimit) return false;
    const head = queueEnd >>> 2;
    u32[head] = keyspace;
    u32[head + 1] = keyLength;
    u32[head + 2] = length;
    this.queueEnd = end;
    this.changes += 1;
    return true;
  }

  /**
   * Copies bytes or a short ASCII text to an address in the queue, and returns their length. The result is 0 or
   * less if they are of another type, do not fit or are detached; the call without the queue then handles them.
   */
  private enqueue(given: Key | Value, length: number, at: number): number {
    if (length === 0 || at + length > this.queueLimit) return 0;
    if (typeof given === "string") return length <= SHORT_TEXT ? this.copyAscii(given, at) : 0;
    if (!(given instanceof Uint8Array) || given[0] === undefined) return 0;
    copy(given, length, this.queue, at - this.queueAt);
    return length;
  }

  /** Empties and closes the queue. Returns the number of bytes that were in use. */
  protected takeQueue(): number {
    const length = this.queueEnd - this.queueAt;
    this.queueEnd = this.queueAt;
    this.queueLimit = 0;
    return length;
  }

  /**
   * Writes an ASCII text to an address that is a multiple of four, and returns its length, or -1 if it has other
   * characters. Writes four characters at a time, because reading them one by one already takes half of the time.
   */
  protected copyAscii(text: string, at: number): number {
    const { u8, u32 } = this;
    const { length } = text;
    const word = at >>> 2;
    let all = 0;
    let i = 0;
    for (const last = length - 3; i < last; i += 4) {
      const a = text.charCodeAt(i);
      const b = text.charCodeAt(i + 1);
      const c = text.charCodeAt(i + 2);
      const d = text.charCodeAt(i + 3);
      all |= a | b | c | d;
      u32[word + (i >>> 2)] = a | (b << 8) | (c << 16) | (d << 24);
    }
    for (; i < length; i++) {
      const unit = text.charCodeAt(i);
      all |= unit;
      u8[at + i] = unit;
    }
    return all < 0x80 ? length : -1;
  }

  /** The error for an invalid key or value. */
  private refusal(code: number): Error {
    return failureOf(code, { name: this.name, cause: {} });
  }
}

/** The length of a text, or the true byte length of an array; 0 for anything else. */
function lengthOf(given: Key | Value): number {
  if (typeof given === "string") return given.length;
  return given instanceof Uint8Array ? byteLengthOf(given) : 0;
}

/**
 * Copies bytes to an offset in an area. If another thread makes a longer array of them meanwhile, `set` throws
 * instead of writing beyond the area.
 */
function copy(bytes: Uint8Array, length: number, area: Uint8Array, at: number): void {
  if (length > SHORT_BYTES) area.set(bytes, at);
  else for (let i = 0; i < length; i++) area[at + i] = bytes[i] as number;
}
