/** Updates of values in place. Collections load this module in addition to schemas, which only read and encode. */

import type { Memory } from "./codec.js";
import {
  badValue,
  type Cursor,
  type Editing,
  encodeScratch,
  placeOf,
  release,
  standaloneMemory,
  type Type,
  type Viewed,
  type ViewedList,
  withField,
  zero,
} from "./type.js";
import type { Shape } from "./view.js";

const NOTHING = /* @__PURE__ */ standaloneMemory(/* @__PURE__ */ new Uint8Array(0));

/**
 * One update of one value. The object is reused for the next update. Before that, views of the value itself have to be
 * moved to another place, or they would show the next value.
 */
export class Edit implements Editing {
  /** The place of the whole value, the same object in every update. */
  declare readonly root: Cursor;
  declare last: Cursor;
  /** Whether the value has moved to separate memory, because the length of a part has changed. */
  declare moved: boolean;
  /** Whether a later version of the schema wrote the value, so that this version cannot encode it again. */
  declare fixed: boolean;

  constructor() {
    const root = placeOf(NOTHING, 0, 0);
    root.e = -1;
    root.w = this;
    this.root = root;
    this.last = root;
    this.moved = false;
    this.fixed = false;
  }

  /** Begins an update of a value, and returns its place. */
  begin(memory: Memory, at: number, length: number): Cursor {
    const { root } = this;
    root.m = memory;
    root.d = memory.data;
    root.o = at;
    root.b = at;
    root.n = length;
    root.e = memory.epoch;
    this.last = root;
    return root;
  }

  /**
   * Assigns a value to a part. A refused value leaves the old one. Views of parts of the replaced value end, because a
   * union may have another variant now, for which their writes would be invalid.
   */
  assign(to: Cursor, at: number, type: Type, value: unknown): void {
    const { bytes, put, composite, isOutOfLine } = type;
    const from = at - to.b;
    if (isOutOfLine) this.reassign(to, at, type, value);
    else if (composite) {
      const draft = encodeScratch(type, value);
      copy(draft.m, bytes, to.m, at);
      release(draft);
    } else put(to, at, value);
    // Only views made after this one can be inside the part.
    for (let part: Cursor | undefined = this.last; part !== to && part; part = part.p) {
      const place = part.o - part.b;
      if (place >= from && place < from + bytes) part.e = -1;
    }
  }

  fields(view: Viewed & { readonly $s: Shape }, fields: object): void {
    const { name, leaves } = view.$s;
    for (const [field, value] of Object.entries(fields)) {
      // Only fields of the schema, because untrusted input may name a view's own properties or a prototype.
      if (!leaves.some((leaf) => leaf.name === field)) {
        throw badValue(`${name} has no field ${field}.`);
      }
      (view as unknown as Record<string, unknown>)[field] = value;
    }
  }

  item({ $t, length }: ViewedList, to: Cursor, index: number, item: unknown): void {
    withField(`[${index}]`, () => {
      if (index >>> 0 !== index || index >= length) {
        throw badValue(`is out of range: the list has ${length} items.`);
      }
      this.assign(to, to.o + index * $t.bytes, $t, item);
    });
  }

  /**
   * Writes the part in place if it has the same length. Otherwise the value moves to separate memory, where the new
   * part is appended and all offsets stay the same, so that all views remain valid. After the callback has returned,
   * the value is encoded again from there, without gaps.
   */
  private reassign(to: Cursor, at: number, type: Type, value: unknown): void {
    if (replaces(to, at, type, value)) return;
    const { m, b, n } = to;
    if (this.fixed) {
      throw badValue("cannot change length: a newer version wrote the value.");
    }
    const writer = { m: standaloneMemory(m.u8.slice(b, b + n)), end: n };
    zero(writer.m, at - b, type.bytes);
    type.put(writer, at - b, value);
    this.move(standaloneMemory(writer.m.u8.subarray(0, writer.end)));
  }

  /** Moves all views of the update to a copy of the value with the same offsets. */
  move(memory: Memory): void {
    this.moved = true;
    for (let place: Cursor | undefined = this.last; place !== undefined; place = place.p) {
      // Views that have ended stay ended.
      if (place.e === place.m.epoch) place.e = memory.epoch;
      place.o -= place.b;
      place.b = 0;
      place.m = memory;
      place.d = memory.data;
      place.n = memory.u8.length;
    }
  }

  /** Ends the view and all views taken from it. */
  end(): void {
    // No memory ever has this epoch.
    for (let place: Cursor | undefined = this.last; place !== undefined; place = place.p) {
      place.e = -1;
    }
  }
}

/** Overwrites a value in place, if the parts of the old one are where those of the new one would be. */
function replaces(to: Cursor, at: number, type: Type, value: unknown): boolean {
  const { item, put, span } = type;
  if (item === undefined) return false;
  if (span === undefined) {
    const isNone = value === undefined || value === null;
    if (to.m.u8[at] !== (isNone ? 0 : 1)) return false;
    return isNone || replaces(to, at + item.align, item as Type, value);
  }
  const { u8, from, length } = span(to, at);
  const draft = encodeScratch({ bytes: 8, put }, value);
  const { m, end } = draft;
  if (item.isOutOfLine || m.data.getUint32(4, true) !== length) return false;
  u8.set(m.u8.subarray(8, end), from);
  release(draft);
  return true;
}

/** Copies the first bytes. A loop is faster for few bytes. */
export function copy(from: Memory, count: number, to: Memory, at: number): void {
  if (count > 128) {
    to.u8.set(from.u8.subarray(0, count), at);
    return;
  }
  let i = 0;
  for (; i < count - 3; i += 4) to.data.setInt32(at + i, from.data.getInt32(i));
  for (; i < count; i++) to.u8[at + i] = from.u8[i] as number;
}
