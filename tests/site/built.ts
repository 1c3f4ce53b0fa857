/** The site, built once for all of its tests, under a path as a host may serve it. */

import { readdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { assert } from "vitest";
import { load } from "../demo/chromium.js";
import { context } from "../support/context.js";

/** The path under which it is served. */
export const BASE = "/varve/";

interface Execution {
  readonly code: number;
  readonly output: string;
}

let built: Promise<string> | undefined;

/** The folder that has the site, at its path. */
export function site(): Promise<string> {
  built ??= buildSite();
  return built;
}

async function buildSite(): Promise<string> {
  const folder = join(context().directory ?? ".", "host");
  const { execute } = await load<{
    execute(command: string, args: string[], options: object): Promise<Execution>;
  }>("scripts/lib.mjs");
  // Not by `npm run site`, which would build the package again while other tests use it.
  const module = pathToFileURL(join(context().root, "site/build.mjs")).href;
  const program = `
    import { buildSite } from ${JSON.stringify(module)};
    await buildSite(${JSON.stringify(join(folder, BASE))}, { base: "${BASE}" });
  `;
  const args = ["--input-type=module", "--eval", program];
  // Vitest's own environment would make it a build for tests.
  const env = { NODE_ENV: "production" };
  const options = { capture: true, echo: false, env };
  const { code, output } = await execute(process.execPath, args, options);
  assert(code === 0, output);
  return folder;
}

/** The files below a folder whose names have this ending, relative to it. */
export function filesBelow(folder: string, ending: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending))
    .map(({ parentPath, name }) => join(parentPath, name).slice(folder.length + 1))
    .sort();
}
