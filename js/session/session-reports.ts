/** Who is told what became of a group of writes: those who hold its promises, and listeners. */

import { queueMicrotask } from "../util/clock.js";

/** A promise that is made only when someone asks for it. */
class Deferred {
  readonly promise: Promise<void>;
  settle!: (error?: Error) => void;

  constructor() {
    this.promise = new Promise((resolve, reject) => {
      this.settle = (error) => (error === undefined ? resolve() : reject(error));
    });
  }
}

export class CommitPromises {
  private readonly listeners: Set<(error: Error) => void>;
  private lastReported: Error | undefined;
  private committedWait: Deferred | undefined;
  private flushedWait: Deferred | undefined;

  constructor() {
    this.listeners = new Set();
    this.lastReported = undefined;
    this.committedWait = undefined;
    this.flushedWait = undefined;
  }

  addListener(listener: ((error: Error) => void) | undefined): void {
    if (listener !== undefined) this.listeners.add(listener);
  }

  removeListener(listener: ((error: Error) => void) | undefined): void {
    if (listener !== undefined) this.listeners.delete(listener);
  }

  /** Tells all listeners of a failure, of each only once. */
  report(error: Error): void {
    if (error === this.lastReported) return;
    this.lastReported = error;
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

  /** For what is written and not handed on yet. */
  committed(): Promise<void> {
    this.committedWait ??= new Deferred();
    return this.committedWait.promise;
  }

  /** For what is written and not flushed yet. */
  flushed(): Promise<void> {
    this.flushedWait ??= new Deferred();
    return this.flushedWait.promise;
  }

  /** Whether somebody waits for a flush. */
  get flushAwaited(): boolean {
    return this.flushedWait !== undefined;
  }

  /** What was written has been handed on, or was lost. */
  settleCommitted(error?: Error): void {
    const wait = this.committedWait;
    this.committedWait = undefined;
    wait?.settle(error);
  }

  /** What was handed on has been flushed, or could not be. */
  settleFlushed(error?: Error): void {
    const wait = this.flushedWait;
    this.flushedWait = undefined;
    wait?.settle(error);
  }
}
