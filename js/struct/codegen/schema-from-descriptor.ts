/** Makes schemas from the descriptors in a file. */

import { badArgument } from "../../errors/index.js";
import type { Descriptor, StructDescriptor } from "../codec.js";
import { schema } from "../struct.js";
import { copied, placeOf, standaloneMemory, type Type, walking } from "../type.js";
import { blob, bytes } from "../types/bytes.js";
import { enum8, enum16 } from "../types/enums.js";
import { array, vec } from "../types/lists.js";
import {
  bool,
  f32,
  f64,
  i8,
  i16,
  i32,
  i64,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
} from "../types/numbers.js";
import { option, optNonZero } from "../types/option.js";
import { fixedStr, str } from "../types/strings.js";
import { union, type Variants } from "../types/union.js";
import { added } from "../types/versioned.js";

/** Maximum nesting depth of descriptors. */
const MAX_DEPTH = 64;

const SIMPLE = {
  u8,
  u16,
  u32,
  u64,
  u53,
  i8,
  i16,
  i32,
  i64,
  f32,
  f64,
  bool,
  timestamp,
  str,
  blob,
} as const;

/** Checks a descriptor from a file; `undefined` if its kind is not known to this version. */
export function descriptorOf(value: unknown, depth = MAX_DEPTH): Descriptor | undefined {
  if (typeof value !== "object" || value === null || depth === 0) return undefined;
  const descriptor = value as Record<string, unknown>;
  const { kind, of, length, variants, fields, name, versioned, added: last } = descriptor;
  const inner = (one: unknown) => descriptorOf(one, depth - 1);
  const isLength = Number.isSafeInteger(length) && Number(length) >= 0;
  switch (kind) {
    case "json":
    case "text":
    case "structured":
      return { kind };
    case "custom":
      return { kind, name: String(name) };
    case "bytes":
    case "fixedStr":
      return isLength ? { kind, length: Number(length) } : undefined;
    case "enum8":
    case "enum16": {
      const isNames = Array.isArray(variants) && variants.every((one) => typeof one === "string");
      return isNames ? { kind, variants } : undefined;
    }
    case "array": {
      const type = inner(of);
      return type !== undefined && isLength
        ? { kind, of: type, length: Number(length) }
        : undefined;
    }
    case "vec":
    case "flatten":
    case "option":
    case "optNonZero": {
      const type = inner(of);
      return type === undefined ? undefined : { kind, of: type };
    }
    case "union": {
      const known = pairs(variants, (one) => (one === null ? null : inner(one)));
      return known && { kind, variants: known };
    }
    case "struct": {
      const known = pairs(fields, inner);
      if (known === undefined) return undefined;
      const struct = { kind, name: String(name), fields: known } as const;
      if (versioned !== true) return struct;
      return isDefaults(last) ? { ...struct, versioned, added: last } : { ...struct, versioned };
    }
    default:
      return Object.hasOwn(SIMPLE, String(kind)) ? ({ kind } as Descriptor) : undefined;
  }
}

function isDefaults(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every((one) => /^[A-Za-z0-9+/]*={0,2}$/.test(String(one)));
}

/** Maps pairs of a name and a value, or returns `undefined` if that fails for one of them. */
function pairs<T>(
  list: unknown,
  make: (value: unknown) => T | undefined,
): [string, T][] | undefined {
  if (!Array.isArray(list)) return undefined;
  const made = list.map((pair: unknown): [string, T] | undefined => {
    if (!Array.isArray(pair) || typeof pair[0] !== "string") return undefined;
    const value = make(pair[1]);
    return value === undefined ? undefined : [pair[0], value];
  });
  return made.every((pair) => pair !== undefined) ? made : undefined;
}

/** Makes the schema for a descriptor. */
export function schemaOf(struct: StructDescriptor): ReturnType<typeof schema> {
  const { name, fields, versioned } = struct;
  const made = fields.map(([field, kind], i) => {
    const of = kind.kind === "flatten" ? kind.of : undefined;
    if (of === undefined) {
      const bytes = versioned && addedBytes(struct, i);
      const type = typeOf(kind);
      return [field, bytes ? added(type, defaultOf(type, bytes)) : type];
    }
    if (of.kind !== "struct") throw badArgument("Only a struct can be flattened.", of.kind);
    return [field, { flat: schemaOf(of) }];
  });
  return schema(name, Object.fromEntries(made) as object, versioned === true);
}

/** The encoded default of a field, if it was added by a later version. */
function addedBytes({ fields, added: last = [] }: StructDescriptor, field: number) {
  const text = last[field - (fields.length - last.length)];
  return text && Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

function defaultOf(type: Type, bytes: Uint8Array): unknown {
  const place = placeOf(standaloneMemory(bytes), 0, bytes.length);
  return walking(bytes.length, () => copied(type.take(place, 0), 0));
}

/** The defaults of the added fields of a struct, by name. */
export function defaultsIn(struct: StructDescriptor): ReadonlyMap<string, unknown> {
  const found = struct.fields.flatMap(([field, kind], i): [string, unknown][] => {
    const bytes = addedBytes(struct, i);
    return bytes ? [[field, defaultOf(typeOf(kind), bytes)]] : [];
  });
  return new Map(found);
}

function typeOf(kind: Descriptor): Type {
  switch (kind.kind) {
    case "struct":
      return schemaOf(kind);
    case "enum8":
      return enum8(...kind.variants);
    case "enum16":
      return enum16(...kind.variants);
    case "bytes":
      return bytes(kind.length);
    case "fixedStr":
      return fixedStr(kind.length);
    case "array":
      return array(typeOf(kind.of), kind.length);
    case "vec":
      return vec(typeOf(kind.of));
    case "option":
      return option(typeOf(kind.of));
    case "optNonZero":
      return optNonZero(typeOf(kind.of) as Type<number, number, number, number>);
    case "union": {
      const variants = kind.variants.map(([name, of]) => [name, of === null ? null : typeOf(of)]);
      return union(Object.fromEntries(variants) as Variants);
    }
    case "json":
    case "text":
    case "structured":
    case "custom":
    case "flatten":
      throw badArgument("A struct cannot contain this.", kind.kind);
    default:
      return SIMPLE[kind.kind];
  }
}
