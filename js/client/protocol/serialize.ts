/**
 * Serializes answers for the record of a client: the values that `postMessage` can carry and programs commonly
 * return (JSON values, `undefined`, all numbers, bigints, dates, bytes, maps and sets).
 */

import { encoder, newDecoder } from "../../util/text-coders.js";

const decoder = newDecoder();

/** The key of values without a JSON form: an array that begins with the name of their kind. */
const KIND = "varve$";

type Tagged = { readonly [KIND]: readonly [string, unknown?] };

/** The number of further bytes after which the result would be too long. */
let budget = 0;

/** The bytes of a value, or `undefined` if it is of another kind, or longer than `most` bytes. */
export function pack(value: unknown, most: number): Uint8Array | undefined {
  if (value === undefined) return new Uint8Array(0);
  budget = most;
  try {
    const bytes = encoder.encode(JSON.stringify(tagged(value)));
    return bytes.length > most ? undefined : bytes;
  } catch {
    return undefined;
  }
}

export function unpack(bytes: Uint8Array): unknown {
  if (bytes.length === 0) return undefined;
  // Copied, because the platform's decoder refuses some kinds of memory.
  return untagged(JSON.parse(decoder.decode(bytes.slice())));
}

function tag(kind: string, content?: unknown): Tagged {
  return { [KIND]: content === undefined ? [kind] : [kind, content] };
}

/** Throws early for a value that is too large or circular. */
function fits(length: number): void {
  budget -= length;
  if (budget < 0) throw new RangeError();
}

function tagged(value: unknown): unknown {
  fits(typeof value === "string" ? value.length : 1);
  switch (typeof value) {
    case "undefined":
      return tag("undefined");
    case "bigint":
      return tag("bigint", String(value));
    case "number":
      return Number.isFinite(value) && !Object.is(value, -0) ? value : tag("number", textOf(value));
    case "string":
    case "boolean":
      return value;
    case "object":
      return value === null ? null : taggedObject(value);
    default:
      throw new TypeError();
  }
}

function textOf(value: number): string {
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
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, tagged(part)]));
}

/** The bytes as a string with one character each. */
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
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, untagged(part)]));
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
