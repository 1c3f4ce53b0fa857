/** The options of what a client is asked for, looked at before anything is done. */

import { badCall } from "../errors.js";

/** Deadlines lie no further away, for the memory of what was done lasts a little longer than they. */
export const LONGEST_TIMEOUT = 3_600_000;

/** What was called, in the options of the requests that it is made of. */
export const AS: unique symbol = /* @__PURE__ */ Symbol();

interface Known {
  readonly signal?: AbortSignal | undefined;
  readonly timeout?: number | undefined;
}

/** @throws TypeError for options that are none or not among the known, and for wrong values of some */
export function admitted<T extends Known>(
  what: string,
  options = {} as T,
  known?: readonly string[],
): T {
  if (Object(options) !== options) throw badCall(`${what} takes an object of options.`);
  for (const option in options) {
    if (known && !known.includes(option)) {
      throw badCall(`${what} has no option ${option}, but ${known.join(", ")}.`);
    }
  }
  const { signal, timeout } = options;
  if (signal !== undefined && !("aborted" in Object(signal))) {
    throw badCall("The option signal is an AbortSignal.");
  }
  // What lapses never would hold its caller for ever.
  if (
    timeout !== undefined &&
    !(typeof timeout === "number" && timeout > 0 && timeout <= LONGEST_TIMEOUT)
  ) {
    throw badCall(`The option timeout is a number of milliseconds, up to ${LONGEST_TIMEOUT}.`);
  }
  return options;
}

/** What of a call's options is for the owner to look at, and what for the call itself. */
export function split<T extends Known>(given: T | undefined) {
  const { signal, timeout, ...told } = given ?? ({} as T);
  // What is none is given as it is, for others to refuse.
  return [Object(given) === given ? told : given, { signal, timeout }] as const;
}
