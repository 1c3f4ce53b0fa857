/**
 * Order-preserving key encoding: the order of the bytes is that of the values. The same encoding is implemented and
 * documented in `crate/src/schema/key.rs`. A single text is stored as its UTF-8 and single bytes unchanged. All other
 * keys are tuples of parts, a single number a tuple of one, and each part marks its own end.
 */

import { badArgument } from "../errors/index.js";
import { decoder, encoder } from "../util/text-coders.js";
import { byteLengthOf } from "./byte-length.js";
import type { Descriptor } from "./codec.js";
import { noMore, type Type } from "./type.js";

/** A part of a key, or an indexed field, in descending order. Made by `desc`. */
export interface Desc<T extends Type | string = Type> {
  readonly desc: T;
}

/** Keys that the collection assigns itself. Made by `auto`. */
export interface Auto {
  readonly auto: true;
}

/** The type of a key or of a part of one. */
export type KeyPart = Type | Desc;

/** The option `key`: what the keys of a collection are. */
export type KeySpec = KeyPart | Auto | readonly KeyPart[];

type PartOf<P> =
  P extends Desc<infer T> ? PartOf<T> : P extends { readonly types?: infer S } ? PlainOf<S> : never;
type PlainOf<S> = NonNullable<S> extends { plain: infer V } ? V : never;
type InputPartOf<P> =
  P extends Desc<infer T>
    ? InputPartOf<T>
    : P extends { readonly types?: infer S }
      ? InputOf<S>
      : never;
type InputOf<S> = NonNullable<S> extends { input: infer V } ? V : never;

/** The type of the keys that reading gives. Strings by default. */
export type KeyOf<S> = S extends undefined
  ? string
  : S extends Auto
    ? number
    : S extends readonly unknown[]
      ? { -readonly [I in keyof S]: PartOf<S[I]> }
      : PartOf<S>;

/** The type of the keys that calls take. */
export type KeyInput<S> = S extends undefined
  ? string
  : S extends Auto
    ? number
    : S extends readonly unknown[]
      ? { readonly [I in keyof S]: InputPartOf<S[I]> }
      : InputPartOf<S>;

/** The first parts of a tuple, at least one. */
export type Leading<K> = K extends readonly [infer A, ...infer Rest]
  ?
      | readonly [A]
      | (Rest extends readonly [unknown, ...unknown[]] ? readonly [A, ...Leading<Rest>] : never)
  : K;

/** Sorts a part of a key, or the named field of an index, in descending order. */
export function desc<const T extends Type | string>(type: T): Desc<T> {
  return { desc: type };
}

/**
 * Keys that `push` assigns: numbers from 1, each above all that are or were in use. For queues and logs. No
 * number is assigned twice, also after `delete`, `clear`, a migration or reopening, or in a copy made by
 * `export`. A number whose transaction was rolled back, or that a crash before the commit lost, counts as not
 * assigned. JSON lines contain only records: a collection filled from them continues after its highest key.
 */
export function auto(): Auto;
export function auto(...more: unknown[]): Auto {
  noMore("auto()", more);
  return { auto: true };
}

/** The kind of a part, as stored in a collection's descriptor. */
export type PartKind = Descriptor | { readonly desc: PartKind };

/** The codec of one part. */
export interface PartCodec {
  readonly kind: PartKind;
  /** Whether it is text or bytes, which end with two bytes: without those, the encoding is a prefix of longer ones. */
  readonly isRun?: boolean | undefined;
  /**
   * Encodes a value at `at` and returns where it ends, even if that is beyond the area. A bound of a range may be
   * shorter or longer than a value that can be stored.
   */
  write(area: Uint8Array, at: number, value: unknown, isBound?: boolean): number;
  /** Decodes the part at `at`, and sets `next` to its end. */
  read(bytes: Uint8Array, at: number): unknown;
  /** The end of the part at `at`, without decoding it. */
  end(bytes: Uint8Array, at: number): number;
}

/** The end of the part that was read last. */
let next = 0;

const TWO_32 = 0x1_0000_0000;
// Created on first use, because a program that only names a kind of key does not need them.
const eight = /* @__PURE__ */ new DataView(/* @__PURE__ */ new ArrayBuffer(8));

