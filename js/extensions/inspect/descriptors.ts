/** The collections and indexes that a file describes: crate/FORMAT.md, section 8, "Descriptors". */

import type { Descriptor, StructDescriptor } from "../../struct.js";
import { viewOf } from "./format.js";
import type { Scan } from "./scan.js";

/** What lies in a keyspace. */
export interface Keyspace {
  readonly what: "collection" | "index";
  /** Its name; that of an index with its collection's in front. */
  readonly name: string;
  /** For an index, the keyspace of its collection; else 0. */
  readonly parent: number;
  /** The struct of its values, if they are structs of a form that is known here. */
  readonly struct: StructDescriptor | undefined;
  /** The kind of its values. */
  readonly value: string;
  /** The kinds of the parts of its keys; `"string"` or `"bytes"` for keys as they are. */
  readonly key: unknown;
}

interface Stored {
  readonly keyspace: number;
  readonly flags: number;
  readonly parent: number;
  readonly json: { value?: { kind?: unknown }; key?: unknown };
}

/** By the numbers of their keyspaces. Descriptors that cannot be read are left out. */
export function keyspacesOf({ descriptors }: Scan): Map<number, Keyspace> {
  const found = new Map<number, Keyspace>();
  const indexes: [string, Stored][] = [];
  for (const [key, { value }] of descriptors) {
    const stored = decoded(value);
    // Bit 1 of the flags: it was dropped.
    if (stored === undefined || (stored.flags & 2) !== 0) continue;
    const name = new TextDecoder().decode(Uint8Array.from(key, (c) => c.charCodeAt(0)));
    if (name.startsWith("index/")) {
      // Four bytes of the key are a number, which need not be text.
      indexes.push([new TextDecoder().decode(latin1(key.slice(10))), stored]);
      continue;
    }
    const kind = stored.json.value;
    found.set(stored.keyspace, {
      what: "collection",
      parent: 0,
      name: name.slice("collection/".length),
      struct: isStruct(kind) ? kind : undefined,
      value: isStruct(kind) ? kind.name : String(kind?.kind ?? "unknown"),
      key: stored.json.key,
    });
  }
  for (const [name, { keyspace, parent }] of indexes) {
    const of = found.get(parent)?.name ?? `keyspace ${parent}`;
    const index = { what: "index", struct: undefined, value: "", key: "bytes" } as const;
    found.set(keyspace, { ...index, parent, name: `${of}, index ${name}` });
  }
  return found;
}

function latin1(text: string): Uint8Array {
  return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
}

function decoded(value: Uint8Array): Stored | undefined {
  const data = viewOf(value);
  if (value.length < 24) return undefined;
  const length = data.getUint32(20, true);
  try {
    return {
      keyspace: data.getUint32(8, true),
      flags: data.getUint32(12, true),
      parent: data.getUint32(16, true),
      json: JSON.parse(new TextDecoder().decode(value.subarray(24, 24 + length))),
    };
  } catch {
    // Ignored: a damaged descriptor takes the names from its records, and nothing else.
    return undefined;
  }
}

const SIMPLE = new Set(
  "u8 u16 u32 u64 u53 i8 i16 i32 i64 f32 f64 bool timestamp str blob".split(" "),
);

/** Whether it is a struct all of whose fields have kinds that are known here. */
function isStruct(kind: unknown, depth = 32): kind is StructDescriptor {
  const { kind: name, fields } = Object(kind) as Record<string, unknown>;
  if (name !== "struct" || !Array.isArray(fields)) return false;
  return fields.every(
    (field) => Array.isArray(field) && typeof field[0] === "string" && isKnown(field[1], depth - 1),
  );
}

function isKnown(given: unknown, depth: number): given is Descriptor {
  const { kind, of, length, variants } = Object(given) as Record<string, unknown>;
  if (depth === 0) return false;
  switch (kind) {
    case "struct":
      return isStruct(given, depth);
    case "bytes":
    case "fixedStr":
      return isCount(length);
    case "array":
      return isCount(length) && isKnown(of, depth - 1);
    case "vec":
    case "flatten":
    case "option":
    case "optNonZero":
      return isKnown(of, depth - 1);
    case "enum8":
    case "enum16":
      return Array.isArray(variants) && variants.every((one) => typeof one === "string");
    case "union":
      return (
        Array.isArray(variants) &&
        variants.every(
          (one) => Array.isArray(one) && (one[1] === null || isKnown(one[1], depth - 1)),
        )
      );
    default:
      return SIMPLE.has(String(kind));
  }
}

function isCount(length: unknown): boolean {
  return Number.isSafeInteger(length) && (length as number) > 0;
}
