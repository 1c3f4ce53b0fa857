/**
 * Parses JSON text to the bytes of a value, in one pass and without objects: each number, string and bool is written
 * directly to its place. Parts lie in the order of the text.
 */

import type { Leaf } from "../layout.js";
import { alignUp, prefixField, type Writer } from "../type.js";
import type { Fill } from "./form.js";
import { Names, type Node, OP } from "./plan.js";
import {
  BACKSLASH,
  begin,
  bool,
  CLOSE,
  CLOSE_LIST,
  COLON,
  COMMA,
  checkUtf8,
  countItems,
  expect,
  fail,
  finish,
  float,
  isNull,
  long,
  next,
  OPEN,
  OPEN_LIST,
  peek,
  QUOTE,
  readInteger,
  skip,
  text,
  time,
  wanted,
  written,
} from "./tokenizer.js";

/** The value. Everything after its end is zero, except for a string that is being decoded. */
let out = new Uint8Array(1024);
let data = new DataView(out.buffer);
let end = 0;
/** End of the bytes that may be nonzero. After a refused text, that is the whole buffer. */
let reach = 0;
let isClean = true;
let lenient = false;
/** The defaults of the fields of a versioned value that are missing in the text. */
let leaves: readonly Leaf[] = [];
/** Counts objects, to record which fields of the current one were read. */
let objects = 0;

/** The type to be read. */
export interface Reading {
  readonly node: Node;
  readonly leaves: readonly Leaf[];
  readonly lenient: boolean;
}

/** Reads a value. Its bytes are valid until the next one is read. */
export function read(what: Reading, bytes: Uint8Array, from: number, to: number): Uint8Array {
  begin(bytes, from, to);
  lenient = what.lenient;
  leaves = what.leaves;
  out.fill(0, 0, isClean ? reach : out.length);
  end = reach = 0;
  isClean = false;
  try {
    if (what.node.op === OP.text) end = readString();
    else if (what.node.op === OP.json) readAny();
    else {
      end = what.node.size;
      ensureCapacity(0);
      readValue(what.node, 0);
    }
    finish();
  } catch (error) {
    throw prefixField(error, "$");
  }
  isClean = true;
  reach = Math.max(reach, end);
  return out.subarray(0, end);
}

/** For `json()` the text itself is the value; the platform checks that it is JSON. */
function readAny(): void {
  peek();
  const start = text.at;
  skip();
  try {
    JSON.parse(checkUtf8(start));
  } catch (error) {
    fail((error as Error).message);
  }
  const json = text.bytes.subarray(start, text.at);
  ensureCapacity(json.length);
  out.set(json);
  end = json.length;
}

/** Makes sure that `more` bytes fit after the end. */
function ensureCapacity(more: number): void {
  if (end + more <= out.length) return;
  const larger = new Uint8Array(2 * (end + more));
  larger.set(out);
  out = larger;
  data = new DataView(out.buffer);
}

function readValue(node: Node, at: number): void {
  switch (node.op) {
    case OP.u8:
      out[at] = readInteger("u8", 0, 0xff);
      break;
    case OP.u16:
      data.setUint16(at, readInteger("u16", 0, 0xffff), true);
      break;
    case OP.u32:
      data.setUint32(at, readInteger("u32", 0, 0xffff_ffff), true);
      break;
    case OP.i8:
      data.setInt8(at, readInteger("i8", -0x80, 0x7f));
      break;
    case OP.i16:
      data.setInt16(at, readInteger("i16", -0x8000, 0x7fff), true);
      break;
    case OP.i32:
      data.setInt32(at, readInteger("i32", -0x8000_0000, 0x7fff_ffff), true);
      break;
    case OP.f32:
      data.setFloat32(at, float("f32"), true);
      break;
    case OP.f64:
      data.setFloat64(at, float("f64"), true);
      break;
    case OP.u64:
      put64(at, long("u64"));
      break;
    case OP.i64:
      put64(at, long("i64"));
      break;
    case OP.u53:
      put64(at, readInteger("u53", 0, Number.MAX_SAFE_INTEGER));
      break;
    case OP.timestamp:
      put64(at, time());
      break;
    case OP.bool:
      out[at] = bool() ? 1 : 0;
      break;
    default:
      readLarger(node, at);
  }
}

