/** Numbers of every size, each range-checked: an unchecked `-= 1` at zero would store 65535. */

import type { SimpleKind } from "./codec.js";
import { alive, type Cursor, malformed, stale, type Type, within, wrong } from "./type.js";

/** A type whose values are numbers, written and read alike. */
export type NumberType = Type<number, number, number, number>;

/** A type whose values are bigints, written and read alike. */
export type BigintType = Type<bigint, bigint, bigint, bigint>;

type Getter = (at: number, label: string) => (this: Cursor) => unknown;

function scalar<T extends number | bigint>(
  kind: SimpleKind,
  bytes: number,
  expected: string,
  get: (data: DataView, at: number) => T,
  fits: (value: T) => boolean,
  set: (data: DataView, at: number, value: T) => void,
  getter?: Getter,
  layout: string = kind,
): Type<T, T, T, T> {
  const typed = kind === "u64" || kind === "i64" ? "bigint" : "number";
  const take = (from: Cursor, at: number): T => get(from.$m.data, at);
  return {
    kind: { kind },
    layout,
    bytes,
    align: bytes,
    put(to, at, value) {
      if (typeof value !== typed || !fits(value as T)) throw wrong(`has to be ${expected}.`, value);
      set(to.$m.data, at, value as T);
    },
    take,
    plain(from, at, json) {
      const value = take(from, at);
      // JSON has no such numbers: "NaN", "-Infinity", "18446744073709551615".
      return json && !Number.isFinite(value) ? String(value) : value;
    },
    verify: take,
    getter,
  };
}

const between = (low: number | string, high: number | string): string =>
  `an integer from ${low} to ${high}`;

// Each getter is written out: one that called another function through a variable would not be
// inlined, and cost five times as much.

/** An integer from 0 to 255, in one byte. */
export const u8: NumberType = /* @__PURE__ */ scalar(
  "u8",
  1,
  /* @__PURE__ */ between(0, 0xff),
  (data, at) => data.getUint8(at),
  (value) => (value & 0xff) === value,
  (data, at, value) => data.setUint8(at, value),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getUint8(this.$o + at);
    },
);

/** An integer from 0 to 65,535, in two bytes. */
export const u16: NumberType = /* @__PURE__ */ scalar(
  "u16",
  2,
  /* @__PURE__ */ between(0, 0xffff),
  (data, at) => data.getUint16(at, true),
  (value) => (value & 0xffff) === value,
  (data, at, value) => data.setUint16(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getUint16(this.$o + at, true);
    },
);

/** An integer from 0 to 4,294,967,295, in four bytes. */
export const u32: NumberType = /* @__PURE__ */ scalar(
  "u32",
  4,
  /* @__PURE__ */ between(0, 0xffff_ffff),
  (data, at) => data.getUint32(at, true),
  (value) => value >>> 0 === value,
  (data, at, value) => data.setUint32(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getUint32(this.$o + at, true);
    },
);

/** An integer from -128 to 127, in one byte. */
export const i8: NumberType = /* @__PURE__ */ scalar(
  "i8",
  1,
  /* @__PURE__ */ between(-0x80, 0x7f),
  (data, at) => data.getInt8(at),
  (value) => (value << 24) >> 24 === value,
  (data, at, value) => data.setInt8(at, value),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getInt8(this.$o + at);
    },
);

/** An integer from -32,768 to 32,767, in two bytes. */
export const i16: NumberType = /* @__PURE__ */ scalar(
  "i16",
  2,
  /* @__PURE__ */ between(-0x8000, 0x7fff),
  (data, at) => data.getInt16(at, true),
  (value) => (value << 16) >> 16 === value,
  (data, at, value) => data.setInt16(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getInt16(this.$o + at, true);
    },
);

/** An integer from -2,147,483,648 to 2,147,483,647, in four bytes. */
export const i32: NumberType = /* @__PURE__ */ scalar(
  "i32",
  4,
  /* @__PURE__ */ between(-0x8000_0000, 0x7fff_ffff),
  (data, at) => data.getInt32(at, true),
  (value) => (value | 0) === value,
  (data, at, value) => data.setInt32(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getInt32(this.$o + at, true);
    },
);

/** A number of single precision, in four bytes. Finite numbers beyond its range are refused. */
export const f32: NumberType = /* @__PURE__ */ scalar(
  "f32",
  4,
  "a number that a float of 32 bits can hold",
  (data, at) => data.getFloat32(at, true),
  (value) => isFloat(value),
  (data, at, value) => data.setFloat32(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getFloat32(this.$o + at, true);
    },
);

