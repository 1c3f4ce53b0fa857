/** Numbers of every size, each range-checked: an unchecked `-= 1` at zero would store 65535. */

import type { SimpleKind } from "../codec.js";
import { badValue, malformed, type Type, typed } from "../type.js";

/** A type whose values are numbers, both to read and to store. */
export type NumberType = Type<number, number, number, number>;

/** A type whose values are bigints, both to read and to store. */
export type BigintType = Type<bigint, bigint, bigint, bigint>;

/** Checks whether a value may be stored. */
type Fits<T> = (value: unknown, low: T, high: T) => value is T;

const integer: Fits<number> = (value, low, high): value is number =>
  Number.isInteger(value) && (value as number) >= low && (value as number) <= high;

const float: Fits<number> = (value, low, high): value is number =>
  typeof value === "number" && ((value >= low && value <= high) || !Number.isFinite(value));

const bigint: Fits<bigint> = (value, low, high): value is bigint =>
  typeof value === "bigint" && value >= low && value <= high;

/** A number type. Its kind gives the number of bits. */
function scalar<T extends Type>(
  kind: SimpleKind,
  read: (data: DataView, at: number) => unknown,
  put: Type["put"],
): T {
  const bytes = bitsOf(kind) / 8;
  return typed({ kind }, bytes, bytes, put, (from, at) => read(from.d, at));
}

function bitsOf(kind: string): number {
  return Number(kind.slice(1));
}

/** An integer, from 0 if its kind begins with a u. */
function integerType(kind: SimpleKind, read: (data: DataView, at: number) => number): NumberType {
  const bits = bitsOf(kind);
  const low = kind[0] === "u" ? 0 : -(2 ** bits) / 2;
  const high = low + 2 ** bits - 1;
  return scalar(kind, read, ({ m: { data } }, at, value) => {
    if (!integer(value, low, high)) throw outside(low, high, value);
    // An unsigned number has the same bits as the signed number that is 2 ** bits less.
    if (bits < 9) data.setInt8(at, value);
    else if (bits < 17) data.setInt16(at, value, true);
    else data.setInt32(at, value, true);
  });
}

function checked<T>(fits: Fits<T>, low: T, high: T, value: unknown): T {
  if (fits(value, low, high)) return value;
  throw outside(low, high, value);
}

function outside(low: unknown, high: unknown, value: unknown): Error {
  const what = Number.isSafeInteger(low) ? "an integer" : `a ${typeof low}`;
  return badValue(`must be ${what} from ${low} to ${high}.`, value);
}

/** An integer from 0 to 255, in one byte. */
export const u8: NumberType = /* @__PURE__ */ integerType("u8", (data, at) => data.getUint8(at));

/** An integer from 0 to 65,535, in two bytes. */
export const u16: NumberType = /* @__PURE__ */ integerType("u16", (data, at) =>
  data.getUint16(at, true),
);

/** An integer from 0 to 4,294,967,295, in four bytes. */
export const u32: NumberType = /* @__PURE__ */ integerType("u32", (data, at) =>
  data.getUint32(at, true),
);

/** An integer from -128 to 127, in one byte. */
export const i8: NumberType = /* @__PURE__ */ integerType("i8", (data, at) => data.getInt8(at));

/** An integer from -32,768 to 32,767, in two bytes. */
export const i16: NumberType = /* @__PURE__ */ integerType("i16", (data, at) =>
  data.getInt16(at, true),
);

/** An integer from -2,147,483,648 to 2,147,483,647, in four bytes. */
export const i32: NumberType = /* @__PURE__ */ integerType("i32", (data, at) =>
  data.getInt32(at, true),
);

/** A single-precision number, in four bytes. A finite number that would become infinite is refused. */
export const f32: NumberType = /* @__PURE__ */ scalar(
  "f32",
  (data, at) => data.getFloat32(at, true),
  ({ m }, at, value) =>
    m.data.setFloat32(
      at,
      checked(float, -3.4028235677973362e38, 3.4028235677973362e38, value),
      true,
    ),
);

/** Any number of JavaScript, in eight bytes. */
export const f64: NumberType = /* @__PURE__ */ scalar(
  "f64",
  (data, at) => data.getFloat64(at, true),
  ({ m }, at, value) => m.data.setFloat64(at, checked(float, -Infinity, Infinity, value), true),
);

/** A bigint from 0 to 2^64 - 1, in eight bytes. */
export const u64: BigintType = /* @__PURE__ */ scalar(
  "u64",
  (data, at) => data.getBigUint64(at, true),
  ({ m }, at, value) =>
    m.data.setBigUint64(at, checked(bigint, 0n, 0xffff_ffff_ffff_ffffn, value), true),
);

/** A bigint from -2^63 to 2^63 - 1, in eight bytes. */
export const i64: BigintType = /* @__PURE__ */ scalar(
  "i64",
  (data, at) => data.getBigInt64(at, true),
  ({ m }, at, value) =>
    m.data.setBigInt64(
      at,
      checked(bigint, -0x8000_0000_0000_0000n, 0x7fff_ffff_ffff_ffffn, value),
      true,
    ),
);

const TWO_32 = 0x1_0000_0000;

/** An i64 as a number, within the range of safe integers. */
function safe<T extends Type>(kind: SimpleKind, low: number, high: number): T {
  return typed(
    { kind },
    8,
    8,
    ({ m: { data } }, at, given) => {
      // By behavior and not by class, because dates of other realms have another class.
      const value = low === 0 ? given : ((given as Partial<Date> | null)?.getTime?.() ?? given);
      if (!integer(value, low, high)) throw outside(low, high, value);
      data.setInt32(at, value, true);
      data.setInt32(at + 4, Math.floor(value / TWO_32), true);
    },
    ({ d }, at) => {
      const value = d.getInt32(at + 4, true) * TWO_32 + d.getUint32(at, true);
      if (integer(value, low, high)) return value;
      throw malformed(`number: outside ${low} to ${high}`);
    },
  );
}

/**
 * A u64 as a number: an integer from 0 to 2^53 - 1, in eight bytes. Reading a larger one, which another
 * program may have stored, throws `MalformedValueError`.
 */
export const u53: NumberType = /* @__PURE__ */ safe("u53", 0, 0x1f_ffff_ffff_ffff);

/**
 * A point in time: milliseconds since 1970 as a number, stored as an i64. A `Date` may be stored, too.
 * Reading a value that is not a valid date in JavaScript, beyond 8.64e15 either way, throws
 * `MalformedValueError`.
 */
export const timestamp: Type<number, number, number | Date, number> = /* @__PURE__ */ safe(
  "timestamp",
  -8.64e15,
  8.64e15,
);

/** `true` or `false`, in one byte. */
export const bool: Type<boolean, boolean, boolean, boolean> = /* @__PURE__ */ typed(
  { kind: "bool" },
  1,
  1,
  (to, at, value) => {
    if (typeof value !== "boolean") throw badValue("must be true or false.", value);
    to.m.data.setUint8(at, value ? 1 : 0);
  },
  (from, at) => {
    const byte = from.d.getUint8(at);
    if (byte > 1) throw malformed(`bool: ${byte}`);
    return byte === 1;
  },
);
