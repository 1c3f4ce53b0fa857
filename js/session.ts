/**
 * One open database as all of its handles share it: when groups of writes are handed on, what
 * becomes of those that fail, and what may be called when.
 */

import type { Key, Value } from "./bytes.js";
import type { Engine, EngineListener, KeyRange, Recovery } from "./engine.js";
import {
  badArgument,
  ConflictError,
  DatabaseClosedError,
  DatabasePoisonedError,
  OutOfMemoryError,
  QuotaExceededError,
  ReadOnlyError,
  ReentrancyError,
} from "./errors.js";
import { readOnlyText } from "./failures.js";
import { type Durability, refuseUnknown, type Settings } from "./options.js";
import type { OpenedStorage } from "./storage/contract.js";
import { diedInCallback, Watch } from "./strict.js";

/** What stands in the way of a call. Zero on the hot path, which asks nothing else. */
export const CLOSED = 1;
export const DEAD = 2;
/** A group failed since the last call, and the next one throws it. */
export const FAILED = 4;
/** A callback of `updateIf` runs. */
export const IN_CALLBACK = 8;
/** Nothing stands in the way, but views are watched. */
export const STRICT = 16;
/** Nothing stands in the way of reads. */
export const READ_ONLY = 32;

/** So many keys are deleted between two looks at which come next. */
const CLEAR_PAGE = 1_024;

const BUFFERED_MS = 5;
const FLUSH_MS = 1_000;
const WITNESS_MS = 80;

/** So much memory is kept free for the next turn, beside room for the index to double. */
const HEADROOM = 8 * 1_048_576;

/** Looks at the bytes of a record and says whether it is to be changed. */
export type Predicate = (view: Uint8Array<ArrayBuffer>) => boolean;

/** Changes the bytes of a record in place, or returns new ones. */
export type Change = (view: Uint8Array<ArrayBuffer>) => Nothing | Value;

/** Also what a function returns that is declared to return nothing. */
type Nothing = ReturnType<() => void>;

/** The options of `updateIf`. */
export interface UpdateOptions {
  /** The record is changed only if this returns `true` for its current bytes. */
  predicate?: Predicate | undefined;
  /** The predicate sees the value of this key instead. When that key is missing, nothing is changed. */
  predicateKey?: Key | undefined;
  /** What a missing key gets first. It is then updated like any other; if that is refused, it stays missing. */
  valueIfMissing?: Value | undefined;
}

/** The options of `set`. */
export interface SetOptions {
  /**
   * Sets only if the key's value has this version, which `getEntry` gave; 0 stands for a key that is
   * not there. Else `ConflictError` is thrown and nothing is written.
   */
  ifVersion?: number | undefined;
}

/** A value, and what tells it from any other that its key had or will have. */
export interface Entry {
  /** A view of the value, like that of `get`. */
  readonly value: Uint8Array<ArrayBuffer>;
  /** Its version: every write gives a higher one. It survives closing and opening. */
  readonly version: number;
}

const UPDATE_OPTIONS = ["predicate", "predicateKey", "valueIfMissing"];

/** A promise that is made only when someone asks for it. */
class Wait {
  readonly promise: Promise<void>;
  settle!: (error?: Error) => void;

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.settle = (error) => (error === undefined ? resolve() : reject(error));
    });
  }
}

/** The state that the handles of one open database share. */
export class Session implements EngineListener {
  gate: number;
  readonly engine: Engine;
  /** Whether the end of this turn is arranged for. */
  queued: boolean;
  readonly settings: Settings;
  readonly name: string;
  readonly recovery: Recovery;
  private readonly opened: OpenedStorage;
  private readonly watch: Watch | undefined;
  private readonly listeners: Set<(error: Error) => void>;
  private depth: number;
  private failure: Error | undefined;
  private death: DatabasePoisonedError | undefined;
  private committedWait: Wait | undefined;
  private flushedWait: Wait | undefined;
  private microtask: boolean;
  private readonly onTurnEnd: () => void;
  private bufferTimer: ReturnType<typeof setTimeout> | undefined;
  private flushTimer: ReturnType<typeof setTimeout> | undefined;
  private witnessTimer: ReturnType<typeof setTimeout> | undefined;
  private lastOptions: UpdateOptions | undefined;
  private footprint: number;
  private readonly unhook: Array<() => void>;

