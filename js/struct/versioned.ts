/** Structs that grow: later versions read what earlier ones wrote. */

import type { Added, Fields, LeavesOf, Schema } from "./infer.js";
import { schema } from "./struct.js";
import { type Cursor, copied, drafted, inner, lone, placeOf, type Type } from "./type.js";

/**
 * A struct that may get more fields at its end, each `added(type, default)`. Values that were written
 * before there was such a field have its default when they are read, and the field itself after an
 * update. The first two bytes of a value say how long the struct was when it was written.
 *
 * ```ts
 * const Product = versioned("Product", { stock: u16, name: str, price: added(f64, 0) });
 * ```
 *
 * It can only be a value by itself, no part of another. No field may be taken away, moved or changed.
 */
export function versioned<const F extends Fields>(name: string, fields: F): Schema<LeavesOf<F>> {
  return schema(name, fields, true) as unknown as Schema<LeavesOf<F>>;
}

/**
 * A field of a later version of a `versioned` struct, with what stands for it in values of the earlier
 * ones. It may be left out of what is stored. A collection keeps the default that the field first came with;
 * another one that is given later changes nothing. Where the struct ended in padding, the field lies in that
 * and was zero in earlier values: there only a default of zero is taken, or a filler first.
 */
export function added<V, W, I, P>(type: Type<V, W, I, P>, fallback: I): Added<V, W, I, P> {
  const { bytes, put, take, span } = inner(type);
  const { m, end } = drafted(type, fallback);
  const placed = (u8: Uint8Array) => placeOf(lone(u8), 0, end);
  const said = (of: Cursor) => JSON.stringify(copied(take(of, 0), 1));
  const from = placed(m.u8.slice(0, end));
  /** Where the field is: in a value, or in what stands for it. Such a struct is all of its value. */
  const there = <T>(of: Cursor, at: number, get: (of: Cursor, at: number) => T): T =>
    of.m.data.getUint16(of.b, true) < at - of.b + bytes ? get(from, 0) : get(of, at);
  return {
    ...type,
    put: (to, at, value) => put(to, at, value === undefined ? fallback : value),
    take: (of, at) => there(of, at, take),
    span: span && ((of, at) => there(of, at, span)),
    fallback: { input: fallback, from, isZero: said(from) === said(placed(new Uint8Array(end))) },
  } satisfies Type as never;
}
