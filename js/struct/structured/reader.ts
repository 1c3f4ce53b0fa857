/** Reads values from CBOR. It allocates no more than the bytes can fill, whatever lengths they claim. */

import { decoder } from "../../util/text-coders.js";
import { ARRAYS, ERRORS, MAX_DEPTH, malformed, TAG, tooDeep } from "./format.js";

/** The head of an item without a length, which a break ends. */
const INDEFINITE = -1;

const BREAK = 0xff;

/** Arrays with holes that are longer do not get memory for their length. */
const MANY_ITEMS = 10_000;

/** An object takes up to three levels: a mark, a tag, and its items. */
const MAX_LEVELS = MAX_DEPTH * 3 + 3;

/** Names are looked up by their bytes, since the records of a collection have the same ones. */
const NAME_SLOTS = 512;
const MAX_NAME = 24;
const names: (string | undefined)[] = new Array<string | undefined>(NAME_SLOTS).fill(undefined);

/** What a reader makes of the bytes: values, or their readable form. */
export abstract class Reader {
  protected readonly u8: Uint8Array;
  protected readonly data: DataView;
  protected at: number;
  private readonly end: number;
  private depth: number;

  constructor(u8: Uint8Array) {
    this.u8 = u8;
    this.data = new DataView(u8.buffer, u8.byteOffset, u8.byteLength);
    this.at = 0;
    this.end = u8.byteLength;
    this.depth = 0;
  }

  /** The value of all bytes. */
  whole(): unknown {
    const value = this.value();
    if (this.at !== this.end) throw malformed(`there are more bytes behind its end, at ${this.at}`);
    return value;
  }

  protected value(): unknown {
    const { at } = this;
    if (at >= this.end) throw malformed("it ends too early");
    const head = this.u8[at] as number;
    switch (head >> 5) {
      case 0:
        return this.number(this.count());
      case 1: {
        const count = this.count();
        if (typeof count === "bigint") return this.bigint(-1n - count);
        return count < Number.MAX_SAFE_INTEGER ? -1 - count : this.bigint(-1n - BigInt(count));
      }
      case 2:
        return this.bytes(this.span(this.length()));
      case 3:
        return this.text();
      case 7:
        return this.simple(head);
    }
    this.depth += 1;
    if (this.depth > MAX_LEVELS) throw tooDeep();
    const value =
      head >> 5 === 6
        ? this.tagged(this.length())
        : head >> 5 === 4
          ? this.list(this.length(1))
          : this.fields(this.length(2));
    this.depth -= 1;
    return value;
  }

  // ------------------------------------------------------------ what a subclass makes

  protected abstract number(value: number | bigint): unknown;
  protected abstract bigint(value: bigint): unknown;
  protected abstract bytes(bytes: Uint8Array): unknown;
  protected abstract undefined(): unknown;
  protected abstract list(length: number): unknown;
  protected abstract fields(count: number): unknown;
  protected abstract map(count: number): unknown;
  protected abstract set(length: number): unknown;
  protected abstract date(ms: number): unknown;
  protected abstract regExp(source: string, flags: string): unknown;
  protected abstract typedArray(name: string, bytes: Uint8Array): unknown;
  protected abstract shared(): unknown;
  protected abstract reference(number: number): unknown;
  protected abstract made(name: string, count: number): unknown;

  // ------------------------------------------------------------ parts

  private take(size: number): number {
    const { at } = this;
    if (size > this.end - at) throw malformed("it ends too early");
    this.at = at + size;
    return at;
  }

  /** The number in a head. */
  private count(): number | bigint {
    const low = (this.u8[this.take(1)] as number) & 0x1f;
    if (low < 24) return low;
    switch (low) {
      case 24:
        return this.u8[this.take(1)] as number;
      case 25:
        return this.data.getUint16(this.take(2));
      case 26:
        return this.data.getUint32(this.take(4));
      case 27: {
        const at = this.take(8);
        const high = this.data.getUint32(at);
        if (high >= 0x20_0000) return this.data.getBigUint64(at);
        return high * 0x1_0000_0000 + this.data.getUint32(at + 4);
      }
      default:
        throw malformed(`the byte at ${this.at - 1} has no meaning`);
    }
  }

