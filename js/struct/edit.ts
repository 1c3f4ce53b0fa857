/** Assigning to a part that lies elsewhere in the value, in an update. */

import { type Cursor, lone, type Type, up, type Writer, wrong } from "./type.js";

/**
 * Writes the part in place if it has the same length. Else the value moves to memory of its own, where
 * the part is put behind the rest and everything else stays where it is, so that all views go on.
 * When the callback has returned, the value is made anew from there, without the gaps.
 */
export function reassign(to: Cursor, at: number, type: Type, value: unknown): void {
  if (type.replace?.(to, at, value) === true) return;
  const edit = to.$w as NonNullable<Cursor["$w"]>;
  if (edit.fixed) {
    throw wrong("cannot change its length: a later version wrote the value.");
  }
  const start = up(to.$n, 8);
  const end = (type.extent as NonNullable<Type["extent"]>)(value, start);
  const u8 = new Uint8Array(end);
  u8.set(to.$m.u8.subarray(to.$b, to.$b + to.$n));
  const memory = lone(u8);
  const writer: Writer = { $m: memory, $b: 0, $n: end, end: start };
  type.put(writer, at - to.$b, value);
  move(edit.whole, memory, end);
  for (const view of edit.parts ?? []) move(view, memory, end);
  edit.moved = true;
}

/** Points a view of an update to a copy of the value in which everything lies as it did. */
function move(view: Cursor, memory: Cursor["$m"], length: number): void {
  view.$o -= view.$b;
  view.$b = 0;
  view.$m = memory;
  view.$n = length;
  view.$e = memory.epoch;
}