  constructor(name: string, engine: Engine, opened: OpenedStorage, settings: Settings) {
    this.gate = (settings.strictViews ? STRICT : 0) | (settings.readOnly ? READ_ONLY : 0);
    this.engine = engine;
    this.queued = false;
    this.settings = settings;
    this.name = name;
    this.recovery = engine.recovery();
    this.opened = opened;
    this.watch = settings.strictViews ? new Watch(engine) : undefined;
    this.listeners = new Set();
    this.depth = 0;
    this.failure = undefined;
    this.death = undefined;
    this.committedWait = undefined;
    this.flushedWait = undefined;
    this.microtask = false;
    this.onTurnEnd = () => this.endTurn();
    this.bufferTimer = undefined;
    this.flushTimer = undefined;
    this.witnessTimer = undefined;
    this.lastOptions = undefined;
    this.footprint = 0;
    this.unhook = [];
    engine.listener = this;
    engine.onRead(() => this.soon());
    this.hook();
  }

  get durability(): Durability {
    return this.settings.durability;
  }

  // ---------------------------------------------------------------- what may be called

  /** Lets a read pass or throws what stands in its way. */
  admitRead(): void {
    if ((this.gate & CLOSED) !== 0) throw closed(this.name);
    if (this.death !== undefined) throw this.death;
    if ((this.gate & FAILED) !== 0) throw this.takeFailure();
  }

  /** Lets a write pass or throws what stands in its way. */
  admitWrite(call: string): void {
    this.admitIdle(call);
    if ((this.gate & READ_ONLY) !== 0) throw new ReadOnlyError(readOnlyText(this.name));
  }

  /** Lets pass what may not run inside a callback. */
  admitIdle(call: string): void {
    this.admitRead();
    if ((this.gate & IN_CALLBACK) !== 0) {
      throw new ReentrancyError(
        `${call} was called inside a callback of updateIf() on "${this.name}". ` +
          "Change the bytes of the view there, and write other records after updateIf() has returned, " +
          "or put both into db.transaction().",
      );
    }
  }

  /** As `admitWrite`, for what cannot be done halfway through a transaction. */
  private admitOutside(call: string): void {
    this.admitIdle(call);
    if (this.depth === 0) return;
    throw new ReentrancyError(
      `${call} was called inside db.transaction() on "${this.name}", which is not complete yet. ` +
        "Call it after the transaction has returned.",
    );
  }

  private takeFailure(): Error {
    const failure = this.failure as Error;
    this.failure = undefined;
    this.gate &= ~FAILED;
    return failure;
  }

  // ---------------------------------------------------------------- reads that are watched

  carefulGet(key: Key): Uint8Array<ArrayBuffer> | undefined {
    this.admitRead();
    const view = this.engine.get(key);
    // Inside a callback the view may show a record that is being changed, lawfully.
    if (view !== undefined && this.watch !== undefined && (this.gate & IN_CALLBACK) === 0) {
      this.watched(this.watch, view);
    }
    return view;
  }

  private watched(watch: Watch, view: Uint8Array<ArrayBuffer>): void {
    watch.add(view);
    this.soon();
  }

  /** The values of several keys, whose views are all alive. */
  getMany(keys: Iterable<Key>): (Uint8Array<ArrayBuffer> | undefined)[] {
    if (typeof keys !== "object" || typeof keys?.[Symbol.iterator] !== "function") {
      throw badArgument("getMany() needs an array of keys, or something else to iterate.", keys);
    }
    const wanted = Array.from(keys);
    // Reading a cold record may take memory and kill the views before it: then all are resident.
    for (let attempt = 0; attempt < 2; attempt++) {
      const views = wanted.map((key) => this.carefulGet(key));
      const { buffer } = this.engine.u8;
      if (views.every((view) => view === undefined || view.buffer === buffer)) return views;
    }
    throw new OutOfMemoryError(
      `The values of these ${wanted.length} keys take more memory than the database "${this.name}" has. ` +
        "Get fewer at once, or open it with more memory.",
    );
  }

