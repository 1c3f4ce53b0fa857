/** The programs of docs/start/, docs/views.md and docs/collections.md do what their pages say. */

import { cpSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { bundledWorker, serving, withObjects } from "../edge/workerd.js";
import { copied, developed, inChromium, type Page, tool, type Vite } from "../fixtures/fixture.js";
import { context } from "../support/context.js";
import { prepared, ranAsShown, shown, shownIn } from "./documented-programs.js";
import { onPage } from "./pages.js";
import { command, project, root } from "./project.js";

/** What a program says that it prints: the comments behind its calls of console.log, and in lines of their own. */
function promised(source: string): string {
  const lines = source.matchAll(/console\.log\(.*\);(?: \/\/ (.+))?\n((?: *\/\/ .+\n)*)/g);
  return [...lines]
    .flatMap(([, behind, below = ""]) => [behind ?? [], below.match(/(?<=\/\/ ).+/g) ?? []])
    .flat(2)
    .join("\n");
}

/** A folder with the programs of a page that names them. */
function withPrograms(page: string): string {
  const folder = copied();
  for (const { file, source } of shownIn(page)) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), source);
  }
  return folder;
}

/** What the page shows, and its buttons clicked one after the other. */
async function sells(page: Page): Promise<void> {
  const text = "document.querySelector('p').textContent";
  const click = (name: string) =>
    page.evaluate(
      `[...document.querySelectorAll("button")].find((one) => one.textContent === "${name}").click()`,
    );
  await page.waitForFunction(`${text} === "nothing yet"`);
  await click("Restock");
  await page.waitForFunction(`/100 left$/.test(${text})`);
  await click("Buy");
  await page.waitForFunction(`/99 left$/.test(${text})`);
}

describe("the starts", () => {
  test("print what they say, in their runtimes", async () => {
    const programs = [
      ["docs/start/node.md", "shop.mjs", ["node", "node24"]],
      ["docs/start/bun.md", "shop.ts", ["bun"]],
      ["docs/views.md", "views.mjs", ["node", "node24"]],
      ["docs/collections.md", "orders.mjs", ["node", "node24"]],
    ] as const;
    for (const [page, file, runtimes] of programs) {
      const program = shown(page, file);
      const expected = promised(program.source);
      assert(expected !== "", `${page} says what it prints`);
      for (const runtime of runtimes) {
        expect(await ranAsShown(program, runtime), `${page} in ${runtime}`).toBe(expected);
      }
    }
  });

  test("the one for Deno needs no more permissions than it says, and counts visits", async () => {
    const program = shown("docs/start/deno.md", "shop.mjs");
    const { folder, commandLine } = await prepared(program, "deno");
    assert(!commandLine.includes("--allow-all"), commandLine.join(" "));
    expect(command(commandLine, folder).trim()).toBe(promised(program.source));
    expect(command(commandLine, folder).trim()).toBe("Boost 350 2");
  });

  test("the one for Vite sells, developed and built", async () => {
    const folder = withPrograms("docs/start/vite.md");
    writeFileSync(
      join(folder, "index.html"),
      '<!doctype html><body><script type="module" src="/src/main.ts"></script>',
    );
    const url = await developed(folder, { configFile: join(folder, "vite.config.ts") });
    await inChromium(async (page) => {
      await page.goto(url);
      await sells(page);
    });
    const vite = await tool<Vite>("vite/dist/node/index.js");
    await vite.build({ root: folder, logLevel: "silent" });
    await onPage([join(folder, "dist")], sells);
  });

  test("the one for a page without a bundler sells", async () => {
    const folder = withPrograms("docs/start/plain-page.md");
    await onPage([folder, project()], sells);
  });

  test("the one for Rust prints what it says, with the dependencies of its page", () => {
    const page = readFileSync(root("docs/start/rust.md"), "utf8");
    const [, dependencies = ""] = /```toml\n([\s\S]*?)```/.exec(page) ?? [];
    const here = dependencies.replace('varve = "0.1"', `varve = { path = "${root("crate")}" }`);
    assert(here !== dependencies, dependencies);
    const folder = withPrograms("docs/start/rust.md");
    const head = '[package]\nname = "start"\nedition = "2024"\n[workspace]\n';
    writeFileSync(join(folder, "Cargo.toml"), head + here);
    cpSync(root("Cargo.lock"), join(folder, "Cargo.lock"));
    const run = ["cargo", "run", "--quiet", "--offline", "--target-dir", root("target/readme")];
    const { source } = shown("docs/start/rust.md", "src/main.rs");
    const [, promise = ""] = /println!.*\/\/ (.*)/.exec(source) ?? [];
    expect(command(run, folder).trim()).toBe(promise);
  });

  test("the one for Durable Objects sells what each object has", async () => {
    const { source } = shown("docs/start/durable-objects.md", "src/index.ts");
    const folder = join(context().directory ?? ".", "start-edge");
    await bundledWorker(source, folder);
    const config = withObjects(folder, "Shop").replace('"OBJECTS"', '"SHOP"');
    const { url } = await serving(folder, config);
    const answer = async (method: string, path: string) => {
      const response = await fetch(url + path, { method });
      return [response.status, await response.text()];
    };
    const left = (stock: number) => `{"stock":${stock},"name":"Boost 350"}`;
    expect(await answer("PUT", "eu")).toStrictEqual([200, left(2)]);
    expect(await answer("POST", "eu")).toStrictEqual([200, left(1)]);
    expect(await answer("POST", "eu")).toStrictEqual([200, left(0)]);
    expect(await answer("POST", "eu")).toStrictEqual([409, "sold out"]);
    expect(await answer("GET", "us")).toStrictEqual([200, "null"]);
  });
});
