/**
 * The boundary to the wasm module: the only file that names one of its exports. Integers cross; the
 * bytes of keys and values are written into and read from its memory (`engine-memory.ts`).
 *
 * One `Engine` is one wasm instance with one database. What is hot here is written for speed.
 */

import { asBytes, type Key, refuseLoneSurrogates, type Value } from "./bytes.js";
import {
  EngineMemory,
  encoder,
  type KeyRange,
  type Page,
  RAW,
  SHORT_TEXT,
} from "./engine-memory.js";
import {
  damageOf,
  type EngineStats,
  type Outside,
  type Recovery,
  type Report,
  recoveryOf,
  statsOf,
  type VerifyStep,
  verifyStepOf,
} from "./engine-reports.js";
import { DatabasePoisonedError } from "./errors.js";
import { Code, type FailureContext, failureOf } from "./failures.js";
import { Host } from "./host.js";
import type { StorageFile } from "./storage/contract.js";

interface Exports {
  readonly memory: WebAssembly.Memory;
  scratch(): number;
  result(): number;
  open(
    segmentLog2: number,
    flags: number,
    memory: number,
    factor: number,
    ...entropy: number[]
  ): number;
  find(keyspace: number, keyLength: number): number;
  find_many(keyspace: number, count: number): void;
  set_begin(keyspace: number, keyLength: number, capacity: number): number;
  set_commit(length: number): number;
  set_abort(): void;
  remove(keyspace: number, keyLength: number): number;
  count(keyspace: number): number;
  count_range(keyspace: number, lower: number, upper: number, flags: number): number;
  scan(keyspace: number, lower: number, upper: number, flags: number, maxKeys: number): number;
  version(keyspace: number, keyLength: number): number;
  pin(keyspace: number, keyLength: number): number;
  pinned(handle: number): number;
  unpin(handle: number): void;
  update_begin(keyspace: number, keyLength: number): number;
  update_resize(capacity: number): number;
  update_commit(length: number): number;
  update_abort(): void;
  savepoint(): number;
  release(): number;
  rollback(): void;
  commit(): number;
  flush(): number;
  witness(): number;
  close(): number;
  end_turn(): number;
  tend(all: number): number;
  pending(): number;
  unflushed(): number;
  unwitnessed(): number;
  verify(unit: number, part: number): number;
  stats(): void;
  recovery(): void;
  error_report(): void;
}

/** The status of a call that went well. */
const OK = 0;

const SEGMENT_LOG2 = 20;

const POINTS_ONLY = 1;
const READ_ONLY = 2;
const RECOVERIES = { prefix: 4, salvage: 8 };

/** What `version` answers for a key that lost writes may have changed. */
const UNCERTAIN = 3;

const LOWER_EXCLUDED = 1;
const UPPER_INCLUDED = 2;
const BACKWARDS = 4;
const WITH_VALUES = 8;

/** Texts above this length are encoded apart first, so that not three times their length is staged. */
const LONG_TEXT = 8_192;

/** How an engine opens its file. */
export interface EngineOptions {
  readonly memory: number;
  readonly spaceFactor: number;
  readonly ordered: boolean;
  readonly readOnly: boolean;
  /** Of a file that is made by it: segments have two to the power of this many bytes. */
  readonly segmentLog2?: number;
}

/** Who hears of what goes wrong below, so that it is decided in one place what that means. */
export interface EngineListener {
  /** A call failed while a record of it was staged; the group may be gone with it. */
  writeFailed(error: Error): void;
  /** All views have died: the memory has grown, or what they show is about to be used again. */
  viewsDied(): void;
  /** The wasm instance is dead and refuses everything. */
  died(error: DatabasePoisonedError): void;
}

function flagsOf({ lowerExcluded, upperIncluded, reverse }: KeyRange): number {
  return (
    (lowerExcluded ? LOWER_EXCLUDED : 0) |
    (upperIncluded ? UPPER_INCLUDED : 0) |
    (reverse ? BACKWARDS : 0)
  );
}

