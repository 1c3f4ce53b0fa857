/** What a browser tells and promises about all that one origin has stored. */

import { StorageUnavailableError } from "../errors/index.js";
import type { Persistence, StorageRoom } from "./storage.js";

/** How much room there is, which a browser says only in time. */
export class OriginQuota {
  #told: StorageRoom = { usage: undefined, quota: undefined, persisted: undefined };
  #asking = false;

  /** What was told last. Asks anew. */
  look(): StorageRoom {
    if (!this.#asking) {
      this.#asking = true;
      this.#ask()
        // That it is not to be had is no reason for anything to fail.
        .catch(() => undefined)
        .then(() => {
          this.#asking = false;
        });
    }
    return this.#told;
  }

  async #ask(): Promise<void> {
    const { storage } = navigator;
    const [{ usage, quota }, persisted] = await Promise.all([
      storage.estimate(),
      storage.persisted(),
    ]);
    this.#told = { usage, quota, persisted };
  }
}

/** A new database takes as much at once. */
const SEGMENT = 1_048_576;

/**
 * Whether the origin has no room left for a database, as far as the browser tells: Firefox fails to make a file
 * then with no more than "unknown", where its own list of files has to grow for it. To be asked only where
 * storage is not refused: else Firefox ends whoever asks.
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
 * @throws StorageUnavailableError when it cannot be asked, here or at all
 */
export async function persistOrigin(): Promise<Persistence> {
  const storage: Partial<StorageManager> = navigator.storage;
  // Firefox would end whoever asks.
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

/** What was thrown, for a message. */
export function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}
