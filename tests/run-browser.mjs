// Runs suites in Chromium: tests/contract and tests/browser in a dedicated worker, and those named
// *.page.test.ts on a page's main thread. The last line is the sum; the exit code says the same.
//   node tests/run-browser.mjs [--build release|debug] [--rooms contract,browser] [text in the name]
//
// The profile lies on disk: in a private window OPFS is memory, and another thing altogether.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForBrowser } from "../scripts/bundle.mjs";
import { entry, filesBelow, Problem, parseArguments, root, say, tool } from "../scripts/lib.mjs";
import { serve } from "../scripts/serve.mjs";
import { findChromium } from "../scripts/setup.mjs";

const USAGE =
  "node tests/run-browser.mjs [--build release|debug] [--rooms contract,browser] [filter]";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const PATIENCE_MS = 600_000;

entry(async () => {
  const { values, words } = parseArguments(
    process.argv.slice(2),
    { "--build": "text", "--rooms": "text" },
    USAGE,
  );
  const build = values["--build"] ?? "release";
  const rooms = (values["--rooms"] ?? "contract,browser").split(",");
  const all = rooms.flatMap((room) => filesBelow(`tests/${room}`, (f) => f.endsWith(".test.ts")));
  const onPage = all.filter((file) => file.endsWith(".page.test.ts"));
  const inWorker = all.filter((file) => !onPage.includes(file));
  if (all.length === 0) throw new Problem(`there are no tests in ${rooms.join(", ")}.`);

  const out = `.build/tests/browser-${build}-${process.pid}`;
  const options = { build, filter: words[0] };
  await bundleForBrowser(
    [
      { in: "virtual:worker", out: "worker" },
      { in: "virtual:page", out: "page" },
    ],
    out,
    {
      virtual: {
        "virtual:worker": workerSource(inWorker, options),
        "virtual:page": pageSource(onPage, options),
      },
    },
  );
  const profile = mkdtempSync(join(tmpdir(), "varve-chromium-"));
  const server = await serve([join(root, out), root], { pages: { "/": PAGE } });
  try {
    const report = await runInChromium(server.url, profile);
    for (const { name, message } of report.failures) say(`FAILED ${name}\n${message}`);
    say(`  chromium, ${build} wasm: ${report.ms} ms`);
    process.stdout.write(
      `${report.passed} passed, ${report.failed} failed, ${report.skipped} skipped\n`,
    );
    if (report.failed > 0 || report.passed === 0) process.exitCode = 1;
  } finally {
    await server.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
    rmSync(join(root, out), { recursive: true, force: true });
  }
});

const PAGE = `<!doctype html><meta charset="utf-8"><title>varve tests</title><link rel="icon" href="data:,">
<script type="module" src="/page.js"></script>`;

function sources(files) {
  return files.map((file) => `await import(${JSON.stringify(`./${file}`)});`).join("\n");
}

/** Sets the context before the tests are imported: suites may ask for it while they register. */
function prelude(runtime, { build, filter }) {
  return `
import { run } from "./tests/harness.ts";
const context = {
  runtime: ${JSON.stringify(runtime)},
  build: ${JSON.stringify(build)},
  wasm: ${build === "debug" ? 'await WebAssembly.compile(await (await fetch(self.location.origin + "/dist/varve.debug.wasm")).arrayBuffer())' : "undefined"},
  directory: undefined,
  root: self.location.origin,
  limitStorage: undefined as ((bytes: number | undefined) => Promise<void>) | undefined,
};
(globalThis as { varveTests?: unknown }).varveTests = context;
const options = { filter: ${JSON.stringify(filter) ?? "undefined"} };
`;
}

function workerSource(files, options) {
  return `${prelude("worker", options)}
context.limitStorage = (bytes: number | undefined) =>
  new Promise<void>((resolve) => {
    self.addEventListener("message", () => resolve(), { once: true });
    self.postMessage({ limit: { bytes } });
  });
try {
${sources(files)}
  self.postMessage({ report: await run(context, options) });
} catch (error) {
  self.postMessage({ error: String((error as Error)?.stack ?? error) });
}
export {};`;
}

function pageSource(files, options) {
  return `${prelude("page", options)}
declare const limitStorage: (bytes: number | undefined) => Promise<void>;
context.limitStorage = limitStorage;
(globalThis as { runTests?: unknown }).runTests = async () => {
${sources(files)}
  const onPage = await run(context, options);
  const worker = new Worker("/worker.js", { type: "module" });
  const message = await new Promise<{ report?: unknown; error?: string }>((resolve) => {
    worker.onmessage = async ({ data }) => {
      if (data.limit === undefined) return resolve(data);
      await limitStorage(data.limit.bytes);
      worker.postMessage("limited");
    };
    worker.onerror = (event) => resolve({ error: event.message || "the worker did not start" });
  });
  worker.terminate();
  return { onPage, ...message };
};
export {};`;
}

async function runInChromium(url, profile) {
  const { chromium } = await import(pathToFileURL(tool("playwright-core/index.mjs")).href);
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: await findChromium(),
    headless: true,
    args: FLAGS,
  });
  try {
    const page = browser.pages()[0] ?? (await browser.newPage());
    page.on("console", (message) => say(`  [chromium] ${message.text()}`));
    page.on("pageerror", (error) => say(`  [chromium] ${error.stack ?? error}`));
    page.on("crash", () => say("  [chromium] the page crashed"));
    const devtools = await browser.newCDPSession(page);
    await page.exposeFunction("limitStorage", async (bytes) => {
      const quotaSize = bytes ?? undefined;
      await devtools.send("Storage.overrideQuotaForOrigin", { origin: url, quotaSize });
    });
    await page.goto(url);
    await page.waitForFunction(() => "runTests" in globalThis, undefined, { timeout: 30_000 });
    const { onPage, report, error } = await withPatience(page.evaluate("runTests()"));
    if (report === undefined) throw new Problem(`the tests in the worker broke off: ${error}`);
    return {
      passed: onPage.passed + report.passed,
      failed: onPage.failed + report.failed,
      skipped: onPage.skipped + report.skipped,
      failures: [...onPage.failures, ...report.failures],
      ms: onPage.ms + report.ms,
    };
  } finally {
    await browser.close();
  }
}

function withPatience(work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Problem("the tests did not end in time.")), PATIENCE_MS);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}
