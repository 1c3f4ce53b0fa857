/**
 * Values as JSON, for every schema: straight from the bytes to the text and from the text to the
 * bytes, without an object in between. It is no part of a program that does not import it.
 */

import type { Descriptor, Memory } from "./codec.js";
import type { Leaf } from "./fields.js";
import { planOf } from "./json-plan.js";
import { read } from "./json-read.js";
import { write } from "./json-write.js";
import { lone } from "./type.js";

/** What has JSON: a schema, or the codec of a collection. */
export interface HasJson {
  readonly kind: Descriptor;
}

/** How JSON is read. */
export interface JsonOptions {
  /** Goes past fields that the schema has not got, where they would be an error. Default `false`. */
  ignoreUnknown?: boolean;
}

/**
 * A value's JSON. u64 and i64 are strings of digits, since most readers of JSON would round them;
 * timestamps are milliseconds; bytes are base64; floats that are not finite are `"NaN"`,
 * `"Infinity"`, `"-Infinity"`; what is absent is `null`. A variant is its name, or with a payload
 * `{"Name":payload}`. Throws `MalformedValueError` if the bytes are no such value.
 *
 * ```ts
 * toJson(Product, bytes); // {"stock":20001,"name":"Yeezy Boost 350 V2"}
 * ```
 */
export function toJson(schema: HasJson, bytes: Uint8Array): string {
  return new TextDecoder().decode(jsonWriter(schema)(lone(bytes), 0, bytes.length));
}

/**
 * The bytes of the value that this JSON tells of: those that `schema.encode` would make of it. Fields
 * may come in any order; parts then lie in that order too.
 *
 * It takes all that `toJson` writes, and u64 and i64 also as numbers, exactly, and timestamps as times
 * of ISO 8601. It is strict: a field that is unknown, missing or there twice, a number out of range,
 * a wrong variant, all throw `MalformedValueError`, whose `field` is a path such as
 * `$.lines[3].price`. Only what is absent in `option` and `optNonZero`, and `added` fields, may be
 * missing.
 */
export function fromJson(
  schema: HasJson,
  json: string | Uint8Array,
  options: JsonOptions = {},
): Uint8Array<ArrayBuffer> {
  const bytes = typeof json === "string" ? new TextEncoder().encode(json) : json;
  return jsonReader(schema, options)(bytes, 0, bytes.length).slice() as Uint8Array<ArrayBuffer>;
}

/**
 * For many values, such as lines: a function that reads the text between two places of an array. What
 * it gives is good until it is called again.
 */
export function jsonReader(
  schema: HasJson,
  { ignoreUnknown = false }: JsonOptions = {},
): (text: Uint8Array, from: number, to: number) => Uint8Array {
  const reading = { node: planOf(schema.kind), leaves: leavesOf(schema), lenient: ignoreUnknown };
  return (text, from, to) => read(reading, text, from, to);
}

/**
 * For many values: a function that writes the JSON of a value in memory as UTF-8. What it gives is
 * good until it is called again.
 */
export function jsonWriter(
  schema: HasJson,
): (memory: Memory, at: number, length: number) => Uint8Array {
  const { kind } = schema;
  const name = kind.kind === "struct" ? kind.name : kind.kind;
  const writing = { name, node: planOf(kind), leaves: leavesOf(schema) };
  return (memory, at, length) => write(writing, memory, at, length);
}

/** A schema's fields with their defaults, in the plan's order. */
function leavesOf(schema: HasJson): readonly Leaf[] {
  return (schema as { leaves?: readonly Leaf[] }).leaves ?? [];
}
