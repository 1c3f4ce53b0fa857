/**
 * The boundary to the wasm module: calls of its exports (`wasm-exports.ts`), with the bytes of keys and values in
 * its memory (`wasm-memory.ts`). Both parts are one object, so that the hot path reads plain fields.
 */

import type { DatabasePoisonedError, VarveError } from "../errors/index.js";
import type { StorageFile } from "../storage/storage.js";
import {
  asBytes,
  byteLengthOf,
  type Key,
  refuseLoneSurrogates,
  type Value,
} from "../util/bytes.js";
import { encoder } from "../util/text-coders.js";
import { EngineLog } from "./engine-log.js";
import { brokenEngine, Code, type FailureContext, failureOf } from "./error-codes.js";
import { type ClearListener, type KeyListener, KeyListeners } from "./key-listeners.js";
import {
  damageOf,
  type EngineStats,
  type History,
  type HostStats,
  type Recovery,
  type Report,
  recoveryOf,
  statsOf,
} from "./reports.js";
import { type BlankInstance, type Exports, instantiate } from "./wasm-exports.js";
import type { Host } from "./wasm-imports.js";
import {
  BROKEN,
  type CopiedRows,
  type KeyRange,
  type Page,
  RAW,
  SHORT_TEXT,
  SHORT_VALUE,
  WasmMemory,
} from "./wasm-memory.js";

/** The status of a successful call. */
export const OK = 0;

/** Receives the failures of the engine, so that one place decides how to handle them. */
export interface EngineListener {
  /** A write failed, and the pending writes may be lost with it. */
  writeFailed(error: Error): void;
  /** All views were detached: the memory has grown, or the memory that they show is about to be reused. */
  viewsDetached(): void;
  /** The wasm instance failed and refuses every call. */
  poisoned(error: DatabasePoisonedError): void;
}

/** The result of `version` for a key that lost writes may have changed. */
const UNCERTAIN = 3;

/** Texts above this length are encoded separately, because their UTF-8 may not fit in the second key area. */
const LONG_TEXT = 8_192;

const LOWER_EXCLUDED = 1;
const UPPER_INCLUDED = 2;
const BACKWARDS = 4;
const WITH_VALUES = 8;
const COPY_VALUES = 16;
const SEPARATE_VALUES = 32;

function flagsOf({ lowerExcluded, upperIncluded, reverse }: KeyRange): number {
  return (
    (lowerExcluded ? LOWER_EXCLUDED : 0) |
    (upperIncluded ? UPPER_INCLUDED : 0) |
    (reverse ? BACKWARDS : 0)
  );
}

const SEGMENT_LOG2 = 20;

const POINTS_ONLY = 1;
const READ_ONLY = 2;
const RECOVERIES = { prefix: 4, salvage: 8 };
const FRESH = 16;
const RESERVES_LATER = 32;
const HISTORIES = { keep: 64, none: 128 };

/** The options with which an engine opens its file. */
export interface EngineOptions {
  readonly memory: number;
  readonly spaceFactor: number;
  readonly ordered: boolean;
  readonly readOnly: boolean;
  /** What a new file is to be, and any other has to be. */
  readonly history?: History | undefined;
  /** Whether the last writer may still finish a write: new frames are then written where that does no harm. */
  readonly takenOver?: boolean | undefined;
  /** Whether `reserve` will be called before the program's own functions are. */
  readonly reservesLater?: boolean | undefined;
  /** For a new file: the binary logarithm of the segment size. */
  readonly segmentLog2?: number;
}

