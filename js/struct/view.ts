/**
 * Views: one class for each schema, with a getter and a setter for each field on its prototype. They are closures and
 * not generated code, which edge runtimes and strict pages forbid. Generated code was not faster, because engines
 * inline the type's function into the getter and the getter into its caller. One class serves reads and updates.
 */

import { INSPECT } from "../util/inspect.js";
import type { StructDescriptor } from "./codec.js";
import type { Leaf } from "./layout.js";
import {
  assertAttached,
  badValue,
  type Cursor,
  copied,
  type Editing,
  type Mode,
  prefixField,
  stale,
  type Viewed,
  walking,
  withField,
} from "./type.js";

/** Makes views of one schema. */
export type MakeView = (place: Cursor) => Viewed;

/** The part of a schema that its views use. */
export interface Shape {
  readonly name: string;
  readonly kind: StructDescriptor;
  readonly leaves: readonly Leaf[];
  readonly blank: object;
}

/** Base class of the views of structs and lists. */
export abstract class Copied implements Viewed {
  declare $v: Cursor;
  /** The schema of the view; lists have none. */
  declare readonly $s: Shape | undefined;

  abstract $c(mode: Mode): unknown;

  snapshot(): unknown {
    return copyOf(this, 0);
  }

  toJSON(): unknown {
    return copyOf(this, 1);
  }

  /** The text that a console shows. It must not throw. */
  [INSPECT](): unknown {
    try {
      return this.snapshot();
    } catch (error) {
      return error;
    }
  }
}

/** A copy of a whole view. */
function copyOf(view: Copied, mode: Mode): unknown {
  return walking(view.$v.n, () => withField(view.$s?.name, () => view.$c(mode)));
}

/** The members of views of structs other than fields. */
class Methods extends Copied {
  declare readonly $s: Shape;

  $c(mode: Mode): unknown {
    const place = assertAttached(this.$v);
    const { leaves, blank } = this.$s;
    // A clone of an object with all fields takes a third of the time of `Object.fromEntries`.
    const copy: Record<string, unknown> = { ...blank };
    let index = 0;
    try {
      for (const { name, at, type } of leaves) {
        copy[name] = copied(type.take(place, place.o + at), mode);
        index++;
      }
    } catch (error) {
      throw prefixField(error, leaves[index]?.name);
    }
    return copy;
  }

  assign(fields: object): void {
    writable(this.$v, this.$s.name).w.fields(this, fields);
  }
}

/**
 * Each function defines a class, with the functions that read its cursor and construct a view, at a separate code
 * location. Engines remember four classes at each location: a constructor shared by eight classes takes 24 ns to set
 * its property, and a `new` shared by several classes takes 10 ns longer than that of one.
 */
// biome-ignore format: twelve equal functions are compared at a glance one to a line; wrapped, they take 170 lines.
const CLASS_FACTORIES = [
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
  () => { class View { declare $v: Cursor; constructor(cursor: Cursor) { this.$v = cursor; } } return [View.prototype, (view: Viewed) => view.$v, (cursor: Cursor) => new View(cursor)]; },
];
let schemas = 0;

/** Makes the view class of a schema. */
export function viewsOf(shape: Shape): MakeView {
  const defineClass = CLASS_FACTORIES[schemas++ % CLASS_FACTORIES.length] as () => unknown;
  const [of, cursorOf, make] = defineClass() as [object, (view: Viewed) => Cursor, MakeView];
  Object.setPrototypeOf(of, Methods.prototype);
  Object.defineProperty(of, "$s", { value: shape });
  for (const leaf of shape.leaves) {
    Object.defineProperty(of, leaf.name, accessors(shape.name, leaf, cursorOf));
  }
  return make;
}

/** Defines a field's getter and setter. The functions that they call must be constants here to be inlined. */
function accessors(
  struct: string,
  { name, at, type }: Leaf,
  cursorOf: (view: Viewed) => Cursor,
): PropertyDescriptor & ThisType<Viewed> {
  const { take, put, span } = type;
  const label = `${struct}.${name}`;
  const isSimple = !type.isOutOfLine && !type.composite;
  const isNumber = isSimple && !span;
  return {
    enumerable: true,
    get() {
      const place = cursorOf(this);
      try {
        // For an ended view, the number is read outside of the memory, which throws. A check before would take
        // 1 ns of 3 in Chromium, and so would a check of the type's kind here.
        return take(place, place.e === place.m.epoch ? place.o + at : isNumber ? -1e9 : stale());
      } catch (error) {
        throw prefixField(error, assertAttached(place) && label);
      }
    },
    set(value) {
      const place = writable(cursorOf(this), label);
      try {
        if (isSimple) put(place, place.o + at, value);
        else place.w.assign(place, place.o + at, type, value);
      } catch (error) {
        throw prefixField(error, label);
      }
    },
  };
}

/** The place of a writable view. Throws for any other view. */
export function writable(place: Cursor, field: string): Cursor & { w: Editing } {
  if (place.w === undefined) {
    throw badValue(
      `${field} cannot be assigned here. Use updateIf(), or set() { ...view.snapshot(), ... }.`,
    );
  }
  return assertAttached(place) as ReturnType<typeof writable>;
}
