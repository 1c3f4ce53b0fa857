/** Tagged unions: a byte selects one of several forms, each with a value of its own type or without one. */

import type { Descriptor } from "../codec.js";
import { alignUp, type Type, typed, unknown, withField } from "../type.js";

/** A form: its name, and the type of its value. */
export type Form = readonly [name: string, type: Type | null];

/** The base of `option` and `union`. `split` returns the form of a value and its content, or throws; `join` is the reverse. */
export function tagged<T extends Type>(
  kind: Descriptor,
  forms: readonly Form[],
  split: (value: unknown) => [tag: number, value: unknown],
  join: (form: Form, value: unknown) => unknown,
  item?: Type,
): T {
  const types = forms.flatMap(([, type]) => type ?? []);
  const align = Math.max(1, ...types.map((type) => type.align));
  const bytes = alignUp(Math.max(1, ...types.map((type) => type.align + type.bytes)), align);
  return typed(
    kind,
    bytes,
    align,
    (to, at, value) => {
      const [tag, payload] = split(value);
      const [name, type] = forms[tag] as Form;
      to.m.u8[at] = tag;
      if (type !== null) withField(name, () => type.put(to, at + type.align, payload));
    },
    (from, at) => {
      const tag = from.m.u8[at] as number;
      const form = forms[tag] ?? unknown(tag, forms.length);
      const [name, type] = form;
      return join(form, type && withField(name, () => type.take(from, at + type.align)));
    },
    { composite: true, isOutOfLine: types.some((type) => type.isOutOfLine), item },
  );
}