  /** A length, of items that take at least so many bytes each. */
  private length(least = 0): number {
    if (least > 0 && ((this.u8[this.at] as number) & 0x1f) === 0x1f) {
      this.at += 1;
      return INDEFINITE;
    }
    const count = this.count();
    if (typeof count === "bigint") throw malformed("it ends too early");
    if (count * least > this.end - this.at) throw malformed("it ends too early");
    return count;
  }

  private span(length: number): Uint8Array {
    const at = this.take(length);
    return this.u8.subarray(at, at + length);
  }

  /** Whether another item follows, of those that were announced. */
  protected more(read: number, length: number): boolean {
    if (length !== INDEFINITE) return read < length;
    if (this.u8[this.at] !== BREAK) return true;
    this.at += 1;
    return false;
  }

  protected text(): string {
    const length = this.length();
    const at = this.take(length);
    const { u8 } = this;
    if (length < MAX_NAME) {
      let text = "";
      for (let i = at; i < at + length; i++) {
        const byte = u8[i] as number;
        if (byte > 0x7f) return this.longText(at, length);
        text += String.fromCharCode(byte);
      }
      return text;
    }
    return this.longText(at, length);
  }

  private longText(at: number, length: number): string {
    return decoder.decode(this.u8.subarray(at, at + length));
  }

  /** The name of a field. */
  protected name(): string {
    const { u8, at } = this;
    const head = u8[at] as number;
    const length = head - 0x60;
    if (length < 0 || length >= MAX_NAME || at + length >= this.end) return this.anyText();
    let hash = length;
    const end = at + 1 + length;
    for (let i = at + 1; i < end; i++) hash = (hash * 31 + (u8[i] as number)) | 0;
    const slot = hash & (NAME_SLOTS - 1);
    const known = names[slot];
    if (known !== undefined && known.length === length) {
      let i = 0;
      while (i < length && known.charCodeAt(i) === u8[at + 1 + i]) i += 1;
      if (i === length) {
        this.at = end;
        return known;
      }
    }
    const name = this.text();
    // Only ASCII has as many characters as bytes.
    if (name.length === length) names[slot] = name;
    return name;
  }

  /** Text, also such with lone surrogates. */
  protected anyText(): string {
    const head = this.u8[this.at] as number;
    if (head >> 5 === 3) return this.text();
    if (head >> 5 !== 6 || this.length() !== TAG.wtf8) throw malformed("a name is not text");
    return this.wtf8();
  }

  protected rawBytes(): Uint8Array {
    if ((this.u8[this.at] as number) >> 5 !== 2) throw malformed("bytes are missing");
    return this.span(this.length());
  }

  private wtf8(): string {
    const bytes = this.rawBytes();
    const text: string[] = [];
    let from = 0;
    for (let i = 0; i < bytes.length; i++) {
      const [a, b = 0, c = 0] = bytes.subarray(i, i + 3);
      if (a !== 0xed || b < 0xa0) continue;
      text.push(decoder.decode(bytes.subarray(from, i)));
      text.push(String.fromCharCode(0xd000 | ((b & 0x3f) << 6) | (c & 0x3f)));
      i += 2;
      from = i + 1;
    }
    return text.join("") + decoder.decode(bytes.subarray(from));
  }

  private simple(head: number): unknown {
    this.at += 1;
    switch (head) {
      case 0xf4:
        return false;
      case 0xf5:
        return true;
      case 0xf6:
        return null;
      case 0xf7:
        return this.undefined();
      case 0xf9:
        return this.number(half(this.data.getUint16(this.take(2))));
      case 0xfa:
        return this.number(this.data.getFloat32(this.take(4)));
      case 0xfb:
        return this.number(this.data.getFloat64(this.take(8)));
      default:
        throw malformed(`the byte at ${this.at - 1} has no meaning`);
    }
  }

