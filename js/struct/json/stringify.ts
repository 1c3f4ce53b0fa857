/** Converts the bytes of a value to JSON text, in one pass and without objects. */

import type { Memory } from "../codec.js";
import type { Leaf } from "../layout.js";
import { type Cursor, malformed, outOfLineSpan, placeOf, prefixField, walking } from "../type.js";
import { readText } from "../utf8.js";
import { type Node, OP } from "./plan.js";
import { LATEST } from "./tokenizer.js";

/** The text, as UTF-8. */
let out = new Uint8Array(4096);
let end = 0;
/** The memory that is read. */
let from: Cursor;
let data: DataView;
let u8: Uint8Array;

/** The type to be written. */
export interface Writing {
  readonly name: string;
  readonly node: Node;
  readonly leaves: readonly Leaf[];
}

/** Writes a value as JSON. The text is valid until the next one is written. */
export function write(what: Writing, memory: Memory, at: number, length: number): Uint8Array {
  const { node } = what;
  open(placeOf(memory, at, length));
  end = 0;
  try {
    if (node.op === OP.text) string(at, length);
    else if (node.op === OP.json) copy(u8.subarray(at, at + length));
    else if (!node.parts) writeRoot(what, at, length);
    else walking(length, () => writeRoot(what, at, length));
  } catch (error) {
    throw prefixField(error, what.name);
  }
  return out.subarray(0, end);
}

/** Writes a part of a value, or the items of a list, as `write`. */
export function writePart(what: Writing, cursor: Cursor, items?: number): Uint8Array {
  const { name, node } = what;
  open(cursor);
  end = 0;
  try {
    walking(cursor.n, () => {
      if (items !== undefined) list(node, cursor.o, items);
      else if (node.root > 0) writeRoot(what, cursor.o, cursor.n);
      else writeValue(node, cursor.o);
    });
  } catch (error) {
    throw prefixField(error, name);
  }
  return out.subarray(0, end);
}

function open(cursor: Cursor): void {
  from = cursor;
  data = cursor.m.data;
  u8 = cursor.m.u8;
}

function writeRoot({ node, leaves }: Writing, at: number, length: number): void {
  const { root, size } = node;
  const storedSize = root > 0 && length >= 2 ? data.getUint16(at, true) : size;
  if (length < Math.min(storedSize, size)) {
    throw malformed(`size: ${length} bytes, but the fields need ${size}.`);
  }
  if (root <= storedSize) writeValue(node, at);
  else writeOlder(node, leaves, at, storedSize);
}

/** Writes a value of an earlier version, with the defaults of the fields that it lacks. */
function writeOlder(node: Node, leaves: readonly Leaf[], at: number, root: number): void {
  const value = from;
  let index = 0;
  for (const [leafIndex, { name, node: field, start, form }] of node.fields.entries()) {
    if (form?.skip) continue;
    const fallback = leaves[leafIndex]?.type.fallback;
    copy(node.heads[index++] as Uint8Array);
    if (start + field.size <= root) writeValue(field, at + start);
    else {
      if (fallback === undefined) throw malformed(`size: field ${name} is missing.`);
      open(fallback.from);
      writeValue(field, fallback.from.o);
      open(value);
    }
  }
  byte(0x7d);
}

/** Maximum bytes of JSON, because a string in V8 cannot have more characters. */
const MAX_JSON_BYTES = 536_870_888;

/** Makes sure that `more` bytes fit. */
function ensureCapacity(more: number): void {
  const need = end + more;
  if (need <= out.length) return;
  if (need > MAX_JSON_BYTES)
    throw malformed(`range: its JSON has more than ${MAX_JSON_BYTES} bytes.`);
  const larger = new Uint8Array(Math.min(2 * need, MAX_JSON_BYTES));
  larger.set(out);
  out = larger;
}

function byte(value: number): void {
  ensureCapacity(1);
  out[end++] = value;
}

function copy(bytes: Uint8Array): void {
  const { length } = bytes;
  ensureCapacity(length);
  if (length > 32) out.set(bytes, end);
  else for (let i = 0; i < length; i++) out[end + i] = bytes[i] as number;
  end += length;
}

function ascii(text: string): void {
  ensureCapacity(text.length);
  for (let i = 0; i < text.length; i++) out[end++] = text.charCodeAt(i);
}