  getEntry(key: Key): Entry | undefined {
    this.admitRead();
    const version = this.engine.version(key);
    const value = version === 0 ? undefined : this.carefulGet(key);
    return value === undefined ? undefined : { value, version };
  }

  // ---------------------------------------------------------------- ranges

  /** Whether views are watched. */
  get strict(): boolean {
    return this.watch !== undefined;
  }

  /** Refuses ranges where keys are in no order. */
  admitRange(call: string): void {
    this.admitRead();
    if (this.settings.ordered) return;
    throw badArgument(
      `The database "${this.name}" was opened with ordered: false, so that it has no ranges: ` +
        `${call} needs order.`,
    );
  }

  /** The value of a key on a page of an iteration, good until its next step. */
  stepTo(page: Uint8Array, start: number, end: number): Uint8Array<ArrayBuffer> | undefined {
    const view = this.engine.getOnPage(page, start, end);
    if (view === undefined || this.watch === undefined) return view;
    this.soon();
    return this.watch.lend(view);
  }

  /** That next step: in strict mode the value dies. */
  takeBack(lent: Uint8Array<ArrayBuffer>): void {
    const written = this.watch?.takeBack(lent);
    if (written !== undefined) throw written;
  }

  /** Deletes the keys of a range, all or none, and says how many. */
  clear(range: KeyRange, limit: number): number {
    return this.undoUnless(
      () => true,
      () => {
        let cleared = 0;
        while (cleared < limit) {
          // What was deleted is no longer there: the first keys are always the next ones.
          const { bytes, lengths } = this.engine.scan(range, Math.min(CLEAR_PAGE, limit - cleared));
          if (lengths.length === 0) break;
          let at = 0;
          for (const length of lengths) {
            this.engine.remove(bytes.subarray(at, at + length));
            at += length;
          }
          cleared += lengths.length;
        }
        return cleared;
      },
    );
  }

  // ---------------------------------------------------------------- versions and pins

  /** Refuses a `set` whose options want another version than there is. */
  admitVersion(key: Key, options: SetOptions): void {
    refuseUnknown("set()", options, ["ifVersion"]);
    const { ifVersion } = options;
    if (ifVersion === undefined) return;
    if (!Number.isSafeInteger(ifVersion) || ifVersion < 0) {
      throw badArgument(
        "The option ifVersion of set() is a version that getEntry() gave, or 0 for a missing key.",
        ifVersion,
      );
    }
    const version = this.engine.version(key);
    if (version === ifVersion) return;
    const is = version === 0 ? "the key is missing" : `the key has version ${version}`;
    const wanted = ifVersion === 0 ? "it was to be missing" : `version ${ifVersion} was expected`;
    throw new ConflictError(
      `Nothing was written to "${this.name}": ${is}, and ${wanted}. ` +
        "Get the entry again and decide anew.",
    );
  }

  /** A handle for the pinned value of a key; 0 when there is none. */
  pin(key: Key): number {
    this.admitOutside("pin()");
    // What has been handed on is never changed in place, so that it is handed on first.
    if (this.engine.pending() !== 0) this.commit();
    return this.engine.pin(key);
  }

  pinnedBytes(handle: number): Uint8Array<ArrayBuffer> {
    const view = this.engine.pinned(handle);
    if (this.watch !== undefined && (this.gate & IN_CALLBACK) === 0) {
      this.watched(this.watch, view);
    }
    return view;
  }

  unpin(handle: number): void {
    if (this.death !== undefined || (this.gate & CLOSED) !== 0) return;
    this.engine.unpin(handle);
    // Its memory may be used again, after the views of this turn have died.
    this.soon();
  }

  // ---------------------------------------------------------------- updateIf