/** One wasm instance with one open database. */
export class Engine extends EngineMemory {
  /** Its code: another instance of it is another database. */
  readonly module: WebAssembly.Module;
  private wasm: Exports;
  /** The exports themselves, where `wasm` lets somebody hear of calls. */
  private unheard: Exports | undefined;
  private readonly hearers: Set<(keyspace: number, keyLength: number) => void>;
  private readonly host: Host;
  private death: DatabasePoisonedError | undefined;
  private poison: Error | undefined;
  private readonly slot: Report;
  private uncertain: boolean;
  listener: EngineListener | undefined;
  private onSorting: ((count: number) => void) | undefined;

  private constructor(name: string, module: WebAssembly.Module, wasm: Exports, host: Host) {
    super(name, wasm.memory.buffer as ArrayBuffer, wasm.scratch() >>> 0, wasm.result() >>> 0);
    this.module = module;
    this.wasm = wasm;
    this.unheard = undefined;
    this.hearers = new Set();
    this.host = host;
    this.death = undefined;
    this.poison = undefined;
    this.uncertain = false;
    this.slot = (index) => this.f64[this.reportAt + index] as number;
    this.listener = undefined;
    this.onSorting = undefined;
  }

  /**
   * A new instance with the database of this file open in it.
   *
   * @throws CorruptionError, UnsupportedFormatError, QuotaExceededError, StorageError; the file is
   * left open and as it was. What `onBytes` throws ends the opening as if the file could not be read.
   */
  static async open(
    name: string,
    module: WebAssembly.Module,
    file: StorageFile,
    options: EngineOptions,
    recovery?: "prefix" | "salvage",
    onBytes?: (count: number) => void,
  ): Promise<Engine> {
    const host = new Host(file, options.readOnly);
    const instance = await WebAssembly.instantiate(module, { host: host.imports() });
    const wasm = instance.exports as unknown as Exports;
    host.memory = wasm.memory;
    file.moveInto?.(wasm.memory);
    const engine = new Engine(name, module, wasm, host);
    const entropy = new Uint32Array(8);
    // Who only reads makes nothing new, and may begin where there is no randomness yet: in a Worker's
    // global scope.
    if (!options.readOnly) crypto.getRandomValues(entropy);
    const flags =
      (options.ordered ? 0 : POINTS_ONLY) |
      (options.readOnly ? READ_ONLY : 0) |
      (recovery === undefined ? 0 : RECOVERIES[recovery]);
    host.onBytes = onBytes;
    const { memory, segmentLog2 = SEGMENT_LOG2 } = options;
    const factor = Math.round(options.spaceFactor * 100);
    engine.check(engine.call(() => wasm.open(segmentLog2, flags, memory, factor, ...entropy)));
    host.onBytes = undefined;
    // Counted from here on, for what is read then is what was not in memory.
    host.reads = 0;
    host.readBytes = 0;
    return engine;
  }

  // ---------------------------------------------------------------- reading

  /** A view of the value, or `undefined`. */
  get(key: Key, keyspace = RAW): Uint8Array<ArrayBuffer> | undefined {
    const at = this.find(this.encodeKey(key), keyspace);
    if (at === 0) return undefined;
    return this.view(at, this.u32[this.lengthAt] as number);
  }

  /**
   * Views of the values of several keys. What is in memory is looked for together: the processor fetches
   * it all at once. Looking for the others may kill the views of these.
   */
  getMany(keys: readonly Key[], keyspace = RAW): (Uint8Array<ArrayBuffer> | undefined)[] {
    const views: (Uint8Array<ArrayBuffer> | undefined)[] = [];
    while (views.length < keys.length) {
      const count = this.encodeMany(keys, views.length);
      try {
        this.wasm.find_many(keyspace, count);
      } catch (trap) {
        throw this.die(trap);
      }
      for (const index of this.viewsOfMany(count, views)) {
        views[index] = this.get(keys[index] as Key, keyspace);
      }
    }
    return views;
  }

  has(key: Key, keyspace = RAW): boolean {
    return this.find(this.encodeKey(key), keyspace) !== 0;
  }

