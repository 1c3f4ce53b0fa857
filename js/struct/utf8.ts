/** Reading and writing of UTF-8 in place. */

import { decoder, encoder } from "../util/text-coders.js";
import { badValue, malformed, reserve, type Writer } from "./type.js";

/** Up to this length, a loop over the characters is faster than a `TextDecoder`. Measured; see readText. */
const SHORT = 40;

/** Checks that a text can be encoded as UTF-8, which a lone surrogate cannot. */
export function textOf(value: unknown): string {
  if (typeof value !== "string") throw badValue("must be a string.", value);
  if (/\p{Surrogate}/u.test(value)) throw badValue("has a lone surrogate.", value);
  return value;
}

/** Writes a short ASCII text without zeros, and returns its length, or -1 for any other text, possibly after a part. */
export function putAscii(u8: Uint8Array, at: number, text: string): number {
  const { length } = text;
  let all = 0;
  if (length > SHORT) return -1;
  for (let i = 0; i < length; i++) {
    const unit = text.charCodeAt(i);
    all |= unit | (unit - 1);
    u8[at + i] = unit;
  }
  return all >>> 0 < 0x80 ? length : -1;
}

/** Writes a text at the writer's end, and returns its length in bytes. */
export function writeText(to: Writer, value: unknown): number {
  const text = typeof value === "string" ? value : textOf(value);
  // No UTF-16 unit takes more than three bytes.
  const at = reserve(to, 3 * text.length, 1);
  const { u8 } = to.m;
  let bytes = putAscii(u8, at, text);
  if (bytes < 0) bytes = encoder.encodeInto(text, u8.subarray(at)).written;
  if (bytes > text.length) textOf(text);
  to.end = at + bytes;
  return bytes;
}

/**
 * Decodes a text of `length` bytes. Short ASCII is decoded eight characters at a time, in half of the time that a call
 * of a `TextDecoder` takes (39 ns against 86 for 18 characters). All other text is decoded by a `TextDecoder`.
 */
export function readText(u8: Uint8Array, at: number, length: number): string {
  if (length > SHORT) return decode(u8, at, length);
  const end = at + length;
  let text = "";
  let i = at;
  for (; i + 8 <= end; i += 8) {
    const a = u8[i] as number;
    const b = u8[i + 1] as number;
    const c = u8[i + 2] as number;
    const d = u8[i + 3] as number;
    const e = u8[i + 4] as number;
    const f = u8[i + 5] as number;
    const g = u8[i + 6] as number;
    const h = u8[i + 7] as number;
    if ((a | b | c | d | e | f | g | h) > 0x7f) return decode(u8, at, length);
    text += String.fromCharCode(a, b, c, d, e, f, g, h);
  }
  for (; i < end; i++) {
    const a = u8[i] as number;
    if (a > 0x7f) return decode(u8, at, length);
    text += String.fromCharCode(a);
  }
  return text;
}

function decode(u8: Uint8Array, at: number, length: number): string {
  try {
    return decoder.decode(u8.subarray(at, at + length));
  } catch {
    throw malformed(`UTF-8: its ${length} bytes are invalid`);
  }
}
