/** Ranges of keys: the options of a range, and the bounds computed from them. */

import type { KeyRange } from "../engine/wasm-memory.js";
import { badArgument } from "../errors/index.js";
import {
  asBytes,
  compareBytes,
  type Key,
  MAX_KEY,
  refuseLoneSurrogates,
  refuseLost,
  TOO_LONG_KEY,
} from "../util/bytes.js";
import { encoder } from "../util/text-coders.js";
import { refuseUnknown } from "./options.js";

/**
 * Selects keys, and the order in which they come. Keys are ordered by their bytes; a string counts as its
 * UTF-8. Everything is optional, and all that is given applies together: `{ prefix: "a", gt: "ab" }` selects
 * the keys that start with "a" and come after "ab". A range that no key can satisfy is empty.
 */
export interface Range {
  /** Only keys after this one. Not together with `gte`. */
  gt?: Key | undefined;
  /** Only this key and those after it. Not together with `gt`. */
  gte?: Key | undefined;
  /** Only keys before this one. Not together with `lte`. */
  lt?: Key | undefined;
  /** Only this key and those before it. Not together with `lt`. */
  lte?: Key | undefined;
  /** Only keys that start with these bytes. An empty prefix selects all keys. */
  prefix?: Key | undefined;
  /** From the last key to the first. `false` by default. */
  reverse?: boolean | undefined;
  /**
   * At most this many keys: the first ones or, with `reverse`, the last ones. A whole number, 0 or more;
   * unlimited by default.
   */
  limit?: number | undefined;
}

/** A range whose keys come as strings. */
export interface TextRange extends Range {
  /** The form of the keys, `"string"` by default. A key that is not UTF-8 then throws a `TypeError`. */
  keyAs?: "string" | undefined;
}

/** A range whose keys come as bytes. */
export interface ByteRange extends Range {
  /** The form of the keys: each is a `Uint8Array` of its own, a copy. */
  keyAs: "bytes";
}

/** A range in the form that the engine takes. */
export interface Bounds {
  readonly lower: Uint8Array<ArrayBuffer> | undefined;
  readonly lowerExcluded: boolean;
  readonly upper: Uint8Array<ArrayBuffer> | undefined;
  readonly upperIncluded: boolean;
  readonly reverse: boolean;
  /** `Infinity` without a limit. 0 also if no key can satisfy the range. */
  readonly limit: number;
  /** Whether keys are returned as bytes. */
  readonly asBytes: boolean;
}

/** The bounds of a range that is read or deleted in parts. */
export type Rest = { -readonly [Name in keyof KeyRange]: KeyRange[Name] };

/** Moves the bound of a range behind its last key that was read or deleted. */
export function moveBehind(rest: Rest, key: Uint8Array<ArrayBuffer>): void {
  if (rest.reverse) [rest.upper, rest.upperIncluded] = [key, false];
  else [rest.lower, rest.lowerExcluded] = [key, true];
}

const OPTIONS = ["gt", "gte", "lt", "lte", "prefix", "reverse", "limit"];
const KEYED = [...OPTIONS, "keyAs"];

/** One end of a range. */
export interface Bound {
  readonly key: Uint8Array<ArrayBuffer>;
  readonly included: boolean;
}

/**
 * Checks a range and returns its bounds, which are copies.
 *
 * @param call how a message names the call: "keys()"
 * @param keyed whether the call takes `keyAs`
 * @throws TypeError for an option that is unknown or has a wrong type
 * @throws StaleViewError for a bound that is a stale view
 */
export function boundsOf(call: string, given: Range | undefined, keyed = false): Bounds {
  const range: TextRange | ByteRange = given === undefined ? {} : given;
  refuseUnknown(call, range, keyed ? KEYED : OPTIONS);
  const keyAs: unknown = range.keyAs === undefined ? "string" : range.keyAs;
  if (keyAs !== "string" && keyAs !== "bytes") {
    throw badArgument(`The option keyAs of ${call} must be "string" or "bytes".`, keyAs);
  }
  const lower = [endOf(call, range, "gt", "gte")];
  const upper = [endOf(call, range, "lt", "lte")];
  if (range.prefix !== undefined) {
    const prefix = boundKey(call, "prefix", range.prefix);
    // An empty prefix matches every key, so it sets no bounds.
    if (prefix.length > 0) {
      lower.push({ key: prefix, included: true });
      upper.push(endOfPrefix(prefix));
    }
  }
  return bounded(call, range, lower, upper, keyAs === "bytes");
}

