/**
 * The keys of IndexedDB as bytes in the same order: numbers, dates, strings by their UTF-16 units, bytes, arrays. Every part
 * ends by itself: a number after eight bytes, and all else with a zero, which occurs nowhere else in it.
 */

import { isTooDeep } from "../../struct/plain-json.js";
import { refused } from "../raw.js";

/** A key of IndexedDB, as its `IDBValidKey`, which only the types of pages have. */
export type ValidKey = number | string | Date | ArrayBuffer | ArrayBufferView | ValidKey[];

const NUMBER = 1;
const DATE = 2;
const STRING = 3;
const BYTES = 4;
const ARRAY = 5;

const double = new DataView(new ArrayBuffer(8));

/** The error for what is no key, with the name that IndexedDB gives it. */
function noKey(given: unknown): TypeError {
  const expected = "A key must be a number, a valid Date, a string, bytes, or an array of such.";
  return Object.assign(refused(expected, given), { name: "DataError" });
}

/** The bytes of a key, after those of a prefix. @throws TypeError (its name is DataError) for what is no key */
export function keyBytes(prefix: Uint8Array, key: unknown): Uint8Array {
  const out = [...prefix];
  try {
    append(out, key);
  } catch (error) {
    // An array that contains itself.
    throw isTooDeep(error) ? noKey(key) : error;
  }
  return new Uint8Array(out);
}

function append(out: number[], key: unknown): void {
  if (typeof key === "number") appendNumber(out, NUMBER, key);
  else if (key instanceof Date) appendNumber(out, DATE, key.getTime());
  else if (typeof key === "string") {
    appendUnits(out, STRING, key.length, (i) => key.charCodeAt(i));
  } else if (Array.isArray(key)) {
    out.push(ARRAY);
    for (const part of key) append(out, part);
    out.push(0);
  } else {
    const bytes = bytesOf(key);
    if (bytes === undefined) throw noKey(key);
    appendUnits(out, BYTES, bytes.length, (i) => bytes[i] as number);
  }
}

/** Any bytes, as an array of bytes; `undefined` for anything else. */
function bytesOf(given: unknown): Uint8Array | undefined {
  if (given instanceof ArrayBuffer) return new Uint8Array(given);
  if (!ArrayBuffer.isView(given)) return undefined;
  return new Uint8Array(given.buffer, given.byteOffset, given.byteLength);
}

function appendNumber(out: number[], kind: number, value: number): void {
  if (Number.isNaN(value)) throw noKey(value);
  // 0 and -0 are the same key. The bits of negative numbers are inverted, since their order is the reverse one.
  double.setFloat64(0, value + 0);
  const flip = value < 0 ? 0xff : 0;
  out.push(kind, double.getUint8(0) ^ flip ^ (flip ? 0 : 0x80));
  for (let i = 1; i < 8; i += 1) out.push(double.getUint8(i) ^ flip);
}

/** Units of 16 bits, each increased by one, in the manner of UTF-8, and a zero. */
function appendUnits(out: number[], kind: number, length: number, at: (i: number) => number) {
  out.push(kind);
  for (let i = 0; i < length; i += 1) {
    const unit = at(i) + 1;
    if (unit < 0x80) out.push(unit);
    else if (unit < 0x800) out.push(0xc0 | (unit >> 6), 0x80 | (unit & 63));
    else out.push(0xe0 | (unit >> 12), 0x80 | ((unit >> 6) & 63), 0x80 | (unit & 63));
  }
  out.push(0);
}

/** The key of these bytes, which begin with a prefix of this length. */
export function keyOf(bytes: Uint8Array, prefixLength: number): ValidKey {
  let at = prefixLength;
  const next = () => bytes[at++] as number;
  const number = () => {
    const first = next();
    const flip = first < 0x80 ? 0xff : 0;
    double.setUint8(0, first ^ flip ^ (flip ? 0 : 0x80));
    for (let i = 1; i < 8; i += 1) double.setUint8(i, next() ^ flip);
    return double.getFloat64(0);
  };
  const units = () => {
    const found: number[] = [];
    for (let unit = next(); unit !== 0; unit = next()) {
      if (unit >= 0xe0) unit = ((unit & 31) << 12) | ((next() & 63) << 6) | (next() & 63);
      else if (unit >= 0xc0) unit = ((unit & 31) << 6) | (next() & 63);
      found.push(unit - 1);
    }
    return found;
  };
  const part = (): ValidKey => {
    const kind = next();
    if (kind === NUMBER) return number();
    if (kind === DATE) return new Date(number());
    if (kind === STRING)
      return units()
        .map((unit) => String.fromCharCode(unit))
        .join("");
    if (kind === BYTES) return new Uint8Array(units()).buffer;
    const parts: ValidKey[] = [];
    for (; bytes[at] !== 0; ) parts.push(part());
    at += 1;
    return parts;
  };
  return part();
}
