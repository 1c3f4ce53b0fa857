/**
 * What the bytes of `structured()` are made of: CBOR (RFC 8949) with tags that IANA has registered. The page
 * docs/structured.md describes them for other languages.
 */

import { badCall, MalformedValueError } from "../../errors/base.js";
import { TOO_DEEP } from "../plain-json.js";

/** The tags of CBOR that are used. */
export const TAG = {
  /** Seconds since 1970. */
  time: 1,
  bigint: 2,
  negativeBigint: 3,
  /** A list: the name of a class, and what it is made from. */
  made: 27,
  /** A value to which the tag `reference` may refer by its number. */
  shared: 28,
  reference: 29,
  set: 258,
  map: 259,
  /** Text with lone surrogates, as bytes. */
  wtf8: 273,
  regExp: 21_066,
} as const;

/** The typed arrays but `Uint8Array`, by the tags of RFC 8746 for numbers in little-endian order. */
export const ARRAY_TAGS: Readonly<Record<string, number>> = {
  Uint8ClampedArray: 68,
  Uint16Array: 69,
  Uint32Array: 70,
  BigUint64Array: 71,
  Int8Array: 72,
  Int16Array: 77,
  Int32Array: 78,
  BigInt64Array: 79,
  Float16Array: 84,
  Float32Array: 85,
  Float64Array: 86,
};

/** The names of the typed arrays, by tag. */
export const ARRAYS: Readonly<Record<number, string>> = Object.fromEntries(
  Object.entries(ARRAY_TAGS).map(([name, tag]) => [tag, name]),
);

/** The classes of errors. Those of others become `Error`, as structured clone has it. */
export const ERRORS: readonly string[] =
  "Error EvalError RangeError ReferenceError SyntaxError TypeError URIError".split(" ");

/** Levels of nesting at most, so that what was written can be read, on the smallest stack. */
export const MAX_DEPTH = 500;

/** The error for a value that cannot be stored. */
export function refused(path: string, why: string): Error {
  const message = `structured(): ${path === "" ? "the value" : path} ${why}`;
  return Object.assign(badCall(message), { field: path });
}

/** The error for bytes that are no value. */
export function malformed(why: string, cause?: unknown): MalformedValueError {
  return new MalformedValueError(`structured: ${why}.`, cause === undefined ? {} : { cause });
}

/** The error for bytes that are nested too deeply. */
export function tooDeep(): MalformedValueError {
  return malformed(TOO_DEEP);
}
