/** The canonical text of a layout, from which its fingerprint is computed. */

import type { Descriptor } from "./codec.js";

/**
 * The layout of a kind as canonical text. Kinds with the same layout have the same text, and it equals the constant of
 * the record in Rust.
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

/** A name, with the characters escaped that have a meaning in the text. */
function escaped(name: string): string {
  return name.replace(/[\\,:;()[\]{}|&.]/g, "\\$&");
}
