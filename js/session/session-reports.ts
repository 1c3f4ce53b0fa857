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
  readonly #listeners = new Set<(error: Error) => void>();
  #told: Error | undefined;
  #committed: Deferred | undefined;
  #flushed: Deferred | undefined;

  addListener(listener: ((error: Error) => void) | undefined): void {
    if (listener !== undefined) this.#listeners.add(listener);
  }

  removeListener(listener: ((error: Error) => void) | undefined): void {
    if (listener !== undefined) this.#listeners.delete(listener);
  }

  /** Tells all listeners of a failure, of each only once. */
  report(error: Error): void {
    if (error === this.#told) return;
    this.#told = error;
    for (const listener of this.#listeners) {
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
    this.#committed ??= new Deferred();
    return this.#committed.promise;
  }

  /** For what is written and not flushed yet. */
  flushed(): Promise<void> {
    this.#flushed ??= new Deferred();
    return this.#flushed.promise;
  }

  /** Whether somebody waits for a flush. */
  get flushAwaited(): boolean {
    return this.#flushed !== undefined;
  }

  /** What was written has been handed on, or was lost. */
  settleCommitted(error?: Error): void {
    const wait = this.#committed;
    this.#committed = undefined;
    wait?.settle(error);
  }

  /** What was handed on has been flushed, or could not be. */
  settleFlushed(error?: Error): void {
    const wait = this.#flushed;
    this.#flushed = undefined;
    wait?.settle(error);
  }
}
