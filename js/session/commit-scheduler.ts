/**
 * The commit scheduler: decides when pending writes are committed and flushed, handles their failures, and ends
 * a session. It is the middle layer of a session, above the call guard and below the calls themselves.
 */

import type { Engine, EngineListener } from "../engine/engine.js";
import type { Recovery } from "../engine/stats.js";
import { DatabasePoisonedError, FileLostError, QuotaExceededError } from "../errors/index.js";
import type { OpenedStorage } from "../storage/storage.js";
import { nextTask, slice } from "../util/clock.js";
import { CallGuard, CLOSED, DEAD, FAILED, IN_CALLBACK, READ_ONLY } from "./call-guard.js";
import { MaintenanceTimers } from "./maintenance-timers.js";
import type { Durability, Settings } from "./options.js";
import { CommitPromises } from "./session-reports.js";
import type { Watch } from "./strict-views.js";

/** Long operations let other tasks run after each slice of this length. */
const SLICE_MS = 4;

/** Pause before maintenance is retried after it ran out of disk space. */
const FULL_DISK_MS = 1_000;

/** An engine whose pending writes are committed and flushed as the durability setting requires. */
export class CommitScheduler extends CallGuard implements EngineListener {
  /** Whether the commit of this turn's writes is scheduled. */
  queued: boolean;
  readonly recovery: Recovery;
  protected readonly watch: Watch | undefined;
  protected readonly opened: OpenedStorage;
  readonly #reports: CommitPromises;
  private readonly timers: MaintenanceTimers;
  private microtask: boolean;
  private readonly onTurnEnd: () => void;
  private readonly unhook: Array<() => void>;

  /** With a `watch`, views are tracked (`strictViews`). */
  protected constructor(
    name: string,
    engine: Engine,
    opened: OpenedStorage,
    settings: Settings,
    watch?: Watch,
  ) {
    super(name, engine, settings);
    this.queued = false;
    this.recovery = engine.recovery();
    this.watch = watch;
    this.opened = opened;
    this.#reports = new CommitPromises();
    this.microtask = false;
    this.onTurnEnd = () => this.endTurn();
    this.timers = new MaintenanceTimers(
      {
        commitPending: this.onTurnEnd,
        flush: () => this.betweenTurns(() => this.commitPending(true)),
        witness: () => this.betweenTurns(() => this.engine.witness()),
        maintain: () => this.maintainInBackground(),
      },
      settings.timers,
    );
    this.unhook = [];
    engine.listener = this;
    engine.onRead(() => this.scheduleTurnEnd());
    this.installHooks();
  }

  get durability(): Durability {
    return this.settings.durability;
  }

  // ---------------------------------------------------------------- the end of a turn

  /**
   * Schedules the commit at the first write of a turn. The flag is set last: if scheduling overflows the stack,
   * the next write tries again.
   */
  queue(): void {
    const isBuffered = this.settings.durability === "buffered";
    if (isBuffered) this.timers.armBuffer();
    if (!isBuffered || this.watch !== undefined) this.scheduleTurnEnd();
    this.queued = true;
  }

  protected scheduleTurnEnd(): void {
    if (this.microtask) return;
    // Not queueMicrotask, which fake timers in tests may delay.
    Promise.resolve().then(this.onTurnEnd);
    this.microtask = true;
  }

  /** Runs between turns: commits the pending writes, checks and releases views, and frees memory. */
  private endTurn(): void {
    const viewsOnly =
      this.microtask && this.settings.durability === "buffered" && !this.#reports.flushAwaited;
    this.microtask = false;
    this.turnEnds();
    this.engine.releaseViews();
    if (this.death !== undefined || (this.gate & CLOSED) !== 0) return;
    try {
      this.checkViews();
      if (viewsOnly) this.endEngineTurn();
      else this.closeTurn();
    } catch (error) {
      this.deferError(error as Error);
    }
  }

  /** Lets a subclass drop what it keeps only for one turn. */
  protected turnEnds(): void {}

