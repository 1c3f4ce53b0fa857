/**
 * varve/struct: schemas whose values are read in place, in a database or in bytes from anywhere. It needs
 * nothing of the engine. The bytes are those of a Rust struct: see `struct`.
 */

export { MalformedValueError, StaleViewError } from "./errors/base.js";
export type {
  Codec,
  CustomCodec,
  Declared,
  Descriptor,
  Memory,
  StructCodec,
  StructDescriptor,
  Structure,
} from "./struct/codec.js";
export { type Comparable, eq } from "./struct/eq.js";
export type {
  Added,
  Assigns,
  Fields,
  Flatten,
  Infer,
  Input,
  Schema,
  Snapshots,
  View,
  Writable,
} from "./struct/infer.js";
export { type JsonCodecOptions, type JsonValues, json, text } from "./struct/json-and-text.js";
export {
  type Auto,
  auto,
  type Desc,
  desc,
  type KeyInput,
  type KeyOf,
  type KeyPart,
  type KeySpec,
} from "./struct/key.js";
export { flatten, struct } from "./struct/struct.js";
export type { Type } from "./struct/type.js";
export { type BytesType, blob, bytes } from "./struct/types/bytes.js";
export { type EnumType, enum8, enum16 } from "./struct/types/enums.js";
export {
  array,
  type Items,
  type List,
  type ListType,
  vec,
  type WritableList,
} from "./struct/types/lists.js";
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
} from "./struct/types/numbers.js";
export { type OptionType, option, optNonZero } from "./struct/types/option.js";
export { fixedStr, str, type TextType } from "./struct/types/strings.js";
export { type UnionType, union, type Variants } from "./struct/types/union.js";
export { added, versioned } from "./struct/types/versioned.js";
