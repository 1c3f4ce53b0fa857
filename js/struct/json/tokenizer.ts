/**
 * The JSON tokenizer: the text as bytes, and the position in it. One text is read at a time, so the state is global to
 * this module.
 */

import { decoder, newDecoder } from "../../util/text-coders.js";
import { malformed } from "../type.js";

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_LIST = 0x5b;
export const CLOSE_LIST = 0x5d;
export const OPEN = 0x7b;
export const CLOSE = 0x7d;
const MINUS = 0x2d;
const POINT = 0x2e;

/** The text, the position of the next byte, and the end. */
export const text = { bytes: new Uint8Array(0) as Uint8Array, at: 0, end: 0 };

const latin = newDecoder("latin1");

export function begin(bytes: Uint8Array, from: number, to: number): void {
  text.bytes = bytes;
  text.at = from;
  text.end = to;
}

/** Throws if there is more text after the value. */
export function finish(): void {
  peek();
  if (text.at > text.end) fail("unexpected end of text");
  if (text.at < text.end) wanted("end of text");
}

export function fail(why: string): never {
  throw malformed(why);
}

/** The text from `from` to the current position. */
export function written(from: number): string {
  return latin.decode(text.bytes.subarray(from, text.at));
}

export function wanted(what: string): never {
  const { bytes, at, end } = text;
  const found = at < end ? String.fromCharCode(bytes[at] as number) : "end of text";
  return fail(`expected ${what} at byte ${at}, found ${found}`);
}

/** Skips spaces and returns the next byte; 0 at the end. */
export function peek(): number {
  const { bytes } = text;
  let byte = bytes[text.at] as number;
  while (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
    byte = bytes[++text.at] as number;
  }
  return text.at < text.end ? byte : 0;
}

export function expect(byte: number): void {
  if (peek() !== byte) wanted(String.fromCharCode(byte));
  text.at += 1;
}

/** Consumes `byte` if it is next. Returns whether it was. */
export function next(byte: number): boolean {
  if (peek() !== byte) return false;
  text.at += 1;
  return true;
}

export function word(letters: string): void {
  for (let i = 0; i < letters.length; i++) {
    if (text.bytes[text.at + i] !== letters.charCodeAt(i)) wanted(letters);
  }
  text.at += letters.length;
}

/** Consumes `null` if it is next. Returns whether it was. */
export function isNull(): boolean {
  if (peek() !== 0x6e) return false;
  word("null");
  return true;
}

export function bool(): boolean {
  const yes = peek() === 0x74;
  word(yes ? "true" : "false");
  return yes;
}

function outside(kind: string, from: number): never {
  return fail(`${written(from)} is out of range for ${kind}`);
}

/** Reads digits. The value is exact up to 2^53; `NaN` if there are none, or if the number has a leading zero. */
function digits(): number {
  const { bytes, at: first } = text;
  let value = 0;
  let at = first;
  for (let byte = bytes[at] as number; byte >= 0x30 && byte <= 0x39; byte = bytes[++at] as number) {
    value = value * 10 + (byte - 0x30);
  }
  text.at = at;
  return at === first || (bytes[first] === 0x30 && at > first + 1) ? Number.NaN : value;
}

/** Whether a fraction or an exponent follows. */
function isFractionNext(): boolean {
  const byte = text.bytes[text.at] as number;
  return byte === POINT || (byte | 0x20) === 0x65;
}

/** A whole number within a range. */
export function readInteger(kind: string, least: number, most: number): number {
  const negative = peek() === MINUS;
  const start = text.at;
  if (negative) text.at += 1;
  let value = digits();
  if (Number.isNaN(value) || isFractionNext()) {
    text.at = start;
    value = number(kind);
    if (!Number.isInteger(value)) fail(`${written(start)} is not an integer for ${kind}`);
  } else if (negative) value = -value;
  if (value < least || value > most) outside(kind, start);
  return value;
}

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?$/;

/** Reads any number, with the platform's parser. */
function number(kind: string): number {
  const start = text.at;
  for (;;) {
    const byte = text.bytes[text.at] as number;
    const isDigit = byte >= 0x30 && byte <= 0x39;
    const isSign = byte === MINUS || byte === 0x2b;
    if (!isDigit && !isSign && byte !== POINT && (byte | 0x20) !== 0x65) break;
    text.at += 1;
  }
  const letters = written(start);
  if (NUMBER.test(letters)) return Number(letters);
  text.at = start;
  return wanted(`a number for ${kind}`);
}

const TENS = Array.from({ length: 16 }, (_, power) => 10 ** power);

