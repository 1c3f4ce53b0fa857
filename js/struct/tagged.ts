/** A byte that tells which of a few forms follows, each with a value of its own type or none. */

import type { Descriptor } from "./codec.js";
import { inside, malformed, type Type, typed, up, type Writer, zero } from "./type.js";

/** A form: its name, and the type of what follows. */
export type Form = readonly [name: string, type: Type | null];

/** What `option` and `union` are: `split` finds a value's form and what is in it, or throws; `join` is the reverse. */
export function tagged<T extends Type>(
  kind: Descriptor,
  layout: string,
  forms: readonly Form[],
  split: (value: unknown) => [tag: number, value: unknown],
  join: (form: Form, value: unknown) => unknown,
  replace?: Type["replace"],
): T {
  const types = forms.flatMap(([, type]) => type ?? []);
  const align = Math.max(1, ...types.map((type) => type.align));
  const bytes = up(Math.max(1, ...types.map((type) => up(1, type.align) + type.bytes)), align);
  const assign = types.find((type) => type.assign)?.assign;
  /** Does something with the type of a form, behind the tag. */
  const use = <R>(tag: number, at: number, act: (type: Type, at: number) => R): R | undefined => {
    const [name, type] = forms[tag] as Form;
    return type === null ? undefined : inside(name, () => act(type, at + up(1, type.align)));
  };
  return typed(
    kind,
    layout,
    bytes,
    align,
    (to, start, value) => {
      const [tag, payload] = split(value);
      zero(to.m.u8, start, bytes);
      to.m.data.setUint8(start, tag);
      use(tag, start, (type, at) => type.put(to as Writer, at, payload));
    },
    (from, start) => {
      const tag = from.m.data.getUint8(start);
      const form = forms[tag];
      if (form === undefined) throw malformed(`discriminant: ${tag} is none of ${forms.length}`);
      return join(
        form,
        use(tag, start, (type, at) => type.take(from, at)),
      );
    },
    { composite: true, assign, replace },
  );
}
