/** The engine's calls for the log: walks over it, notes, cursors and marks. */

import type { Key } from "../util/bytes.js";
import { Code } from "./error-codes.js";
import type { Report } from "./reports.js";
import type { Exports } from "./wasm-exports.js";

/** A flag of `since`: the log has each transaction since the cursor. */
export const IS_WHOLE = 2;

/** What these calls use of the engine. */
export interface EngineCalls {
  readonly wasm: Exports;
  readonly slot: Report;
  encodeKey(key: Key): number;
  call<T>(wasmCall: () => T): T;
  counted(wasmCall: () => number): number;
  check(status: number): void;
  found(address: number): number;
  numbersAt(address: number, count: number): Uint32Array<ArrayBuffer>;
  failure(code: number): Error;
  checkLast(): void;
}

/** The log of an open database. */
export class EngineLog {
  private readonly engine: EngineCalls;

  constructor(engine: EngineCalls) {
    this.engine = engine;
  }

  /**
   * Gives the transaction that the last savepoint began the note that `encodeNote` encoded. `client`: the number of the
   * client that asked for it, 0 for none.
   */
  note(client: number, timeMs: number, length: number): void {
    this.engine.check(this.engine.call(() => this.engine.wasm.note(client, timeMs, length)));
  }

  /**
   * Begins a walk over the transactions with numbers above `since` and at most `until`, from the newest one if `reverse`,
   * and returns its handle.
   */
  begin(since: number, until: number, reverse: boolean): number {
    return this.engine.call(() => this.engine.wasm.walk_begin(since, until, reverse ? 1 : 0));
  }

  /**
   * Goes on to the next segment. Returns its parts, six numbers each (`log_walk.rs`), its address and its sequence, which
   * grows; `undefined` at the end. Records of the segment stay where they are until the next call for this walk.
   */
  next(handle: number): { parts: Uint32Array; base: number; sequence: number } | undefined {
    const count = this.engine.counted(() => this.engine.wasm.walk_next(handle));
    if (count === 0) return undefined;
    const parts = this.engine.numbersAt(this.engine.slot(0), 6 * count);
    return { parts, base: this.engine.slot(1), sequence: this.engine.slot(2) };
  }

  /**
   * Finds the value of the record at this offset of the walk's segment, if it lies elsewhere. Returns its address, or 0
   * if it is not there any more; its length is `foundLength()`.
   */
  valueAt(handle: number, at: number): number {
    return this.engine.found(this.engine.call(() => this.engine.wasm.walk_value(handle, at)) >>> 0);
  }

  /** Ends a walk and frees its memory. */
  end(handle: number): void {
    this.engine.call(() => this.engine.wasm.walk_end(handle));
  }

  /** Whether the record at this offset of the walk's segment says what its key is now. */
  isCurrent(handle: number, at: number): boolean {
    return this.engine.counted(() => this.engine.wasm.walk_current(handle, at)) === 1;
  }

  /** The number of the newest commit. */
  lastCommit(): number {
    return this.engine.call(() => this.engine.wasm.last_commit());
  }

  /**
   * What is known of the time since a cursor, as flags: 1 if the log shows each key that changed, `IS_WHOLE` if it has
   * each transaction.
   */
  since(cursor: number): number {
    return this.engine.counted(() => this.engine.wasm.since(cursor));
  }

  /** The error for a cursor since which something is gone. */
  expired(): Error {
    return this.engine.failure(Code.CursorExpired);
  }

  /** Sets a mark to a cursor; a negative one drops it. */
  retain(name: string, cursor: number): void {
    const length = this.engine.encodeKey(name);
    this.engine.check(this.engine.call(() => this.engine.wasm.retain(length, cursor)));
  }

  /**
   * Takes a snapshot of a past commit, or of the one before it. Returns its number, which added to that of a keyspace
   * selects that as it was.
   */
  at(cursor: number, before = false): number {
    const { engine } = this;
    const number = engine.call(() => engine.wasm.at(cursor, before ? 1 : 0)) >>> 0;
    if (number === 0) engine.checkLast();
    return number;
  }

  /** Begins to forget the history before a commit. Returns the version up to which it will be forgotten. */
  pack(cursor: number): number {
    const { engine } = this;
    const upTo = engine.call(() => engine.wasm.pack(cursor));
    if (upTo < 0) engine.checkLast();
    return upTo;
  }

  isPacking(): boolean {
    return this.engine.call(() => this.engine.wasm.packing(0)) === 1;
  }

  endPacking(): void {
    this.engine.call(() => this.engine.wasm.packing(1));
  }

  /** How many bytes of the file marks keep from compaction. */
  retainedBytes(): number {
    return this.engine.call(() => this.engine.wasm.retained_bytes());
  }
}
