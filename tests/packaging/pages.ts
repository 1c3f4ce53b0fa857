/** Pages that are tried in Chromium. */

import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { copied, developed, inChromium, type Page, tool, type Vite } from "../fixtures/fixture.js";
import { until } from "../support/values.js";
import { load, root } from "./project.js";

/** A folder with these programs by their names, and a page that begins with the first one. */
export function siteOf(programs: Readonly<Record<string, string>>): string {
  const folder = copied();
  for (const [name, text] of Object.entries(programs)) writeFileSync(join(folder, name), text);
  writeFileSync(
    join(folder, "index.html"),
    `<!doctype html><body><script type="module" src="/${Object.keys(programs)[0]}"></script>`,
  );
  return folder;
}

/** Vite's build of a folder, whose modules may use top-level await. */
export async function builtByVite(root: string): Promise<string> {
  const vite = await tool<Vite>("vite/dist/node/index.js");
  const options = { build: { target: "es2022" }, configFile: false, logLevel: "silent" };
  await vite.build({ root, ...options });
  return join(root, "dist");
}

/** Serves folders and calls `use` with the loaded page. */
export async function onPage<T>(folders: string[], use: (page: Page, url: string) => Promise<T>) {
  const { serve } = await load<{
    serve(folders: string[]): Promise<{ url: string; close(): Promise<void> }>;
  }>("scripts/serve.mjs");
  const server = await serve(folders);
  onTestFinished(() => server.close());
  return inChromium(async (page) => {
    await page.goto(server.url);
    return use(page, server.url);
  });
}

/** The first text that the page shows. */
export async function firstText(page: Page): Promise<unknown> {
  const text = "document.body.textContent.trim()";
  await page.waitForFunction(text);
  return page.evaluate(text);
}

/**
 * What a page writes to its console until it has written `"end"`, in Vite's development server. Its first module is
 * `first.ts`, and it can import these libraries.
 */
export async function writtenByPage(
  files: Readonly<Record<string, string>>,
  libraries: readonly string[],
): Promise<unknown[]> {
  const folder = copied();
  mkdirSync(join(folder, "node_modules"));
  for (const library of libraries) {
    symlinkSync(root("node_modules", library), join(folder, "node_modules", library));
  }
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, name), text);
  writeFileSync(
    join(folder, "index.html"),
    '<!doctype html><body><script type="module" src="/first.ts"></script>',
  );
  const url = await developed(folder, {});
  return inChromium(async (page) => {
    const lines: unknown[] = [];
    let last = Promise.resolve();
    page.on("console", (message) => {
      // In order, as an object takes longer than text.
      const values = Promise.all(message.args().map((one) => one.jsonValue()));
      last = last.then(async () => void lines.push(...(await values)));
    });
    await page.goto(url);
    await until(() => lines.includes("end"));
    return lines.slice(0, lines.indexOf("end")).filter((line) => !/^\[vite\]/.test(String(line)));
  });
}
