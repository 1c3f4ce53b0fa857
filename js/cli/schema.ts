/** `varve schema` */

import { rustOf } from "../struct/rust.js";
import { TypeScriptFile } from "../struct/typescript.js";
import { look } from "./database.js";
import { EXIT, type ExitCode } from "./failure.js";
import { collectionsOf, type Told } from "./keyspaces.js";
import type { Output } from "./output.js";
import { harmless } from "./text.js";
import { type Call, misused } from "./usage.js";

export async function schema(call: Call, output: Output): Promise<ExitCode> {
  const { words, flags, command } = call;
  const forms = ["ts", "rust", "json"].filter((form) => flags.has(form));
  if (forms.length > 1) throw misused(command, `--${forms.join(" and --")} exclude each other.`);
  return look(words[0] ?? "", { ordered: true }, async (db) => {
    const all = collectionsOf(db);
    if (flags.has("json")) await output.print(`${JSON.stringify(all.map(described))}\n`);
    else await output.print(harmless(flags.has("rust") ? asRust(all) : asTypeScript(all)));
    return EXIT.well;
  });
}

function described({ name, key, value }: Told): object {
  return { name, key, value: value ?? null };
}

function asTypeScript(all: readonly Told[]): string {
  const file = new TypeScriptFile();
  const uses = all.map(({ name, value, key }) => {
    const call = (codec: string) => `// ${keysOf(key)}: db.collection(${line(name)}, ${codec})\n`;
    if (value === undefined) return `// ${keysOf(key)}: ${line(name)} is of a newer version\n`;
    return call(value.kind === "struct" ? file.define(value) : file.type(value));
  });
  return `${uses.join("")}${file.text()}`;
}

function asRust(all: readonly Told[]): string {
  const uses = all.map(({ name, value, key }) => {
    const holds = value === undefined ? "what is of a newer version" : value.kind;
    return `// ${keysOf(key)}: the collection ${line(name)} holds ${value?.kind === "struct" ? line(value.name) : holds}\n`;
  });
  const structs = all.flatMap(({ value }) => (value?.kind === "struct" ? [value] : []));
  return `${uses.join("")}${structs.length === 0 ? "" : rustOf(structs)}`;
}

/** A text that stays in its line. */
function line(text: string): string {
  return JSON.stringify(text);
}

function keysOf(key: unknown): string {
  return typeof key === "string" ? `keys: ${key}` : `keys: ${JSON.stringify(key)}`;
}
