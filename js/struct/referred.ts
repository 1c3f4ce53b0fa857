/** What lies elsewhere in the value: bytes of any number, which may be text. */

import type { SimpleKind } from "./codec.js";
import { reassign } from "./edit.js";
import { part, type Type, type Writer } from "./type.js";

/**
 * A type whose bytes lie elsewhere in the value, with eight in the struct that say where. `measure`
 * gives how many there will be, or throws; `write` puts them at the writer's end.
 */
export function referred<I, V, P>(
  kind: SimpleKind,
  layout: string,
  measure: (value: unknown) => number,
  write: (to: Writer, value: never) => void,
  read: (u8: Uint8Array, at: number, length: number) => V,
  plain?: Type["plain"],
): Type<V, V, I, P> {
  const span: Required<Type>["span"] = (from, at) => part(from, at, 1, 1);
  return {
    kind: { kind },
    layout,
    bytes: 8,
    align: 4,
    extent: (value, end) => end + measure(value),
    put(target, at, value) {
      const to = target as Writer;
      const { end } = to;
      write(to, value as never);
      refer(to, at, end, to.end - end);
    },
    take(from, at) {
      const { from: start, length } = part(from, at, 1, 1);
      return read(from.$m.u8, start, length);
    },
    ...(plain && { plain }),
    span,
    assign: reassign,
    replace(to, at, value) {
      const { from, length } = span(to, at);
      if (measure(value) !== length) return false;
      const end = from - to.$b;
      write({ $m: to.$m, $b: to.$b, $n: end + length, end }, value as never);
      return true;
    },
  };
}

/** Writes down where a part is. */
export function refer({ $m: { data } }: Writer, at: number, offset: number, count: number): void {
  data.setUint32(at, offset, true);
  data.setUint32(at + 4, count, true);
}