/** One wasm instance with one open database. */
export class Engine extends WasmMemory {
  /** The compiled module, of which other databases are other instances. */
  readonly module: WebAssembly.Module;
  listener: EngineListener | undefined;
  /** The exports, only for calls that do not need the queue applied first; see `wasm`. */
  private exports: Exports;
  private readonly host: Host;
  /** Walks over the log, notes, cursors and marks. */
  readonly log: EngineLog;
  /** @internal The numbers that the last report consists of. */
  readonly slot: Report;
  /** The unwrapped exports, while `exports` wraps them for key listeners. */
  private rawExports: Exports | undefined;
  private readonly keyListeners: KeyListeners;
  private uncertain = false;
  /** Whether the store has, or had, records that expire. Then `setNow` has to be called in each turn. */
  expiring = false;
  /** The time up to which records have expired, in seconds since 1970. */
  now = 0;
  private expiry = 0;
  /** Whether the file was empty when it was opened. */
  isNew = false;
  /** The option `memory`, until the memory for one turn is reserved. */
  private unreserved = 0;
  private onSorting: ((count: number) => void) | undefined = undefined;
  private poisonedError: DatabasePoisonedError | undefined;
  private poisonCause: Error | undefined;

  private constructor(name: string, module: WebAssembly.Module, wasm: Exports, host: Host) {
    super(name, wasm.memory.buffer as ArrayBuffer, wasm.scratch() >>> 0, wasm.result() >>> 0);
    this.module = module;
    this.listener = undefined;
    this.exports = wasm;
    this.host = host;
    host.areViewsHeld = () => this.viewsHeld || this.rowsHeld !== 0;
    host.onStartCopying = () => {
      this.mustCopy = true;
    };
    this.slot = (index) => this.f64[this.reportAt + index] as number;
    this.log = new EngineLog(this);
    this.rawExports = undefined;
    this.keyListeners = new KeyListeners();
    this.poisonedError = undefined;
    this.poisonCause = undefined;
  }

  /**
   * Opens the database of this file, in `blank` or a new instance.
   *
   * @throws CorruptionError, UnsupportedFormatError, QuotaExceededError, StorageError; the file is
   * left open and as it was. An error thrown by `onBytes` ends the opening as if the file could not be read.
   */
  static async open(
    name: string,
    module: WebAssembly.Module,
    file: StorageFile,
    options: EngineOptions,
    recovery?: "prefix" | "salvage",
    onBytes?: (count: number) => void,
    blank?: BlankInstance,
  ): Promise<Engine> {
    const { host, wasm } = blank ?? (await instantiate(name, module));
    host.use(file, options.readOnly);
    file.moveInto?.(wasm.memory);
    const engine = new Engine(name, module, wasm, host);
    engine.isNew = file.getSize() === 0;
    const entropy = new Uint32Array(8);
    // A read-only engine needs no randomness, and may be opened where there is none yet: in the global scope
    // of a Worker.
    if (!options.readOnly) crypto.getRandomValues(entropy);
    const reservesLater = options.reservesLater === true && !options.readOnly;
    const flags =
      (options.ordered ? 0 : POINTS_ONLY) |
      (options.readOnly ? READ_ONLY : 0) |
      (options.takenOver === true ? FRESH : 0) |
      (reservesLater ? RESERVES_LATER : 0) |
      (recovery === undefined ? 0 : RECOVERIES[recovery]) |
      (options.history === undefined ? 0 : HISTORIES[options.history]);
    host.onBytes = onBytes;
    const { memory, segmentLog2 = SEGMENT_LOG2 } = options;
    const factor = Math.round(options.spaceFactor * 100);
    engine.check(engine.call(() => wasm.open(segmentLog2, flags, memory, factor, ...entropy)));
    if (reservesLater) engine.unreserved = memory;
    host.onBytes = undefined;
    engine.expiring = wasm.expires() !== 0;
    // Count reads only after opening, so that they are reads of data that was not in memory.
    host.reads = 0;
    host.readBytes = 0;
    return engine;
  }

  /** Reserves the memory that a turn may use without detaching views, unless opening has done it. */
  reserve(): void {
    const { unreserved } = this;
    if (unreserved === 0) return;
    this.unreserved = 0;
    this.call(() => this.wasm.reserve(unreserved));
  }

  // ---------------------------------------------------------------- reading

