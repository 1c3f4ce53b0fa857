/** Where the fields of a struct lie: the layout of Rust's `repr(C)`. */

import type { Descriptor, StructDescriptor } from "./codec.js";
import { alignUp, badValue, base64, inner, type Type, whole, withField } from "./type.js";

/** A field, those of flattened structs included. */
export interface Leaf {
  readonly name: string;
  /** Where it begins in the struct. */
  readonly at: number;
  readonly type: Type;
  /** That of its type, which is found sooner here: types are objects of many classes. */
  readonly put: Type["put"];
}

/** A struct as it lies in memory. */
export interface Layout {
  readonly name: string;
  readonly leaves: readonly Leaf[];
  readonly kind: StructDescriptor;
  readonly bytes: number;
  readonly align: number;
  /** The bytes that a value of any version has. */
  readonly required: number;
  /** Whether later versions may have more fields. */
  readonly growing: boolean;
}

/** What `struct` may be given for a field, as it is when the program runs. */
type Given = Type & { readonly flat?: Layout & Type };

/** Lays out the fields in order, each at the next multiple of its alignment. */
export function computeLayout(struct: string, given: object, growing: boolean): Layout {
  const leaves: Leaf[] = [];
  const fields: [string, Descriptor][] = [];
  const added: string[] = [];
  // What views have beside their fields.
  const seen = new Set(["snapshot", "toJSON", "assign", "$v", "$c", "$s"]);
  // In front of a versioned struct's fields is a u16: where they end.
  let end = growing ? 2 : 0;
  let align = end || 1;
  let required = end;
  for (const name in given) {
    // JavaScript puts names that are indexes first, wherever they were written.
    if (!Object.hasOwn(given, name) || /^(0|[1-9]\d*)$/.test(name)) {
      throw badValue(
        `${struct} needs an object of fields: no numeric names, and "__proto__" in brackets.`,
      );
    }
    const path = `${struct}.${name}`;
    const one = (given as Record<string, Given>)[name];
    const flat = one?.flat;
    const type = withField(path, () => inner((flat ?? one) as Type));
    const { kind, bytes, fallback } = type;
    const at = alignUp(end, type.align);
    if (fallback === undefined) {
      if (required < end) throw badValue(`${path} must be added(): a field before it is.`);
      required = at + bytes;
    } else {
      if (!growing) throw badValue(`${path} cannot be added(): that needs versioned().`);
      // An earlier version has zeros there, and counts the bytes as its own.
      if (at < alignUp(end, align) && !fallback.isZero) {
        throw badValue(
          `${path} lies in padding: use a zero default, or put an added bytes(n) of zeros ` +
            "before it.",
        );
      }
      added.push(base64(fallback.from.m.u8));
    }
    end = at + bytes;
    align = Math.max(align, type.align);
    fields.push([name, flat ? { kind: "flatten", of: kind } : kind]);
    for (const leaf of flat?.leaves ?? [{ name, at: 0, type, put: type.put }]) {
      if (seen.has(leaf.name)) {
        throw badValue(`${struct}.${leaf.name} is a duplicate, or reserved by views.`);
      }
      seen.add(leaf.name);
      leaves.push({ ...leaf, at: at + leaf.at });
    }
  }
  if (leaves.length === 0) throw badValue(`${struct} has no fields.`);
  const bytes = withField(struct, () => whole(alignUp(end, align)));
  return {
    name: struct,
    leaves,
    kind: {
      kind: "struct",
      name: struct,
      fields,
      ...(growing && { versioned: true }),
      ...(added[0] && { added }),
    },
    bytes,
    align,
    required: growing ? required : bytes,
    growing,
  };
}
