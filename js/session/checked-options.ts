/** Checks the options of calls of clients and of watches. Others are checked by `refuseUnknown`, which describes more. */

import { type BadArgumentError, badCall } from "../errors/index.js";

/** The longest timeout. Records of clients are kept a little longer than their last deadline. */
export const MAX_TIMEOUT_MS = 3_600_000;

/** The options of every call. */
const CALL_OPTIONS: readonly string[] = ["signal", "timeout"];

export interface Known {
  readonly signal?: AbortSignal | undefined;
  readonly timeout?: number | undefined;
}

/**
 * Returns what an option has to be, `true` if it is valid, and `undefined` for options that are checked
 * elsewhere.
 */
function requirementOf(option: string, value: unknown): string | true | undefined {
  const isWhole = (Number.isSafeInteger(value) && (value as number) >= 0) || "an integer from 0";
  const isFunction = typeof value === "function" || "a function";
  const isTime = typeof value === "number" && value > 0 && value <= MAX_TIMEOUT_MS;
  return {
    signal: "throwIfAborted" in Object(value) || "an AbortSignal",
    // Without a limit, a call could wait forever.
    timeout: isTime || `a number of ms up to ${MAX_TIMEOUT_MS}`,
    retries: isWhole,
    limit: isWhole,
    reverse: typeof value === "boolean" || "true or false",
    version: isWhole,
    predicate: isFunction,
    note: typeof value === "string" || "a string",
    worker: isFunction,
    collections: Object(value) === value || "an object whose properties are named like collections",
  }[option];
}

/** @throws TypeError if the options are not an object, for an unknown option, and for a bad value of one */
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
    const requirement = value === undefined || requirementOf(option, value);
    if (requirement && requirement !== true)
      throw badCall(`${what}: The option ${option} must be ${requirement}.`);
  }
  return options;
}

/** The error for callbacks that are no functions, or that would run on. */
export function noFunction(what: string): BadArgumentError {
  return badCall(`${what} takes a function, not a generator.`);
}
