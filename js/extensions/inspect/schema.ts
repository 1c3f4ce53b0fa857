/** Makes the schema of a collection from what the file says of it, so that its records can be changed. */

import {
  added,
  array,
  blob,
  bool,
  bytes,
  type Descriptor,
  desc,
  enum8,
  enum16,
  type Fields,
  f32,
  f64,
  fixedStr,
  flatten,
  i8,
  i16,
  i32,
  i64,
  option,
  optNonZero,
  type Schema,
  type StructDescriptor,
  str,
  struct,
  type Type,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
  union,
  vec,
  versioned,
} from "../../struct.js";

const SIMPLE: Record<string, Type> = {
  ...{ u8, u16, u32, u64, u53, i8, i16, i32, i64, f32, f64, bool, timestamp, str, blob },
} as Record<string, Type>;

/** @throws TypeError for a kind that is not known here */
export function schemaOf(descriptor: StructDescriptor): Schema<object> {
  const { name, fields, versioned: isVersioned, added: defaults = [] } = descriptor;
  const types = fields.map(([field, kind], i) => {
    if (kind.kind === "flatten") {
      return [field, flatten(schemaOf(kind.of as StructDescriptor))];
    }
    const type = typeOf(kind);
    // The last fields may have defaults, which matter only to values of earlier versions: zero here.
    const isAdded = isVersioned === true && i >= fields.length - defaults.length;
    return [field, isAdded ? added(type, zeroOf(kind)) : type];
  });
  const made = Object.fromEntries(types) as Fields;
  return (isVersioned ? versioned(name, made) : struct(name, made)) as Schema<object>;
}

function zeroOf(kind: Descriptor): unknown {
  switch (kind.kind) {
    case "u64":
    case "i64":
      return 0n;
    case "bool":
      return false;
    case "str":
    case "fixedStr":
      return "";
    case "enum8":
    case "enum16":
      return kind.variants[0];
    case "option":
    case "optNonZero":
      return undefined;
    case "vec":
      return [];
    case "blob":
      return new Uint8Array(0);
    case "bytes":
      return new Uint8Array(kind.length);
    case "array":
      return Array.from({ length: kind.length }, () => zeroOf(kind.of));
    case "struct":
      return Object.fromEntries(kind.fields.map(([name, of]) => [name, zeroOf(of)]));
    case "union": {
      const [type, of] = kind.variants[0] ?? ["", null];
      return of === null ? { type } : { type, value: zeroOf(of) };
    }
    default:
      return 0;
  }
}

function typeOf(kind: Descriptor): Type {
  switch (kind.kind) {
    case "struct":
      return schemaOf(kind) as unknown as Type;
    case "enum8":
      return enum8(...kind.variants) as Type;
    case "enum16":
      return enum16(...kind.variants) as Type;
    case "bytes":
      return bytes(kind.length) as Type;
    case "fixedStr":
      return fixedStr(kind.length) as Type;
    case "array":
      return array(typeOf(kind.of), kind.length) as Type;
    case "vec":
      return vec(typeOf(kind.of)) as Type;
    case "option":
      return option(typeOf(kind.of)) as Type;
    case "optNonZero":
      return optNonZero(typeOf(kind.of) as Type<number, number, number, number>) as Type;
    case "union":
      return union(
        Object.fromEntries(kind.variants.map(([name, of]) => [name, of && typeOf(of)])),
      ) as Type;
    default: {
      const type = SIMPLE[kind.kind];
      if (type === undefined) throw new TypeError(`The kind ${kind.kind} is not known here.`);
      return type;
    }
  }
}

/** The option `key` of a collection, from the kind that is stored; `undefined` for text. */
export function keyOptionOf(stored: unknown): unknown {
  if (stored === "bytes") return blob;
  if (!Array.isArray(stored)) return undefined;
  const parts = stored.map(partOf);
  return parts.length === 1 ? parts[0] : parts;
}

function partOf(kind: unknown): unknown {
  const inner = Object(kind) as { desc?: unknown };
  if (inner.desc !== undefined) return desc(partOf(inner.desc) as Type);
  return typeOf(kind as Descriptor);
}
