/**
 * varve/struct: schemas whose values are read where they lie, in a database or in bytes from anywhere.
 * It needs nothing of the engine. The bytes are those of a Rust struct: see `Schema`.
 */

export { MalformedValueError, StaleViewError } from "./errors.js";
export type { Codec, Descriptor, Memory, StructDescriptor } from "./struct/codec.js";
export type { CustomCodec } from "./struct/custom.js";
export type { Infer, Input, Schema, View, Writable } from "./struct/infer.js";
export {
  type BigintType,
  bool,
  f32,
  f64,
  i8,
  i16,
  i32,
  i64,
  type NumberType,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
} from "./struct/numbers.js";
export { json, text } from "./struct/plain.js";
export { flatten, struct } from "./struct/struct.js";
export { fixedStr, str, type TextType } from "./struct/text.js";
export type { Type } from "./struct/type.js";