/** The codec of a part of this kind. `what` names the part in messages. */
export function partCodec(kind: PartKind, what: string): PartCodec {
  if ("desc" in kind) return inverted(partCodec(kind.desc, what));
  switch (kind.kind) {
    case "u8":
    case "u16":
    case "u32":
    case "i8":
    case "i16":
    case "i32": {
      const bits = Number(kind.kind.slice(1));
      const least = kind.kind < "u" ? -(2 ** (bits - 1)) : 0;
      return integer(kind, bits / 8, least, least + 2 ** bits - 1, what);
    }
    case "u53":
      return integer(kind, 8, 0, Number.MAX_SAFE_INTEGER, what);
    case "u64":
    case "i64":
      return wide(kind, kind.kind === "i64", what);
    case "timestamp":
      return moment(kind, what);
    case "f32":
    case "f64":
      return float(kind, kind.kind === "f32", what);
    case "bool":
      return boolPart(kind, what);
    case "enum8":
    case "enum16":
      return enumPart(kind, kind.kind === "enum8" ? 1 : 2, kind.variants, what);
    case "str":
      return textual(what);
    case "blob":
      return binary(what);
    case "fixedStr":
      return fixed(textual(what), kind.length, what);
    case "bytes":
      return fixed(binary(what), kind.length, what);
    case "option":
    case "optNonZero":
      return optional(partCodec(kind.of, what));
    default:
      throw badArgument(`${what} cannot be part of a key: its kind is ${kind.kind}.`);
  }
}

function refused(what: string, expected: string, value: unknown): Error {
  return badArgument(`${what} must be ${expected}.`, value);
}

function writeNumber(area: Uint8Array, at: number, size: number, value: number): number {
  let rest = value;
  for (let i = at + size - 1; i >= at; i--) {
    area[i] = rest % 256;
    rest = Math.floor(rest / 256);
  }
  return at + size;
}

function readNumber(bytes: Uint8Array, at: number, size: number): number {
  let value = 0;
  for (let i = at; i < at + size; i++) value = value * 256 + (bytes[i] as number);
  next = at + size;
  return value;
}

function integer(
  kind: Descriptor,
  size: number,
  least: number,
  most: number,
  what: string,
): PartCodec {
  return {
    kind,
    write(area, at, value) {
      if (!Number.isInteger(value) || !((value as number) >= least && (value as number) <= most)) {
        throw refused(what, `an integer from ${least} to ${most}`, value);
      }
      return writeNumber(area, at, size, (value as number) - least);
    },
    read: (bytes, at) => readNumber(bytes, at, size) + least,
    end: (_, at) => at + size,
  };
}

/** Writes the first of the eight bytes, with all bits inverted by 0xff. */
function copyEight(area: Uint8Array, at: number, size: number, flip: number): number {
  for (let i = 0; i < size; i++) area[at + i] = eight.getUint8(i) ^ flip;
  return at + size;
}

function takeEight(bytes: Uint8Array, at: number, size: number, flip: number): void {
  for (let i = 0; i < size; i++) eight.setUint8(i, (bytes[at + i] as number) ^ flip);
  next = at + size;
}

function wide(kind: Descriptor, isSigned: boolean, what: string): PartCodec {
  const as = isSigned ? BigInt.asIntN : BigInt.asUintN;
  const shift = isSigned ? 1n << 63n : 0n;
  return {
    kind,
    write(area, at, value) {
      if (typeof value !== "bigint" || as(64, value) !== value) {
        throw refused(what, `${isSigned ? "a signed" : "an unsigned"} 64-bit bigint`, value);
      }
      eight.setBigUint64(0, BigInt.asUintN(64, value + shift));
      return copyEight(area, at, 8, 0);
    },
    read(bytes, at) {
      takeEight(bytes, at, 8, 0);
      return as(64, eight.getBigUint64(0) - shift);
    },
    end: (_, at) => at + 8,
  };
}

function moment(kind: Descriptor, what: string): PartCodec {
  return {
    kind,
    write(area, at, value) {
      // By behavior and not by class, because dates of other realms have another class.
      const time = (value as Partial<Date> | null)?.getTime?.() ?? value;
      if (!Number.isSafeInteger(time)) {
        throw refused(what, "a Date, or an integer of milliseconds within 2**53", time);
      }
      const high = Math.floor((time as number) / TWO_32);
      writeNumber(area, at, 4, high + TWO_32 / 2);
      return writeNumber(area, at + 4, 4, (time as number) - high * TWO_32);
    },
    read(bytes, at) {
      const high = readNumber(bytes, at, 4) - TWO_32 / 2;
      return high * TWO_32 + readNumber(bytes, at + 4, 4);
    },
    end: (_, at) => at + 8,
  };
}