  protected rawNumber(): number {
    const head = this.u8[this.at] as number;
    const value: unknown =
      head >> 5 === 0
        ? this.count()
        : head >> 5 === 1
          ? -1 - Number(this.count())
          : this.float(head);
    if (typeof value !== "number") throw malformed("a number is missing");
    return value;
  }

  private float(head: number): number {
    if (head < 0xf9 || head > 0xfb) throw malformed("a number is missing");
    this.at += 1;
    if (head === 0xf9) return half(this.data.getUint16(this.take(2)));
    return head === 0xfa ? this.data.getFloat32(this.take(4)) : this.data.getFloat64(this.take(8));
  }

  private rawBigint(): bigint {
    const digits = Array.from(this.rawBytes(), (byte) => byte.toString(16).padStart(2, "0"));
    return BigInt(`0x0${digits.join("")}`);
  }

  /** The length of the list that follows. */
  protected listHead(): number {
    if ((this.u8[this.at] as number) >> 5 !== 4) throw malformed("a list is missing");
    return this.length(1);
  }

  private tagged(tag: number): unknown {
    switch (tag) {
      case TAG.time:
        return this.checkedDate(this.rawNumber() * 1_000);
      case TAG.bigint:
        return this.bigint(this.rawBigint());
      case TAG.negativeBigint:
        return this.bigint(-1n - this.rawBigint());
      case TAG.made: {
        const count = this.listHead();
        if (count < 1) throw malformed("a class has no name");
        return this.made(this.anyText(), count - 1);
      }
      case TAG.shared:
        return this.shared();
      case TAG.reference:
        return this.reference(this.rawNumber());
      case TAG.set:
        return this.set(this.listHead());
      case TAG.map:
        if ((this.u8[this.at] as number) >> 5 !== 5) throw malformed("a map is missing");
        return this.map(this.length(2));
      case TAG.wtf8:
        return this.wtf8();
      case TAG.regExp: {
        if (this.listHead() !== 2) throw malformed("a RegExp has no source and flags");
        return this.regExp(this.anyText(), this.anyText());
      }
    }
    const name = ARRAYS[tag];
    if (name === undefined) throw malformed(`it has the tag ${tag}, which is not known`);
    return this.typedArray(name, this.rawBytes());
  }

  protected checkedDate(given: number): unknown {
    const ms = Math.round(given);
    if (Math.abs(ms) > 8.64e15) throw malformed("a date is out of range");
    return this.date(ms);
  }
}

/** The number of 16 bits. */
function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : Number.NaN;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}

/** Sets a field, of any name: an assignment to `__proto__` would set the prototype. */
export function setField(of: object, name: string, value: unknown): void {
  if (name !== "__proto__") (of as Record<string, unknown>)[name] = value;
  else {
    const configurable = true;
    Object.defineProperty(of, name, { value, configurable, enumerable: true, writable: true });
  }
}

/** Reads values. */
export class ValueReader extends Reader {
  private readonly known: unknown[] = [];
  /** The number that the next object gets, before its contents are read: they may refer to it. */
  private pending = -1;

  private met<T>(value: T): T {
    if (this.pending >= 0) {
      this.known[this.pending] = value;
      this.pending = -1;
    }
    return value;
  }

  protected shared(): unknown {
    if (this.pending >= 0) throw malformed("a value is marked twice");
    const number = this.known.push(undefined) - 1;
    this.pending = number;
    const value = this.value();
    if (this.pending >= 0) throw malformed("what is marked as shared is no object");
    return value;
  }

  protected reference(number: number): unknown {
    const value = this.known[number];
    if (value === undefined) throw malformed(`there is no value ${number} to refer to`);
    return value;
  }

  protected number(value: number | bigint): unknown {
    return value;
  }

  protected bigint(value: bigint): unknown {
    return value;
  }

  protected undefined(): undefined {
    return undefined;
  }

  protected bytes(bytes: Uint8Array): unknown {
    // As a plain array of bytes: a `slice` of Node's Buffer would be of the same class.
    return this.met(new Uint8Array(bytes));
  }

