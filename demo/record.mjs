// Runs the race of the page in the installed Chromium, and keeps its results for comparison:
//   node scripts/built.mjs demo/record.mjs NAME [--quick]
// NAME is the file's name in demo/records, without its ending.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { entry, Problem, root } from "../scripts/lib.mjs";
import { findProgram } from "../scripts/programs.mjs";
import { serve } from "../scripts/serve.mjs";
import { buildPage } from "./build.mjs";

const LIMIT_MS = 15 * 60_000;

entry(async () => {
  const [name, ...options] = process.argv.slice(2);
  if (name === undefined || !/^[\w-]+$/.test(name)) {
    throw new Problem("name the record: node scripts/built.mjs demo/record.mjs NAME [--quick]");
  }
  const folder = mkdtempSync(join(tmpdir(), "varve-race-"));
  const out = join(folder, "page");
  await buildPage(out);
  const server = await serve([out]);
  // With a profile on disk: in a private window, OPFS is in memory.
  const browser = await chromium.launchPersistentContext(join(folder, "profile"), {
    executablePath: await findProgram("chromium"),
    args: ["--no-sandbox", "--disable-gpu"],
    permissions: ["clipboard-read", "clipboard-write"],
  });
  try {
    const page = browser.pages()[0] ?? (await browser.newPage());
    page.setDefaultTimeout(LIMIT_MS);
    await page.goto(`${server.url}/`);
    await page.click(options.includes("--quick") ? "#quick" : "#full");
    await page.waitForSelector("#status[data-verdict]");
    process.stdout.write(
      `${await page.textContent("#doing")} ${await page.textContent("#status")}\n`,
    );
    await page.click("#copy-json");
    await page.waitForFunction(
      () => document.querySelector("#copy-json")?.textContent === "Copied",
    );
    const json = await page.evaluate(() => navigator.clipboard.readText());
    writeFileSync(join(root, "demo/records", `${name}.json`), json);
  } finally {
    await browser.close();
    await server.close();
    rmSync(folder, { recursive: true, force: true });
  }
});
