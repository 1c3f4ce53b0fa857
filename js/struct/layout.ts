/** The layout of a struct's fields, as by Rust's `repr(C)`. */

import type { Descriptor, StructDescriptor } from "./codec.js";
import { alignUp, badValue, base64, declaredLength, inner, type Type, withField } from "./type.js";

/** A field of a struct. Fields of flattened structs are included. */
export interface Leaf {
  readonly name: string;
  /** Offset in the struct. */
  readonly at: number;
  readonly type: Type;
  /** The `take` of its type, copied here because it is read faster: types are objects of many classes. */
  readonly put: Type["put"];
}

/** The layout of a struct in memory. */
export interface Layout {
  readonly name: string;
  readonly leaves: readonly Leaf[];
  /** An object with its fields, to be cloned. One called "__proto__" is its own, so that it can be assigned to. */
  readonly blank: object;
  readonly kind: StructDescriptor;
  readonly bytes: number;
  readonly align: number;
  /** Minimum size of a value of any version. */
  readonly required: number;
  /** Whether later versions may have more fields. */
  readonly growing: boolean;
}

/** The declaration of a field at run time. */
type FieldType = Type & { readonly flat?: Layout & Type };

/** Lays out the fields in order, each at the next multiple of its alignment. */
export function computeLayout(struct: string, given: object, growing: boolean): Layout {
  const leaves: Leaf[] = [];
  const fields: [string, Descriptor][] = [];
  const added: string[] = [];
  // Names that views use for members other than fields.
  const seen = new Set(["snapshot", "toJSON", "assign", "$v", "$c", "$s"]);
  // The fields of a versioned struct are preceded by their end, as a u16.
  let end = growing ? 2 : 0;
  let align = end || 1;
  let required = end;
  for (const name in given) {
    // JavaScript moves property names that are array indexes to the front.
    if (!Object.hasOwn(given, name) || /^(0|[1-9]\d*)$/.test(name)) {
      throw badValue(
        `${struct} needs an object of fields: no numeric names, and "__proto__" in brackets.`,
      );
    }
    const path = `${struct}.${name}`;
    const one = (given as Record<string, FieldType>)[name];
    const flat = one?.flat;
    const type = withField(path, () => inner((flat ?? one) as Type));
    const { kind, bytes, fallback } = type;
    const at = alignUp(end, type.align);
    if (fallback === undefined) {
      if (required < end) throw badValue(`${path} must be added(): a field before it is.`);
      required = at + bytes;
    } else {
      if (!growing) throw badValue(`${path} cannot be added(): that needs versioned().`);
      // An earlier version has zeros in its padding here, and counts these bytes as part of the value.
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
  const bytes = withField(struct, () => declaredLength(alignUp(end, align)));
  return {
    name: struct,
    leaves,
    blank: Object.fromEntries(leaves.map(({ name }) => [name, undefined])),
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
