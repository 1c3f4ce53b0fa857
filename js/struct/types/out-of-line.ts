/** Out-of-line data: offset and count in the struct, items elsewhere in the value. Used by str, blob and lists. */

import type { Descriptor } from "../codec.js";
import {
  alignUp,
  type Cursor,
  outOfLineSpan,
  type Span,
  type Type,
  typed,
  type Writer,
} from "../type.js";

/**
 * A type whose items lie elsewhere in the value, referenced by eight bytes in the struct. `write` writes them at the
 * writer's end and returns their count, or throws. Items that have out-of-line parts themselves are never overwritten
 * in place.
 */
export function referred<T extends Type>(
  kind: Descriptor,
  item: Pick<Type, "bytes" | "align" | "isOutOfLine">,
  write: (to: Writer, value: unknown) => number,
  read: (span: Span, from: Cursor) => unknown,
): T {
  const { bytes, align } = item;
  const span: Required<Type>["span"] = (from, at) => outOfLineSpan(from, at, bytes, align);
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