function readLarger(node: Node, at: number): void {
  switch (node.op) {
    case OP.enum8:
      out[at] = name(node, true, 0);
      break;
    case OP.enum16:
      data.setUint16(at, name(node, true, 0), true);
      break;
    case OP.bytes:
      fixed(node, at, readBase64());
      break;
    case OP.fixedStr:
      fixed(node, at, readString());
      break;
    case OP.str:
      part(at, readString());
      break;
    case OP.blob:
      part(at, readBase64());
      break;
    case OP.array:
      readArray(node, at);
      break;
    case OP.vec:
      readVec(node, at);
      break;
    case OP.option:
      if (isNull()) break;
      out[at] = 1;
      readValue(node.of, at + (node.starts[0] as number));
      break;
    case OP.optNonZero:
      if (isNull()) break;
      readValue(node.of, at);
      if (isZero(at, node.size)) fail("0 means absent here: write null");
      break;
    case OP.union:
      readUnion(node, at);
      break;
    case OP.tagged:
      readTagged(node, at);
      break;
    case OP.tag:
      name(node, true, 0);
      break;
    default:
      readStruct(node, at);
  }
}

function isZero(at: number, size: number): boolean {
  for (let i = 0; i < size; i++) if (out[at + i] !== 0) return false;
  return true;
}

/** In two's complement. */
function put64(at: number, value: number | bigint): void {
  if (typeof value === "bigint") data.setBigUint64(at, BigInt.asUintN(64, value), true);
  else {
    data.setUint32(at, value >>> 0, true);
    data.setUint32(at + 4, Math.floor(value / 0x1_0000_0000) >>> 0, true);
  }
}

/** Decodes a string after the end of the value. Returns its length. */
function readString(): number {
  if (peek() !== QUOTE) wanted("a string");
  const start = ++text.at;
  const { bytes } = text;
  ensureCapacity(64);
  let to = end;
  let most = out.length - 4;
  let high = 0;
  for (;;) {
    const byte = bytes[text.at] as number;
    if (byte === QUOTE) break;
    if (!(byte >= 0x20) || text.at >= text.end) wanted("the end of a string");
    if (to > most) {
      ensureCapacity(2 * (to - end) + 64);
      most = out.length - 4;
    }
    if (byte === BACKSLASH) to = readEscape(to);
    else {
      out[to++] = byte;
      high |= byte;
      text.at += 1;
    }
  }
  reach = Math.max(reach, to);
  if (high > 0x7f) checkUtf8(start);
  text.at += 1;
  return to - end;
}

const ESCAPES = new Map(
  ['""', "\\\\", "//", "b\b", "f\f", "n\n", "r\r", "t\t"].map((pair) => [
    pair.charCodeAt(0),
    pair.charCodeAt(1),
  ]),
);

/** Writes the character of the next escape. Returns where it ends. */
function readEscape(at: number): number {
  let to = at;
  const shortEscape = ESCAPES.get(text.bytes[text.at + 1] as number);
  if (shortEscape !== undefined) {
    text.at += 2;
    out[to] = shortEscape;
    return to + 1;
  }
  let letter = readUnit();
  if (letter >= 0xd800 && letter < 0xe000) {
    const low = letter < 0xdc00 && text.bytes[text.at] === BACKSLASH ? readUnit() : 0;
    if (low < 0xdc00 || low > 0xdfff) fail("lone surrogate");
    letter = 0x10000 + ((letter - 0xd800) << 10) + low - 0xdc00;
  }
  let more = letter < 0x80 ? 0 : letter < 0x800 ? 1 : letter < 0x10000 ? 2 : 3;
  const mark = more === 0 ? 0 : (0xff00 >> (more + 1)) & 0xff;
  out[to++] = mark | (letter >> (6 * more));
  while (more-- > 0) out[to++] = 0x80 | ((letter >> (6 * more)) & 0x3f);
  return to;
}

/** Reads the four digits after `\u`. */
function readUnit(): number {
  const start = text.at;
  text.at += 6;
  const digits = written(start);
  if (!/^\\u[\da-fA-F]{4}$/.test(digits)) fail(`invalid escape ${digits}`);
  return Number.parseInt(digits.slice(2), 16);
}

const BASE64 = new Int8Array(256).fill(-1);
for (const [index, letter] of [
  ..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
].entries()) {
  BASE64[letter.charCodeAt(0)] = index;
}

/** Decodes base64 after the end of the value. Returns the number of bytes. */
function readBase64(): number {
  const length = readString();
  let fill = 0;
  while (fill < 2 && length > fill && out[end + length - 1 - fill] === 0x3d) fill++;
  let to = end;
  let bits = 0;
  let good = length % 4 === 0;
  for (let at = 0; at < length - fill; at++) {
    const digit = BASE64[out[end + at] as number] as number;
    if (digit < 0) good = false;
    bits = (bits << 6) | digit;
    if (at % 4 > 0) out[to++] = (bits >> (6 - 2 * (at % 4))) & 0xff;
  }
  // Only canonical base64 is accepted: unused bits of the last digit must be zero.
  if (!good || (bits & ((1 << (2 * fill)) - 1)) !== 0) fail("invalid base64");
  out.fill(0, to, end + length);
  return to - end;
}

