/** Pages that are tried in Chromium. */

import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { copied, developed, inChromium } from "../fixtures/fixture.js";
import { until } from "../support/values.js";
import { root } from "./project.js";

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
    const link = join(folder, "node_modules", library);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(root("node_modules", library), link);
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
