// Runs suites in Chromium or Firefox: tests/contract, tests/browser and tests/client in a dedicated worker, and
// those named *.page.test.ts on a page's main thread. Those of hooks run a second time with the oldest versions of their
// frameworks.
//   node tests/run-browser.mjs [--in chromium|firefox] [--build release|debug] [--folders contract,browser,struct,client] [text in the name]

import { rmSync } from "node:fs";
import { join } from "node:path";
import { bundleForBrowser } from "../scripts/bundle.mjs";
import { installPackages } from "../scripts/install.mjs";
import { Problem, root } from "../scripts/lib.mjs";
import { serve } from "../scripts/serve.mjs";
import { withPage } from "./browsers.mjs";
import { runner } from "./runner.mjs";

const TIMEOUT_MS = 59 * 60_000;

/** The folder with the oldest versions of frameworks, and the tests that use them. */
const OLDEST = "tests/oldest-frameworks";
const WITH_OLDEST = /^tests.hooks.(react|vue|solid|svelte-stores)\.page/;

runner(
  {
    program: "tests/run-browser.mjs",
    runtimes: ["chromium", "firefox"],
    folders: ["contract", "browser", "struct", "client", "hooks"],
  },
  async ({ runtime, build, files, filter }) => {
    const onPage = files.filter((file) => file.endsWith(".page.test.ts"));
    const inWorker = files.filter((file) => !onPage.includes(file));
    const withOldest = onPage.filter((file) => WITH_OLDEST.test(file));
    const out = `.build/tests/${runtime}-${build}-${process.pid}`;
    const options = { runtime, build, filter };
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
            "virtual:page": pageSource(onPage, { ...options, oldest: withOldest.length > 0 }),
          },
        },
      );
      if (onPage.length > 0) await bundleServiceWorkers(out);
      if (withOldest.length > 0) {
        await installPackages(OLDEST, { scripts: false });
        await bundleForBrowser([{ in: "virtual:oldest", out: "oldest" }], out, {
          packages: OLDEST,
          virtual: { "virtual:oldest": oldestSource(withOldest, options) },
        });
      }
      return await runInBrowser(runtime, server.url);
    } finally {
      await server.close();
      rmSync(join(root, out), { recursive: true, force: true });
    }
  },
);

/**
 * Bundles the service workers in each form that programs use: one script, a module that imports the package's own
 * modules, and modules that share chunks.
 */
async function bundleServiceWorkers(out) {
  const entry = (name, as = name) => ({ in: `tests/browser/${name}.ts`, out: as });
  const define = { "import.meta.url": "location.href" };
  await bundleForBrowser([entry("service-worker")], out, { format: "iife", define });
  const packageAsExternal = {
    name: "package-as-external",
    setup(plugin) {
      plugin.onResolve({ filter: /^varve$/ }, () => ({ path: "/dist/index.js", external: true }));
    },
  };
  const modules = [entry("service-worker", "service-worker-modules")];
  await bundleForBrowser(modules, out, { plugins: [packageAsExternal] });
  // Separate bundles, so that none of them shares chunks with another.
  for (const name of ["service-worker", "reading-worker", "reading-worker-whole"]) {
    const into = `${out}/chunks-${name}`;
    await bundleForBrowser([entry(name)], into, { splitting: true });
  }
}

const PAGE = `<!doctype html><meta charset="utf-8"><title>varve tests</title><link rel="icon" href="data:,">
<script type="module" src="/page.js"></script>`;

function sources(files) {
  return files.map((file) => `await import(${JSON.stringify(`./${file}`)});`).join("\n");
}

/** Sets the context before the tests are imported, because suites may read it while they register. */
function prelude(runtime, { build, filter }) {
  return `
import { run } from "./tests/support/vitest-stand-in.ts";
const context = {
  runtime: ${JSON.stringify(runtime)},
  build: ${JSON.stringify(build)},
  wasm: ${build === "debug" ? 'await WebAssembly.compile(await (await fetch(self.location.origin + "/dist/varve.debug.wasm")).arrayBuffer())' : "undefined"},
  thorough: false,
  long: false,
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
  const firstMessage = ask({ start: program }).then(({ message, error }) => {
    if (error === undefined) return message;
    throw new Error(error);
  });
  return { firstMessage, kill: () => ask({ kill: worker }) };
};
context.limitStorage = ${options.runtime === "firefox" ? LIMIT_BY_FILE : "(bytes) => ask({ limit: { bytes } })"};
try {
${sources(files)}
  const log = (line) => self.postMessage({ log: line });
  self.postMessage({ report: await run({ filter, log }) });
} catch (error) {
  self.postMessage({ error: String(error?.stack ?? error) });
}
export {};`;
}

/**
 * Limits the storage of the origin in Firefox, whose limit cannot be changed: an empty file takes up the excess.
 * Chromium can override its limit.
 */
const LIMIT_BY_FILE = `async (bytes) => {
  const root = await navigator.storage.getDirectory();
  const file = await root.getFileHandle("filler", { create: true });
  const handle = await file.createSyncAccessHandle();
  const { quota } = await navigator.storage.estimate();
  handle.truncate(bytes === undefined ? 0 : quota - bytes);
  handle.close();
}`;

/**
 * The page starts the workers that tests in the worker request, because in Firefox a worker with nested workers may
 * hang in a file call.
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
    worker.onmessage = ({ data }) => resolve({ message: data });
    worker.onerror = (event) => resolve({ error: event.message || "the worker did not start" });
  });
const answer = async ({ id, start: program, kill, limit }) => {
  if (program !== undefined) return start(id, program);
  if (kill !== undefined) return started.get(kill).terminate();
  return globalThis.limitStorage(limit.bytes);
};
globalThis.runTests = async () => {
${sources(files)}
  const onPage = [await run({ filter, log: console.log })];
  ${options.oldest ? WITH_REPORT_OF_OLDEST : ""}
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

const WITH_REPORT_OF_OLDEST = `
  const { report: reportOfOldest } = await import(location.origin + "/oldest.js");
  onPage.push(await reportOfOldest());`;

/** A module of the page that runs tests with the oldest versions of their frameworks. */
function oldestSource(files, options) {
  return `${prelude("page", options)}
const log = (line) => console.log(\`with the oldest frameworks: \${line}\`);
export async function report() {
${sources(files)}
  return run({ filter, log });
}`;
}

function runInBrowser(runtime, url) {
  return withPage(
    runtime,
    async (page) => {
      if (runtime === "chromium") await allowLimitingStorage(page, url);
      await page.goto(url);
      await page.waitForFunction(() => "runTests" in globalThis);
      const { onPage, report, error } = await page.evaluate("runTests()");
      if (report === undefined) throw new Problem(`the tests in the worker failed: ${error}`);
      const reports = [...onPage, report];
      const sum = (of) => reports.reduce((all, one) => all + one[of], 0);
      return {
        passed: sum("passed"),
        failed: sum("failed"),
        skipped: sum("skipped"),
        ms: sum("ms"),
        failures: reports.flatMap(({ failures }) => failures),
      };
    },
    { timeout: TIMEOUT_MS },
  );
}

async function allowLimitingStorage(page, origin) {
  const devtools = await page.createCDPSession();
  await page.exposeFunction("limitStorage", async (bytes) => {
    const quotaSize = bytes ?? undefined;
    await devtools.send("Storage.overrideQuotaForOrigin", { origin, quotaSize });
  });
}
