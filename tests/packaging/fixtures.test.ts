/** The package on pages, loaded by bundlers and plain servers, under a strict policy. */

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { assert, describe, expect, test } from "vitest";
import {
  builtBy,
  copied,
  developed,
  expectResults,
  pathOf,
  resultsFrom,
  resultsInDevelopment,
  tool,
  type Vite,
  within,
  withPaths,
} from "../fixtures/fixture.js";
import { manifest, pack, project, root } from "./project.js";

/** The modules that a page or a worker begins with. */
const ENTRIES = ["main.js", "db.js", "own.js", "imported.js"];

interface Rolldown {
  rolldown(options: object): Promise<{ write(options: object): Promise<unknown> }>;
}

describe("a page under a strict policy, without isolation", () => {
  test("it loads the package as plain modules from a static server", async () => {
    const folder = copied("app");
    withPaths(folder);
    expectResults(await resultsFrom(folder, join(project(), "node_modules/varve")));
  });

  test("it loads a bundle of esbuild, with the worker's file as a separate entry", async () => {
    const folder = copied("app");
    const outdir = join(folder, "out");
    await build({
      absWorkingDir: folder,
      entryPoints: ENTRIES,
      outdir,
      bundle: true,
      splitting: true,
      minify: true,
      format: "esm",
      logLevel: "silent",
    });
    expectResults(await resultsFrom(outdir), { knowsWorker: false });
  });

  test("it loads a bundle of rolldown, with the worker's file as a separate entry", async () => {
    const { rolldown } = await tool<Rolldown>("rolldown/dist/index.mjs");
    const folder = copied("app");
    const input = ENTRIES.map((file) => join(folder, file));
    const bundle = await rolldown({ input, cwd: folder, platform: "browser" });
    await bundle.write({ dir: join(folder, "out") });
    expectResults(await resultsFrom(join(folder, "out")), { knowsWorker: false });
  });

  test("it loads a build of Vite without configuration", async () => {
    const vite = await tool<Vite>("vite/dist/node/index.js");
    expectResults(await resultsFrom(await builtBy(vite, copied("app"))));
  });

  test("it loads from Vite's development server, although that sends no policy", async () => {
    const vite = await tool<Vite>("vite/dist/node/index.js");
    expectResults(await resultsInDevelopment(vite, copied("app")), { strict: false });
  });
});

/** Writes one key after the other, and records which were answered, until it is reloaded. */
const WRITING = `
  import { connect } from "varve/client";
  const shop = connect("shop", {
    worker: () => new Worker(new URL("./db.js", import.meta.url), { type: "module" }),
  });
  const answered = JSON.parse(localStorage.answered ?? "[]");
  globalThis.answered = answered.length;
  globalThis.lost = async () => {
    const found = await Promise.all(answered.map((key) => shop.collection("products").get(key)));
    return answered.filter((_, i) => found[i] === undefined);
  };
  globalThis.begin = async () => {
    for (;;) {
      const key = crypto.randomUUID();
      await shop.collection("products").set(key, { stock: 1, name: key });
      answered.push(key);
      localStorage.answered = JSON.stringify(answered);
      globalThis.answered = answered.length;
    }
  };
`;

describe("a page reloaded by Vite's development server", () => {
  for (const place of ["chromium", "firefox"] as const) {
    test(`no write that was answered before is lost, in ${place}`, async () => {
      const folder = copied("app");
      writeFileSync(join(folder, "main.js"), WRITING);
      writeFileSync(join(folder, "later.js"), 'import "varve/json";');
      const include = ["varve", "varve/client", "varve/struct"];
      const url = await developed(folder, { optimizeDeps: { include } });
      await within(place, async (page) => {
        await page.goto(url);
        await page.waitForFunction('"begin" in globalThis');
        await page.evaluate("void begin()");
        await page.waitForFunction("answered > 50");
        // It now meets another module of the package. The name is concatenated so that it does not before.
        await page.evaluate('globalThis.isOld = true, void import(["/later", ".js"].join(""))');
        await page.waitForFunction('"lost" in globalThis && !("isOld" in globalThis)');
        assert(Number(await page.evaluate("answered")) > 50);
        expect(await page.evaluate("lost()")).toStrictEqual([]);
      });
    });
  }
});

describe("the package archive", () => {
  /** The output of a checker whose command fails by its exit code. */
  async function checked(program: string, ...args: string[]): Promise<string> {
    const path = root(await pathOf(program));
    return execFileSync(process.execPath, [path, ...args], { cwd: root(), encoding: "utf8" });
  }

  test("publint reports no problem", async () => {
    const output = await checked("publint/src/cli.js", "run", pack().archive, "--strict");
    assert(output.includes("All good!"), output);
  });

  test("the types of every entry resolve like its modules", async () => {
    const { archive } = pack();
    const attw = "@arethetypeswrong/cli/dist/index.js";
    const output = await checked(attw, archive, "--profile", "esm-only", "--no-color");
    for (const entry of Object.keys(manifest().exports)) {
      assert(output.includes(`"varve${entry.slice(1)}"`), entry);
    }
  });
});
