/** The programs of the adapters' pages run as printed, with the libraries that they are for. */

import { mkdirSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { prepared, shown, shownIn } from "./documented-programs.js";
import { command, root } from "./project.js";

/** The output of a program of a page, beside these libraries. */
async function output(page: string, file: string, libraries: readonly string[]): Promise<string[]> {
  const { folder, commandLine } = await prepared(shown(page, file));
  for (const library of libraries) {
    const link = join(folder, "node_modules", library);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(root("node_modules", library), link);
  }
  return command(commandLine, folder).trim().split("\n");
}

describe("the programs of the adapters' pages", () => {
  test("varve/keyv: a value with a TTL", async () => {
    expect(shownIn("docs/keyv.md").map(({ file }) => file)).toStrictEqual(["cache.mjs"]);
    expect(await output("docs/keyv.md", "cache.mjs", ["keyv"])).toStrictEqual([
      "{ title: 'Home' } false",
      "true",
    ]);
  });

  test("varve/unstorage: an item with a ttl, and raw bytes", async () => {
    expect(shownIn("docs/unstorage.md").map(({ file }) => file)).toStrictEqual(["storage.mjs"]);
    const libraries = ["unstorage"];
    expect(await output("docs/unstorage.md", "storage.mjs", libraries)).toStrictEqual([
      "[ 'logo', 'users:ann' ] { age: 30 }",
      "3600 3",
    ]);
  });
});