/** A number, in eight bytes: any that JavaScript has. */
export const f64: NumberType = /* @__PURE__ */ scalar(
  "f64",
  8,
  "a number",
  (data, at) => data.getFloat64(at, true),
  () => true,
  (data, at, value) => data.setFloat64(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getFloat64(this.$o + at, true);
    },
);

function isFloat(value: number): boolean {
  return Number.isFinite(Math.fround(value)) || !Number.isFinite(value);
}

/** A bigint from 0 to 2^64 - 1, in eight bytes. */
export const u64: BigintType = /* @__PURE__ */ scalar(
  "u64",
  8,
  /* @__PURE__ */ between("0n", "2n ** 64n - 1n"),
  (data, at) => data.getBigUint64(at, true),
  (value) => BigInt.asUintN(64, value) === value,
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
  /* @__PURE__ */ between("-(2n ** 63n)", "2n ** 63n - 1n"),
  (data, at) => data.getBigInt64(at, true),
  (value) => BigInt.asIntN(64, value) === value,
  (data, at, value) => data.setBigInt64(at, value, true),
  (at) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      return memory.data.getBigInt64(this.$o + at, true);
    },
);

const TWO_32 = 0x1_0000_0000;

/** Puts together what lies in two halves; throws where a number is not to say it. */
function safe(low: number, high: number, limit: number): number {
  const value = high * TWO_32 + low;
  if (Math.abs(value) <= limit) return value;
  throw malformed(
    `number: ${(BigInt(high) << 32n) + BigInt(low)} is beyond ${limit}: read it with u64 or i64.`,
  );
}

const LAST = Number.MAX_SAFE_INTEGER;

/**
 * A u64 as a number: an integer from 0 to 2^53 - 1, in eight bytes. Reading a larger one, which another
 * program may have stored, throws `MalformedValueError`.
 */
export const u53: NumberType = /* @__PURE__ */ scalar(
  "u53",
  8,
  /* @__PURE__ */ between(0, "2 ** 53 - 1"),
  (data, at) => safe(data.getUint32(at, true), data.getUint32(at + 4, true), LAST),
  (value) => Number.isSafeInteger(value) && value >= 0,
  setHalves,
  (at, label) =>
    function () {
      alive(this);
      const { data } = this.$m;
      const place = this.$o + at;
      try {
        return safe(data.getUint32(place, true), data.getUint32(place + 4, true), LAST);
      } catch (error) {
        throw within(error, label);
      }
    },
  "u64",
);

/** The last moment that is a date in JavaScript. */
const LAST_TIME = 8_640_000_000_000_000;

const moment = /* @__PURE__ */ scalar<number>(
  "timestamp",
  8,
  "a date: an integer of milliseconds within 8,640,000,000,000,000 or a Date",
  (data, at) => safe(data.getUint32(at, true), data.getInt32(at + 4, true), LAST_TIME),
  (value) => Number.isInteger(value) && Math.abs(value) <= LAST_TIME,
  setHalves,
  undefined,
  "i64",
);

/**
 * A moment: milliseconds since 1970 as a number, stored as an i64. A `Date` may be stored as well.
 * Reading what is no date in JavaScript, 8.64e15 and more
 * either way, throws `MalformedValueError`.
 */
export const timestamp: Type<number, number, number | Date, number> = {
  ...moment,
  put: (to, at, value) => moment.put(to, at, value instanceof Date ? value.getTime() : value),
};

function setHalves(data: DataView, at: number, value: number): void {
  data.setUint32(at, value >>> 0, true);
  data.setInt32(at + 4, Math.floor(value / TWO_32), true);
}

function truth(byte: number): boolean {
  if (byte > 1) throw malformed(`bool: ${byte} is neither 0 nor 1.`);
  return byte === 1;
}

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
  take: (from, at) => truth(from.$m.data.getUint8(at)),
  plain: (from, at) => truth(from.$m.data.getUint8(at)),
  verify: (from, at) => truth(from.$m.data.getUint8(at)),
  getter: (at, label) =>
    function () {
      const memory = this.$m;
      if (this.$e !== memory.epoch) stale();
      const byte = memory.data.getUint8(this.$o + at);
      if (byte > 1) throw within(malformed(`bool: ${byte} is neither 0 nor 1.`), label);
      return byte === 1;
    },
};
