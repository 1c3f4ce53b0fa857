/** Structs: named fields, read where they lie. */

import type { Memory, StructDescriptor } from "./codec.js";
import { type Layout, type Leaf, layOut } from "./fields.js";
import { fingerprint } from "./fingerprint.js";
import type { Fields, Flatten, LeavesOf, Schema } from "./infer.js";
import {
  alive,
  allowance,
  type Cursor,
  changed,
  type Edit,
  inside,
  lone,
  type Mode,
  malformed,
  noted,
  plainOf,
  type Type,
  type Writer,
  within,
  wrong,
  zero,
} from "./type.js";
import { isThere, type ViewClass, viewClass } from "./view.js";

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
  return new StructSchema(name, layOut(name, fields, versioned), versioned);
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

/** Values up to this size are encoded in memory that is kept for it, unless a value's own getter has it. */
const SMALL = 1024;
let spare: Memory | undefined;

/** What `struct` makes. The types are in `Schema`. */
class StructSchema implements Type {
  declare readonly name: string;
  declare readonly kind: StructDescriptor;
  declare readonly layout: string;
  declare readonly leaves: readonly Leaf[];
  declare readonly bytes: number;
  declare readonly align: number;
  declare readonly composite: true;
  declare readonly growing: boolean;
  declare readonly assign: Type["assign"];
  declare readonly extent: Type["extent"];
  declare private readonly required: number;
  declare private readonly gaps: boolean;
  declare private readonly View: ViewClass;

  constructor(name: string, lies: Layout, growing: boolean) {
    const { leaves, fields } = lies;
    const kind = { kind: "struct", name, fields } as const;
    Object.assign(this, lies);
    this.name = name;
    this.kind = growing ? { ...kind, versioned: true } : kind;
    this.composite = true;
    this.growing = growing;
    const parts = leaves.filter(({ type }) => type.extent !== undefined);
    this.assign = parts[0]?.type.assign;
    this.extent = parts.length === 0 ? undefined : (value, end) => extent(parts, value, end);
    this.View = viewClass(this);
  }

  get fingerprint(): string {
    return fingerprint(this.layout);
  }

  encode(value: unknown): Uint8Array<ArrayBuffer> {
    const size = this.size(value);
    // A copy of memory that is there costs a third of what it costs to have some made.
    const memory =
      (size > SMALL ? undefined : spare) ?? lone(new Uint8Array(Math.max(size, SMALL)));
    if (memory === spare) spare = undefined;
    this.write(memory, 0, value, size);
    const { u8 } = memory;
    if (size > SMALL) return u8 as Uint8Array<ArrayBuffer>;
    spare = memory;
    return u8.slice(0, size) as Uint8Array<ArrayBuffer>;
  }

  size(value: unknown): number {
    if (this.extent === undefined) return this.bytes;
    try {
      return this.extent(value, this.bytes);
    } catch (error) {
      throw within(error, this.name);
    }
  }

  write(memory: Memory, at: number, value: unknown, size: number): void {
    const writer: Writer = { $m: memory, $b: at, $n: size, end: this.bytes };
    try {
      this.put(writer, at, value);
      if (writer.end !== size) throw changed();
    } catch (error) {
      throw within(error, this.name);
    }
  }

  view(from: Uint8Array | Memory, at?: number, length?: number): Cursor {
    if (at === undefined)
      return this.view(lone(from as Uint8Array), 0, (from as Uint8Array).length);
    const memory = from as Memory;
    const { View } = this;
    const view = new View(memory, at, at, length as number, memory.epoch, undefined);
    if ((length as number) < this.bytes || this.growing) this.fits(view);
    return view;
  }

  writable(memory: Memory, at: number, length: number): Cursor {
    const view = this.view(memory, at, length);
    const edit: Edit = { whole: view, parts: undefined, moved: false, fixed: false };
    view.$w = edit;
    if (this.growing) this.renew(view, edit);
    return view;
  }

  finish(writable: Cursor): Uint8Array | undefined {
    alive(writable);
    return writable.$w?.moved ? this.encode(writable) : undefined;
  }

