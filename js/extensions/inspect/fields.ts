/** Where the fields of a struct lie in the bytes of a value, and what they are: the layout of docs/records.md. */

import type { Descriptor, StructDescriptor } from "../../struct.js";
import { pad8, viewOf } from "./format.js";

/** Bytes of a value. */
export interface Range {
  readonly at: number;
  readonly length: number;
}

/** A field, or a part of one. */
export interface Field {
  /** Its name, with those of the structs around it. */
  readonly path: readonly string[];
  readonly type: string;
  readonly descriptor: Descriptor;
  /** Its bytes in the struct, and those of the parts that lie elsewhere in the value. */
  readonly ranges: readonly Range[];
  /** Its value as text. */
  readonly text: string;
  /** Whether it can be given another value here. */
  readonly isEditable: boolean;
}

interface Shape {
  readonly bytes: number;
  readonly align: number;
}

const SIZES: Record<string, number> = {
  ...{ u8: 1, i8: 1, bool: 1, enum8: 1, u16: 2, i16: 2, enum16: 2, u32: 4, i32: 4, f32: 4 },
  ...{ u64: 8, i64: 8, u53: 8, f64: 8, timestamp: 8 },
};

function alignUp(at: number, align: number): number {
  return Math.ceil(at / align) * align;
}

function shapeOf(kind: Descriptor): Shape {
  switch (kind.kind) {
    case "str":
    case "blob":
    case "vec":
      return { bytes: 8, align: 4 };
    case "bytes":
    case "fixedStr":
      return { bytes: kind.length, align: 1 };
    case "array": {
      const { bytes, align } = shapeOf(kind.of);
      return { bytes: bytes * kind.length, align };
    }
    case "flatten":
    case "optNonZero":
      return shapeOf(kind.of);
    case "option":
      return taggedShape([shapeOf(kind.of)]);
    case "union":
      return taggedShape(kind.variants.flatMap(([, of]) => (of === null ? [] : shapeOf(of))));
    case "struct":
      return laidOut(kind).shape;
    default: {
      const bytes = SIZES[kind.kind] ?? 0;
      return { bytes, align: Math.max(1, bytes) };
    }
  }
}

/** A byte that says which, and behind it the value at its alignment. */
function taggedShape(shapes: readonly Shape[]): Shape {
  const align = Math.max(1, ...shapes.map((shape) => shape.align));
  const bytes = Math.max(1, ...shapes.map((shape) => shape.align + shape.bytes));
  return { bytes: alignUp(bytes, align), align };
}

function laidOut({ fields, versioned }: StructDescriptor): {
  shape: Shape;
  placed: { name: string; kind: Descriptor; at: number; bytes: number }[];
} {
  let end = versioned ? 2 : 0;
  let align = versioned ? 2 : 1;
  const placed = fields.map(([name, kind]) => {
    const shape = shapeOf(kind);
    const at = alignUp(end, shape.align);
    end = at + shape.bytes;
    align = Math.max(align, shape.align);
    return { name, kind, at, bytes: shape.bytes };
  });
  return { shape: { bytes: alignUp(end, align), align }, placed };
}

/** The fields of a value, in the order of the struct; those of structs in it by their paths. */
export function fieldsOf(struct: StructDescriptor, value: Uint8Array): Field[] {
  const fields: Field[] = [];
  const end = struct.versioned && value.length >= 2 ? viewOf(value).getUint16(0, true) : undefined;
  if (end !== undefined) {
    fields.push({
      path: ["(end of the fields)"],
      type: "u16",
      descriptor: { kind: "u16" },
      ranges: [{ at: 0, length: 2 }],
      text: String(end),
      isEditable: false,
    });
  }
  addFields(fields, struct, viewOf(value), 0, [], end ?? value.length);
  return fields;
}

