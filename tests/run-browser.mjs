// Runs suites in Chromium or Firefox: tests/contract and tests/browser in a dedicated worker, and
// those named *.page.test.ts on a page's main thread.
//   node tests/run-browser.mjs [--in chromium|firefox] [--build release|debug] [--rooms contract,browser] [text in the name]
//
// The profile lies on disk: in a private window OPFS is memory, and another thing altogether.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { bundleForBrowser } from "../scripts/bundle.mjs";
import { Problem, root, say } from "../scripts/lib.mjs";
import { browserDriver, findProgram } from "../scripts/programs.mjs";
import { serve } from "../scripts/serve.mjs";
import { runner } from "./runner.mjs";

const PATIENCE_MS = 14 * 60_000;

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

runner(
  {
    program: "tests/run-browser.mjs",
    places: ["chromium", "firefox"],
    rooms: ["contract", "browser"],
  },
  async ({ place, build, files, filter }) => {
    const onPage = files.filter((file) => file.endsWith(".page.test.ts"));
    const inWorker = files.filter((file) => !onPage.includes(file));
    const out = `.build/tests/${place}-${build}-${process.pid}`;
    const options = { place, build, filter };
    const profile = mkdtempSync(join(tmpdir(), `varve-${place}-`));
    const server = await serve([join(root, out), root], { pages: { "/": PAGE } });
    try {
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
      return await runInBrowser(place, server.url, profile);
    } finally {
      await server.close();
      rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
      rmSync(join(root, out), { recursive: true, force: true });
    }
  },
);

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
  limitStorage: undefined,
  startWorker: undefined,
};
globalThis.varveTests = context;
const filter = ${JSON.stringify(filter) ?? "undefined"};
`;
}

function workerSource(files, options) {
  return `${prelude("worker", options)}
const answers = new Map();
const ask = (what) =>
  new Promise((resolve) => {
    const id = answers.size;
    answers.set(id, resolve);
    self.postMessage({ id, ...what });
  });
self.addEventListener("message", ({ data }) => answers.get(data.id)(data.answer));
context.startWorker = (program) => {
  const worker = answers.size;
  const said = ask({ start: program }).then(({ said, error }) => {
    if (error === undefined) return said;
    throw new Error(error);
  });
  return { said, kill: () => ask({ kill: worker }) };
};
context.limitStorage = ${options.place === "firefox" ? BALLAST : "(bytes) => ask({ limit: { bytes } })"};
try {
${sources(files)}
  const log = (line) => self.postMessage({ log: line });
  self.postMessage({ report: await run(context, { filter, log }) });
} catch (error) {
  self.postMessage({ error: String(error?.stack ?? error) });
}
export {};`;
}

/**
 * In Chromium the page has the browser limit what the origin may store. Firefox has one limit for as
 * long as it runs: there a file without content takes what is too much of it.
 */
const BALLAST = `async (bytes) => {
  const root = await navigator.storage.getDirectory();
  const file = await root.getFileHandle("ballast", { create: true });
  const handle = await file.createSyncAccessHandle();
  const { quota } = await navigator.storage.estimate();
  handle.truncate(bytes === undefined ? 0 : quota - bytes);
  handle.close();
}`;

/**
 * The page starts the workers that the tests in the worker want beside theirs: in Firefox a worker
 * that has workers of its own may stop in the middle of a call to a file and never go on.
 */
function pageSource(files, options) {
  return `${prelude("page", options)}
context.limitStorage = globalThis.limitStorage;
const started = new Map();
const start = (id, program) =>
  new Promise((resolve) => {
    const url = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
    const worker = new Worker(url, { type: "module" });
    started.set(id, worker);
    worker.onmessage = ({ data }) => resolve({ said: data });
    worker.onerror = (event) => resolve({ error: event.message || "the worker did not start" });
  });
const answer = async ({ id, start: program, kill, limit }) => {
  if (program !== undefined) return start(id, program);
  if (kill !== undefined) return started.get(kill).terminate();
  return globalThis.limitStorage(limit.bytes);
};
globalThis.runTests = async () => {
${sources(files)}
  const onPage = await run(context, { filter, log: console.log });
  const worker = new Worker("/worker.js", { type: "module" });
  const message = await new Promise((resolve) => {
    worker.onmessage = async ({ data }) => {
      if (data.log !== undefined) return console.log(data.log);
      if (data.id === undefined) return resolve(data);
      worker.postMessage({ id: data.id, answer: await answer(data) });
    };
    worker.onerror = (event) => resolve({ error: event.message || "the worker did not start" });
  });
  worker.terminate();
  return { onPage, ...message };
};
export {};`;
}

async function runInBrowser(place, url, profile) {
  const { default: puppeteer } = await import(pathToFileURL(await browserDriver()).href);
  const browser = await puppeteer.launch({
    ...LAUNCH[place],
    executablePath: await findProgram(place),
    userDataDir: profile,
    protocolTimeout: PATIENCE_MS,
  });
  try {
    const [page] = await browser.pages();
    page.on("console", (message) => say(message.text()));
    page.on("pageerror", (error) => say(`  [${place}] ${error.stack ?? error}`));
    page.on("error", (error) => say(`  [${place}] the page crashed: ${error.message}`));
    if (place === "chromium") {
      const devtools = await page.createCDPSession();
      await page.exposeFunction("limitStorage", async (bytes) => {
        const quotaSize = bytes ?? undefined;
        await devtools.send("Storage.overrideQuotaForOrigin", { origin: url, quotaSize });
      });
    }
    await page.goto(url);
    await page.waitForFunction(() => "runTests" in globalThis, { timeout: 30_000 });
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
