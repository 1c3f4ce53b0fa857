/** The options of the calls of clients. */

import { badCall } from "../../errors/index.js";
import { checkedOptions, type Known } from "../../session/checked-options.js";

/** The option by which a method passes its name to the requests that it makes. */
export const CALL_NAME: unique symbol = /* @__PURE__ */ Symbol();

/** The options of a range. */
const RANGE: readonly string[] = ["gt", "gte", "lt", "lte", "prefix", "reverse", "limit"];

type Ends = { readonly [End in "gt" | "gte" | "lt" | "lte"]?: unknown };

/** Checks a range as far as the page can. The owner, which knows the type of the keys, checks the rest. */
export function checkedRange(
  call: string,
  range: unknown,
  ofCollection: boolean,
  ofIndex = false,
): unknown {
  const known = [...RANGE, ofCollection ? "after" : "keyAs", ...(ofIndex ? ["eq"] : [])];
  const { gt, gte, lt, lte } = checkedOptions(call, range as Known & Ends, known);
  if ((gt !== undefined && gte !== undefined) || (lt !== undefined && lte !== undefined)) {
    throw badCall(`${call} takes gt or gte, lt or lte, not both.`);
  }
  return range;
}

/** Splits a call's options into those for the owner and those of the call itself. */
export function split<T extends Known>(options: T | undefined) {
  const { signal, timeout, ...ownerOptions } = options ?? ({} as T);
  // A value that is no object is passed on, for the owner to reject.
  return [Object(options) === options ? ownerOptions : options, { signal, timeout }] as const;
}
