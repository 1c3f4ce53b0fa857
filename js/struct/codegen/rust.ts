/** Generates Rust structs from schemas. */

import { badArgument } from "../../errors/index.js";
import type { Descriptor, StructDescriptor } from "../codec.js";
import { Names, pascal, snake } from "./identifiers.js";
import { defaultsIn } from "./schema-from-descriptor.js";

/** A schema, or any other object with a descriptor. */
interface Described {
  readonly kind: Descriptor;
}

/**
 * Returns the Rust struct that has the same bytes as this schema, with all types that it consists of: a Rust
 * file that compiles with the crates `varve` and `musli-zerocopy`.
 *
 * ```ts
 * console.log(toRust(Product));
 * ```
 *
 * @throws TypeError if the argument is not a schema, or for a type that Rust does not have: `optNonZero` of a
 * float
 */
export function toRust(schema: Described): string {
  const kind = (schema as Partial<Described> | null | undefined)?.kind;
  if (kind?.kind !== "struct") throw badArgument("Only a schema can be printed as Rust.", schema);
  return rustOf([kind]);
}

/** The same for several descriptors in one file. */
export function rustOf(structs: readonly StructDescriptor[]): string {
  const file = new RustFile();
  for (const struct of structs) file.define(struct, [pascal(struct.name)]);
  return file.text();
}

/** Keywords that can be names only with the prefix `r#`. */
const KEYWORDS = new Set(
  (
    "abstract as async await become box break const continue do dyn else enum extern false final fn " +
    "for gen if impl in let loop macro match mod move mut override priv pub ref return static struct " +
    "trait true try type typeof unsafe unsized use virtual where while yield"
  ).split(" "),
);

/** Words that cannot be names, and names that the file uses otherwise. */
const NO_NAMES = ["self", "super", "crate", "_"];
const TAKEN = ["Self", "FixedStr", "Opt", "Record", "Ref", "ZeroCopy", "Option", "Some", "None"];

class RustFile {
  readonly #names = new Names(TAKEN);
  /** The types defined so far, by their definition. */
  readonly #known = new Map<string, string>();
  readonly #items: string[] = [];
  readonly #used = new Map<string, Set<string>>();

  text(): string {
    const uses = [...this.#used]
      .sort(([one], [other]) => (one < other ? -1 : 1))
      .map(([path, names]) => {
        const sorted = [...names].sort();
        return `use ${path}::${sorted.length === 1 ? sorted[0] : `{${sorted.join(", ")}}`};\n`;
      });
    return `${uses.join("")}\n${this.#items.join("\n")}`;
  }

  /** Defines a type unless the same one exists, and returns its name: the first of these that is free. */
  define(kind: Descriptor, wanted: readonly string[]): string {
    const key = JSON.stringify(kind);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const name = this.#names.take(...(wanted as [string, ...string[]]));
    this.#known.set(key, name);
    const item =
      kind.kind === "struct" ? this.#struct(kind, name) : this.#enumeration(kind as Variants, name);
    // The types that it uses are defined before it.
    this.#items.push(item);
    return name;
  }

  #struct(struct: StructDescriptor, ident: string): string {
    const { name, fields, versioned } = struct;
    const defaults = defaultsIn(struct);
    const names = new Names([...NO_NAMES, ...(versioned ? ["root_size"] : [])]);
    const lines = fields.map(([field, kind]) => {
      const free = names.take(snake(field), `${snake(field)}_`);
      const marks = free === field ? [] : [`rename = ${quoted(field)}`];
      let of = kind;
      if (kind.kind === "flatten") {
        marks.push("flatten");
        of = kind.of;
      } else if (kind.kind === "timestamp" || kind.kind === "u53") {
        marks.push(kind.kind);
      }
      const type = this.#type(of, ident, field);
      const isAdded = versioned && defaults.has(field);
      const [added = [], remark = ""] = isAdded ? addedAs(type, defaults.get(field)) : [];
      marks.push(...added);
      const mark = marks.length === 0 ? "" : `    #[varve(${marks.join(", ")})]\n`;
      return `${remark}${mark}    pub ${KEYWORDS.has(free) ? "r#" : ""}${free}: ${type},\n`;
    });
    if (versioned) lines.unshift("    pub root_size: u16,\n");
    const marks = [
      ...(versioned ? ["versioned"] : []),
      ...(name === ident ? [] : [`rename = ${quoted(name)}`]),
    ];
    return `${this.#derive("C", marks)}pub struct ${ident} {\n${lines.join("")}}\n`;
  }

