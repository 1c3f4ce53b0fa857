/** Where the fields of a struct lie: the layout of Rust's `repr(C)`. */

import type { Descriptor } from "./codec.js";
import { base64, escaped, inner, inside, type Type, up, whole, wrong } from "./type.js";

/** A field, those of flattened structs included. */
export interface Leaf {
  readonly name: string;
  /** Where it begins in the struct. */
  readonly at: number;
  readonly type: Type;
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
  /** Whether later versions may have more fields. */
  readonly growing: boolean;
  /** What stands for those that were added, as the descriptor has it. */
  readonly added: readonly string[];
}

/** What `struct` may be given for a field, as it is when the program runs. */
type Given = Type & { readonly flat?: Layout & Type };

/** What views have beside their fields. */
const OWN = ["snapshot", "toJSON", "assign", "$v", "$c", "$s"];

/** Lays out the fields in order, each at the next multiple of its alignment. */
export function layOut(struct: string, given: object, growing: boolean): Layout {
  const leaves: Leaf[] = [];
  const fields: [string, Descriptor][] = [];
  const texts: string[] = [];
  const added: string[] = [];
  const seen = new Set(OWN);
  // In front of a versioned struct's fields is a u16: where they end.
  let end = growing ? 2 : 0;
  let align = end || 1;
  let required = end;
  let used = end;
  for (const [name, one] of entries(struct, given)) {
    const flat = one?.flat;
    const type = inside(`${struct}.${name}`, () => inner(flat ?? one));
    const at = up(end, type.align);
    const refuse = (what: string) => wrong(`${struct}.${name} ${what}`);
    if (type.fallback === undefined) {
      if (required < end) throw refuse("has to be added: a field before it is.");
      required = at + type.bytes;
    } else if (!growing) {
      throw refuse("cannot be added: only versioned() has added fields.");
    } else if (at < up(end, align) && !type.fallback.isZero) {
      // An earlier version has zeros there, and counts the bytes as its own.
      throw refuse(
        "lies in what was padding, so that its default has to be zero. Put an added bytes(n) of " +
          "zeros in front of it.",
      );
    }
    if (type.fallback) added.push(base64(type.fallback.from.m.u8));
    end = at + type.bytes;
    align = Math.max(align, type.align);
    fields.push([name, flat ? { kind: "flatten", of: type.kind } : type.kind]);
    texts.push(`${flat ? ".." : ""}${escaped(name)}:${type.layout}`);
    for (const leaf of flat?.leaves ?? [{ name, at: 0, type }]) {
      if (seen.has(leaf.name)) {
        throw wrong(
          `${struct}.${leaf.name} is ${OWN.includes(leaf.name) ? "what views have themselves" : "there twice"}: ` +
            "give the field another name.",
        );
      }
      seen.add(leaf.name);
      used += leaf.type.bytes;
      leaves.push({ ...leaf, at: at + leaf.at });
    }
  }
  if (leaves.length === 0) throw wrong(`${struct} has no fields.`);
  const bytes = inside(struct, () => whole(up(end, align)));
  const layout = `${growing ? "v" : ""}{${texts}}`;
  return { leaves, fields, layout, bytes, align, required, gaps: used < bytes, growing, added };
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
