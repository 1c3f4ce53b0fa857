/**
 * The commit scheduler: when the pending writes of a session are committed and flushed, what happens if that
 * fails, when maintenance runs, and how the session ends.
 */

import type { Engine, EngineListener } from "../engine/engine.js";
import type { Recovery } from "../engine/reports.js";
import { DatabasePoisonedError, FileLostError, QuotaExceededError } from "../errors/index.js";
import type { OpenedStorage } from "../storage/storage.js";
import { nextTask, timeSlice } from "../util/clock.js";
import { type CallGuard, CLOSED, FAILED, IN_CALLBACK, READ_ONLY } from "./call-guard.js";
import { CommitPromises } from "./commit-promises.js";
import { MaintenanceTimers } from "./maintenance-timers.js";
import type { Durability, Settings } from "./options.js";
import type { ViewTracker } from "./strict-views.js";

/** Long work lets other tasks run after this time. */
const SLICE_MS = 4;

/** Maintenance that found no space is tried again after this time. */
const FULL_DISK_MS = 1_000;

/** What a session and its commit scheduler are made with. */
export interface SessionDependencies {
  readonly name: string;
  readonly engine: Engine;
  readonly storage: OpenedStorage;
  readonly settings: Settings;
  readonly guard: CallGuard;
  /** Tracks the views, if the option `strictViews` is set. */
  readonly tracker: ViewTracker | undefined;
}

export class CommitScheduler implements EngineListener {
  /** Whether the commit of the pending writes is scheduled. */
  queued: boolean;
  readonly recovery: Recovery;
  private readonly engine: Engine;
  private readonly guard: CallGuard;
  private readonly settings: Settings;
  private readonly tracker: ViewTracker | undefined;
  private readonly storage: OpenedStorage;
  private readonly promises: CommitPromises;
  private readonly timers: MaintenanceTimers;
  /** Whether the end of this turn is scheduled. */
  private microtask: boolean;
  private readonly onTurnEnd: () => void;
  private readonly turnEnded: () => void;
  private readonly cleanups: Array<() => void>;

  /** `turnEnded` is called at the end of each turn in which something was scheduled. */
  constructor(
    { engine, guard, storage, settings, tracker }: SessionDependencies,
    turnEnded: () => void,
  ) {
    this.queued = false;
    this.recovery = engine.recovery();
    this.engine = engine;
    this.guard = guard;
    this.settings = settings;
    this.tracker = tracker;
    this.storage = storage;
    this.promises = new CommitPromises();
    this.microtask = false;
    this.onTurnEnd = () => this.endTurn();
    this.turnEnded = turnEnded;
    this.timers = new MaintenanceTimers(
      {
        commitPending: this.onTurnEnd,
        flush: () => this.betweenTurns(() => this.commitPending(true)),
        witness: () => this.betweenTurns(() => this.engine.witness()),
        maintain: () => this.maintainInBackground(),
      },
      settings.timers,
    );
    this.cleanups = [];
    engine.listener = this;
    engine.onRead(() => this.scheduleTurnEnd());
    this.listenForExit();
  }

  get durability(): Durability {
    return this.settings.durability;
  }

  // ---------------------------------------------------------------- the end of a turn

  /**
   * Schedules the commit, at the first write of a turn. `queued` is set last: if the stack overflows before, the next
   * write schedules it.
   */
  queue(): void {
    const isBuffered = this.settings.durability === "buffered";
    if (isBuffered) this.timers.armBuffer();
    if (!isBuffered || this.tracker !== undefined) this.scheduleTurnEnd();
    this.queued = true;
  }

  scheduleTurnEnd(): void {
    if (this.microtask) return;
    // Not queueMicrotask: the fake clocks of tests delay it.
    Promise.resolve().then(this.onTurnEnd);
    this.microtask = true;
  }

