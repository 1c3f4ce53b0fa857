/** Lists: as many items as the type says, or any number. */

import type { Memory } from "./codec.js";
import { reassign } from "./edit.js";
import {
  alive,
  type Cursor,
  type Edit,
  inner,
  part,
  reserve,
  type Type,
  up,
  type Writer,
  whole,
  within,
  wrong,
} from "./type.js";
import { assign, readOnly } from "./view.js";

/** A list that lies in a value. Items are read when they are asked for. */
export interface List<V, P = unknown> extends Iterable<V> {
  readonly length: number;
  /** The item at this place, from the end if it is negative; `undefined` where there is none. */
  at(index: number): V | undefined;
  /** A copy as an array of plain objects, which lasts. */
  snapshot(): P[];
  /** The same for `JSON.stringify`. */
  toJSON(): unknown;
}

/** A list in an update: items may be replaced. For another number of items assign the whole list. */
export interface WritableList<V, I, P = unknown> extends List<V, P> {
  set(index: number, item: I): void;
}

/** What may be stored as a list: an array, a typed array, a list of another value. */
export type Items<I> = ArrayLike<I> | List<I>;

/** A type whose values are lists. */
export type ListType<V, W, I, P> = Type<List<V, P>, WritableList<W, I, P>, Items<I>, P[]>;

class ListView implements Cursor, WritableList<unknown, unknown> {
  declare $m: Memory;
  declare $o: number;
  declare $b: number;
  declare $n: number;
  declare $e: number;
  declare $w: Edit | undefined;
  declare readonly $t: Type;
  declare readonly length: number;

  constructor({ $m, $b, $n, $e, $w }: Cursor, at: number, type: Type, length: number) {
    this.$m = $m;
    this.$o = at;
    this.$b = $b;
    this.$n = $n;
    this.$e = $e;
    this.$w = $w;
    this.$t = type;
    this.length = length;
    $w?.views.push(this);
  }

  at(index: number): unknown {
    alive(this);
    const place = index < 0 ? index + this.length : index;
    if (!(place >= 0 && place < this.length)) return undefined;
    try {
      return this.$t.take(this, this.$o + Math.trunc(place) * this.$t.bytes);
    } catch (error) {
      throw within(error, `[${place}]`);
    }
  }

  set(index: number, item: unknown): void {
    if (this.$w === undefined) throw readOnly("a list", `[${index}]`);
    alive(this);
    if (!(Number.isInteger(index) && index >= 0 && index < this.length)) {
      throw wrong(`An index has to be an integer below ${this.length}.`, index);
    }
    try {
      assign(this, this.$o + index * this.$t.bytes, this.$t, item);
    } catch (error) {
      throw within(error, `[${index}]`);
    }
  }

  *[Symbol.iterator](): Iterator<unknown> {
    for (let index = 0; index < this.length; index++) yield this.at(index);
  }

  snapshot(): unknown[] {
    return this.copy(false);
  }

  toJSON(): unknown[] {
    return this.copy(true);
  }

  private copy(json: boolean): unknown[] {
    alive(this);
    return plain(this, this.$t, this.$o, this.length, json);
  }
}

function each(from: number, count: number, type: Type, use: (at: number, i: number) => void): void {
  let i = 0;
  try {
    for (; i < count; i++) use(from + i * type.bytes, i);
  } catch (error) {
    throw within(error, `[${i}]`);
  }
}

function plain(from: Cursor, type: Type, at: number, count: number, json: boolean): unknown[] {
  const items: unknown[] = [];
  each(at, count, type, (place) => items.push(type.plain(from, place, json)));
  return items;
}

/** What was given as a list, with a way to its items. */
function itemsOf(value: unknown, length?: number): { length: number; item(i: number): unknown } {
  const items = value as ArrayLike<unknown>;
  const isList = value instanceof ListView;
  const isTyped = ArrayBuffer.isView(value) && "length" in value;
  if (!(isList || isTyped || Array.isArray(value)) || items.length !== (length ?? items.length)) {
    throw wrong(`has to be an array${length === undefined ? "" : ` of ${length} items`}.`, value);
  }
  return { length: items.length, item: isList ? (i) => value.at(i) : (i) => items[i] };
}

function extents(type: Type, value: unknown, end: number, length?: number): number {
  const items = itemsOf(value, length);
  let sum = end;
  each(0, items.length, type, (_, i) => {
    sum = (type.extent as NonNullable<Type["extent"]>)(items.item(i), sum);
  });
  return sum;
}

/** So many items, which lie in the struct itself. */
export function array<V, W, I, P>(of: Type<V, W, I, P>, length: number): ListType<V, W, I, P> {
  const type = inner(of);
  return {
    kind: { kind: "array", of: type.kind, length: whole(length) },
    layout: `[${type.layout};${length}]`,
    bytes: whole(type.bytes * length),
    align: type.align,
    composite: true,
    put(to, at, value) {
      const items = itemsOf(value, length);
      each(at, length, type, (place, i) => type.put(to, place, items.item(i)));
    },
    take: (from, at) => new ListView(from, at, type, length),
    plain: (from, at, json) => plain(from, type, at, length, json),
    verify: (from, at) => each(at, length, type, (place) => type.verify(from, place)),
    assign: type.assign,
    extent: type.extent && ((value, end) => extents(type, value, end, length)),
  };
}

/**
 * Any number of items: eight bytes in the struct, and the items elsewhere in the value. In an update,
 * as many as before are written in place, if they have no parts elsewhere themselves.
 */
export function vec<V, W, I, P>(of: Type<V, W, I, P>): ListType<V, W, I, P> {
  const type = inner(of);
  const span = (from: Cursor, at: number) => part(from, at, type.bytes, type.align);
  return {
    kind: { kind: "vec", of: type.kind },
    layout: `&[${type.layout}]`,
    bytes: 8,
    align: 4,
    extent(value, end) {
      const { length } = itemsOf(value);
      const behind = up(end, type.align) + length * type.bytes;
      return type.extent === undefined ? behind : extents(type, value, behind);
    },
    put(target, at, value) {
      const to = target as Writer;
      const items = itemsOf(value);
      const offset = reserve(to, items.length * type.bytes, type.align);
      to.$m.data.setUint32(at, offset, true);
      to.$m.data.setUint32(at + 4, items.length, true);
      each(to.$b + offset, items.length, type, (place, i) => type.put(to, place, items.item(i)));
    },
    take(from, at) {
      const { from: start, length } = span(from, at);
      return new ListView(from, start, type, length);
    },
    plain(from, at, json) {
      const { from: start, length } = span(from, at);
      return plain(from, type, start, length, json);
    },
    verify(from, at) {
      const { from: start, length } = span(from, at);
      each(start, length, type, (place) => type.verify(from, place));
    },
    assign: reassign,
    replace(to, at, value) {
      const { from: start, length } = span(to, at);
      if (type.extent !== undefined || itemsOf(value).length !== length) return false;
      if (length > 0) assign(to, start, array(type, length), value);
      return true;
    },
  };
}
