/** What lies elsewhere in the value: items, however many, which may be the bytes of a text. */

import type { Descriptor } from "../codec.js";
import { alignUp, type Cursor, part, type Span, type Type, typed, type Writer } from "../type.js";

/**
 * A type whose items lie elsewhere in the value, with eight bytes in the struct that say where. `write`
 * puts them at the writer's end and gives how many they are, or throws. If they have something elsewhere
 * themselves, none is ever written over another.
 */
export function referred<T extends Type>(
  kind: Descriptor,
  item: Pick<Type, "bytes" | "align" | "isOutOfLine">,
  write: (to: Writer, value: unknown) => number,
  read: (span: Span, from: Cursor) => unknown,
): T {
  const { bytes, align } = item;
  const span: Required<Type>["span"] = (from, at) => part(from, at, bytes, align);
  const put: Type["put"] = (target, at, value) => {
    const to = target as Writer;
    const offset = alignUp(to.end, align);
    const count = write(to, value);
    const { data } = to.m;
    data.setUint32(at, offset, true);
    data.setUint32(at + 4, count, true);
  };
  return typed(kind, 8, 4, put, (from, at) => read(span(from, at), from), {
    isOutOfLine: true,
    item,
    span,
  });
}
