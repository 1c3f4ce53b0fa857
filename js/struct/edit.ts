/** Assigning to a part that lies elsewhere in the value, in an update. */

import type { Memory } from "./codec.js";
import { type Cursor, type Edit, lone, type Type, wrong } from "./type.js";

/**
 * Writes the part in place if it has the same length. Else the value moves to memory of its own, where
 * the part is put behind the rest and everything else stays where it is, so that all views go on.
 * When the callback has returned, the value is made anew from there, without the gaps.
 */
export function reassign(to: Cursor, at: number, type: Type, value: unknown): void {
  if (type.replace?.(to, at, value) === true) return;
  const { m, b, n } = to;
  const edit = to.w as Edit;
  if (edit.fixed) {
    throw wrong("cannot change its length: a later version wrote the value.");
  }
  const writer = { m: lone(new Uint8Array(m.u8.subarray(b, b + n))), end: n };
  type.put(writer, at - b, value);
  move(edit, lone(writer.m.u8.subarray(0, writer.end)));
}

/** Points all views of an update to a copy of the value in which everything lies as it did. */
export function move(edit: Edit, memory: Memory): void {
  edit.moved = true;
  for (let place: Cursor | undefined = edit.last; place !== undefined; place = place.p) {
    // Those that have ended stay so.
    if (place.e === place.m.epoch) place.e = memory.epoch;
    place.o -= place.b;
    place.b = 0;
    place.m = memory;
    place.d = memory.data;
    place.n = memory.u8.length;
  }
}
