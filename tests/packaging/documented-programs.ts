/** The programs that pages of the documentation show, each with its file name and how it is run. */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { assert } from "vitest";
import { command as execute, project, root, runtime } from "./project.js";

/** A program that a page shows. */
export interface Shown {
  /** Its file name. */
  readonly file: string;
  /** The command that runs it; `undefined` for a file that another program loads. */
  readonly command: string | undefined;
  readonly language: string;
  /** Its text without the first line. */
  readonly source: string;
}

const FENCE = /^```(\w[\w,]*)\n([\s\S]*?)^```$/gm;

/** Its file; then what it is, or how it is run, or both: `// main.ts, in a page: npx vite`. */
const LABEL = /^(?:\/\/|<!--) ([\w./-]+\.\w+)(?:, ([^:\n]+))?(?:: (\S[^\n]*?))?(?: -->)?\n/;

/** Languages that are no programs: shell commands and data. */
const NO_PROGRAMS = ["sh", "json", "toml", "text"];

/** All programs of a page. Fails for one whose first line does not give its name and how it is run. */
export function shownIn(page: string): Shown[] {
  const text = readFileSync(root(page), "utf8");
  return [...text.matchAll(FENCE)].flatMap(([, language = "", program = ""]) => {
    if (NO_PROGRAMS.includes(language)) return [];
    const [label, file, what, command] = LABEL.exec(program) ?? [];
    const firstLine = program.split("\n", 1)[0];
    assert(label !== undefined && file !== undefined, `${page} names the file of: ${firstLine}`);
    assert(
      what !== undefined || command !== undefined,
      `${page} says how this is run: ${firstLine}`,
    );
    const known = /^(node|npx|cargo|deno|bun|wasm-pack) /.test(command ?? "node ");
    assert(known, `${page} says how this is run: ${firstLine}`);
    return [{ file, command, language, source: program.slice(label.length) }];
  });
}

/** The program of this name on a page. */
export function shown(page: string, file: string): Shown {
  const found = shownIn(page).find((one) => one.file === file);
  assert(found !== undefined, `${page} has ${file}`);
  return found;
}

/** The arguments of the command by which a runtime runs a program: `node a.mjs (or: deno run -A a.mjs, bun a.mjs)`. */
function argumentsFor(place: string, { file, command = "" }: Shown): string[] {
  const all = command.split(/ \((?:[^()]*?or: )?|, |\)$/).map((one) => one.trim());
  const name = place === "node24" ? "node" : place;
  const found = all.find((one) => one.startsWith(`${name} `) && one.includes(file));
  assert(found !== undefined, `${command} says how ${place} runs ${file}`);
  return found.split(" ").slice(1);
}

let folders = 0;

/** Runs a program as its page says, beside these files, in a new folder. Returns its output. */
export async function ranAsShown(
  program: Shown,
  place = "node",
  files: Readonly<Record<string, string>> = {},
): Promise<string> {
  const { folder, commandLine } = await prepared(program, place, files);
  return execute(commandLine, folder).trim();
}

/** A folder with a program and these files, and the command that runs it there. */
export async function prepared(
  program: Shown,
  place = "node",
  files: Readonly<Record<string, string>> = {},
): Promise<{ folder: string; commandLine: string[] }> {
  const folder = join(project(), `shown-${folders++}`);
  mkdirSync(folder, { recursive: true });
  for (const [name, text] of Object.entries({ ...files, [program.file]: program.source })) {
    writeFileSync(join(folder, name), text);
  }
  const args = argumentsFor(place, program);
  // The command of Deno already includes the first word of its arguments.
  return {
    folder,
    commandLine: [...(await runtime(place, [])), ...args.slice(place === "deno" ? 1 : 0)],
  };
}
