/** What a client says when something is not there, in time or at all. */

import {
  DatabaseClosedError,
  OwnerUnavailableError,
  StorageUnavailableError,
} from "../../errors/index.js";
import { isTooDeep, TOO_DEEP } from "../../struct/json-form.js";
import { fromWire } from "../protocol/errors.js";
import { unsendable } from "../protocol/json-values.js";
import type { Settlement } from "../protocol/request-queue.js";

/** An ending that is no answer. */
export type Failure = Exclude<Settlement, { readonly value: unknown }>;

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
    const why = isTooDeep(ending.thrown) ? TOO_DEEP : message;
    if (kind !== "DataCloneError" && why === message) return ending.thrown;
    return unsendable(`What ${call}() was given`, `${why}`, ending.thrown);
  }
  if ("forgotten" in ending) {
    return new OwnerUnavailableError(
      `${call}() on "${name}" was done, but its answer was too large to keep. Do not repeat it.`,
      { applied: true },
    );
  }
  const applied = writes && ending.noAnswer === "unknown" && "unknown";
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
  const { name: kind, message } = Object(cause) as Partial<Error>;
  const advice = /Trusted|[Ss]ink type/.test(message ?? "")
    ? "Where Trusted Types are required, give new Worker() a TrustedScriptURL in the option worker."
    : kind === "SecurityError"
      ? "Serve its file from the page's own origin."
      : "On a server use open(); the option worker is serve(…).here in service workers, a port of " +
        "serve(…).listen() in threads.";
  return new StorageUnavailableError(
    `connect("${name}") needs its own worker${message ? ` and has none: ${message}` : ""}. ${advice}`,
    { cause },
  );
}

/** What the content security policy refused last. */
let violation: SecurityPolicyViolationEvent | undefined;

function note(event: Event): void {
  violation = event as SecurityPolicyViolationEvent;
}

/** Hears of what is refused from now on: a worker that fails to load does not say why. */
export function watchPolicy(): void {
  violation = undefined;
  globalThis.addEventListener?.("securitypolicyviolation", note);
}

/** What of a resource's timing is looked at; browsers that do not know it have `undefined`. */
interface Timing extends PerformanceEntry {
  readonly initiatorType: string;
  readonly responseStatus?: number;
  readonly contentType?: string;
}

/** Why a worker that was begun at that time failed to load, as far as the platform tells. */
function reasonOf(since: number): string {
  if (violation?.disposition === "enforce") {
    const { blockedURI, effectiveDirective } = violation;
    return `: ${effectiveDirective} of the content security policy refuses ${blockedURI}`;
  }
  // biome-ignore lint/style/noRestrictedGlobals: what was loaded is known to nothing else, and a clock is not asked.
  const timings = performance.getEntriesByType("resource") as Timing[];
  const wrong = timings
    .reverse()
    .find(
      ({ startTime, initiatorType, responseStatus = 0, contentType }) =>
        startTime >= since &&
        (responseStatus >= 400 ||
          (initiatorType === "other" && contentType && !/script/.test(contentType))),
    );
  if (wrong !== undefined) {
    const { name, responseStatus, contentType } = wrong;
    return `: ${name} came with the status ${responseStatus} and the type ${contentType}`;
  }
  return (
    " to load: its file is missing, from another origin or no JavaScript, or it or one of its imports " +
    "has an error, which the browser's console tells"
  );
}

/** A worker, begun at that time by `performance.now()`, that failed before it ran. */
export function broken(name: string, { message, error }: Partial<ErrorEvent>, since: number) {
  return new StorageUnavailableError(
    `The worker of connect("${name}") failed${message ? `: ${message}` : reasonOf(since)}. ` +
      "If a bundler lost it, give the option worker one with export default serve(…).",
    { cause: error },
  );
}
