/** Real browsers and their tabs, for tests of the lifecycle of tabs. */

import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { onTestFinished } from "vitest";
import { context } from "../support/context.js";

/** The part of the driver that these tests use. */
export interface Page {
  goto(url: string): Promise<unknown>;
  goBack(): Promise<unknown>;
  reload(): Promise<unknown>;
  close(): Promise<void>;
  evaluate(program: string): Promise<unknown>;
  waitForFunction(program: string): Promise<unknown>;
  setDefaultTimeout(ms: number): void;
  createCDPSession(): Promise<{ send(method: string, more: object): Promise<unknown> }>;
}

interface Browser {
  newPage(): Promise<Page>;
  close(): Promise<void>;
}

interface Processes {
  processOf(browser: Browser, page: Page): Promise<number>;
  stop(pid: number): Promise<void>;
}

interface Server {
  readonly url: string;
  close(): Promise<void>;
}

export type Place = "chromium" | "firefox";

const PAGE = `<!doctype html><meta charset="utf-8"><title>varve</title><link rel="icon" href="data:,">`;
const PAGES = {
  "/": `${PAGE}<script type="module" src="/tab.js"></script>`,
  "/lost": `${PAGE}<script type="module" src="/lost.js"></script>`,
  "/away": PAGE,
};

/** The timeout of any request to a browser: shorter than a test's, longer than a busy machine takes. */
const REQUEST_TIMEOUT_MS = 100_000;

/**
 * How long a test waits for its tabs to close: a driver may miss the closing of a tab that was navigating, and the browser,
 * which ends soon after, takes its tabs along.
 */
const CLOSING_MS = 10_000;

/** How long a browser is kept for the next test. */
const IDLE_MS = 500;

/** Modules that find their own files by their location, and so must not be bundled into this one. */
async function load<T>(path: string): Promise<T> {
  return (await import(pathToFileURL(join(context().root, path)).href)) as T;
}

/** A resource that is started when first used, and ended when it has not been used for a while. */
class Shared<T> {
  private users = 0;
  private made: Promise<{ one: T; end: () => Promise<unknown> }> | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private readonly make: () => Promise<{ one: T; end: () => Promise<unknown> }>;

  constructor(make: () => Promise<{ one: T; end: () => Promise<unknown> }>) {
    this.make = make;
  }

  async use(): Promise<T> {
    clearTimeout(this.timer);
    this.users += 1;
    onTestFinished(() => this.leave());
    this.made ??= this.make();
    return (await this.made).one;
  }

  private leave(): void {
    this.users -= 1;
    if (this.users > 0) return;
    this.timer = setTimeout(async () => {
      const made = await this.made;
      this.made = undefined;
      await made?.end();
    }, IDLE_MS);
  }
}

const browsers: Record<Place, Shared<Browser>> = {
  chromium: new Shared(() => start("chromium")),
  firefox: new Shared(() => start("firefox")),
};

async function start(place: Place) {
  const { launch, withProfile } = await load<{
    launch(place: string, profile: string, more: { timeout: number }): Promise<Browser>;
    withProfile(place: string, use: (profile: string) => Promise<void>): Promise<void>;
  }>("tests/browsers.mjs");
  let end = () => {};
  const over = new Promise<void>((resolve) => {
    end = resolve;
  });
  let closed: Promise<void> | undefined;
  const one = await new Promise<Browser>((resolve, reject) => {
    closed = withProfile(place, async (profile) => {
      const browser = await launch(place, profile, { timeout: REQUEST_TIMEOUT_MS });
      resolve(browser);
      await over;
      await browser.close();
    });
    closed.catch(reject);
  });
  return {
    one,
    async end() {
      end();
      await closed;
    },
  };
}

const bundles = new Shared(async () => {
  type Bundle = (entries: string[], out: string, more: object) => Promise<unknown>;
  const { bundleForBrowser } = await load<{ bundleForBrowser: Bundle }>("scripts/bundle.mjs");
  const out = `.build/tests/tab-lifecycles-${process.pid}`;
  const entries = ["tab", "hot", "worker", "lost", "lost-worker"].map(
    (name) => `tests/tab-lifecycles/${name}.ts`,
  );
  await bundleForBrowser(entries, out, {});
  return { one: join(context().root, out), end: async () => {} };
});

/** Tabs of a new origin, closed at the end of the test. */
export async function tabsIn(place: Place): Promise<Tabs> {
  const browser = await browsers[place].use();
  const folder = await bundles.use();
  const { serve } = await load<{ serve(folders: string[], more: object): Promise<Server> }>(
    "scripts/serve.mjs",
  );
  const headers = {};
  const server = await serve([folder], { pages: PAGES, headers });
  onTestFinished(() => server.close());
  return new Tabs(place, browser, server.url, headers);
}

export class Tabs {
  private readonly place: Place;
  private readonly browser: Browser;
  readonly url: string;
  /** The headers of every response of the server. */
  private readonly headers: Record<string, string>;

  constructor(place: Place, browser: Browser, url: string, headers: Record<string, string>) {
    this.place = place;
    this.browser = browser;
    this.url = url;
    this.headers = headers;
  }

  /** Removes all data of this origin, as a user does in the settings of the browser. */
  async clearData(page: Page): Promise<void> {
    if (this.place === "chromium") {
      const devtools = await page.createCDPSession();
      const origin = this.url;
      await devtools.send("Storage.clearDataForOrigin", { origin, storageTypes: "all" });
      return;
    }
    this.headers["clear-site-data"] = '"storage"';
    await page.evaluate("fetch('/away').then((answer) => answer.text())");
    delete this.headers["clear-site-data"];
  }

  /** Opens a tab that connects, or another page. */
  async open(search = ""): Promise<Page> {
    const page = await this.browser.newPage();
    onTestFinished(() =>
      Promise.race([page.close().catch(() => {}), delay(CLOSING_MS, undefined, { ref: false })]),
    );
    page.setDefaultTimeout(REQUEST_TIMEOUT_MS);
    const loaded = page.goto(`${this.url}/${search}`);
    // A tab that navigates away may do so before it is loaded.
    if (search.includes("flees")) await loaded.catch(() => {});
    else {
      await loaded;
      await page.waitForFunction('"tab" in globalThis || "lost" in globalThis');
    }
    return page;
  }

  /** The id of the process that runs a page. */
  async processOf(page: Page): Promise<number> {
    const { processOf } = await load<Processes>("tests/processes.mjs");
    return processOf(this.browser, page);
  }
}

/** Suspends a process, and waits until it has stopped. */
export async function stop(pid: number): Promise<void> {
  await (await load<Processes>("tests/processes.mjs")).stop(pid);
}

/** Adds one to the count of a key in that tab, and returns the count. */
export async function add(page: Page, key = "sold"): Promise<number> {
  return (await page.evaluate(`tab.add(${JSON.stringify(key)})`)) as number;
}

/** Waits until that tab has the file. */
export async function owns(page: Page): Promise<void> {
  await page.waitForFunction('tab.status().owner === "here"');
}
