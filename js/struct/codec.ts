/**
 * The codec interface of collections. `codecOf` makes a codec from a declaration: a schema, `json()`, `text()`, or two
 * functions.
 */

/**
 * The memory that views read through: that of a database, which its owner renews when the memory grows, or an
 * array of its own.
 */
export interface Memory {
  /** All of the memory. Getters read through it. */
  data: DataView;
  /** The same bytes. */
  u8: Uint8Array;
  /** A counter that changes when typed views end: a view made in another epoch is stale. */
  epoch: number;
}

/** Describes how a value is laid out, as a tree. It is stored as JSON beside the values. */
export type Descriptor =
  | { readonly kind: SimpleKind }
  | { readonly kind: "enum8" | "enum16"; readonly variants: readonly string[] }
  | { readonly kind: "bytes" | "fixedStr"; readonly length: number }
  | { readonly kind: "array"; readonly of: Descriptor; readonly length: number }
  | { readonly kind: "vec" | "flatten" | "option" | "optNonZero"; readonly of: Descriptor }
  | { readonly kind: "union"; readonly variants: readonly (readonly [string, Descriptor | null])[] }
  | StructDescriptor
  | { readonly kind: "json" | "text" | "structured" }
  | { readonly kind: "custom"; readonly name: string };

/** Describes a struct: its fields in the order in which they lie. */
export interface StructDescriptor {
  readonly kind: "struct";
  readonly name: string;
  readonly fields: readonly (readonly [string, Descriptor])[];
  readonly versioned?: true;
  /** The defaults of its last fields in values of earlier versions, each encoded as bytes, in base64. */
  readonly added?: readonly string[];
}

/** The kinds that need no more than their name. */
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
 * Writes and reads the values of a collection. `View` is what reading gives, `Writable` what a callback may
 * change, `Input` what may be stored.
 */
export interface Codec<View, Writable, Input> {
  /** How a value is laid out, to be stored as JSON. */
  readonly kind: Descriptor;
  /** The same as canonical text, from which the fingerprint is computed. */
  readonly layout: string;
  /** FNV-1a-64 of the UTF-8 of `layout`, as 16 hexadecimal digits. */
  readonly fingerprint: string;

  /**
   * The number of bytes that this value takes. The codec may keep what it made of the value for a `write` of
   * the same value.
   *
   * @throws TypeError that names the wrong field
   */
  size(value: Input): number;

  /**
   * Writes the value at `at`, a multiple of 8. All `size` bytes are written.
   *
   * @throws TypeError that names the wrong field; the bytes are worthless then
   */
  write(memory: Memory, at: number, value: Input, size: number): void;

  /** A view for reading the `length` bytes at `at`. It is valid in the memory's present epoch. */
  view(memory: Memory, at: number, length: number): View;

  /** A view that may be assigned to, of bytes that may be written to. It is valid until it is revoked. */
  writable(memory: Memory, at: number, length: number): Writable;

  /**
   * Call this after the callback has returned. Returns `undefined` if the value was changed in place, or all
   * bytes of the new value if a part was given another length, so that the bytes behind the view are no
   * longer the value. It ends the view, as `revoke` does.
   */
  finish(writable: Writable): Uint8Array | undefined;

  /** Ends a writable view and all views taken from it: from now on they throw `StaleViewError`. */
  revoke(writable: Writable): void;

  /**
   * Checks that these bytes are a complete and valid value.
   *
   * @throws MalformedValueError if they are not
   */
  check(bytes: Uint8Array): void;
}

/**
 * What a program declares for the values of a collection: how they are laid out and, for the compiler, their
 * types.
 */
export interface Declared<View, Writable, Input> {
  readonly kind: Descriptor;
  /** For the compiler only; absent at run time. */
  readonly types?: { view: View; write: Writable; input: Input };
}

/** A declaration of structs. They have fields, which can be indexed. */
export interface Structure<View, Writable, Input> extends Declared<View, Writable, Input> {
  readonly kind: StructDescriptor;
}

/** A whole value, and not the type of a field such as `u32`, which cannot be stored by itself. */
export type Whole = { readonly kind: StructDescriptor } | { readonly take?: never };

/** A codec whose values are structs. */
export interface StructCodec<View, Writable, Input> extends Codec<View, Writable, Input> {
  readonly kind: StructDescriptor;
}

/** A codec of your own: two functions that turn values into bytes and back. */
export interface CustomCodec<T> {
  /** Returns the bytes of a value. They are copied. */
  encode(value: T): Uint8Array | ArrayBuffer;
  /**
   * Returns the value of these bytes. They are a view that is valid until the function returns: copy what you
   * keep.
   */
  decode(bytes: Uint8Array): T;
  /**
   * Names the format of the bytes, "custom" by default. A collection refuses a codec with another name than
   * the one that it was created with.
   */
  readonly name?: string;
}
