/** Types for text, of any length or padded to a fixed one. */

import { encoder } from "../../util/text-coders.js";
import { badValue, type Cursor, declaredLength, malformed, type Type, typed } from "../type.js";
import { putAscii, readText, textOf, writeText } from "../utf8.js";
import { referred } from "./out-of-line.js";

/** A type whose values are strings, both to read and to store. */
export type TextType = Type<string, string, string, string>;

/**
 * A string of any length: eight bytes in the struct, and its UTF-8 elsewhere in the value. In an update, text
 * of the same length in bytes is written in place; any other rebuilds the value when the callback has
 * returned.
 */
export const str: TextType = /* @__PURE__ */ referred(
  { kind: "str" },
  { bytes: 1, align: 1 },
  writeText,
  ({ u8, from, length }) => readText(u8, from, length),
);

/**
 * A string of up to `length` bytes of UTF-8, stored in the struct itself and padded with zeros. It must not
 * contain U+0000. In Rust, `FixedStr<N>`.
 */
export function fixedStr(length: number): TextType {
  const span = ({ m: { u8 } }: Cursor, from: number) => {
    let count = 0;
    while (count < length && u8[from + count] !== 0) count++;
    return { u8, from, length: count };
  };
  return typed(
    { kind: "fixedStr", length: declaredLength(length) },
    length,
    1,
    ({ m }, at, value) => {
      const isShort = typeof value === "string" && value.length <= length;
      if (isShort && putAscii(m.u8, at, value) >= 0) return;
      const bytes = encoder.encode(textOf(value));
      if (bytes.length > length || bytes.includes(0)) {
        throw badValue(`must be a string of up to ${length} bytes, without U+0000.`, value);
      }
      m.u8.set(bytes, at);
    },
    (from, at) => {
      const { u8, length: count } = span(from, at);
      for (let i = count; i < length; i++) {
        if (u8[at + i] !== 0) throw malformed(`zero: text after ${count}`);
      }
      return readText(u8, at, count);
    },
    { composite: true, span },
  );
}