  count(keyspace = RAW): number {
    return this.call(() => this.wasm.count(keyspace));
  }

  /**
   * The address of the value of the key with this number on a page; 0 when there is none. Its length is
   * `foundLength()`.
   */
  findOnPage(page: Page, index: number, keyspace: number): number {
    const { numbers, values } = page;
    if (page.changes === this.changes) {
      const at = numbers[values + 2 * index] as number;
      this.u32[this.lengthAt] = numbers[values + 2 * index + 1] as number;
      if (at !== 0) return at;
    }
    const start = numbers[index] as number;
    const end = numbers[index + 1] as number;
    this.encodeFromPage(page.bytes, start, end);
    return this.find(end - start, keyspace);
  }

  /** A view of its own of what was found last, at this address. */
  freshView(at: number): Uint8Array<ArrayBuffer> {
    return new Uint8Array(this.buffer, at, this.u32[this.lengthAt]);
  }

  /** The version of the encoded key's value; 0 when there is none. */
  version(keyLength: number, keyspace = RAW): number {
    const found = this.call(() => this.wasm.version(keyspace, keyLength));
    if (found < 0) throw this.failure(this.u32[this.codeAt] as number);
    this.uncertain = found === UNCERTAIN;
    return found === 0 ? 0 : (this.f64[(this.codeAt >>> 1) + 1] as number);
  }

  /** Whether lost writes may have changed or deleted the key whose version was asked for last. */
  isUncertain(): boolean {
    return this.uncertain;
  }

  /**
   * Hears how many bytes each read brings that the first range does to sort the keys. What it throws ends
   * that range.
   */
  hearSorting(onBytes: (count: number) => void): void {
    this.onSorting = onBytes;
  }

  /** Calls for a range; the first one sorts the keys. */
  private ranged(wasmCall: () => number): number {
    const { host, onSorting } = this;
    if (onSorting === undefined) return this.call(wasmCall);
    let ended: { reason: unknown } | undefined;
    host.onBytes = (count) => {
      try {
        onSorting(count);
      } catch (reason) {
        ended = { reason };
        throw reason;
      }
    };
    const answer = this.call(wasmCall);
    host.onBytes = undefined;
    if (ended === undefined) return answer;
    host.takeCause();
    throw ended.reason;
  }