  /** Ends a turn: commits the pending writes, checks tracked views and releases memory. */
  private endTurn(): void {
    const viewsOnly =
      this.microtask && this.settings.durability === "buffered" && !this.promises.flushAwaited;
    this.microtask = false;
    this.turnEnded();
    this.engine.releaseViews();
    if (!this.guard.isOpen()) return;
    try {
      this.checkViews();
      if (viewsOnly) this.endEngineTurn();
      else this.closeTurn();
    } catch (error) {
      this.fail(error as Error);
    }
  }

  private closeTurn(): void {
    const { durability, timers } = this.settings;
    const wrote = this.engine.pending() !== 0;
    this.commitPending(durability === "flushed" || this.promises.flushAwaited || !timers);
    // Without timers no task runs later, so writes do the maintenance.
    if (this.endEngineTurn() && wrote && !timers) this.maintainInBackground();
    this.timers.arm(this.engine);
  }

  /** Returns whether there is maintenance to do. */
  private endEngineTurn(): boolean {
    const more = this.engine.endTurn(this.tracker !== undefined);
    if (more) this.timers.armMaintenance();
    return more;
  }

  /** Runs a slice of maintenance. If the disk is full, it is tried again later: nothing is lost by that. */
  private maintainInBackground(): boolean {
    let more = false;
    this.betweenTurns(() => {
      // A slice begins with a commit. If that fails, writes are lost and reported, and the slice is left out.
      this.commitPending(false);
      if ((this.guard.gate & FAILED) !== 0) return;
      try {
        more = this.engine.maintain(false);
      } catch (error) {
        if (!(error instanceof QuotaExceededError)) throw error;
        this.timers.armMaintenance(FULL_DISK_MS);
      }
      this.engine.endTurn(this.tracker !== undefined);
    });
    return more;
  }

  /** Does all maintenance, a slice at a time. With `all`, moves all live records together. `reportProgress` may throw to end it. */
  async compact(reportProgress: () => void, call = "compact()", all = true): Promise<void> {
    this.guard.assertOutsideCallback(call);
    for (let more = true, begins = all; more; ) {
      reportProgress();
      // The progress listener may have closed the database.
      this.guard.assertOutsideCallback(call);
      const isOver = this.slice();
      do {
        // A slice begins with a commit, because a failure of the slice itself must lose no writes.
        this.commit();
        more = this.guarded(
          () => this.engine.maintain(begins),
          () => {},
        );
        begins = false;
      } while (more && !isOver());
      await this.rest(call);
    }
    this.timers.arm(this.engine);
  }

  /** Returns a function that says when other tasks should run. Without timers clocks stand still too: always. */
  slice(): () => boolean {
    return this.settings.timers ? timeSlice(SLICE_MS) : () => true;
  }

  /** Lets other tasks run, between two slices of a long call. */
  async rest(call: string): Promise<void> {
    this.engine.endTurn(this.tracker !== undefined);
    await nextTask();
    this.guard.assertOutsideCallback(call);
  }

  private checkViews(): void {
    const written = this.tracker?.verify();
    this.tracker?.forget();
    if (written !== undefined) this.fail(written);
  }

  /** Runs the task of a timer or an event, unless the database was closed or poisoned meanwhile. */
  private betweenTurns(task: () => void): void {
    if (!this.guard.isOpen() || this.isPoisoned()) return;
    try {
      task();
      this.timers.arm(this.engine);
    } catch (error) {
      this.fail(error as Error);
    }
  }

  private isPoisoned(): boolean {
    return this.engine.stats().poisoned;
  }

  // ---------------------------------------------------------------- commits and flushes

  commit(): void {
    this.guard.assertOutsideCallback("commit()");
    this.throwIfWritten();
    this.guarded(() => this.engine.commit(), this.writesLost);
    this.promises.settleCommitted();
  }

  flush(): void {
    this.guard.assertOutsideCallback("flush()");
    this.throwIfWritten();
    this.guarded(() => this.engine.commit(), this.writesLost);
    this.promises.settleCommitted();
    this.guarded(() => this.engineFlush(), this.notFlushed);
    this.promises.settleFlushed();
    this.timers.arm(this.engine);
  }

