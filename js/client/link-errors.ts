/** What a client says when something is not there, in time or at all. */

import { DatabaseClosedError, OwnerUnavailableError, StorageUnavailableError } from "../errors.js";
import type { Ending } from "./sender.js";
import { unsendable } from "./sent.js";
import { fromWire } from "./wire-errors.js";

/** An ending that is no answer. */
export type Failure = Exclude<Ending, { readonly value: unknown }>;

/** What a call rejects with. `reason` is why it may have waited. */
export function errorOf(
  name: string,
  call: string,
  writes: boolean,
  ending: Failure,
  reason: string | undefined,
): unknown {
  if ("error" in ending) return fromWire(ending.error);
  if ("thrown" in ending) {
    const { name: kind, message } = Object(ending.thrown) as Partial<Error>;
    if (kind !== "DataCloneError") return ending.thrown;
    return unsendable(`What ${call}() was given`, `${message}`, ending.thrown);
  }
  if ("forgotten" in ending) {
    return new OwnerUnavailableError(
      `${call}() on "${name}" was done, but its answer was too large to keep. Do not repeat it.`,
      { applied: true },
    );
  }
  const applied = writes && ending.lapsed === "unknown" && "unknown";
  const fate = applied ? "may have been" : "was not";
  return new OwnerUnavailableError(
    `${call}() on "${name}" was not answered in time. It ${fate} done. ${reason ?? ""}`.trim(),
    { applied },
  );
}

/** Why calls may wait, where a worker was started and has said nothing, good or bad. */
export const SILENT =
  "Its worker has not answered at all: the worker's file must have export default serve(…), and nothing " +
  "before that may wait or run without end.";

export function closed(name: string): DatabaseClosedError {
  return new DatabaseClosedError(`The client of "${name}" was closed. Connect again.`);
}

export function noWorker(name: string, cause?: unknown): StorageUnavailableError {
  return new StorageUnavailableError(
    `connect("${name}") needs its own worker. On a server use open(); the option worker is ` +
      "serve(…).here in service workers, a port of serve(…).listen() in threads.",
    { cause },
  );
}

export function broken(name: string, { message, error }: Partial<ErrorEvent>) {
  return new StorageUnavailableError(
    `The worker of connect("${name}") failed${message ? `: ${message}` : " to load"}. ` +
      "If a bundler lost it, give the option worker one with export default serve(…).",
    { cause: error },
  );
}
