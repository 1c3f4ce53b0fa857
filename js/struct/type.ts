/** The definition of field types, and the errors that all types share. */

import { type BadArgumentError, MalformedValueError, StaleViewError } from "../errors/base.js";
import type { Descriptor, Memory } from "./codec.js";

/**
 * The place of a view in a value. It is a separate object with the same few properties for views of all schemas,
 * because engines remember four classes at each code location, and setting six properties on objects of many classes
 * takes 70 ns instead of 5.
 */
export interface Cursor {
  /**
   * Throws if JSON reaches the place through a spread view, or `structuredClone` through a view. It is the first
   * property, so that neither goes on into the memory.
   */
  toJSON(): never;
  /** The memory. */
  m: Memory;
  /** The memory's `DataView`, cached because it is read faster here. It changes only together with the epoch. */
  d: DataView;
  /** Offset of this part. */
  o: number;
  /** Offset of the value, to which references to parts are relative. */
  b: number;
  /** Length of the value in bytes. */
  n: number;
  /** The epoch in which the view was made: in any other one it is stale. */
  e: number;
  /** The update that the view belongs to; `undefined` in views for reading. */
  w: Editing | undefined;
  /** For a part in an update: the place that was made before this one. */
  p: Cursor | undefined;
}

/** The members of every view. No field may have one of these names. */
export interface Viewed {
  readonly $v: Cursor;
  /** A copy of the view. */
  $c(mode: Mode): unknown;
}

/** One update of one value. Implemented by `in-place-update.ts`, which schemas alone do not load. */
export interface Editing {
  /** The cursor that was made last in this update. Each leads to the one before it by `p`. */
  last: Cursor;
  /** Assigns to a part that is not a single number. */
  assign(to: Cursor, at: number, type: Type, value: unknown): void;
  /** Assigns to fields of a view by their names. */
  fields(view: Viewed, fields: object): void;
  /** Assigns to an item of a list. */
  item(list: ViewedList, to: Cursor, index: number, item: unknown): void;
}

/** The members of every view of a list. */
export interface ViewedList extends Viewed {
  /** The type of its items. */
  readonly $t: Type;
  readonly length: number;
}

/** The place of a whole value. */
export function placeOf(m: Memory, o: number, n: number): Cursor {
  return { toJSON: refuseSpread, m, d: m.data, o, b: o, n, e: m.epoch, w: undefined, p: undefined };
}

/** The place of a part. In an update, it is added to the list of places that end with the update. */
export function cursorAt({ m, d, b, n, e, w }: Cursor, o: number): Cursor {
  const place = { toJSON: refuseSpread, m, d, o, b, n, e, w, p: w?.last };
  if (w !== undefined) w.last = place;
  return place;
}

/** A value that is being written at the start of a memory. The memory is replaced when it has to grow. */
export interface Writer {
  m: Memory;
  /** Offset at which the next part may begin. Parts follow one another. */
  end: number;
}

/**
 * The type of a field. `View` is what reading it gives, `Write` the same in an update, `Input` what may be
 * stored, and `Plain` what `snapshot()` gives.
 */
export interface Type<View = unknown, Write = unknown, Input = unknown, Plain = unknown> {
  /** For the compiler only; absent at run time. */
  readonly types?: { view: View; write: Write; input: Input; plain: Plain };
  /** The layout of a value. */
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
  /** Whether a value is more than one number. In an update it is encoded elsewhere first, and then copied over the old one. */
  readonly composite?: boolean;
  /** Only for whole values: the type can grow at its end and cannot be part of another. */
  readonly growing?: boolean;
  /** The default in values that an earlier version wrote. */
  readonly fallback?: Fallback;
}

/** Writes a value of a type. Only types with out-of-line parts need the writer's end. */
type Put = (to: Pick<Writer, "m"> & Partial<Writer>, at: number, value: unknown) => void;

/** A default: the declared value and its encoding, because views are read from bytes. */
export interface Fallback {
  readonly input: unknown;
  readonly from: Cursor;
  /** Whether its encoding is all zeros. */
  readonly isZero: boolean;
}