  revoke(writable: Cursor): void {
    // No epoch is this one.
    writable.$e = -1;
    const parts = writable.$w?.parts;
    if (parts !== undefined) endAll(parts);
  }

  check(bytes: Uint8Array): void {
    const view = this.view(bytes);
    allowance.left = 64 * bytes.length + 65_536;
    try {
      inside(this.name, () => this.plain(view, 0, 2));
    } finally {
      allowance.left = -1;
    }
  }

  put(to: Pick<Writer, "$m">, at: number, value: unknown): void {
    const { leaves, growing, gaps, bytes } = this;
    if (typeof value !== "object" || value === null) {
      throw wrong(`has to be an object.`, value);
    }
    if (gaps) zero(to.$m.u8, at, bytes);
    if (growing) to.$m.data.setUint16(at, bytes, true);
    let name = "";
    try {
      for (const leaf of leaves) {
        name = leaf.name;
        leaf.type.put(to, at + leaf.at, inputOf(value, leaf));
      }
    } catch (error) {
      throw within(error, name);
    }
  }

  take({ $m, $b, $n, $e, $w }: Cursor, at: number): Cursor {
    const view = new this.View($m, at, $b, $n, $e, $w);
    noted(view);
    return view;
  }

  plain(from: Cursor, at: number, mode: Mode): unknown {
    const plain: Record<string, unknown> = {};
    let name = "";
    try {
      for (const leaf of this.leaves) {
        name = leaf.name;
        const { type, fallback } = leaf;
        const value = this.has(from, at, leaf)
          ? plainOf(type, from, at + leaf.at, mode)
          : plainOf(type, (fallback as NonNullable<Leaf["fallback"]>).from, 0, mode);
        // A prototype is what assigning to this name would set.
        if (name !== "__proto__") plain[name] = value;
        else Object.defineProperty(plain, name, { ...OWN, value });
      }
    } catch (error) {
      throw within(error, name);
    }
    return plain;
  }

  /** Whether the value has this field, or was written before there was one. */
  private has(from: Cursor, at: number, { fallback, at: offset, type }: Leaf): boolean {
    return fallback === undefined || isThere(from, at, offset + type.bytes);
  }

  /** Throws unless the value is long enough for its fields. */
  private fits(view: Cursor): void {
    const { growing, required, bytes, name } = this;
    const least = growing ? required : bytes;
    const told = growing && view.$n >= 2 ? view.$m.data.getUint16(view.$o, true) : least;
    if (told >= least && view.$n >= Math.min(told, bytes)) return;
    throw within(malformed(`size: ${view.$n}, its root ${told}, and the fields ${least}`), name);
  }

  /** Brings a value of another version to this one, if that can be. */
  private renew(view: Cursor, edit: Edit): void {
    const root = view.$m.data.getUint16(view.$o, true);
    edit.fixed = root > this.bytes;
    if (root >= this.bytes) return;
    const bytes = this.encode(view);
    edit.moved = true;
    view.$m = lone(bytes);
    view.$o = view.$b = view.$e = 0;
    view.$n = bytes.length;
  }
}

/** Apart from `revoke`, which is to be small: most updates hand out no views of parts. */
function endAll(views: readonly Cursor[]): void {
  for (const view of views) view.$e = -1;
}

const OWN = { enumerable: true, configurable: true, writable: true };

function refuseOthers(value: unknown): asserts value is object {
  if (typeof value !== "object" || value === null) throw wrong("has to be an object.", value);
}

function extent(parts: readonly Leaf[], value: unknown, end: number): number {
  refuseOthers(value);
  let sum = end;
  let name = "";
  try {
    for (const leaf of parts) {
      name = leaf.name;
      sum = (leaf.type.extent as NonNullable<Type["extent"]>)(inputOf(value, leaf), sum);
    }
  } catch (error) {
    throw within(error, name);
  }
  return sum;
}

function inputOf(value: object, { name, fallback }: Leaf): unknown {
  const given = (value as Record<string, unknown>)[name];
  return given === undefined && fallback !== undefined ? fallback.input : given;
}
