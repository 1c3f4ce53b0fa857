/** One of a few names, stored as its number. */

import { u8, u16 } from "./numbers.js";
import { type Cursor, escaped, malformed, type Type, wrong } from "./type.js";

/** A type whose values are one of these strings. */
export type EnumType<V extends string> = Type<V, V, V, V>;

function names<V extends string>(bytes: 1 | 2, variants: readonly V[]): EnumType<V> {
  const numbers = new Map(variants.map((name, number) => [name as unknown, number]));
  if (numbers.size < variants.length || numbers.size === 0 || numbers.size > 256 ** bytes) {
    throw wrong(`An enum${bytes * 8} has 1 to ${256 ** bytes} names, all different.`);
  }
  const type: Type = bytes === 1 ? u8 : u16;
  const take = (from: Cursor, at: number): V => {
    const number = type.take(from, at) as number;
    const name = variants[number];
    if (name !== undefined) return name;
    throw malformed(`discriminant: ${number} is none of ${variants.length}`);
  };
  return {
    kind: { kind: `enum${(bytes * 8) as 8 | 16}`, variants },
    layout: `e${bytes * 8}(${variants.map(escaped).join()})`,
    bytes,
    align: bytes,
    put(to, at, value) {
      const number = numbers.get(value);
      if (number === undefined) throw wrong(`has to be one of: ${variants.join(", ")}.`, value);
      type.put(to, at, number);
    },
    take,
  };
}

/**
 * One of up to 256 names, in one byte: `enum8("red", "green")`. They are numbered from 0: names may
 * be added at the end, never moved. In Rust a `#[repr(u8)]` enum.
 */
export function enum8<const V extends string>(...variants: V[]): EnumType<V> {
  return names(1, variants);
}

/** One of up to 65,536 names, in two bytes. In Rust a `#[repr(u16)]` enum. */
export function enum16<const V extends string>(...variants: V[]): EnumType<V> {
  return names(2, variants);
}
