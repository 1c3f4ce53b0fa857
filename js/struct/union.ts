/** One of a few variants, each with a value of its own type. */

import { form, tagged } from "./tagged.js";
import { type Cursor, escaped, inner, inside, plainOf, type Type, wrong } from "./type.js";

/** The variants of a union: their types by their names, `null` where there is nothing to say. */
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

/** A type whose values are `{ type, value }`, of which `type` is the variant's name. */
export type UnionType<U> = Type<
  Variant<U, "view">,
  Variant<U, "write">,
  Variant<U, "input">,
  Variant<U, "plain">
>;

/**
 * One of several variants, by the names that they have in Rust, where it is a `#[repr(u8)]` enum with
 * data (RFC 2195): `union({ Cash: u32, Card: str, None: null })`. A value is `{ type: "Cash", value: 100 }`; in
 * JSON it is `{ "Cash": 100 }` or `"None"`, as serde has it.
 */
export function union<const U extends Variants>(variants: U): UnionType<U> {
  const forms = Object.entries(variants).map(([name, type]) => form(name, type && inner(type)));
  if (forms.length === 0 || forms.length > 256) throw wrong("A union has 1 to 256 variants.");
  const names = new Map(forms.map((one) => [one.name as unknown, one]));
  const { of, ...common } = tagged(forms, (value) => {
    const { type, value: payload } = (value ?? {}) as { type?: unknown; value?: unknown };
    const found = names.get(type);
    if (found !== undefined) return [found, payload];
    throw wrong(
      `has to be { type, value } with a type of: ${[...names.keys()].join(", ")}.`,
      value,
    );
  });
  const read = (from: Cursor, at: number, get: (type: Type, place: number) => unknown) => {
    const { name: type, type: has, at: place } = of(from, at);
    return has === null ? { type } : { type, value: inside(type, () => get(has, at + place)) };
  };
  return {
    ...common,
    kind: {
      kind: "union",
      variants: forms.map(({ name, type }) => [name, type?.kind ?? null] as const),
    },
    layout: `{|${forms.map(({ name, type }) => escaped(name) + (type ? `:${type.layout}` : ""))}|}`,
    take: (from, at) => read(from, at, (type, place) => type.take(from, place)),
    plain(from, at, mode) {
      const found = read(from, at, (type, place) => plainOf(type, from, place, mode));
      if (mode !== 1) return found;
      return "value" in found ? Object.fromEntries([[found.type, found.value]]) : found.type;
    },
  };
}