  updateIf(key: Key, change: Change, options: UpdateOptions | undefined): boolean {
    if (typeof change !== "function") {
      throw badArgument("updateIf() needs a function that changes the bytes.", change);
    }
    if (options === undefined) return this.update(key, change, undefined, undefined);
    if (options !== this.lastOptions) {
      refuseUnknown("updateIf()", options, UPDATE_OPTIONS);
      this.lastOptions = options;
    }
    const { predicate, predicateKey, valueIfMissing } = options;
    if (predicate !== undefined && typeof predicate !== "function") {
      throw badArgument("The option predicate of updateIf() is a function.", predicate);
    }
    if (predicateKey === undefined) return this.update(key, change, predicate, valueIfMissing);
    if (predicate === undefined) {
      throw badArgument("updateIf() has a predicateKey and no predicate that would look at it.");
    }
    if (!this.judgeOther(predicateKey, predicate)) return false;
    return this.update(key, change, undefined, valueIfMissing);
  }

  /** What the predicate says of another key's value. */
  private judgeOther(key: Key, predicate: Predicate): boolean {
    const view = this.engine.get(key);
    if (view === undefined) return false;
    if (this.watch !== undefined) this.watched(this.watch, view);
    const { length } = view;
    this.gate |= IN_CALLBACK;
    try {
      const answer = this.judged(predicate(view));
      // An answer that is due to bytes that had died is none.
      if (view.length !== length) throw diedInCallback();
      return answer;
    } finally {
      this.gate &= ~IN_CALLBACK;
    }
  }

  private update(
    key: Key,
    change: Change,
    predicate: Predicate | undefined,
    valueIfMissing: Value | undefined,
  ): boolean {
    const { engine } = this;
    if (this.watch !== undefined) {
      this.throwIfWritten(engine.get(key));
      this.soon();
    }
    let at: number;
    try {
      at = engine.updateBegin(key);
    } catch (error) {
      // Where there is no room, a refused predicate is still an answer and not a failure.
      const full = error instanceof QuotaExceededError && predicate !== undefined;
      if (full && !this.judgeOther(key, predicate)) return false;
      throw error;
    }
    if (at === 0) {
      if (valueIfMissing === undefined) return false;
      return this.insertAndUpdate(key, change, predicate, valueIfMissing);
    }
    let length = engine.stagedLength();
    const view = engine.view(at, length);
    let applied = false;
    this.gate |= IN_CALLBACK;
    try {
      if (predicate === undefined || this.judged(predicate(view))) {
        const result = change(view);
        if (view.length !== length) throw diedInCallback();
        if (result !== undefined) length = this.replaced(result);
        applied = true;
      }
    } catch (error) {
      this.gate &= ~IN_CALLBACK;
      if (this.death === undefined) engine.updateAbort();
      throw error;
    }
    this.gate &= ~IN_CALLBACK;
    if (!applied) {
      engine.updateAbort();
      return false;
    }
    engine.updateCommit(length);
    if (!this.queued) this.queue();
    if (this.watch !== undefined) this.watch.renew(engine.view(at, view.length));
    return true;
  }

  private insertAndUpdate(
    key: Key,
    change: Change,
    predicate: Predicate | undefined,
    value: Value,
  ): boolean {
    return this.undoUnless(
      (applied) => applied,
      () => {
        this.engine.set(key, value);
        return this.update(key, change, predicate, undefined);
      },
    );
  }

  private judged(answer: unknown): boolean {
    if (answer === true) return true;
    if (answer === false) return false;
    this.refusePromise("The predicate of updateIf()", answer);
    throw badArgument("The predicate of updateIf() has to return true or false.", answer);
  }

  private replaced(result: unknown): number {
    this.refusePromise("The callback of updateIf()", result);
    const bytes =
      typeof result === "string" || ArrayBuffer.isView(result) || result instanceof ArrayBuffer;
    if (!bytes) {
      throw badArgument(
        "The callback of updateIf() has to return nothing, or the new bytes. " +
          "(An arrow function returns the value of its expression: put it into braces.)",
        result,
      );
    }
    return this.engine.updateReplace(result);
  }

