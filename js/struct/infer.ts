/** What the compiler makes of a schema. */

import type { Memory, StructDescriptor, Structure } from "./codec.js";
import type { Fallback, Type } from "./type.js";

type Types<T> = T extends { readonly types?: infer S } ? NonNullable<S> : never;
type Part<T, K extends string> = Types<T> extends { [k in K]: infer P } ? P : never;

/** What `struct` is given: types by the names of their fields, and structs to be flattened. */
export interface Fields {
  readonly [name: string]: Type | Flatten<unknown>;
}

/** A struct whose fields are to be fields of the one around it. Made by `flatten`. */
export interface Flatten<L> {
  readonly flat: Schema<L>;
}

/** A type that only later versions of a struct have. Made by `added`. */
export interface Added<View, Write, Input, Plain>
  extends Type<View, Write, Input | undefined, Plain> {
  readonly fallback: Fallback;
}

type Plainly<T> = { [K in keyof T]: T[K] };
type All<U> = (U extends unknown ? (u: U) => void : never) extends (all: infer I) => void
  ? I
  : never;
type Flattened<F> = {
  [K in keyof F]: F[K] extends Flatten<infer L> ? L : never;
}[keyof F];

/** All fields that a struct has, those of flattened ones among them. */
export type LeavesOf<F> = Plainly<
  { readonly [K in keyof F as F[K] extends Type ? K : never]: F[K] } & ([Flattened<F>] extends [
    never,
  ]
    ? unknown
    : All<Flattened<F>>)
>;

type Optional<L> = {
  [K in keyof L]: undefined extends Part<L[K], "input"> ? K : never;
}[keyof L];

/** A copy of a value as plain objects: what `snapshot()` gives. It can be stored. */
export type PlainOf<L> = { -readonly [K in keyof L]: Part<L[K], "plain"> };

/** What may be stored: fields that may be absent may be left out. */
export type InputOf<L> = Plainly<
  { readonly [K in Exclude<keyof L, Optional<L>>]: Part<L[K], "input"> } & {
    readonly [K in Optional<L>]?: Part<L[K], "input">;
  }
>;

/** What every view can do beside its fields. */
export interface Snapshots<L> {
  /** A copy as plain objects, which lasts. */
  snapshot(): PlainOf<L>;
  /** The same for `JSON.stringify`: bigints as decimal strings, bytes as base64, absence as null. */
  toJSON(): unknown;
}

/**
 * A view of a value, for reading: each field is read where it lies when it is asked for. The fields are no
 * properties of its own, which types cannot say: `{ ...view }` has none of them. Neither that nor a view
 * itself can be cloned or posted. `snapshot()` gives a plain object for all that.
 */
export type ViewOf<L> = { readonly [K in keyof L]: Part<L[K], "view"> } & Snapshots<L>;

/**
 * A view that may be assigned to, in an update. What is refused throws a `TypeError` that names the
 * field, and leaves what was there. Parts of the same length are written in place; another length moves
 * the value, and the update stores it anew. Views of a part that is replaced as a whole end.
 */
export type WritableOf<L> = { -readonly [K in keyof L]: Part<L[K], "write"> } & Snapshots<L> & {
    /**
     * Assigns all these fields: also those whose views are not what is stored, such as lists.
     *
     * ```ts
     * products.updateIf("yeezy", (p) => p.assign({ tags: ["new", "sale"], size: { width: 1, height: 2 } }));
     * ```
     */
    assign(fields: Partial<InputOf<L>>): void;
  };

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
  /** The struct's name. */
  readonly name: string;
  /** The value as bytes. Throws a `TypeError` that names the field that is wrong. */
  encode(value: InputOf<L>): Uint8Array<ArrayBuffer>;
  /**
   * A view of bytes, wherever they came from and at whatever address. Every access that would leave
   * them throws `MalformedValueError`; `check` looks for all of that at once.
   */
  view(bytes: Uint8Array): ViewOf<L>;
  view(memory: Memory, at: number, length: number): ViewOf<L>;
  /** Throws `MalformedValueError` unless these bytes are such a value, through and through. */
  check(bytes: Uint8Array): void;
}

/** The plain type of what a schema describes: `type Product = Infer<typeof Product>`. */
export type Infer<S> = Part<S, "plain">;

/** The view that reading gives. */
export type View<S> = Part<S, "view">;

/** The view that an update gives. */
export type Writable<S> = Part<S, "write">;

/** What may be stored. */
export type Input<S> = Part<S, "input">;
