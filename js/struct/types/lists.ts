/** Types for lists, of fixed or of any length. */

import { trueLengthOf } from "../byte-length.js";
import {
  assertAttached,
  badValue,
  type Cursor,
  copied,
  cursorAt,
  declaredLength,
  forEachIndex,
  inner,
  type Mode,
  noMore,
  reserve,
  type Type,
  typed,
  type Writer,
  walking,
  withField,
} from "../type.js";
import { Copied, writable } from "../view.js";
import { referred } from "./out-of-line.js";

/** A list in a value. An item is read when you access it. */
export interface List<V, P = unknown> extends Iterable<V> {
  /** The number of items. */
  readonly length: number;
  /** The item at this index, counted from the end if negative. `undefined` if there is none. */
  at(index: number): V | undefined;
  /** Returns a copy as an array of plain objects, which stays valid. */
  snapshot(): P[];
  /** The same for `JSON.stringify`. */
  toJSON(): unknown;
}

/** A list in an update, whose items may be replaced. To change the number of items, assign the whole list. */
export interface WritableList<V, I, P = unknown> extends List<V, P> {
  /**
   * Replaces the item at this index.
   *
   * @throws TypeError for an index outside the list, or a bad item
   */
  set(index: number, item: I): void;
}

/** What may be stored as a list: an array, a typed array, or a list of another value. */
export type Items<I> = ArrayLike<I> | List<I>;

/** A type whose values are lists. */
export type ListType<V, W, I, P> = Type<List<V, P>, WritableList<W, I, P>, Items<I>, P[]>;

class ListView extends Copied {
  declare readonly $t: Type;
  declare readonly length: number;

  constructor(place: Cursor, type: Type, length: number) {
    super();
    this.$v = place;
    this.$t = type;
    this.length = length;
    // Items are assigned by set(). An assignment list[0] = item would seem to work but store nothing.
    if (place.w !== undefined) Object.preventExtensions(this);
  }

  at(index: number): unknown {
    const place = assertAttached(this.$v);
    const { bytes, take } = this.$t;
    const at = Math.trunc(index < 0 ? index + this.length : index);
    if (!(at >= 0 && at < this.length)) return undefined;
    return withField(`[${at}]`, () => take(place, place.o + at * bytes));
  }

  set(index: number, item: unknown): void {
    const place = writable(this.$v, `[${index}]`);
    place.w.item(this, place, index, item);
  }

  *[Symbol.iterator](): Iterator<unknown> {
    for (let index = 0; index < this.length; index++) yield this.at(index);
  }

  $c(mode: Mode): unknown[] {
    const place = assertAttached(this.$v);
    const { bytes, take } = this.$t;
    const items: unknown[] = [];
    forEachIndex(this.length, (i) => {
      const item = copied(take(place, place.o + i * bytes), mode);
      // The item is not kept if the copy is only a check.
      if (mode !== 2) items.push(item);
    });
    return items;
  }
}

/** A list that was given, with its length, which is read once: that of a Proxy may be another one each time. */
interface ListItems {
  readonly items: ArrayLike<unknown>;
  readonly length: number;
}

/** The items of a value that was given for a list. */
function itemsOf(value: unknown, expected?: number): ListItems {
  const items = (value instanceof ListView ? [...value] : value) as ArrayLike<unknown>;
  const length = Array.isArray(items) ? items.length : trueLengthOf(items);
  if (length >>> 0 === length && length === (expected ?? length)) return { items, length };
  throw badValue(
    `must be an array${expected === undefined ? "" : ` of ${expected} items`}, not detached.`,
    value,
  );
}

function putAll(type: Type, to: Pick<Writer, "m">, at: number, { items, length }: ListItems): void {
  const { bytes, put } = type;
  forEachIndex(length, (i) => put(to, at + i * bytes, items[i]));
}

/** Writes all items of a list. Those of a list in another value may have parts that overlap. */
function writing<T>(value: unknown, write: () => T): T {
  return value instanceof ListView ? walking(value.$v.n, write) : write();
}

/** Exactly `length` items, stored in the struct itself. */
export function array<V, W, I, P>(of: Type<V, W, I, P>, length: number): ListType<V, W, I, P> {
  const type = inner(of);
  return typed(
    { kind: "array", of: type.kind, length: declaredLength(length) },
    declaredLength(type.bytes * length),
    type.align,
    (to, at, value) => writing(value, () => putAll(type, to, at, itemsOf(value, length))),
    (from, at) => new ListView(cursorAt(from, at), type, length),
    { composite: true, isOutOfLine: type.isOutOfLine },
  );
}

/**
 * Any number of items: eight bytes in the struct, and the items elsewhere in the value. In an update, the
 * same number of items is written in place, unless they have parts elsewhere themselves.
 */
export function vec<V, W, I, P>(of: Type<V, W, I, P>): ListType<V, W, I, P>;
export function vec<V, W, I, P>(of: Type<V, W, I, P>, ...more: unknown[]): ListType<V, W, I, P> {
  noMore("vec()", more);
  const type = inner(of);
  return referred(
    { kind: "vec", of: type.kind },
    type,
    (to, value) =>
      writing(value, () => {
        const given = itemsOf(value);
        const bytes = given.length * type.bytes;
        putAll(type, to, reserve(to, bytes, type.align, bytes), given);
        return given.length;
      }),
    ({ from: at, length }, from) => new ListView(cursorAt(from, at), type, length),
  );
}
