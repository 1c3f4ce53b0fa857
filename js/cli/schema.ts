/** `varve schema` */

import type { IndexShape } from "../collection/indexes.js";
import { rustOf } from "../struct/codegen/rust.js";
import { TypeScriptFile } from "../struct/codegen/typescript.js";
import type { PartKind } from "../struct/key.js";
import { type Call, misused } from "./args.js";
import { type CollectionInfo, collectionsOf } from "./collections.js";
import { escapeControls } from "./format.js";
import { checkedPartKind } from "./key-json.js";
import { inspectFile } from "./open-file.js";
import { EXIT, type ExitCode, type Output } from "./output.js";

export async function schema(call: Call, output: Output): Promise<ExitCode> {
  const { positionals, flags, command } = call;
  const forms = ["ts", "rust", "json"].filter((form) => flags.has(form));
  if (forms.length > 1) throw misused(command, `--${forms.join(" and --")} cannot be combined.`);
  return inspectFile(positionals[0] ?? "", { ordered: true }, async (db) => {
    const all = collectionsOf(db);
    if (flags.has("json")) await output.print(`${JSON.stringify(all.map(described))}\n`);
    else await output.print(escapeControls(flags.has("rust") ? asRust(all) : asTypeScript(all)));
    return EXIT.ok;
  });
}

function described({ name, key, value, indexes }: CollectionInfo): object {
  return { name, key, value: value ?? null, indexes: shapesOf(indexes) };
}

function asTypeScript(all: readonly CollectionInfo[]): string {
  const file = new TypeScriptFile();
  const uses = all.map(({ name, value, key, indexes }) => {
    if (value === undefined) return `// ${line(name)} needs a newer version of varve\n`;
    const codec = value.kind === "struct" ? file.define(value) : file.type(value);
    const parts = [keyOption(file, key), indexOption(file, indexes)].filter((part) => part !== "");
    const options = parts.length === 0 ? "" : `, { ${parts.join(", ")} }`;
    return `// db.collection(${line(name)}, ${codec}${options})\n`;
  });
  return `${uses.join("")}${file.text()}`;
}

/** Text values need no option. */
function keyOption(file: TypeScriptFile, key: unknown): string {
  if (key === "string") return "";
  if (key === "bytes") return `key: ${file.use("blob")}`;
  const kinds = Array.isArray(key) ? key.map(checkedPartKind) : [undefined];
  const parts = kinds.map((kind) => (kind === undefined ? "unknown" : partOf(file, kind)));
  if (parts.length > 1) return `key: [${parts.join(", ")}]`;
  // Whether `push` assigns the keys is not stored.
  const [lone] = kinds;
  return `key: ${parts[0]}${lone && "kind" in lone && lone.kind === "u53" ? " /* or auto() */" : ""}`;
}

function partOf(file: TypeScriptFile, kind: PartKind): string {
  return "desc" in kind ? `${file.use("desc")}(${partOf(file, kind.desc)})` : file.type(kind);
}

function shapesOf(indexes: CollectionInfo["indexes"]): object {
  return Object.fromEntries(indexes.map(({ name, shape }) => [name, shape]));
}

function indexOption(file: TypeScriptFile, indexes: CollectionInfo["indexes"]): string {
  if (indexes.length === 0) return "";
  const all = indexes.map(({ name, shape }) => `${line(name)}:${specOf(file, shape)}`);
  return `indexes: {${all.join(",")}}`;
}

/** What a program declares an index by. The types of fields of plain objects are those of varve/struct. */
function specOf(file: TypeScriptFile, shape: unknown): string {
  const { types, fields, ...options } = shape as IndexShape;
  const text = JSON.stringify({ fields: options.multiEntry ? fields[0] : fields, ...options });
  if (types === undefined) return text;
  const all = types.map((type) => file.type(type)).join(", ");
  return `${text.slice(0, -1)},"type":${options.multiEntry ? all : `[${all}]`}}`;
}

function asRust(all: readonly CollectionInfo[]): string {
  const uses = all.map(({ name, value, key }) => {
    const holds =
      value?.kind === "struct" ? line(value.name) : (value?.kind ?? "values of a newer version");
    return `// The collection ${line(name)} holds ${holds} with keys of ${line(key)}\n`;
  });
  const structs = all.flatMap(({ value }) => (value?.kind === "struct" ? [value] : []));
  return `${uses.join("")}${structs.length === 0 ? "" : rustOf(structs)}`;
}

/** Escapes text so that it stays in its line. */
function line(value: unknown): string {
  return JSON.stringify(value);
}
