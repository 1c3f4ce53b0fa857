/** Comparing a field with bytes or text, without making a string of it. */

import { alive, type Cursor, within, wrong } from "./type.js";
import { isThere, type Shape } from "./view.js";

type Viewed = Cursor & { readonly $s: Shape };

/** The names of fields that are text or bytes. */
export type Comparable<V> = {
  [K in keyof V]-?: V[K] extends string | Uint8Array ? K : never;
}[keyof V];

/**
 * Whether a field of a view is these bytes, or this text, compared where it lies: nothing is decoded
 * and no string is made. For fields of the types str, fixedStr, blob and bytes.
 */
export function eq<V extends object, K extends Comparable<V>>(
  view: V,
  field: K,
  value: string | Uint8Array,
): boolean {
  const of = view as unknown as Viewed;
  alive(of);
  const leaf = of.$s?.leaves.find(({ name }) => name === field);
  const span = leaf?.type.span;
  if (leaf === undefined || span === undefined) {
    throw wrong("eq() compares a view's fields of text or bytes.", field);
  }
  const { type, at, fallback } = leaf;
  const there = fallback === undefined || isThere(of, of.$o, at + type.bytes);
  const from = there ? of : fallback.from;
  try {
    const { from: start, length } = span(from, there ? of.$o + at : 0);
    return same(from.$m.u8, start, length, value);
  } catch (error) {
    throw within(error, `${of.$s.name}.${String(field)}`);
  }
}

function same(u8: Uint8Array, at: number, length: number, value: string | Uint8Array): boolean {
  if (typeof value !== "string") {
    if (value.length !== length) return false;
    for (let i = 0; i < length; i++) if (u8[at + i] !== value[i]) return false;
    return true;
  }
  // No text has fewer bytes than letters, or more than three for each.
  if (value.length > length || value.length * 3 < length) return false;
  for (let i = 0; i < value.length; i++) {
    const unit = value.charCodeAt(i);
    if (unit > 0x7f) return same(u8, at, length, new TextEncoder().encode(value));
    if (u8[at + i] !== unit) return false;
  }
  return value.length === length;
}