function float(kind: Descriptor, isShort: boolean, what: string): PartCodec {
  const size = isShort ? 4 : 8;
  return {
    kind,
    write(area, at, value) {
      if (typeof value !== "number" || Number.isNaN(value)) {
        throw refused(what, "a number other than NaN", value);
      }
      // -0 becomes 0, also if it results from rounding.
      const number = (isShort ? Math.fround(value) : value) + 0;
      // Non-negative numbers get the first bit set, so they sort after negative ones, whose bits are all inverted.
      const signed = -Math.abs(number);
      if (isShort) eight.setFloat32(0, signed);
      else eight.setFloat64(0, signed);
      return copyEight(area, at, size, number < 0 ? 0xff : 0);
    },
    read(bytes, at) {
      const flip = (bytes[at] as number) < 0x80 ? 0xff : 0;
      takeEight(bytes, at, size, flip);
      const signed = isShort ? eight.getFloat32(0) : eight.getFloat64(0);
      return flip === 0 ? -signed : signed;
    },
    end: (_, at) => at + size,
  };
}

function boolPart(kind: Descriptor, what: string): PartCodec {
  return {
    kind,
    write(area, at, value) {
      if (typeof value !== "boolean") throw refused(what, "true or false", value);
      area[at] = value ? 1 : 0;
      return at + 1;
    },
    read: (bytes, at) => readNumber(bytes, at, 1) === 1,
    end: (_, at) => at + 1,
  };
}

function enumPart(
  kind: Descriptor,
  size: number,
  variants: readonly string[],
  what: string,
): PartCodec {
  return {
    kind,
    write(area, at, value) {
      const index = variants.indexOf(value as string);
      if (index < 0) throw refused(what, `one of ${variants.join(", ")}`, value);
      return writeNumber(area, at, size, index);
    },
    read: (bytes, at) => variants[readNumber(bytes, at, size)],
    end: (_, at) => at + size,
  };
}

/** Encodes bytes and their end mark, so that bytes sort before longer ones that start with them. */
function writeRun(area: Uint8Array, start: number, bytes: Uint8Array, length: number): number {
  let at = start;
  for (let i = 0; i < length; i++) {
    const byte = bytes[i] as number;
    area[at++] = byte;
    if (byte === 0) area[at++] = 0xff;
  }
  area[at] = 0;
  area[at + 1] = 1;
  return at + 2;
}

function readRun(bytes: Uint8Array, start: number): Uint8Array<ArrayBuffer> {
  const run: number[] = [];
  let at = start;
  for (; at < bytes.length; at++) {
    const byte = bytes[at] as number;
    if (byte === 0 && bytes[++at] === 1) break;
    run.push(byte);
  }
  next = at + 1;
  return new Uint8Array(run);
}

function endOfRun(bytes: Uint8Array, start: number): number {
  let at = start;
  while (at < bytes.length && !(bytes[at] === 0 && bytes[++at] === 1)) at++;
  return at + 1;
}

function textual(what: string): PartCodec {
  return {
    kind: { kind: "str" },
    isRun: true,
    write(area, start, value) {
      if (typeof value !== "string") throw refused(what, "a string", value);
      const { length } = value;
      if (length > area.length) return start + length;
      let at = start;
      let all = 0;
      for (let i = 0; i < length; i++) {
        const unit = value.charCodeAt(i);
        // A zero needs an escape.
        all |= unit === 0 ? 0x80 : unit;
        area[at++] = unit;
      }
      if (all >= 0x80) {
        const bytes = utf8(what, value);
        return writeRun(area, start, bytes, bytes.length);
      }
      area[at] = 0;
      area[at + 1] = 1;
      return at + 2;
    },
    read: (bytes, at) => decoder.decode(readRun(bytes, at)),
    end: endOfRun,
  };
}

function utf8(what: string, text: string): Uint8Array {
  const bytes = encoder.encode(text);
  if (decoder.decode(bytes) === text) return bytes;
  throw refused(what, "a string without lone surrogates", text);
}

