/**
 * Views: one class for each schema, with one getter and setter for each field on its prototype. They
 * are closures and no generated code, which edge runtimes and strict pages forbid and which gained
 * nothing: where a field is read, engines put the type's own function into the getter and that into
 * the reader. One class serves reads and updates.
 */

import { INSPECT } from "../util/inspect.js";
import type { Leaf } from "./layout.js";
import {
  assertAlive,
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
    return copyOf(this, 0);
  }

  toJSON(): unknown {
    return copyOf(this, 1);
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

/** A copy of all of a view. */
function copyOf(view: Copied, mode: Mode): unknown {
  return walking(view.$v.n, () => withField(view.$s?.name, () => view.$c(mode)));
}

/** What views of structs have beside their fields. */
class Methods extends Copied {
  declare readonly $s: Shape;

  $c(mode: Mode): unknown {
    const place = assertAlive(this.$v);
    return Object.fromEntries(
      this.$s.leaves.map(({ name, at, type }) => [
        name,
        withField(name, () => copied(type.take(place, place.o + at), mode)),
      ]),
    );
  }

  assign(fields: object): void {
    writable(this.$v, this.$s.name).w.fields(this, fields);
  }
}

/**
 * Each makes a class, with what reads its place and what makes a view, at a place of its own in the code.
 * Engines remember four classes at each: a constructor that is that of eight takes 24 ns to set its
 * property, and `new` of any class, which only one is known to, 10 more than that of one.
 */
// biome-ignore format: measured above, each has to stand at a place of its own; a line each shows that they are the same.
const PLACES = [
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
  () => { class View { declare $v: Cursor; constructor(place: Cursor) { this.$v = place; } } return [View.prototype, (view: Viewed) => view.$v, (place: Cursor) => new View(place)]; },
];
let schemas = 0;

/** What makes a schema's views. */
export function viewsOf(shape: Shape): MakeView {
  const place = PLACES[schemas++ % PLACES.length] as () => unknown;
  const [of, cursorOf, make] = place() as [object, (view: Viewed) => Cursor, MakeView];
  Object.setPrototypeOf(of, Methods.prototype);
  Object.defineProperty(of, "$s", { value: shape });
  for (const leaf of shape.leaves) {
    Object.defineProperty(of, leaf.name, accessors(shape.name, leaf, cursorOf));
  }
  return make;
}

/** A field's getter and setter. What they call has to be constant in here to be put into them. */
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
        // Of a view that has ended a number is read where no memory is, which throws: asking first would
        // take 1 ns of 3 in Chromium, and so would asking here what kind of type it is.
        return take(place, place.e === place.m.epoch ? place.o + at : isNumber ? -1e9 : stale());
      } catch (error) {
        throw prefixField(error, assertAlive(place) && label);
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

/** The place of a view that may be assigned to. */
export function writable(place: Cursor, field: string): Cursor & { w: Editing } {
  if (place.w === undefined) {
    throw badValue(
      `${field} cannot be assigned here. Use updateIf(), or set() { ...view.snapshot(), ... }.`,
    );
  }
  return assertAlive(place) as ReturnType<typeof writable>;
}
