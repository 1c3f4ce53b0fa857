/** The timers of an open database: what is done though nobody asks for it, and when. */

import { clearTimeout, setTimeout } from "../util/clock.js";

const BUFFERED_MS = 5;
const FLUSH_MS = 1_000;
const WITNESS_MS = 80;

/** What is done when its time has come. */
export interface Tasks {
  /** Hands a group on that was buffered. */
  commitPending(): void;
  flush(): void;
  witness(): void;
  /** A slice of housekeeping. Answers whether there is more of it. */
  maintain(): boolean;
}

/** What the engine has to say of its file. */
interface Needs {
  /** Whether something was written and not flushed. */
  unflushed(): boolean;
  /** Whether a flush has nothing behind it yet that tells of it. */
  unwitnessed(): boolean;
}

type Timer = ReturnType<typeof setTimeout> | undefined;

/** Each runs at most once at a time, and none where the storage wants none. Only that of buffered writes keeps a program alive. */
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

  /** There is housekeeping to do: a slice after each task, and none while nothing else happens. */
  armMaintenance(pause = 0): void {
    if (!this.allowed) return;
    this.maintain ??= idle(() => {
      this.maintain = undefined;
      if (this.tasks.maintain()) this.armMaintenance();
    }, pause);
  }

  /** Something was written that may wait for more. */
  armBuffer(): void {
    this.buffer ??= setTimeout(() => this.tasks.commitPending(), BUFFERED_MS);
  }

  /** What was buffered has been handed on. */
  disarmBuffer(): void {
    clearTimeout(this.buffer);
    this.buffer = undefined;
  }

  /** Sets the timers that what is unflushed or unwitnessed needs. */
  arm(needs: Needs): void {
    if (!this.allowed) return;
    if (this.flush === undefined && needs.unflushed()) {
      this.flush = idle(() => {
        this.flush = undefined;
        this.tasks.flush();
      }, FLUSH_MS);
    }
    if (this.witness === undefined && needs.unwitnessed()) {
      this.witness = idle(() => {
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
function idle(task: () => void, ms: number): Timer {
  const timer = setTimeout(task, ms);
  const { unref } = timer as { unref?: () => void };
  unref?.call(timer);
  return timer;
}
