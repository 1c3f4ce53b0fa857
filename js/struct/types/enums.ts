/** Enums: one of several names, stored as its number. */

import { badValue, type Type, typed, unknown } from "../type.js";
import { textOf } from "../utf8.js";
import { u8, u16 } from "./numbers.js";

/** A type whose values are one of these strings. */
export type EnumType<V extends string> = Type<V, V, V, V>;

function names<V extends string>(type: Type, variants: readonly V[]): EnumType<V> {
  const { bytes, put, take } = type;
  const bits = (bytes * 8) as 8 | 16;
  const numbers = new Map(variants.map((name, number) => [textOf(name) as unknown, number]));
  const { size } = numbers;
  const most = 2 ** bits;
  if (!size || size < variants.length || size > most) {
    throw badValue(`An enum${bits} needs 1 to ${most} different names.`);
  }
  return typed(
    { kind: `enum${bits}`, variants },
    bytes,
    bytes,
    (to, at, value) => {
      const number = numbers.get(value);
      if (number === undefined) throw badValue(`must be one of: ${variants.join(", ")}.`, value);
      put(to, at, number);
    },
    (from, at) => {
      const number = take(from, at) as number;
      return variants[number] ?? unknown(number, variants.length);
    },
  );
}

/**
 * One of up to 256 names, in one byte: `enum8("red", "green")`. The names are numbered from 0: you may add
 * names at the end, but never move them. In Rust, a `#[repr(u8)]` enum.
 */
export function enum8<const V extends string>(...variants: V[]): EnumType<V> {
  return names(u8, variants);
}

/** One of up to 65,536 names, in two bytes, as `enum8`. In Rust, a `#[repr(u16)]` enum. */
export function enum16<const V extends string>(...variants: V[]): EnumType<V> {
  return names(u16, variants);
}