/** Combines several lower and upper ends, of which `undefined` sets none, with the direction and the limit. */
export function bounded(
  call: string,
  range: Pick<Range, "reverse" | "limit">,
  lowers: readonly (Bound | undefined)[],
  uppers: readonly (Bound | undefined)[],
  asBytes: boolean,
): Bounds {
  const { reverse = false, limit = Number.POSITIVE_INFINITY } = range;
  if (typeof reverse !== "boolean") {
    throw badArgument(`The option reverse of ${call} must be true or false.`, reverse);
  }
  if (range.limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 0)) {
    throw badArgument(`The option limit of ${call} must be an integer, 0 or more.`, limit);
  }
  const lower = lowers.reduce(later, undefined);
  const upper = uppers.reduce(earlier, undefined);
  return {
    lower: lower?.key,
    lowerExcluded: lower?.included === false,
    upper: upper?.key,
    upperIncluded: upper?.included === true,
    reverse,
    limit: isEmpty(lower, upper) ? 0 : limit,
    asBytes,
  };
}

function endOf(
  call: string,
  range: Range,
  exclusive: "gt" | "lt",
  inclusive: "gte" | "lte",
): Bound | undefined {
  const [out, into] = [range[exclusive], range[inclusive]];
  if (out !== undefined && into !== undefined) {
    throw badArgument(`${call} takes ${exclusive} or ${inclusive}, not both.`);
  }
  if (out !== undefined) return { key: boundKey(call, exclusive, out), included: false };
  if (into !== undefined) return { key: boundKey(call, inclusive, into), included: true };
  return undefined;
}

/** The bytes of a bound, copied, because the program may change its array during the iteration. */
export function boundKey(call: string, option: string, given: unknown): Uint8Array<ArrayBuffer> {
  let key: Uint8Array<ArrayBuffer>;
  try {
    key = typeof given === "string" ? encoded(given) : copied(given);
  } catch (cause) {
    if (!(cause instanceof TypeError)) throw cause;
    throw Object.assign(badArgument(`The option ${option} of ${call}: ${cause.message}`), {
      cause,
    });
  }
  if (key.length === 0 && option !== "prefix") {
    throw badArgument(`The option ${option} of ${call}: A key must have at least one byte.`);
  }
  if (key.length > MAX_KEY) {
    throw badArgument(`The option ${option} of ${call}: ${TOO_LONG_KEY}`);
  }
  return key;
}

function encoded(text: string): Uint8Array<ArrayBuffer> {
  refuseLoneSurrogates("key", text);
  return encoder.encode(text);
}

function copied(given: unknown): Uint8Array<ArrayBuffer> {
  const bytes = given instanceof Uint8Array ? given : asBytes("key", given);
  refuseLost("key", bytes);
  // Not slice(), which a subclass may override: that of a Buffer makes no copy.
  return new Uint8Array(bytes);
}

/** The exclusive upper bound of all keys with this prefix: the prefix with its last byte raised, if there is one. */
export function endOfPrefix(prefix: Uint8Array): Bound | undefined {
  let { length } = prefix;
  while (length > 0 && prefix[length - 1] === 0xff) length -= 1;
  if (length === 0) return undefined;
  const key = new Uint8Array(prefix.subarray(0, length));
  key[length - 1] = (key[length - 1] as number) + 1;
  return { key, included: false };
}

function later(a: Bound | undefined, b: Bound | undefined): Bound | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  const order = compareBytes(a.key, b.key);
  if (order !== 0) return order > 0 ? a : b;
  return a.included ? b : a;
}

function earlier(a: Bound | undefined, b: Bound | undefined): Bound | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  const order = compareBytes(a.key, b.key);
  if (order !== 0) return order < 0 ? a : b;
  return a.included ? b : a;
}

/** Whether a key lies within bounds. */
export function isWithin(bounds: Bounds, key: Uint8Array): boolean {
  const { lower, lowerExcluded, upper, upperIncluded } = bounds;
  const above = lower === undefined ? 1 : compareBytes(key, lower);
  const below = upper === undefined ? -1 : compareBytes(key, upper);
  return (
    (above > 0 || (above === 0 && !lowerExcluded)) && (below < 0 || (below === 0 && upperIncluded))
  );
}

function isEmpty(lower: Bound | undefined, upper: Bound | undefined): boolean {
  if (lower === undefined || upper === undefined) return false;
  const order = compareBytes(lower.key, upper.key);
  return order > 0 || (order === 0 && !(lower.included && upper.included));
}