  /** Flushes. With nothing to flush, it still throws if the file was lost since the last flush. */
  private engineFlush(): void {
    const hasFlushed = !this.engine.unflushed();
    this.engine.flush();
    if (hasFlushed) this.storage.file.assertThere?.();
  }

  get committed(): Promise<void> {
    const refusal = this.refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    if (this.engine.pending() === 0) return Promise.resolve();
    return this.promises.committed();
  }

  get flushed(): Promise<void> {
    const refusal = this.refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    const { sync } = this.storage;
    return sync === undefined ? this.flushedHere() : this.flushedHere().then(sync);
  }

  private flushedHere(): Promise<void> {
    if (this.engine.pending() === 0 && !this.engine.unflushed()) {
      return new Promise((resolve) => resolve(this.storage.file.assertThere?.()));
    }
    this.scheduleTurnEnd();
    return this.promises.flushed();
  }

  private refusal(): unknown {
    try {
      this.guard.assertReadable();
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Commits the pending writes and flushes them if `flush` is set. Settles the promises for either. */
  private commitPending(flush: boolean): void {
    this.queued = false;
    this.timers.disarmBuffer();
    const { engine } = this;
    try {
      if (engine.pending() !== 0) engine.commit();
    } catch (error) {
      this.writesLost(error as Error);
      this.failUnlessKnown(error as Error);
      return;
    }
    this.promises.settleCommitted();
    if (!flush) return;
    try {
      if (engine.unflushed()) engine.flush();
    } catch (error) {
      this.notFlushed(error as Error);
      this.failUnlessKnown(error as Error);
      return;
    }
    this.promises.settleFlushed();
  }

  private guarded<T>(call: () => T, failed: (this: this, error: Error) => void): T {
    try {
      return call();
    } catch (error) {
      failed.call(this, error as Error);
      // The failure that made the database refuse writes was reported when it happened.
      if (!(error instanceof DatabasePoisonedError)) this.promises.report(error as Error);
      throw error;
    }
  }

  // ---------------------------------------------------------------- failures

  /** The pending writes were rolled back. Detaches all views, because their memory is about to be reused. */
  private writesLost(error: Error): void {
    if (this.guard.isUsable()) this.engine.detach();
    this.promises.settleCommitted(error);
    this.notFlushed(error);
  }

  private notFlushed(error: Error): void {
    this.promises.settleFlushed(error);
  }

  /** Handles a failure outside of any call: it is reported, and the next call throws it. */
  fail(error: Error): void {
    if (error === this.guard.poisonedError) return;
    // Without its file a database can still be read, and each write throws that the file is lost.
    if (!(error instanceof FileLostError)) this.guard.defer(error);
    this.promises.report(error);
  }

  /** As `fail`, except for a refused write: the failure that led to the refusal was reported already. */
  private failUnlessKnown(error: Error): void {
    if (!(error instanceof DatabasePoisonedError)) this.fail(error);
  }

  /** In strict mode: throws if a view was written through. */
  throwIfWritten(): void {
    const written = this.tracker?.verify();
    if (written !== undefined) throw written;
  }

  writeFailed(error: Error): void {
    // A write that makes the pending writes large commits them. If that fails, all of them are lost, and not only
    // the write that is about to throw.
    if (!this.queued || error instanceof DatabasePoisonedError) return;
    if (this.engine.pending() !== 0) return;
    this.writesLost(error);
    this.promises.report(error);
  }

  /** Nothing to do: tracked views have bytes of their own. */
  viewsDetached(): void {}

  poisoned(error: DatabasePoisonedError): void {
    this.guard.poison(error);
    this.writesLost(error);
    this.promises.report(error);
  }

  addListener(listener: ((error: Error) => void) | undefined): void {
    this.promises.addListener(listener);
  }

  /** Listeners that are called after each commit, with its error if it failed, and at the end. They must not throw. */
  get commitListeners(): Set<(error?: Error) => void> {
    return this.promises.commitListeners;
  }

  removeListener(listener: ((error: Error) => void) | undefined): void {
    this.promises.removeListener(listener);
  }

  // ---------------------------------------------------------------- exit and close

  private listenForExit(): void {
    const stopListening = this.storage.onLoss?.((loss) => this.promises.report(loss));
    if (stopListening !== undefined) this.cleanups.push(stopListening);
    const { onExit } = this.storage;
    if (onExit !== undefined) {
      const onEnd = (mayContinue?: boolean) =>
        mayContinue === true ? this.mayExit() : this.exit();
      this.cleanups.push(onExit.call(this.storage, onEnd));
    }
    // A storage without timers has no page that could be hidden, and a listener would keep the database in memory.
    if (!this.settings.timers) return;
    const hide = () => this.betweenTurns(() => this.commitPending(true));
    listen("pagehide", globalThis, hide, this.cleanups);
    const { document } = globalThis as { document?: EventTarget };
    if (document !== undefined) listen("visibilitychange", document, hide, this.cleanups);
  }

  /** Commits what is complete, because the program may end now without a further event. */
  private mayExit(): void {
    if ((this.guard.gate & IN_CALLBACK) !== 0 || this.guard.depth !== 0) return;
    this.betweenTurns(() => this.commitPending(false));
  }

  /** Commits what is complete and rolls back open transactions, because the program ends now. */
  private exit(): void {
    const { guard } = this;
    if (!guard.isOpen()) return;
    if ((guard.gate & IN_CALLBACK) !== 0) this.engine.abort();
    for (; guard.depth > 0; guard.depth -= 1) this.engine.rollback();
    // Later writes would never be committed, so they are refused.
    guard.gate = (guard.gate & ~IN_CALLBACK) | READ_ONLY;
    if (this.isPoisoned()) return;
    this.engine.commit();
    if (this.engine.unwitnessed()) this.engine.witness();
  }

  /**
   * The error for a lost file, where finding that out is asynchronous. Called before closing. For the last handle the
   * pending writes are committed first, and no call is allowed meanwhile.
   */
  lossOf(isLast: boolean): Promise<unknown> | undefined {
    const loss = this.storage.file.isThere?.().catch((error) => error);
    if (loss && isLast) {
      // In strict mode writes through views have to be found first: pending writes are not committed then.
      if (this.tracker === undefined) this.betweenTurns(() => this.commitPending(false));
      this.guard.gate |= CLOSED;
    }
    return loss;
  }

  /** Flushes for one of several handles that is being closed. The others go on. */
  flushForOneHandle(): void {
    if (!this.guard.isUsable() || this.isPoisoned()) return;
    if ((this.guard.gate & FAILED) !== 0) throw this.guard.takeFailure();
    this.flush();
  }

  /** Ends the session with its last handle. The file is closed and the memory is released, whatever fails. */
  end(): void {
    const { guard } = this;
    let failure = guard.takeFailure();
    this.timers.stop();
    for (const cleanup of this.cleanups) cleanup();
    try {
      if (this.guard.isUsable()) {
        this.checkViews();
        this.engine.close();
        // A lost file has poisoned the database.
        if (this.isPoisoned()) this.storage.file.assertThere?.();
      }
      // If the stack overflowed while the error was reported, some promises are still pending.
      this.promises.settleCommitted(guard.poisonedError);
      this.promises.settleFlushed(guard.poisonedError);
    } catch (error) {
      this.writesLost(error as Error);
      if (!(error instanceof DatabasePoisonedError)) {
        this.promises.report(error as Error);
        failure ??= error as Error;
      }
    }
    failure ??= guard.takeFailure();
    guard.gate = CLOSED;
    try {
      this.engine.discard();
    } finally {
      this.storage.file.close();
    }
    if (failure !== undefined) throw failure;
  }
}

/** Adds an event listener, if the target has listeners. Its removal is added to `cleanups`. */
function listen(
  event: string,
  target: unknown,
  listener: () => void,
  cleanups: Array<() => void>,
): void {
  const { addEventListener, removeEventListener } = target as Partial<EventTarget>;
  if (typeof addEventListener !== "function" || typeof removeEventListener !== "function") return;
  addEventListener.call(target, event, listener);
  cleanups.push(() => removeEventListener.call(target, event, listener));
}
