/**
 * The boundary to the wasm module. Only `engine.ts` and the files it is made of name an export; integers
 * cross, and the bytes of keys and values are written into and read from its memory. Its twin is
 * `crate/src/wasm`. One object from `engine-memory.ts` up to here, so that the hot path reads plain
 * fields:
 *
 * - `engine-memory.ts`: keys and values into the memory, views and pages out of it; no calls
 * - `engine-instance.ts`: how the module is called, and what becomes of failures
 * - `engine-points.ts`, `engine-ranges.ts`: the calls for one key, and for many
 * - this file: from opening to closing, what goes to the file and when
 */

import { type Exports, OK } from "./engine-instance.js";
import { EngineRanges } from "./engine-ranges.js";
import type { Report } from "./engine-reports.js";
import { OutOfMemoryError } from "./errors.js";
import { Host } from "./host.js";
import type { StorageFile } from "./storage/contract.js";

export type { EngineListener } from "./engine-instance.js";

const SEGMENT_LOG2 = 20;

const POINTS_ONLY = 1;
const READ_ONLY = 2;
const RECOVERIES = { prefix: 4, salvage: 8 };
const FRESH = 16;

/** How an engine opens its file. */
export interface EngineOptions {
  readonly memory: number;
  readonly spaceFactor: number;
  readonly ordered: boolean;
  readonly readOnly: boolean;
  /** Whether the last writer of the file may still finish a write: new frames go where that does no harm. */
  readonly takenOver?: boolean | undefined;
  /** Of a file that is made by it: segments have two to the power of this many bytes. */
  readonly segmentLog2?: number;
}

/** The platform has no memory for one more instance, or no addresses: each reserves several gigabytes of those. */
function noMemory(name: string, cause: unknown): OutOfMemoryError {
  return new OutOfMemoryError(
    `There is no memory to open the database "${name}": too many are open here, or the address space is ` +
      "limited. Close some, or keep collections in one database instead of several databases.",
    { cause },
  );
}

/** One wasm instance with one open database. */
export class Engine extends EngineRanges {
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
    const instance = await WebAssembly.instantiate(module, { host: host.imports() }).catch(
      (cause) => {
        throw cause instanceof RangeError ? noMemory(name, cause) : cause;
      },
    );
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
      (options.takenOver === true ? FRESH : 0) |
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

  // ---------------------------------------------------------------- groups

  savepoint(): void {
    this.call(this.wasm.savepoint);
  }

  release(): void {
    const status = this.call(this.wasm.release);
    if (status !== OK) throw this.writeFailure(status);
  }

  rollback(): void {
    this.changes += 1;
    this.undone += 1;
    this.call(this.wasm.rollback);
  }

  commit(): void {
    this.check(this.handOn(this.wasm.commit));
  }

  flush(): void {
    this.check(this.handOn(this.wasm.flush));
  }

  /** What is written must not be lost for want of memory, whatever becomes of views. */
  private handOn(wasmCall: () => number): number {
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

  witness(): void {
    this.check(this.call(this.wasm.witness));
  }

  /** Bytes of the open group; 0 when there is nothing to commit. */
  pending(): number {
    return this.call(this.wasm.pending);
  }

  /** Whether something was written to the file and not flushed. */
  unflushed(): boolean {
    return this.call(this.wasm.unflushed) !== 0;
  }

  /** Whether a flush has nothing behind it yet that tells of it. */
  unwitnessed(): boolean {
    return this.call(this.wasm.unwitnessed) !== 0;
  }

  // ---------------------------------------------------------------- turns and housekeeping

  /**
   * Ends a turn. Views are detached when memory that one may show is to be used again. Answers
   * whether there is housekeeping to do; throws what it met within the turn, if that poisoned.
   */
  endTurn(detach: boolean): boolean {
    this.releaseViews();
    const answer = this.call(this.wasm.end_turn);
    this.copies = false;
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

  /** Verifies the next piece of the file, and reports where it stands and what it found. */
  verify(unit: number, part: number): Report {
    const status = this.call(() => this.wasm.verify(unit, part));
    if (status < 0) throw this.failure(this.u32[this.codeAt] as number);
    return this.slot;
  }

  /** Has a function called whenever the file is read: memory may have been taken for this turn. */
  onRead(hear: () => void): void {
    this.host.onRead = hear;
  }

  // ---------------------------------------------------------------- the end

  /** Commits, flushes and marks the end as clean. */
  close(): void {
    this.check(this.call(this.wasm.close));
  }
}