  /** A view of the value, or `undefined`. */
  get(key: Key, keyspace = RAW): Uint8Array<ArrayBuffer> | undefined {
    const at = this.find(this.encodeKey(key), keyspace);
    if (at === 0) return undefined;
    const length = this.u32[this.lengthAt] as number;
    return this.mustCopy ? this.copyAt(at, length) : this.view(at, length);
  }

  has(key: Key, keyspace = RAW): boolean {
    return this.find(this.encodeKey(key), keyspace) !== 0;
  }

  /** Finds the encoded key. Returns the address of its value, or 0 if missing; its length is `foundLength()`. */
  find(keyLength: number, keyspace: number): number {
    let at: number;
    // Inlined from `wasm`: calling that getter would take a fourteenth of the time of this function.
    if (this.queueLimit !== 0) this.flushQueue();
    try {
      at = this.exports.find(keyspace, keyLength) >>> 0;
      // A cold record may have taken memory.
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.poisonWith(trap);
    }
    if (at === 0) this.check(this.u32[this.codeAt] as number);
    return at;
  }

  /** The version of the encoded key's value; 0 when there is none. */
  version(keyLength: number, keyspace = RAW): number {
    const found = this.call(() => this.wasm.version(keyspace, keyLength));
    if (found < 0) throw this.failure(this.u32[this.codeAt] as number);
    this.uncertain = found === UNCERTAIN;
    this.expiry = found === 0 ? 0 : (this.f64[(this.codeAt >>> 1) + 2] as number);
    return found === 0 ? 0 : (this.f64[(this.codeAt >>> 1) + 1] as number);
  }

  /** Whether lost writes may have changed or deleted the key whose version was asked for last. */
  isUncertain(): boolean {
    return this.uncertain;
  }

  // ---------------------------------------------------------------- expiry

  /** When the key whose version was asked for last expires, in seconds since 1970; 0 for never. */
  foundExpiry(): number {
    return this.expiry;
  }

  /** When the encoded key expires, in seconds since 1970; 0 for never, or if it is missing. */
  expiryOf(keyLength: number, keyspace: number): number {
    if (this.expiring) this.version(keyLength, keyspace);
    return this.expiring ? this.expiry : 0;
  }

  /** Gives the store the time in seconds. What has expired is absent from now on, and some of it is deleted. */
  setNow(seconds: number): void {
    this.changes += 1;
    this.now = this.call(() => this.wasm.set_now(seconds)) >>> 0;
    const code = this.u32[this.codeAt] as number;
    // The writes of an open batch, of an earlier turn, are lost.
    if (code !== OK) throw this.writeFailure(code);
  }

  /** Deletes all that has expired, so that the log shows it. */
  deleteDue(): void {
    if (this.expiring) this.check(this.call(() => this.wasm.delete_due()));
  }

  /** Gives the record that is set next an expiry in seconds since 1970; 0 for never. */
  expireNext(seconds: number): void {
    if (seconds !== 0) this.expiring = true;
    this.call(() => this.wasm.expire_next(seconds));
  }

  /** Sets a key to a value that expires. */
  setExpiring(key: Key, value: Value, seconds: number, keyspace = RAW): void {
    this.expireNext(seconds);
    try {
      this.set(key, value, keyspace);
    } finally {
      // If the key or the value was refused, this must not count for the next one.
      if (this.poisonedError === undefined) this.expireNext(0);
    }
  }

  /** Changes when the encoded key expires. Returns whether it exists. */
  touch(keyLength: number, seconds: number, keyspace = RAW): boolean {
    if (seconds !== 0) this.expiring = true;
    this.changes += 1;
    const before = this.call(() => this.wasm.pending());
    const answer = this.call(() => this.wasm.touch(keyspace, keyLength, seconds));
    if (answer >= 0) return answer === 1;
    const code = this.u32[this.codeAt] as number;
    throw before === 0 ? this.failure(code) : this.writeFailure(code);
  }

  // ---------------------------------------------------------------- writing