/** Moves the decoded bytes from after the end to a field of fixed length. */
function fixed({ op, kind, count }: Node, at: number, length: number): void {
  if (op === OP.bytes ? length !== count : length > count) {
    fail(`${length} bytes do not fit ${kind}(${count})`);
  }
  if (op === OP.fixedStr && out.subarray(end, end + length).includes(0)) {
    fail("fixedStr must not contain U+0000");
  }
  out.copyWithin(at, end, end + length);
  out.fill(0, end, end + length);
}

/** Appends the decoded bytes after the end as a part. */
function part(at: number, length: number): void {
  data.setUint32(at, end, true);
  data.setUint32(at + 4, length, true);
  end += length;
}

/** The index of the next string among the names, or -1 if there is none; the caller reports that. */
function name(node: Pick<Node, "names">, required: boolean, likely: number): number {
  if (peek() !== QUOTE) wanted("a name in quotes");
  const { bytes } = text;
  const start = text.at + 1;
  let to = start;
  let byte = bytes[to] as number;
  while (byte !== QUOTE && byte !== BACKSLASH && byte >= 0x20) byte = bytes[++to] as number;
  let index: number;
  if (byte === QUOTE) {
    text.at = to + 1;
    index = node.names.find(bytes, start, to, likely);
  } else {
    const length = readString();
    index = node.names.find(out, end, end + length, likely);
    out.fill(0, end, end + length);
  }
  if (required && index < 0)
    fail(`${written(start - 1)} is not one of ${node.names.list.join(", ")}`);
  return index;
}

function readArray({ of, count }: Node, at: number): void {
  expect(OPEN_LIST);
  let index = 0;
  try {
    for (; index < count; index++) {
      if (index > 0) expect(COMMA);
      readValue(of, at + index * of.size);
    }
  } catch (error) {
    throw prefixField(error, `[${index}]`);
  }
  if (peek() === COMMA) fail(`more than ${count} items`);
  expect(CLOSE_LIST);
}

function readVec({ of }: Node, at: number): void {
  expect(OPEN_LIST);
  const first = alignUp(end, of.align);
  end = first;
  // Items are contiguous, so they are counted before the parts of the first one are written.
  if (of.parts) end += countItems() * of.size;
  let count = 0;
  try {
    if (peek() !== CLOSE_LIST) {
      do {
        const place = first + count * of.size;
        if (!of.parts) end = place + of.size;
        ensureCapacity(0);
        readValue(of, place);
        count += 1;
      } while (next(COMMA));
    }
  } catch (error) {
    throw prefixField(error, `[${count}]`);
  }
  expect(CLOSE_LIST);
  data.setUint32(at, first, true);
  data.setUint32(at + 4, count, true);
}

function readUnion(node: Node, at: number): void {
  const bare = !next(OPEN);
  peek();
  const start = text.at;
  const index = name(node, bare, 0);
  if (index < 0) {
    text.at = start;
    readTyped(node, at);
    return;
  }
  const variant = node.names.list[index] as string;
  const payload = node.nodes[index];
  out[at] = index;
  if (bare !== (payload === undefined)) {
    fail(bare ? `${variant} needs a payload` : `${variant} has no payload: write only its name`);
  }
  if (payload === undefined) return;
  expect(COLON);
  try {
    readValue(payload, at + (node.starts[index] as number));
  } catch (error) {
    throw prefixField(error, variant);
  }
  expect(CLOSE);
}

/**
 * Reads a variant that a field of its object names. If that is not the first one, the fields before it are skipped and
 * then read: nothing is kept.
 */
function readTagged(node: Node, at: number): void {
  const [tag] = node.tag.list;
  if (peek() !== OPEN) wanted("{");
  const start = text.at++;
  let index = -1;
  let fields = 0;
  if (peek() !== CLOSE) {
    do {
      fields += 1;
      if (name({ names: node.tag }, false, 0) === 0) index = readTag(node, tag as string);
      else {
        expect(COLON);
        skip();
      }
    } while (index < 0 && next(COMMA));
  }
  const isPlain = index < 0 ? tag !== "type" : fields === 1 && isPlainNext(node, index);
  text.at = start;
  if (isPlain && isMemberNext()) {
    readTyped(node, at);
    return;
  }
  if (index < 0) fail(`missing field ${tag}, which names the variant`);
  out[at] = index;
  readStruct(node.tagged[index] as Node, at + (node.starts[index] as number));
}

function readTag(node: Node, tag: string): number {
  try {
    expect(COLON);
    return name(node, true, 0);
  } catch (error) {
    throw prefixField(error, tag);
  }
}

