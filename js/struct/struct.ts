/** Structs: named fields, read where they lie. */

import type { Memory, StructDescriptor } from "./codec.js";
import { move } from "./edit.js";
import { type Layout, type Leaf, layOut } from "./fields.js";
import { fingerprint } from "./fingerprint.js";
import type { Fields, Flatten, LeavesOf, Schema } from "./infer.js";
import {
  alive,
  allowance,
  type Cursor,
  copy,
  type Draft,
  drafted,
  type Edit,
  inside,
  lone,
  malformed,
  placeIn,
  placeOf,
  release,
  type Type,
  type Viewed,
  within,
  wrong,
  zero,
} from "./type.js";
import { type Shape, type ViewClass, viewClass } from "./view.js";

/**
 * A schema: a struct with these fields, laid out in their order as Rust's `repr(C)` does it, and with
 * what is longer behind it, as musli-zerocopy has it: numbers are little-endian, a part elsewhere is its
 * offset from the value's start and its length, four bytes each.
 *
 * ```ts
 * const Product = struct("Product", { stock: u16, name: str });
 * type Product = Infer<typeof Product>; // { stock: number; name: string }
 * const bytes = Product.encode({ stock: 20_001, name: "Yeezy Boost 350 V2" }); // 30 bytes
 * Product.view(bytes).stock; // reads two of them
 * ```
 *
 * Throws a `TypeError` if two fields have one name, or if one has the name of a view's methods:
 * `snapshot`, `toJSON`, `assign`.
 */
export function struct<const F extends Fields>(name: string, fields: F): Schema<LeavesOf<F>> {
  return schema(name, fields, false) as unknown as Schema<LeavesOf<F>>;
}

/** Makes a schema, for the compiler of no type in particular. */
export function schema(name: string, fields: object, versioned: boolean): StructSchema {
  if (typeof name !== "string") throw wrong("A struct has a name.", name);
  return new StructSchema(layOut(name, fields, versioned));
}

/**
 * Has the fields of a struct be fields of the one around it, while it lies there as the struct that
 * it is: `{ head: u8, params: flatten(Page), tail: u8 }` has the fields `head`, those of `Page`, and
 * `tail`. The name `params` is only that of Rust's field.
 */
export function flatten<L>(struct: Schema<L>): Flatten<L> {
  if (!(struct instanceof StructSchema)) {
    throw wrong("Only structs are flattened.", struct);
  }
  return { flat: struct };
}

/** What `struct` makes. The types are in `Schema`. */
class StructSchema implements Shape, Pick<Type, "assign" | "put"> {
  declare readonly name: string;
  declare readonly kind: StructDescriptor;
  declare readonly layout: string;
  declare readonly leaves: readonly Leaf[];
  declare readonly bytes: number;
  declare readonly align: number;
  declare readonly growing: boolean;
  declare readonly put: Type["put"];
  declare readonly take: Type["take"];
  declare readonly assign: Type["assign"];
  declare private readonly required: number;
  declare private readonly View: ViewClass;
  /** The value that was measured last, until it is written. */
  declare private staged: Draft | undefined;

  constructor(layout: Layout) {
    const { leaves, bytes, packed, growing } = layout;
    const View = viewClass(layout);
    Object.assign(this, layout, {
      View,
      staged: undefined,
      composite: true,
      assign: leaves.find(({ type }) => type.assign)?.type.assign,
      put: (to, at, value) => {
        zero(to.m, at + packed, bytes - packed);
        if (growing) to.m.data.setUint16(at, bytes, true);
        put(leaves, to, at, value);
      },
      take: (from, at) => new View(placeIn(from, at)),
    } satisfies Partial<Type> & Record<string, unknown>);
  }

  get fingerprint(): string {
    return fingerprint(this.layout);
  }

  encode(value: unknown): Uint8Array<ArrayBuffer> {
    const draft = this.draft(value);
    const bytes = draft.m.u8.slice(0, draft.end) as Uint8Array<ArrayBuffer>;
    release(draft);
    return bytes;
  }

  size(value: unknown): number {
    if (this.assign === undefined) return this.bytes;
    this.staged = this.draft(value);
    return this.staged.end;
  }

  write(memory: Memory, at: number, value: unknown, size: number): void {
    if (this.assign === undefined) {
      try {
        this.put({ m: memory }, at, value);
      } catch (error) {
        throw within(error, this.name);
      }
      return;
    }
    const { staged } = this;
    const draft = staged !== undefined && staged.of === value ? staged : this.draft(value);
    const { m, end } = draft;
    this.staged = undefined;
    if (end !== size) throw wrong("must not change while it is stored.");
    copy(m, end, memory, at);
    release(draft);
  }

  private draft(value: unknown): Draft {
    try {
      return drafted(this, value);
    } catch (error) {
      throw within(error, this.name);
    }
  }

  view(memory: Memory, at: number, length: number): Viewed;
  view(bytes: Uint8Array): Viewed;
  view(from: Uint8Array | Memory, at?: number, length?: number): Viewed {
    if (at === undefined) {
      if (from instanceof Uint8Array) return this.view(lone(from), 0, from.length);
      throw wrong(`${this.name} is read from a Uint8Array.`, from);
    }
    const { View } = this;
    const place = placeOf(from as Memory, at, length as number);
    if (place.n < this.bytes || this.growing) this.fits(place);
    return new View(place);
  }

  writable(memory: Memory, at: number, length: number): Viewed {
    const view = this.view(memory, at, length);
    const edit: Edit = { last: view.$v, moved: false, fixed: false };
    view.$v.w = edit;
    if (this.growing) {
      const root = memory.data.getUint16(at, true);
      edit.fixed = root > this.bytes;
      // What an earlier version wrote is brought to this one.
      if (root < this.bytes) move(edit, lone(this.encode(view)));
    }
    return view;
  }

  finish(writable: Viewed): Uint8Array | undefined {
    const bytes = alive(writable).w?.moved ? this.encode(writable) : undefined;
    this.revoke(writable);
    return bytes;
  }

  revoke({ $v }: Viewed): void {
    // No epoch is this one.
    for (let place = $v.w?.last; place !== undefined; place = place.p) place.e = -1;
  }

  check(bytes: Uint8Array): void {
    const view = this.view(bytes);
    allowance.left = 64 * bytes.length + 65_536;
    try {
      inside(this.name, () => view.$c(2));
    } finally {
      allowance.left = Infinity;
    }
  }

  /** Throws unless the value is long enough for its fields. */
  private fits({ m, o, n }: Cursor): void {
    const { growing, required, bytes, name } = this;
    const told = growing && n >= 2 ? m.data.getUint16(o, true) : required;
    if (told >= required && n >= Math.min(told, bytes)) return;
    throw within(malformed(`size: ${n}, its root ${told}, and the fields ${required}`), name);
  }
}

function put(leaves: readonly Leaf[], to: Parameters<Type["put"]>[0], at: number, value: unknown) {
  if (typeof value !== "object" || value === null) throw wrong("has to be an object.", value);
  let name = "";
  try {
    for (const leaf of leaves) {
      name = leaf.name;
      leaf.type.put(to, at + leaf.at, (value as Record<string, unknown>)[name]);
    }
  } catch (error) {
    throw within(error, name);
  }
}
