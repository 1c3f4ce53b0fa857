/** Unions: one of several variants, each with a value of its own type. */

import { badValue, inner, noMore, type Type } from "../type.js";
import { type Form, tagged } from "./tagged-union.js";

/** The variants of a union: their types by name, or `null` for a variant without a value. */
export interface Variants {
  readonly [name: string]: Type | null;
}

type Types<T> = T extends { readonly types?: infer S } ? NonNullable<S> : never;
type Variant<U, K extends string> = {
  [N in keyof U]: U[N] extends null
    ? { readonly type: N; readonly value?: undefined }
    : Types<U[N]> extends { [k in K]: infer P }
      ? { readonly type: N; readonly value: P }
      : never;
}[keyof U];

/** A type whose values are `{ type, value }`, where `type` is the name of the variant. */
export type UnionType<U> = Type<
  Variant<U, "view">,
  Variant<U, "write">,
  Variant<U, "input">,
  Variant<U, "plain">
>;

/**
 * One of several variants, by their names in Rust, where it is a `#[repr(u8)]` enum with data (RFC 2195):
 * `union({ Cash: u32, Card: str, None: null })`. A value is `{ type: "Cash", value: 100 }`. In JSON it is
 * `{ "Cash": 100 }` or `"None"`, as in serde. There may be up to 256 variants.
 */
export function union<const U extends Variants>(variants: U): UnionType<U>;
export function union<const U extends Variants>(variants: U, ...more: unknown[]): UnionType<U> {
  noMore("union()", more);
  const names = Object.keys(variants);
  const forms = Object.entries(variants).map(([name, type]): Form => [name, type && inner(type)]);
  if (names.length === 0 || names.length > 256) throw badValue("A union needs 1 to 256 variants.");
  return tagged(
    { kind: "union", variants: forms.map(([name, type]) => [name, type?.kind ?? null] as const) },
    forms,
    (given) => {
      const { type, value } = Object(given) as { type?: unknown; value?: unknown };
      const tag = names.indexOf(type as string);
      if (tag >= 0) return [tag, value];
      throw badValue(`must be { type, value } with a type of: ${names.join(", ")}.`, type ?? given);
    },
    ([type, has], value) => (has === null ? { type } : { type, value }),
  );
}