  set(key: Key, value: Value, keyspace = RAW): void {
    if (this.queueLimit !== 0 && this.waits(key, value, keyspace)) return;
    if (typeof value === "string") {
      this.setText(key, value, keyspace);
      return;
    }
    let bytes = value instanceof Uint8Array ? value : asBytes("value", value);
    const length = byteLengthOf(bytes);
    if (length <= SHORT_VALUE) {
      const keyLength = this.encodeKey(key);
      this.stage(bytes, length);
      this.setStaged(keyLength, length, keyspace);
      return;
    }
    if (bytes !== this.lastValue || bytes[0] === undefined) bytes = this.inspect(bytes, length);
    const at = this.setBegin(this.encodeKey(key), length, keyspace);
    this.u8.set(bytes, at);
    this.finish(length);
  }

  private setText(key: Key, text: string, keyspace: number): void {
    const { length } = text;
    const keyLength = this.encodeKey(key);
    let written = length <= SHORT_TEXT ? this.copyAscii(text, this.secondAt) : -1;
    if (written < 0) {
      refuseLoneSurrogates("value", text);
      if (length > LONG_TEXT) {
        this.set(key, this.encodeValue(text), keyspace);
        return;
      }
      written = encoder.encodeInto(text, this.second).written;
    }
    this.setStaged(keyLength, written, keyspace);
  }

  /** Sets the encoded key to the first `length` bytes of the second key area. */
  private setStaged(keyLength: number, length: number, keyspace: number): void {
    const areSeveral = this.queueLimit !== 0;
    let status: number;
    this.changes += 1;
    try {
      status = this.wasm.set(keyspace, keyLength, length);
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.poisonWith(trap);
    }
    if (status !== OK) throw status < 0 ? this.failure(-status) : this.writeFailure(status);
    this.queueFurtherSets(areSeveral);
  }

  /** Stages a record for the encoded key and returns its address. `finish` or `abort` has to follow. */
  setBegin(keyLength: number, capacity: number, keyspace: number): number {
    let at: number;
    try {
      at = this.wasm.set_begin(keyspace, keyLength, capacity) >>> 0;
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.poisonWith(trap);
    }
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return at;
  }

  /** Deletes a key. Returns whether it existed. */
  remove(key: Key, keyspace = RAW): boolean {
    return this.removeEncoded(this.encodeKey(key), keyspace);
  }

  removeEncoded(keyLength: number, keyspace: number): boolean {
    let before: number;
    let answer: number;
    this.changes += 1;
    try {
      before = this.wasm.pending();
      answer = this.exports.remove(keyspace, keyLength);
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.poisonWith(trap);
    }
    if (answer < 0) {
      const code = this.u32[this.codeAt] as number;
      // Without pending writes none can be lost.
      throw before === 0 ? this.failure(code) : this.writeFailure(code);
    }
    return answer === 1;
  }

  // ---------------------------------------------------------------- changing in place

  /**
   * Stages the record of a key for an update in place. Returns its address, or 0 if the key is missing; its
   * length is `foundLength()`. `finish` or `abort` has to follow.
   */
  updateBegin(key: Key): number {
    return this.updateBeginEncoded(this.encodeKey(key), RAW);
  }

  updateBeginEncoded(keyLength: number, keyspace: number): number {
    let at: number;
    if (this.queueLimit !== 0) this.flushQueue();
    try {
      at = this.exports.update_begin(keyspace, keyLength) >>> 0;
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.poisonWith(trap);
    }
    if (at === 0) {
      const code = this.u32[this.codeAt] as number;
      if (code !== OK) throw this.failure(code);
    }
    return at;
  }

