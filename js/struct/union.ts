/** One of a few variants, each with a value of its own type. */

import {
  type Cursor,
  escaped,
  inner,
  malformed,
  type Type,
  up,
  type Writer,
  within,
  wrong,
  zero,
} from "./type.js";

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

/** A variant as it lies: behind the tag, at its own alignment. */
interface Form {
  readonly name: string;
  readonly tag: number;
  readonly type: Type | null;
  readonly at: number;
}

/**
 * One of several variants, by the names that they have in Rust, where it is a `#[repr(u8)]` enum with
 * data: `union({ Cash: u32, Card: str, None: null })`. A value is `{ type: "Cash", value: 100 }`; in
 * JSON it is `{ "Cash": 100 }` or `"None"`, as serde has it.
 */
export function union<const U extends Variants>(variants: U): UnionType<U> {
  const forms = formsOf(variants);
  const names = new Map(forms.map((form) => [form.name as unknown, form]));
  const align = Math.max(...forms.map(({ type }) => type?.align ?? 1));
  const bytes = up(Math.max(...forms.map(({ type, at }) => at + (type?.bytes ?? 0))), align);
  const ofValue = (value: unknown): Form => {
    const form = names.get((value as { type?: unknown } | null | undefined)?.type);
    if (form !== undefined) return form;
    const known = forms.map(({ name }) => name).join(", ");
    throw wrong(`has to be { type, value } with a type of: ${known}.`, value);
  };
  const ofBytes = ({ $m }: Cursor, at: number): Form => {
    const tag = $m.data.getUint8(at);
    const form = forms[tag];
    if (form !== undefined) return form;
    throw malformed(`discriminant: ${tag} is none of the ${forms.length} variants.`);
  };
  const withParts = forms.find(({ type }) => type?.extent !== undefined)?.type;
  return {
    kind: {
      kind: "union",
      variants: forms.map(({ name, type }) => [name, type?.kind ?? null] as const),
    },
    layout: `{|${forms
      .map(({ name, type }) => escaped(name) + (type === null ? "" : `:${type.layout}`))
      .join()}|}`,
    bytes,
    align,
    composite: true,
    put(to, at, value) {
      const { name, tag, type, at: place } = ofValue(value);
      zero(to.$m.u8, at, bytes);
      to.$m.data.setUint8(at, tag);
      inside(name, () => type?.put(to as Writer, at + place, (value as { value: unknown }).value));
    },
    take(from, at) {
      const { name, type, at: place } = ofBytes(from, at);
      if (type === null) return { type: name };
      return { type: name, value: inside(name, () => type.take(from, at + place)) };
    },
    plain(from, at, json) {
      const { name, type, at: place } = ofBytes(from, at);
      if (type === null) return json ? name : { type: name };
      const value = inside(name, () => type.plain(from, at + place, json));
      return json ? Object.fromEntries([[name, value]]) : { type: name, value };
    },
    verify(from, at) {
      const { name, type, at: place } = ofBytes(from, at);
      inside(name, () => type?.verify(from, at + place));
    },
    assign: withParts?.assign,
    extent:
      withParts?.extent &&
      ((value, end) => {
        const { name, type } = ofValue(value);
        return inside(name, () => type?.extent?.((value as { value: unknown }).value, end) ?? end);
      }),
  };
}

function formsOf(variants: Variants): Form[] {
  const entries = Object.entries(variants);
  if (entries.length === 0 || entries.length > 256) throw wrong("A union has 1 to 256 variants.");
  return entries.map(([name, given], tag) => {
    const type = given === null ? null : inner(given);
    return { name, tag, type, at: up(1, type?.align ?? 1) };
  });
}

function inside<T>(name: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw within(error, name);
  }
}
