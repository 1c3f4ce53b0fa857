/** Writes values as CBOR: all that structured clone keeps. */

import { encoder } from "../../util/text-coders.js";
import { ARRAY_TAGS, ERRORS, MAX_DEPTH, refused, TAG } from "./format.js";

const UNSIGNED = 0;
const NEGATIVE = 1;
const BYTES = 2;
const TEXT = 3;
const ARRAY = 4;
const MAP = 5;
const TAGGED = 6;

/** Takes the place of a reference until its number is known. */
const PLACEHOLDER = 0xff;

/** The size up to which the area of a writer is kept. */
const MAX_KEPT = 262_144;

/** Text of this many units is written by the platform. */
const LONG_TEXT = 48;

/** The built-in tag of an object, which is the same in all realms. */
function kindOf(value: object): string {
  return Object.prototype.toString.call(value).slice(8, -1);
}

/** Reads internal slots, which throws for an object that only pretends to be of a class. */
const slots = {
  Date: (value: object) => Date.prototype.getTime.call(value),
  Map: (value: object) => [...Map.prototype.entries.call(value)],
  Set: (value: object) => [...Set.prototype.values.call(value)],
  Number: (value: object) => Number.prototype.valueOf.call(value),
  String: (value: object) => String.prototype.valueOf.call(value),
  Boolean: (value: object) => Boolean.prototype.valueOf.call(value),
  BigInt: (value: object) => BigInt.prototype.valueOf.call(value),
} as const;

function headSize(count: number): number {
  if (count < 24) return 1;
  if (count < 0x100) return 2;
  return count < 0x1_0000 ? 3 : 5;
}

type Slotted = keyof typeof slots;

/** Throws for the field of a view that was spread, which leads to all memory of its database. */
function refuseSpread(field: unknown): void {
  const { toJSON } = Object(field) as { readonly toJSON?: unknown };
  if (typeof toJSON === "function" && typeof field !== "function") toJSON.call(field);
}

/** An object that was met. */
interface Met {
  /** Where its bytes begin. */
  readonly at: number;
  isShared: boolean;
}

export class Writer {
  private u8: Uint8Array<ArrayBuffer> = new Uint8Array(512);
  private data: DataView<ArrayBuffer> = new DataView(this.u8.buffer);
  private at = 0;
  private depth = 0;
  /** The name or the number at each level, for errors. */
  private readonly path: (string | number)[] = [];
  /** The objects that were met. Most values consist of one, which needs no map. */
  private first: object | undefined;
  private readonly met = new Map<object, Met>();
  private readonly references: { readonly at: number; readonly to: Met }[] = [];

  /** The bytes of a value. */
  encode(value: unknown): Uint8Array<ArrayBuffer> {
    if (value === undefined) {
      throw refused(
        "",
        "is undefined, which is the value of a missing record. Delete the key instead.",
      );
    }
    this.value(value);
    return this.finish();
  }

  /** The bytes so far. */
  finish(): Uint8Array<ArrayBuffer> {
    return this.references.length === 0 ? this.u8.slice(0, this.at) : this.withReferences();
  }

  /** Makes it ready for another value, also after an error. */
  reset(): void {
    this.at = 0;
    this.depth = 0;
    this.path.length = 0;
    this.references.length = 0;
    this.first = undefined;
    if (this.met.size > 0) this.met.clear();
    if (this.u8.length > MAX_KEPT) this.grow(512, new Uint8Array(0));
  }

  private grow(size: number, from: Uint8Array): void {
    this.u8 = new Uint8Array(size);
    this.u8.set(from);
    this.data = new DataView(this.u8.buffer);
  }

  private reserve(more: number): void {
    const needed = this.at + more;
    if (needed > this.u8.length) this.grow(Math.max(needed, this.u8.length * 2), this.u8);
  }

  private byte(byte: number): void {
    this.reserve(1);
    this.u8[this.at++] = byte;
  }

  private head(major: number, count: number): void {
    this.reserve(9);
    this.headAt(major, count);
  }

