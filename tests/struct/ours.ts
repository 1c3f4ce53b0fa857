/** The package's schema for a descriptor, and conversion of the slow codec's values. */

import * as t from "varve/struct";
import type { Kind, StructKind } from "./kinds.js";
import { type Fields, type Value, variantOf } from "./reference-codec.js";

type Leaves = Record<string, t.Type>;
/** A schema without static types. */
export type AnySchema = t.Type & t.Schema<Leaves>;

const SIMPLE: Record<string, t.Type> = {
  u8: t.u8,
  u16: t.u16,
  u32: t.u32,
  u64: t.u64,
  u53: t.u53,
  i8: t.i8,
  i16: t.i16,
  i32: t.i32,
  i64: t.i64,
  f32: t.f32,
  f64: t.f64,
  bool: t.bool,
  timestamp: t.timestamp,
  str: t.str,
  blob: t.blob,
};

export function schemaOf({ name, fields, versioned }: StructKind): AnySchema {
  const types = Object.fromEntries(
    fields.map(([field, kind]) => [
      field,
      kind.kind === "flatten" ? t.flatten(schemaOf(kind.of)) : typeOf(kind),
    ]),
  ) as Leaves;
  return (versioned ? t.versioned(name, types) : t.struct(name, types)) as unknown as AnySchema;
}

export function typeOf(kind: Kind): t.Type {
  switch (kind.kind) {
    case "enum8":
      return t.enum8(...kind.variants) as t.Type;
    case "enum16":
      return t.enum16(...kind.variants) as t.Type;
    case "bytes":
      return t.bytes(kind.length) as t.Type;
    case "fixedStr":
      return t.fixedStr(kind.length) as t.Type;
    case "array":
      return t.array(typeOf(kind.of), kind.length) as t.Type;
    case "vec":
      return t.vec(typeOf(kind.of)) as t.Type;
    case "option":
      return t.option(typeOf(kind.of)) as t.Type;
    case "optNonZero":
      return t.optNonZero(typeOf(kind.of) as t.NumberType) as t.Type;
    case "union": {
      const variants = kind.variants.map(([name, of]) => [name, of === null ? null : typeOf(of)]);
      return t.union(Object.fromEntries(variants) as t.Variants) as t.Type;
    }
    case "struct":
      return schemaOf(kind);
    default:
      return SIMPLE[kind.kind] as t.Type;
  }
}

function ownEntry(value: Fields, name: string): Value {
  return Object.getOwnPropertyDescriptor(value, name)?.value as Value;
}

/** Converts a value to the form that the package takes and `snapshot()` returns. */
export function oursOf(kind: Kind, value: Value): unknown {
  switch (kind.kind) {
    case "array":
    case "vec":
      return (value as readonly Value[]).map((item) => oursOf(kind.of, item));
    case "option":
    case "optNonZero":
      return value === null ? undefined : oursOf(kind.of, value);
    case "union": {
      const [type, payload] = variantOf(value);
      const of = kind.variants.find(([name]) => name === type)?.[1];
      return of ? { type, value: oursOf(of, payload as Value) } : { type };
    }
    case "struct":
      return Object.fromEntries(
        kind.fields.flatMap(([name, of]): [string, unknown][] =>
          of.kind === "flatten"
            ? Object.entries(oursOf(of.of, value) as object)
            : [[name, oursOf(of, ownEntry(value as Fields, name))]],
        ),
      );
    default:
      return value;
  }
}

/** Reads everything through a view, field by field and item by item. */
export function walk(kind: Kind, seen: unknown): unknown {
  switch (kind.kind) {
    case "array":
    case "vec": {
      const list = seen as t.List<unknown>;
      return Array.from({ length: list.length }, (_, index) => walk(kind.of, list.at(index)));
    }
    case "option":
    case "optNonZero":
      return seen === undefined ? undefined : walk(kind.of, seen);
    case "union": {
      const { type, value } = seen as { type: string; value?: unknown };
      const of = kind.variants.find(([name]) => name === type)?.[1];
      return of ? { type, value: walk(of, value) } : { type };
    }
    case "struct":
      return Object.fromEntries(walkFields(kind, seen as Record<string, unknown>));
    case "bytes":
    case "blob":
      return (seen as Uint8Array).slice();
    default:
      return seen;
  }
}

function walkFields(kind: StructKind, view: Record<string, unknown>): [string, unknown][] {
  return kind.fields.flatMap(([name, of]): [string, unknown][] =>
    of.kind === "flatten" ? walkFields(of.of, view) : [[name, walk(of, view[name])]],
  );
}
