/**
 * A slow and short codec that interprets the descriptor step by step, without code of the package. The package must
 * write the same bytes, and refuse the same values.
 */

import {
  flatFields,
  type Kind,
  NUMBERS,
  type Shape,
  type StructKind,
  shapeOf,
  up,
} from "./kinds.js";

/**
 * A value: numbers, bigints for u64 and i64, strings, bytes, lists, `null` for a missing option, records for structs,
 * and for a variant its name or a record of its name and its payload.
 */
export type Value =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly Value[]
  | Fields;
export interface Fields {
  readonly [name: string]: Value;
}

/** The fault of bytes and its path: `lines[3].price`. */
export class Malformed extends Error {
  constructor(
    readonly at: string,
    readonly why: string,
  ) {
    super(`${at}: ${why}`);
  }
}

export function encode(kind: StructKind, value: Fields): Uint8Array {
  const out: number[] = [];
  reserve(out, shapeOf(kind));
  put(out, 0, kind, value);
  return Uint8Array.from(out);
}

function reserve(out: number[], { size, align }: Shape, count = 1): number {
  while (out.length % align > 0) out.push(0);
  const at = out.length;
  for (let i = 0; i < size * count; i++) out.push(0);
  return at;
}

function putBytes(out: number[], at: number, bytes: Iterable<number>): void {
  let to = at;
  for (const byte of bytes) out[to++] = byte;
}

function putNumber(out: number[], at: number, type: keyof typeof NUMBERS, value: unknown): void {
  const [size, name] = NUMBERS[type];
  const data = new DataView(new ArrayBuffer(size));
  (data as unknown as Record<string, (at: number, value: unknown, little: true) => void>)[
    `set${name}`
  ]!(0, value, true);
  putBytes(out, at, new Uint8Array(data.buffer));
}

/** Places `count` items after everything else, and writes the reference to them at `at`. */
function refer(out: number[], at: number, item: Shape, count: number): number {
  const offset = reserve(out, item, count);
  putNumber(out, at, "u32", offset);
  putNumber(out, at + 4, "u32", count);
  return offset;
}

const BYTE = { size: 1, align: 1 };

function put(out: number[], at: number, kind: Kind, value: Value): void {
  switch (kind.kind) {
    case "str":
    case "blob": {
      const bytes = kind.kind === "str" ? utf8(value) : (value as Uint8Array);
      putBytes(out, refer(out, at, BYTE, bytes.length), bytes);
      break;
    }
    case "array":
    case "vec": {
      const items = value as readonly Value[];
      const item = shapeOf(kind.of);
      const first = kind.kind === "array" ? at : refer(out, at, item, items.length);
      for (const [index, one] of items.entries()) put(out, first + index * item.size, kind.of, one);
      break;
    }
    case "option":
      if (value !== null) putTagged(out, at, 1, kind.of, value);
      break;
    case "optNonZero":
      if (value !== null) put(out, at, kind.of, value);
      break;
    case "union": {
      const [name, payload] = variantOf(value);
      const index = kind.variants.findIndex(([one]) => one === name);
      putTagged(out, at, index, kind.variants[index]?.[1] ?? null, payload as Value);
      break;
    }
    case "struct":
      putFields(out, at, kind, value as Fields);
      break;
    case "flatten":
      putFields(out, at, kind.of, value as Fields);
      break;
    default:
      putSimple(out, at, kind, value);
  }
}

function utf8(value: Value): Uint8Array {
  return new TextEncoder().encode(value as string);
}

function putSimple(out: number[], at: number, kind: Kind, value: Value): void {
  const number = (type: keyof typeof NUMBERS, it: unknown) => putNumber(out, at, type, it);
  if (kind.kind === "bool") putBytes(out, at, [value ? 1 : 0]);
  else if (kind.kind === "bytes") putBytes(out, at, value as Uint8Array);
  else if (kind.kind === "fixedStr") putBytes(out, at, utf8(value));
  else if (kind.kind === "u53") number("u64", BigInt(value as number));
  else if (kind.kind === "timestamp") number("i64", BigInt(value as number));
  else if (kind.kind === "enum8") number("u8", kind.variants.indexOf(value as string));
  else if (kind.kind === "enum16") number("u16", kind.variants.indexOf(value as string));
  else number(kind.kind as keyof typeof NUMBERS, value);
}

function putTagged(out: number[], at: number, tag: number, of: Kind | null, value: Value): void {
  putBytes(out, at, [tag]);
  if (of !== null) put(out, at + up(1, shapeOf(of).align), of, value);
}

function putFields(out: number[], at: number, kind: StructKind, value: Fields): void {
  const { size, starts } = shapeOf(kind);
  if (kind.versioned) putNumber(out, at, "u16", size);
  for (const [index, [name, of]] of kind.fields.entries()) {
    const field = of.kind === "flatten" ? value : value[name];
    put(out, at + (starts[index] ?? 0), of, field as Value);
  }
}

/** A variant's name, and its payload if it has one. */
export function variantOf(value: Value): [string, Value?] {
  return typeof value === "string"
    ? [value]
    : (Object.entries(value as Fields)[0] as [string, Value]);
}

