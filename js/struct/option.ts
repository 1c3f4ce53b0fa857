/** What may be absent. */

import { type Cursor, inner, malformed, type Type, up, wrong, zero } from "./type.js";

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
  const { align, extent } = type;
  const head = up(1, align);
  const bytes = up(head + type.bytes, align);
  const isSome = ({ $m }: Cursor, at: number): boolean => {
    const tag = $m.data.getUint8(at);
    if (tag > 1) throw malformed(`discriminant: ${tag} is neither 0 for nothing nor 1.`);
    return tag === 1;
  };
  return {
    kind: { kind: "option", of: type.kind },
    layout: `opt(${type.layout})`,
    bytes,
    align,
    composite: true,
    put(to, at, value) {
      zero(to.$m.u8, at, bytes);
      if (value === undefined || value === null) return;
      to.$m.data.setUint8(at, 1);
      type.put(to, at + head, value);
    },
    take: (from, at) => (isSome(from, at) ? type.take(from, at + head) : undefined),
    plain(from, at, json) {
      if (isSome(from, at)) return type.plain(from, at + head, json);
      return json ? null : undefined;
    },
    verify(from, at) {
      if (isSome(from, at)) type.verify(from, at + head);
    },
    assign: type.assign,
    replace(to, at, value) {
      const isNone = value === undefined || value === null;
      if (isNone) zero(to.$m.u8, at, bytes);
      return isNone || (isSome(to, at) && type.replace?.(to, at + head, value) === true);
    },
    extent:
      extent &&
      ((value, end) => (value === undefined || value === null ? end : extent(value, end))),
  };
}

/** A number or `undefined`, in the number's own bytes: 0 is what stands for nothing. */
export function optNonZero<V extends number | bigint, I>(
  of: Type<V, V, I, V>,
): Type<V | undefined, V | undefined, I | undefined | null, V | undefined> {
  const type = inner(of);
  if (!/^([uif]\d|timestamp)/.test(type.kind.kind)) {
    throw wrong("Only a number can be nothing where it is 0. Use option().", type.kind.kind);
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
      if (value === undefined || value === null) return zero(to.$m.u8, at, type.bytes);
      if (Number(value) === 0) throw wrong("has to be a number other than 0, or undefined.", value);
      type.put(to, at, value);
    },
    take,
    plain(from, at, json) {
      if (take(from, at) !== undefined) return type.plain(from, at, json);
      return json ? null : undefined;
    },
    verify: type.verify,
  };
}
