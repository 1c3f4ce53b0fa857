/** The page of docs/start/rust-web.md, built as it says, in Chromium. */

import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { assert, describe, onTestFinished, test } from "vitest";
import { shownIn } from "../packaging/documented-programs.js";
import { context } from "../support/context.js";

const DOCUMENT = "docs/start/rust-web.md";

/** Compiling its dependencies takes a minute on two idle cores. */
const BUILD_TIMEOUT_MS = 1_200_000;

interface Page {
  goto(url: string): Promise<unknown>;
  waitForFunction(code: string): Promise<unknown>;
}

/** Modules that find their own files by their location, and so must not be bundled into this one. */
async function load<T>(path: string): Promise<T> {
  return (await import(pathToFileURL(join(context().root, path)).href)) as T;
}

/** Its files in a folder below the repository, and the crate of this repository in the place of the published one. */
function written(): string {
  const { root } = context();
  const folder = join(root, ".build/rust-web-start");
  rmSync(folder, { recursive: true, force: true });
  for (const { file, source } of shownIn(DOCUMENT)) {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), source);
  }
  const text = readFileSync(join(root, DOCUMENT), "utf8");
  const [, manifest = ""] = /```toml\n([\s\S]*?)```/.exec(text) ?? [];
  const here = manifest.replace('version = "0.1"', `path = ${JSON.stringify(join(root, "crate"))}`);
  assert(here !== manifest, manifest);
  writeFileSync(join(folder, "Cargo.toml"), `${here}\n[workspace]\n`);
  cpSync(join(root, "crate/examples/web-drop/Cargo.lock"), join(folder, "Cargo.lock"));
  return folder;
}

describe("the start for Rust on the web", () => {
  test("counts visits, built as its page says", { timeout: BUILD_TIMEOUT_MS }, async () => {
    const folder = written();
    const { must } = await load<{
      must(command: string, args: string[], options: object): Promise<unknown>;
    }>("scripts/lib.mjs");
    const { wasmToolsEnv } = await load<{ wasmToolsEnv(): object }>("scripts/wasm-tools.mjs");
    const { command = "" } = shownIn(DOCUMENT).find(({ file }) => file === "src/lib.rs") ?? {};
    const [program = "", ...args] = command.split(" ");
    await must(program, args, { cwd: folder, env: wasmToolsEnv() });
    const { serve } = await load<{
      serve(folders: string[]): Promise<{ url: string; close(): Promise<void> }>;
    }>("scripts/serve.mjs");
    const server = await serve([folder]);
    onTestFinished(() => server.close());
    const { withPage } = await load<{
      withPage(browser: string, use: (page: Page) => Promise<void>): Promise<void>;
    }>("tests/browsers.mjs");
    await withPage("chromium", async (page) => {
      for (const visit of [1, 2]) {
        await page.goto(`${server.url}/index.html`);
        await page.waitForFunction(`document.querySelector("p").textContent === "Visit ${visit}"`);
      }
    });
  });
});
