/** Types for bytes: `bytes` of fixed length, `blob` of any length. */

import { byteLengthOf } from "../byte-length.js";
import { badValue, declaredLength, reserve, type Type, typed } from "../type.js";
import { referred } from "./out-of-line.js";

/**
 * A type whose values are bytes. A view gives a `Uint8Array` of the memory itself, valid as long as one from
 * `get` of a database. In an update, it ends when a part gets another length.
 */
export type BytesType = Type<Uint8Array, Uint8Array, Uint8Array, Uint8Array<ArrayBuffer>>;

/** The true byte length of a value for such a field. Throws if it is something else, or has another length. */
function checkedLength(value: unknown, length?: number): number {
  const given = byteLengthOf(value);
  if (given >= 0 && given === (length ?? given)) return given;
  throw badValue(
    `must be a Uint8Array${length === undefined ? "" : ` of ${length} bytes`}, not detached.`,
    value,
  );
}

/** Exactly `length` bytes, stored in the struct itself. */
export function bytes(length: number): BytesType {
  return typed(
    { kind: "bytes", length: declaredLength(length) },
    length,
    1,
    ({ m }, at, value) => {
      checkedLength(value, length);
      m.u8.set(value as Uint8Array, at);
    },
    ({ m }, at) => m.u8.subarray(at, at + length),
    { span: ({ m }, from) => ({ u8: m.u8, from, length }) },
  );
}

/**
 * Any number of bytes: eight bytes in the struct, and the bytes elsewhere in the value. In an update, the
 * same number of bytes is written in place; any other number rebuilds the value.
 */
export const blob: BytesType = /* @__PURE__ */ referred(
  { kind: "blob" },
  { bytes: 1, align: 1 },
  (to, value) => {
    const length = checkedLength(value);
    const at = reserve(to, length, 1);
    to.m.u8.set(value as Uint8Array, at);
    return length;
  },
  ({ u8, from, length }) => u8.subarray(from, from + length),
);
