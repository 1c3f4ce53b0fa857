/** What lies elsewhere in the value: any number of items, which may be the bytes of a text. */

import type { Descriptor } from "./codec.js";
import { reassign } from "./edit.js";
import {
  type Cursor,
  drafted,
  part,
  release,
  type Span,
  type Type,
  typed,
  up,
  type Writer,
} from "./type.js";

/**
 * A type whose items lie elsewhere in the value, with eight bytes in the struct that say where. `write`
 * puts them at the writer's end and gives how many they are, or throws. If they have something elsewhere
 * themselves, none is ever written over another.
 */
export function referred<T extends Type>(
  kind: Descriptor,
  layout: string,
  item: Pick<Type, "bytes" | "align" | "assign">,
  write: (to: Writer, value: unknown) => number,
  read: (span: Span, from: Cursor) => unknown,
): T {
  const { bytes, align } = item;
  const span: Required<Type>["span"] = (from, at) => part(from, at, bytes, align);
  const put: Type["put"] = (target, at, value) => {
    const to = target as Writer;
    const offset = up(to.end, align);
    const count = write(to, value);
    const { data } = to.m;
    data.setUint32(at, offset, true);
    data.setUint32(at + 4, count, true);
  };
  return typed(kind, layout, 8, 4, put, (from, at) => read(span(from, at), from), {
    assign: reassign,
    replace(to, at, value) {
      const { u8, from, length } = span(to, at);
      const draft = drafted({ bytes: 8, put }, value);
      const { m, end } = draft;
      if (item.assign || m.data.getUint32(4, true) !== length) return false;
      u8.set(m.u8.subarray(8, end), from);
      release(draft);
      return true;
    },
    span,
  });
}
