/** A byte that tells which of a few forms follows, each with a value of its own type or none. */

import { type Cursor, inside, malformed, type Type, up, type Writer, zero } from "./type.js";

/** A form as it lies: behind the tag, at its own alignment. */
export interface Form {
  readonly name: string;
  readonly type: Type | null;
  readonly at: number;
}

/** A value's form, and what is in it. */
export type Tagged = readonly [form: Form | undefined, value: unknown];

type Common = "bytes" | "align" | "composite" | "put" | "extent" | "assign";

/** What `option` and `union` have in common. */
export interface Forms extends Pick<Type, Common> {
  /** The form that lies there. */
  of(from: Cursor, at: number): Form;
}

export function form(name: string, type: Type | null): Form {
  return { name, type, at: up(1, type?.align ?? 1) };
}

/** Lays the forms out over one another; `split` takes a value apart, or throws. */
export function tagged(forms: readonly Form[], split: (value: unknown) => Tagged): Forms {
  const align = Math.max(...forms.map(({ type }) => type?.align ?? 1));
  const bytes = up(Math.max(...forms.map(({ type, at }) => at + (type?.bytes ?? 0))), align);
  const assign = forms.find(({ type }) => type?.assign !== undefined)?.type?.assign;
  return {
    bytes,
    align,
    composite: true,
    put(to, at, value) {
      const [found, payload] = split(value);
      zero(to.$m.u8, at, bytes);
      if (found === undefined) return;
      to.$m.data.setUint8(at, forms.indexOf(found));
      inside(found.name, () => found.type?.put(to as Writer, at + found.at, payload));
    },
    of({ $m }, at) {
      const tag = $m.data.getUint8(at);
      const found = forms[tag];
      if (found === undefined) throw malformed(`discriminant: ${tag} is none of ${forms.length}`);
      return found;
    },
    assign,
    extent:
      assign &&
      ((value, end) => {
        const [found, payload] = split(value);
        if (found?.type?.extent === undefined) return end;
        return inside(found.name, () => found.type!.extent!(payload, end));
      }),
  };
}
