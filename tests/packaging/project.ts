/** The package as it would be published, installed in a project outside of this repository. */

import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { assert } from "vitest";
import { context } from "../support/context.js";

/** A list of strings, or conditions with a target each: what `exports` holds. */
type Target = string | Record<string, string>;

interface Packed {
  filename: string;
  size: number;
  files: { path: string }[];
}

export function root(...parts: string[]): string {
  return join(context().root, ...parts);
}

export function manifest(): { exports: Record<string, Target>; [key: string]: unknown } {
  return JSON.parse(readFileSync(root("package.json"), "utf8"));
}

/** Modules that find their own files by their location, and so must not be bundled into this one. */
export async function load<T>(path: string): Promise<T> {
  return (await import(pathToFileURL(root(path)).href)) as T;
}

let packed: { archive: string; details: Packed } | undefined;

/** Packs once, as it would be published. */
export function pack(): { archive: string; details: Packed } {
  if (packed !== undefined) return packed;
  const to = join(context().directory ?? ".", "packed");
  mkdirSync(to, { recursive: true });
  const output = execFileSync("npm", ["pack", "--json", "--pack-destination", to], {
    cwd: root(),
    encoding: "utf8",
    stdio: ["ignore", "pipe", "ignore"],
  });
  const details = (JSON.parse(output) as Packed[])[0];
  assert(details !== undefined, "npm pack says what it packed");
  packed = { archive: join(to, details.filename), details };
  return packed;
}

let installed: string | undefined;

/** A project outside of this repository that has installed the packed archive, and nothing else. */
export function project(): string {
  if (installed !== undefined) return installed;
  const folder = join(context().directory ?? ".", "project");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), '{"name":"project","private":true,"type":"module"}');
  execFileSync("npm", ["install", "--offline", "--no-audit", "--no-fund", pack().archive], {
    cwd: folder,
    stdio: "ignore",
  });
  installed = folder;
  return folder;
}

/** Writes a file of that project and returns its path. */
export function written(name: string, source: string): string {
  const path = join(project(), name);
  writeFileSync(path, source);
  return path;
}

/** Runs a program in that project and returns its output; by default in this Node. */
export function runs(
  source: string,
  name = "program.mjs",
  runtime: readonly string[] = [process.execPath, ...process.execArgv],
): string {
  return command([...runtime, written(name, source)]);
}

/** Runs a command in that project, or in a folder of it, and returns its output; fails with its error output. */
export function command([program = "", ...args]: readonly string[], cwd = project()): string {
  return execFileSync(program, args, { cwd, encoding: "utf8", timeout: 240_000 });
}

/** The command for a program by its name in scripts/programs.mjs: Deno with these permissions. */
export async function runtime(
  name: string,
  allowed: readonly string[] = ["--allow-all"],
): Promise<string[]> {
  const programs = await load<{ runtimeCommand(name: string): Promise<string[]> }>(
    "scripts/programs.mjs",
  );
  const command = await programs.runtimeCommand(name);
  return name === "deno" ? [...command, ...allowed] : command;
}

let checked = 0;

/** Type-checks a program in that project and returns the compiler's output; "" if there are no errors. */
export function compile(source: string, compilerOptions: Record<string, unknown>): string {
  return compiled(source, compilerOptions).output;
}

/** The same, and the folder that contains the program as `program.ts`. */
export function compiled(
  source: string,
  compilerOptions: Record<string, unknown>,
): { output: string; folder: string } {
  const folder = join(project(), `types-${checked++}`);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "program.ts"), source);
  const base = { strict: true, skipLibCheck: false, noEmit: true, types: [], target: "ES2022" };
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({ compilerOptions: { ...base, ...compilerOptions }, files: ["program.ts"] }),
  );
  const tsc = root("node_modules/typescript/bin/tsc");
  try {
    execFileSync(process.execPath, [tsc, "-p", folder], { encoding: "utf8" });
    return { output: "", folder };
  } catch (error) {
    return { output: String((error as { stdout?: string }).stdout), folder };
  }
}