  private headAt(major: number, count: number): void {
    const { u8, data, at } = this;
    const kind = major << 5;
    if (count < 24) {
      u8[at] = kind | count;
      this.at = at + 1;
    } else if (count < 0x100) {
      u8[at] = kind | 24;
      u8[at + 1] = count;
      this.at = at + 2;
    } else if (count < 0x1_0000) {
      u8[at] = kind | 25;
      data.setUint16(at + 1, count);
      this.at = at + 3;
    } else if (count < 0x1_0000_0000) {
      u8[at] = kind | 26;
      data.setUint32(at + 1, count);
      this.at = at + 5;
    } else {
      u8[at] = kind | 27;
      data.setUint32(at + 1, Math.floor(count / 0x1_0000_0000));
      data.setUint32(at + 5, count >>> 0);
      this.at = at + 9;
    }
  }

  tag(tag: number): void {
    this.head(TAGGED, tag);
  }

  list(length: number): void {
    this.head(ARRAY, length);
  }

  fields(count: number): void {
    this.head(MAP, count);
  }

  value(value: unknown): void {
    switch (typeof value) {
      case "string":
        this.text(value);
        return;
      case "number":
        this.number(value);
        return;
      case "boolean":
        this.byte(value ? 0xf5 : 0xf4);
        return;
      case "undefined":
        this.byte(0xf7);
        return;
      case "bigint":
        this.bigint(value);
        return;
      case "object":
        if (value === null) this.byte(0xf6);
        else this.object(value);
        return;
      default:
        throw this.refuse(`is a ${typeof value}, which cannot be stored.`);
    }
  }

  text(text: string): void {
    const { length } = text;
    if (length < LONG_TEXT) {
      this.reserve(length + 2);
      const start = this.at;
      this.headAt(TEXT, length);
      const { u8 } = this;
      let { at } = this;
      let i = 0;
      for (; i < length; i++) {
        const unit = text.charCodeAt(i);
        if (unit > 0x7f) break;
        u8[at++] = unit;
      }
      if (i === length) {
        this.at = at;
        return;
      }
      this.at = start;
    }
    this.longText(text);
  }

  private longText(text: string): void {
    const { length } = text;
    this.reserve(length * 3 + 9);
    const start = this.at;
    this.headAt(TEXT, length);
    const from = this.at;
    const { written } = encoder.encodeInto(text, this.u8.subarray(from));
    if (written === length) {
      this.at = from + length;
      return;
    }
    this.at = start;
    // With this flag only surrogates match that are no part of a pair.
    if (/\p{Surrogate}/u.test(text)) {
      this.wtf8(text);
      return;
    }
    const to = start + headSize(written);
    if (to !== from) this.u8.copyWithin(to, from, from + written);
    this.headAt(TEXT, written);
    this.at += written;
  }

