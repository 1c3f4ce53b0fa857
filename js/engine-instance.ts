/**
 * One wasm instance: its exports, and what becomes of a call that fails. What a call needs has been
 * written into its memory (`engine-memory.ts`), and only integers cross. Beside this file only those
 * that extend it name an export: `engine-points.ts`, `engine-ranges.ts` and `engine.ts`.
 */

import { BROKEN, EngineMemory } from "./engine-memory.js";
import {
  damageOf,
  type EngineStats,
  type Outside,
  type Recovery,
  type Report,
  recoveryOf,
  statsOf,
} from "./engine-reports.js";
import { DatabasePoisonedError, type VarveError } from "./errors.js";
import { Code, type FailureContext, failureOf } from "./failures.js";
import type { Host } from "./host.js";

export interface Exports {
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
  set(keyspace: number, keyLength: number, length: number): number;
  set_waiting(length: number): number;
  queue_room(): number;
  set_begin(keyspace: number, keyLength: number, capacity: number): number;
  remove(keyspace: number, keyLength: number): number;
  count(keyspace: number): number;
  sort_part(): number;
  count_range(keyspace: number, lower: number, upper: number, flags: number): number;
  clear(keyspace: number, lower: number, upper: number, flags: number, limit: number): number;
  scan(keyspace: number, lower: number, upper: number, flags: number, maxKeys: number): number;
  version(keyspace: number, keyLength: number): number;
  pin(keyspace: number, keyLength: number): number;
  pinned(handle: number): number;
  unpin(handle: number): void;
  update_begin(keyspace: number, keyLength: number): number;
  update_resize(capacity: number): number;
  finish(length: number): number;
  abort(): void;
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
export const OK = 0;

/** Who hears of what goes wrong below, so that it is decided in one place what that means. */
export interface EngineListener {
  /** A call failed while a record of it was staged; the group may be gone with it. */
  writeFailed(error: Error): void;
  /** All views have died: the memory has grown, or what they show is about to be used again. */
  viewsDied(): void;
  /** The wasm instance is dead and refuses everything. */
  died(error: DatabasePoisonedError): void;
}

/** Who is told of a key: its keyspace, and its length in the scratch area. */
type Heard = (keyspace: number, keyLength: number) => void;

/** A wasm instance, and how it is called. */
export class EngineInstance extends EngineMemory {
  /** Its code: another instance of it is another database. */
  readonly module: WebAssembly.Module;
  listener: EngineListener | undefined;
  /** Only for calls before which nothing waits. */
  protected exports: Exports;
  protected readonly host: Host;
  protected readonly slot: Report;
  /** The exports themselves, where `wasm` lets somebody hear of calls. */
  private unheard: Exports | undefined;
  private readonly hearers: Map<Heard, ((keyspace: number) => void) | undefined>;
  private death: DatabasePoisonedError | undefined;
  private poison: Error | undefined;

  protected constructor(name: string, module: WebAssembly.Module, wasm: Exports, host: Host) {
    super(name, wasm.memory.buffer as ArrayBuffer, wasm.scratch() >>> 0, wasm.result() >>> 0);
    this.module = module;
    this.listener = undefined;
    this.exports = wasm;
    this.host = host;
    host.areViewsHeld = () => this.viewsHeld || this.rowsHeld !== 0;
    host.onCrowded = () => {
      this.copies = true;
    };
    this.slot = (index) => this.f64[this.reportAt + index] as number;
    this.unheard = undefined;
    this.hearers = new Map();
    this.death = undefined;
    this.poison = undefined;
  }

  // ---------------------------------------------------------------- calls

  /** What can be called. Sets that wait are done before it, so that nobody ever sees that they did. */
  protected get wasm(): Exports {
    if (this.queueLimit !== 0) this.settle();
    return this.exports;
  }

  /** Does the sets that wait. */
  protected settle(): void {
    if (this.queueLimit < 0) throw this.die("stack overflow");
    const length = this.takeQueue();
    if (length === 0) return;
    const status = this.call(() => this.exports.set_waiting(length));
    // None waits that could fail: the engine contradicts itself.
    if (status !== OK) throw this.die(this.failure(status));
  }

  /** Behind several sets more may wait, as many as are sure to find room, unless somebody is to hear of each. */
  protected letSetsWait(areSeveral: boolean): void {
    const room = areSeveral && this.hearers.size === 0 ? this.call(this.exports.queue_room) : 0;
    this.queueLimit = this.queueAt + room;
  }

  /** Runs a call that may grow the memory, and that is not hot: an export, or what gives it arguments. */
  protected call<T>(wasmCall: () => T): T {
    if (this.death !== undefined) throw this.death;
    let answer: T;
    try {
      answer = wasmCall();
      if (this.u8.length === 0) this.refresh();
    } catch (trap) {
      this.queueLimit = BROKEN;
      throw this.die(trap);
    }
    return answer;
  }

  /** The memory has grown, or its views were detached. */
  protected refresh(): void {
    this.renew(this.exports.memory.buffer as ArrayBuffer);
    this.listener?.viewsDied();
  }

