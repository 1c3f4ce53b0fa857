/** The programs of docs/places.md run as printed; edge.ts runs in tests/edge, which has a workerd. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { memory, open } from "varve";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { copied, developed, inChromium } from "../fixtures/fixture.js";
import { prepared, ranAsShown, shown, shownIn } from "./documented-programs.js";
import { builtByVite as built, onPage, firstText as seen, siteOf } from "./pages.js";
import { command, project, root, runs, runtime } from "./project.js";

/** The programs by the names in their first lines. */
const programs = new Map(shownIn("docs/places.md").map((one) => [one.file, one.source] as const));

function program(name: string): string {
  const source = programs.get(name);
  assert(source !== undefined, `docs/places.md has ${name}`);
  return source;
}

/** A folder with these programs, and a page that begins with one of them. */
function site(...names: string[]): string {
  return siteOf(Object.fromEntries(names.map((name) => [name, program(name)])));
}

describe("the recipes", () => {
  test("every program is named, and each is run", () => {
    const names = [
      "db.ts",
      "main.ts",
      "vite.config.ts",
      "index.html",
      "worker.ts",
      "page.ts",
      "sw.ts",
      "reader.ts",
    ];
    const inNode = [
      "program.mjs",
      "import.mjs",
      "lines.mjs",
      "kept.ts",
      "server.mjs",
      "threads.mjs",
    ];
    expect([...programs.keys()]).toStrictEqual([...names, "edge.ts", ...inNode]);
    const fences = readFileSync(root("docs/places.md"), "utf8").match(/^```/gm)?.length;
    expect(fences).toBe(2 * programs.size);
  });

  test("a page with a bundler, and a service worker beside it", async () => {
    const folder = site("main.ts", "db.ts");
    const out = await built(folder);
    writeFileSync(join(folder, "sw.ts"), program("sw.ts"));
    const [, ...bundles] = shown("docs/places.md", "sw.ts").command?.split(" ").slice(1) ?? [];
    command([root("node_modules/esbuild/bin/esbuild"), ...bundles], folder);
    cpSync(join(folder, "public/sw.js"), join(out, "sw.js"));
    await onPage([out], async (page, url) => {
      expect(await seen(page)).toBe('{"stock":99,"name":"Boost 350"}');
      await page.evaluate(`navigator.serviceWorker.register("/sw.js").then(async () => {
        await navigator.serviceWorker.ready;
      })`);
      await page.goto(url);
      await seen(page);
      expect(
        await page.evaluate('fetch("/stock/yeezy").then((answer) => answer.json())'),
      ).toStrictEqual({
        stock: 99,
        name: "Boost 350",
      });
    });
  });

  test("Vite's development server, which reloads the page unless configured otherwise", async () => {
    for (const isConfigured of [true, false]) {
      const folder = site("main.ts", "db.ts", ...(isConfigured ? ["vite.config.ts"] : []));
      const html = readFileSync(join(folder, "index.html"), "utf8");
      const count = "sessionStorage.loads = 1 + Number(sessionStorage.loads ?? 0)";
      writeFileSync(
        join(folder, "index.html"),
        html.replace("<body>", `<script>${count}</script><body>`),
      );
      const configFile = isConfigured ? join(folder, "vite.config.ts") : false;
      const url = await developed(folder, { configFile });
      await inChromium(async (page) => {
        await page.goto(url);
        await page.waitForFunction(`sessionStorage.loads === "${isConfigured ? 1 : 2}"`);
        expect(await seen(page)).toBe('{"stock":99,"name":"Boost 350"}');
        expect(await page.evaluate("sessionStorage.loads")).toBe(isConfigured ? "1" : "2");
      });
    }
  });

  test("a page without a bundler", async () => {
    const folder = copied();
    writeFileSync(join(folder, "index.html"), `${program("index.html")}<body>`);
    expect(await onPage([folder, project()], seen)).toBe("Boost 350");
  });

  test("a custom worker", async () => {
    expect(await onPage([await built(site("page.ts", "worker.ts"))], seen)).toBe("Boost 350");
  });

  test("a page that only reads", async () => {
    const out = await built(site("reader.ts"));
    const db = await open("shop", { storage: memory() });
    db.set("yeezy", "Boost 350");
    const bytes = new Uint8Array(await new Response(db.export()).arrayBuffer());
    await db.close();
    writeFileSync(join(out, "shop.varve"), bytes);
    expect(await onPage([out], seen)).toBe("1 keys, Boost 350");
  });

  test("Node, Deno and Bun", async () => {
    for (const place of ["node", "node24", "deno", "bun"]) {
      const output = await ranAsShown(shown("docs/places.md", "program.mjs"), place);
      expect(output, place).toBe("Boost 350 1");
    }
  });

  test("many rows at once, a commit for each thousand", async () => {
    const lines = Array.from({ length: 5_500 }, (_, i) => `key ${i},${i}`).join("\n");
    const program = shown("docs/places.md", "import.mjs");
    const counted = program.source.replace("db.count()", "db.count(), db.stats().frame");
    const output = await ranAsShown({ ...program, source: counted }, "node", {
      "stock.csv": lines,
    });
    const [count, frames = 0] = output.split(" ").map(Number);
    expect(count).toBe(5_500);
    // Six commits at most, and what opening writes.
    assert(frames < 20, `${frames} frames`);
  });

  test("JSON lines, import and export of a collection", async () => {
    const lines = Array.from(
      { length: 3_000 },
      (_, i) => `{"key":"${1e4 + i}","value":{"n":${i}}}\n`,
    );
    const program = shown("docs/places.md", "lines.mjs");
    const { folder, commandLine } = await prepared(program, "node", {
      "jobs.jsonl": lines.join(""),
    });
    expect(command(commandLine, folder).trim()).toBe("3000 3000");
    expect(readFileSync(join(folder, "copy.jsonl"), "utf8")).toBe(lines.join(""));
  });

  test("modules that are loaded again, each with its own copy of the package", async () => {
    const folder = copied();
    writeFileSync(join(folder, "kept.ts"), program("kept.ts"));
    for (const copy of ["one", "two"]) {
      await build({
        absWorkingDir: folder,
        entryPoints: { [copy]: "kept.ts" },
        outdir: folder,
        outExtension: { ".js": ".mjs" },
        bundle: true,
        format: "esm",
        platform: "node",
        logLevel: "silent",
      });
    }
    const at = (copy: string) => JSON.stringify(pathToFileURL(join(folder, `${copy}.mjs`)));
    const output = runs(
      `
        const [one, two] = await Promise.all([import(${at("one")}), import(${at("two")})]);
        const [a, b] = [await one.shop(), await two.shop()];
        a.set("yeezy", "Boost 350");
        console.log(one.shop !== two.shop, b.getText("yeezy"));
        // As if another process still held the lock, and then released it.
        globalThis.shop = undefined;
        console.log(await two.shop().catch((error) => error.code));
        await a.close();
        const again = await two.shop();
        console.log(again.getText("yeezy"));
        await again.close();
      `,
      "again.mjs",
    );
    expect(output.trim().split("\n")).toStrictEqual([
      "true Boost 350",
      "VARVE_DATABASE_BUSY",
      "Boost 350",
    ]);
  });

  test("a process that waits until the one before it ends", async () => {
    const waits = "await setTimeout(100)";
    const program = shown("docs/places.md", "server.mjs");
    assert(program.source.includes(waits), "it waits");
    const source = program.source.replace(waits, `console.error("busy"); ${waits}`);
    const { folder, commandLine } = await prepared({ ...program, source });
    const [node = "", ...args] = commandLine;
    const start = () => {
      const child = spawn(node, args, { cwd: folder });
      onTestFinished(() => {
        child.kill("SIGKILL");
      });
      const line = (from: typeof child.stdout) =>
        once(from, "data").then(([chunk]) => String(chunk).trim());
      return { child, busy: line(child.stderr), starts: line(child.stdout) };
    };
    const first = start();
    expect(await first.starts).toBe("1");
    const second = start();
    expect(await second.busy).toBe("busy");
    first.child.kill("SIGTERM");
    expect(await once(first.child, "exit")).toStrictEqual([0, null]);
    expect(await second.starts).toBe("2");
    second.child.kill("SIGKILL");
    expect(await start().starts).toBe("3");
  });

  test("CommonJS, by import() and, where Node supports it, by require()", async () => {
    for (const [place, how] of [
      ["node", 'import("varve")'],
      ["node24", 'import("varve")'],
      ["node24", 'Promise.resolve(require("varve"))'],
    ] as const) {
      const source = `
        ${how}.then(async ({ memory, open }) => {
          const db = await open("shop", { storage: memory() });
          db.set("yeezy", "Boost 350");
          console.log(db.getText("yeezy"));
        });
      `;
      expect(runs(source, "common.cjs", await runtime(place)).trim(), how).toBe("Boost 350");
    }
  });

  test("threads of Node", async () => {
    for (const place of ["node", "node24"]) {
      const output = await ranAsShown(shown("docs/places.md", "threads.mjs"), place);
      expect(output, place).toBe("Boost 350");
    }
  });
});
