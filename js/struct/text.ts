/** Text: of any length, or padded to a fixed one. */

import { reassign } from "./edit.js";
import {
  type Cursor,
  malformed,
  part,
  type Type,
  type Writer,
  whole,
  wrong,
  zero,
} from "./type.js";
import { readText, utf8Length, writeText } from "./utf8.js";

/** A type whose values are strings, written and read alike. */
export type TextType = Type<string, string, string, string>;

function takeStr(from: Cursor, at: number): string {
  const span = part(from, at, 1, 1);
  return readText(from.$m.u8, span.from, span.length);
}

/**
 * A string of any length: eight bytes in the struct and its UTF-8 elsewhere in the value. In an
 * update, text of the same length in bytes is written in place; any other makes the value anew when
 * the callback has returned.
 */
export const str: TextType = {
  kind: { kind: "str" },
  layout: "&str",
  bytes: 8,
  align: 4,
  extent: (value, end) => end + utf8Length(value),
  put(target, at, value) {
    const to = target as Writer;
    const offset = to.end;
    const length = writeText(to, value as string);
    to.$m.data.setUint32(at, offset, true);
    to.$m.data.setUint32(at + 4, length, true);
  },
  take: takeStr,
  plain: takeStr,
  verify: takeStr,
  span: (from, at) => part(from, at, 1, 1),
  assign: reassign,
  replace(to, at, value) {
    const { from, length } = part(to, at, 1, 1);
    if (utf8Length(value) !== length) return false;
    const end = from - to.$b;
    writeText({ $m: to.$m, $b: to.$b, $n: end + length, end }, value as string);
    return true;
  },
};

/**
 * A string of up to `length` bytes of UTF-8 that lies in the struct itself, padded with zeros. It
 * must not hold the character U+0000. In Rust: `FixedStr<N>`.
 */
export function fixedStr(length: number): TextType {
  const span = (from: Cursor, at: number) => {
    const { u8 } = from.$m;
    let count = 0;
    while (count < length && u8[at + count] !== 0) count++;
    return { from: at, length: count };
  };
  const take = (from: Cursor, at: number): string => {
    const { length: count } = span(from, at);
    const { u8 } = from.$m;
    for (let i = count; i < length; i++) {
      if (u8[at + i] !== 0) throw malformed(`zero: there is text after the one at ${count}.`);
    }
    return readText(u8, at, count);
  };
  return {
    kind: { kind: "fixedStr", length: whole(length) },
    layout: `str;${length}`,
    bytes: length,
    align: 1,
    put({ $m }, at, value) {
      const count = utf8Length(value);
      if (count > length || (value as string).includes("\0")) {
        throw wrong(`has to be a string of up to ${length} bytes in UTF-8, without U+0000.`, value);
      }
      writeText({ $m, $b: at, $n: count, end: 0 }, value as string);
      zero($m.u8, at + count, length - count);
    },
    take,
    plain: take,
    verify: take,
    span,
  };
}
