/** What a field's type is made of, and how every type says that something is wrong. */

import { type BadArgumentError, MalformedValueError, StaleViewError } from "../errors/base.js";
import type { Descriptor, Memory } from "./codec.js";

/**
 * A place in a value, which every view has one of. Views of all schemas have theirs in the same few
 * words, in an object of its own: engines remember four classes at each place in the code, and one that
 * sets six properties of objects of many classes takes 70 ns in place of 5.
 */
export interface Cursor {
  /**
   * What JSON meets in what was spread of a view, and `structuredClone` in a view: it throws, and is the
   * first of these, so that nobody walks on into the memory.
   */
  toJSON(): never;
  /** The memory that is read through. */
  m: Memory;
  /** What reads it. It is renewed together with the epoch, and so may be kept: reads find it sooner. */
  d: DataView;
  /** Where this part begins. */
  o: number;
  /** Where the value begins: referenced parts are found from there. */
  b: number;
  /** How many bytes the value has. */
  n: number;
  /** The epoch in which the view was made: in every other one it is stale. */
  e: number;
  /** What is known of an update that is going on; `undefined` in views for reading. */
  w: Editing | undefined;
  /** Of a part in an update: the place that was handed out before this one. */
  p: Cursor | undefined;
}

/** What every view is. Nobody's fields may have the names of these. */
export interface Viewed {
  readonly $v: Cursor;
  /** A copy of it. */
  $c(mode: Mode): unknown;
}

/** One update of one value. Who began it knows how; a schema alone has none. */
export interface Editing {
  /** The last of all places that may change it: from there on they know each other. */
  last: Cursor;
  /** Assigns to what is more than a number. */
  assign(to: Cursor, at: number, type: Type, value: unknown): void;
  /** Assigns to fields of a view by their names. */
  fields(view: Viewed, fields: object): void;
  /** Assigns to an item of a list. */
  item(list: Listed, to: Cursor, index: number, item: unknown): void;
}

/** What every view of a list is. */
export interface Listed extends Viewed {
  /** The type of its items. */
  readonly $t: Type;
  readonly length: number;
}

/** The place of a whole value. */
export function placeOf(m: Memory, o: number, n: number): Cursor {
  return { toJSON: refuseSpread, m, d: m.data, o, b: o, n, e: m.epoch, w: undefined, p: undefined };
}

/** The place of a part, which ends with the update that it is handed out in. */
export function cursorAt({ m, d, b, n, e, w }: Cursor, o: number): Cursor {
  const place = { toJSON: refuseSpread, m, d, o, b, n, e, w, p: w?.last };
  if (w !== undefined) w.last = place;
  return place;
}

/** A value that is being written, from the start of a memory that grows: it is another one then. */
export interface Writer {
  m: Memory;
  /** Where the next part may begin. Parts go behind one another. */
  end: number;
}

/**
 * The type of a field. `View` is what reading it gives, `Write` the same in an update, `Input` what may be
 * stored, and `Plain` what `snapshot()` gives.
 */
export interface Type<View = unknown, Write = unknown, Input = unknown, Plain = unknown> {
  /** For the compiler only; absent at run time. */
  readonly types?: { view: View; write: Write; input: Input; plain: Plain };
  /** How a value is laid out. */
  readonly kind: Descriptor;
  /** The bytes that it takes in the struct itself. */
  readonly bytes: number;
  /** Its alignment in bytes. */
  readonly align: number;
  /**
   * Writes a value over zeros, or a number over another one; throws for a bad value. Parts go to the writer's
   * end.
   */
  readonly put: Put;
  /** Reads a value, or makes a view of it. */
  readonly take: (from: Cursor, at: number) => unknown;
  /** Whether the value has parts elsewhere. */
  readonly isOutOfLine?: boolean | undefined;
  /** For an option, the type of its value; for parts elsewhere, the type of the items. */
  readonly item?: Pick<Type, "align" | "isOutOfLine"> | undefined;
  /** Where the bytes are, to compare them without decoding. */
  readonly span?: ((from: Cursor, at: number) => Span) | undefined;
  /** Whether a value is more than one number: it is made elsewhere and then copied over the old one. */
  readonly composite?: boolean;
  /** Only for whole values: the type can grow at its end and cannot be part of another. */
  readonly growing?: boolean;
  /** The default in values that an earlier version wrote. */
  readonly fallback?: Fallback;
}

