/** Where the fields of a struct lie: the layout of Rust's `repr(C)`. */

import type { Descriptor, Memory } from "./codec.js";
import {
  type Cursor,
  escaped,
  inner,
  lone,
  plainOf,
  RESERVED,
  type Type,
  up,
  whole,
  wrong,
} from "./type.js";

/** A field, those of flattened structs included. */
export interface Leaf {
  readonly name: string;
  /** Where it begins in the struct. */
  readonly at: number;
  readonly type: Type;
  /** What stands for it in values that an earlier version wrote: a value that has it. */
  readonly fallback: Fallback | undefined;
}

/** A default: what was declared, and the same written down, since views are read from bytes. */
interface Fallback {
  readonly input: unknown;
  readonly from: Cursor;
}

/** A struct as it lies in memory. */
export interface Layout {
  readonly leaves: readonly Leaf[];
  readonly fields: readonly (readonly [string, Descriptor])[];
  readonly layout: string;
  readonly bytes: number;
  readonly align: number;
  /** The end of the last field that every version has. */
  readonly required: number;
  /** Whether some bytes belong to no field. */
  readonly gaps: boolean;
}

/** What `struct` may be given for a field, as it is when the program runs. */
type Given = Type & { readonly flat?: Layout & Type; readonly fallback?: unknown };

const METHODS = ["snapshot", "toJSON", "assign"];

/** Lays out the fields in order, each at the next multiple of its alignment. */
export function layOut(struct: string, given: object, versioned: boolean): Layout {
  const leaves: Leaf[] = [];
  const fields: [string, Descriptor][] = [];
  const texts: string[] = [];
  // In front of a versioned struct's fields is a u16: where they end.
  let end = versioned ? 2 : 0;
  let align = versioned ? 2 : 1;
  let required = end;
  for (const [name, one] of entries(struct, given)) {
    const type = inner(one.flat ?? one);
    const at = up(end, type.align);
    const isAdded = "fallback" in one;
    if (isAdded && !versioned) throw wrong(`${struct}.${name}: only versioned() has added fields.`);
    if (!isAdded && required < end) {
      throw wrong(`${struct}.${name} has to be added: a field before it is.`);
    }
    const fallback = isAdded ? fallbackOf(one) : undefined;
    if (fallback !== undefined && at < up(end, align)) isZero(`${struct}.${name}`, type, fallback);
    end = at + type.bytes;
    if (!isAdded) required = end;
    align = Math.max(align, type.align);
    fields.push([name, one.flat === undefined ? type.kind : { kind: "flatten", of: type.kind }]);
    texts.push(`${one.flat === undefined ? "" : ".."}${escaped(name)}:${type.layout}`);
    if (one.flat === undefined) leaves.push({ name, at, type, fallback });
    else for (const leaf of one.flat.leaves) leaves.push({ ...leaf, at: at + leaf.at });
  }
  distinct(struct, leaves);
  const bytes = whole(up(end, align));
  const used = leaves.reduce((sum, { type }) => sum + type.bytes, versioned ? 2 : 0);
  return {
    leaves,
    fields,
    layout: `${versioned ? "v" : ""}{${texts.join()}}`,
    bytes,
    align,
    required,
    gaps: used < bytes,
  };
}

function entries(struct: string, given: object): [string, Given][] {
  const prototype = Object.getPrototypeOf(given ?? 0);
  const isPlain = prototype === null || Object.getPrototypeOf(prototype) === null;
  // JavaScript puts names that are indexes first, wherever they were written.
  if (isPlain && !Object.keys(given).some((name) => /^(0|[1-9]\d*)$/.test(name))) {
    return Object.entries(given);
  }
  throw wrong(
    `${struct} has to have its fields in an object, with names that begin with no digit, and ` +
      '"__proto__" in brackets.',
  );
}

/** Refuses names that would hide one another. */
function distinct(struct: string, leaves: readonly Leaf[]): void {
  const seen = new Set([...RESERVED, ...METHODS]);
  for (const { name } of leaves) {
    if (seen.has(name)) {
      throw wrong(
        `${struct}.${name} is ${METHODS.includes(name) ? "a method of views" : "there twice"}: give ` +
          "the field another name.",
      );
    }
    seen.add(name);
  }
}

/** The default of an added field, written down as a value that consists of it. */
function fallbackOf(type: Given): Fallback {
  const input = type.fallback;
  const length = type.extent?.(input, type.bytes) ?? type.bytes;
  const memory = lone(new Uint8Array(length));
  type.put({ $m: memory, $b: 0, $n: length, end: type.bytes }, 0, input);
  return { input, from: at0(memory) };
}

function at0(memory: Memory): Cursor {
  return { $m: memory, $o: 0, $b: 0, $n: memory.u8.length, $e: 0, $w: undefined };
}

/**
 * Where a field begins in what may have been the padding of an earlier version, its values have zeros
 * there, and count the bytes as theirs.
 */
function isZero(path: string, type: Type, { from }: Fallback): void {
  const zeros = at0(lone(new Uint8Array(type.bytes)));
  const [zero, fallback] = [zeros, from].map((one) => JSON.stringify(plainOf(type, one, 0, 1)));
  if (zero === fallback) return;
  throw wrong(
    `${path} lies in what was padding, so that its default has to be zero. Put an added bytes(n) ` +
      "of zeros in front of it.",
  );
}
