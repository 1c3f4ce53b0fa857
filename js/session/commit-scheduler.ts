/**
 * When groups of writes are handed on, what becomes of those that fail, and how a session ends: the
 * middle part of a session, between what may be called and the calls themselves.
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

/** What takes long lets other tasks run after so long. */
const SLICE_MS = 4;

/** Housekeeping that found no room waits for so long. */
const FULL_DISK_MS = 1_000;

/** An engine whose groups of writes are handed on in time. */
export class CommitScheduler extends CallGuard implements EngineListener {
  /** Whether the end of this turn is arranged for. */
  queued: boolean;
  readonly recovery: Recovery;
  protected readonly watch: Watch | undefined;
  protected readonly opened: OpenedStorage;
  readonly #reports: CommitPromises;
  private readonly timers: MaintenanceTimers;
  private microtask: boolean;
  private readonly onTurnEnd: () => void;
  private readonly unhook: Array<() => void>;

  /** Views are watched if there is something that watches. */
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
    this.hook();
  }

  get durability(): Durability {
    return this.settings.durability;
  }

  // ---------------------------------------------------------------- the end of a turn

  /**
   * Arranges for the end of the turn, at the first write in it. That it is arranged for is noted when it is: where
   * there is no stack for it, the next write does it.
   */
  queue(): void {
    const isBuffered = this.settings.durability === "buffered";
    if (isBuffered) this.timers.armBuffer();
    if (!isBuffered || this.watch !== undefined) this.scheduleTurnEnd();
    this.queued = true;
  }

  protected scheduleTurnEnd(): void {
    if (this.microtask) return;
    // Not queueMicrotask: tests put it off with their clocks.
    Promise.resolve().then(this.onTurnEnd);
    this.microtask = true;
  }

  /** Runs between turns: hands the group on, and looks after views and memory. */
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
      this.fail(error as Error);
    }
  }

  /** What is kept for the length of a turn may go. */
  protected turnEnds(): void {}

  private closeTurn(): void {
    const { durability, timers } = this.settings;
    const wrote = this.engine.pending() !== 0;
    this.commitPending(durability === "flushed" || this.#reports.flushAwaited || !timers);
    // Nobody comes later: who writes does the housekeeping.
    if (this.endEngineTurn() && wrote && !timers) this.maintainInBackground();
    this.timers.arm(this.engine);
  }

  /** Answers whether there is housekeeping to do. */
  private endEngineTurn(): boolean {
    const more = this.engine.endTurn(this.watch !== undefined);
    if (more) this.timers.armMaintenance();
    return more;
  }

  /** A slice of housekeeping. For want of room it is tried again later: nothing was lost by it. */
  private maintainInBackground(): boolean {
    let more = false;
    this.betweenTurns(() => {
      // A slice begins with a commit. If that fails, a group is gone, and not only some time.
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

  /** Moves everything together that lives, a slice at a time. */
  async compact(checkAbort: () => void): Promise<void> {
    this.assertOutsideCallback("compact()");
    for (let more = true, begins = true; more; ) {
      checkAbort();
      // What it has called may have closed the database.
      this.assertOutsideCallback("compact()");
      const isOver = this.slice();
      do {
        // A slice begins with a commit. If that fails, a group is gone, and if the slice does, none.
        this.commit();
        more = this.guarded(
          () => this.engine.maintain(begins),
          () => {},
        );
        begins = false;
      } while (more && !isOver());
      await this.rest("compact()");
    }
    this.timers.arm(this.engine);
  }

  /** Tells when other tasks are to run again. Where there are no timers, clocks stand still too: at once. */
  slice(): () => boolean {
    return this.settings.timers ? slice(SLICE_MS) : () => true;
  }

  /** Has other tasks run, in what takes several slices of time. */
  async rest(call: string): Promise<void> {
    this.engine.endTurn(this.watch !== undefined);
    await nextTask();
    this.assertOutsideCallback(call);
  }

  private checkViews(): void {
    const written = this.watch?.verify();
    this.watch?.forget();
    if (written !== undefined) this.fail(written);
  }

  /** Does what a timer or an event wants, unless it is too late for that. */
  private betweenTurns(task: () => void): void {
    if (this.death !== undefined || (this.gate & CLOSED) !== 0 || this.poisoned()) return;
    try {
      task();
      this.timers.arm(this.engine);
    } catch (error) {
      this.fail(error as Error);
    }
  }

  private poisoned(): boolean {
    return this.engine.stats().poisoned;
  }

  // ---------------------------------------------------------------- handing on

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

  /** What was flushed before may be lost since: whoever asks for a flush is told. */
  private engineFlush(): void {
    const hasFlushed = !this.engine.unflushed();
    this.engine.flush();
    if (hasFlushed) this.opened.file.assertThere?.();
  }

  get committed(): Promise<void> {
    const refusal = this.refusal();
    if (refusal !== undefined) return Promise.reject(refusal);
    if (this.engine.pending() === 0) return Promise.resolve();
    return this.#reports.committed();
  }

  get flushed(): Promise<void> {
    const refusal = this.refusal();
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

  private refusal(): unknown {
    try {
      this.assertReadable();
      return undefined;
    } catch (error) {
      return error;
    }
  }

  /** Writes the open group, and flushes if wanted. Whoever waits for either is told. */
  private commitPending(flush: boolean): void {
    this.queued = false;
    this.timers.disarmBuffer();
    const { engine } = this;
    try {
      if (engine.pending() !== 0) engine.commit();
    } catch (error) {
      this.lost(error as Error);
      this.failUnlessKnown(error as Error);
      return;
    }
    this.#reports.settleCommitted();
    if (!flush) return;
    try {
      if (engine.unflushed()) engine.flush();
    } catch (error) {
      this.notFlushed(error as Error);
      this.failUnlessKnown(error as Error);
      return;
    }
    this.#reports.settleFlushed();
  }

  private guarded<T>(call: () => T, failed: (this: this, error: Error) => void): T {
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

  /** The open group was rolled back, and its memory is about to be used again: no view may show it. */
  private lost(error: Error): void {
    if (this.death === undefined) this.engine.detach();
    this.#reports.settleCommitted(error);
    this.notFlushed(error);
  }

  private notFlushed(error: Error): void {
    this.#reports.settleFlushed(error);
  }

  /** A failure that no call is there to throw: reported, and thrown by the next one. */
  protected fail(error: Error): void {
    if (error === this.death) return;
    // Reads go on without the file, and each write says that it is lost.
    if (this.failure === undefined && !(error instanceof FileLostError)) {
      this.failure = error;
      this.gate |= FAILED;
    }
    this.#reports.report(error);
  }

  /** That writes are refused is no news: the failure that led to it was reported when it happened. */
  private failUnlessKnown(error: Error): void {
    if (!(error instanceof DatabasePoisonedError)) this.fail(error);
  }

  /** In strict mode: throws if a view was written through. */
  protected throwIfWritten(): void {
    const written = this.watch?.verify();
    if (written !== undefined) throw written;
  }

  writeFailed(error: Error): void {
    // A group that grew large is committed by the write that made it so. If that fails, all of it is
    // gone, and not only the write that is about to throw.
    if (!this.queued || error instanceof DatabasePoisonedError) return;
    if (this.engine.pending() !== 0) return;
    this.lost(error);
    this.#reports.report(error);
  }

  /** In strict mode views have bytes of their own, and the others are dead. */
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

  // ---------------------------------------------------------------- ends

  private hook(): void {
    const stopListening = this.opened.onLoss?.((loss) => this.#reports.report(loss));
    if (stopListening !== undefined) this.unhook.push(stopListening);
    const { onExit } = this.opened;
    if (onExit !== undefined) {
      const ends = (goesOn?: boolean) => (goesOn === true ? this.mayExit() : this.exit());
      this.unhook.push(onExit.call(this.opened, ends));
    }
    // No page is there that could be hidden, and a listener would hold the database for ever.
    if (!this.settings.timers) return;
    const hide = () => this.betweenTurns(() => this.commitPending(true));
    listen("pagehide", globalThis, hide, this.unhook);
    const { document } = globalThis as { document?: EventTarget };
    if (document !== undefined) listen("visibilitychange", document, hide, this.unhook);
  }

  /** The program may end without another word, or go on: what is complete is committed. */
  private mayExit(): void {
    if ((this.gate & IN_CALLBACK) !== 0 || this.depth !== 0) return;
    this.betweenTurns(() => this.commitPending(false));
  }

  /** The program ends now: what is complete is committed, what is not is undone. */
  private exit(): void {
    if (this.death !== undefined || (this.gate & CLOSED) !== 0) return;
    if ((this.gate & IN_CALLBACK) !== 0) this.engine.abort();
    for (; this.depth > 0; this.depth -= 1) this.engine.rollback();
    // Nobody would commit what is written from now on.
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

  /** The last handle goes. The file is closed and the memory given back, whatever fails. */
  end(): void {
    let failure = this.takeFailure();
    this.timers.stop();
    for (const unhook of this.unhook) unhook();
    try {
      if (this.death === undefined) {
        this.checkViews();
        this.engine.close();
        // Writes were refused since, if the file was lost.
        if (this.poisoned()) this.opened.file.assertThere?.();
      }
      // Who waits still was not told of that death: there was no stack for it.
      this.#reports.settleCommitted(this.death);
      this.#reports.settleFlushed(this.death);
    } catch (error) {
      this.lost(error as Error);
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

/** Lets other tasks run. */
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
