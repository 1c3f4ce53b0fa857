/** That whatever is used after a close says so. */

import { rejects } from "./errors.js";

export const CLOSED = {
  name: "DatabaseClosedError",
  code: "VARVE_DATABASE_CLOSED",
  message: /was closed\. (Open it|Connect) again/,
} as const;

/**
 * A use of each member, or that it stays what it was. One that has none does not compile, so that no
 * member is forgotten.
 */
type Uses<T> = {
  readonly [Name in Exclude<keyof T, symbol>]-?: "stays" | ((of: T) => unknown);
};

/** Fails unless each use of it is refused, at once or as a promise, since it was closed. */
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
