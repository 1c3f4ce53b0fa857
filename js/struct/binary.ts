/** Bytes: of any number, or of a fixed one. */

import { reassign } from "./edit.js";
import { type Cursor, part, reserve, type Type, type Writer, whole, wrong } from "./type.js";

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

function copy(bytes: Uint8Array, json: boolean): unknown {
  if (!json) return bytes.slice();
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return btoa(letters);
}

/** That many bytes, which lie in the struct itself. */
export function bytes(length: number): BytesType {
  const take = ({ $m }: Cursor, at: number) => $m.u8.subarray(at, at + length);
  return {
    kind: { kind: "bytes", length: whole(length) },
    layout: `[u8;${length}]`,
    bytes: length,
    align: 1,
    put: ({ $m }, at, value) => $m.u8.set(bytesOf(value, length), at),
    take,
    plain: (from, at, json) => copy(take(from, at), json),
    verify: () => {},
    span: (_, at) => ({ from: at, length }),
  };
}

const span = (from: Cursor, at: number) => part(from, at, 1, 1);

function take(from: Cursor, at: number): Uint8Array {
  const { from: start, length } = span(from, at);
  return from.$m.u8.subarray(start, start + length);
}

/**
 * Bytes of any number: eight in the struct, and they themselves elsewhere in the value. In an update,
 * as many as before are written in place; any other number makes the value anew.
 */
export const blob: BytesType = {
  kind: { kind: "blob" },
  layout: "&[u8]",
  bytes: 8,
  align: 4,
  extent: (value, end) => end + bytesOf(value).length,
  put(target, at, value) {
    const to = target as Writer;
    const given = bytesOf(value);
    const offset = reserve(to, given.length, 1);
    to.$m.u8.set(given, to.$b + offset);
    to.$m.data.setUint32(at, offset, true);
    to.$m.data.setUint32(at + 4, given.length, true);
  },
  take,
  plain: (from, at, json) => copy(take(from, at), json),
  verify: take,
  span,
  assign: reassign,
  replace(to, at, value) {
    const old = take(to, at);
    const same = old.length === bytesOf(value).length;
    if (same) old.set(value as Uint8Array);
    return same;
  },
};
