/** Types for bytes: `bytes` of fixed length, `blob` of any length. */

import { badValue, reserve, type Type, typed, whole } from "../type.js";
import { referred } from "./out-of-line.js";

/**
 * A type whose values are bytes. A view gives a `Uint8Array` of the memory itself, valid as long as one from
 * `get` of a database. In an update, it ends when a part gets another length.
 */
export type BytesType = Type<Uint8Array, Uint8Array, Uint8Array, Uint8Array<ArrayBuffer>>;

function bytesOf(value: unknown, length?: number): Uint8Array {
  const given = ArrayBuffer.isView(value) && (value as Partial<Uint8Array>).BYTES_PER_ELEMENT === 1;
  if (given && (length ?? value.byteLength) === value.byteLength) return value as Uint8Array;
  throw badValue(
    `must be a Uint8Array${length === undefined ? "" : ` of ${length} bytes`}.`,
    value,
  );
}

/** Exactly `length` bytes, stored in the struct itself. */
export function bytes(length: number): BytesType {
  return typed(
    { kind: "bytes", length: whole(length) },
    length,
    1,
    ({ m }, at, value) => m.u8.set(bytesOf(value, length), at),
    ({ m }, at) => m.u8.subarray(at, at + length),
    { span: ({ m }, from) => ({ u8: m.u8, from, length }) },
  );
}

/**
 * Any number of bytes: eight bytes in the struct, and the bytes elsewhere in the value. In an update, the
 * same number of bytes is written in place; any other number makes the value anew.
 */
export const blob: BytesType = /* @__PURE__ */ referred(
  { kind: "blob" },
  { bytes: 1, align: 1 },
  (to, value) => {
    const given = bytesOf(value);
    const at = reserve(to, given.length, 1);
    to.m.u8.set(given, at);
    return given.length;
  },
  ({ u8, from, length }) => u8.subarray(from, from + length),
);