  /** Text with lone surrogates, which UTF-8 cannot hold: each is written as UTF-8 would write its number. */
  private wtf8(text: string): void {
    const bytes: number[] = [];
    for (const character of text) {
      const code = character.codePointAt(0) as number;
      if (code < 0xd800 || code > 0xdfff) bytes.push(...encoder.encode(character));
      else bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 0x3f), 0x80 | (code & 0x3f));
    }
    this.tag(TAG.wtf8);
    this.bytes(Uint8Array.from(bytes));
  }

  number(value: number): void {
    if ((value | 0) === value && (value !== 0 || 1 / value > 0)) {
      this.reserve(5);
      if (value < 0) this.headAt(NEGATIVE, -1 - value);
      else this.headAt(UNSIGNED, value);
      return;
    }
    this.reserve(9);
    if (Number.isSafeInteger(value) && value !== 0) {
      if (value < 0) this.headAt(NEGATIVE, -1 - value);
      else this.headAt(UNSIGNED, value);
      return;
    }
    const { u8, data, at } = this;
    if (value === 0 || value - value !== 0) {
      u8[at] = 0xf9;
      const half = value === 0 ? 0x8000 : value > 0 ? 0x7c00 : value < 0 ? 0xfc00 : 0x7e00;
      data.setUint16(at + 1, half);
      this.at = at + 3;
    } else if (Math.fround(value) === value) {
      u8[at] = 0xfa;
      data.setFloat32(at + 1, value);
      this.at = at + 5;
    } else {
      u8[at] = 0xfb;
      data.setFloat64(at + 1, value);
      this.at = at + 9;
    }
  }

  bigint(value: bigint): void {
    const isNegative = value < 0n;
    const digits = (isNegative ? -1n - value : value).toString(16);
    const even = digits.length % 2 === 0 ? digits : `0${digits}`;
    const bytes = new Uint8Array(value === 0n ? 0 : even.length / 2);
    for (let i = 0; i < bytes.length; i++) {
      bytes[i] = Number.parseInt(even.slice(i * 2, i * 2 + 2), 16);
    }
    this.tag(isNegative ? TAG.negativeBigint : TAG.bigint);
    this.bytes(bytes);
  }

  bytes(bytes: Uint8Array): void {
    this.reserve(bytes.length + 9);
    this.headAt(BYTES, bytes.length);
    this.u8.set(bytes, this.at);
    this.at += bytes.length;
  }

  private object(value: object): void {
    if (this.isKnown(value)) return;
    if (this.depth >= MAX_DEPTH) throw this.refuse(`is nested more than ${MAX_DEPTH} levels deep.`);
    this.depth += 1;
    if (Array.isArray(value)) this.array(value);
    else {
      const prototype: unknown = Object.getPrototypeOf(value);
      if (prototype === Object.prototype || prototype === null) this.fieldsOf(value);
      else this.instance(value);
    }
    this.depth -= 1;
  }

  /** Writes a reference if the object was met before. */
  private isKnown(value: object): boolean {
    const { first, met, at } = this;
    if (first === undefined) {
      this.first = value;
      return false;
    }
    if (met.size === 0) met.set(first, { at: 0, isShared: false });
    const known = met.get(value);
    if (known === undefined) {
      met.set(value, { at, isShared: false });
      return false;
    }
    known.isShared = true;
    this.references.push({ at, to: known });
    this.byte(PLACEHOLDER);
    return true;
  }

  private fieldsOf(value: object): void {
    const names = Object.keys(value);
    this.fields(names.length);
    const { path, depth } = this;
    for (const name of names) {
      path[depth - 1] = name;
      this.text(name);
      const field = (value as Record<string, unknown>)[name];
      if (name === "$v") refuseSpread(field);
      this.value(field);
    }
    path.length = depth - 1;
  }

  private array(value: readonly unknown[]): void {
    const { length } = value;
    const names = Object.keys(value);
    const { path, depth } = this;
    // Numbers come first and in order: these are all items, without a hole, and nothing else.
    if (names.length === length && (length === 0 || names[length - 1] === String(length - 1))) {
      this.list(length);
      for (let i = 0; i < length; i++) {
        path[depth - 1] = i;
        this.value(value[i]);
      }
      path.length = depth - 1;
    } else {
      this.made("Array", 3);
      this.number(length);
      this.fieldsOf(value);
    }
  }

  /** The head of what is made from a list: the name and the number of items, itself included. */
  made(name: string, count: number): void {
    this.tag(TAG.made);
    this.list(count);
    this.text(name);
  }

  /** An object with a class. */
  private instance(value: object): void {
    if (ArrayBuffer.isView(value)) {
      this.view(value);
      return;
    }
    const kind = kindOf(value);
    if (kind === "Object") {
      const { $v, snapshot } = value as { readonly $v?: unknown; readonly snapshot?: unknown };
      if (Object($v) !== $v || typeof snapshot !== "function") {
        this.fieldsOf(value);
        return;
      }
      // A view of a struct.
      this.fieldsOf(snapshot.call(value) as object);
      return;
    }
    if (kind === "Error") {
      this.error(value as Error);
      return;
    }
    try {
      if (Object.hasOwn(slots, kind)) {
        this.slotted(kind as Slotted, value);
        return;
      }
      if (kind === "RegExp") {
        const { source, flags } = new RegExp(value as RegExp);
        this.tag(TAG.regExp);
        this.list(2);
        this.text(source);
        this.text(flags);
        return;
      }
      if (kind === "ArrayBuffer") {
        this.buffer(value as ArrayBuffer);
        return;
      }
    } catch (error) {
      if ((error as { code?: unknown }).code !== undefined) throw error;
    }
    throw this.refuse(`is a${/^[AEIO]/.test(kind) ? "n" : ""} ${kind}, which cannot be stored.`);
  }

  private slotted(kind: Slotted, value: object): void {
    const { path, depth } = this;
    const at = depth - 1;
    switch (kind) {
      case "Date":
        this.date(slots.Date(value));
        return;
      case "Map": {
        const entries = slots.Map(value);
        this.tag(TAG.map);
        this.fields(entries.length);
        for (const [i, [key, item]] of entries.entries()) {
          path[at] = `.keys()[${i}]`;
          this.value(key);
          path[at] = `.values()[${i}]`;
          this.value(item);
        }
        break;
      }
      case "Set": {
        const items = slots.Set(value);
        this.tag(TAG.set);
        this.list(items.length);
        for (const [i, item] of items.entries()) {
          path[at] = `.values()[${i}]`;
          this.value(item);
        }
        break;
      }
      default: {
        const boxed = slots[kind](value);
        this.made(kind, 2);
        this.value(boxed);
      }
    }
    path.length = at;
  }

  date(ms: number): void {
    const seconds = ms / 1_000;
    // In the far future seconds are too coarse.
    if (Number.isNaN(ms) || Math.round(seconds * 1_000) === ms) {
      this.tag(TAG.time);
      // An invalid date is NaN, and no date is -0.
      this.number(seconds + 0);
    } else {
      this.made("Date", 2);
      this.number(ms);
    }
  }

  private error(error: Error): void {
    const own = (name: string) => Object.getOwnPropertyDescriptor(error, name);
    const { name, stack } = error;
    const [message, cause] = [own("message"), own("cause")];
    this.made(ERRORS.includes(name) ? name : "Error", cause === undefined ? 3 : 4);
    this.value(message && "value" in message ? `${message.value}` : undefined);
    this.value(typeof stack === "string" ? stack : undefined);
    if (cause === undefined) return;
    this.path[this.depth - 1] = "cause";
    this.value(error.cause);
    this.path.length = this.depth - 1;
  }

  private view(value: ArrayBufferView): void {
    const kind = kindOf(value);
    // Throws if the buffer is detached.
    const bytes = this.bytesOf(value.buffer as ArrayBuffer, value);
    if (kind === "DataView") this.made(kind, 2);
    else if (kind !== "Uint8Array") {
      const tag = ARRAY_TAGS[kind];
      if (tag === undefined) throw this.refuse(`is a ${kind}, which cannot be stored.`);
      this.tag(tag);
    }
    this.bytes(bytes);
  }

  private buffer(value: ArrayBuffer): void {
    const bytes = this.bytesOf(value);
    if ((value as { readonly resizable?: boolean }).resizable === true) {
      throw this.refuse("is a resizable ArrayBuffer. Give a copy of its bytes: slice().");
    }
    this.made("ArrayBuffer", 2);
    this.bytes(bytes);
  }

  private bytesOf(buffer: ArrayBuffer, view?: ArrayBufferView): Uint8Array {
    try {
      return new Uint8Array(buffer, view?.byteOffset, view?.byteLength);
    } catch {
      throw this.refuse("has bytes that were transferred away.");
    }
  }

  private refuse(why: string): Error {
    const steps = this.path.map((step) => {
      if (typeof step === "number") return `[${step}]`;
      if (/^\.(keys|values)\(\)\[\d+\]$/.test(step)) return step;
      return /^[A-Za-z_$][\w$]*$/.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`;
    });
    return refused(steps.join(""), why);
  }

  /** The bytes with a mark in front of each object that is referred to, and the numbers of these in the references. */
  private withReferences(): Uint8Array<ArrayBuffer> {
    const { u8, at: end, references } = this;
    const shared = [...this.met.values()].filter(({ isShared }) => isShared);
    const numbers = new Map(shared.map((one, number) => [one, number]));
    const edits = [
      ...shared.map(({ at }) => ({ at, number: -1 })),
      ...references.map(({ at, to }) => ({ at, number: numbers.get(to) as number })),
    ].sort((a, b) => a.at - b.at);
    const out = new Writer();
    let from = 0;
    for (const { at, number } of edits) {
      out.raw(u8.subarray(from, at));
      from = at;
      if (number < 0) out.tag(TAG.shared);
      else {
        out.tag(TAG.reference);
        out.number(number);
        from += 1;
      }
    }
    out.raw(u8.subarray(from, end));
    return out.finish();
  }

  private raw(bytes: Uint8Array): void {
    this.reserve(bytes.length);
    this.u8.set(bytes, this.at);
    this.at += bytes.length;
  }
}
