/** The codecs `json()` and `text()`, for collections without a schema. */

import type { Declared } from "./codec.js";
import { noMore } from "./type.js";

/**
 * Values are anything that JSON can hold, and are stored as JSON. Each `get` returns a copy of its own.
 *
 * ```ts
 * const sessions = db.collection("sessions", json<Session>());
 * ```
 */
export function json<T>(): Declared<T, T, T>;
export function json<T>(...more: unknown[]): Declared<T, T, T> {
  noMore("json()", more);
  return { kind: { kind: "json" } };
}

/** Values are strings, stored as UTF-8. */
export function text(): Declared<string, string, string>;
export function text(...more: unknown[]): Declared<string, string, string> {
  noMore("text()", more);
  return { kind: { kind: "text" } };
}