  /** The first keys of a range, at most so many. */
  scan(range: KeyRange, maxKeys: number, withValues = false, keyspace = RAW): Page {
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range) | (withValues ? WITH_VALUES : 0);
    const at = this.ranged(() => this.wasm.scan(keyspace, lower, upper, flags, maxKeys)) >>> 0;
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    this.onSorting = undefined;
    return this.pageAt(at, maxKeys, withValues);
  }

  countRange(range: KeyRange, keyspace = RAW): number {
    const [lower, upper] = this.encodeBounds(range);
    const flags = flagsOf(range);
    const count = this.ranged(() => this.wasm.count_range(keyspace, lower, upper, flags));
    if (count < 0) throw this.failure(this.u32[this.codeAt] as number);
    this.onSorting = undefined;
    return count;
  }

  /** Has a key's value stay as it is until `unpin`. Gives a handle, or 0 when there is none. */
  pin(key: Key): number {
    const keyLength = this.encodeKey(key);
    const handle = this.call(() => this.wasm.pin(RAW, keyLength)) >>> 0;
    if (handle === 0) this.check(this.u32[this.codeAt] as number);
    return handle;
  }

  /** A view of a pinned value. */
  pinned(handle: number): Uint8Array<ArrayBuffer> {
    const at = this.call(() => this.wasm.pinned(handle)) >>> 0;
    return new Uint8Array(this.buffer, at, this.u32[this.lengthAt]);
  }

  unpin(handle: number): void {
    this.call(() => this.wasm.unpin(handle));
  }

  /** The address of the value of the encoded key, 0 when there is none; its length is `foundLength()`. */
  find(keyLength: number, keyspace: number): number {
    let at: number;
    try {
      at = this.wasm.find(keyspace, keyLength) >>> 0;
    } catch (trap) {
      throw this.die(trap);
    }
    // A cold record may have taken memory.
    if (this.u8.length === 0) this.refresh();
    if (at === 0) this.check(this.u32[this.codeAt] as number);
    return at;
  }

  // ---------------------------------------------------------------- writing

  set(key: Key, value: Value, keyspace = RAW): void {
    if (typeof value === "string") {
      this.setText(key, value, keyspace);
      return;
    }
    let bytes = value instanceof Uint8Array ? value : asBytes("value", value);
    const { length } = bytes;
    if (bytes !== this.lastValue || bytes[0] === undefined) bytes = this.inspect(bytes);
    const at = this.setBegin(this.encodeKey(key), length, keyspace);
    this.copy(bytes, length, at);
    this.setCommit(length);
  }

  private setText(key: Key, text: string, keyspace: number): void {
    const { length } = text;
    if (length > SHORT_TEXT) {
      refuseLoneSurrogates("value", text);
      if (length > LONG_TEXT) {
        this.set(key, encoder.encode(text), keyspace);
        return;
      }
    }
    const capacity = length * 3;
    const at = this.setBegin(this.encodeKey(key), capacity, keyspace);
    let written = length <= SHORT_TEXT ? this.copyAscii(text, at) : -1;
    if (written < 0) {
      if (length <= SHORT_TEXT) this.refuseStagedText(text);
      written = encoder.encodeInto(text, new Uint8Array(this.buffer, at, capacity)).written;
    }
    this.setCommit(written);
  }

  private refuseStagedText(text: string): void {
    try {
      refuseLoneSurrogates("value", text);
    } catch (error) {
      this.setAbort();
      throw error;
    }
  }

  /** Stages a record of the encoded key. `setCommit` or `setAbort` has to follow. */
  setBegin(keyLength: number, capacity: number, keyspace: number): number {
    let at: number;
    try {
      at = this.wasm.set_begin(keyspace, keyLength, capacity) >>> 0;
    } catch (trap) {
      throw this.die(trap);
    }
    if (this.u8.length === 0) this.refresh();
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return at;
  }

  setAbort(): void {
    this.plain(this.wasm.set_abort);
  }

  setCommit(length: number): void {
    let status: number;
    this.changes += 1;
    try {
      status = this.wasm.set_commit(length);
    } catch (trap) {
      throw this.die(trap);
    }
    if (this.u8.length === 0) this.refresh();
    if (status !== OK) throw this.writeFailure(status);
  }

  /**
   * Hears which keys are about to be written: the keyspace, and the length of the key in the scratch area.
   * Not each is written then, and some are taken back. Gives a function that ends it. Who hears nothing
   * pays nothing for it.
   */
  hearKeys(heard: (keyspace: number, keyLength: number) => void): () => void {
    this.hearers.add(heard);
    this.hear();
    return () => {
      if (this.hearers.delete(heard)) this.hear();
    };
  }

  private hear(): void {
    const wasm = this.unheard ?? this.wasm;
    // Nothing is there any more after `discard`.
    if (this.death !== undefined || wasm === undefined) return;
    this.unheard = wasm;
    const { hearers } = this;
    const before =
      <A extends unknown[], R>(call: (keyspace: number, keyLength: number, ...more: A) => R) =>
      (keyspace: number, keyLength: number, ...more: A): R => {
        for (const heard of hearers) heard(keyspace, keyLength);
        return call(keyspace, keyLength, ...more);
      };
    const { set_begin, remove, update_begin } = wasm;
    const hearing = {
      set_begin: before(set_begin),
      remove: before(remove),
      update_begin: before(update_begin),
    };
    this.wasm = hearers.size === 0 ? wasm : { ...wasm, ...hearing };
  }

  /** Whether the key was there. */
  remove(key: Key, keyspace = RAW): boolean {
    return this.removeEncoded(this.encodeKey(key), keyspace);
  }

  removeEncoded(keyLength: number, keyspace: number): boolean {
    let answer: number;
    this.changes += 1;
    try {
      answer = this.wasm.remove(keyspace, keyLength);
    } catch (trap) {
      throw this.die(trap);
    }
    if (this.u8.length === 0) this.refresh();
    if (answer < 0) throw this.writeFailure(this.u32[this.codeAt] as number);
    return answer === 1;
  }

  /**
   * Stages the record of a key for change in place. Gives its address, or 0 when there is none; its
   * length is `foundLength()`. Then `updateCommit` or `updateAbort` has to follow.
   */
  updateBegin(key: Key): number {
    return this.updateBeginEncoded(this.encodeKey(key), RAW);
  }

  updateBeginEncoded(keyLength: number, keyspace: number): number {
    let at: number;
    try {
      at = this.wasm.update_begin(keyspace, keyLength) >>> 0;
    } catch (trap) {
      throw this.die(trap);
    }
    if (this.u8.length === 0) this.refresh();
    if (at === 0) {
      const code = this.u32[this.codeAt] as number;
      if (code !== OK) throw this.failure(code);
    }
    return at;
  }

  /** Replaces the staged bytes by these and gives their length, for `updateCommit`. */
  updateReplace(value: Value): number {
    if (typeof value === "string") refuseLoneSurrogates("value", value);
    let bytes =
      typeof value === "string"
        ? encoder.encode(value)
        : value instanceof Uint8Array
          ? value
          : asBytes("value", value);
    bytes = this.inspect(bytes);
    const { length } = bytes;
    this.copy(bytes, length, this.updateResize(length));
    return length;
  }

  /** Room for so many bytes in place of those that are staged: its address. */
  updateResize(length: number): number {
    const at = this.call(() => this.wasm.update_resize(length)) >>> 0;
    if (at === 0) throw this.failure(this.u32[this.codeAt] as number);
    return at;
  }

  updateCommit(length: number): void {
    let status: number;
    this.changes += 1;
    try {
      status = this.wasm.update_commit(length);
    } catch (trap) {
      throw this.die(trap);
    }
    if (this.u8.length === 0) this.refresh();
    if (status !== OK) throw this.writeFailure(status);
  }

  /** Gives back every byte of the staged record as it was. */
  updateAbort(): void {
    this.plain(this.wasm.update_abort);
  }

  // ---------------------------------------------------------------- groups

  savepoint(): void {
    this.plain(this.wasm.savepoint);
  }

  release(): void {
    const status = this.plain(this.wasm.release);
    if (status !== OK) throw this.writeFailure(status);
  }

  rollback(): void {
    this.changes += 1;
    this.undone += 1;
    this.plain(this.wasm.rollback);
  }

  commit(): void {
    this.check(this.plain(this.wasm.commit));
  }

  flush(): void {
    this.check(this.plain(this.wasm.flush));
  }

  witness(): void {
    this.check(this.plain(this.wasm.witness));
  }

  /** Bytes of the open group; 0 when there is nothing to commit. */
  pending(): number {
    return this.plain(this.wasm.pending);
  }

  /** Whether something was written to the file and not flushed. */
  unflushed(): boolean {
    return this.plain(this.wasm.unflushed) !== 0;
  }

  /** Whether a flush has nothing behind it yet that tells of it. */
  unwitnessed(): boolean {
    return this.plain(this.wasm.unwitnessed) !== 0;
  }

  /**
   * Ends a turn. Views are detached when memory that one may show is to be used again. Answers
   * whether there is housekeeping to do; throws what it met within the turn, if that poisoned.
   */
  endTurn(detach: boolean): boolean {
    const answer = this.plain(this.wasm.end_turn);
    if ((answer & 1) !== 0 || detach) this.detach();
    if ((answer & 4) !== 0) this.tend(false);
    return (answer & 2) !== 0;
  }

  /** Does a slice of housekeeping. Answers whether there is more to do. */
  tend(all: boolean): boolean {
    const more = this.call(() => this.wasm.tend(all ? 1 : 0));
    if (more < 0) throw this.failure(this.u32[this.codeAt] as number);
    return more !== 0;
  }

  /** Verifies the next piece of the file. A verification begins and ends with unit 0. */
  verify(unit: number, part: number): VerifyStep {
    const status = this.call(() => this.wasm.verify(unit, part));
    if (status < 0) throw this.failure(this.u32[this.codeAt] as number);
    return verifyStepOf(this.slot);
  }

  /** Kills all views. */
  detach(): void {
    this.wasm.memory.grow(0);
    this.refresh();
  }

  /** Has a function called whenever the file is read: memory may have been taken for this turn. */
  onRead(hear: () => void): void {
    this.host.onRead = hear;
  }

  /** Commits, flushes and marks the end as clean. */
  close(): void {
    this.check(this.plain(this.wasm.close));
  }

  /** Kills all views and lets the memory go. Nothing may be called afterwards. */
  discard(): void {
    if (this.u8.length !== 0) this.detach();
    this.abandon();
    this.wasm = undefined as unknown as Exports;
    this.unheard = undefined;
    this.host.memory = undefined;
  }

  // ---------------------------------------------------------------- reports

  stats(): EngineStats {
    this.plain(this.wasm.stats);
    return statsOf(this.slot);
  }

  /** What was read from the file since opening, and all the memory that there is. */
  outside(): Outside {
    const { reads, readBytes } = this.host;
    return { wasmBytes: this.buffer.byteLength, coldReads: reads, coldBytes: readBytes };
  }

  recovery(): Recovery {
    this.plain(this.wasm.recovery);
    return recoveryOf(this.slot);
  }

  // ---------------------------------------------------------------- calls and failures

  /** Runs a call that may grow the memory, and that is not hot. */
  private call<T>(wasmCall: () => T): T {
    if (this.death !== undefined) throw this.death;
    let answer: T;
    try {
      answer = wasmCall();
    } catch (trap) {
      throw this.die(trap);
    }
    if (this.u8.length === 0) this.refresh();
    return answer;
  }

  /** `call` for an export without arguments, without a closure. */
  private plain<T>(wasmExport: () => T): T {
    if (this.death !== undefined) throw this.death;
    let answer: T;
    try {
      answer = wasmExport();
    } catch (trap) {
      throw this.die(trap);
    }
    if (this.u8.length === 0) this.refresh();
    return answer;
  }

  /** The memory has grown, or its views were detached. */
  private refresh(): void {
    this.renew(this.wasm.memory.buffer as ArrayBuffer);
    this.listener?.viewsDied();
  }

  private die(trap: unknown): DatabasePoisonedError {
    if (this.death !== undefined) return this.death;
    const panic = this.host.panic ?? (trap instanceof Error ? trap.message : String(trap));
    this.death = new DatabasePoisonedError(
      `The engine of the database "${this.name}" failed and refuses everything from now on: ${panic}. ` +
        "Close the database and open it again: what was committed is there. Please report this.",
      { cause: trap },
    );
    if (this.u8.length === 0) this.refresh();
    this.listener?.died(this.death);
    return this.death;
  }

  private check(status: number): void {
    if (status !== OK) throw this.failure(status);
  }

  private writeFailure(code: number): Error {
    const error = this.failure(code);
    this.listener?.writeFailed(error);
    return error;
  }

  /** The error for a code. What the file threw becomes its cause. */
  private failure(code: number): Error {
    this.undone += 1;
    const context: FailureContext = { name: this.name, cause: this.host.takeCause() };
    if (code === Code.Poisoned && this.poison !== undefined) context.cause = { cause: this.poison };
    if (code === Code.Corruption || code === Code.UnsupportedFormat) {
      this.plain(this.wasm.error_report);
      if (code === Code.Corruption) context.details = damageOf(this.slot);
      else context.format = { major: this.slot(0), features: this.slot(1) };
    }
    const error = failureOf(code, context);
    if (code === Code.Quota || code === Code.Io || code === Code.Lost) this.notePoison(error);
    return error;
  }

  /** Remembers what made the database read-only, if this did: every later refusal names it. */
  private notePoison(error: Error): void {
    if (this.poison === undefined && this.stats().poisoned) this.poison = error;
  }
}
