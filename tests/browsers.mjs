// Chromium and Firefox, driven in one way, each with a profile of its own on disk: in a private
// window OPFS is memory, and another thing altogether.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { say } from "../scripts/lib.mjs";
import { browserDriver, findProgram } from "../scripts/programs.mjs";

/** How each browser is started, beside what they have in common. */
const LAUNCH = {
  chromium: {
    browser: "chrome",
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  },
  firefox: { browser: "firefox" },
};

/**
 * Gives a browser's page to `use`, and what that gives to the caller; then the browser and its
 * profile are gone. Nothing that the page is asked takes longer than `patience`.
 */
export async function withPage(place, use, { patience = 60_000 } = {}) {
  const { default: puppeteer } = await import(pathToFileURL(await browserDriver()).href);
  const executablePath = await findProgram(place);
  const profile = mkdtempSync(join(tmpdir(), `varve-${place}-`));
  try {
    const browser = await puppeteer.launch({
      ...LAUNCH[place],
      executablePath,
      userDataDir: profile,
      protocolTimeout: patience,
    });
    try {
      const [page] = await browser.pages();
      page.on("console", (message) => say(message.text()));
      page.on("pageerror", (error) => say(`  [${place}] ${error.stack ?? error}`));
      page.on("error", (error) => say(`  [${place}] the page crashed: ${error.message}`));
      return await use(page);
    } finally {
      await browser.close();
    }
  } finally {
    rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}
