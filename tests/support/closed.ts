/** Checks that calls after a close are refused. */

import { rejects } from "./errors.js";

export const CLOSED = {
  name: "DatabaseClosedError",
  code: "VARVE_DATABASE_CLOSED",
  message: /was closed\. (Open it|Connect) again/,
} as const;

/**
 * A call for each member, or "stays" if the member keeps its value. A missing member is a compile error, so that
 * none is forgotten.
 */
type Uses<T> = {
  readonly [Name in Exclude<keyof T, symbol>]-?: "stays" | ((of: T) => unknown);
};

/** Fails unless each call throws or rejects because the object was closed. */
export async function refuseAll<T>(of: T, uses: Uses<T>): Promise<void> {
  for (const [name, use] of Object.entries<"stays" | ((of: T) => unknown)>(uses)) {
    if (use === "stays") continue;
    try {
      await rejects(async () => use(of), CLOSED);
    } catch (cause) {
      throw new Error(`${name}: ${(cause as Error).message}`, { cause });
    }
  }
}