  /** Replaces the staged bytes by these and returns their length, for `finish`. */
  updateReplace(value: Value): number {
    if (typeof value === "string") refuseLoneSurrogates("value", value);
    let bytes =
      typeof value === "string"
        ? this.encodeValue(value)
        : value instanceof Uint8Array
          ? value
          : asBytes("value", value);
    const length = byteLengthOf(bytes);
    const isShort = length <= SHORT_VALUE;
    if (isShort) this.stage(bytes, length);
    else bytes = this.inspect(bytes, length);
    const at = this.updateResize(length);
    if (isShort) this.u8.copyWithin(at, this.secondAt, this.secondAt + length);
    else this.u8.set(bytes, at);
    return length;
  }

  /** Resizes the staged value to `length` bytes and returns its new address. */
  updateResize(length: number): number {
    const at = this.call(() => this.wasm.update_resize(length)) >>> 0;
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return at;
  }

  // ---------------------------------------------------------------- staged records

  /** Publishes the staged record, new or changed, with a value of `length` bytes. */
  finish(length: number): void {
    let status: number;
    this.changes += 1;
    try {
      status = this.wasm.finish(length);
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.poisonWith(trap);
    }
    if (status !== OK) throw this.writeFailure(status);
  }

  /** Discards the staged record. A record that was being changed has its old bytes again. */
  abort(): void {
    this.call(this.wasm.abort);
  }

  // ---------------------------------------------------------------- pins

  /** Pins the value of a key: it stays unchanged until `unpin`. Returns a handle, or 0 if the key is missing. */
  pin(key: Key): number {
    const keyLength = this.encodeKey(key);
    return this.found(this.call(() => this.wasm.pin(RAW, keyLength)) >>> 0);
  }

  /** A view of a pinned value. */
  pinned(handle: number): Uint8Array<ArrayBuffer> {
    const at = this.call(() => this.wasm.pinned(handle)) >>> 0;
    return new Uint8Array(this.buffer, at, this.u32[this.lengthAt]);
  }

  unpin(handle: number): void {
    this.call(() => this.wasm.unpin(handle));
  }

  /** Takes a snapshot. Its number, added to the number of a keyspace, reads the keyspace as of this moment. */
  snapshot(): number {
    return this.found(this.call(this.wasm.snapshot) >>> 0);
  }

  endSnapshot(number: number): void {
    this.call(() => this.wasm.end_snapshot(number));
  }

  /**
   * Views of the values of several keys. Values in memory are looked up together, so that the processor can fetch
   * them in parallel. Reading the others may detach those views.
   */
  getMany(keys: readonly Key[], keyspace = RAW): (Uint8Array<ArrayBuffer> | undefined)[] {
    const views: (Uint8Array<ArrayBuffer> | undefined)[] = [];
    while (views.length < keys.length) {
      const count = this.encodeMany(keys, views.length);
      this.call(() => this.wasm.find_many(keyspace, count));
      for (const index of this.viewsOfMany(count, views)) {
        views[index] = this.get(keys[index] as Key, keyspace);
      }
    }
    return views;
  }

  count(keyspace = RAW): number {
    return this.counted(() => this.wasm.count(keyspace));
  }

