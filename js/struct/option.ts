/** What may be absent. */

import { form, tagged } from "./tagged.js";
import { type Cursor, inner, plainOf, type Type, wrong, zero } from "./type.js";

/** A type whose values may be absent: `undefined`. `null` may be stored for it as well. */
export type OptionType<V, W, I, P> = Type<
  V | undefined,
  W | undefined,
  I | undefined | null,
  P | undefined
>;

/**
 * A value or `undefined`: a byte that tells, and then the value. In Rust: varve's `Opt<T>`, since the
 * layout of Rust's own `Option` is nobody's business.
 */
export function option<V, W, I, P>(of: Type<V, W, I, P>): OptionType<V, W, I, P> {
  const type = inner(of);
  const some = form("", type);
  const { of: formOf, ...common } = tagged([form("", null), some], (value) => [
    isNone(value) ? undefined : some,
    value,
  ]);
  const isSome = (from: Cursor, at: number): boolean => formOf(from, at) === some;
  return {
    ...common,
    kind: { kind: "option", of: type.kind },
    layout: `opt(${type.layout})`,
    take: (from, at) => (isSome(from, at) ? type.take(from, at + some.at) : undefined),
    plain(from, at, mode) {
      if (isSome(from, at)) return plainOf(type, from, at + some.at, mode);
      return mode === 1 ? null : undefined;
    },
    replace(to, at, value) {
      if (isNone(value)) zero(to.$m.u8, at, common.bytes);
      return isNone(value) || (isSome(to, at) && type.replace?.(to, at + some.at, value) === true);
    },
  };
}

function isNone(value: unknown): value is undefined | null {
  return value === undefined || value === null;
}

/**
 * A number or `undefined`, in the number's own bytes: 0 is what stands for nothing. In Rust
 * `Option<NonZeroU32>` and its like, of integers.
 */
export function optNonZero<V extends number | bigint, I>(
  of: Type<V, V, I, V>,
): Type<V | undefined, V | undefined, I | undefined | null, V | undefined> {
  const type = inner(of);
  if (!/^([uif]\d|timestamp)/.test(type.kind.kind)) {
    throw wrong("Only a number can be absent where it is 0. Use option().", type.kind.kind);
  }
  const take = (from: Cursor, at: number): unknown => {
    const value = type.take(from, at);
    return Number(value) === 0 ? undefined : value;
  };
  return {
    kind: { kind: "optNonZero", of: type.kind },
    layout: `nz(${type.layout})`,
    bytes: type.bytes,
    align: type.align,
    put(to, at, value) {
      if (isNone(value)) return zero(to.$m.u8, at, type.bytes);
      if (Number(value) === 0) throw wrong("has to be other than 0, or undefined.", value);
      type.put(to, at, value);
    },
    take,
    plain(from, at, mode) {
      if (take(from, at) !== undefined) return plainOf(type, from, at, mode);
      return mode === 1 ? null : undefined;
    },
  };
}
