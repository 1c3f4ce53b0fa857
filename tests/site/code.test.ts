/** Every program and fragment in TypeScript or JavaScript that a document shows has correct types. */

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { load } from "../demo/chromium.js";
import { context } from "../support/context.js";

const root = (...parts: string[]) => join(context().root, ...parts);

/** In the repository, so that the package and the libraries are found by their names. */
const FOLDER = root(".build/site-code");

interface Block {
  readonly document: string;
  readonly language: string;
  /** Its file's name, if its first line gives one: a program rather than a fragment. */
  readonly file: string | undefined;
  readonly source: string;
}

const FENCE = /^( *)```(\w+)[^\n]*\n([\s\S]*?)^\1```$/gm;
const FILE = /^\/\/ ([\w./-]+\.\w+)[,:] /;

function blocksOf(document: string): Block[] {
  const text = readFileSync(root(document), "utf8");
  return [...text.matchAll(FENCE)].map(([, , language = "", source = ""]) => ({
    document,
    language,
    file: FILE.exec(source)?.[1],
    source,
  }));
}

/** What fragments use and do not declare, and modules that a deployment has. */
const GLOBALS = `
import type { Database } from "varve";
import type { Client } from "varve/client";
import { str, struct, u16 } from "varve/struct";

const Shown = struct("Product", { stock: u16, name: str });

declare global {
  const db: Database;
  const shop: Client;
  const number: number;
  const later: number;
  const lastSeen: number;
  let cursor: number;
  interface Page { readonly html: string }
  const Product: typeof Shown;
  function upload(key: unknown, value: unknown): Promise<void>;
  function apply(collection: string | undefined, type: string, key: unknown, value: unknown): void;
}
`;

const MODULES = `
declare module "*.varve" { const bytes: ArrayBuffer; export default bytes; }
declare module "*/pkg/visits.js" {
  export default function init(): Promise<unknown>;
  export function count_visit(): Promise<number>;
}
declare module "node:sqlite" {
  export class DatabaseSync {
    constructor(path: string);
    prepare(query: string): { iterate(): IterableIterator<Record<string, string | number>> };
  }
}
declare module "cloudflare:workers" {
  import type { DurableObjectStorageLike } from "varve";
  export class DurableObject<Env = unknown> {
    ctx: { readonly storage: DurableObjectStorageLike };
    env: Env;
  }
}
`;

const OPTIONS = {
  noEmit: true,
  skipLibCheck: true,
  target: "ES2022",
  lib: ["ES2022", "ESNext.Disposable", "DOM", "DOM.Iterable", "DOM.AsyncIterable"],
  types: ["node"],
  typeRoots: [root("node_modules/@types")],
  module: "ESNext",
  moduleResolution: "bundler",
  moduleDetection: "force",
  jsx: "react-jsx",
};

/**
 * What the compiler may find in JavaScript: a name, a module, an export or a property that is not there, and wrong
 * numbers of arguments. Types that it infers where none are written say less. "never" is a parameter whose type
 * TypeScript has to be given.
 */
const MISSING =
  /error TS(2304|2305|2307|2339|2551|2552|2554|2591|2614|2724):(?!.* on type 'never')/;

/** The compiler's complaints about these files. */
async function complaints(name: string, files: Map<string, string>, options: object) {
  const folder = join(FOLDER, name);
  rmSync(folder, { recursive: true, force: true });
  for (const [path, text] of files) {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  const compilerOptions = { ...OPTIONS, ...options };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions }));
  const { execute } = await load<{
    execute(command: string, args: string[], options: object): Promise<{ output: string }>;
  }>("scripts/lib.mjs");
  const args = [root("node_modules/typescript/bin/tsc"), "-p", folder];
  const { output } = await execute(process.execPath, args, { capture: true, echo: false });
  return output.replaceAll(`${folder}/`, "").split("\n").filter(Boolean);
}

describe("the code in the documents", () => {
  test("has correct types, of programs and of fragments", async () => {
    const { DOCUMENTS } = await load<{ DOCUMENTS: readonly string[] }>("site/pages.mjs");
    const blocks = DOCUMENTS.flatMap(blocksOf);
    const typed = { strict: true };
    const strict = new Map([["modules.d.ts", MODULES]]);
    const loose = new Map([["modules.d.ts", MODULES]]);
    const fragments = new Map([["globals.ts", GLOBALS]]);
    for (const { document, language, file, source } of blocks) {
      const folder = document.replace(/\.md$/, "");
      if (!["ts", "tsx", "js", "jsx"].includes(language)) continue;
      if (file === undefined) fragments.set(`${folder}/${fragments.size}.${language}`, source);
      assert(!loose.has(`${folder}/${file}`), `${document} has two programs called ${file}`);
      if (file !== undefined) loose.set(`${folder}/${file}`, source);
      if (file !== undefined && language.startsWith("ts")) strict.set(`${folder}/${file}`, source);
    }
    const checked = { allowJs: true, checkJs: true, strict: false };
    const inScripts = await complaints("loose", loose, checked);
    expect([
      ...(await complaints("strict", strict, typed)),
      ...(await complaints("fragments", fragments, typed)),
      ...inScripts.filter((line) => MISSING.test(line)),
    ]).toStrictEqual([]);
    const counts = [strict.size, loose.size, fragments.size];
    assert(
      counts.every((count) => count > 5),
      `${counts}`,
    );
  });
});
