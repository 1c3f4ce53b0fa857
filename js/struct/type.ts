/** What a field's type is made of, and how every type says that something is wrong. */

import { type BadArgumentError, MalformedValueError, StaleViewError } from "../errors-base.js";
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
export const RESERVED: readonly string[] = ["$m", "$o", "$b", "$n", "$e", "$w", "$s"];

/** One update of one value: all views that may change it. */
export interface Edit {
  /** The view of the whole value. */
  whole: Cursor;
  /** Every view of a part of it that was handed out, once there is one: most updates need no list. */
  parts: Cursor[] | undefined;
  /** Whether the value has moved to memory of its own, since a part got another length. */
  moved: boolean;
  /** Whether a later version of the schema wrote it, so that it cannot be made anew by this one. */
  fixed: boolean;
}

/** Has a view end with the update that it was handed out in. */
export function noted(view: Cursor): void {
  const edit = view.$w;
  if (edit === undefined) return;
  if (edit.parts === undefined) edit.parts = [view];
  else edit.parts.push(view);
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

/** What reading a field runs. */
export type GetField = (this: Cursor) => unknown;

/** What assigning to a field runs. */
export type SetField = (this: Cursor, value: unknown) => void;

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
  /** A copy as plain objects. Throws unless all of it is well-formed. Without one, `take` does that. */
  plain?(from: Cursor, at: number, mode: Mode): unknown;
  /** A getter that is faster than `take`, and leaves what is malformed to the one that it is given. */
  getter?: ((at: number, slow: GetField) => GetField) | undefined;
  /** A setter that is faster than `put`, and leaves what may be wrong to the one that it is given. */
  setter?: ((at: number, slow: SetField) => SetField) | undefined;
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

/** What a copy is for: 0 to be kept, 1 to be said in JSON, 2 only to see whether it can be made. */
export type Mode = 0 | 1 | 2;

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
    "This view has ended, with its update or since the database moved on. Get it again, or keep a " +
      "copy: .snapshot().",
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
export function wrong(expected: string, ...given: [] | [unknown]): BadArgumentError {
  const message = given.length === 0 ? expected : `${expected} Given: ${shown(given[0])}.`;
  return Object.assign(new TypeError(message), { code: "VARVE_BAD_ARGUMENT" as const, field: "" });
}

/** A short description of a value, which calls nothing of the value's. */
function shown(value: unknown): string {
  const text = Object(value) === value ? typeof value : String(value).slice(0, 60);
  return typeof value === "string" ? JSON.stringify(text) : text;
}

/** A copy of what lies there. */
export function plainOf(type: Type, from: Cursor, at: number, mode: Mode): unknown {
  return type.plain === undefined ? type.take(from, at) : type.plain(from, at, mode);
}

/** The same error, one step further out: `stock` becomes `Product.stock`. */
export function within(error: unknown, step: string): unknown {
  const { field, message, stack } = error as { field?: unknown; message: string; stack?: string };
  if (!(error instanceof Error) || typeof field !== "string" || step === "") return error;
  const path = field === "" || field[0] === "[" ? step + field : `${step}.${field}`;
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
  if (end > to.$n) throw changed();
  zero(to.$m.u8, to.$b + to.end, at - to.end);
  to.end = end;
  return at;
}

/** The error for a value that is longer or shorter when it is written than when it was measured. */
export function changed(): Error {
  return wrong("must not change while it is stored.");
}

/** Does something, and names where if it fails. */
export function inside<T>(step: string, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw within(error, step);
  }
}

/** Short runs are quicker by hand. */
export function zero(u8: Uint8Array, at: number, count: number): void {
  if (count > 24) u8.fill(0, at, at + count);
  else for (let i = at; i < at + count; i++) u8[i] = 0;
}

/** A memory for bytes that belong to no database. Its views never end. */
export function lone(u8: Uint8Array): Memory {
  return { data: new DataView(u8.buffer, u8.byteOffset, u8.byteLength), u8, epoch: 0 };
}

/**
 * How many more bytes of parts may be looked at, while a value is checked; below zero means any
 * number. Parts may lie over one another, and lists of lists of one list would take forever.
 */
export const allowance = { left: -1 };

/** The start and the count of a part that lies elsewhere in the value, proven to lie in it. */
export function part(from: Cursor, at: number, stride: number, align: number): Span {
  const { data } = from.$m;
  const offset = data.getUint32(at, true);
  const length = data.getUint32(at + 4, true);
  if (offset + length * stride > from.$n) {
    throw malformed(
      `range: ${length} times ${stride} bytes at ${offset} are not within ${from.$n}`,
    );
  }
  if (allowance.left >= 0) {
    allowance.left -= length * stride;
    if (allowance.left < 0) throw malformed("range: its parts lie over one another too often");
  }
  if ((offset & (align - 1)) !== 0) {
    throw malformed(`alignment: ${offset} is no multiple of ${align}`);
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
  throw wrong(`A length is from 1 to ${LARGEST}.`, length);
}

/** Throws unless this type can be a part of another. */
export function inner(type: Type): Type {
  if (type?.put === undefined) {
    throw wrong("A type is one of varve/struct.", type);
  }
  if (!type.growing) return type;
  throw wrong("A versioned struct can be no part of another.");
}
