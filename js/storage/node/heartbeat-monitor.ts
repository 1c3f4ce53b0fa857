/** Finds out about a lock that exists whether its holder runs, has ended, or has stopped its heartbeats. */

import { monotonicNow } from "../../util/clock.js";
import type { Builtins } from "./builtins.js";
import { type Holder, isSame, type LockSnapshot } from "./lock-on-disk.js";
import { isOtherThread, type ProcessState, stateOf } from "./process-identity.js";

/**
 * The state of a holder. `"unresponsive"`: it may be alive, but has sent no heartbeat for long enough. `"unknown"`: not
 * yet known.
 */
export type HolderState = ProcessState | "unresponsive";

/** A holder on another machine that has sent none for this long is taken for dead. Well above HEARTBEAT_FRESH_MS of `lock-file.ts`. */
const HEARTBEAT_TIMEOUT_MS = 8000;
/** Time that a thread of this process may take to end after it was terminated. Until then it is checked again. */
export const THREAD_EXIT_TIMEOUT_MS = 100;
/** An empty lock is being written on a file system without links; after this time it was torn by a power failure. */
const WRITE_TIMEOUT_MS = 2000;

/** Observes a lock that this process waits for, by its own monotonic clock. */
export class HeartbeatMonitor {
  readonly #node: Builtins;
  readonly #held: ReadonlySet<string>;
  #first: LockSnapshot | undefined;
  #since = 0;

  /** `held` has the contents of all locks that this thread holds. */
  constructor(node: Builtins, held: ReadonlySet<string>) {
    this.#node = node;
    this.#held = held;
  }

  /** The state of the holder, as far as it is known by now. */
  classifyHolder(seen: LockSnapshot, holder: Holder | undefined): HolderState {
    const now = monotonicNow();
    if (this.#first === undefined || !isSame(this.#first, seen)) {
      this.#first = seen;
      this.#since = now;
    }
    const watched = now - this.#since;
    // A power failure can leave zeros in place of the content.
    if (/^[\0\s]*$/.test(seen.content)) return watched > WRITE_TIMEOUT_MS ? "dead" : "unknown";
    // A lock in the format of another version is checked only by its heartbeats.
    if (holder !== undefined) {
      const state = this.#held.has(seen.content) ? "alive" : stateOf(this.#node, holder);
      if (
        state === "alive" &&
        isOtherThread(this.#node, holder) &&
        watched < THREAD_EXIT_TIMEOUT_MS
      ) {
        return "unknown";
      }
      if (state !== "unknown") return state;
    }
    if (seen.mtimeMs !== this.#first.mtimeMs) return "alive";
    return watched > HEARTBEAT_TIMEOUT_MS ? "unresponsive" : "unknown";
  }
}