/** How a value of a type is written. Only types with parts elsewhere need a writer's end. */
type Put = (to: Pick<Writer, "m"> & Partial<Writer>, at: number, value: unknown) => void;

/** A default: what was declared, and the same written down, since views are read from bytes. */
export interface Fallback {
  readonly input: unknown;
  readonly from: Cursor;
  /** Whether bytes of zeros would say the same. */
  readonly isZero: boolean;
}

/** Makes a type: what all have, and what only some have. */
export function typed<T extends Type>(
  kind: Descriptor,
  bytes: number,
  align: number,
  put: Put,
  take: Type["take"],
  more?: Partial<Type>,
): T {
  return { kind, bytes, align, put, take, ...more } as T;
}

/** What a copy is for: 0 to be kept, 1 to be said in JSON, 2 only to see whether it can be made. */
export type Mode = 0 | 1 | 2;

/** Bytes of a memory. */
export interface Span {
  u8: Uint8Array;
  from: number;
  length: number;
}

/** The next multiple of `align`, a power of two. */
export function alignUp(at: number, align: number): number {
  return (at + align - 1) & -align;
}

/** Throws if the view is used after its end. */
export function stale(): never {
  throw new StaleViewError(
    "This view ended with its update or turn. Get it again, or keep a .snapshot().",
  );
}

/** The place of a view, unless it has ended. */
export function assertAlive(place: Cursor): Cursor {
  return place.e === place.m.epoch ? place : stale();
}

/** The error for bytes that are not what the schema says; the text begins with the kind of fault. */
export function malformed(text: string): MalformedValueError {
  return new MalformedValueError(text);
}

/** Throws for a number that stands for none of so many. */
export function unknown(number: number, count: number): never {
  throw malformed(`discriminant: ${number}, but only ${count} variants`);
}

/** The error for a value that cannot be stored. */
export function badValue(expected: string, ...given: [] | [unknown]): BadArgumentError {
  const message = given.length === 0 ? expected : `${expected} Given: ${shown(given[0])}.`;
  return Object.assign(new TypeError(message), { code: "VARVE_BAD_ARGUMENT" as const, field: "" });
}

/** A short description of a value: of an object only of what kind it is. */
function shown(value: unknown): string {
  if (Object(value) === value) return Object.prototype.toString.call(value).slice(8, -1);
  const text = String(value).slice(0, 60);
  if (typeof value === "string") return JSON.stringify(text);
  return typeof value === "bigint" ? `${text}n` : text;
}

/** A copy of what a type's `take` gave, as plain objects. */
export function copied(value: unknown, mode: Mode): unknown {
  if (value instanceof Uint8Array) {
    return mode === 1 ? base64(value) : mode === 0 && new Uint8Array(value);
  }
  if (typeof value === "object") {
    const variant = value as { type: string; value?: unknown } & Partial<Viewed>;
    if (variant.$c !== undefined) return variant.$c(mode);
    const { type } = variant;
    // A variant, of which there is more to say or not.
    if (!("value" in variant)) return mode === 1 ? type : { type };
    const plain = withField(type, () => copied(variant.value, mode));
    return mode === 1 ? { [type]: plain } : { type, value: plain };
  }
  if (mode !== 1) return value;
  // JSON has no such values: "NaN", "-Infinity", "18446744073709551615".
  const isOdd = typeof value === "bigint" || (typeof value === "number" && !Number.isFinite(value));
  return isOdd ? String(value) : (value ?? null);
}

export function base64(bytes: Uint8Array): string {
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
}

/** The same error, one step further out: `stock` becomes `Product.stock`. */
export function prefixField(error: unknown, step: string | undefined): unknown {
  const { field, message, stack } = error as Error & { field?: unknown };
  if (!step || typeof field !== "string" || !(error instanceof Error)) return error;
  const path = step + (/^[^[]/.test(field) ? "." : "") + field;
  const text = path + (field ? "" : ": ") + message.slice(field.length);
  // V8 has the message in the stack as it was when the error was made.
  return Object.assign(error, {
    field: path,
    message: text,
    stack: stack?.replace(message, () => text),
  });
}

/** A place for `bytes` behind everything that was written. What lies between is zeroed, and of them so many. */
export function reserve(to: Writer, bytes: number, align: number, zeros = 0): number {
  const at = alignUp(to.end, align);
  const end = at + bytes;
  const { u8 } = to.m;
  if (end > u8.length) {
    to.m = standaloneMemory(new Uint8Array(Math.max(end, 2 * u8.length)));
    to.m.u8.set(u8);
  }
  zero(to.m, to.end, at - to.end + zeros);
  to.end = end;
  return at;
}

/** Does something for so many, and names the one where it fails. */
export function forEachIndex(count: number, act: (index: number) => void): void {
  let index = 0;
  try {
    for (; index < count; index++) act(index);
  } catch (error) {
    throw prefixField(error, `[${index}]`);
  }
}

/** Does something, and names where if it fails. */
export function withField<T>(step: string | undefined, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw prefixField(error, step);
  }
}