function addFields(
  fields: Field[],
  struct: StructDescriptor,
  data: DataView,
  base: number,
  path: readonly string[],
  end: number,
): void {
  for (const { name, kind, at, bytes } of laidOut(struct).placed) {
    const start = base + at;
    const inner = kind.kind === "flatten" ? kind.of : kind;
    if (inner.kind === "struct") {
      const names = kind.kind === "flatten" ? path : [...path, name];
      addFields(fields, inner, data, start, names, end);
      continue;
    }
    const one = { path: [...path, name], type: typeName(kind), descriptor: kind };
    if (start + bytes > end) {
      const text = struct.versioned
        ? "its default: an earlier version wrote this"
        : "beyond the value";
      fields.push({ ...one, ranges: [], text, isEditable: false });
      continue;
    }
    const parts = partsAt(kind, data, start);
    fields.push({
      ...one,
      ranges: [{ at: start, length: bytes }, ...parts],
      text: textAt(kind, data, start),
      isEditable: EDITABLE.has(kind.kind),
    });
  }
}

const EDITABLE = new Set([...Object.keys(SIZES), "str", "fixedStr"]);

/** The bytes elsewhere in the value to which it refers. */
function partsAt(kind: Descriptor, data: DataView, at: number): Range[] {
  const stride =
    kind.kind === "vec" ? shapeOf(kind.of).bytes : ["str", "blob"].includes(kind.kind) ? 1 : 0;
  if (stride === 0) return [];
  const range = { at: data.getUint32(at, true), length: data.getUint32(at + 4, true) * stride };
  return range.length > 0 && range.at + range.length <= data.byteLength ? [range] : [];
}

export function typeName(kind: Descriptor): string {
  switch (kind.kind) {
    case "bytes":
    case "fixedStr":
      return `${kind.kind}(${kind.length})`;
    case "array":
      return `array(${typeName(kind.of)}, ${kind.length})`;
    case "vec":
    case "option":
    case "optNonZero":
      return `${kind.kind}(${typeName(kind.of)})`;
    case "struct":
      return kind.name;
    default:
      return kind.kind;
  }
}

function textAt(kind: Descriptor, data: DataView, at: number): string {
  switch (kind.kind) {
    case "u8":
      return String(data.getUint8(at));
    case "i8":
      return String(data.getInt8(at));
    case "u16":
      return String(data.getUint16(at, true));
    case "i16":
      return String(data.getInt16(at, true));
    case "u32":
      return String(data.getUint32(at, true));
    case "i32":
      return String(data.getInt32(at, true));
    case "u64":
    case "u53":
      return String(data.getBigUint64(at, true));
    case "i64":
      return String(data.getBigInt64(at, true));
    case "f32":
      return String(data.getFloat32(at, true));
    case "f64":
      return String(data.getFloat64(at, true));
    case "bool":
      return data.getUint8(at) === 0 ? "false" : "true";
    case "timestamp": {
      const date = new Date(Number(data.getBigInt64(at, true)));
      return Number.isNaN(date.getTime()) ? "no date" : date.toISOString();
    }
    case "enum8":
    case "enum16": {
      const number = kind.kind === "enum8" ? data.getUint8(at) : data.getUint16(at, true);
      return kind.variants[number] ?? `unknown name ${number}`;
    }
    case "str": {
      const [range] = partsAt(kind, data, at);
      return range === undefined ? "" : utf8(data, range.at, range.length);
    }
    case "fixedStr":
      return utf8(data, at, kind.length).replace(/\0+$/, "");
    case "blob":
    case "vec":
      return count(data.getUint32(at + 4, true), kind.kind === "blob" ? "byte" : "item");
    case "bytes":
      return count(kind.length, "byte");
    case "array":
      return count(kind.length, "item");
    case "option":
      return data.getUint8(at) === 0 ? "none" : textAt(kind.of, data, at + shapeOf(kind.of).align);
    case "optNonZero":
      return isZero(data, at, shapeOf(kind.of).bytes) ? "none" : textAt(kind.of, data, at);
    case "union": {
      const number = data.getUint8(at);
      const [name, of] = kind.variants[number] ?? [`unknown variant ${number}`, null];
      return of === null ? name : `${name}: ${textAt(of, data, at + shapeOf(of).align)}`;
    }
    default:
      return "";
  }
}

