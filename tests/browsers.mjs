// Starts Chromium and Firefox by the same driver, each with a profile on disk, because OPFS is in memory in a
// private window.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { say } from "../scripts/lib.mjs";
import { browserDriver, findProgram } from "../scripts/programs.mjs";

/** The launch options that differ between the browsers. */
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
 * Starts a browser on an existing profile. `timeout` limits the start and every request to the browser or one of
 * its pages. It is long, because it only has to end what hangs. Chromium also loads the unpacked `extensions` in
 * these folders.
 */
export async function launch(runtime, profile, { timeout = 120_000, extensions } = {}) {
  const { default: puppeteer } = await import(pathToFileURL(await browserDriver()).href);
  const browser = await puppeteer.launch({
    ...LAUNCH[runtime],
    executablePath: await findProgram(runtime),
    userDataDir: profile,
    timeout,
    protocolTimeout: timeout,
    ...(extensions && { enableExtensions: extensions, pipe: true }),
  });
  // The driver has its own default timeout for pages, and no setting for all of them at once.
  for (const method of ["newPage", "pages"]) {
    const original = browser[method].bind(browser);
    browser[method] = async () => {
      const result = await original();
      for (const page of [result].flat()) page.setDefaultTimeout(timeout);
      return result;
    };
  }
  return browser;
}

/** The page that a browser opens at its start. Its errors are printed. */
export async function firstPage(runtime, browser) {
  const [page] = await browser.pages();
  page.on("console", (message) => say(message.text()));
  page.on("pageerror", (error) => say(`  [${runtime}] ${error.stack ?? error}`));
  page.on("error", (error) => say(`  [${runtime}] the page crashed: ${error.message}`));
  return page;
}

/** Calls `use` with a new profile, removes the profile, and returns the result of `use`. */
export async function withProfile(runtime, use) {
  const profile = mkdtempSync(join(tmpdir(), `varve-${runtime}-`));
  try {
    return await use(profile);
  } finally {
    // A process of the browser may still run for a moment, and write to the profile.
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/**
 * Calls `use` with the page of a new browser, closes the browser and removes its profile, and returns the result of
 * `use`.
 */
export function withPage(runtime, use, options) {
  return withProfile(runtime, async (profile) => {
    const browser = await launch(runtime, profile, options);
    try {
      return await use(await firstPage(runtime, browser));
    } finally {
      await browser.close();
    }
  });
}