/** Short runs are quicker by hand. */
export function zero({ data, u8 }: Memory, at: number, count: number): void {
  const end = at + count;
  let i = at;
  if (count > 256) u8.fill(0, at, end);
  else {
    for (; i < end - 7; i += 8) data.setFloat64(i, 0, true);
    for (; i < end; i++) u8[i] = 0;
  }
}

/** Throws where a view was spread or cloned. */
export function refuseSpread(): never {
  throw badValue("A view cannot be spread or cloned. Use { ...view.snapshot(), ... }.");
}

/** A memory. Of bytes that belong to no database, the views never end. */
export function standaloneMemory(u8: Uint8Array): Memory {
  return { data: new DataView(u8.buffer, u8.byteOffset, u8.byteLength), u8, epoch: 0 };
}

/**
 * How many more bytes of parts may be read by whatever walks through a whole value now. Parts may overlap,
 * and lists of lists of one list would make gigabytes of a few bytes.
 */
export const readBudget = { left: Infinity };

/** However long a value is: overlapping parts have no more bytes than this in all. */
const MOST = 67_108_864;

/**
 * Does something that walks through all of a value of so many bytes. Parts that overlap count each time
 * that they are read: 64 times the bytes of the value in all, with some to spare for short ones, and at most 64
 * MiB. A walk within a walk is part of it.
 *
 * @throws MalformedValueError beyond that
 */
export function walking<T>(bytes: number, act: () => T): T {
  if (readBudget.left !== Infinity) return act();
  readBudget.left = Math.min(64 * bytes + 65_536, Math.max(bytes, MOST));
  try {
    return act();
  } finally {
    readBudget.left = Infinity;
  }
}

/** The start and the count of a part that lies elsewhere in the value, proven to lie in it. */
export function part(from: Cursor, at: number, stride: number, align: number): Span {
  const { data, u8 } = from.m;
  const offset = data.getUint32(at, true);
  const length = data.getUint32(at + 4, true);
  if (offset + length * stride > from.n) {
    throw malformed(`range: ${length} * ${stride} bytes at ${offset} exceed ${from.n}`);
  }
  readBudget.left -= length * stride;
  if (readBudget.left < 0) throw malformed("range: parts overlap too often");
  if ((offset & (align - 1)) !== 0) {
    throw malformed(`alignment: ${offset} is not a multiple of ${align}`);
  }
  return { u8, from: from.b + offset, length };
}

/** The most bytes that a value may have. */
const LARGEST = 16_777_216;

/** Memory up to this size is kept for the next draft. */
const KEPT = 262_144;
let spare: Memory | undefined;

/** A value written from the start of some memory. It is to be released. */
export function encodeScratch({ bytes, put }: Pick<Type, "bytes" | "put">, value: unknown): Writer {
  const to = { m: spare ?? standaloneMemory(new Uint8Array(1024)), end: 0 };
  // A getter of the value may want a draft of its own.
  spare = undefined;
  reserve(to, bytes, 1, bytes);
  put(to, 0, value);
  return to;
}

/** Gives the memory of a draft that was copied to the next one. */
export function release({ m }: Writer): void {
  if (m.u8.length <= KEPT) spare = m;
}

/** Throws unless a type is given a length that it can have. */
export function whole(length: number): number {
  if (Number.isInteger(length) && length > 0 && length <= LARGEST) return length;
  throw badValue(`A length must be 1 to ${LARGEST}.`, length);
}

/** Throws for arguments beyond those that a function takes: what they were given for must not be ignored. */
export function noMore(call: string, more: readonly unknown[]): void {
  for (const one of more) {
    if (one !== undefined) throw badValue(`${call} takes no more arguments, nor options.`, one);
  }
}

/** Throws unless this type can be a part of another. */
export function inner(type: Type): Type {
  if (type?.put === undefined) {
    throw badValue("Use a type of varve/struct.", type);
  }
  if (!type.growing) return type;
  throw badValue("A struct cannot contain a versioned one.");
}
