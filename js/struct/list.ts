/** Lists: as many items as the type says, or any number. */

import { reassign } from "./edit.js";
import { refer } from "./referred.js";
import {
  alive,
  type Cursor,
  inner,
  inside,
  type Mode,
  noted,
  part,
  plainOf,
  reserve,
  type Type,
  up,
  type Writer,
  whole,
  within,
  wrong,
} from "./type.js";
import { assign, placeClass, readOnly } from "./view.js";

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

class ListView extends placeClass() implements WritableList<unknown, unknown> {
  declare readonly $t: Type;
  declare readonly length: number;

  constructor({ $m, $b, $n, $e, $w }: Cursor, at: number, type: Type, length: number) {
    super($m, at, $b, $n, $e, $w);
    this.$t = type;
    this.length = length;
    noted(this);
  }

  at(index: number): unknown {
    alive(this);
    const place = Math.trunc(index < 0 ? index + this.length : index);
    if (!(place >= 0 && place < this.length)) return undefined;
    const type = this.$t;
    try {
      return type.take(this, this.$o + place * type.bytes);
    } catch (error) {
      throw within(error, `[${place}]`);
    }
  }

  set(index: number, item: unknown): void {
    if (this.$w === undefined) throw readOnly(`[${index}]`);
    alive(this);
    inside(`[${index}]`, () => {
      if (!(Number.isInteger(index) && index >= 0 && index < this.length)) {
        throw wrong(`is not in the list, which has ${this.length} items.`);
      }
      assign(this, this.$o + index * this.$t.bytes, this.$t, item);
    });
  }

  *[Symbol.iterator](): Iterator<unknown> {
    for (let index = 0; index < this.length; index++) yield this.at(index);
  }

  snapshot(): unknown[] {
    return this.copy(0);
  }

  toJSON(): unknown[] {
    return this.copy(1);
  }

  copy(mode: Mode): unknown[] {
    alive(this);
    const items: unknown[] = [];
    each(this.$o, this.length, this.$t, (at) => items.push(plainOf(this.$t, this, at, mode)));
    return items;
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

/** What was given as a list. */
function itemsOf(value: unknown, length?: number): ArrayLike<unknown> {
  const items = (value instanceof ListView ? [...value] : value) as ArrayLike<unknown>;
  const isList = Array.isArray(items) || (ArrayBuffer.isView(items) && "length" in items);
  if (isList && items.length === (length ?? items.length)) return items;
  throw wrong(`has to be an array${length === undefined ? "" : ` of ${length} items`}.`, value);
}

function extents(type: Type, value: unknown, end: number, length?: number): number {
  const items = itemsOf(value, length);
  let sum = end;
  each(0, items.length, type, (_, i) => {
    sum = (type.extent as NonNullable<Type["extent"]>)(items[i], sum);
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
      each(at, length, type, (place, i) => type.put(to, place, items[i]));
    },
    take: (from, at) => new ListView(from, at, type, length),
    plain: (from, at, mode) => new ListView(from, at, type, length).copy(mode),
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
  const take = (from: Cursor, at: number): ListView => {
    const { from: start, length } = part(from, at, type.bytes, type.align);
    return new ListView(from, start, type, length);
  };
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
      refer(to, at, offset, items.length);
      each(to.$b + offset, items.length, type, (place, i) => type.put(to, place, items[i]));
    },
    take,
    plain: (from, at, mode) => take(from, at).copy(mode),
    assign: reassign,
    replace(to, at, value) {
      const { $o: start, length } = take(to, at);
      if (type.extent !== undefined || itemsOf(value).length !== length) return false;
      if (length > 0) assign(to, start, array(type, length), value);
      return true;
    },
  };
}
