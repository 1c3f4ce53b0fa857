/** Finds out that a connection's own worker hangs: it leaves queries unanswered. */

import { monotonicNow } from "../../util/clock.js";

/** A worker is replaced after so long without a message, while it is queried repeatedly. */
const UNRESPONSIVE_MS = 6_000;

/** The most time counted between two queries: a page that was suspended has received nothing meanwhile. */
const PROBE_STEP_MS = 1_000;

export class WorkerWatchdog {
  /** How long the worker has left queries unanswered, as of the last query; `undefined` after any message. */
  #unansweredMs: number | undefined;
  #queriedAt = 0;

  /** Starts again: the worker has sent a message, or has been replaced. */
  reset(): void {
    this.#unansweredMs = undefined;
  }

  /** To be called at each query: whether the worker has left those before it unanswered for too long. */
  isUnresponsive(): boolean {
    const now = monotonicNow();
    const step = Math.min(now - this.#queriedAt, PROBE_STEP_MS);
    this.#unansweredMs = this.#unansweredMs === undefined ? 0 : this.#unansweredMs + step;
    this.#queriedAt = now;
    return this.#unansweredMs > UNRESPONSIVE_MS;
  }
}