  protected list(length: number): unknown {
    const list: unknown[] = this.met([]);
    while (this.more(list.length, length)) list.push(this.value());
    return list;
  }

  protected fields(count: number): unknown {
    return this.fieldsOf(this.met({}), count);
  }

  private fieldsOf<T extends object>(to: T, count: number): T {
    for (let i = 0; this.more(i, count); i++) {
      const name = this.name();
      setField(to, name, this.value());
    }
    return to;
  }

  protected map(count: number): unknown {
    const map = this.met(new Map());
    for (let i = 0; this.more(i, count); i++) {
      const key = this.value();
      map.set(key, this.value());
    }
    return map;
  }

  protected set(length: number): unknown {
    const set = this.met(new Set());
    for (let i = 0; this.more(i, length); i++) set.add(this.value());
    return set;
  }

  protected date(ms: number): unknown {
    return this.met(new Date(ms));
  }

  protected regExp(source: string, flags: string): unknown {
    return this.met(new RegExp(source, flags));
  }

  protected typedArray(name: string, bytes: Uint8Array): unknown {
    type Constructor = new (buffer: ArrayBuffer) => ArrayBufferView;
    const TypedArray = (globalThis as unknown as Record<string, Constructor | undefined>)[name];
    if (TypedArray === undefined) throw malformed(`there is no ${name} here`);
    return this.met(new TypedArray(bufferOf(bytes)));
  }

  protected made(name: string, count: number): unknown {
    if (ERRORS.includes(name)) return this.error(name, count);
    if (name === "Array") {
      if (count !== 2) throw malformed("an Array has no length and items");
      const list = this.met([] as unknown[]);
      const length = this.rawNumber();
      // V8 reserves memory for up to 32 million items, but not for an array that was longer before.
      if (length > MANY_ITEMS) list.length = 0xffff_ffff;
      list.length = length;
      if ((this.u8[this.at] as number) >> 5 !== 5) throw malformed("the items are missing");
      return this.itemsOf(list);
    }
    if (count !== 1) throw malformed(`a ${name} needs one value`);
    switch (name) {
      case "ArrayBuffer":
        return this.met(bufferOf(this.rawBytes()));
      case "DataView":
        return this.met(new DataView(bufferOf(this.rawBytes())));
      case "Date":
        return this.checkedDate(this.rawNumber());
      case "Number":
      case "String":
      case "Boolean":
      case "BigInt": {
        const { pending } = this;
        this.pending = -1;
        const value = this.value();
        this.pending = pending;
        if (typeof value !== name.toLowerCase()) throw malformed(`a ${name} has no such value`);
        return this.met(Object(value));
      }
      default:
        throw malformed(`it has a ${JSON.stringify(name)}, which is not known`);
    }
  }

  private itemsOf(list: unknown[]): unknown {
    const { length } = list;
    const items = this.value() as Record<string, unknown>;
    for (const name of Object.keys(items)) setField(list, name, items[name]);
    if (list.length !== length) throw malformed("an Array has an item behind its end");
    return list;
  }

  private error(name: string, count: number): unknown {
    if (count !== 2 && count !== 3) throw malformed("an Error has no message and stack");
    const number = this.pending;
    this.pending = -1;
    const [message, stack] = [this.value(), this.value()];
    this.pending = number;
    const isText = (value: unknown) => value === undefined || typeof value === "string";
    if (!isText(message) || !isText(stack)) throw malformed("an Error's message is no text");
    type Constructor = new (message?: string) => Error;
    const Class = (globalThis as unknown as Record<string, Constructor>)[name] as Constructor;
    const error = this.met(message === undefined ? new Class() : new Class(message as string));
    define(error, "stack", stack);
    if (count === 3) define(error, "cause", this.value());
    return error;
  }
}

/** Defines a property as errors have them. */
function define(error: Error, name: string, value: unknown): void {
  Object.defineProperty(error, name, {
    value,
    configurable: true,
    enumerable: false,
    writable: true,
  });
}

function bufferOf(bytes: Uint8Array): ArrayBuffer {
  return new Uint8Array(bytes).buffer;
}