  /** Kills all views. */
  detach(): void {
    this.call(() => this.exports.memory.grow(0));
  }

  /** Kills all views and lets the memory go. Nothing may be called afterwards. */
  discard(): void {
    this.takeQueue();
    this.exports.memory.grow(0);
    this.abandon();
    this.exports = undefined as unknown as Exports;
    this.unheard = undefined;
    this.host.abandon();
  }

  // ---------------------------------------------------------------- who hears of writes

  /**
   * Hears which keys are about to be written. Not each is written then, and some are taken back. Gives a
   * function that ends it. Who hears nothing pays nothing for it.
   *
   * With `cleared` it hears of a keyspace that is about to be emptied, or a range of it, by that alone. As long
   * as anybody has none, `hearsEachKey` asks that keys be deleted one by one.
   */
  hearKeys(heard: Heard, cleared?: (keyspace: number) => void): () => void {
    this.hearers.set(heard, cleared);
    this.hear();
    return () => {
      if (this.hearers.delete(heard)) this.hear();
    };
  }

  /** Whether somebody has to hear of each key that is deleted. */
  get hearsEachKey(): boolean {
    for (const cleared of this.hearers.values()) if (cleared === undefined) return true;
    return false;
  }

  protected tellCleared(keyspace: number): void {
    for (const cleared of this.hearers.values()) cleared?.(keyspace);
  }

  private hear(): void {
    if (this.death !== undefined) return;
    // Those that wait were before it.
    const now = this.wasm;
    const wasm = this.unheard ?? now;
    // Nothing is there any more after `discard`.
    if (wasm === undefined) return;
    this.unheard = wasm;
    const { hearers } = this;
    const before =
      <A extends unknown[], R>(call: (keyspace: number, keyLength: number, ...more: A) => R) =>
      (keyspace: number, keyLength: number, ...more: A): R => {
        for (const heard of hearers.keys()) heard(keyspace, keyLength);
        return call(keyspace, keyLength, ...more);
      };
    const { set, set_begin, remove, update_begin } = wasm;
    const hearing = {
      set: before(set),
      set_begin: before(set_begin),
      remove: before(remove),
      update_begin: before(update_begin),
    };
    this.exports = hearers.size === 0 ? wasm : { ...wasm, ...hearing };
  }

  // ---------------------------------------------------------------- failures

  protected die(trap: unknown): DatabasePoisonedError {
    if (this.death !== undefined) return this.death;
    const panic = this.host.panic ?? (trap instanceof Error ? trap.message : String(trap));
    const death = new DatabasePoisonedError(
      `The engine of the database "${this.name}" failed and refuses all further calls: ` +
        `${panic}. Close the database and open it again: what was committed is there. Please ` +
        "report this.",
      { cause: trap },
    );
    if (this.u8.length === 0) this.refresh();
    // Noted when it is told: where there is no stack for that, the next call tells it.
    this.listener?.died(death);
    this.death = death;
    return death;
  }

  protected check(status: number): void {
    if (status !== OK) throw this.failure(status);
  }

  protected writeFailure(code: number): Error {
    const error = this.failure(code);
    this.listener?.writeFailed(error);
    return error;
  }

  /** The error for a code. What the file threw becomes its cause. */
  protected failure(code: number): Error {
    this.undone += 1;
    const context: FailureContext = { name: this.name, cause: this.host.takeCause() };
    if (code === Code.Poisoned && this.poison !== undefined) context.cause = { cause: this.poison };
    if (code === Code.Corruption || code === Code.UnsupportedFormat) {
      this.assertSame();
      this.call(this.wasm.error_report);
      if (code === Code.Corruption) context.details = damageOf(this.slot);
      else context.format = { major: this.slot(0), features: this.slot(1) };
    }
    const error = failureOf(code, context);
    // Nobody calls out of turn: what went before it was not ended for want of stack.
    if ((error as VarveError).code === "VARVE_INTERNAL") return this.die(error);
    if (code === Code.Quota || code === Code.Io || code === Code.Lost) this.notePoison(error);
    return error;
  }

  /** To be asked before damage is told of: throws when somebody else has written to the file that is read. */
  assertSame(): void {
    this.host.file.assertSame?.();
  }

  /** Remembers what made the database read-only, if this did: every later refusal names it. */
  private notePoison(error: Error): void {
    if (this.poison === undefined && this.stats().poisoned) this.poison = error;
  }

  // ---------------------------------------------------------------- reports

  stats(): EngineStats {
    this.call(this.wasm.stats);
    return statsOf(this.slot);
  }

  /** What was read from the file since opening, and all the memory that there is. */
  outside(): Outside {
    const { reads, readBytes } = this.host;
    return { wasmBytes: this.buffer.byteLength, coldReads: reads, coldBytes: readBytes };
  }

  recovery(): Recovery {
    this.call(this.wasm.recovery);
    return recoveryOf(this.slot);
  }
}
