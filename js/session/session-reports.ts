/** Reports the outcome of a commit or flush to the holders of its promises and to the error listeners. */

import { queueMicrotask } from "../util/clock.js";

/** A promise together with the function that settles it. */
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

  /** Passes a failure to all listeners. The same error is reported only once in a row. */
  report(error: Error): void {
    if (error === this.lastReported) return;
    this.lastReported = error;
    for (const listener of this.listeners) {
      try {
        listener(error);
      } catch (thrown) {
        // An error of one listener must not keep the others from being called; it is rethrown as uncaught.
        queueMicrotask(() => {
          throw thrown;
        });
      }
    }
  }

  /** A promise for the next commit: resolves when the pending writes are in the file. */
  committed(): Promise<void> {
    this.committedWait ??= new Deferred();
    return this.committedWait.promise;
  }

  /** A promise for the next flush: resolves when all writes so far are flushed. */
  flushed(): Promise<void> {
    this.flushedWait ??= new Deferred();
    return this.flushedWait.promise;
  }

  /** Whether a promise for a flush is pending. */
  get flushAwaited(): boolean {
    return this.flushedWait !== undefined;
  }

  /** Settles the commit promise: the writes are in the file, or were lost by this error. */
  settleCommitted(error?: Error): void {
    const wait = this.committedWait;
    this.committedWait = undefined;
    wait?.settle(error);
  }

  /** Settles the flush promise: the file was flushed, or the flush failed with this error. */
  settleFlushed(error?: Error): void {
    const wait = this.flushedWait;
    this.flushedWait = undefined;
    wait?.settle(error);
  }
}
