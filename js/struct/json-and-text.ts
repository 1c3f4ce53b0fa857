/** The codecs `json()` and `text()`, for collections without a schema. */

import type { Declared } from "./codec.js";
import { badValue, noMore } from "./type.js";

/** Options of `json()`. */
export interface JsonCodecOptions {
  /** Stores what JSON makes of a value, without refusing what it loses. `false` by default. */
  readonly lossy?: boolean;
}

/** What `json()` returns. */
export interface JsonValues<T> extends Declared<T, T, T> {
  readonly kind: { readonly kind: "json" };
  /** Whether what JSON loses is not refused. */
  readonly lossy: boolean;
}

/**
 * Values are anything that JSON can hold, and are stored as JSON. Each `get` returns a copy of its own.
 *
 * ```ts
 * const sessions = db.collection("sessions", json<Session>());
 * ```
 *
 * What JSON would lose is refused, with the path to it: dates, bytes, maps, sets, errors, NaN, `undefined` in an
 * array, functions. `structured()` of varve/structured keeps such values; `json({ lossy: true })` stores what
 * JSON.stringify makes of them. As in JSON, a field that is `undefined` is left out, -0 is 0, an object of a class becomes
 * a plain one, and one with a function `toJSON` becomes what that returns.
 */
export function json<T>(options?: JsonCodecOptions): JsonValues<T>;
export function json<T>(
  options: JsonCodecOptions | undefined = {},
  ...more: unknown[]
): JsonValues<T> {
  noMore("json()", more);
  if (Object(options) !== options || Object.keys(options).some((name) => name !== "lossy")) {
    throw badValue("json() has no option but lossy.", options);
  }
  const { lossy = false } = options;
  if (typeof lossy !== "boolean") {
    throw badValue("The option lossy of json() must be true or false.", lossy);
  }
  return { kind: { kind: "json" }, lossy };
}

/** Values are strings, stored as UTF-8. */
export function text(): Declared<string, string, string>;
export function text(...more: unknown[]): Declared<string, string, string> {
  noMore("text()", more);
  return { kind: { kind: "text" } };
}
