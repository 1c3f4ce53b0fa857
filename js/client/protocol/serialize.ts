/**
 * Answers as bytes, for the record of a client: what `postMessage` can carry and programs do answer with
 * (JSON's values, `undefined`, numbers of all kinds, bigints, dates, bytes, maps and sets).
 */

import { encoder, newDecoder } from "../../util/text-coders.js";

const decoder = newDecoder();

/** What JSON has no form for, as an array that begins with the name of its kind under this key. */
const KIND = "varve$";

type Tagged = { readonly [KIND]: readonly [string, unknown?] };

/** How much more may come before the bytes are too many in any case. */
let room = 0;

/** The bytes of a value, or `undefined` when it is of another kind, or when they would be more than `most`. */
export function pack(value: unknown, most: number): Uint8Array | undefined {
  if (value === undefined) return new Uint8Array(0);
  room = most;
  try {
    const bytes = encoder.encode(JSON.stringify(tagged(value)));
    return bytes.length > most ? undefined : bytes;
  } catch {
    return undefined;
  }
}

export function unpack(bytes: Uint8Array): unknown {
  if (bytes.length === 0) return undefined;
  // A copy: the platform's decoder refuses some memories.
  return untagged(JSON.parse(decoder.decode(bytes.slice())));
}

function tag(kind: string, content?: unknown): Tagged {
  return { [KIND]: content === undefined ? [kind] : [kind, content] };
}

/** Ends early for what is large or without an end: nobody wants its bytes. */
function fits(length: number): void {
  room -= length;
  if (room < 0) throw new RangeError();
}

function tagged(value: unknown): unknown {
  fits(typeof value === "string" ? value.length : 1);
  switch (typeof value) {
    case "undefined":
      return tag("undefined");
    case "bigint":
      return tag("bigint", String(value));
    case "number":
      return Number.isFinite(value) && !Object.is(value, -0) ? value : tag("number", show(value));
    case "string":
    case "boolean":
      return value;
    case "object":
      return value === null ? null : taggedObject(value);
    default:
      throw new TypeError();
  }
}

function show(value: number): string {
  return Object.is(value, -0) ? "-0" : String(value);
}

function taggedObject(value: object): unknown {
  if (Array.isArray(value)) return value.map(tagged);
  if (value instanceof Uint8Array) return tag("bytes", binary(value));
  if (value instanceof Date) return tag("date", tagged(value.getTime()));
  if (value instanceof Map) return tag("map", tagged([...value]));
  if (value instanceof Set) return tag("set", tagged([...value]));
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw new TypeError();
  if (KIND in value) throw new TypeError();
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, tagged(one)]));
}

/** One character for each byte. */
function binary(bytes: Uint8Array): string {
  fits(bytes.length);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

function untagged(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(untagged);
  if (KIND in value) return fromTag((value as Tagged)[KIND]);
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, untagged(one)]));
}

function fromTag([kind, content]: readonly [string, unknown?]): unknown {
  switch (kind) {
    case "undefined":
      return undefined;
    case "bigint":
      return BigInt(content as string);
    case "number":
      return Number(content);
    case "bytes":
      return Uint8Array.from(content as string, (character) => character.charCodeAt(0));
    case "date":
      return new Date(untagged(content) as number);
    case "map":
      return new Map(untagged(content) as [unknown, unknown][]);
    default:
      return new Set(untagged(content) as unknown[]);
  }
}
