/**
 * Views: one class for each schema, with one getter and setter for each field on its prototype. They
 * are closures and no generated code, which edge runtimes and strict pages forbid and which gained
 * nothing. One class serves reads and updates: engines remember four classes at each place in the code, and
 * where more than four schemas have their numbers of one type read, a read takes 20 ns in place of 2.
 */

import type { Memory } from "./codec.js";
import type { Layout, Leaf } from "./fields.js";
import {
  alive,
  type Cursor,
  type Edit,
  inside,
  lone,
  type Mode,
  type SetField,
  type Type,
  within,
  wrong,
} from "./type.js";

/** Makes views of one schema. */
export type ViewClass = new (
  memory: Memory,
  offset: number,
  base: number,
  length: number,
  epoch: number,
  edit: Edit | undefined,
) => Cursor;

/** What a view asks of the schema that it is of. */
export interface Shape extends Type, Pick<Layout, "leaves"> {
  plain(from: Cursor, at: number, mode: Mode): unknown;
  readonly name: string;
  readonly growing: boolean;
}

/** A class of places in values, for views to be of. */
export function placeClass(): ViewClass {
  return class implements Cursor {
    declare $m: Memory;
    declare $o: number;
    declare $b: number;
    declare $n: number;
    declare $e: number;
    declare $w: Edit | undefined;

    constructor(m: Memory, o: number, b: number, n: number, e: number, w: Edit | undefined) {
      this.$m = m;
      this.$o = o;
      this.$b = b;
      this.$n = n;
      this.$e = e;
      this.$w = w;
    }
  };
}

/** The class of a schema's views. */
export function viewClass(shape: Shape): ViewClass {
  const View = placeClass();
  const copy = (mode: Mode) =>
    function (this: Cursor): unknown {
      alive(this);
      return inside(shape.name, () => shape.plain(this, this.$o, mode));
    };
  const methods: Record<PropertyKey, unknown> = {
    $s: shape,
    snapshot: copy(0),
    toJSON: copy(1),
    assign(this: Record<string, unknown>, fields: Record<string, unknown>): void {
      for (const [name, value] of Object.entries(fields)) {
        // Nothing else: what came from outside may name a view's own properties, or a prototype.
        if (!shape.leaves.some((leaf) => leaf.name === name)) {
          throw wrong(`${shape.name}.${name} is no field.`);
        }
        this[name] = value;
      }
    },
    // What a console shows: it is not to throw.
    [Symbol.for("nodejs.util.inspect.custom")](this: { snapshot(): unknown }): unknown {
      try {
        return this.snapshot();
      } catch (error) {
        return error;
      }
    },
  };
  for (const name of Reflect.ownKeys(methods)) {
    Object.defineProperty(View.prototype, name, { value: methods[name] });
  }
  for (const leaf of shape.leaves) {
    const accessors = { get: getter(shape, leaf), set: setter(shape, leaf), enumerable: true };
    Object.defineProperty(View.prototype, leaf.name, accessors);
  }
  return View;
}

function getter(shape: Shape, { name, at, type, fallback }: Leaf): (this: Cursor) => unknown {
  const slow = taking(type, at, `${shape.name}.${name}`);
  const get = type.getter?.(at, slow) ?? slow;
  if (fallback === undefined) return get;
  return function () {
    alive(this);
    return isThere(this, this.$o, at + type.bytes) ? get.call(this) : type.take(fallback.from, 0);
  };
}

function taking(type: Type, at: number, label: string): (this: Cursor) => unknown {
  return function () {
    alive(this);
    try {
      return type.take(this, this.$o + at);
    } catch (error) {
      throw within(error, label);
    }
  };
}

/** Whether a versioned struct, wherever it was written, has a field that ends there. */
export function isThere({ $m }: Cursor, struct: number, end: number): boolean {
  return $m.data.getUint16(struct, true) >= end;
}

function setter(shape: Shape, { name, at, type }: Leaf): SetField {
  const slow: SetField = function (value) {
    if (this.$w === undefined) throw readOnly(`${shape.name}.${name}`);
    alive(this);
    try {
      assign(this, this.$o + at, type, value);
    } catch (error) {
      throw within(error, `${shape.name}.${name}`);
    }
  };
  return type.setter?.(at, slow) ?? slow;
}

/**
 * Assigns in an update. A value that is refused leaves what was there. Views of parts of what is
 * replaced end: there may be another variant now, and what they wrote would be no value of it.
 */
export function assign(to: Cursor, at: number, type: Type, value: unknown): void {
  const from = at - to.$b;
  put(to, at, type, value);
  const parts = to.$w?.parts ?? [];
  // Those that were made before this one are not in it.
  for (let i = parts.length - 1; parts[i] !== to && i >= 0; i--) {
    const view = parts[i] as Cursor;
    const place = view.$o - view.$b;
    if (place >= from && place < from + type.bytes) view.$e = -1;
  }
}

function put(to: Cursor, at: number, type: Type, value: unknown): void {
  if (type.assign !== undefined) {
    type.assign(to, at, type, value);
  } else if (type.composite === undefined) {
    type.put(to, at, value);
  } else {
    const u8 = new Uint8Array(type.bytes);
    type.put({ $m: lone(u8) }, 0, value);
    to.$m.u8.set(u8, at);
  }
}

/** The error for an assignment to a view for reading. */
export function readOnly(field: string): Error {
  return wrong(
    `${field} cannot be assigned outside of an update. Use updateIf(), or set() a changed copy: ` +
      "{ ...view.snapshot(), … }.",
  );
}
