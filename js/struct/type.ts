/** What a field's type is made of, and how every type says that something is wrong. */

import { badArgument, MalformedValueError, StaleViewError } from "../errors.js";
import type { Descriptor, Memory } from "./codec.js";

/**
 * A place in a value: what every typed view is. Nobody's fields may have these names. They are plain
 * properties, since private ones and those of a class body were measured several times slower.
 */
export interface Cursor {
  /** The memory that is read through. */
  $m: Memory;
  /** Where this part begins. */
  $o: number;
  /** Where the value begins: referenced parts are found from there. */
  $b: number;
  /** How many bytes the value has. */
  $n: number;
  /** The epoch in which the view was made: in every other one it is stale. */
  $e: number;
  /** What is known of an update that is going on; `undefined` in views for reading. */
  $w: Edit | undefined;
}

/** The names that a view's own properties have. */
export const RESERVED: readonly string[] = ["$m", "$o", "$b", "$n", "$e", "$w"];

/** One update of one value: all views that may change it. */
export interface Edit {
  /** The whole value, and then every view of a part of it that was handed out. */
  readonly views: Cursor[];
  /** Whether the value has moved to memory of its own, since a part got another length. */
  moved: boolean;
  /** Whether a later version of the schema wrote it, so that it cannot be made anew by this one. */
  fixed: boolean;
}

/** Where a value is being written to. Parts go behind one another from `end`. */
export interface Writer {
  $m: Memory;
  $b: number;
  /** How many bytes there are for the value. */
  $n: number;
  /** Where the next part may begin, counted from the value's start. */
  end: number;
}

/**
 * A type of field: `View` is what reading it gives, `Write` the same in an update, `Input` what may be
 * stored and `Plain` what `snapshot()` gives.
 */
export interface Type<View = unknown, Write = unknown, Input = unknown, Plain = unknown> {
  /** For the compiler; not there when the program runs. */
  readonly types?: { view: View; write: Write; input: Input; plain: Plain };
  readonly kind: Descriptor;
  readonly layout: string;
  /** The bytes that it takes in the struct itself. */
  readonly bytes: number;
  readonly align: number;
  /** Writes it, every byte, or throws. Parts go to the writer's end. */
  put(to: Pick<Writer, "$m"> & Partial<Writer>, at: number, value: unknown): void;
  /** Reads it: a value, or a view of it. */
  take(from: Cursor, at: number): unknown;
  /** A copy as plain objects; with `json`, one that JSON can say. */
  plain(from: Cursor, at: number, json: boolean): unknown;
  /** Throws unless it is well-formed, through and through. */
  verify(from: Cursor, at: number): void;
  /** A getter that is faster than `take`. */
  getter?: ((at: number, label: string) => (this: Cursor) => unknown) | undefined;
  /** Where the value ends if this part's begin at `end`. Only of types with parts elsewhere. */
  extent?: ((value: unknown, end: number) => number) | undefined;
  /** Assigns in an update. Only of types with parts elsewhere; others are `put`. */
  assign?: ((to: Cursor, at: number, type: Type, value: unknown) => void) | undefined;
  /** Writes it over what is there, if it has the same length. */
  replace?: ((to: Cursor, at: number, value: unknown) => boolean) | undefined;
  /** Where its bytes are and how many, for comparing them undecoded. */
  span?(from: Cursor, at: number): Span;
  /** A value of more than one number: it is made elsewhere and then copied over the old one. */
  readonly composite?: true;
  /** Whole values only: it grows at its end and can be no part of another. */
  readonly growing?: boolean;
}

/** Bytes of a memory. */
export interface Span {
  from: number;
  length: number;
}

/** The next multiple of `align`, a power of two. */
export function up(at: number, align: number): number {
  return (at + align - 1) & -align;
}

/** Throws if the view is used after its end. */
export function stale(): never {
  throw new StaleViewError(
    "This view has ended: of an update when its callback returned, of a read when the database " +
      "moved on. Get it again, or keep a copy made in time with .snapshot().",
  );
}

export function alive(view: Cursor): void {
  if (view.$e !== view.$m.epoch) stale();
}

/** The error for bytes that are not what the schema says; the text begins with the kind of fault. */
export function malformed(text: string): MalformedValueError {
  return new MalformedValueError(text);
}

/** The error for a value that cannot be stored. */
export function wrong(expected: string, ...given: [] | [unknown]): Error {
  return Object.assign(badArgument(expected, ...given), { field: "" });
}

/** The same error, one step further out: `stock` becomes `Product.stock`. */
export function within(error: unknown, step: string): unknown {
  const { field, message, stack } = error as { field?: unknown; message: string; stack?: string };
  if (!(error instanceof Error) || typeof field !== "string") return error;
  const path = field === "" || field.startsWith("[") ? step + field : `${step}.${field}`;
  const text = field === "" ? `${path}: ${message}` : path + message.slice(field.length);
  Object.assign(error, { field: path, message: text });
  // V8 has the message in there as it was when the error was made.
  if (typeof stack === "string") error.stack = stack.replace(message, () => text);
  return error;
}

/** A place for `bytes` behind everything that was written. What lies between is zeroed. */
export function reserve(to: Writer, bytes: number, align: number): number {
  const at = up(to.end, align);
  const end = at + bytes;
  room(to, end);
  zero(to.$m.u8, to.$b + to.end, at - to.end);
  to.end = end;
  return at;
}

/** Throws if the value would get longer than it said. */
export function room(to: Writer, end: number): void {
  if (end > to.$n) throw wrong("A value must not change while it is stored: it got longer.");
}

/** Short runs are quicker by hand. */
export function zero(u8: Uint8Array, at: number, count: number): void {
  if (count > 48) u8.fill(0, at, at + count);
  else for (let i = at; i < at + count; i++) u8[i] = 0;
}

/** A memory for bytes that belong to no database. Its views never end. */
export function lone(u8: Uint8Array): Memory {
  return { data: new DataView(u8.buffer, u8.byteOffset, u8.byteLength), u8, epoch: 0 };
}

/** The start and the count of a part that lies elsewhere in the value, proven to lie in it. */
export function part(from: Cursor, at: number, stride: number, align: number): Span {
  const { data } = from.$m;
  const offset = data.getUint32(at, true);
  const length = data.getUint32(at + 4, true);
  if (offset + length * stride > from.$n) {
    throw malformed(
      `range: ${length} times ${stride} bytes at ${offset} do not lie within the value's ${from.$n}.`,
    );
  }
  if ((offset & (align - 1)) !== 0) {
    throw malformed(`alignment: what lies at ${offset} has to lie at a multiple of ${align}.`);
  }
  return { from: from.$b + offset, length };
}

/** A name as the layout has it, where some signs mean something else. */
export function escaped(name: string): string {
  return name.replace(/[\\,:;()[\]{}|&.]/g, "\\$&");
}

/** The most bytes that a value may have. */
const LARGEST = 16_777_216;

/** Throws unless a type is given a length that it can have. */
export function whole(length: number): number {
  if (Number.isInteger(length) && length > 0 && length <= LARGEST) return length;
  throw wrong(`A length has to be an integer from 1 to ${LARGEST}.`, length);
}

/** Throws unless this type can be a part of another. */
export function inner(type: Type): Type {
  if (type?.put === undefined) {
    throw wrong("A field's type has to be one of varve/struct, such as u16 or str.", type);
  }
  if (!type.growing) return type;
  throw wrong("A versioned struct grows at its end: it can only be a value by itself, no part.");
}