  /** Refuses what an asynchronous function returns: it goes on after its bytes were taken back. */
  private refusePromise(what: string, result: unknown): void {
    const thenable =
      (typeof result === "object" || typeof result === "function") && result !== null;
    if (!thenable || typeof (result as { then?: unknown }).then !== "function") return;
    if (result instanceof Promise) result.catch(() => {});
    // What runs on must not find a living view: it would write into a record unseen.
    if (this.death === undefined) this.engine.detach();
    throw badArgument(
      `${what} has to be synchronous, and it returned a promise. Nothing of it was kept. ` +
        "Await what you need first, then call.",
    );
  }

  // ---------------------------------------------------------------- transactions

  transaction<T>(body: () => T): T {
    return this.undoUnless((result) => {
      this.refusePromise("The function given to transaction()", result);
      return true;
    }, body);
  }

  /** Runs a body between savepoints. A throw undoes all of it, and so does a result not to be kept. */
  private undoUnless<T>(keep: (result: T) => boolean, body: () => T): T {
    const { engine } = this;
    engine.savepoint();
    this.depth += 1;
    let kept = false;
    let result: T;
    try {
      result = body();
      kept = keep(result);
    } finally {
      this.depth -= 1;
      if (!kept && this.death === undefined) this.undo();
    }
    if (kept) {
      engine.release();
      if (!this.queued) this.queue();
    }
    return result;
  }

  private undo(): void {
    const written = this.watch?.verify();
    this.engine.rollback();
    this.watch?.renewAll();
    // Memory was freed: the end of the turn has to look after the views that may show it.
    if (!this.queued) this.queue();
    if (written !== undefined) this.fail(written);
  }

  // ---------------------------------------------------------------- groups

  /** Arranges for the end of the turn, at the first write in it. */
  queue(): void {
    this.queued = true;
    if (this.settings.durability !== "buffered") {
      this.soon();
      return;
    }
    this.bufferTimer ??= setTimeout(this.onTurnEnd, BUFFERED_MS);
    if (this.watch !== undefined) this.soon();
  }

  private soon(): void {
    if (this.microtask) return;
    this.microtask = true;
    queueMicrotask(this.onTurnEnd);
  }

  commit(): void {
    this.admitOutside("commit()");
    this.throwIfWritten();
    this.guarded(() => this.engine.commit(), this.lost);
    this.settleCommitted();
  }

  flush(): void {
    this.admitOutside("flush()");
    this.throwIfWritten();
    this.guarded(() => this.engine.commit(), this.lost);
    this.settleCommitted();
    this.guarded(() => this.engine.flush(), this.notFlushed);
    this.settleFlushed();
    this.arm();
  }

  get committed(): Promise<void> {
    const refusal = this.refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    if (this.engine.pending() === 0) return Promise.resolve();
    this.committedWait ??= new Wait();
    return this.committedWait.promise;
  }

  get flushed(): Promise<void> {
    const refusal = this.refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    if (this.engine.pending() === 0 && !this.engine.unflushed()) return Promise.resolve();
    this.flushedWait ??= new Wait();
    this.soon();
    return this.flushedWait.promise;
  }

