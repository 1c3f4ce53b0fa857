/** The storage quota of an origin, and persistence, as reported by the browser. */

import { StorageUnavailableError } from "../errors/index.js";
import type { Persistence, StorageEstimate } from "./storage.js";

/** The storage estimate of the origin, which browsers report only asynchronously. */
export class OriginQuota {
  #estimate: StorageEstimate = { usage: undefined, quota: undefined, persisted: undefined };
  #asking = false;

  /** Returns the last estimate, and asks for a new one. */
  latest(): StorageEstimate {
    if (!this.#asking) {
      this.#asking = true;
      this.#ask()
        // A missing estimate must not make any call fail.
        .catch(() => undefined)
        .then(() => {
          this.#asking = false;
        });
    }
    return this.#estimate;
  }

  async #ask(): Promise<void> {
    const { storage } = navigator;
    const [{ usage, quota }, persisted] = await Promise.all([
      storage.estimate(),
      storage.persisted(),
    ]);
    this.#estimate = { usage, quota, persisted };
  }
}

/** The initial size of a new database. */
const SEGMENT = 1_048_576;

/**
 * Whether the origin has no space left for a database, by the browser's estimate. Firefox reports only an
 * "UnknownError" if its own list of files has to grow for a new file and cannot. Must be called only if storage is not
 * refused, because Firefox would terminate the caller.
 */
export async function isFull(): Promise<boolean> {
  try {
    const { usage, quota } = await navigator.storage.estimate();
    return (quota as number) - (usage as number) < SEGMENT;
  } catch {
    return false;
  }
}

/**
 * Asks the browser to keep what the origin has stored.
 *
 * @throws StorageUnavailableError if it cannot be asked, here or at all
 */
export async function persistOrigin(): Promise<Persistence> {
  const storage: Partial<StorageManager> = navigator.storage;
  // Without an origin, Firefox would terminate the caller.
  if (globalThis.origin === "null") throw refused("this frame or worker has no origin");
  try {
    if ((await storage.persisted?.()) === true) return "granted";
    if (storage.persist !== undefined) return (await storage.persist()) ? "granted" : "refused";
  } catch (cause) {
    throw refused(reasonOf(cause), { cause });
  }
  if (typeof document !== "undefined") return "refused";
  throw new StorageUnavailableError(
    "A worker cannot ask the browser to keep data. Call persist() on a page's main thread.",
  );
}

function refused(reason: string, options?: { cause: unknown }): StorageUnavailableError {
  return new StorageUnavailableError(
    `The browser cannot be asked to keep data (${reason}). Sandboxed and third-party frames ` +
      "have no storage of their own. Use memory() for temporary data.",
    options,
  );
}

/** The text of a thrown value, for a message. */
export function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
