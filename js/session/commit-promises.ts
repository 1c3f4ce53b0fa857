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
  readonly #listeners = new Set<(error: Error) => void>();
  #lastReported: Error | undefined;
  #committed: Deferred | undefined;
  #flushed: Deferred | undefined;
  /** Called after each commit, with the error of one that failed, and at the end. */
  readonly commitListeners = new Set<(error?: Error) => void>();

  addListener(listener: ((error: Error) => void) | undefined): void {
    if (listener !== undefined) this.#listeners.add(listener);
  }

  removeListener(listener: ((error: Error) => void) | undefined): void {
    if (listener !== undefined) this.#listeners.delete(listener);
  }

  /** Passes a failure to all listeners. The same error is reported only once in a row. */
  report(error: Error): void {
    if (error === this.#lastReported) return;
    this.#lastReported = error;
    for (const listener of this.#listeners) {
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
    this.#committed ??= new Deferred();
    return this.#committed.promise;
  }

  /** A promise for the next flush: resolves when all writes so far are flushed. */
  flushed(): Promise<void> {
    this.#flushed ??= new Deferred();
    return this.#flushed.promise;
  }

  /** Whether a promise for a flush is pending. */
  get flushAwaited(): boolean {
    return this.#flushed !== undefined;
  }

  /** Settles the commit promise: the writes are in the file, or were lost by this error. */
  settleCommitted(error?: Error): void {
    const wait = this.#committed;
    this.#committed = undefined;
    // Before those that wait, which may write again at once.
    for (const listener of this.commitListeners) listener(error);
    wait?.settle(error);
  }

  /** Settles the flush promise: the file was flushed, or the flush failed with this error. */
  settleFlushed(error?: Error): void {
    const wait = this.#flushed;
    this.#flushed = undefined;
    wait?.settle(error);
  }
}
