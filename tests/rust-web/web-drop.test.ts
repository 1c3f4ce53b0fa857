/** The example crate/examples/web-drop, a page in Rust, and the package on the same database. */

import { mkdtempSync } from "node:fs";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";

/** A worker with the package: it does one task, and answers. */
const WORKER = `
import { open } from "varve";
import { str, struct, u16 } from "varve/struct";

const Product = struct("Product", { stock: u16, name: str });
const held = [];

const tasks = {
  async stock() {
    const db = await open("shop");
    const { stock, name } = db.collection("products", Product).get("yeezy");
    const { ok } = await db.verify();
    await db.close();
    return { stock, name, ok };
  },
  async restock(stock) {
    const db = await open("shop");
    const products = db.collection("products", Product);
    products.updateIf("yeezy", (yeezy) => { yeezy.stock = stock; });
    products.set("air", { stock: 7, name: "größe 品" });
    await db.close();
  },
  async hold() {
    held.push(await open("shop"));
  },
  async code() {
    return open("shop").then(() => "opened", (error) => error.code);
  },
};

onmessage = async ({ data: { task, given } }) => {
  try {
    postMessage({ result: await tasks[task](given) });
  } catch (error) {
    postMessage({ error: String(error.stack ?? error) });
  }
};
`;

/** A page that runs the package in a worker. */
const PAGE = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module">
const workers = [];
globalThis.ask = (task, given, keep = false) => new Promise((resolve, reject) => {
  const worker = new Worker("/package.js", { type: "module" });
  workers.push(worker);
  worker.onerror = (event) => reject(new Error(event.message));
  worker.onmessage = ({ data: { result, error } }) => {
    if (!keep) worker.terminate();
    if (error === undefined) resolve(result);
    else reject(new Error(error));
  };
  worker.postMessage({ task, given });
});
globalThis.end = () => workers.forEach((worker) => worker.terminate());
</script>`;

interface Server {
  url: string;
  close(): Promise<void>;
}

interface Page {
  goto(url: string): Promise<unknown>;
  evaluate(code: string): Promise<unknown>;
  waitForFunction(code: string): Promise<unknown>;
  on(event: "requestfailed", listener: (request: FailedRequest) => void): void;
  browser(): { newPage(): Promise<Page> };
  close(): Promise<void>;
}

interface FailedRequest {
  url(): string;
  failure(): { errorText: string } | null;
}

/** What the page of the package is asked, and what the page of the example shows. */
interface Pages {
  ask(code: string): Promise<unknown>;
  sell(): Promise<string>;
}

/** Modules that find their own files by their location, and so must not be bundled into this one. */
async function load<T>(path: string): Promise<T> {
  return (await import(pathToFileURL(join(context().root, path)).href)) as T;
}

async function servePage(): Promise<Server> {
  const { root } = context();
  const { bundleForBrowser } = await load<{
    bundleForBrowser(entries: object[], out: string, options: object): Promise<unknown>;
  }>("scripts/bundle.mjs");
  const { serve } = await load<{
    serve(folders: string[], options: { pages: Record<string, string> }): Promise<Server>;
  }>("scripts/serve.mjs");
  const out = mkdtempSync(join(context().directory ?? ".", "page-"));
  await bundleForBrowser([{ in: "virtual:worker", out: "package" }], relative(root, out), {
    virtual: { "virtual:worker": WORKER },
  });
  const example = join(root, "crate/examples/web-drop");
  const server = await serve([out, example], { pages: { "/test": PAGE } });
  onTestFinished(() => server.close());
  return server;
}

/** Runs a test with both pages in that browser. */
async function inPages(browser: string, use: (pages: Pages) => Promise<void>): Promise<void> {
  const { withPage } = await load<{
    withPage(browser: string, use: (page: Page) => Promise<void>): Promise<void>;
  }>("tests/browsers.mjs");
  const server = await servePage();
  await withPage(browser, async (page) => {
    await page.goto(`${server.url}/test`);
    await page.waitForFunction(`"end" in globalThis`);
    const ask = (code: string) => page.evaluate(code);
    await use({ ask, sell: () => shown(page, `${server.url}/index.html`) });
  });
}

/** What the page of the example shows in the end, and what of it could not be loaded. */
async function shown(page: Page, url: string): Promise<string> {
  const example = await page.browser().newPage();
  const failures: string[] = [];
  example.on("requestfailed", (request) => {
    failures.push(`${request.url()}: ${request.failure()?.errorText}`);
  });
  await example.goto(url);
  await example.waitForFunction(`document.querySelector("#result").dataset.done`);
  const text = String(await example.evaluate(`document.querySelector("#result").value`));
  await example.close();
  return [text, ...failures].join("\n");
}

const SOLD = /^(\d+) sold, (\d+) left, in \d+ ms$/;

/** How many products the example has sold, and how many it has left. */
function sale(text: unknown): number[] {
  const [, sold, left] = SOLD.exec(String(text)) ?? [];
  expect(String(text).replace(SOLD, "a sale")).toBe("a sale");
  return [Number(sold), Number(left)];
}

describe.each(["chromium", "firefox"])("a page in Rust and the package in %s", (browser) => {
  test("each reads and changes what the other has written", async () => {
    await inPages(browser, async ({ ask, sell }) => {
      expect(sale(await sell())).toStrictEqual([20_000, 1]);
      expect(await ask(`ask("stock")`)).toStrictEqual({
        stock: 1,
        name: "Yeezy Boost 350 V2",
        ok: true,
      });
      await ask(`ask("restock", 30000)`);
      expect(sale(await sell())).toStrictEqual([20_000, 10_000]);
      const { stock } = (await ask(`ask("stock")`)) as { stock: number };
      expect(stock).toBe(10_000);
    });
  });

  test("neither opens what the other has open", async () => {
    await inPages(browser, async ({ ask, sell }) => {
      await ask(`ask("hold", undefined, true)`);
      const text = await sell();
      expect(text.includes("shop is open in another worker or tab")).toBe(true);
      await ask("end()");
      expect(sale(await sell())).toStrictEqual([20_000, 1]);
    });
  });
});
