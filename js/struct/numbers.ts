/** Numbers of every size, each range-checked: an unchecked `-= 1` at zero would store 65535. */

import type { SimpleKind } from "./codec.js";
import { type Cursor, malformed, stale, type Type, wrong } from "./type.js";

/** A type whose values are numbers, written and read alike. */
export type NumberType = Type<number, number, number, number>;

/** A type whose values are bigints, written and read alike. */
export type BigintType = Type<bigint, bigint, bigint, bigint>;

type Getter = NonNullable<Type["getter"]>;
type Setter = NonNullable<Type["setter"]>;

/** A number as it lies in memory: read and written wherever that is, and by views of a struct. */
function scalar<T extends number | bigint>(
  kind: SimpleKind,
  bytes: number,
  low: T,
  high: T,
  read: (data: DataView, at: number) => T,
  write: (data: DataView, at: number, value: T) => void,
  getter: Getter,
  setter?: Setter,
): Type<T, T, T, T> {
  const type = typeof low;
  const isFloat = kind[0] === "f";
  const fits = (value: T): boolean => {
    if (isFloat) return (value >= low && value <= high) || !Number.isFinite(value);
    return value >= low && value <= high && (type === "bigint" || Number.isInteger(value));
  };
  const take = (from: Cursor, at: number): T => read(from.$m.data, at);
  return {
    kind: { kind },
    layout: kind,
    bytes,
    align: bytes,
    put(to, at, value) {
      if (typeof value !== type || !fits(value as T)) throw outside(low, high, value);
      write(to.$m.data, at, value as T);
    },
    take,
    plain(from, at, mode) {
      const value = take(from, at);
      // JSON has no such numbers: "NaN", "-Infinity", "18446744073709551615".
      return mode === 1 && !Number.isFinite(value) ? String(value) : value;
    },
    getter,
    setter,
  };
}

function outside(low: unknown, high: unknown, value: unknown): Error {
  const what = Number.isSafeInteger(low) ? "an integer" : `a ${typeof low}`;
  return wrong(`has to be ${what} from ${low} to ${high}.`, value);
}

// Each getter and setter is written out: one that called another function through a variable would
// not be inlined, and cost five times as much. Whatever is not as it should be is for the slow setter.

/** An integer from 0 to 255, in one byte. */
export const u8: NumberType = /* @__PURE__ */ scalar(
  "u8",
  1,
  0,
  0xff,
  (data, at) => data.getUint8(at),
  (data, at, value) => data.setUint8(at, value),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getUint8(this.$o + at);
    },
  (at, slow) =>
    function (value) {
      const memory = this.$m;
      const isHere = this.$w !== undefined && this.$e === memory.epoch;
      if (!isHere || typeof value !== "number" || (value & 0xff) !== value) {
        slow.call(this, value);
      } else memory.data.setUint8(this.$o + at, value);
    },
);

/** An integer from 0 to 65,535, in two bytes. */
export const u16: NumberType = /* @__PURE__ */ scalar(
  "u16",
  2,
  0,
  0xffff,
  (data, at) => data.getUint16(at, true),
  (data, at, value) => data.setUint16(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getUint16(this.$o + at, true);
    },
  (at, slow) =>
    function (value) {
      const memory = this.$m;
      const isHere = this.$w !== undefined && this.$e === memory.epoch;
      if (!isHere || typeof value !== "number" || (value & 0xffff) !== value) {
        slow.call(this, value);
      } else memory.data.setUint16(this.$o + at, value, true);
    },
);

/** An integer from 0 to 4,294,967,295, in four bytes. */
export const u32: NumberType = /* @__PURE__ */ scalar(
  "u32",
  4,
  0,
  0xffff_ffff,
  (data, at) => data.getUint32(at, true),
  (data, at, value) => data.setUint32(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getUint32(this.$o + at, true);
    },
  (at, slow) =>
    function (value) {
      const memory = this.$m;
      const isHere = this.$w !== undefined && this.$e === memory.epoch;
      if (!isHere || typeof value !== "number" || value >>> 0 !== value) {
        slow.call(this, value);
      } else memory.data.setUint32(this.$o + at, value, true);
    },
);

/** An integer from -128 to 127, in one byte. */
export const i8: NumberType = /* @__PURE__ */ scalar(
  "i8",
  1,
  -0x80,
  0x7f,
  (data, at) => data.getInt8(at),
  (data, at, value) => data.setInt8(at, value),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getInt8(this.$o + at);
    },
  (at, slow) =>
    function (value) {
      const memory = this.$m;
      const isHere = this.$w !== undefined && this.$e === memory.epoch;
      if (!isHere || typeof value !== "number" || (value << 24) >> 24 !== value) {
        slow.call(this, value);
      } else memory.data.setInt8(this.$o + at, value);
    },
);

/** An integer from -32,768 to 32,767, in two bytes. */
export const i16: NumberType = /* @__PURE__ */ scalar(
  "i16",
  2,
  -0x8000,
  0x7fff,
  (data, at) => data.getInt16(at, true),
  (data, at, value) => data.setInt16(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getInt16(this.$o + at, true);
    },
  (at, slow) =>
    function (value) {
      const memory = this.$m;
      const isHere = this.$w !== undefined && this.$e === memory.epoch;
      if (!isHere || typeof value !== "number" || (value << 16) >> 16 !== value) {
        slow.call(this, value);
      } else memory.data.setInt16(this.$o + at, value, true);
    },
);

