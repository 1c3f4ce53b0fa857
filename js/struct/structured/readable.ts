/**
 * The readable form of values: JSON, in which an object with a single field whose name begins with `$` represents what JSON
 * cannot hold. docs/structured.md lists them.
 */

import { decoded, encoded, reading, writing } from "./coding.js";
import { ARRAY_TAGS, ERRORS, malformed, TAG } from "./format.js";
import { Reader, setField } from "./reader.js";
import type { Writer } from "./writer.js";

/** The classes that are made from a list of values. */
const MADE = [...ERRORS, "Array", "Number", "String", "Boolean"];

/** The value of these bytes as JSON. @throws MalformedValueError */
export function jsonTextOf(bytes: Uint8Array): string {
  decoded(bytes);
  return reading(() => JSON.stringify(new CborToJson(bytes).whole()));
}

/** The bytes of the value that this JSON represents. @throws MalformedValueError */
export function bytesOfJson(json: string): Uint8Array<ArrayBuffer> {
  return reading(() => {
    const parsed: unknown = JSON.parse(json);
    const bytes = writing((writer) => {
      write(writer, parsed);
      return writer.finish();
    });
    // As the database would write it: numbers may be written in several ways.
    return encoded(decoded(bytes));
  });
}

class CborToJson extends Reader {
  protected number(value: number | bigint): unknown {
    if (typeof value === "bigint") {
      this.bigint(value);
      return;
    }
    if (Number.isFinite(value) && !Object.is(value, -0)) return value;
    return { $float: Object.is(value, -0) ? "-0" : String(value) };
  }

  protected bigint(value: bigint): unknown {
    return { $BigInt: String(value) };
  }

  protected undefined(): unknown {
    return { $undefined: true };
  }

  protected bytes(bytes: Uint8Array): unknown {
    return this.typedArray("Uint8Array", bytes);
  }

  protected typedArray(name: string, bytes: Uint8Array): unknown {
    return { [`$${name}`]: toBase64(bytes) };
  }

  protected list(length: number): unknown {
    const list: unknown[] = [];
    while (this.more(list.length, length)) list.push(this.value());
    return list;
  }

  protected fields(count: number): unknown {
    const fields = {};
    for (let i = 0; this.more(i, count); i++) {
      const name = this.name();
      setField(fields, name, this.value());
    }
    return specialName(fields) === undefined ? fields : { $Object: fields };
  }

  protected map(count: number): unknown {
    const entries: unknown[] = [];
    while (this.more(entries.length, count)) {
      const key = this.value();
      entries.push([key, this.value()]);
    }
    return { $Map: entries };
  }

  protected set(length: number): unknown {
    return { $Set: this.list(length) };
  }

  protected date(ms: number): unknown {
    return { $Date: Number.isNaN(ms) ? null : new Date(ms).toISOString() };
  }

  protected regExp(source: string, flags: string): unknown {
    return { $RegExp: [source, flags] };
  }

  protected shared(): unknown {
    return { $shared: this.value() };
  }

  protected reference(number: number): unknown {
    return { $ref: number };
  }

  protected made(name: string, count: number): unknown {
    if (name === "ArrayBuffer" || name === "DataView") {
      return this.typedArray(name, this.rawBytes());
    }
    if (name === "Date") return this.checkedDate(this.rawNumber());
    return { [`$${name}`]: this.list(count) };
  }
}

/** The name of the only field, if it begins with `$`. */
function specialName(fields: object): string | undefined {
  const names = Object.keys(fields);
  return names.length === 1 && names[0]?.startsWith("$") ? names[0] : undefined;
}

function write(writer: Writer, json: unknown): void {
  if (typeof json !== "object" || json === null) {
    writer.value(json);
    return;
  }
  if (Array.isArray(json)) {
    writer.list(json.length);
    for (const item of json) write(writer, item);
    return;
  }
  const special = specialName(json);
  if (special === undefined) writeFields(writer, json);
  else writeSpecial(writer, special.slice(1), (json as Record<string, unknown>)[special]);
}

function writeFields(writer: Writer, fields: object): void {
  const entries = Object.entries(fields);
  writer.fields(entries.length);
  for (const [name, value] of entries) {
    writer.text(name);
    write(writer, value);
  }
}

function writeSpecial(writer: Writer, name: string, given: unknown): void {
  const tag = ARRAY_TAGS[name];
  if (tag !== undefined) {
    writer.tag(tag);
    writer.bytes(fromBase64(given));
    return;
  }
  if (name === "BigInt" && !Array.isArray(given)) {
    writer.bigint(BigInt(textIn(name, given)));
    return;
  }
  if (name === "BigInt" || MADE.includes(name)) {
    const items = listIn(name, given);
    writer.made(name, items.length + 1);
    for (const [i, item] of items.entries()) {
      // The items of an array with holes, whatever their names.
      if (name === "Array" && i === 1) writeFields(writer, Object(item));
      else write(writer, item);
    }
    return;
  }
  switch (name) {
    case "float": {
      const number = Number(given);
      if (!["NaN", "Infinity", "-Infinity", "-0"].includes(given as string)) break;
      writer.number(number);
      return;
    }
    case "undefined":
      writer.value(undefined);
      return;
    case "Uint8Array":
      writer.bytes(fromBase64(given));
      return;
    case "ArrayBuffer":
    case "DataView":
      writer.made(name, 2);
      writer.bytes(fromBase64(given));
      return;
    case "Date": {
      const ms = given === null ? Number.NaN : Date.parse(textIn(name, given));
      if (given !== null && Number.isNaN(ms)) break;
      writer.date(ms);
      return;
    }
    case "RegExp":
      writer.tag(TAG.regExp);
      write(writer, listIn(name, given));
      return;
    case "Map": {
      const entries = listIn(name, given);
      writer.tag(TAG.map);
      writer.fields(entries.length);
      for (const entry of entries) {
        const pair = listIn(name, entry);
        if (pair.length !== 2) throw wrong(name, entry);
        for (const part of pair) write(writer, part);
      }
      return;
    }
    case "Set":
      writer.tag(TAG.set);
      write(writer, listIn(name, given));
      return;
    case "Object":
      if (typeof given !== "object" || given === null) break;
      writeFields(writer, given);
      return;
    case "shared":
      writer.tag(TAG.shared);
      write(writer, given);
      return;
    case "ref":
      if (typeof given !== "number") break;
      writer.tag(TAG.reference);
      writer.number(given);
      return;
  }
  throw wrong(name, given);
}

function wrong(name: string, given: unknown): Error {
  const text = JSON.stringify(given)?.slice(0, 60);
  return malformed(
    `{"$${name}":${text}} is not known. A field with this name is written {"$Object":{"$${name}":…}}`,
  );
}

function listIn(name: string, given: unknown): readonly unknown[] {
  if (!Array.isArray(given)) throw wrong(name, given);
  return given;
}

function textIn(name: string, given: unknown): string {
  if (typeof given !== "string") throw wrong(name, given);
  return given;
}

function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

function fromBase64(given: unknown): Uint8Array {
  return Uint8Array.from(atob(textIn("Uint8Array", given)), (sign) => sign.charCodeAt(0));
}
