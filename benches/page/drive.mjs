// Opens pages, each in a renderer of its own, and takes the times of their first calls.

import { rmSync } from "node:fs";
import { join } from "node:path";
import { bundleForBrowser } from "../../scripts/bundle.mjs";
import { root } from "../../scripts/lib.mjs";
import { Files, Host } from "../web-host.mjs";
import { withBrowser } from "../with-browser.mjs";

const ENTRIES = [
  "varve",
  "varve-worker",
  "varve-traced",
  "traced-worker",
  "floor",
  "floor-worker",
  "dexie",
  "idb-keyval",
];

/** As hosts serve files whose names change with every build. */
const SCRIPTS = { "cache-control": "public, max-age=31536000, immutable" };

/** Time for the browser to end a closed page's processes, and to write its caches. */
const CLOSE_MS = 400;

/** Bundles the scripts of the pages and passes the bundles to `use`. */
export async function withBundles(use) {
  const out = `.build/benches/page-${process.pid}`;
  try {
    await bundleForBrowser(
      ENTRIES.map((name) => `benches/page/${name}.ts`),
      out,
      {
        minify: true,
        splitting: false,
        sourcemap: false,
        external: ["node:*"],
        nodePaths: [join(root, "benches/rivals/node_modules")],
      },
    );
    return await use(new Files(join(root, out)));
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
  }
}

/** The pages of a browser with a new profile. */
export const withPages = (browserName, files, use) =>
  withBrowser(browserName, (browser, version) =>
    use(new Pages(browserName, browser, files), version),
  );

/** The pages of one browser. */
class Pages {
  #browserName;
  #browser;
  #files;

  constructor(browserName, browser, files) {
    this.#browserName = browserName;
    this.#browser = browser;
    this.#files = files;
  }

  /**
   * One visitor: a first write in an origin where nothing is stored or cached, and later visits that write and
   * list. The second visit is not measured: browsers keep a script's compiled code only then.
   */
  async visits(store) {
    const host = await new Host({ scripts: SCRIPTS }).listen(this.#files);
    try {
      const first = await this.#visit(host, store, "write", (page) => ask(page, "tab.fill()"));
      const { bytes } = host;
      await this.#visit(host, store, "write");
      const write = await this.#visit(host, store, "write");
      const list = await this.#visit(host, store, "list");
      const second = await this.#second(host, store);
      return { first, write, list, second, bytes };
    } finally {
      host.close();
    }
  }

  /** A second page, while a first one is open. */
  async #second(host, store) {
    let second;
    await this.#visit(host, store, "write", async () => {
      second = await this.#visit(host, store, "list&second");
    });
    return second;
  }

  async #visit(host, store, doing, then) {
    const page = await this.#browser.newPage();
    page.on("pageerror", (error) => process.stderr.write(`  [${this.#browserName}] ${error}\n`));
    try {
      await page.goto(`${host.url}/${store}.html?do=${doing}`);
      await page.waitForFunction(() => "tab" in globalThis);
      const start = await ask(page, "tab.first");
      const trace = await ask(page, "globalThis.trace?.()");
      return { ...start, trace, filled: await then?.(page) };
    } finally {
      await page.close();
      await new Promise((resolve) => setTimeout(resolve, CLOSE_MS));
    }
  }
}

function ask(page, call) {
  return page.evaluate(call);
}