  private refusal(): unknown {
    try {
      this.admitRead();
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Runs between turns: hands the group on, and looks after views and memory. */
  private endTurn(): void {
    const viewsOnly =
      this.microtask && this.settings.durability === "buffered" && this.flushedWait === undefined;
    this.microtask = false;
    this.lastOptions = undefined;
    if (this.death !== undefined || (this.gate & CLOSED) !== 0) return;
    try {
      this.checkViews();
      if (viewsOnly) this.engine.endTurn(this.watch !== undefined);
      else this.closeTurn();
    } catch (error) {
      this.fail(error as Error);
    }
  }

  private closeTurn(): void {
    this.handOn(this.settings.durability === "flushed" || this.flushedWait !== undefined);
    this.engine.endTurn(this.watch !== undefined);
    this.keepHeadroom();
    this.arm();
  }

  /** The memory is to grow here, between turns, and not while a program holds views. */
  private keepHeadroom(): void {
    const { memoryBytes, indexBytes } = this.engine.stats();
    if (memoryBytes + indexBytes === this.footprint) return;
    this.footprint = memoryBytes + indexBytes;
    // An index that doubles, or the first range, which sorts all keys: both may come within a turn.
    this.engine.reserve(HEADROOM + 5 * indexBytes);
  }

  private checkViews(): void {
    const written = this.watch?.verify();
    this.watch?.forget();
    if (written !== undefined) this.fail(written);
  }

  /** Writes the open group, and flushes if wanted. Whoever waits for either is told. */
  private handOn(flush: boolean): void {
    this.queued = false;
    clearTimeout(this.bufferTimer);
    this.bufferTimer = undefined;
    const { engine } = this;
    try {
      if (engine.pending() !== 0) engine.commit();
    } catch (error) {
      this.lost(error as Error);
      this.failUnlessKnown(error as Error);
      return;
    }
    this.settleCommitted();
    if (!flush) return;
    try {
      if (engine.unflushed()) engine.flush();
    } catch (error) {
      this.notFlushed(error as Error);
      this.failUnlessKnown(error as Error);
      return;
    }
    this.settleFlushed();
  }

  /** That writes are refused is no news: the failure that led to it was reported when it happened. */
  private failUnlessKnown(error: Error): void {
    if (!(error instanceof DatabasePoisonedError)) this.fail(error);
  }

  private guarded(call: () => void, failed: (this: Session, error: Error) => void): void {
    try {
      call();
    } catch (error) {
      failed.call(this, error as Error);
      // That writes are refused is no news to a listener.
      if (!(error instanceof DatabasePoisonedError)) this.report(error as Error);
      throw error;
    }
  }

  private settleCommitted(): void {
    const wait = this.committedWait;
    this.committedWait = undefined;
    wait?.settle();
  }

  private settleFlushed(): void {
    const wait = this.flushedWait;
    this.flushedWait = undefined;
    wait?.settle();
  }

  /** The open group was rolled back, and its memory is about to be used again: no view may show it. */
  private lost(error: Error): void {
    if (this.death === undefined) this.engine.detach();
    const wait = this.committedWait;
    this.committedWait = undefined;
    wait?.settle(error);
    this.notFlushed(error);
  }

  private notFlushed(error: Error): void {
    const wait = this.flushedWait;
    this.flushedWait = undefined;
    wait?.settle(error);
  }

  /** A failure that no call is there to throw: reported, and thrown by the next one. */
  private fail(error: Error): void {
    if (error === this.death) return;
    if (this.failure === undefined) {
      this.failure = error;
      this.gate |= FAILED;
    }
    this.report(error);
  }

  private report(error: Error): void {
    for (const listener of this.listeners) {
      try {
        listener(error);
      } catch (thrown) {
        // A listener's own mistake is no reason to stop here; it surfaces like every uncaught error.
        queueMicrotask(() => {
          throw thrown;
        });
      }
    }
  }

  /** In strict mode: throws if a view was written through, any or the one given. */
  private throwIfWritten(only?: Uint8Array): void {
    const written = this.watch?.verify(only?.byteOffset);
    if (written !== undefined) throw written;
  }

  // ---------------------------------------------------------------- what the engine tells

  writeFailed(error: Error): void {
    // A group that grew large is committed by the write that made it so. If that fails, all of it is
    // gone, and not only the write that is about to throw.
    if (!this.queued || error instanceof DatabasePoisonedError) return;
    if (this.engine.pending() !== 0) return;
    this.lost(error);
    this.report(error);
  }

  viewsDied(): void {
    // What they showed may lie in memory that holds something else by now.
    this.watch?.forget();
  }

  died(error: DatabasePoisonedError): void {
    this.death = error;
    this.gate |= DEAD;
    this.lost(error);
    this.report(error);
  }

  // ---------------------------------------------------------------- timers and ends

  /** Sets the timers that what is unflushed or unwitnessed needs. */
  private arm(): void {
    if (this.flushTimer === undefined && this.engine.unflushed()) {
      this.flushTimer = idle(() => {
        this.flushTimer = undefined;
        this.betweenTurns(() => this.handOn(true));
      }, FLUSH_MS);
    }
    if (this.witnessTimer === undefined && this.engine.unwitnessed()) {
      this.witnessTimer = idle(() => {
        this.witnessTimer = undefined;
        this.betweenTurns(() => this.engine.witness());
      }, WITNESS_MS);
    }
  }

  private betweenTurns(task: () => void): void {
    if (this.death !== undefined || (this.gate & CLOSED) !== 0 || this.poisoned()) return;
    try {
      task();
      this.arm();
    } catch (error) {
      this.fail(error as Error);
    }
  }

  private poisoned(): boolean {
    return this.engine.stats().poisoned;
  }

  private hook(): void {
    const { onExit } = this.opened;
    if (onExit !== undefined) {
      this.unhook.push(onExit.call(this.opened, () => this.exit()));
    }
    const hide = () => this.betweenTurns(() => this.handOn(true));
    listen("pagehide", globalThis, hide, this.unhook);
    const { document } = globalThis as { document?: EventTarget };
    if (document !== undefined) listen("visibilitychange", document, hide, this.unhook);
  }

  /** The program ends now: what is complete is committed, what is not is undone. */
  private exit(): void {
    if (this.death !== undefined || (this.gate & CLOSED) !== 0) return;
    if ((this.gate & IN_CALLBACK) !== 0) this.engine.updateAbort();
    for (; this.depth > 0; this.depth -= 1) this.engine.rollback();
    this.gate &= ~IN_CALLBACK;
    if (this.poisoned()) return;
    this.engine.commit();
    if (this.engine.unwitnessed()) this.engine.witness();
  }

  addListener(listener: ((error: Error) => void) | undefined): void {
    if (listener !== undefined) this.listeners.add(listener);
  }

  removeListener(listener: ((error: Error) => void) | undefined): void {
    if (listener !== undefined) this.listeners.delete(listener);
  }

  /** Whether a handle may be closed now. */
  admitClose(): void {
    if (this.death !== undefined) return;
    if ((this.gate & IN_CALLBACK) !== 0 || this.depth !== 0) this.refuseClose();
  }

  private refuseClose(): never {
    throw new ReentrancyError(
      `close() was called inside a callback or a transaction of "${this.name}". ` +
        "Close the database after it has returned.",
    );
  }

  /** One of several handles goes: what was written is made durable, the others go on. */
  leave(): void {
    if (this.death !== undefined || this.poisoned()) return;
    if ((this.gate & FAILED) !== 0) throw this.takeFailure();
    this.flush();
  }

  /** The last handle goes. The file is closed and the memory given back, whatever fails. */
  end(): void {
    let failure = (this.gate & FAILED) !== 0 ? this.takeFailure() : undefined;
    for (const timer of [this.bufferTimer, this.flushTimer, this.witnessTimer]) clearTimeout(timer);
    for (const unhook of this.unhook) unhook();
    try {
      if (this.death === undefined) {
        this.checkViews();
        this.engine.close();
      }
      this.settleCommitted();
      this.settleFlushed();
    } catch (error) {
      this.lost(error as Error);
      if (!(error instanceof DatabasePoisonedError)) {
        this.report(error as Error);
        failure ??= error as Error;
      }
    }
    failure ??= this.failure;
    this.gate = CLOSED;
    try {
      this.engine.discard();
    } finally {
      this.opened.file.close();
    }
    if (failure !== undefined) throw failure;
  }
}

/** The session as a closed handle sees it: everything is refused, while other handles go on. */
export function closedSession(session: Session): Session {
  return Object.create(session, { gate: { value: CLOSED } }) as Session;
}

export function closed(name: string): DatabaseClosedError {
  return new DatabaseClosedError(`The database "${name}" was closed. Open it again to go on.`);
}

/** A timer that does not keep a program alive. */
function idle(task: () => void, ms: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(task, ms);
  const { unref } = timer as { unref?: () => void };
  unref?.call(timer);
  return timer;
}

function listen(
  event: string,
  target: unknown,
  listener: () => void,
  unhook: Array<() => void>,
): void {
  const { addEventListener, removeEventListener } = target as Partial<EventTarget>;
  if (typeof addEventListener !== "function" || typeof removeEventListener !== "function") return;
  addEventListener.call(target, event, listener);
  unhook.push(() => removeEventListener.call(target, event, listener));
}
