import { mkdirSync, renameSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { describe, expect, onTestFinished, test } from "vitest";
import { command, load, project, runs, runtime, written } from "./project.js";

const LOCAL = ["node", "node24", "deno", "bun"] as const;
const BROWSERS = ["chromium", "firefox"] as const;
type Local = (typeof LOCAL)[number];
type Browser = (typeof BROWSERS)[number];

/** Opens, sets, reads, closes and reopens; `say` reports the result. */
function program(storage: string, say: string): string {
  return `
    import { file, open } from "varve";
    const storage = ${storage};
    const db = await open("shop", { storage });
    db.set("key", "value");
    db.updateIf("key", (view) => { view[0] = 86; });
    const seen = db.getText("key");
    await db.close();
    const again = await open("shop", { storage });
    ${say}([seen, again.getText("key"), again.recovery.wasClean].join());
    await again.close();
  `;
}

const EXPECTED = "Value,Value,true";

/** Bundlers: each bundles a file of the project into a folder, under the same name. */
const BUNDLERS: Record<
  string,
  (entry: string, outdir: string, place: Local | Browser) => Promise<unknown>
> = {
  esbuild: (entry, outdir, place) =>
    build({
      absWorkingDir: project(),
      entryPoints: [entry],
      outdir,
      outExtension: { ".js": ".mjs" },
      bundle: true,
      minify: true,
      splitting: true,
      format: "esm",
      platform: isBrowser(place) ? "browser" : "node",
      logLevel: "silent",
    }),

  "bun build": async (entry, outdir, place) => {
    const target = isBrowser(place) ? "browser" : place === "bun" ? "bun" : "node";
    const [bun = ""] = await runtime("bun");
    command([bun, "build", entry, "--minify", `--target=${target}`, `--outdir=${outdir}`]);
    // It chooses the names of its output.
    renameSync(join(outdir, "program.js"), join(outdir, "program.mjs"));
  },

  "deno bundle": async (entry, outdir, place) => {
    const platform = isBrowser(place) ? "browser" : "deno";
    const [deno = ""] = await runtime("deno");
    const out = join(outdir, "program.mjs");
    command([deno, "bundle", "--quiet", "--minify", `--platform=${platform}`, "-o", out, entry]);
  },
};

function isBrowser(place: Local | Browser): place is Browser {
  return (BROWSERS as readonly string[]).includes(place);
}

let counter = 0;

/** A folder of the project for one bundle. */
function fresh(): string {
  counter += 1;
  const folder = join(project(), `bundle-${counter}`);
  mkdirSync(folder, { recursive: true });
  return folder;
}

interface Server {
  url: string;
  close(): Promise<void>;
}

interface Page {
  goto(url: string): Promise<unknown>;
  evaluate(expression: string): Promise<unknown>;
}

const PAGE = '<!doctype html><title>bundle</title><link rel="icon" href="data:,">';

/** The output of the module in that folder when it runs in a worker of the browser. */
async function outputInBrowser(place: Browser, folder: string): Promise<unknown> {
  const { serve } = await load<{
    serve(folders: string[], options: { pages: Record<string, string> }): Promise<Server>;
  }>("scripts/serve.mjs");
  const { withPage } = await load<{
    withPage(place: Browser, use: (page: Page) => Promise<unknown>): Promise<unknown>;
  }>("tests/browsers.mjs");
  const server = await serve([folder], { pages: { "/": PAGE } });
  onTestFinished(() => server.close());
  return withPage(place, async (page) => {
    await page.goto(server.url);
    return page.evaluate(`new Promise((resolve) => {
      const worker = new Worker("/program.mjs", { type: "module" });
      worker.onmessage = ({ data }) => resolve(data);
      worker.onerror = (event) => resolve(event.message || "the worker did not start");
    })`);
  });
}

describe("the installed package", () => {
  for (const place of LOCAL) {
    test(`it stores, reads and closes in ${place}`, async () => {
      const storage = `file(${JSON.stringify(fresh())})`;
      const source = program(storage, "console.log");
      expect(runs(source, "installed.mjs", await runtime(place)).trim()).toBe(EXPECTED);
    });
  }

  test("it works in memory in a Deno without permissions", async () => {
    const source = `
      import { memory, open } from "varve";
      const db = await open("shop", { storage: memory() });
      db.set("key", "value");
      console.log(db.getText("key"));
      await db.close();`;
    expect(runs(source, "nothing.mjs", await runtime("deno", [])).trim()).toBe("value");
  });
});

for (const [bundler, bundle] of Object.entries(BUNDLERS)) {
  describe(`the bundle of ${bundler}`, () => {
    for (const place of LOCAL) {
      test(`it opens, sets, reads and closes in ${place}`, async () => {
        const folder = fresh();
        const source = program(`file(${JSON.stringify(folder)})`, "console.log");
        await bundle(written("program.ts", source), folder, place);
        const bundled = join(folder, "program.mjs");
        expect(command([...(await runtime(place)), bundled]).trim()).toBe(EXPECTED);
      });
    }

    for (const place of BROWSERS) {
      test(`it opens, sets, reads and closes in a worker of ${place}`, async () => {
        const folder = fresh();
        await bundle(written("program.ts", program("undefined", "postMessage")), folder, place);
        expect(await outputInBrowser(place, folder)).toBe(EXPECTED);
      });
    }
  });
}