function isZero(data: DataView, at: number, length: number): boolean {
  for (let i = at; i < at + length; i += 1) if (data.getUint8(i) !== 0) return false;
  return true;
}

function count(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}

function utf8(data: DataView, at: number, length: number): string {
  return new TextDecoder().decode(new Uint8Array(data.buffer, data.byteOffset + at, length));
}

/**
 * A value for a field, from text that a person typed.
 *
 * @throws TypeError that says what is expected
 */
export function parsedText({ descriptor: kind }: Field, text: string): unknown {
  switch (kind.kind) {
    case "bool":
      if (text === "true" || text === "false") return text === "true";
      throw new TypeError("Give true or false.");
    case "u64":
    case "i64":
      if (/^-?\d+$/.test(text)) return BigInt(text);
      throw new TypeError("Give an integer.");
    case "timestamp": {
      const time = /^-?\d+$/.test(text) ? Number(text) : Date.parse(text);
      if (!Number.isNaN(time)) return time;
      throw new TypeError("Give a date such as 2026-11-28T12:00:00Z, or milliseconds since 1970.");
    }
    case "str":
    case "fixedStr":
    case "enum8":
    case "enum16":
      return text;
    default: {
      const number = Number(text);
      if (text.trim() !== "" && !Number.isNaN(number)) return number;
      throw new TypeError("Give a number.");
    }
  }
}

/** The bytes of a record's header. */
export const RECORD_HEADER: readonly (readonly [name: string, at: number, length: number])[] = [
  ["checksum", 0, 4],
  ["kind", 4, 1],
  ["size of the replaced record, / 8", 5, 3],
  ["length of the key", 8, 2],
  ["keyspace", 10, 2],
  ["length of the value", 12, 4],
  ["space for the value", 16, 4],
  ["oldest segment with the key", 20, 4],
  ["version", 24, 8],
  ["expiry", 32, 4],
  ["position of the replaced record", 36, 4],
];

/** A key as text: decoded if its kind is known here, else as text if it is some, else in hexadecimal. */
export function keyText(kind: unknown, key: Uint8Array): string {
  if (Array.isArray(kind)) {
    const parts = tupleText(kind, key);
    if (parts !== undefined) return parts.length === 1 ? parts[0]! : `[${parts.join(", ")}]`;
  }
  const text = new TextDecoder().decode(key);
  return kind !== "bytes" && isReadable(text) ? text : hex(key);
}

/** Whether a text has neither control characters nor what was no UTF-8. */
function isReadable(text: string): boolean {
  return Array.from(text).every((character) => character >= " " && character !== "\ufffd");
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

/** The parts of a key that is a tuple; `undefined` for parts of kinds that are not read here. */
function tupleText(kinds: readonly unknown[], key: Uint8Array): string[] | undefined {
  const data = viewOf(key);
  const parts: string[] = [];
  let at = 0;
  for (const one of kinds) {
    const { kind } = Object(one) as { kind?: unknown };
    const name = String(kind);
    if (name === "str") {
      const start = at;
      while (at < key.length && !(key[at] === 0 && key[at + 1] === 1)) at += 1;
      parts.push(JSON.stringify(new TextDecoder().decode(key.subarray(start, at))));
      at += 2;
      continue;
    }
    const bytes = /^([ui](8|16|32|53|64)|timestamp|bool)$/.test(name) ? (SIZES[name] ?? 0) : 0;
    if (bytes === 0 || at + bytes > key.length) return undefined;
    let value = 0n;
    for (let i = at; i < at + bytes; i += 1) value = value * 256n + BigInt(data.getUint8(i));
    if (name.startsWith("i") || name === "timestamp") value -= 1n << BigInt(8 * bytes - 1);
    parts.push(name === "timestamp" ? new Date(Number(value)).toISOString() : String(value));
    at += bytes;
  }
  return parts;
}

/** Bytes up to the next multiple of eight. */
export function padding(length: number): number {
  return pad8(length) - length;
}
