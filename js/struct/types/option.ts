/** Types for optional values. */

import { badValue, inner, noMore, type Type, typed, zero } from "../type.js";
import { tagged } from "./tagged-union.js";

/** A type whose values may be missing: they are `undefined` then. `null` may be stored for that, too. */
export type OptionType<V, W, I, P> = Type<
  V | undefined,
  W | undefined,
  I | undefined | null,
  P | undefined
>;

/**
 * A value or `undefined`: one byte that says which, and then the value. In Rust it is varve's `Opt<T>`,
 * since the layout of Rust's own `Option` is unspecified.
 */
export function option<V, W, I, P>(of: Type<V, W, I, P>): OptionType<V, W, I, P>;
export function option<V, W, I, P>(
  of: Type<V, W, I, P>,
  ...more: unknown[]
): OptionType<V, W, I, P> {
  noMore("option()", more);
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
 * A number or `undefined`, in the number's own bytes: 0 means `undefined`, and cannot be stored as a number.
 * For integers, in Rust it is `Option<NonZeroU32>` and the like.
 */
export function optNonZero<V extends number | bigint, I>(
  of: Type<V, V, I, V>,
): Type<V | undefined, V | undefined, I | undefined | null, V | undefined> {
  const type = inner(of);
  if (!/^([uif]\d|timestamp)/.test(type.kind.kind)) {
    throw badValue("optNonZero() takes only numbers. Use option().", type.kind.kind);
  }
  const { bytes } = type;
  return typed(
    { kind: "optNonZero", of: type.kind },
    bytes,
    type.align,
    (to, at, value) => {
      if (value == null) return zero(to.m, at, bytes);
      if (Number(value) === 0) throw badValue("must be undefined, or other than 0.", value);
      type.put(to, at, value);
    },
    (from, at) => {
      const value = type.take(from, at);
      return Number(value) === 0 ? undefined : value;
    },
  );
}
