/** The programs of docs/migrate.md run as printed, on data that other libraries have stored. */

import { describe, expect, test } from "vitest";
import { prepared, shown, shownIn } from "./documented-programs.js";
import { writtenByPage } from "./pages.js";
import { command, compile, runtime } from "./project.js";

const PAGE = "docs/migrate.md";
const LIBRARIES = ["idb-keyval"];
const STRICT = { module: "ESNext", moduleResolution: "Bundler", lib: ["ES2022", "DOM"] };

const source = (file: string) => shown(PAGE, file).source;

describe("the programs that move old data", () => {
  test("the list is complete", () => {
    const names = shownIn(PAGE).map(({ file }) => file);
    expect(names).toStrictEqual(["db.ts", "main.ts", "photos.ts", "settings.ts", "move.mjs"]);
  });

  test("the first one has what idb-keyval has stored, and starts for users who have nothing", async () => {
    const files = { "db.ts": source("db.ts"), "main.ts": source("main.ts") };
    const first = `
      import { set } from "idb-keyval";
      await set("theme", { color: "dark" });
      await import("./main.ts");
      console.log("end");`;
    expect(await writtenByPage({ ...files, "first.ts": first }, LIBRARIES)).toStrictEqual([
      { color: "dark" },
    ]);
    const alone = 'await import("./main.ts"); console.log("end");';
    expect(await writtenByPage({ ...files, "first.ts": alone }, LIBRARIES)).toStrictEqual([
      undefined,
    ]);
  });

  test("photos, settings, and values of every kind", async () => {
    const worker = `
      import { serve } from "varve/serve";
      import { structured } from "varve/structured";
      export default serve("shop", { collections: { things: structured<unknown>() } });`;
    const first = `
      import { set } from "idb-keyval";
      import { connect } from "varve/client";
      import { fromIndexedDB } from "varve/migrate";
      import { movePhotos } from "./photos";
      import { moveSettings } from "./settings";
      const shop = connect<typeof import("./db").default>("shop", {
        worker: () => new Worker(new URL("./db.ts", import.meta.url), { type: "module" }),
      });
      await set("a", new Map([["when", new Date(5)]]));
      await fromIndexedDB("keyval-store", { to: shop, stores: { keyval: shop.collection("things") } });
      console.log((await shop.collection("things").get("a")).get("when").getTime());
      localStorage.setItem("settings/theme", "dark");
      await moveSettings(shop);
      console.log(await shop.getText("theme"));
      const request = indexedDB.open("album");
      request.onupgradeneeded = () => {
        request.result.createObjectStore("photos").put(new Blob(["pixels"]), 7);
      };
      await new Promise((resolve) => { request.onsuccess = resolve; });
      request.result.close();
      await movePhotos(shop);
      console.log(await shop.getText("photo/7"));
      console.log("end");`;
    const files = {
      "db.ts": worker,
      "photos.ts": source("photos.ts"),
      "settings.ts": source("settings.ts"),
      "first.ts": first,
    };
    expect(await writtenByPage(files, LIBRARIES)).toStrictEqual([5, "dark", "pixels"]);
  });

  test("they compile", () => {
    for (const file of ["photos.ts", "settings.ts"]) expect(compile(source(file), STRICT)).toBe("");
  });

  test("rows of node:sqlite, with an index", async () => {
    const { folder, commandLine } = await prepared(shown(PAGE, "move.mjs"), "node24");
    const old = `
      const { DatabaseSync } = require("node:sqlite");
      const old = new DatabaseSync("shop.sqlite");
      old.exec("CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, stock INTEGER)");
      old.exec("INSERT INTO products VALUES (1, 'Air', 5), (2, 'Boost 350', 100)");`;
    command([...(await runtime("node24", [])), "-e", old], folder);
    expect(command(commandLine, folder).trim().split("\n").at(-1)).toBe("2 Boost 350");
    // Again: it is done, and says the same.
    expect(command(commandLine, folder).trim().split("\n").at(-1)).toBe("2 Boost 350");
  });
});
