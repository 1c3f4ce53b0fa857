/** Human-readable differences between a stored and a declared schema. */

import { SchemaMismatchError } from "../errors/index.js";
import type { Descriptor, StructDescriptor } from "../struct/codec.js";

/** The declared schema of a collection. */
export interface Declaration {
  readonly fingerprint: string;
  readonly value: Descriptor;
  /** The kinds of the parts of its keys, or "string" or "bytes" for keys that are stored unencoded. */
  readonly key: string | readonly unknown[];
}

/** Advice for an error message if data or indexes would have to change. */
export const MIGRATE = "Call await db.migrate(name, codec, options), or declare what is stored.";

/** Throws SchemaMismatchError if a declaration does not match the stored collection. */
export function refuseOtherSchema(name: string, stored: Declaration, declared: Declaration): void {
  const keys = differenceOfKeys(stored, declared);
  if (keys !== undefined) {
    throw new SchemaMismatchError(
      `The collection "${name}" has keys of kind ${keys}. Declare what it has, or use another ` +
        "name.",
    );
  }
  if (isReadable(stored, declared)) return;
  const lines = differences(stored.value, declared.value);
  throw new SchemaMismatchError(
    `The collection "${name}" does not hold what is declared: ${lines.join("; ")}. ${MIGRATE}`,
  );
}

/** The differences between two declarations, even if each can read the values of the other. */
export function differencesOf(there: Declaration, here: Declaration): string[] {
  const keys = differenceOfKeys(there, here);
  if (keys !== undefined) return [`keys are ${keys}`];
  return there.fingerprint === here.fingerprint ? [] : differences(there.value, here.value);
}

function differenceOfKeys(there: Declaration, here: Declaration): string | undefined {
  const [a, b] = [JSON.stringify(there.key), JSON.stringify(here.key)];
  return a === b ? undefined : `${a}, not ${b}`;
}

/** Whether values of one declaration can be read as the other: the same schema, or another version of it. */
function isReadable(stored: Declaration, declared: Declaration): boolean {
  if (stored.fingerprint === declared.fingerprint) return true;
  const [a, b] = [stored.value, declared.value];
  if (a.kind !== "struct" || b.kind !== "struct" || !(a.versioned && b.versioned)) return false;
  // A versioned struct grows at its end, so the fields of the shorter one begin those of the longer one.
  const shared = Math.min(a.fields.length, b.fields.length);
  return JSON.stringify(a.fields.slice(0, shared)) === JSON.stringify(b.fields.slice(0, shared));
}

function differences(there: Descriptor, here: Descriptor): string[] {
  if (there.kind !== "struct" || here.kind !== "struct") {
    return [`${text(there)}, not ${text(here)}`];
  }
  return fieldsOf(there, here);
}

function fieldsOf(there: StructDescriptor, here: StructDescriptor): string[] {
  const lines: string[] = [];
  if (there.versioned !== here.versioned) {
    lines.push(`it is ${there.versioned ? "" : "not "}versioned`);
  }
  const [old, now] = [new Map(there.fields), new Map(here.fields)];
  for (const [field, kind] of old) {
    const other = now.get(field);
    if (other === undefined) lines.push(`${field} (${text(kind)}) is unexpected`);
    else if (text(kind) !== text(other)) {
      lines.push(`${field} is ${text(kind)}, not ${text(other)}`);
    }
  }
  for (const [field, kind] of now) {
    if (!old.has(field)) lines.push(`${field} (${text(kind)}) is missing`);
  }
  if (lines.length === 0) {
    const names = (of: StructDescriptor) => of.fields.map(([field]) => field).join(", ");
    lines.push(`the order of its fields is (${names(there)}), not (${names(here)})`);
  }
  return lines;
}

/** A kind in roughly the form in which a program declares it. */
function text(kind: Descriptor): string {
  const { length } = kind as { length?: number };
  switch (kind.kind) {
    case "struct":
      return `${kind.name} { ${kind.fields.map(([name, of]) => `${name}: ${text(of)}`).join(", ")} }`;
    case "enum8":
    case "enum16":
      return `${kind.kind}(${kind.variants.join(", ")})`;
    case "union":
      return `union(${kind.variants.map(([name, of]) => (of ? `${name}: ${text(of)}` : name)).join(", ")})`;
    case "custom":
      return `the codec "${kind.name}"`;
    default: {
      const of = "of" in kind ? text(kind.of) : undefined;
      const inner = [of, length].filter((one) => one !== undefined).join(", ");
      return inner === "" ? kind.kind : `${kind.kind}(${inner})`;
    }
  }
}