  #enumeration(kind: Variants, ident: string): string {
    const names = new Names(["Self"]);
    const variants = kind.variants.map((variant) => {
      const [name, payload] = typeof variant === "string" ? [variant, null] : variant;
      const free = names.take(pascal(name));
      const mark = free === name ? "" : `    #[varve(rename = ${quoted(name)})]\n`;
      const carries = payload === null ? "" : `(${this.#type(payload, ident, name)})`;
      return `${mark}    ${free}${carries},\n`;
    });
    const bits = kind.kind === "enum16" ? "u16" : "u8";
    const hasNoPayloads =
      kind.kind === "union" && kind.variants.every(([, payload]) => payload === null);
    return `${this.#derive(bits, hasNoPayloads ? ["union"] : [])}pub enum ${ident} {\n${variants.join("")}}\n`;
  }

  #derive(repr: string, marks: readonly string[]): string {
    this.#use("musli_zerocopy", "ZeroCopy");
    this.#use("varve::schema", "Record");
    const varve = marks.length === 0 ? "" : `#[varve(${marks.join(", ")})]\n`;
    return `#[derive(Clone, Copy, Debug, ZeroCopy, Record)]\n#[repr(${repr})]\n${varve}`;
  }

  /** The type of a field. A type without a name is named after the field. */
  #type(kind: Descriptor, around: string, field: string): string {
    const inner = (of: Descriptor) => this.#type(of, around, field);
    switch (kind.kind) {
      case "u53":
        return "u64";
      case "timestamp":
        return "i64";
      case "bytes":
        return `[u8; ${kind.length}]`;
      case "fixedStr":
        return `${this.#use("varve::schema", "FixedStr")}<${kind.length}>`;
      case "str":
        return `${this.#use("musli_zerocopy", "Ref")}<str>`;
      case "blob":
        return `${this.#use("musli_zerocopy", "Ref")}<[u8]>`;
      case "array":
        return `[${inner(kind.of)}; ${kind.length}]`;
      case "vec":
        return `${this.#use("musli_zerocopy", "Ref")}<[${inner(kind.of)}]>`;
      case "option":
        return `${this.#use("varve::schema", "Opt")}<${inner(kind.of)}>`;
      case "optNonZero":
        return this.#nonZero(inner(kind.of));
      case "struct":
        return this.define(kind, [pascal(kind.name), around + pascal(kind.name)]);
      case "enum8":
      case "enum16":
      case "union":
        return this.define(kind, [pascal(field), around + pascal(field)]);
      case "flatten":
      case "json":
      case "text":
      case "structured":
      case "custom":
        throw badArgument("A struct cannot contain this.", kind.kind);
      default:
        return kind.kind;
    }
  }

  #nonZero(number: string): string {
    if (number.startsWith("f")) {
      throw badArgument("Rust has no non-zero float.", `optNonZero(${number})`);
    }
    const type = `NonZero${number.toUpperCase()}`;
    return `Option<${this.#use("std::num", type)}>`;
  }

  #use(path: string, name: string): string {
    const names = this.#used.get(path) ?? new Set();
    this.#used.set(path, names.add(name));
    return name;
  }
}

/** The attribute of an added field, and a comment if the default in Rust differs. */
function addedAs(type: string, value: unknown): readonly [marks: string[], remark?: string] {
  if (/^[uif]\d+$/.test(type) && Number.isFinite(Number(value))) {
    const digits = typeof value === "bigint" ? `${value}` : `${Number(value)}`;
    const isWhole = /^-?\d+$/.test(digits);
    if (digits === "0") return [["added"]];
    return [[`added = ${digits}${type.startsWith("f") && isWhole ? ".0" : ""}`]];
  }
  if (value === true) return [["added = true"]];
  if (value === false || value === "" || value === undefined) return [["added"]];
  const text = JSON.stringify(value, (_, one) => (typeof one === "bigint" ? `${one}` : one));
  const shown = text.replace(/[^\x20-\x7e]/gu, "?").slice(0, 80);
  return [
    ["added"],
    `    // Earlier records have ${shown} here in TypeScript, and zeros in Rust.\n`,
  ];
}

type Variants = Extract<Descriptor, { readonly variants: unknown }>;

/** A string literal of Rust. Characters that a terminal or an editor would interpret are escaped. */
function quoted(text: string): string {
  const withField = text.replace(/["\\]|[^\x20-\x7e]/gu, (character) => {
    if (character === '"' || character === "\\") return `\\${character}`;
    const code = character.codePointAt(0) ?? 0;
    // A lone surrogate is not a character; it is stored as U+FFFD.
    return /\p{Cs}/u.test(character) ? "\\u{fffd}" : `\\u{${code.toString(16)}}`;
  });
  return `"${withField}"`;
}