function binary(what: string): PartCodec {
  return {
    kind: { kind: "blob" },
    isRun: true,
    write(area, at, value) {
      const length = byteLengthOf(value);
      if (length < 0) throw refused(what, "a Uint8Array, not detached", value);
      return length > area.length ? at + length : writeRun(area, at, value as Uint8Array, length);
    },
    read: readRun,
    end: endOfRun,
  };
}

/** Part of fixed length, encoded like one of any length. Text may be shorter, and is not padded as in a struct. */
function fixed(of: PartCodec, length: number, what: string): PartCodec {
  return {
    ...of,
    write(area, at, value, isBound) {
      const end = of.write(area, at, value);
      const isText = typeof value === "string";
      const fits = isText
        ? end - at - 2 <= length && !value.includes("\0")
        : byteLengthOf(value) === length;
      if (fits || isBound === true) return end;
      const wanted = isText
        ? `a string of up to ${length} bytes, without U+0000`
        : `${length} bytes`;
      throw refused(what, wanted, value);
    },
  };
}

function optional(of: PartCodec): PartCodec {
  return {
    kind: { kind: "option", of: of.kind as Descriptor },
    isRun: of.isRun,
    write(area, at, value, isBound) {
      const is = value != null;
      area[at] = is ? 1 : 0;
      return is ? of.write(area, at + 1, value, isBound) : at + 1;
    },
    read(bytes, at) {
      if (readNumber(bytes, at, 1) === 0) return undefined;
      return of.read(bytes, at + 1);
    },
    end: (bytes, at) => (bytes[at] === 0 ? at + 1 : of.end(bytes, at + 1)),
  };
}

function invert(bytes: Uint8Array, from: number, to: number): void {
  for (let i = from; i < to; i++) bytes[i] = ~(bytes[i] as number);
}

function inverted(of: PartCodec): PartCodec {
  return {
    kind: { desc: of.kind },
    isRun: of.isRun,
    write(area, at, value, isBound) {
      const end = of.write(area, at, value, isBound);
      invert(area, at, Math.min(end, area.length));
      return end;
    },
    read(bytes, at) {
      const rest = bytes.slice(at);
      invert(rest, 0, rest.length);
      const value = of.read(rest, 0);
      next += at;
      return value;
    },
    end(bytes, at) {
      const rest = bytes.slice(at);
      invert(rest, 0, rest.length);
      return at + of.end(rest, 0);
    },
  };
}

/** The codec of a tuple. */
export class TupleCodec {
  readonly parts: readonly PartCodec[];
  readonly what: string;

  constructor(what: string, parts: readonly PartCodec[]) {
    this.what = what;
    this.parts = parts;
  }

  /** Encodes a tuple, or with `leading` its first parts, at the start of an area. Returns the length. */
  write(area: Uint8Array, values: readonly unknown[], leading = false): number {
    const { parts } = this;
    const { length } = values;
    if (length > parts.length || (length < parts.length && !leading)) {
      throw badArgument(`${this.what} has ${parts.length} parts, not ${length}.`, values);
    }
    let at = 0;
    for (let i = 0; i < length; i++) {
      at = (parts[i] as PartCodec).write(area, at, values[i], leading);
    }
    return at;
  }

  /** Decodes the tuple that begins at `start`; `ended()` then returns its end. */
  read(bytes: Uint8Array, start: number): unknown[] {
    next = start;
    return this.parts.map((part) => part.read(bytes, next));
  }

  /** The end of the tuple that bytes begin with, without decoding it. */
  end(bytes: Uint8Array): number {
    let at = 0;
    for (const part of this.parts) at = part.end(bytes, at);
    return at;
  }
}

/** The end of the tuple or part that was read last. */
export function ended(): number {
  return next;
}

/** The kind of a part for the declaration that a program gave. */
export function kindOf(part: unknown, what: string): PartKind {
  if (typeof part === "object" && part !== null) {
    if ("desc" in part) return { desc: kindOf(part.desc, what) };
    const { kind } = part as { kind?: unknown };
    if (typeof kind === "object" && kind !== null) return kind as Descriptor;
  }
  throw badArgument(
    `${what} needs a type of varve/struct, such as u32 or str, or desc() of one.`,
    part,
  );
}
