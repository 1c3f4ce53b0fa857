/** The built site in Chromium: read, searched and used by keyboard. */

import { join } from "node:path";
import type { BrowserContext, Page } from "playwright-core";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { load, startChromium, TIMEOUT_MS } from "../demo/chromium.js";
import { context } from "../support/context.js";
import { BASE, buildFirst, site } from "./built.js";

/** Pages of each kind: with many links, programs, wide tables, signatures. */
const PAGES = [
  "",
  "start/",
  "collections.html",
  "benchmarks.html",
  "format.html",
  "reference/varve/interfaces/Database.html",
  "reference/varve/struct/",
];

async function visit(): Promise<{ page: Page; url: string; errors: string[] }> {
  const { serve } = await load<{
    serve(folders: string[]): Promise<{ url: string; close(): Promise<void> }>;
  }>("scripts/serve.mjs");
  const server = await serve([await site()]);
  onTestFinished(() => server.close());
  const browser: BrowserContext = await startChromium();
  const page = await browser.newPage();
  page.setDefaultTimeout(TIMEOUT_MS);
  const errors: string[] = [];
  page.on("pageerror", (error) => errors.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  return { page, url: server.url + BASE, errors };
}

/** Goes to a page, and waits until its script listens to keys. */
async function open(page: Page, url: string): Promise<void> {
  await page.goto(url);
  await page.waitForFunction(() => "__vue_app__" in (document.querySelector("#app") ?? {}));
}

/** Faults that axe calls serious or critical, in the page as it is now. */
async function seriousFaults(page: Page): Promise<string[]> {
  await page.addScriptTag({ path: join(context().root, "node_modules/axe-core/axe.min.js") });
  return page.evaluate(async () => {
    interface Axe {
      run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }>;
    }
    const { violations } = await (window as unknown as { axe: Axe }).axe.run();
    return violations
      .filter(({ impact }) => ["serious", "critical"].includes(impact))
      .flatMap(({ id, nodes }) => nodes.slice(0, 3).map(({ html }) => `${id}: ${html}`));
  });
}

describe("the site in Chromium", () => {
  buildFirst();

  test("has no serious fault that axe finds, light and dark, and no error", {
    timeout: TIMEOUT_MS,
  }, async () => {
    const { page, url, errors } = await visit();
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      // In the dark only colours differ: the smaller pages have all of them.
      for (const path of colorScheme === "light" ? PAGES : PAGES.slice(0, 3)) {
        await page.goto(url + path);
        expect(await seriousFaults(page), `${path}, ${colorScheme}`).toStrictEqual([]);
      }
    }
    expect(errors).toStrictEqual([]);
  });

  test("fits a phone: nothing is wider than the screen", async () => {
    const { page, url } = await visit();
    await page.setViewportSize({ width: 360, height: 740 });
    for (const path of PAGES) {
      await page.goto(url + path);
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(width <= 360, `${path} is ${width} pixels wide`);
    }
  });

  test("is searched by keyboard, and the guide comes first", async () => {
    const { page, url } = await visit();
    for (const [words, found] of [
      ["durability", "durability.html"],
      ["updateIf predicate", ""],
      ["sqlite", ""],
    ] as const) {
      await open(page, url);
      await page.keyboard.press("Control+k");
      await page.locator("#localsearch-input").waitFor();
      // At once, so that there are no results for a part of it.
      await page.keyboard.insertText(words);
      await page.locator("#localsearch-list .result").first().waitFor();
      await page.keyboard.press("Enter");
      await page.waitForURL((address) => address.pathname !== BASE);
      const { pathname } = new URL(page.url());
      assert(pathname.startsWith(BASE + found), `${words}: ${pathname}`);
      assert(!pathname.includes("/reference/"), `${words}: ${pathname}`);
    }
  });

  test("skips to the content by keyboard, and leads to the race", async () => {
    const { page, url } = await visit();
    await open(page, `${url}views.html`);
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    await page.waitForURL(/#VPContent$/);
    await page.getByRole("link", { name: "Race" }).first().click();
    await page.locator("#quick").waitFor();
    expect(new URL(page.url()).pathname).toBe(`${BASE}race/`);
  });
});
