/** Structs that grow: later versions read what earlier ones wrote. */

import type { Added, Fields, LeavesOf, Schema } from "./infer.js";
import { schema } from "./struct.js";
import type { Type } from "./type.js";

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
 * ones. It may be left out of what is stored. Where the struct ended in padding, the field lies in that
 * and was zero in earlier values: there only a default of zero is taken, or a filler first.
 */
export function added<V, W, I, P>(type: Type<V, W, I, P>, fallback: I): Added<V, W, I, P> {
  return Object.create(type, { fallback: { value: fallback } }) as Added<V, W, I, P>;
}
