/** The timers of an open database: they run commits, flushes and maintenance in the background. */

import { clearTimeout, setTimeout, unref } from "../util/clock.js";

const BUFFERED_MS = 5;
const FLUSH_MS = 1_000;
const WITNESS_MS = 80;

/** The tasks that the timers run. */
export interface Tasks {
  /** Commits the buffered writes. */
  commitPending(): void;
  flush(): void;
  /** Appends a witness: a frame that records that the frames before it were flushed. */
  witness(): void;
  /** Runs one slice of maintenance. Returns whether there is more to do. */
  maintain(): boolean;
}

/** The state of the engine's file that decides which timers are set. */
interface Needs {
  /** Whether something was written and not flushed. */
  unflushed(): boolean;
  /** Whether the last flush has no witness behind it yet. */
  unwitnessed(): boolean;
}

type Timer = ReturnType<typeof setTimeout> | undefined;

/**
 * One timer per task, each set at most once at a time. A storage can forbid all but the buffer timer, which is
 * also the only one that keeps a program alive.
 */
export class MaintenanceTimers {
  private readonly tasks: Tasks;
  private readonly allowed: boolean;
  private buffer: Timer;
  private flush: Timer;
  private witness: Timer;
  private maintain: Timer;

  constructor(tasks: Tasks, allowed: boolean) {
    this.tasks = tasks;
    this.allowed = allowed;
    this.buffer = undefined;
    this.flush = undefined;
    this.witness = undefined;
    this.maintain = undefined;
  }

  /** Schedules maintenance: one slice per timer task, until none is left. */
  armMaintenance(pause = 0): void {
    if (!this.allowed) return;
    this.maintain ??= unrefTimeout(() => {
      this.maintain = undefined;
      if (this.tasks.maintain()) this.armMaintenance();
    }, pause);
  }

  /** Schedules the commit of buffered writes. */
  armBuffer(): void {
    this.buffer ??= setTimeout(() => this.tasks.commitPending(), BUFFERED_MS);
  }

  /** Cancels that commit, because the buffered writes were committed. */
  disarmBuffer(): void {
    clearTimeout(this.buffer);
    this.buffer = undefined;
  }

  /** Sets the timers for an outstanding flush or witness. */
  arm(needs: Needs): void {
    if (!this.allowed) return;
    if (this.flush === undefined && needs.unflushed()) {
      this.flush = unrefTimeout(() => {
        this.flush = undefined;
        this.tasks.flush();
      }, FLUSH_MS);
    }
    if (this.witness === undefined && needs.unwitnessed()) {
      this.witness = unrefTimeout(() => {
        this.witness = undefined;
        this.tasks.witness();
      }, WITNESS_MS);
    }
  }

  stop(): void {
    for (const timer of [this.buffer, this.flush, this.witness, this.maintain]) clearTimeout(timer);
  }
}

/** A timer that does not keep a program alive. */
function unrefTimeout(task: () => void, ms: number): Timer {
  const timer = setTimeout(task, ms);
  unref(timer);
  return timer;
}
