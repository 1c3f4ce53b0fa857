/** Versioned structs: later versions append fields and read values of earlier ones. */

import type { Added, Fields, LeavesOf, Schema } from "../infer.js";
import { schema } from "../struct.js";
import {
  type Cursor,
  copied,
  encodeScratch,
  inner,
  noMore,
  placeOf,
  standaloneMemory,
  type Type,
} from "../type.js";

/**
 * A struct to which later versions may append fields, each `added(type, default)`. In a value that was
 * written before a field existed, reading gives the field's default, and an update stores the field itself.
 * The first two bytes of a value state how long the struct was when it was written.
 *
 * ```ts
 * const Product = versioned("Product", { stock: u16, name: str, price: added(f64, 0) });
 * ```
 *
 * It can only be a value by itself, not part of another. No field may ever be removed, moved or changed. An
 * earlier version of the struct cannot change the length of a part in a value that a later version wrote:
 * assigning one throws a `TypeError`.
 */
export function versioned<const F extends Fields>(name: string, fields: F): Schema<LeavesOf<F>>;
export function versioned(name: string, fields: Fields, ...more: unknown[]): Schema<unknown> {
  noMore("versioned()", more);
  return schema(name, fields, true) as unknown as Schema<unknown>;
}

/**
 * A field that a later version of a `versioned` struct has appended, with its default in values of earlier
 * versions. It may be left out when a value is stored.
 *
 * Do not change a default once values were stored. Reading gives the default that the program declares. A
 * collection also stores the default that the field was introduced with, for readers that do not declare the
 * struct, such as `db.migrate`; another default that is declared later does not replace that one.
 *
 * If the earlier struct ended in padding, the field may lie in that padding, where earlier values have zeros.
 * Then only a default of zero is accepted; for another default, add a filler field first.
 */
export function added<V, W, I, P>(type: Type<V, W, I, P>, fallback: I): Added<V, W, I, P> {
  const { bytes, put, take, span } = inner(type);
  const { m, end } = encodeScratch(type, fallback);
  const placed = (u8: Uint8Array) => placeOf(standaloneMemory(u8), 0, end);
  const jsonOf = (of: Cursor) => JSON.stringify(copied(take(of, 0), 1));
  const from = placed(m.u8.slice(0, end));
  /** The place of the field: in the value, or in its default. A versioned struct is always a whole value. */
  const orDefault = <T>(of: Cursor, at: number, get: (of: Cursor, at: number) => T): T =>
    of.m.data.getUint16(of.b, true) < at - of.b + bytes ? get(from, 0) : get(of, at);
  return {
    ...type,
    put: (to, at, value) => put(to, at, value === undefined ? fallback : value),
    take: (of, at) => orDefault(of, at, take),
    span: span && ((of, at) => orDefault(of, at, span)),
    fallback: {
      input: fallback,
      from,
      isZero: jsonOf(from) === jsonOf(placed(new Uint8Array(end))),
    },
  } satisfies Type as never;
}
