/** The types that TypeScript infers from a schema. */

import type { Memory, StructDescriptor, Structure } from "./codec.js";
import type { Fallback, Type } from "./type.js";

type Types<T> = T extends { readonly types?: infer S } ? NonNullable<S> : never;
type Part<T, K extends string> = Types<T> extends { [k in K]: infer P } ? P : never;

/** The fields of a `struct`: types by name, and structs to be flattened. */
export interface Fields {
  readonly [name: string]: Type | Flatten<unknown>;
}

/** A struct whose fields become fields of the struct around it. Made by `flatten`. */
export interface Flatten<L> {
  readonly flat: Schema<L>;
}

/** A field that only later versions of a struct have. Made by `added`. */
export interface Added<View, Write, Input, Plain>
  extends Type<View, Write, Input | undefined, Plain> {
  readonly fallback: Fallback;
}

// A type that is the result of a condition that always holds is shown expanded by editors, and not by its name.
type Simplify<T> = T extends unknown ? { [K in keyof T]: T[K] } : never;
type All<U> = (U extends unknown ? (u: U) => void : never) extends (all: infer I) => void
  ? I
  : never;
type Flattened<F> = {
  [K in keyof F]: F[K] extends Flatten<infer L> ? L : never;
}[keyof F];

/** All fields of a struct, including those of flattened structs. */
export type LeavesOf<F> = Simplify<
  { readonly [K in keyof F as F[K] extends Type ? K : never]: F[K] } & ([Flattened<F>] extends [
    never,
  ]
    ? unknown
    : All<Flattened<F>>)
>;

type Missable<T> = undefined extends Part<T, "input"> ? true : false;

/** A copy of a value as plain objects, as `snapshot()` gives it. It can be stored. */
export type PlainOf<L> = L extends unknown
  ? { -readonly [K in keyof L]: Part<L[K], "plain"> }
  : never;

/** What may be stored. Optional fields may be left out. */
export type InputOf<L> = Simplify<
  { readonly [K in keyof L as Missable<L[K]> extends true ? never : K]: Part<L[K], "input"> } & {
    readonly [K in keyof L as Missable<L[K]> extends true ? K : never]?: Part<L[K], "input">;
  }
>;

/** The methods of every view of a record, of which `Plain` is a copy. */
export interface Snapshots<Plain> {
  /** Returns a copy as plain objects, which stays valid. */
  snapshot(): Plain;
  /** The same for `JSON.stringify`: bigints as decimal strings, bytes as base64, a missing value as null. */
  toJSON(): unknown;
}

/**
 * A view of a value, for reading. Each field is read in place when you access it. The fields are not own
 * properties, which types cannot express: `{ ...view }` has none of them. Neither such a spread nor the view
 * itself can be cloned or posted; use `snapshot()`, which gives a plain object.
 */
export type ViewOf<L> = L extends unknown
  ? { readonly [K in keyof L]: Part<L[K], "view"> } & Snapshots<PlainOf<L>>
  : never;

/**
 * A view in an update, which may be assigned to. A bad value throws a `TypeError` that names the field, and
 * leaves the old value. A part of the same length is written in place; another length moves the value, and
 * the update stores it again. When a part is replaced as a whole, the views of that part end.
 */
export type WritableOf<L> = L extends unknown
  ? { -readonly [K in keyof L]: Part<L[K], "write"> } & Snapshots<PlainOf<L>> & Assigns<InputOf<L>>
  : never;

/** The method of a view in an update, into which `Input` may be stored. */
export interface Assigns<Input> {
  /**
   * Assigns these fields, including those whose views have another type than what is stored, such as lists.
   *
   * ```ts
   * products.updateIf("yeezy", (p) => p.assign({ tags: ["new", "sale"], size: { width: 1, height: 2 } }));
   * ```
   */
  assign(fields: Partial<Input>): void;
}

/** A schema: how values of one shape are laid out, written, read and checked. Made by `struct`. */
export interface Schema<L>
  extends Type<ViewOf<L>, WritableOf<L>, InputOf<L>, PlainOf<L>>,
    Structure<ViewOf<L>, WritableOf<L>, InputOf<L>> {
  readonly kind: StructDescriptor;
  readonly types?: {
    view: ViewOf<L>;
    write: WritableOf<L>;
    input: InputOf<L>;
    plain: PlainOf<L>;
  };
  /** The name of the struct. */
  readonly name: string;
  /**
   * Returns the value as bytes.
   *
   * @throws TypeError that names the wrong field
   */
  encode(value: InputOf<L>): Uint8Array<ArrayBuffer>;
  /**
   * A view of bytes, wherever they come from and at whatever address. An access that would leave them throws
   * `MalformedValueError`; `check` looks for all such errors at once.
   */
  view(bytes: Uint8Array): ViewOf<L>;
  view(memory: Memory, at: number, length: number): ViewOf<L>;
  /**
   * Checks that these bytes are a complete and valid value.
   *
   * @throws MalformedValueError if they are not
   */
  check(bytes: Uint8Array): void;
}

/** The plain type that a schema describes: `type Product = Infer<typeof Product>`. */
export type Infer<S> = Part<S, "plain">;

/** The type of the views that reading gives. */
export type View<S> = Part<S, "view">;

/** The type of the views that an update gives. */
export type Writable<S> = Part<S, "write">;

/** The type of the values that may be stored. */
export type Input<S> = Part<S, "input">;
