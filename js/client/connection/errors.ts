/** The errors that a client reports when a worker, an owner or an answer is missing. */

import {
  DatabaseClosedError,
  OwnerUnavailableError,
  StorageUnavailableError,
} from "../../errors/index.js";
import { isTooDeep, TOO_DEEP } from "../../struct/plain-json.js";
import { resourceTimings } from "../../util/clock.js";
import { fromWire } from "../protocol/errors.js";
import { unsendable } from "../protocol/json-values.js";
import type { Settlement } from "../protocol/request-queue.js";

/** A settlement without a value. */
export type Failure = Exclude<Settlement, { readonly value: unknown }>;

/** The error that a call rejects with. `reason` says why it may have waited. */
export function errorOf(
  name: string,
  call: string,
  writes: boolean,
  failure: Failure,
  reason: string | undefined,
): unknown {
  if ("error" in failure) return fromWire(failure.error);
  if ("thrown" in failure) {
    const { name: kind, message } = Object(failure.thrown) as Partial<Error>;
    const why = isTooDeep(failure.thrown) ? TOO_DEEP : message;
    if (kind !== "DataCloneError" && why === message) return failure.thrown;
    return unsendable(`What ${call}() was given`, `${why}`, failure.thrown);
  }
  if ("forgotten" in failure) {
    return new OwnerUnavailableError(
      `${call}() on "${name}" was done, but its answer was too large to keep. Do not repeat it.`,
      { applied: true },
    );
  }
  const applied = writes && failure.noAnswer === "unknown" && "unknown";
  const outcome = applied ? "may have been" : "was not";
  return new OwnerUnavailableError(
    `${call}() on "${name}" was not answered in time. It ${outcome} done. ${reason ?? ""}`.trim(),
    { applied },
  );
}

/** The reason why calls wait for a worker that was started and has sent no message. */
export const NO_WORKER_MESSAGE =
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
    `connect("${name}") needs its own worker${message ? ` and has none: ${message.replace(/\.$/, "")}` : ""}. ${advice}`,
    { cause },
  );
}

/** The last violation of the content security policy. */
let violation: SecurityPolicyViolationEvent | undefined;

function recordViolation(event: Event): void {
  violation = event as SecurityPolicyViolationEvent;
}

/**
 * Records violations of the content security policy from now on: a worker that fails to load gives no reason.
 */
export function watchPolicy(): void {
  violation = undefined;
  globalThis.addEventListener?.("securitypolicyviolation", recordViolation);
}

/** The properties of a resource timing that are used; `undefined` in browsers that lack them. */
interface Timing extends PerformanceEntry {
  readonly initiatorType: string;
  readonly responseStatus?: number;
  readonly contentType?: string;
}

/** The reason why a worker that was started at `since` failed to load, as far as the platform says. */
function reasonOf(since: number): string {
  if (violation?.disposition === "enforce") {
    const { blockedURI, effectiveDirective } = violation;
    return `: ${effectiveDirective} of the content security policy refuses ${blockedURI}`;
  }
  const timings = resourceTimings() as Timing[];
  const failed = timings
    .reverse()
    .find(
      ({ startTime, initiatorType, responseStatus = 0, contentType }) =>
        startTime >= since &&
        (responseStatus >= 400 ||
          (initiatorType === "other" && contentType && !/script/.test(contentType))),
    );
  if (failed !== undefined) {
    const { name, responseStatus, contentType } = failed;
    return `: ${name} came with the status ${responseStatus} and the type ${contentType}`;
  }
  return (
    " to load: its file is missing, from another origin or no JavaScript, or it or one of its imports " +
    "has an error, which the browser's console shows"
  );
}

/** The error for a worker, started at `since` by `performance.now()`, that failed before it ran. */
export function broken(name: string, { message, error }: Partial<ErrorEvent>, since: number) {
  return new StorageUnavailableError(
    `The worker of connect("${name}") failed${message ? `: ${message}` : reasonOf(since)}. ` +
      "If a bundler lost it, give the option worker one with export default serve(…).",
    { cause: error },
  );
}
