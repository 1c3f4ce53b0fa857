import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "playwright-core";
import { describe, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { load, startChromium } from "./chromium.js";

interface Served {
  url: string;
  close(): Promise<void>;
}

const PAGE = `<!doctype html><meta charset="utf-8"><title>varve</title><link rel="icon" href="data:,">
<script type="module" src="/clock-page.js"></script>`;

async function served(): Promise<Served> {
  type Bundle = (entries: object[], out: string, more: object) => Promise<unknown>;
  const { bundleForBrowser } = await load<{ bundleForBrowser: Bundle }>("scripts/bundle.mjs");
  const { serve } = await load<{ serve(folders: string[], more: object): Promise<Served> }>(
    "scripts/serve.mjs",
  );
  const out = mkdtempSync(join(context().directory ?? ".", "clock-"));
  const entries = [
    { in: "tests/demo/clock-page.ts", out: "clock-page" },
    { in: "tests/tab-lifecycles/worker.ts", out: "worker" },
  ];
  await bundleForBrowser(entries, out, {});
  const server = await serve([out], { pages: { "/": PAGE } });
  onTestFinished(() => server.close());
  return server;
}

type Set = (clock: Clock) => Promise<void>;

const START = new Date("2026-01-01T00:00:00Z");
const LATER = new Date("2026-01-01T01:00:00Z");

/** How the clock of a page is replaced, before or after the page is loaded. */
const REPLACEMENTS: Record<string, { before?: Set; after?: Set }> = {
  "is installed before it is loaded": { before: (clock) => clock.install({ time: START }) },
  "is installed and stands still before it is loaded": {
    async before(clock) {
      await clock.install({ time: START });
      await clock.pauseAt(LATER);
    },
  },
  "is installed before it is loaded, and stopped then": {
    before: (clock) => clock.install({ time: START }),
    after: (clock) => clock.pauseAt(LATER),
  },
  "is installed and stopped when it is loaded": {
    async after(clock) {
      await clock.install({ time: START });
      await clock.pauseAt(LATER);
    },
  },
  "has a fixed time from before it is loaded": { before: (clock) => clock.setFixedTime(START) },
  "has a fixed time when it is loaded": { after: (clock) => clock.setFixedTime(START) },
};

describe("a page whose clock is Playwright's", () => {
  for (const [how, { before, after }] of Object.entries(REPLACEMENTS)) {
    test(`and ${how} connects, writes, watches, times out without an answer, and closes`, async () => {
      const { url } = await served();
      const browser = await startChromium();
      const page = browser.pages()[0] ?? (await browser.newPage());
      await before?.(page.clock);
      await page.goto(url);
      // Not by polling, which a stopped clock would block.
      await page.locator("html[data-ready]").waitFor({ state: "attached" });
      await after?.(page.clock);
      expect(await page.evaluate("use()")).toStrictEqual({
        watched: ["a", "b"],
        read: "1",
        failed: "VARVE_OWNER_UNAVAILABLE",
      });
    });
  }
});
