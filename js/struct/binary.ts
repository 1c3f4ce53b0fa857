/** Bytes: of any number, or of a fixed one. */

import { referred } from "./referred.js";
import { type Cursor, type Mode, reserve, type Type, whole, wrong } from "./type.js";

/**
 * A type whose values are bytes. A view gives a `Uint8Array` of the memory itself, as `get` of a
 * database does, and as short-lived: in an update it is over when a part gets another length.
 */
export type BytesType = Type<Uint8Array, Uint8Array, Uint8Array, Uint8Array<ArrayBuffer>>;

function bytesOf(value: unknown, length?: number): Uint8Array {
  const given = ArrayBuffer.isView(value) && (value as Partial<Uint8Array>).BYTES_PER_ELEMENT === 1;
  if (!given || (length !== undefined && value.byteLength !== length)) {
    throw wrong(
      `has to be a Uint8Array${length === undefined ? "" : ` of ${length} bytes`}.`,
      value,
    );
  }
  return value as Uint8Array;
}

function copy(bytes: Uint8Array, mode: Mode): unknown {
  if (mode !== 1) return mode === 0 ? bytes.slice() : undefined;
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
}

function slice(u8: Uint8Array, at: number, length: number): Uint8Array {
  return u8.subarray(at, at + length);
}

/** That many bytes, which lie in the struct itself. */
export function bytes(length: number): BytesType {
  const take = ({ $m }: Cursor, at: number) => slice($m.u8, at, length);
  return {
    kind: { kind: "bytes", length: whole(length) },
    layout: `[u8;${length}]`,
    bytes: length,
    align: 1,
    put: ({ $m }, at, value) => $m.u8.set(bytesOf(value, length), at),
    take,
    plain: (from, at, mode) => copy(take(from, at), mode),
    span: (_, at) => ({ from: at, length }),
  };
}

/**
 * Bytes of any number: eight in the struct, and they themselves elsewhere in the value. In an update,
 * as many as before are written in place; any other number makes the value anew.
 */
export const blob: BytesType = /* @__PURE__ */ referred(
  "blob",
  "&[u8]",
  (value) => bytesOf(value).length,
  (to, value: Uint8Array) => to.$m.u8.set(value, to.$b + reserve(to, value.length, 1)),
  slice,
  (from, at, mode) => copy(blob.take(from, at) as Uint8Array, mode),
);
