/** Starts the installed Chromium for tests of pages. */

import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type BrowserContext, chromium } from "playwright-core";
import { onTestFinished } from "vitest";
import { context } from "../support/context.js";

/** Long, because it only has to end what hangs. */
export const TIMEOUT_MS = 300_000;

/** Loads a module that finds its own files by its location, so that it must not be bundled into the tests. */
export async function load<T>(path: string): Promise<T> {
  return (await import(pathToFileURL(join(context().root, path)).href)) as T;
}

const ARGUMENTS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-sync",
];

async function executablePath(): Promise<string> {
  const { findProgram } = await load<{ findProgram(name: string): Promise<string> }>(
    "scripts/programs.mjs",
  );
  return findProgram("chromium");
}

/** A private window of a Chromium, until the test ends. */
export async function startPrivateChromium(): Promise<BrowserContext> {
  const browser = await chromium.launch({
    executablePath: await executablePath(),
    timeout: TIMEOUT_MS,
    args: ARGUMENTS,
  });
  onTestFinished(() => browser.close());
  return browser.newContext();
}

/** A Chromium until the test ends, with a new profile on disk: in a private window OPFS is in memory. */
export async function startChromium(): Promise<BrowserContext> {
  const profile = mkdtempSync(join(context().directory ?? ".", "profile-"));
  onTestFinished(() =>
    rmSync(profile, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }),
  );
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: await executablePath(),
    timeout: TIMEOUT_MS,
    headless: true,
    viewport: { width: 1280, height: 900 },
    args: ARGUMENTS,
  });
  onTestFinished(() => browser.close());
  return browser;
}