export function decode(kind: StructKind, bytes: Uint8Array): Fields {
  if (bytes.length < shapeOf(kind).size) throw new Malformed("", "size");
  const data = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return get({ bytes, data }, 0, kind, "") as Fields;
}

interface Source {
  bytes: Uint8Array;
  data: DataView;
}

function getNumber({ data }: Source, at: number, type: keyof typeof NUMBERS): number | bigint {
  const read = (data as unknown as Record<string, (at: number, little: true) => number | bigint>)[
    `get${NUMBERS[type][1]}`
  ]!;
  return read.call(data, at, true);
}

function text(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Malformed(path, "UTF-8");
  }
}

/** The milliseconds of the latest time that a Date can represent. */
export const LATEST = 8_640_000_000_000_000;

function safely(value: number | bigint, path: string, most: number): number {
  const number = Number(value);
  if (Math.abs(number) > most) throw new Malformed(path, "number");
  return number;
}

/** The target of a reference at `at`: its offset and the number of items. */
function follow(source: Source, at: number, item: Shape, path: string): [number, number] {
  const offset = getNumber(source, at, "u32") as number;
  const count = getNumber(source, at + 4, "u32") as number;
  if (offset + count * item.size > source.bytes.length) throw new Malformed(path, "range");
  if (offset % item.align > 0) throw new Malformed(path, "alignment");
  return [offset, count];
}

function pick<T>(list: readonly T[], index: number, path: string): T {
  if (index >= list.length) throw new Malformed(path, "discriminant");
  return list[index] as T;
}

function get(source: Source, at: number, kind: Kind, path: string): Value {
  const { bytes } = source;
  switch (kind.kind) {
    case "bool": {
      const byte = bytes[at] as number;
      if (byte > 1) throw new Malformed(path, "bool");
      return byte === 1;
    }
    case "u53":
      return safely(getNumber(source, at, "u64"), path, Number.MAX_SAFE_INTEGER);
    case "timestamp":
      return safely(getNumber(source, at, "i64"), path, LATEST);
    case "enum8":
    case "enum16": {
      const number = getNumber(source, at, kind.kind === "enum8" ? "u8" : "u16") as number;
      return pick(kind.variants, number, path);
    }
    case "bytes":
      return bytes.slice(at, at + kind.length);
    case "fixedStr": {
      let end = kind.length;
      while (end > 0 && bytes[at + end - 1] === 0) end--;
      const found = text(bytes.subarray(at, at + end), path);
      if (found.includes("\0")) throw new Malformed(path, "zero");
      return found;
    }
    case "str":
    case "blob": {
      const [offset, count] = follow(source, at, BYTE, path);
      const part = bytes.slice(offset, offset + count);
      return kind.kind === "str" ? text(part, path) : part;
    }
    case "array":
    case "vec": {
      const item = shapeOf(kind.of);
      const [first, count] =
        kind.kind === "array" ? [at, kind.length] : follow(source, at, item, path);
      return Array.from({ length: count }, (_, index) =>
        get(source, first + index * item.size, kind.of, `${path}[${index}]`),
      );
    }
    case "option": {
      const there = pick([false, true], bytes[at] as number, path);
      return there ? get(source, at + up(1, shapeOf(kind.of).align), kind.of, path) : null;
    }
    case "optNonZero": {
      const value = get(source, at, kind.of, path) as number | bigint;
      return Number(value) === 0 ? null : value;
    }
    case "union": {
      const [name, of] = pick(kind.variants, bytes[at] as number, path);
      if (of === null) return name;
      const payload = get(source, at + up(1, shapeOf(of).align), of, `${path}.${name}`);
      return Object.fromEntries([[name, payload]]);
    }
    case "struct":
      return Object.fromEntries(
        flatFields(kind).map(([name, start, of]) => [
          name,
          get(source, at + start, of, path === "" ? name : `${path}.${name}`),
        ]),
      );
    case "flatten":
      return get(source, at, kind.of, path);
    default:
      return getNumber(source, at, kind.kind);
  }
}

/** A value in the form of the vectors' JSON. */
export function fromJson(kind: Kind, json: unknown): Value {
  const list = (of: Kind) => (json as unknown[]).map((item) => fromJson(of, item));
  switch (kind.kind) {
    case "u64":
    case "i64":
      return BigInt(json as string);
    case "f32":
    case "f64":
      return Number(json);
    case "bytes":
    case "blob":
      return Uint8Array.from(atob(json as string), (letter) => letter.charCodeAt(0));
    case "array":
    case "vec":
      return list(kind.of);
    case "option":
    case "optNonZero":
      return json === null ? null : fromJson(kind.of, json);
    case "union": {
      if (typeof json === "string") return json;
      const [name, payload] = Object.entries(json as object)[0] as [string, unknown];
      const of = kind.variants.find(([one]) => one === name)?.[1];
      return Object.fromEntries([[name, fromJson(of as Kind, payload)]]);
    }
    case "struct":
      return Object.fromEntries(
        flatFields(kind).map(([name, , of]) => [
          name,
          fromJson(of, (json as Record<string, unknown>)[name]),
        ]),
      );
    default:
      return json as Value;
  }
}
