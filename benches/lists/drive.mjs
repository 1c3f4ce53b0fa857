// Serves the page of the lists to Chromium, and has it list records: on new pages, and on one that has done it before.

import { copyFileSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { bundleForBrowser } from "../../scripts/bundle.mjs";
import { root } from "../../scripts/lib.mjs";
import { withBrowser } from "../with-browser.mjs";

const TYPES = { ".js": "text/javascript", ".wasm": "application/wasm", ".html": "text/html" };

/** Cross-origin isolation, because the clock of other pages has steps of 100 µs. */
const HEADERS = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

const HTML =
  '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module" src="page.js"></script>';

/** Milliseconds between the opening of a store and the first list: its own work after opening has ended by then. */
const SETTLE_MS = 50;

/**
 * Fills the stores in a new profile, and passes the measurements to `use`: `cold(store, variant, size)` and
 * `warm(size, rounds, warmUp)` in milliseconds, and `longest`.
 */
export async function withLists(browserName, use) {
  const out = `.build/benches/lists-${process.pid}`;
  try {
    await bundleForBrowser(
      ["page", "worker", "floor-worker"].map((name) => `benches/lists/${name}.ts`),
      out,
      {
        minify: true,
        splitting: true,
        sourcemap: false,
        nodePaths: [join(root, "benches/rivals/node_modules")],
      },
    );
    copyFileSync(join(root, "dist/varve.wasm"), join(root, out, "varve.wasm"));
    await withServer(join(root, out), (url) =>
      withBrowser(browserName, async (browser, version) => {
        const lists = new Lists(browserName, browser, url);
        await lists.with("fill()");
        for (const size of [1_000, 10_000]) await lists.with(`compare(${size})`);
        await use(lists, version);
      }),
    );
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
  }
}

async function withServer(folder, use) {
  const server = createServer(({ url }, response) => {
    const { pathname } = new URL(url, "http://localhost");
    try {
      const isPage = pathname === "/page.html";
      const body = isPage ? HTML : readFileSync(join(folder, pathname));
      response.writeHead(200, { "content-type": TYPES[extname(pathname)], ...HEADERS });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    return await use(`http://localhost:${server.address().port}`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

class Lists {
  #browserName;
  #browser;
  #url;

  constructor(browserName, browser, url) {
    this.#browserName = browserName;
    this.#browser = browser;
    this.#url = url;
  }

  /** Opens a new page, calls one of its functions, and closes it. */
  async with(...calls) {
    const page = await this.#browser.newPage();
    page.on("pageerror", (error) => process.stderr.write(`  [${this.#browserName}] ${error}\n`));
    try {
      await page.goto(`${this.#url}/page.html`);
      await page.waitForFunction(() => "page" in globalThis);
      let result;
      for (const call of calls) {
        if (call === "settle") await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
        else result = await page.evaluate(`page.${call}`);
      }
      return result;
    } finally {
      await page.close();
    }
  }

  variants() {
    return this.with("variants()");
  }

  /** The first list on a new page, whose store is open. */
  cold(store, variant, size) {
    const [one, other] = [JSON.stringify(store), JSON.stringify(variant)];
    return this.with(`open(${one}, ${other})`, "settle", `time(${one}, ${other}, ${size})`);
  }

  warm(size, rounds, warmUp) {
    return this.with(`warm(${size}, ${rounds}, ${warmUp})`);
  }

  /** The longest tasks of the page during the first list and further ones. */
  longest(store, variant, size) {
    const [one, other] = [JSON.stringify(store), JSON.stringify(variant)];
    const call = `longest(${one}, ${other}, ${size})`;
    return this.with(`open(${one}, ${other})`, "settle", call);
  }
}
