/**
 * Conversion of values to JSON and back, for every schema: directly between bytes and text, without objects in between.
 * Programs that do not import this module do not include it.
 */

import { decoder, encoder, newDecoder } from "../../util/text-coders.js";
import { byteLengthOf } from "../byte-length.js";
import type { Descriptor, Memory } from "../codec.js";
import type { Leaf } from "../layout.js";
import { badValue, noMore, standaloneMemory } from "../type.js";
import { textOf } from "../utf8.js";
import { read } from "./parse.js";
import { planOf } from "./plan.js";
import { write } from "./stringify.js";

/** A schema or the codec of a collection, whose values can be written as JSON. */
export interface HasJson {
  readonly kind: Descriptor;
}

/** A codec that has a JSON form of its own, as that of `structured()`. */
interface OwnForm extends HasJson {
  toJsonText(bytes: Uint8Array): string;
  fromJsonText(json: string): Uint8Array;
}

function ownFormOf(schema: HasJson): OwnForm | undefined {
  return "toJsonText" in schema ? (schema as OwnForm) : undefined;
}

/** Options for reading JSON. */
export interface JsonOptions {
  /** Skips fields that the schema does not have. Otherwise they are an error. `false` by default. */
  ignoreUnknown?: boolean;
}

/**
 * Returns the JSON of a value. u64 and i64 are strings of digits, since most JSON parsers would round them;
 * timestamps are milliseconds; bytes are base64; floats that are not finite are `"NaN"`, `"Infinity"` or
 * `"-Infinity"`; a missing value is `null`. A variant of a union is its name or, with a value,
 * `{"Name":value}`. `inJson` declares other forms.
 *
 * ```ts
 * toJson(Product, bytes); // {"stock":20001,"name":"Yeezy Boost 350 V2"}
 * ```
 *
 * @throws MalformedValueError if the bytes are not a value of the schema
 */
export function toJson(schema: HasJson, bytes: Uint8Array): string;
export function toJson(schema: HasJson, bytes: Uint8Array, ...more: unknown[]): string {
  noMore("toJson()", more);
  const length = byteLengthOf(bytes);
  if (length < 0) throw badValue("toJson() needs a Uint8Array, not detached.", bytes);
  return newDecoder().decode(jsonWriter(schema)(standaloneMemory(bytes), 0, length));
}

/**
 * Returns the bytes of the value that this JSON describes: those that `schema.encode` would make of it.
 * Fields may come in any order; the order of their parts in the value follows it.
 *
 * It reads all that `toJson` writes. u64 and i64 may also be numbers, which are read exactly, and timestamps
 * may also be ISO 8601 times. It is strict: a field that is unknown, missing or given twice, a number out of
 * range or a wrong variant throws. Only `option`, `optNonZero` and `added` fields may be left out.
 *
 * A variant of a union may also be `{"type":"Name","value":value}`, as in what `JSON.stringify` makes of a
 * `snapshot()`. (`JSON.stringify(view)` makes what `toJson` does, of every type; of a snapshot it refuses bigints,
 * and its bytes are no base64.) Where a variant is itself called "type", `{"type":…}` is that one.
 *
 * @throws MalformedValueError for wrong JSON. Its `field` is a path such as `$.lines[3].price`.
 */
export function fromJson(
  schema: HasJson,
  json: string | Uint8Array,
  options: JsonOptions = {},
): Uint8Array<ArrayBuffer> {
  for (const option in Object(options)) {
    if (option !== "ignoreUnknown") {
      throw badValue("fromJson() has no option but ignoreUnknown.", option);
    }
  }
  if (Object(options) !== options)
    throw badValue("The options of fromJson() must be an object.", options);
  const bytes = typeof json === "string" ? encoder.encode(textOf(json)) : json;
  const length = byteLengthOf(bytes);
  if (length < 0) throw badValue("fromJson() needs a string or Uint8Array, not detached.", bytes);
  return jsonReader(schema, options)(bytes, 0, length).slice() as Uint8Array<ArrayBuffer>;
}

/**
 * For many values, such as lines: returns a function that reads the text between two positions of an array.
 * The bytes that it returns are valid until it is called again.
 */
export function jsonReader(
  schema: HasJson,
  { ignoreUnknown = false }: JsonOptions = {},
): (text: Uint8Array, from: number, to: number) => Uint8Array {
  const own = ownFormOf(schema);
  if (own !== undefined) {
    return (text, from, to) => own.fromJsonText(decoder.decode(text.subarray(from, to)));
  }
  const reading = { node: planOf(schema.kind), leaves: leavesOf(schema), lenient: ignoreUnknown };
  return (text, from, to) => read(reading, text, from, to);
}

/**
 * For many values: returns a function that writes a value in memory as JSON in UTF-8. The bytes that it
 * returns are valid until it is called again.
 */
export function jsonWriter(
  schema: HasJson,
): (memory: Memory, at: number, length: number) => Uint8Array {
  const own = ownFormOf(schema);
  if (own !== undefined) {
    return ({ u8 }, at, length) => encoder.encode(own.toJsonText(u8.subarray(at, at + length)));
  }
  const { kind } = schema;
  const name = kind.kind === "struct" ? kind.name : kind.kind;
  const writing = { name, node: planOf(kind), leaves: leavesOf(schema) };
  return (memory, at, length) => write(writing, memory, at, length);
}

/** A schema's fields with their defaults, in the plan's order. */
function leavesOf(schema: HasJson): readonly Leaf[] {
  return (schema as { leaves?: readonly Leaf[] }).leaves ?? [];
}
