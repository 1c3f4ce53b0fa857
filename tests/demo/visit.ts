/** Visits to the page of demo/, built and served as `npm start` does it, in a real Chromium. */

import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import type { BrowserContext, Page } from "playwright-core";
import { onTestFinished } from "vitest";
import { context } from "../support/context.js";
import { load, startChromium, TIMEOUT_MS } from "./chromium.js";

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

export interface Visit {
  page: Page;
  url: string;
  /** Errors on the console, uncaught errors, and requests to other origins. */
  errors: string[];
  /** Bytes of all responses so far, as they are before compression. */
  received(): number;
}

export type Setup = (browser: BrowserContext) => Promise<void>;

/** Opens the page, by default with a profile on disk, because OPFS is in memory in a private window. */
export async function visit(setup?: Setup, start = startChromium, hash = ""): Promise<Visit> {
  const server = await servePage();
  const browser = await start();
  browser.setDefaultTimeout(TIMEOUT_MS);
  await setup?.(browser);
  const page = browser.pages()[0] ?? (await browser.newPage());
  const errors: string[] = [];
  let bytes = 0;
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(server.url)) errors.push(`a request to ${request.url()}`);
  });
  page.on("response", async (response) => {
    bytes += (await response.body().catch(() => Buffer.alloc(0))).length;
  });
  await page.goto(`${server.url}/${hash}`, { waitUntil: "networkidle" });
  return { page, url: server.url, errors, received: () => bytes };
}

/** Appends a script to one of the page's files, to simulate a browser with a defect. */
export function appendTo(file: string, script: string): Setup {
  return async (browser) => {
    await browser.route(`**/${file}`, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, body: `${await response.text()}\n;${script}` });
    });
  };
}

/** Replaces a part of one of the page's files, to simulate a mistake in it. */
export function replaceIn(file: string, part: string, other: string): Setup {
  return async (browser) => {
    await browser.route(`**/${file}`, async (route) => {
      const response = await route.fetch();
      const text = await response.text();
      if (!text.includes(part)) throw new Error(`${file} has no ${part}`);
      await route.fulfill({ response, body: text.replace(part, other) });
    });
  };
}

/** Faults that axe calls serious or critical, in the page as it is now. */
export async function seriousFaults(page: Page): Promise<string[]> {
  await page.addScriptTag({ path: join(context().root, "node_modules/axe-core/axe.min.js") });
  return page.evaluate(async () => {
    interface Axe {
      run(): Promise<{ violations: { id: string; impact: string; nodes: { html: string }[] }[] }>;
    }
    const { violations } = await (window as unknown as { axe: Axe }).axe.run();
    return violations
      .filter(({ impact }) => ["serious", "critical"].includes(impact))
      .map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
  });
}

/** Collects how far things move that were not moved by the user, from the page's start on. */
export const WATCH_SHIFTS = () => {
  Object.assign(window, { shifted: 0 });
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries() as (PerformanceEntry & {
      value: number;
      hadRecentInput: boolean;
    })[]) {
      if (!entry.hadRecentInput) (window as unknown as { shifted: number }).shifted += entry.value;
    }
  }).observe({ type: "layout-shift", buffered: true });
};
