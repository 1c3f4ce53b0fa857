/** What may be absent. */

import { tagged } from "./tagged.js";
import { inner, type Type, typed, wrong, zero } from "./type.js";

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
  return tagged(
    { kind: "option", of: type.kind },
    [
      ["", null],
      ["", type],
    ],
    (value) => [value == null ? 0 : 1, value],
    (_, value) => value ?? undefined,
    type,
  );
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
  const { bytes } = type;
  return typed(
    { kind: "optNonZero", of: type.kind },
    bytes,
    type.align,
    (to, at, value) => {
      if (value == null) return zero(to.m, at, bytes);
      if (Number(value) === 0) throw wrong("has to be other than 0, or undefined.", value);
      type.put(to, at, value);
    },
    (from, at) => {
      const value = type.take(from, at);
      return Number(value) === 0 ? undefined : value;
    },
  );
}
