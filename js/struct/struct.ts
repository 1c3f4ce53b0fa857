/** Structs: named fields that are read in place. */

import { byteLengthOf } from "./byte-length.js";
import type { Memory, StructDescriptor } from "./codec.js";
import type { Fields, Flatten, LeavesOf, Schema } from "./infer.js";
import { computeLayout, type Layout, type Leaf } from "./layout.js";
import {
  badValue,
  type Cursor,
  cursorAt,
  encodeScratch,
  malformed,
  noMore,
  placeOf,
  prefixField,
  release,
  standaloneMemory,
  type Type,
  type Viewed,
  walking,
  withField,
} from "./type.js";
import { type MakeView, type Shape, viewsOf } from "./view.js";

/**
 * A schema: a struct with these fields. The fields are laid out in their order, as by Rust's `repr(C)`;
 * longer parts lie behind them, as musli-zerocopy does it. Numbers are little-endian. A part elsewhere is its
 * offset from the start of the value and its length, four bytes each.
 *
 * ```ts
 * const Product = struct("Product", { stock: u16, name: str });
 * type Product = Infer<typeof Product>; // { stock: number; name: string }
 * const bytes = Product.encode({ stock: 20_001, name: "Yeezy Boost 350 V2" }); // 30 bytes
 * Product.view(bytes).stock; // reads two of them
 * ```
 *
 * @throws TypeError if there are no fields, if two have the same name, or if one is named like a number or
 * like a method of views: `snapshot`, `toJSON`, `assign`
 */
export function struct<const F extends Fields>(name: string, fields: F): Schema<LeavesOf<F>>;
export function struct(name: string, fields: Fields, ...more: unknown[]): Schema<unknown> {
  noMore("struct()", more);
  return schema(name, fields, false) as unknown as Schema<unknown>;
}

/** Makes a schema without static types. */
export function schema(name: string, fields: object, versioned: boolean): StructSchema {
  if (typeof name !== "string") throw badValue("A struct needs a name.", name);
  return new StructSchema(computeLayout(name, fields, versioned));
}

/**
 * Makes the fields of a struct fields of the struct around it, although it lies there as a struct:
 * `{ head: u8, params: flatten(Page), tail: u8 }` has the fields `head`, those of `Page`, and `tail`. The
 * name `params` is used only for the field in Rust.
 */
export function flatten<L>(struct: Schema<L>): Flatten<L> {
  if (!(struct instanceof StructSchema)) {
    throw badValue("Only structs can be flattened.", struct);
  }
  return { flat: struct };
}

/**
 * The implementation of `Schema`. It reads and encodes values. Storing and updating in place are implemented by
 * `SchemaCodec`, which collections make from it.
 */
export class StructSchema implements Shape, Pick<Type, "isOutOfLine" | "put"> {
  declare readonly name: string;
  declare readonly kind: StructDescriptor;
  declare readonly leaves: readonly Leaf[];
  declare readonly blank: object;
  declare readonly bytes: number;
  declare readonly align: number;
  declare readonly growing: boolean;
  declare readonly put: Type["put"];
  declare readonly take: Type["take"];
  declare readonly isOutOfLine: boolean;
  declare readonly make: MakeView;

  constructor(layout: Layout) {
    const { leaves, bytes, growing } = layout;
    const make = viewsOf(layout);
    Object.assign(this, layout, {
      make,
      composite: true,
      isOutOfLine: leaves.some(({ type }) => type.isOutOfLine),
      put: (to, at, value) => {
        if (typeof value !== "object" || value === null)
          throw badValue("must be an object.", value);
        if (growing) to.m.data.setUint16(at, bytes, true);
        const fields = value as Record<string, unknown>;
        let index = 0;
        try {
          // In the order of the value's properties, usually that of the struct, engines read them in half the time.
          for (const name in fields) {
            const leaf = leaves[index];
            if (leaf?.name !== name) break;
            leaf.put(to, at + leaf.at, fields[name]);
            index++;
          }
          for (; index < leaves.length; index++) {
            const leaf = leaves[index] as Leaf;
            leaf.put(to, at + leaf.at, fields[leaf.name]);
          }
        } catch (error) {
          throw prefixField(error, leaves[index]?.name);
        }
      },
      take: (from, at) => make(cursorAt(from, at)),
    } satisfies Partial<Type> & Record<string, unknown>);
  }

  encode(value: unknown): Uint8Array<ArrayBuffer> {
    const draft = withField(this.name, () => encodeScratch(this, value));
    const bytes = draft.m.u8.slice(0, draft.end) as Uint8Array<ArrayBuffer>;
    release(draft);
    return bytes;
  }

  view(memory: Memory, at: number, length: number): Viewed;
  view(bytes: Uint8Array): Viewed;
  view(from: Uint8Array | Memory, at?: number, length?: number): Viewed {
    if (at === undefined) {
      const bytes = from instanceof Uint8Array ? byteLengthOf(from) : -1;
      if (bytes >= 0) return this.view(standaloneMemory(from as Uint8Array), 0, bytes);
      throw badValue(`${this.name} needs a Uint8Array.`, from);
    }
    if (length === undefined) {
      throw badValue("view() takes bytes alone: bytes.subarray(at).");
    }
    return this.over(placeOf(from as Memory, at, length));
  }

  /** A view of the whole value at this address. */
  over(place: Cursor): Viewed {
    if (place.n < this.bytes || this.growing) fits(place, this as unknown as Layout);
    return this.make(place);
  }

  check(bytes: Uint8Array): void {
    const view = this.view(bytes);
    walking(byteLengthOf(bytes), () => withField(this.name, () => view.$c(2)));
  }
}

/** Throws unless the value is long enough for its fields. */
function fits({ m, o, n }: Cursor, { growing, required, bytes, name }: Layout): void {
  const storedSize = growing && n >= 2 ? m.data.getUint16(o, true) : required;
  if (storedSize >= required && n >= Math.min(storedSize, bytes)) return;
  throw prefixField(malformed(`size: ${n}, root ${storedSize}, fields need ${required}`), name);
}
