import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import type { BrowserContext, Page } from "playwright-core";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { load, startChromium, TIMEOUT_MS } from "./chromium.js";

/** The page of demo/, built and served as `npm start` does it, in a real Chromium. */

interface Server {
  url: string;
  close(): Promise<void>;
}

async function servePage(): Promise<Server> {
  const { buildPage } = await load<{ buildPage(outdir: string): Promise<void> }>("demo/build.mjs");
  const { serve } = await load<{ serve(folders: string[]): Promise<Server> }>("scripts/serve.mjs");
  const out = mkdtempSync(join(context().directory ?? ".", "page-"));
  await buildPage(out);
  const server = await serve([out]);
  onTestFinished(() => server.close());
  return server;
}

interface Visit {
  page: Page;
  /** Errors on the console, uncaught errors, and requests to other origins. */
  errors: string[];
}

/** Opens the page with a profile on disk, because OPFS is in memory in a private window. */
async function visit(browserSetup?: (browser: BrowserContext) => Promise<void>): Promise<Visit> {
  const server = await servePage();
  const browser = await startChromium();
  browser.setDefaultTimeout(TIMEOUT_MS);
  await browserSetup?.(browser);
  const page = browser.pages()[0] ?? (await browser.newPage());
  const errors: string[] = [];
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(server.url)) errors.push(`a request to ${request.url()}`);
  });
  await page.goto(`${server.url}/`);
  return { page, errors };
}

/** Appends a script to the worker, to simulate a browser with a defect. */
function appendToWorker(script: string): (browser: BrowserContext) => Promise<void> {
  return async (browser) => {
    await browser.route("**/worker.js", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: `${await response.text()}\n;${script}` });
    });
  };
}

/** Selects so few buyers that the slowest store takes seconds. */
async function fewBuyers(page: Page): Promise<void> {
  await page.evaluate(() => {
    const select = document.querySelector<HTMLSelectElement>("select[name=cycles]");
    select?.add(new Option("100", "100", true, true));
  });
  await page.selectOption("[name=runs]", "3");
}

async function verdict(page: Page): Promise<string | null> {
  const status = page.locator("#status[data-verdict]");
  await status.waitFor();
  return status.getAttribute("data-verdict");
}

interface ShownRow {
  table: string;
  store: string | undefined;
  stock: string | undefined;
  product: string | undefined;
  cells: string[];
}

function shownRows(page: Page): Promise<ShownRow[]> {
  return page.evaluate(() =>
    [...document.querySelectorAll<HTMLTableRowElement>("tbody tr")].map((row) => ({
      table: row.closest("table")?.id ?? "",
      store: row.getAttribute("data-store") ?? undefined,
      stock: row.getAttribute("data-stock") ?? undefined,
      product: row.getAttribute("data-product") ?? undefined,
      cells: [...row.cells].map((cell) => cell.innerText),
    })),
  );
}

describe("the page", () => {
  test("runs the drop on all stores by keyboard, and they end with equal contents", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    let look = () => {};
    const looked = new Promise<void>((resolve) => {
      look = resolve;
    });
    const { page, errors } = await visit(async (browser) => {
      await browser.route("**/worker.js", async (route) => {
        await looked;
        await route.continue();
      });
    });
    await fewBuyers(page);
    await page.focus("[name=runs]");
    await page.keyboard.press("Tab");
    await page.keyboard.press("Enter");
    assert(await page.locator("#stop").isVisible(), "there is a way to stop while it runs");
    assert(await page.locator("progress").isVisible(), "progress is shown while it runs");
    look();
    expect(await verdict(page)).toBe("equal");

    const rows = await shownRows(page);
    expect(rows.map(({ table, store }) => `${table} ${store}`)).toStrictEqual(
      ["all", "each"].flatMap((table) =>
        ["varve", "sqlite", "indexeddb"].map((store) => `${table} ${store}`),
      ),
    );
    for (const { store, stock, product, cells } of rows) {
      expect(stock, `${store}: what is left`).toBe("1");
      expect(product, `${store}: its name`).toBe("Yeezy Boost 350 V2");
      assert(/survives/.test(cells[0] ?? ""), `${store}: the durability is named`);
      assert(/\d[\d.,]*\s(ns|µs|ms|s)\n[\d.,]+–[\d.,]+\s/.test(cells[1] ?? ""), `${cells[1]}`);
      assert(/\d\s×/.test(cells[2] ?? ""), `${store}: its ratio to varve`);
    }
    expect(
      await page.evaluate(() => document.activeElement?.id),
      "the focus is back where it was",
    ).toBe("run");
    expect(errors).toStrictEqual([]);

    for (const width of [390, 360]) {
      await page.setViewportSize({ width, height: 800 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(wide, "nothing sticks out on a phone").toBe(width);
    }
  });

  test("can be stopped, and runs again on what was left behind", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await visit();
    await page.click("#run");
    await page.waitForFunction(() => document.querySelector("progress")?.value !== 0);
    await page.click("#stop");
    expect(await page.locator("#status").innerText()).toBe("Stopped.");
    assert(await page.locator("#run").isVisible());
    await fewBuyers(page);
    await page.click("#run");
    expect(await verdict(page)).toBe("equal");
  });

  test("names the missing feature in a browser without a private file system", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await visit(
      appendToWorker(
        "Object.defineProperty(StorageManager.prototype, 'getDirectory', { value: undefined });",
      ),
    );
    await page.click("#run");
    const error = page.locator("#error:not([hidden])");
    await error.waitFor();
    assert(/private file system/.test(await error.innerText()));
    expect(await error.getAttribute("role")).toBe("alert");
    assert(await page.locator("#run").isVisible(), "one may try again");
  });

  test("names a store that fails, goes on with the others, and reports unequal contents", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await visit(
      appendToWorker("IDBFactory.prototype.open = () => { throw new Error('no room for it'); };"),
    );
    await fewBuyers(page);
    await page.click("#run");
    expect(await verdict(page)).toBe("unequal");
    const rows = await shownRows(page);
    expect(rows.filter(({ stock }) => stock === "1").length).toBe(4);
    const failed = rows.filter(({ store }) => store === "indexeddb");
    expect(failed.length).toBe(2);
    for (const { cells } of failed) assert(/no room for it/.test(cells.join(" ")));
  });
});
