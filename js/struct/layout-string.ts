/** Layouts as texts, of which fingerprints are taken. */

import type { Descriptor } from "./codec.js";

/**
 * How values of this kind lie, as a canonical text: kinds that lie alike have one. What Rust has as a
 * constant of a record is the same.
 */
export function layoutOf(kind: Descriptor): string {
  switch (kind.kind) {
    case "u53":
      return "u64";
    case "timestamp":
      return "i64";
    case "str":
      return "&str";
    case "blob":
      return "&[u8]";
    case "bytes":
      return `[u8;${kind.length}]`;
    case "fixedStr":
      return `str;${kind.length}`;
    case "enum8":
    case "enum16":
      return `e${kind.kind.slice(4)}(${kind.variants.map(escaped)})`;
    case "array":
      return `[${layoutOf(kind.of)};${kind.length}]`;
    case "vec":
      return `&[${layoutOf(kind.of)}]`;
    case "option":
      return `opt(${layoutOf(kind.of)})`;
    case "optNonZero":
      return `nz(${layoutOf(kind.of)})`;
    case "flatten":
      return layoutOf(kind.of);
    case "union":
      return `{|${kind.variants.map(([name, of]) => escaped(name) + (of ? `:${layoutOf(of)}` : ""))}|}`;
    case "struct": {
      const fields = kind.fields.map(
        ([name, of]) => `${of.kind === "flatten" ? ".." : ""}${escaped(name)}:${layoutOf(of)}`,
      );
      return `${kind.versioned ? "v" : ""}{${fields}}`;
    }
    case "custom":
      return `custom:${kind.name}`;
    default:
      return kind.kind;
  }
}

/** A name, in which some signs would mean something else. */
function escaped(name: string): string {
  return name.replace(/[\\,:;()[\]{}|&.]/g, "\\$&");
}
