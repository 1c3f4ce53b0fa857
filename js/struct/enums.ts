/** One of a few names, stored as its number. */

import { type Cursor, escaped, malformed, type Type, wrong } from "./type.js";

/** A type whose values are one of these strings. */
export type EnumType<V extends string> = Type<V, V, V, V>;

function names<V extends string>(bytes: 1 | 2, variants: readonly V[]): EnumType<V> {
  const numbers = new Map(variants.map((name, number) => [name as unknown, number]));
  if (numbers.size < variants.length || numbers.size === 0 || numbers.size > 256 ** bytes) {
    throw wrong(`An enum of ${bytes * 8} bits has 1 to ${256 ** bytes} names, each of its own.`);
  }
  const take = ({ $m }: Cursor, at: number): V => {
    const number = bytes === 1 ? $m.data.getUint8(at) : $m.data.getUint16(at, true);
    const name = variants[number];
    if (name !== undefined) return name;
    throw malformed(`discriminant: ${number} is none of the ${variants.length} variants.`);
  };
  return {
    kind: { kind: `enum${(bytes * 8) as 8 | 16}`, variants },
    layout: `e${bytes * 8}(${variants.map(escaped).join()})`,
    bytes,
    align: bytes,
    put({ $m }, at, value) {
      const number = numbers.get(value);
      if (number === undefined) throw wrong(`has to be one of: ${variants.join(", ")}.`, value);
      if (bytes === 1) $m.data.setUint8(at, number);
      else $m.data.setUint16(at, number, true);
    },
    take,
    plain: take,
    verify: take,
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
