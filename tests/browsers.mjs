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
 * Starts a browser on a profile that is there. Neither that nor what it or one of its pages is asked takes
 * longer than `patience`: it is there for what hangs, and not for what a busy machine is slow at. Chromium
 * also loads the unpacked `extensions` in these folders.
 */
export async function launch(runtime, profile, { patience = 120_000, extensions } = {}) {
  const { default: puppeteer } = await import(pathToFileURL(await browserDriver()).href);
  const browser = await puppeteer.launch({
    ...LAUNCH[runtime],
    executablePath: await findProgram(runtime),
    userDataDir: profile,
    timeout: patience,
    protocolTimeout: patience,
    ...(extensions && { enableExtensions: extensions, pipe: true }),
  });
  // The driver has its own idea of how long a page may take, and no setting for all pages at once.
  for (const method of ["newPage", "pages"]) {
    const give = browser[method].bind(browser);
    browser[method] = async () => {
      const given = await give();
      for (const page of [given].flat()) page.setDefaultTimeout(patience);
      return given;
    };
  }
  return browser;
}

/** The page with which a browser has begun. What goes wrong there is said here. */
export async function firstPage(runtime, browser) {
  const [page] = await browser.pages();
  page.on("console", (message) => say(message.text()));
  page.on("pageerror", (error) => say(`  [${runtime}] ${error.stack ?? error}`));
  page.on("error", (error) => say(`  [${runtime}] the page crashed: ${error.message}`));
  return page;
}

/** Gives a fresh profile to `use`, and what that gives to the caller; then the profile is gone. */
export async function withProfile(runtime, use) {
  const profile = mkdtempSync(join(tmpdir(), `varve-${runtime}-`));
  try {
    return await use(profile);
  } finally {
    // A process of the browser may live a little longer than the browser, and write to it.
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 });
  }
}

/**
 * Gives a browser's page to `use`, and what that gives to the caller; then the browser and its
 * profile are gone.
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