/** Makes a type from the required properties and the optional ones. */
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

/** The purpose of a copy: 0 to be kept, 1 for JSON, 2 only to check that it can be made. */
export type Mode = 0 | 1 | 2;

/** A range of bytes in a memory. */
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
    "This view ended with its update or turn, or its buffer was transferred. Get it again, or keep a .snapshot().",
  );
}

/** The place of a view, unless it has ended. */
export function assertAttached(place: Cursor): Cursor {
  return place.e === place.m.epoch ? place : stale();
}

/** The error for bytes that are not what the schema says; the text begins with the kind of fault. */
export function malformed(text: string): MalformedValueError {
  return new MalformedValueError(text);
}

/** The variant or name with this number. Throws if there is none. */
export function unknown(number: number, count: number): never {
  throw malformed(`discriminant: ${number}, but only ${count} variants`);
}

/** The error for a value that cannot be stored. */
export function badValue(expected: string, ...given: [] | [unknown]): BadArgumentError {
  const message = given.length === 0 ? expected : `${expected} Given: ${shown(given[0])}.`;
  return Object.assign(new TypeError(message), { code: "VARVE_BAD_ARGUMENT" as const, field: "" });
}

/** A short description of a value; for an object only its kind. */
function shown(value: unknown): string {
  if (Object(value) === value) return Object.prototype.toString.call(value).slice(8, -1);
  const text = String(value).slice(0, 60);
  if (typeof value === "string") return JSON.stringify(text);
  return typeof value === "bigint" ? `${text}n` : text;
}

/** Copies the result of a type's `take` as plain objects. */
export function copied(value: unknown, mode: Mode): unknown {
  if (value instanceof Uint8Array) {
    return mode === 1 ? base64(value) : mode === 0 && new Uint8Array(value);
  }
  if (typeof value === "object") {
    const variant = value as { type: string; value?: unknown } & Partial<Viewed>;
    if (variant.$c !== undefined) return variant.$c(mode);
    const { type } = variant;
    // A variant of a union, with or without a value.
    if (!("value" in variant)) return mode === 1 ? type : { type };
    const plain = withField(type, () => copied(variant.value, mode));
    return mode === 1 ? { [type]: plain } : { type, value: plain };
  }
  if (mode !== 1) return value;
  // Values that JSON does not have: "NaN", "-Infinity", "18446744073709551615".
  const isOdd = typeof value === "bigint" || (typeof value === "number" && !Number.isFinite(value));
  return isOdd ? String(value) : (value ?? null);
}

export function base64(bytes: Uint8Array): string {
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
}