  countRange(range: KeyRange, keyspace = RAW): number {
    this.sort();
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range);
    return this.counted(() => this.wasm.count_range(keyspace, lower, upper, flags));
  }

  /** Sorts a part of the keys; the first range would sort all at once. Returns whether there are more parts. */
  sortPart(): boolean {
    const more = this.counted(() => this.wasm.sort_part()) > 0;
    if (!more) this.onSorting = undefined;
    return more;
  }

  /** Deletes the first `limit` keys of a range and returns how many. If it throws, none are deleted. */
  clear(range: KeyRange, limit: number, keyspace = RAW): number {
    if (range.lower !== undefined || range.upper !== undefined) this.sort();
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range);
    const before = this.call(() => this.wasm.pending());
    this.changes += 1;
    this.keyListeners.notifyCleared(keyspace);
    const count = this.call(() => this.wasm.clear(keyspace, lower, upper, flags, limit));
    if (count >= 0) return count;
    const code = this.u32[this.codeAt] as number;
    // Without pending writes none can be lost.
    throw before === 0 ? this.failure(code) : this.writeFailure(code);
  }

  counted(wasmCall: () => number): number {
    const count = this.call(wasmCall);
    if (count < 0) throw this.failure(this.u32[this.codeAt] as number);
    return count;
  }

  /** Reads a page with the first `maxKeys` keys of a range. */
  scan(range: KeyRange, maxKeys: number, withValues = false, keyspace = RAW): Page {
    this.sort();
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range) | (withValues ? WITH_VALUES : 0);
    const at = this.call(() => this.wasm.scan(keyspace, lower, upper, flags, maxKeys)) >>> 0;
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return this.pageAt(at, maxKeys, withValues);
  }

  /**
   * Copies the first `maxKeys` rows of a range, up to some 256 KiB of values, with commas between the values if
   * `areSeparated`. There are none if the range is empty, or if the first value alone is larger.
   */
  copyRows(range: KeyRange, maxKeys: number, areSeparated: boolean, keyspace: number): CopiedRows {
    this.sort();
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range) | COPY_VALUES | (areSeparated ? SEPARATE_VALUES : 0);
    const at = this.call(() => this.wasm.scan(keyspace, lower, upper, flags, maxKeys)) >>> 0;
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return this.rowsAt(at, maxKeys);
  }

  /**
   * Finds the value of the key at this index of a page. Returns its address, or 0 if the key was deleted since;
   * its length is `foundLength()`.
   */
  findOnPage(page: Page, index: number, keyspace: number): number {
    const { numbers, values } = page;
    const known = numbers[values + 2 * index] as number;
    const length = numbers[values + 2 * index + 1] as number;
    if (known !== 0 && page.changes === this.changes) {
      this.u32[this.lengthAt] = length;
      return known;
    }
    const start = numbers[index] as number;
    const end = numbers[index + 1] as number;
    this.encodeFromPage(page.bytes, start, end);
    // If the value was not in memory, the page has the position of its record instead of its length.
    if (known === 0) this.wasm.expect_at(length);
    return this.find(end - start, keyspace);
  }

  /**
   * Sets a listener for the progress of sorting in the first range: it is called with the number of bytes that
   * each part read. If it throws, that range ends with the same error.
   */
  reportSorting(onBytes: (count: number) => void): void {
    this.onSorting = onBytes;
  }

  /**
   * Sorts the keys part by part if there is a progress listener. It is called between calls of the module and
   * never within one, because it may call anything, even another range.
   */
  private sort(): void {
    const { host, onSorting } = this;
    for (let more = onSorting !== undefined; more; ) {
      const before = host.readBytes;
      more = this.sortPart();
      if (host.readBytes > before) onSorting?.(host.readBytes - before);
    }
  }

  // ---------------------------------------------------------------- transactions and commits

  savepoint(): void {
    this.call(this.wasm.savepoint);
  }

  release(): void {
    const status = this.call(this.wasm.release);
    if (status !== OK) throw this.writeFailure(status);
  }

  rollback(): void {
    this.changes += 1;
    this.rollbacks += 1;
    this.call(this.wasm.rollback);
  }

  commit(): void {
    this.check(this.writeKeepingViews(this.wasm.commit));
  }

  flush(): void {
    this.check(this.writeKeepingViews(this.wasm.flush));
  }

  /** Runs a commit or flush that may detach views, because writes must not be lost for lack of memory. */
  private writeKeepingViews(wasmCall: () => number): number {
    const { viewsHeld, rowsHeld } = this;
    this.viewsHeld = false;
    this.rowsHeld = 0;
    try {
      return this.call(wasmCall);
    } finally {
      this.viewsHeld = viewsHeld;
      this.rowsHeld = rowsHeld;
    }
  }

  /** Appends a witness: a frame that records that the frames before it were flushed. */
  witness(): void {
    this.check(this.call(this.wasm.witness));
  }

  /** Bytes of the pending writes; 0 if there is nothing to commit. */
  pending(): number {
    return this.call(this.wasm.pending);
  }

  /** Whether something was written to the file and not flushed. */
  unflushed(): boolean {
    return this.call(this.wasm.unflushed) !== 0;
  }

  /** Whether the last flush has no witness behind it yet. */
  unwitnessed(): boolean {
    return this.call(this.wasm.unwitnessed) !== 0;
  }

  // ---------------------------------------------------------------- turns and maintenance

  /**
   * Ends a turn. Views are detached if memory that one may show is about to be reused. Returns whether there is
   * maintenance to do. Throws an error of this turn that poisoned the database.
   */
  endTurn(detach: boolean): boolean {
    this.releaseViews();
    const answer = this.call(this.wasm.end_turn);
    this.mustCopy = false;
    if ((answer & 1) !== 0 || detach) this.detach();
    if ((answer & 4) !== 0) this.maintain(false);
    return (answer & 2) !== 0;
  }

  /** Runs a slice of maintenance. Returns whether there is more to do. */
  maintain(all: boolean): boolean {
    const more = this.call(() => this.wasm.maintain(all ? 1 : 0));
    if (more < 0) throw this.failure(this.u32[this.codeAt] as number);
    return more !== 0;
  }

  /** Verifies the next part of the file, and reports its progress and findings. */
  verify(unit: number, part: number): Report {
    const status = this.call(() => this.wasm.verify(unit, part));
    if (status < 0) throw this.failure(this.u32[this.codeAt] as number);
    return this.slot;
  }

  /** Sets a listener for reads of the file: each may have allocated memory for this turn. */
  onRead(listener: () => void): void {
    this.host.onRead = listener;
  }

  // ---------------------------------------------------------------- the end

  /** Commits, flushes and marks the end as clean. */
  close(): void {
    this.check(this.call(this.wasm.close));
  }

  // ---------------------------------------------------------------- calls

  /** The exports, after applying the buffered sets, so that no call can observe the buffering. */
  get wasm(): Exports {
    if (this.queueLimit !== 0) this.flushQueue();
    return this.exports;
  }

  /** Applies the buffered sets. */
  private flushQueue(): void {
    if (this.queueLimit < 0) throw this.poisonWith("stack overflow");
    const length = this.takeQueue();
    if (length === 0) return;
    const status = this.call(() => this.exports.set_queued(length));
    // Only sets that cannot fail are buffered, so a failure is a bug of the engine.
    if (status !== OK) throw this.poisonWith(this.failure(status));
  }

  /** After several sets in a row, opens the queue for as many as are sure to fit. Key listeners keep it closed. */
  private queueFurtherSets(areSeveral: boolean): void {
    const capacity =
      areSeveral && this.keyListeners.size === 0 ? this.call(this.exports.queue_capacity) : 0;
    this.queueLimit = this.queueAt + capacity;
  }

  /** Runs a call that may grow the memory and is not hot: an export, or a function that calls one. */
  call<T>(wasmCall: () => T): T {
    if (this.poisonedError !== undefined) throw this.poisonedError;
    let answer: T;
    try {
      answer = wasmCall();
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.poisonWith(trap);
    }
    return answer;
  }

  /** Rebuilds the typed arrays, after the memory has grown or its views were detached. */
  private refresh(): void {
    this.renew(this.exports.memory.buffer as ArrayBuffer);
    this.listener?.viewsDetached();
  }

  /** Detaches all views. */
  detach(): void {
    this.call(() => this.exports.memory.grow(0));
  }

  /** Detaches all views and drops the memory. No call is allowed afterwards. */
  discard(): void {
    this.takeQueue();
    this.exports.memory.grow(0);
    this.abandon();
    this.exports = undefined as unknown as Exports;
    this.rawExports = undefined;
    this.host.abandon();
  }

  // ---------------------------------------------------------------- key listeners

  /**
   * Adds a listener that is called before a key is written, and returns a function that removes it. The write may
   * still fail or be rolled back. Without listeners this costs nothing.
   *
   * `cleared` is called instead, once, before a keyspace or a range of it is cleared.
   */
  observeKeys(listener: KeyListener, cleared: ClearListener): () => void {
    this.keyListeners.add(listener, cleared);
    this.wrapExports();
    return () => {
      if (this.keyListeners.delete(listener)) this.wrapExports();
    };
  }

  private wrapExports(): void {
    // After `discard` there are no exports.
    if (this.poisonedError !== undefined || this.exports === undefined) return;
    // The buffered sets came before the change, so they are applied first.
    const now = this.wasm;
    const wasm = this.rawExports ?? now;
    this.rawExports = wasm;
    this.exports = this.keyListeners.observed(wasm);
  }

  // ---------------------------------------------------------------- failures

  private poisonWith(trap: unknown): DatabasePoisonedError {
    if (this.poisonedError !== undefined) return this.poisonedError;
    const panic = this.host.panic ?? (trap instanceof Error ? trap.message : String(trap));
    const error = brokenEngine(this.name, panic, trap);
    if (this.u8.length === 0) this.refresh();
    // Set last: if the listener overflows the stack, the next call reports the error again.
    this.listener?.poisoned(error);
    this.poisonedError = error;
    return error;
  }

  /** Throws the error of the last call. */
  checkLast(): void {
    this.check(this.u32[this.codeAt] as number);
  }

  check(status: number): void {
    if (status !== OK) throw this.failure(status);
  }

  /** The address that a call answered; 0 if there is nothing. Throws if it is 0 because the call failed. */
  found(address: number): number {
    if (address === 0) this.check(this.u32[this.codeAt] as number);
    return address;
  }

  /** A copy of `count` numbers of 4 bytes at this address. */
  numbersAt(address: number, count: number): Uint32Array<ArrayBuffer> {
    return this.u32.slice(address >>> 2, (address >>> 2) + count);
  }

  private writeFailure(code: number): Error {
    const error = this.failure(code);
    this.listener?.writeFailed(error);
    return error;
  }

  /** The error for a code. An error that the file threw becomes its cause. */
  failure(code: number): Error {
    this.rollbacks += 1;
    const context: FailureContext = { name: this.name, cause: this.host.takeCause() };
    if (code === Code.Poisoned && this.poisonCause !== undefined)
      context.cause = { cause: this.poisonCause };
    if (code === Code.Corruption || code === Code.UnsupportedFormat) {
      this.assertSame();
      this.call(this.wasm.error_report);
      if (code === Code.Corruption) context.details = damageOf(this.slot);
      else context.format = { major: this.slot(0), features: this.slot(1) };
    }
    const error = failureOf(code, context);
    // Calls are never out of order, so this means that a stack overflow broke off an earlier call.
    if ((error as VarveError).code === "VARVE_INTERNAL") {
      return this.poisonWith(Object.assign(new Error("stack overflow"), { cause: error }));
    }
    if (code === Code.Quota || code === Code.Io || code === Code.Lost) this.notePoison(error);
    return error;
  }

  /** Has to be called before damage is reported: throws if another program has written to the file meanwhile. */
  assertSame(): void {
    this.host.file.assertSame?.();
  }

  /** Remembers the error that poisoned the database, if this one did: it is the cause of all later refusals. */
  private notePoison(error: Error): void {
    if (this.poisonCause === undefined && this.stats().poisoned) this.poisonCause = error;
  }

  // ---------------------------------------------------------------- reports

  stats(): EngineStats {
    this.call(this.wasm.stats);
    return statsOf(this.slot);
  }

  /** The reads of the file since opening, and the size of the wasm memory. */
  hostStats(): HostStats {
    const { reads, readBytes } = this.host;
    return { wasmBytes: this.buffer.byteLength, coldReads: reads, coldBytes: readBytes };
  }

  recovery(): Recovery {
    this.call(this.wasm.recovery);
    return recoveryOf(this.slot);
  }
}