/** An integer from -2,147,483,648 to 2,147,483,647, in four bytes. */
export const i32: NumberType = /* @__PURE__ */ scalar(
  "i32",
  4,
  -0x8000_0000,
  0x7fff_ffff,
  (data, at) => data.getInt32(at, true),
  (data, at, value) => data.setInt32(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getInt32(this.$o + at, true);
    },
  (at, slow) =>
    function (value) {
      const memory = this.$m;
      const isHere = this.$w !== undefined && this.$e === memory.epoch;
      if (!isHere || typeof value !== "number" || (value | 0) !== value) {
        slow.call(this, value);
      } else memory.data.setInt32(this.$o + at, value, true);
    },
);

/** A number of single precision, in four bytes. Finite numbers that it would make infinite are refused. */
export const f32: NumberType = /* @__PURE__ */ scalar(
  "f32",
  4,
  -3.4028235677973362e38,
  3.4028235677973362e38,
  (data, at) => data.getFloat32(at, true),
  (data, at, value) => data.setFloat32(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getFloat32(this.$o + at, true);
    },
  (at, slow) =>
    function (value) {
      const memory = this.$m;
      const isHere = this.$w !== undefined && this.$e === memory.epoch;
      if (!isHere || typeof value !== "number" || !(value >= -3e38 && value <= 3e38)) {
        slow.call(this, value);
      } else memory.data.setFloat32(this.$o + at, value, true);
    },
);

/** A number, in eight bytes: any that JavaScript has. */
export const f64: NumberType = /* @__PURE__ */ scalar(
  "f64",
  8,
  -Infinity,
  Infinity,
  (data, at) => data.getFloat64(at, true),
  (data, at, value) => data.setFloat64(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getFloat64(this.$o + at, true);
    },
  (at, slow) =>
    function (value) {
      const memory = this.$m;
      const isHere = this.$w !== undefined && this.$e === memory.epoch;
      if (!isHere || typeof value !== "number") {
        slow.call(this, value);
      } else memory.data.setFloat64(this.$o + at, value, true);
    },
);

/** A bigint from 0 to 2^64 - 1, in eight bytes. */
export const u64: BigintType = /* @__PURE__ */ scalar(
  "u64",
  8,
  0n,
  0xffff_ffff_ffff_ffffn,
  (data, at) => data.getBigUint64(at, true),
  (data, at, value) => data.setBigUint64(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getBigUint64(this.$o + at, true);
    },
);

/** A bigint from -2^63 to 2^63 - 1, in eight bytes. */
export const i64: BigintType = /* @__PURE__ */ scalar(
  "i64",
  8,
  -0x8000_0000_0000_0000n,
  0x7fff_ffff_ffff_ffffn,
  (data, at) => data.getBigInt64(at, true),
  (data, at, value) => data.setBigInt64(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getBigInt64(this.$o + at, true);
    },
);

const TWO_32 = 0x1_0000_0000;

/** An i64 as a number, within what a number can say. */
function safe(
  kind: SimpleKind,
  layout: string,
  low: number,
  high: number,
): Type<number, number, number | Date, number> {
  const take = ({ $m: { data } }: Cursor, at: number): number => {
    const value = data.getInt32(at + 4, true) * TWO_32 + data.getUint32(at, true);
    if (value >= low && value <= high) return value;
    throw malformed(`number: not from ${low} to ${high}`);
  };
  return {
    kind: { kind },
    layout,
    bytes: 8,
    align: 8,
    put({ $m: { data } }, at, given) {
      const value = low !== 0 && given instanceof Date ? given.getTime() : (given as number);
      if (!(Number.isInteger(value) && value >= low && value <= high)) {
        throw outside(low, high, given);
      }
      data.setUint32(at, value >>> 0, true);
      data.setInt32(at + 4, Math.floor(value / TWO_32), true);
    },
    take,
  };
}

/**
 * A u64 as a number: an integer from 0 to 2^53 - 1, in eight bytes. Reading a larger one, which another
 * program may have stored, throws `MalformedValueError`.
 */
export const u53: NumberType = /* @__PURE__ */ safe(
  "u53",
  "u64",
  0,
  0x1f_ffff_ffff_ffff,
) as NumberType;

/**
 * A moment: milliseconds since 1970 as a number, stored as an i64. A `Date` may be stored as well.
 * Reading what is no date in JavaScript, beyond 8.64e15 either way, throws `MalformedValueError`.
 */
export const timestamp: Type<number, number, number | Date, number> = /* @__PURE__ */ safe(
  "timestamp",
  "i64",
  -8.64e15,
  8.64e15,
);

/** `true` or `false`, in one byte. */
export const bool: Type<boolean, boolean, boolean, boolean> = {
  kind: { kind: "bool" },
  layout: "bool",
  bytes: 1,
  align: 1,
  put(to, at, value) {
    if (typeof value !== "boolean") throw wrong("has to be true or false.", value);
    to.$m.data.setUint8(at, value ? 1 : 0);
  },
  take(from, at) {
    const byte = from.$m.data.getUint8(at);
    if (byte > 1) throw malformed(`bool: ${byte}`);
    return byte === 1;
  },
  getter: (at, slow) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      const byte = memory.data.getUint8(this.$o + at);
      return byte > 1 ? slow.call(this) : byte === 1;
    },
};
