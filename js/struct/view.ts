/**
 * Views: one class for each schema, with one getter and setter for each field on its prototype. They
 * are closures and no generated code, which edge runtimes and strict pages forbid and which gained
 * nothing: where a field is read, engines put the type's own function into the getter and that into
 * the reader. One class serves reads and updates.
 */

import { INSPECT } from "../inspect.js";
import type { Leaf } from "./fields.js";
import {
  alive,
  type Cursor,
  copied,
  type Editing,
  each,
  inside,
  type Mode,
  stale,
  type Viewed,
  within,
  wrong,
} from "./type.js";

/** Makes views of one schema. */
export type ViewClass = new (place: Cursor) => Viewed;

/** What a view asks of the schema that it is of. */
export interface Shape {
  readonly name: string;
  readonly leaves: readonly Leaf[];
}

/** What views of structs and of lists have alike. */
export abstract class Copied implements Viewed {
  declare $v: Cursor;
  /** The schema that it is a view of; lists have none. */
  declare readonly $s: Shape | undefined;

  abstract $c(mode: Mode): unknown;

  snapshot(): unknown {
    return inside(this.$s?.name, () => this.$c(0));
  }

  toJSON(): unknown {
    return inside(this.$s?.name, () => this.$c(1));
  }

  /** What a console shows: it is not to throw. */
  [INSPECT](): unknown {
    try {
      return this.snapshot();
    } catch (error) {
      return error;
    }
  }
}

/** What views of structs have beside their fields. */
class Methods extends Copied {
  declare readonly $s: Shape;

  $c(mode: Mode): unknown {
    const place = alive(this);
    const { leaves } = this.$s;
    let plain: Record<string, unknown> = {};
    const copy = (index: number) => {
      const { name, at, type } = leaves[index] as Leaf;
      const value = copied(type.take(place, place.o + at), mode);
      // A prototype is what assigning to this name would set.
      if (name !== "__proto__") plain[name] = value;
      else plain = { ...plain, [name]: value };
    };
    each(leaves.length, copy, (index) => (leaves[index] as Leaf).name);
    return plain;
  }

  assign(fields: object): void {
    writable(this.$v, this.$s.name).w.fields(this, fields);
  }
}

/**
 * Each makes a class, and what reads its place, at a place of its own in the code. Engines remember
 * four classes at each: a constructor that is that of eight takes 24 ns to set its property, and these
 * serve 32 in 14; a getter of any schema is read in 3 ns and not in 5.
 */
// biome-ignore format: it is to be seen that they are the same.
const PLACES = [
  () => [class { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } }, (view: Viewed) => view.$v],
  () => [class { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } }, (view: Viewed) => view.$v],
  () => [class { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } }, (view: Viewed) => view.$v],
  () => [class { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } }, (view: Viewed) => view.$v],
  () => [class { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } }, (view: Viewed) => view.$v],
  () => [class { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } }, (view: Viewed) => view.$v],
  () => [class { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } }, (view: Viewed) => view.$v],
  () => [class { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } }, (view: Viewed) => view.$v],
];
let schemas = 0;

/** The class of a schema's views. */
export function viewClass(shape: Shape): ViewClass {
  const made = PLACES[schemas++ % PLACES.length] as () => unknown;
  const [View, cursorOf] = made() as [ViewClass, (view: Viewed) => Cursor];
  const { prototype } = View;
  Object.setPrototypeOf(prototype, Methods.prototype);
  Object.defineProperty(prototype, "$s", { value: shape });
  for (const leaf of shape.leaves) {
    Object.defineProperty(prototype, leaf.name, accessors(shape.name, leaf, cursorOf));
  }
  return View;
}

/** A field's getter and setter. What they call has to be constant in here to be put into them. */
function accessors(
  struct: string,
  { name, at, type }: Leaf,
  cursorOf: (view: Viewed) => Cursor,
): PropertyDescriptor & ThisType<Viewed> {
  const { take, put } = type;
  const label = `${struct}.${name}`;
  const isSimple = !type.apart && !type.composite;
  return {
    enumerable: true,
    get() {
      const place = cursorOf(this);
      if (place.e !== place.m.epoch) stale();
      try {
        return take(place, place.o + at);
      } catch (error) {
        throw within(error, label);
      }
    },
    set(value) {
      const place = writable(cursorOf(this), label);
      try {
        if (isSimple) put(place, place.o + at, value);
        else place.w.assign(place, place.o + at, type, value);
      } catch (error) {
        throw within(error, label);
      }
    },
  };
}

/** The place of a view that may be assigned to. */
export function writable(place: Cursor, field: string): Cursor & { w: Editing } {
  if (place.w === undefined) {
    throw wrong(
      `${field} cannot be assigned here. Use updateIf(), or set() { ...view.snapshot(), … }.`,
    );
  }
  if (place.e !== place.m.epoch) stale();
  return place as ReturnType<typeof writable>;
}
