/** Keys and values of one's own: the program may change its bytes before they are sent, or sent again. */

import type { Bytes, Value } from "../bytes.js";

export function isBytes(given: unknown): given is Bytes {
  return given instanceof ArrayBuffer || ArrayBuffer.isView(given);
}

/** A copy of keys, values, operations and ranges, as far as they can change. What can be gone over is an array then. */
export function own<T>(given: T): T {
  // Dates are keys of collections, also those of another realm.
  if (typeof given !== "object" || given === null || (given as { getTime?: unknown }).getTime)
    return given;
  if (isBytes(given)) return bytesOf(given) as T;
  // The usual one apart: going over it costs as much as all else that a call does here.
  if (Array.isArray(given)) return given.map(own) as T;
  if (Symbol.iterator in given) return own([...(given as never)]) as T;
  const all = Object.entries(given).map(([name, one]) => [name, own(one)]);
  return Object.fromEntries(all) as T;
}

/** A copy as bytes. */
export function bytesOf(value: Value): Uint8Array<ArrayBuffer> {
  if (typeof value === "string") return new TextEncoder().encode(value);
  const { buffer = value as ArrayBuffer, byteOffset, byteLength } = value as Partial<Uint8Array>;
  return new Uint8Array(new Uint8Array(buffer, byteOffset, byteLength));
}