/** Extends the field path of an error by one step: `stock` becomes `Product.stock`. */
export function prefixField(error: unknown, step: string | undefined): unknown {
  const { field, message, stack } = error as Error & { field?: unknown };
  if (!step || typeof field !== "string" || !(error instanceof Error)) return error;
  const path = step + (/^[^[]/.test(field) ? "." : "") + field;
  const text = path + (field ? "" : ": ") + message.slice(field.length);
  // V8 copies the message into the stack when an error is created, so it is replaced there too.
  return Object.assign(error, {
    field: path,
    message: text,
    stack: stack?.replace(message, () => text),
  });
}

/** No value is larger: a list that claims to be is refused before memory is allocated for it. */
const MAX_BYTES = 2 ** 30;

/** Reserves `bytes` at the writer's end, zeroing the gap before them and as many of them as requested. */
export function reserve(to: Writer, bytes: number, align: number, zeros = 0): number {
  const at = alignUp(to.end, align);
  const end = at + bytes;
  const { u8 } = to.m;
  if (end > u8.length) {
    if (end > MAX_BYTES) throw badValue("has more items than any value can hold.");
    to.m = standaloneMemory(new Uint8Array(Math.max(end, 2 * u8.length)));
    to.m.u8.set(u8);
  }
  zero(to.m, to.end, at - to.end + zeros);
  to.end = end;
  return at;
}

/** Runs a function for each index, and adds the index to the field path of an error. */
export function forEachIndex(count: number, act: (index: number) => void): void {
  let index = 0;
  try {
    for (; index < count; index++) act(index);
  } catch (error) {
    throw prefixField(error, `[${index}]`);
  }
}

/** Runs a function, and adds a name to the field path of an error. */
export function withField<T>(step: string | undefined, act: () => T): T {
  try {
    return act();
  } catch (error) {
    throw prefixField(error, step);
  }
}

/** Copies bytes. A loop is faster for few bytes. */
export function zero({ data, u8 }: Memory, at: number, count: number): void {
  const end = at + count;
  let i = at;
  if (count > 256) u8.fill(0, at, end);
  else {
    for (; i < end - 7; i += 8) data.setFloat64(i, 0, true);
    for (; i < end; i++) u8[i] = 0;
  }
}

/** Throws if a view was spread or cloned. */
export function refuseSpread(): never {
  throw badValue("A view cannot be spread or cloned. Use { ...view.snapshot(), ... }.");
}

/** The memory of bytes outside of any database. Views of it never end. */
export function standaloneMemory(u8: Uint8Array): Memory {
  return { data: new DataView(u8.buffer, u8.byteOffset, u8.byteLength), u8, epoch: 0 };
}

/**
 * The remaining budget, in bytes of parts, of a traversal of a whole value. It is limited because parts may overlap, and
 * nested lists that share one list could expand a few bytes to gigabytes.
 */
export const readBudget = { left: Infinity };

/** Maximum budget for overlapping parts, whatever the length of the value. */
const MAX_READ_BUDGET = 67_108_864;

/**
 * Runs a function that traverses a whole value of `length` bytes, with a budget. Overlapping parts count each time that
 * they are read. The budget is 64 times the bytes of the value, with a margin for short ones, and at most 64 MiB. A
 * nested traversal shares the budget.
 *
 * @throws MalformedValueError if the budget is exceeded
 */
export function walking<T>(bytes: number, act: () => T): T {
  if (readBudget.left !== Infinity) return act();
  readBudget.left = Math.min(64 * bytes + 65_536, Math.max(bytes, MAX_READ_BUDGET));
  try {
    return act();
  } finally {
    readBudget.left = Infinity;
  }
}

/** The start and the count of an out-of-line part, checked to lie within the value. */
export function outOfLineSpan(from: Cursor, at: number, stride: number, align: number): Span {
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

/** Maximum length of a value in bytes. */
const MAX_LENGTH = 16_777_216;

/** Memory up to this size is reused for the next draft. */
const MAX_REUSED_DRAFT = 262_144;
let spare: Memory | undefined;

/** Encodes a value at the start of a temporary memory. The draft has to be released. */
export function encodeScratch({ bytes, put }: Pick<Type, "bytes" | "put">, value: unknown): Writer {
  const to = { m: spare ?? standaloneMemory(new Uint8Array(1024)), end: 0 };
  // A getter of the value may make another draft meanwhile.
  spare = undefined;
  reserve(to, bytes, 1, bytes);
  put(to, 0, value);
  return to;
}

/** Releases the memory of a draft for reuse, after it was copied. */
export function release({ m }: Writer): void {
  if (m.u8.length <= MAX_REUSED_DRAFT) spare = m;
}

/** Throws unless the length is valid for a type. */
export function declaredLength(length: number): number {
  if (Number.isInteger(length) && length > 0 && length <= MAX_LENGTH) return length;
  throw badValue(`A length must be 1 to ${MAX_LENGTH}.`, length);
}

/** Throws for surplus arguments, because their intent must not be ignored. */
export function noMore(call: string, more: readonly unknown[]): void {
  for (const one of more) {
    if (one !== undefined) throw badValue(`${call} takes no more arguments, nor options.`, one);
  }
}

/** Throws unless this type can be part of another. */
export function inner(type: Type): Type {
  if (type?.put === undefined) {
    throw badValue("Use a type of varve/struct.", type);
  }
  if (!type.growing) return type;
  throw badValue("A struct cannot contain a versioned one.");
}
