/** The programs of the adapters' pages run as printed, with the libraries that they are for. */

import { mkdirSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { prepared, shown, shownIn } from "./documented-programs.js";
import { writtenByPage } from "./pages.js";
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

  test("varve/idb-keyval: a store in Node, a page, and old values that move in", async () => {
    const page = "docs/idb-keyval.md";
    const files = ["main.ts", "store.mjs", "moving.ts"];
    expect(shownIn(page).map(({ file }) => file)).toStrictEqual(files);
    expect(await output(page, "store.mjs", [])).toStrictEqual([
      "Map(1) { 'pages' => 3n } [ 'theme' ]",
    ]);
    const first = `
      import { set } from "idb-keyval";
      import { get } from "varve/idb-keyval";
      import { moveOldValues } from "./moving";
      await set("old", new Map([["a", 1]]));
      await moveOldValues();
      console.log((await get("old")).get("a"));
      await import("./main");
      console.log("end");`;
    const main = shown(page, "main.ts").source;
    const moving = shown(page, "moving.ts").source;
    const lines = await writtenByPage({ "first.ts": first, "main.ts": main, "moving.ts": moving }, [
      "idb-keyval",
    ]);
    const [moved, since, entries] = lines as [unknown, unknown, [unknown, unknown][]];
    expect([moved, since]).toStrictEqual([1, 0]);
    expect(entries.map(([key]) => key)).toStrictEqual(["old", "theme", [2026, "visits"]]);
    expect(entries[2]?.[1]).toBe(2);
  });
});
