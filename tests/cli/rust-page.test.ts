/** A program in Rust, crate/examples/shop.rs, and a page in Chromium on the same file. */

import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { shop } from "./example.js";
import { folder } from "./support.js";

/** The program of the page's worker: it receives a file, or none, and returns its own. */
const WORKER = `
import { open } from "varve";
import { str, struct, u16 } from "varve/struct";

const Product = struct("Product", { stock: u16, name: str });

async function fileOf(folder) {
  for await (const entry of folder.values()) {
    if (entry.kind === "file" && entry.name.endsWith(".varve")) return entry;
    const inner = entry.kind === "directory" ? await fileOf(entry) : undefined;
    if (inner !== undefined) return inner;
  }
}

async function used(use) {
  const db = await open("shop");
  const result = use(db.collection("products", Product, { indexes: { byStock: "stock" } }));
  await db.close();
  return result;
}

const tasks = {
  async write() {
    await used((products) => {
      products.set("yeezy", { stock: 2, name: "Yeezy Boost 350 V2" });
      products.set("zoom", { stock: 300, name: "größe 品" });
    });
    const file = await (await fileOf(await navigator.storage.getDirectory())).getFile();
    return [...new Uint8Array(await file.arrayBuffer())];
  },
  async read(bytes) {
    const handle = await fileOf(await navigator.storage.getDirectory());
    const file = await handle.createSyncAccessHandle();
    file.truncate(0);
    file.write(new Uint8Array(bytes), { at: 0 });
    file.close();
    return used((products) => {
      const all = [...products.entries()].map(([key, { stock, name }]) => [key, stock, name]);
      return { all, byStock: [...products.index.byStock.keys()] };
    });
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

const PAGE = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module">
globalThis.ask = (task, given) => new Promise((resolve, reject) => {
  const worker = new Worker("/worker.js", { type: "module" });
  worker.onerror = (event) => reject(new Error(event.message));
  worker.onmessage = ({ data: { result, error } }) => {
    worker.terminate();
    if (error === undefined) resolve(result);
    else reject(new Error(error));
  };
  worker.postMessage({ task, given });
});
</script>`;

interface Server {
  url: string;
  close(): Promise<void>;
}

interface Page {
  goto(url: string): Promise<unknown>;
  evaluate(code: string): Promise<unknown>;
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
  await bundleForBrowser([{ in: "virtual:worker", out: "worker" }], relative(root, out), {
    virtual: { "virtual:worker": WORKER },
  });
  const server = await serve([out], { pages: { "/": PAGE } });
  onTestFinished(() => server.close());
  return server;
}

describe("a Rust program and a page", () => {
  test("the Rust program reads and changes a page's data, and the page reads the result", async () => {
    const { withPage } = await load<{
      withPage(place: string, use: (page: Page) => Promise<void>): Promise<void>;
    }>("tests/browsers.mjs");
    const server = await servePage();
    const path = join(folder(), "shop.varve");
    await withPage("chromium", async (page) => {
      await page.goto(server.url);
      writeFileSync(path, Uint8Array.from((await page.evaluate(`ask("write")`)) as number[]));
      expect(shop(path, "list")).toStrictEqual([
        "yeezy 2 Yeezy Boost 350 V2\nzoom 300 größe 品\n",
        0,
      ]);
      expect(shop(path, "by", "byStock")).toStrictEqual(["yeezy\nzoom\n", 0]);
      expect(shop(path, "buy", "yeezy")).toStrictEqual(["bought\n", 0]);
      expect(shop(path, "add", "air", "700", "Air")).toStrictEqual(["", 0]);
      const bytes = JSON.stringify([...readFileSync(path)]);
      const { all, byStock } = (await page.evaluate(`ask("read", ${bytes})`)) as {
        all: unknown[];
        byStock: string[];
      };
      expect(all).toStrictEqual([
        ["air", 700, "Air"],
        ["yeezy", 1, "Yeezy Boost 350 V2"],
        ["zoom", 300, "größe 品"],
      ]);
      expect(byStock.join()).toBe("yeezy,zoom,air");
    });
  });
});
