/** What lies elsewhere in the value: any number of items, which may be the bytes of a text. */

import type { Descriptor } from "./codec.js";
import { reassign } from "./edit.js";
import {
  type Cursor,
  drafted,
  part,
  type Span,
  type Type,
  typed,
  up,
  type Writer,
} from "./type.js";

/**
 * A type whose items lie elsewhere in the value, with eight bytes in the struct that say where. `count`
 * gives how many there will be, or throws; `write` puts them at the writer's end and gives that again;
 * `extent` adds what the items themselves have elsewhere.
 */
export function referred<T extends Type>(
  kind: Descriptor,
  layout: string,
  item: Pick<Type, "bytes" | "align">,
  count: (value: unknown) => number,
  write: (to: Writer, value: unknown) => number,
  read: (span: Span, from: Cursor) => unknown,
  extent?: (value: unknown, end: number) => number,
): T {
  const { bytes, align } = item;
  const span: Required<Type>["span"] = (from, at) => part(from, at, bytes, align);
  return typed(
    kind,
    layout,
    8,
    4,
    (target, at, value) => {
      const to = target as Writer;
      const { data } = to.m;
      const offset = up(to.end, align);
      data.setUint32(at, offset, true);
      data.setUint32(at + 4, write(to, value), true);
    },
    (from, at) => read(span(from, at), from),
    {
      extent(value, end) {
        const behind = up(end, align) + count(value) * bytes;
        return extent === undefined ? behind : extent(value, behind);
      },
      assign: reassign,
      replace(to, at, value) {
        const { u8, from, length } = span(to, at);
        if (extent !== undefined || count(value) !== length) return false;
        const n = length * bytes;
        const draft = drafted(n, (m) => {
          write({ m, b: 0, n, end: 0 }, value);
        });
        u8.set(draft, from);
        return true;
      },
      span,
    },
  );
}