function writeValue(node: Node, at: number): void {
  switch (node.op) {
    case OP.u8:
      writeInteger(u8[at] as number);
      break;
    case OP.u16:
      writeInteger(data.getUint16(at, true));
      break;
    case OP.u32:
      writeInteger(data.getUint32(at, true));
      break;
    case OP.i8:
      writeInteger(data.getInt8(at));
      break;
    case OP.i16:
      writeInteger(data.getInt16(at, true));
      break;
    case OP.i32:
      writeInteger(data.getInt32(at, true));
      break;
    case OP.f32:
      float(data.getFloat32(at, true));
      break;
    case OP.f64:
      float(data.getFloat64(at, true));
      break;
    case OP.u64:
      quoted(data.getUint32(at + 4, true), at, false);
      break;
    case OP.i64:
      quoted(data.getInt32(at + 4, true), at, true);
      break;
    case OP.u53:
      writeInteger(safe(data.getUint32(at + 4, true), at, Number.MAX_SAFE_INTEGER));
      break;
    case OP.timestamp:
      writeInteger(safe(data.getInt32(at + 4, true), at, LATEST));
      break;
    case OP.bool:
      ascii(pick(u8[at] as number, BOOLS, "bool"));
      break;
    default:
      writeLarger(node, at);
      break;
  }
}

const BOOLS = ["false", "true"];

/** The name for a number. Throws if there is none. */
function pick<T>(index: number, list: readonly T[], kind: string): T {
  if (index < list.length) return list[index] as T;
  const why = kind === "bool" ? "bool" : "discriminant";
  throw malformed(`${why}: ${index}, but ${kind} has only ${list.length} values.`);
}

function writeLarger(node: Node, at: number): void {
  switch (node.op) {
    case OP.enum8:
      copy(pick(u8[at] as number, node.heads, node.kind));
      break;
    case OP.enum16:
      copy(pick(data.getUint16(at, true), node.heads, node.kind));
      break;
    case OP.bytes:
      base64(at, node.count);
      break;
    case OP.fixedStr:
      string(at, lengthOf(at, node.count));
      break;
    case OP.str: {
      const { from: start, length } = outOfLineSpan(from, at, 1, 1);
      string(start, length);
      break;
    }
    case OP.blob: {
      const { from: start, length } = outOfLineSpan(from, at, 1, 1);
      base64(start, length);
      break;
    }
    case OP.array:
      list(node.of, at, node.count);
      break;
    case OP.vec: {
      const { from: start, length } = outOfLineSpan(from, at, node.of.size, node.of.align);
      list(node.of, start, length);
      break;
    }
    case OP.option: {
      const some = pick(u8[at] as number, BOOLS, node.kind) === "true";
      if (some) writeValue(node.of, at + (node.starts[0] as number));
      else ascii("null");
      break;
    }
    case OP.optNonZero:
      if (isZero(at, node.size)) ascii("null");
      else writeValue(node.of, at);
      break;
    case OP.union:
      writeUnion(node, at);
      break;
    case OP.tagged:
      writeTagged(node, at);
      break;
    case OP.tag:
      copy(node.heads[0] as Uint8Array);
      break;
    default:
      writeStruct(node, at);
      break;
  }
}

function isZero(at: number, size: number): boolean {
  for (let i = 0; i < size; i++) if (u8[at + i] !== 0) return false;
  return true;
}

/** The number of 64 bits whose upper half is `high`. */
function safe(high: number, at: number, most: number): number {
  const value = high * 0x1_0000_0000 + data.getUint32(at, true);
  if (Math.abs(value) <= most) return value;
  throw malformed(`number: ${value} exceeds ${most}.`);
}

/** Writes 64 bits as a string, because most readers would round a number. */
function quoted(high: number, at: number, signed: boolean): void {
  const value = high * 0x1_0000_0000 + data.getUint32(at, true);
  byte(0x22);
  if (Number.isSafeInteger(value)) writeInteger(value);
  else ascii(String(signed ? data.getBigInt64(at, true) : data.getBigUint64(at, true)));
  byte(0x22);
}

