/**
 * What a collection asks of the values that it holds. `codecOf` makes it of what programs declare: of a
 * schema, of `json()` and `text()`, or of two functions.
 */

/**
 * The memory that views read through: one for a database, which its owner renews when the memory
 * grows, or one for an array of its own.
 */
export interface Memory {
  /** All of the memory. Getters read through it. */
  data: DataView;
  /** The same bytes. */
  u8: Uint8Array;
  /** Counts what ends the life of typed views: a view made in another epoch is stale. */
  epoch: number;
}

/** A tree that says how a value is laid out, stored as JSON beside the values. */
export type Descriptor =
  | { readonly kind: SimpleKind }
  | { readonly kind: "enum8" | "enum16"; readonly variants: readonly string[] }
  | { readonly kind: "bytes" | "fixedStr"; readonly length: number }
  | { readonly kind: "array"; readonly of: Descriptor; readonly length: number }
  | { readonly kind: "vec" | "flatten" | "option" | "optNonZero"; readonly of: Descriptor }
  | { readonly kind: "union"; readonly variants: readonly (readonly [string, Descriptor | null])[] }
  | StructDescriptor
  | { readonly kind: "json" | "text" }
  | { readonly kind: "custom"; readonly name: string };

/** A struct's part of a descriptor: its fields in the order in which they lie. */
export interface StructDescriptor {
  readonly kind: "struct";
  readonly name: string;
  readonly fields: readonly (readonly [string, Descriptor])[];
  readonly versioned?: true;
  /** What stands for its last fields in values of earlier versions: values of theirs, in base64. */
  readonly added?: readonly string[];
}

/** The kinds that say everything by their name. */
export type SimpleKind =
  | "u8"
  | "u16"
  | "u32"
  | "u64"
  | "u53"
  | "i8"
  | "i16"
  | "i32"
  | "i64"
  | "f32"
  | "f64"
  | "bool"
  | "timestamp"
  | "str"
  | "blob";

/**
 * How values are written and read. `View` is what reading gives, `Writable` what a callback may
 * change, `Input` what is stored.
 */
export interface Codec<View, Writable, Input> {
  /** How a value is laid out, to be stored as JSON. */
  readonly kind: Descriptor;
  /** The same as the canonical text that the fingerprint is taken of. */
  readonly layout: string;
  /** FNV-1a-64 of the layout's UTF-8, as 16 hexadecimal digits. */
  readonly fingerprint: string;

  /**
   * The bytes that this value takes. Throws a `TypeError` that names the field that is wrong. It may
   * keep what it made of the value for a `write` of the same one.
   */
  size(value: Input): number;

  /**
   * Writes the value to `at`, a multiple of 8, every one of its `size` bytes. Throws a `TypeError`
   * that names the field that is wrong; the bytes are worth nothing then.
   */
  write(memory: Memory, at: number, value: Input, size: number): void;

  /** A view for reading of the `length` bytes at `at`, good for the memory's present epoch. */
  view(memory: Memory, at: number, length: number): View;

  /** A view that may be assigned to, of bytes that may be written to, until it is revoked. */
  writable(memory: Memory, at: number, length: number): Writable;

  /**
   * The whole value anew if the bytes behind the writable view are not it any more, since a part
   * was given another length; else `undefined`: it was all changed in place. To be asked after the
   * callback has returned. It ends the view, as `revoke` does.
   */
  finish(writable: Writable): Uint8Array | undefined;

  /** Ends a writable view and all that was got from it: they throw `StaleViewError` from now on. */
  revoke(writable: Writable): void;

  /** Throws `MalformedValueError` unless these bytes are such a value, through and through. */
  check(bytes: Uint8Array): void;
}

/** What a program declares for the values of a collection: how they lie, and for the compiler what they are. */
export interface Declared<View, Writable, Input> {
  readonly kind: Descriptor;
  /** For the compiler; not there when the program runs. */
  readonly types?: { view: View; write: Writable; input: Input };
}

/** The same for structs: they have fields, which indexes can be of. */
export interface Structure<View, Writable, Input> extends Declared<View, Writable, Input> {
  readonly kind: StructDescriptor;
}

/** A codec whose values are structs. */
export interface StructCodec<View, Writable, Input> extends Codec<View, Writable, Input> {
  readonly kind: StructDescriptor;
}

/** A pair of functions that make bytes of values and values of bytes. */
export interface CustomCodec<T> {
  /** The bytes of a value. They are copied. */
  encode(value: T): Uint8Array | ArrayBuffer;
  /** The value of bytes. They are a view that is good until it returns: copy what is to last. */
  decode(bytes: Uint8Array): T;
  /** Names the form of the bytes. A collection refuses codecs of another name than it was made with. */
  readonly name?: string;
}