/** Whether `{` is next and then "type" or "value". Moves behind the `{`. */
function isMemberNext(): boolean {
  text.at += 1;
  const start = text.at;
  const isMember = peek() === QUOTE && name(MEMBERS, false, 0) >= 0;
  text.at = isMember ? start : start - 1;
  return isMember;
}

/**
 * Whether a variant whose tag was read, and is called "type", is in the form of `snapshot()`: `{ type, value }`. It is not
 * if its own field "value" could be what follows.
 */
function isPlainNext(node: Node, index: number): boolean {
  const payload = node.nodes[index];
  if (payload === undefined || node.tag.list[0] !== "type" || !next(COMMA)) return false;
  if (peek() !== QUOTE || name(MEMBERS, false, 1) !== 1 || !next(COLON)) return false;
  const { names, nodes } = node.tagged[index] as Node;
  let own = nodes[names.indexOf("value")];
  if (own?.op === OP.option) own = own.of;
  const isObject = own?.op === OP.struct || own?.op === OP.union || own?.op === OP.tagged;
  const hasOtherContent = own === undefined && nodes[1] === payload;
  return hasOtherContent || (!isObject && peek() === OPEN);
}

const MEMBERS = { names: new Names(["type", "value"]) };

/** Reads a variant in the form of `snapshot()`: `{ type, value }`. An optional value may be missing. */
function readTyped(node: Node, at: number): void {
  let index = -1;
  let valueAt = -1;
  do {
    peek();
    const start = text.at;
    const member = name(MEMBERS, false, 0);
    const isDuplicate = (member === 0 && index >= 0) || (member === 1 && valueAt >= 0);
    if (isDuplicate) fail(`duplicate field ${written(start)}`);
    if (member < 0) fail(`${written(start)} is not one of ${node.names.list.join(", ")}`);
    expect(COLON);
    peek();
    if (member === 1) valueAt = text.at;
    if (member === 1) skip();
    else index = name(node, true, 0);
  } while (next(COMMA));
  expect(CLOSE);
  if (index < 0)
    fail('missing field type: a variant is {"Name":value} or {"type":"Name","value":value}');
  const variant = node.names.list[index] as string;
  const payload = node.nodes[index];
  out[at] = index;
  if (payload === undefined || valueAt < 0) {
    if (payload === undefined && valueAt >= 0) fail(`${variant} has no payload`);
    const isOption = payload?.op === OP.option || payload?.op === OP.optNonZero;
    if (payload !== undefined && !isOption) fail(`${variant} needs a payload`);
    return;
  }
  const behind = text.at;
  text.at = valueAt;
  try {
    readValue(payload, at + (node.starts[index] as number));
  } catch (error) {
    throw prefixField(error, variant);
  }
  text.at = behind;
}

function readStruct(node: Node, at: number): void {
  const { names, nodes, starts, seen } = node;
  objects = (objects + 1) >>> 0;
  const objectNumber = objects;
  let found = 0;
  let index = -1;
  expect(OPEN);
  if (!next(CLOSE)) {
    do {
      peek();
      const start = text.at;
      index = name(node, false, index + 1);
      if (index < 0 && !lenient) fail(`unknown field ${written(start)}`);
      expect(COLON);
      if (index < 0) {
        skip();
        continue;
      }
      if (seen[index] === objectNumber) fail(`duplicate field ${names.list[index]}`);
      seen[index] = objectNumber;
      found += 1;
      try {
        readValue(nodes[index] as Node, at + (starts[index] as number));
      } catch (error) {
        throw prefixField(error, names.list[index] as string);
      }
    } while (next(COMMA));
    expect(CLOSE);
  }
  if (node.root > 0) data.setUint16(at, node.root, true);
  if (found < node.complete) addMissing(node, at, objectNumber);
}

/** Fills in fields that are missing in the text: defaults, also those of added fields, and `undefined` for options. */
function addMissing({ fields, seen, root }: Node, at: number, objectNumber: number): void {
  let index = 0;
  for (const [leafIndex, { name, node, start, form }] of fields.entries()) {
    const isSeen = !form?.skip && seen[index++] === objectNumber;
    if (isSeen) continue;
    const leaf = root > 0 ? leaves[leafIndex]?.type : undefined;
    if (form?.fill !== undefined) addDefault(form.fill, at + start);
    else if (form?.skip || node.op === OP.option || node.op === OP.optNonZero) continue;
    else if (leaf?.fallback === undefined) fail(`missing field ${name}`);
    else addDefault((to, place) => leaf.put(to, place, undefined), at + start);
  }
}

function addDefault(fill: Fill, at: number): void {
  const writer: Writer = { m: { data, u8: out, epoch: 0 }, end };
  fill(writer, at);
  out = writer.m.u8 as Uint8Array<ArrayBuffer>;
  data = writer.m.data as DataView<ArrayBuffer>;
  end = writer.end;
}