/** Writes the digits of a safe integer. */
function writeInteger(value: number): void {
  ensureCapacity(20);
  let rest = value;
  if (rest < 0) {
    out[end++] = 0x2d;
    rest = -rest;
  }
  if (rest > 0x7fff_ffff) {
    ascii(String(rest));
    return;
  }
  let count = 1;
  for (let limit = 10; rest >= limit; limit *= 10) count++;
  for (let at = end + count - 1; at >= end; at--) {
    const tenth = (rest / 10) | 0;
    out[at] = 0x30 + rest - tenth * 10;
    rest = tenth;
  }
  end += count;
}

function float(value: number): void {
  if ((value | 0) === value && (value !== 0 || !Object.is(value, -0))) writeInteger(value);
  else if (Number.isFinite(value)) ascii(value === 0 ? "-0" : String(value));
  else ascii(`"${value}"`);
}

/** The length of a padded text, without its zeros. */
function lengthOf(at: number, most: number): number {
  let length = most;
  while (length > 0 && u8[at + length - 1] === 0) length--;
  for (let i = at; i < at + length; i++) {
    if (u8[i] === 0) throw malformed("zero: text after a zero byte.");
  }
  return length;
}

const SHORT = ["b", "t", "n", "", "f", "r"];

/** Writes UTF-8, with the escapes that JSON requires. */
function string(start: number, length: number): void {
  ensureCapacity(6 * length + 2);
  let to = end;
  let high = 0;
  out[to++] = 0x22;
  for (let at = start; at < start + length; at++) {
    const letter = u8[at] as number;
    if (letter < 0x20 || letter === 0x22 || letter === 0x5c) {
      out[to++] = 0x5c;
      const shortEscape = letter < 0x20 ? (SHORT[letter - 8] ?? "") : String.fromCharCode(letter);
      const text = shortEscape || `u00${letter.toString(16).padStart(2, "0")}`;
      for (let i = 0; i < text.length; i++) out[to++] = text.charCodeAt(i);
    } else {
      out[to++] = letter;
      high |= letter;
    }
  }
  out[to++] = 0x22;
  end = to;
  if (high > 0x7f) readText(u8, start, length);
}

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

function base64(start: number, length: number): void {
  ensureCapacity(Math.ceil(length / 3) * 4 + 2);
  byte(0x22);
  for (let i = 0; i < length; i += 3) {
    const [a, b, c] = [u8[start + i] as number, 0, 0];
    const second = i + 1 < length ? (u8[start + i + 1] as number) : b;
    const third = i + 2 < length ? (u8[start + i + 2] as number) : c;
    const bits = (a << 16) | (second << 8) | third;
    for (let digit = 0; digit < 4; digit++) {
      const isPadding = i + digit > length;
      out[end++] = isPadding ? 0x3d : DIGITS.charCodeAt((bits >> (18 - 6 * digit)) & 63);
    }
  }
  byte(0x22);
}

function list(of: Node, start: number, count: number): void {
  let index = 0;
  byte(0x5b);
  try {
    for (; index < count; index++) {
      if (index > 0) byte(0x2c);
      writeValue(of, start + index * of.size);
    }
  } catch (error) {
    throw prefixField(error, `[${index}]`);
  }
  byte(0x5d);
}

function writeTagged({ kind, starts, tagged }: Node, at: number): void {
  const index = u8[at] as number;
  writeStruct(pick(index, tagged, kind), at + (starts[index] as number));
}

function writeUnion({ kind, names, nodes, starts, heads }: Node, at: number): void {
  const index = u8[at] as number;
  const head = pick(index, heads, kind);
  const payload = nodes[index];
  if (payload === undefined) {
    copy(head);
    return;
  }
  byte(0x7b);
  copy(head);
  byte(0x3a);
  try {
    writeValue(payload, at + (starts[index] as number));
  } catch (error) {
    throw prefixField(error, names.list[index] as string);
  }
  byte(0x7d);
}

function writeStruct({ names, nodes, starts, heads }: Node, at: number): void {
  let index = 0;
  try {
    for (; index < nodes.length; index++) {
      copy(heads[index] as Uint8Array);
      writeValue(nodes[index] as Node, at + (starts[index] as number));
    }
  } catch (error) {
    throw prefixField(error, names.list[index] as string);
  }
  byte(0x7d);
}
