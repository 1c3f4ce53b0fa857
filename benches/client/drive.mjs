// Opens tabs and runs the measurements: calls in them, and closing, killing and freezing the owner's tab.

import { copyFileSync, existsSync, readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { bundleForBrowser } from "../../scripts/bundle.mjs";
import { root } from "../../scripts/lib.mjs";
import { processOf } from "../../tests/processes.mjs";
import { Files, Host } from "../web-host.mjs";
import { withBrowser } from "../with-browser.mjs";

const SQLITE = join(root, "node_modules/@sqlite.org/sqlite-wasm/sqlite-wasm/jswasm");
const PGLITE = join(root, "benches/rivals/node_modules/@electric-sql/pglite/dist");

/** How long tabs send calls before and after the owner's tab is closed, killed or frozen. */
const STEADY_MS = 150;

const FROZEN_MS = 400;

/** Whether PGlite is installed, by `npm ci` in benches/rivals. */
export const hasPglite = existsSync(PGLITE);

/** Bundles the scripts of the tabs and passes the bundles to `use`. */
export async function withBundles(use) {
  const out = `.build/benches/client-${process.pid}`;
  const entries = [
    "varve",
    "worker",
    "indexeddb",
    "sqlite",
    "sqlite-worker",
    ...(hasPglite ? ["pglite", "pglite-worker"] : []),
  ];
  try {
    await bundleForBrowser(
      entries.map((name) => `benches/client/${name}.ts`),
      out,
      {
        minify: true,
        splitting: true,
        sourcemap: false,
        external: ["node:*", "fs", "fs/promises", "path", "url", "crypto", "module"],
        nodePaths: [join(root, "benches/rivals/node_modules")],
      },
    );
    copyFileSync(join(root, "dist/varve.wasm"), join(root, out, "varve.wasm"));
    for (const file of ["sqlite3.wasm", "sqlite3-opfs-async-proxy.js"]) {
      copyFileSync(join(SQLITE, file), join(root, out, file));
    }
    if (hasPglite) {
      for (const file of readdirSync(PGLITE).filter((one) => /^[^/]*\.(wasm|data)$/.test(one))) {
        copyFileSync(join(PGLITE, file), join(root, out, file));
      }
    }
    return await use(new Files(join(root, out)));
  } finally {
    rmSync(join(root, out), { recursive: true, force: true });
  }
}

/** The headers for cross-origin isolation, without which there is no shared memory. */
const ISOLATED = {
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
};

/** Without shared memory, several tabs cannot have one SQLite file open. */
const NEEDS_ISOLATION = ["sqlite"];

function hostFor(store) {
  return new Host({ headers: NEEDS_ISOLATION.includes(store) ? ISOLATED : {} });
}

/** The tabs of a browser with a new profile. */
export const withTabs = (browserName, files, use) =>
  withBrowser(browserName, (browser, version) =>
    use(new Tabs(browserName, browser, files), version),
  );

/** The tabs of one browser. */
class Tabs {
  #browserName;
  #browser;
  #files;

  constructor(browserName, browser, files) {
    this.#browserName = browserName;
    this.#browser = browser;
    this.#files = files;
  }

  /** How long the first visit to an origin takes, and how much it downloads. */
  async cold(store, samples) {
    const found = { ms: [], bytes: [] };
    for (let i = 0; i < samples; i += 1) {
      await this.#atNewOrigin(store, async (host) => {
        const [, ms] = await this.#open(host, store);
        found.ms.push(ms);
        found.bytes.push(host.bytes);
      });
    }
    return found;
  }

  /** Round trips of the tab that has the file, and of another tab. */
  trips(store, { rounds, width }) {
    return this.#atNewOrigin(store, async (host) => {
      const [owner] = await this.#open(host, store);
      const [other] = await this.#open(host, store);
      const own = await ask(owner, `trips(${rounds}, ${width}, false)`);
      await ask(owner, "shareEcho()");
      return { own, other: await ask(other, `trips(${rounds}, ${width}, true)`) };
    });
  }

  /** Writes per second of all tabs together. */
  writes(store, count, { ms, samples }) {
    return this.#atNewOrigin(store, async (host) => {
      const tabs = [];
      while (tabs.length < count) tabs.push((await this.#open(host, store))[0]);
      const found = { alone: [], together: [] };
      for (let i = -1; i < samples; i += 1) {
        for (const mode of ["alone", "together"]) {
          const done = await Promise.all(
            tabs.map((tab) => ask(tab, `write(${ms}, ${mode === "alone"})`)),
          );
          const sum = done.reduce((a, b) => a + b, 0);
          if (i >= 0) found[mode].push((sum * 1_000) / ms);
        }
      }
      return found;
    });
  }

  /** The longest time another tab is not answered when the owner's tab is closed, killed or frozen. */
  gaps(store, how, samples) {
    return this.#atNewOrigin(store, async (host) => {
      const tabs = [];
      const gaps = [];
      for (let i = 0; i < samples; i += 1) {
        while (tabs.length < 3) tabs.push((await this.#open(host, store))[0]);
        const owner = await this.#owner(tabs);
        const client = tabs.find((tab) => tab !== owner);
        const pid = how === "killed" && (await this.#processOf(owner, tabs));
        await ask(client, "startGap()");
        await pause(STEADY_MS);
        const undo = await this.#disturb(how, owner, pid);
        await pause(STEADY_MS);
        gaps.push(await ask(client, "endGap()"));
        await undo?.();
        if (how !== "frozen") tabs.splice(tabs.indexOf(owner), 1);
      }
      return gaps;
    });
  }

  async #disturb(how, owner, pid) {
    if (how === "closed") return void (await owner.close());
    if (how === "killed") {
      process.kill(pid, "SIGKILL");
      await pause(STEADY_MS);
      return () => owner.close().catch(() => {});
    }
    const devtools = await owner.createCDPSession();
    await devtools.send("Page.setWebLifecycleState", { state: "frozen" });
    await pause(FROZEN_MS);
    return () => devtools.send("Page.setWebLifecycleState", { state: "active" });
  }

  /** The tab's process. Throws if another tab shares it, since that would be killed too. */
  async #processOf(owner, tabs) {
    const pid = await processOf(this.#browser, owner);
    for (const tab of tabs) {
      if (tab !== owner && (await processOf(this.#browser, tab)) === pid) {
        throw new Error(`two tabs share a process in ${this.#browserName}`);
      }
    }
    return pid;
  }

  async #owner(tabs) {
    for (const until = Date.now() + 10_000; Date.now() < until; await pause(10)) {
      for (const tab of tabs) if (await ask(tab, "owns()")) return tab;
    }
    throw new Error("no tab has the file");
  }

  async #open(host, store) {
    const page = await this.#browser.newPage();
    page.on("pageerror", (error) => process.stderr.write(`  [${this.#browserName}] ${error}\n`));
    await page.goto(`${host.url}/${store}.html`);
    await page.waitForFunction(() => "tab" in globalThis);
    return [page, await ask(page, "first()")];
  }

  /** Opens a new origin; its tabs are closed at the end. */
  async #atNewOrigin(store, use) {
    const host = await hostFor(store).listen(this.#files);
    try {
      return await use(host);
    } finally {
      for (const page of await this.#browser.pages()) {
        if (page.url().startsWith(host.url)) await page.close().catch(() => {});
      }
      host.close();
    }
  }
}

function ask(page, call) {
  return page.evaluate(`tab.${call}`);
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
