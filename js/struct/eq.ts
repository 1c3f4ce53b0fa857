/** Comparison of a field with bytes or text without decoding it. */

import { encoder } from "../util/text-coders.js";
import type { Leaf } from "./layout.js";
import { assertAttached, badValue, type Span, type Viewed, withField } from "./type.js";
import type { Shape } from "./view.js";

/** The names of the fields that are text or bytes. */
export type Comparable<V> = {
  [K in keyof V]-?: V[K] extends string | Uint8Array ? K : never;
}[keyof V];

/**
 * Returns whether a field of a view has these bytes or this text. It compares in place: nothing is decoded
 * and no string is made. For fields of the types str, fixedStr, blob and bytes.
 *
 * @throws TypeError for a field of another type
 * @throws StaleViewError if the view has ended
 */
export function eq<V extends object, K extends Comparable<V>>(
  view: V,
  field: K,
  value: string | Uint8Array,
): boolean {
  const { $v, $s } = view as unknown as Viewed & { $s?: Shape };
  const place = assertAttached($v);
  const leaf = $s?.leaves.find(({ name }) => name === field);
  const span = leaf?.type.span;
  if (!span) throw badValue("eq() compares a view's text or byte fields.", field);
  return withField(`${$s?.name}.${leaf?.name}`, () =>
    same(span(place, place.o + (leaf as Leaf).at), value),
  );
}

function same(span: Span, value: string | Uint8Array): boolean {
  const { u8, from, length } = span;
  const isText = typeof value === "string";
  // A text never has fewer bytes than UTF-16 units.
  if (value.length > length) return false;
  for (let i = 0; i < value.length; i++) {
    const unit = isText ? value.charCodeAt(i) : (value[i] as number);
    if (isText && unit > 0x7f) return same(span, encoder.encode(value));
    if (u8[from + i] !== unit) return false;
  }
  return value.length === length;
}