  private closeTurn(): void {
    const { durability, timers } = this.settings;
    const wrote = this.engine.pending() !== 0;
    this.commitPending(durability === "flushed" || this.#reports.flushAwaited || !timers);
    // Nobody comes later: who writes does the housekeeping.
    if (this.endEngineTurn() && wrote && !timers) this.maintainInBackground();
    this.timers.arm(this.engine);
  }

  /** Ends the turn in the engine. Returns whether there is maintenance to do. */
  private endEngineTurn(): boolean {
    const more = this.engine.endTurn(this.watch !== undefined);
    if (more) this.timers.armMaintenance();
    return more;
  }

  /** Runs a slice of maintenance. If disk space runs out, nothing is lost and it is retried later. */
  private maintainInBackground(): boolean {
    let more = false;
    this.betweenTurns(() => {
      // A slice begins with a commit. Unlike a failed slice, a failed commit loses writes.
      this.commitPending(false);
      if ((this.gate & FAILED) !== 0) return;
      try {
        more = this.engine.maintain(false);
      } catch (error) {
        if (!(error instanceof QuotaExceededError)) throw error;
        this.timers.armMaintenance(FULL_DISK_MS);
      }
      this.engine.endTurn(this.watch !== undefined);
    });
    return more;
  }

  /** Moves all live records together, a slice at a time. */
  async compact(checkAbort: () => void): Promise<void> {
    this.assertOutsideCallback("compact()");
    for (let more = true, begins = true; more; ) {
      checkAbort();
      // The callback may have closed the database.
      this.assertOutsideCallback("compact()");
      const isOver = this.slice();
      do {
        // A slice begins with a commit. If the commit fails, writes are lost; if the slice fails, none are.
        this.commit();
        more = this.reporting(
          () => this.engine.maintain(begins),
          () => {},
        );
        begins = false;
      } while (more && !isOver());
      await this.rest("compact()");
    }
    this.timers.arm(this.engine);
  }

  /**
   * Returns a function that says whether the time slice is over. Without timers it always is, because the clock
   * stands still there too.
   */
  slice(): () => boolean {
    return this.settings.timers ? slice(SLICE_MS) : () => true;
  }

  /** Lets other tasks run between two slices of a long operation. */
  async rest(call: string): Promise<void> {
    this.engine.endTurn(this.watch !== undefined);
    await nextTask();
    this.assertOutsideCallback(call);
  }

  private checkViews(): void {
    const written = this.watch?.verify();
    this.watch?.forget();
    if (written !== undefined) this.deferError(written);
  }

  /** Runs the task of a timer or an event, unless the database is closed, dead or poisoned by now. */
  private betweenTurns(task: () => void): void {
    if (this.death !== undefined || (this.gate & CLOSED) !== 0 || this.poisoned()) return;
    try {
      task();
      this.timers.arm(this.engine);
    } catch (error) {
      this.deferError(error as Error);
    }
  }

  private poisoned(): boolean {
    return this.engine.stats().poisoned;
  }

  // ---------------------------------------------------------------- commit and flush

  commit(): void {
    this.assertOutsideCallback("commit()");
    this.throwIfWritten();
    this.guarded(() => this.engine.commit(), this.lost);
    this.#reports.settleCommitted();
  }

  flush(): void {
    this.assertOutsideCallback("flush()");
    this.throwIfWritten();
    this.guarded(() => this.engine.commit(), this.lost);
    this.#reports.settleCommitted();
    this.guarded(() => this.engineFlush(), this.notFlushed);
    this.#reports.settleFlushed();
    this.timers.arm(this.engine);
  }

  /** Flushes the engine. With nothing to flush, throws if the file, and so its flushed data, was lost since. */
  private engineFlush(): void {
    const hasFlushed = !this.engine.unflushed();
    this.engine.flush();
    if (hasFlushed) this.opened.file.assertThere?.();
  }

  get committed(): Promise<void> {
    const refusal = this.readRefusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    if (this.engine.pending() === 0) return Promise.resolve();
    return this.#reports.committed();
  }

  get flushed(): Promise<void> {
    const refusal = this.readRefusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    const { sync } = this.opened;
    return sync === undefined ? this.flushedHere() : this.flushedHere().then(sync);
  }

  private flushedHere(): Promise<void> {
    if (this.engine.pending() === 0 && !this.engine.unflushed()) {
      return new Promise((resolve) => resolve(this.opened.file.assertThere?.()));
    }
    this.scheduleTurnEnd();
    return this.#reports.flushed();
  }

  private readRefusal(): unknown {
    try {
      this.assertReadable();
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Commits the pending writes and, if `flush` is set, flushes. Settles the promises of both. */
  private commitPending(flush: boolean): void {
    this.queued = false;
    this.timers.disarmBuffer();
    const { engine } = this;
    try {
      if (engine.pending() !== 0) engine.commit();
    } catch (error) {
      this.onCommitFailed(error as Error);
      this.deferUnlessPoisoned(error as Error);
      return;
    }
    this.#reports.settleCommitted();
    if (!flush) return;
    try {
      if (engine.unflushed()) engine.flush();
    } catch (error) {
      this.onFlushFailed(error as Error);
      this.deferUnlessPoisoned(error as Error);
      return;
    }
    this.#reports.settleFlushed();
  }

  private reporting<T>(call: () => T, failed: (this: this, error: Error) => void): T {
    try {
      return call();
    } catch (error) {
      failed.call(this, error as Error);
      // That writes are refused is no news to a listener.
      if (!(error instanceof DatabasePoisonedError)) this.#reports.report(error as Error);
      throw error;
    }
  }

  // ---------------------------------------------------------------- failures

  /** Handles a commit that was rolled back. Its memory is about to be reused, so all views are detached. */
  private onCommitFailed(error: Error): void {
    if (this.death === undefined) this.engine.detach();
    this.#reports.settleCommitted(error);
    this.notFlushed(error);
  }

  private notFlushed(error: Error): void {
    this.#reports.settleFlushed(error);
  }

  /** Handles an error outside of any call: it is reported, and the next call throws it. */
  protected deferError(error: Error): void {
    if (error === this.death) return;
    // If the file is lost, reads go on and each write throws that error anyway.
    if (this.failure === undefined && !(error instanceof FileLostError)) {
      this.failure = error;
      this.gate |= FAILED;
    }
    this.#reports.report(error);
  }

  /** As `deferError`, but ignores refused writes: the failure that caused them was reported before. */
  private deferUnlessPoisoned(error: Error): void {
    if (!(error instanceof DatabasePoisonedError)) this.deferError(error);
  }

  /** In strict mode, throws if a view was written to. */
  protected throwIfWritten(): void {
    const written = this.watch?.verify();
    if (written !== undefined) throw written;
  }

  writeFailed(error: Error): void {
    // A write that makes the pending writes too large commits them. If that fails, all of them are lost, and
    // not only the write that is about to throw.
    if (!this.queued || error instanceof DatabasePoisonedError) return;
    if (this.engine.pending() !== 0) return;
    this.lost(error);
    this.#reports.report(error);
  }

  /** Nothing to do: in strict mode views are copies, and all others are detached already. */
  viewsDied(): void {}

  died(error: DatabasePoisonedError): void {
    this.death = error;
    this.gate |= DEAD;
    this.lost(error);
    this.#reports.report(error);
  }

  addListener(listener: ((error: Error) => void) | undefined): void {
    this.#reports.addListener(listener);
  }

  removeListener(listener: ((error: Error) => void) | undefined): void {
    this.#reports.removeListener(listener);
  }

  // ---------------------------------------------------------------- exit and close

  private hook(): void {
    const stopListening = this.opened.onLoss?.((loss) => this.#reports.report(loss));
    if (stopListening !== undefined) this.unhook.push(stopListening);
    const { onExit } = this.opened;
    if (onExit !== undefined) {
      const onEnd = (mayContinue?: boolean) =>
        mayContinue === true ? this.onMaybeExit() : this.onExit();
      this.unhook.push(onExit.call(this.opened, onEnd));
    }
    // Without timers there is no page that could be hidden, and a listener would keep the database alive.
    if (!this.settings.timers) return;
    const hide = () => this.betweenTurns(() => this.commitPending(true));
    listen("pagehide", globalThis, hide, this.unhook);
    const { document } = globalThis as { document?: EventTarget };
    if (document !== undefined) listen("visibilitychange", document, hide, this.unhook);
  }

  /** Runs when the program may end without further notice, or go on. Commits what is complete. */
  private onMaybeExit(): void {
    if ((this.gate & IN_CALLBACK) !== 0 || this.depth !== 0) return;
    this.betweenTurns(() => this.commitPending(false));
  }

  /** Runs when the program ends. Commits what is complete and rolls back what is not. */
  private onExit(): void {
    if (this.death !== undefined || (this.gate & CLOSED) !== 0) return;
    if ((this.gate & IN_CALLBACK) !== 0) this.engine.abort();
    for (; this.depth > 0; this.depth -= 1) this.engine.rollback();
    // Later writes are refused, because nothing would commit them.
    this.gate = (this.gate & ~IN_CALLBACK) | READ_ONLY;
    if (this.poisoned()) return;
    this.engine.commit();
    if (this.engine.unwitnessed()) this.engine.witness();
  }

  /**
   * That the file is lost, where that takes a moment to learn: a lost one is closed in another way. What was written is
   * committed before, and nothing is begun in that moment if it is the last.
   */
  lossOf(isLast: boolean): Promise<unknown> | undefined {
    const looking = this.opened.file.isThere?.().catch((loss) => loss);
    if (looking && isLast) {
      // In strict mode views are looked at first, and what was written through them is not kept.
      if (this.watch === undefined) this.betweenTurns(() => this.commitPending(false));
      this.gate |= CLOSED;
    }
    return looking;
  }

  /** One of several handles goes: what was written is made durable, the others go on. */
  leave(): void {
    if (this.death !== undefined || this.poisoned()) return;
    if ((this.gate & FAILED) !== 0) throw this.takeFailure();
    this.flush();
  }

  /** Closes the last handle. Closes the file and frees the memory even if something fails. */
  end(): void {
    let failure = this.takeFailure();
    this.timers.stop();
    for (const unhook of this.unhook) unhook();
    try {
      if (this.death === undefined) {
        this.checkViews();
        this.engine.close();
        // A lost file also poisons the engine: report the loss instead of the refusal.
        if (this.poisoned()) this.opened.file.assertThere?.();
      }
      // Who waits still was not told of that death: there was no stack for it.
      this.#reports.settleCommitted(this.death);
      this.#reports.settleFlushed(this.death);
    } catch (error) {
      this.onCommitFailed(error as Error);
      if (!(error instanceof DatabasePoisonedError)) {
        this.#reports.report(error as Error);
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

/** Adds an event listener, and a function that removes it to `unhook`. */
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