/** Reads a number of up to 15 digits with a short fraction, exactly, by one division. `NaN` for any other. */
function short(): number {
  const negative = peek() === MINUS;
  const start = text.at;
  if (negative) text.at += 1;
  const first = text.at;
  let value = digits();
  let count = text.at - first;
  if (text.bytes[text.at] === POINT) {
    const point = ++text.at;
    const { bytes } = text;
    let byte = bytes[point] as number;
    for (; byte >= 0x30 && byte <= 0x39; byte = bytes[++text.at] as number) {
      value = value * 10 + (byte - 0x30);
    }
    const fraction = text.at - point;
    count = fraction === 0 ? 16 : count + fraction;
    value /= TENS[Math.min(fraction, 15)] as number;
  }
  if (Number.isNaN(value) || count > 15 || isFractionNext()) {
    text.at = start;
    return Number.NaN;
  }
  return negative ? -value : value;
}

const SPECIAL = /^"(?:NaN|-?Infinity)"$/;

export function float(kind: string): number {
  let value = short();
  if (!Number.isNaN(value)) return kind === "f32" ? single(value, text.at) : value;
  const start = text.at;
  if (peek() === QUOTE) {
    skipString();
    text.at += 1;
    const letters = written(start);
    return SPECIAL.test(letters)
      ? Number(letters.slice(1, -1))
      : fail(`${letters} is not a number`);
  }
  value = number(kind);
  return Number.isFinite(value)
    ? kind === "f32"
      ? single(value, start)
      : value
    : outside(kind, start);
}

/** Throws if a 32-bit float would be infinite. */
function single(value: number, start: number): number {
  return Number.isFinite(Math.fround(value)) ? value : outside("f32", start);
}

/** Reads a 64-bit integer exactly, from digits with or without quotes. Returns a number if it is exact. */
export function long(kind: "u64" | "i64"): number | bigint {
  const quoted = next(QUOTE);
  const start = text.at;
  const negative = text.bytes[start] === MINUS;
  if (negative) text.at += 1;
  let value: number | bigint = digits();
  if (Number.isNaN(value) || isFractionNext()) {
    text.at = start;
    wanted(`an integer for ${kind}`);
  }
  if (value <= Number.MAX_SAFE_INTEGER) value = negative ? -value : value;
  else {
    value = BigInt(written(start));
    const fits = kind === "u64" ? BigInt.asUintN(64, value) : BigInt.asIntN(64, value);
    if (fits !== value) outside(kind, start);
  }
  if (value < 0 && kind === "u64") outside(kind, start);
  if (quoted && text.bytes[text.at++] !== QUOTE) fail(`${written(start)} is not an integer`);
  return value;
}

const ISO =
  /^"(((?:\d{4}|[-+]\d{6})-\d\d-(\d\d))T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[-+]\d\d:\d\d))"$/;

/** The latest time that a Date can represent. */
export const LATEST = 8.64e15;

/** Reads a time as milliseconds or in ISO 8601. */
export function time(): number {
  if (peek() !== QUOTE) return readInteger("timestamp", -LATEST, LATEST);
  const start = text.at;
  skipString();
  text.at += 1;
  const letters = written(start);
  const [, moment = "", day, date] = ISO.exec(letters) ?? [];
  const value = Date.parse(moment);
  // Some engines read February 30 as March 1.
  const isDay = new Date(`${day}T00:00Z`).getUTCDate() === Number(date);
  return Number.isNaN(value) || !isDay ? fail(`${letters} is not an ISO 8601 time`) : value;
}

/** Skips a value, checking only strings and brackets. */
export function skip(): void {
  let depth = 0;
  do {
    const byte = peek();
    if (byte === 0) wanted("the end of a value");
    if (byte === QUOTE) skipString();
    else if (byte === OPEN || byte === OPEN_LIST) depth += 1;
    else if (byte === CLOSE || byte === CLOSE_LIST) depth -= 1;
    else if (depth === 0) {
      if (byte === COMMA) wanted("a value");
      while (!isDelimiter(text.bytes[text.at] as number)) text.at += 1;
      return;
    }
    if (depth < 0) wanted("a value");
    text.at += 1;
  } while (depth > 0);
}

function isDelimiter(byte: number): boolean {
  return !(byte > 0x20) || byte === COMMA || byte === CLOSE || byte === CLOSE_LIST;
}

/** Moves to the closing quote. */
export function skipString(): void {
  const { bytes } = text;
  for (text.at += 1; bytes[text.at] !== QUOTE; text.at++) {
    if (bytes[text.at] === BACKSLASH) text.at += 1;
    if (text.at >= text.end) wanted("the end of a string");
  }
}

/** The number of items up to the end of the current list. */
export function countItems(): number {
  const start = text.at;
  let count = 0;
  if (peek() !== CLOSE_LIST) {
    do {
      skip();
      count += 1;
    } while (next(COMMA));
  }
  text.at = start;
  return count;
}

/** Throws unless the text since `from` is UTF-8. */
export function checkUtf8(from: number): string {
  try {
    return decoder.decode(text.bytes.subarray(from, text.at));
  } catch {
    return fail(`the text from byte ${from} is not UTF-8`);
  }
}
