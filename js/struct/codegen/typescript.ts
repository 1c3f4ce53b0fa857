/** Generates TypeScript declarations from descriptors. */

import type { Descriptor, StructDescriptor } from "../codec.js";
import { Names, pascal } from "./identifiers.js";
import { defaultsIn } from "./schema-from-descriptor.js";

/** Split, or tools would take them for imports of this file. */
const PACKAGE = JSON.stringify("varve/struct");
const STRUCTURED = JSON.stringify("varve/structured");

/** Builds a file of schema declarations. */
export class TypeScriptFile {
  readonly #names = new Names(RESERVED);
  readonly #known = new Map<string, string>();
  readonly #items: string[] = [];
  readonly #used = new Set<string>();
  #usesStructured = false;

  /** The file so far. */
  text(): string {
    const structured = this.#usesStructured ? `import { structured } from ${STRUCTURED};\n` : "";
    if (this.#used.size === 0) return structured;
    const uses = [...this.#used].sort().join(", ");
    const items = this.#items.length === 0 ? "" : `\n${this.#items.join("\n")}`;
    return `import { ${uses} } from ${PACKAGE};\n${structured}${items}`;
  }

  /** Adds lines unchanged. */
  add(lines: string): void {
    this.#items.push(lines);
  }

  /** An import from varve/struct, as an expression. */
  use(name: string): string {
    this.#used.add(name);
    return name;
  }

  /** Declares a schema unless the same one exists, and returns its name. */
  define(kind: StructDescriptor): string {
    const key = JSON.stringify(kind);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const ident = this.#names.take(pascal(kind.name));
    this.#known.set(key, ident);
    const defaults = defaultsIn(kind);
    const fields = kind.fields.map(([name, of]) => {
      const type = this.type(of);
      const isAdded = kind.versioned && defaults.has(name);
      const full = isAdded ? `${this.use("added")}(${type}, ${literal(defaults.get(name))})` : type;
      return `  ${propertyName(name)}: ${full},\n`;
    });
    const make = this.use(kind.versioned ? "versioned" : "struct");
    const open = fields.length === 0 ? "{}" : `{\n${fields.join("")}}`;
    this.#items.push(`export const ${ident} = ${make}(${JSON.stringify(kind.name)}, ${open});\n`);
    return ident;
  }

  /** The type of a field, as an expression. */
  type(kind: Descriptor): string {
    const call = (...args: unknown[]) => `${this.use(kind.kind)}(${args.join(", ")})`;
    switch (kind.kind) {
      case "struct":
        return this.define(kind);
      case "enum8":
      case "enum16":
        return call(...kind.variants.map((name) => JSON.stringify(name)));
      case "bytes":
      case "fixedStr":
        return call(kind.length);
      case "array":
        return call(this.type(kind.of), kind.length);
      case "vec":
      case "flatten":
      case "option":
      case "optNonZero":
        return call(this.type(kind.of));
      case "union": {
        const variants = kind.variants.map(
          ([name, type]) => `${propertyName(name)}: ${type === null ? "null" : this.type(type)}`,
        );
        return call(`{ ${variants.join(", ")} }`);
      }
      case "json":
      case "text":
        return call();
      case "structured":
        this.#usesStructured = true;
        return "structured()";
      case "custom":
        return `{ name: ${JSON.stringify(kind.name)}, encode, decode }`;
      default:
        return this.use(kind.kind);
    }
  }
}

/** Reserved names: the exports of varve/struct, and words that cannot be declared. */
const RESERVED =
  "Array Boolean Date Infinity JSON Map NaN Number Object Promise Set String Symbol Uint8Array undefined".split(
    " ",
  );

/** A name as a property of an object literal. `__proto__` has to be computed, or it would set the prototype. */
function propertyName(name: string): string {
  if (name === "__proto__") return '["__proto__"]';
  return /^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name);
}

/** A plain value, as an expression. */
function literal(value: unknown): string {
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "string") return JSON.stringify(value);
  if (Object.is(value, -0)) return "-0";
  if (value instanceof Uint8Array) return `Uint8Array.of(${value.join(", ")})`;
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value !== "object" || value === null) return String(value);
  const fields = Object.entries(value).map(([name, of]) => `${propertyName(name)}: ${literal(of)}`);
  return `{ ${fields.join(", ")} }`;
}
