/** The options of what a client is asked for, looked at before anything is done. */

import { type BadArgumentError, badCall } from "../../errors/index.js";

/** Deadlines lie no further away, for the memory of what was done lasts a little longer than they. */
export const LONGEST_TIMEOUT = 3_600_000;

/** What was called, in the options of the requests that it is made of. */
export const CALL_NAME: unique symbol = /* @__PURE__ */ Symbol();

/** What every call takes beside what it is about. */
const CALL_OPTIONS: readonly string[] = ["signal", "timeout"];

interface Known {
  readonly signal?: AbortSignal | undefined;
  readonly timeout?: number | undefined;
}

/** What an option has to be, or `true` where this is one; nothing of those that others look at. */
function wanted(option: string, value: unknown): string | true | undefined {
  const isWhole = (Number.isSafeInteger(value) && (value as number) >= 0) || "an integer from 0";
  const isFunction = typeof value === "function" || "a function";
  const isTime = typeof value === "number" && value > 0 && value <= LONGEST_TIMEOUT;
  return {
    signal: "throwIfAborted" in Object(value) || "an AbortSignal",
    // What lapses never would hold its caller for ever.
    timeout: isTime || `a number of ms up to ${LONGEST_TIMEOUT}`,
    retries: isWhole,
    version: isWhole,
    predicate: isFunction,
    worker: isFunction,
    collections: Object(value) === value || "an object whose properties are named like collections",
  }[option];
}

/** @throws TypeError for options that are none or not among the known, and for wrong values of some */
export function checkedOptions<T extends Known>(
  what: string,
  options = {} as T,
  known: readonly string[] = CALL_OPTIONS,
): T {
  if (Object(options) !== options) throw badCall(`${what} takes an object of options.`);
  for (const option in options) {
    if (!known.includes(option)) {
      throw badCall(`${what} has no option ${option}, only ${known.join(", ")}.`);
    }
    const value: unknown = options[option];
    const right = value === undefined || wanted(option, value);
    if (right && right !== true) throw badCall(`The option ${option} must be ${right}.`);
  }
  return options;
}

/** What of a call's options is for the owner to look at, and what for the call itself. */
export function split<T extends Known>(given: T | undefined) {
  const { signal, timeout, ...told } = given ?? ({} as T);
  // What is none is given as it is, for others to refuse.
  return [Object(given) === given ? told : given, { signal, timeout }] as const;
}

/** The error for callbacks that are no functions, or that would run on. */
export function noFunction(what: string): BadArgumentError {
  return badCall(`${what} takes a function, not a generator.`);
}
