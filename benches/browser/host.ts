import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { summarize } from "../../demo/statistics.js";
import type { BenchOptions } from "../main.js";
import { goal, type Row, row, type Section } from "../report.js";
import type { BrowserRequest, BrowserResult } from "./worker.js";

/** A private window would keep OPFS in memory and be 20 to 200 times slower: the profile lies on disk. */
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const PATIENCE_MS = 30 * 60_000;

const TYPES: Record<string, string> = {
  ".js": "text/javascript",
  ".wasm": "application/wasm",
};

/** SQLite's other store in OPFS is not asked for; the parameter keeps it from setting itself up. */
const PAGE = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module">
  globalThis.bench = (request) => new Promise((resolve, reject) => {
    const worker = new Worker("./worker.js?opfs-disable", { type: "module" });
    worker.onerror = (event) => reject(new Error(event.message || "the worker did not start"));
    worker.onmessage = ({ data }) => {
      if (data.type === "progress") console.log(data.doing);
      else if (data.type === "error") reject(new Error(data.message));
      else resolve(data.result);
    };
    worker.postMessage(request);
  });
</script>`;

/** Isolated from other origins, which makes the browser's clock exact to 5 µs instead of 100. */
function serve(folder: string) {
  const server = createServer((request, response) => {
    const path = new URL(request.url ?? "/", "http://localhost").pathname;
    response.setHeader("cross-origin-opener-policy", "same-origin");
    response.setHeader("cross-origin-embedder-policy", "require-corp");
    try {
      const body = path === "/" ? PAGE : readFileSync(join(folder, path));
      response.setHeader("content-type", TYPES[extname(path)] ?? "text/html");
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  });
  return new Promise<{ url: string; close(): void }>((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const { port } = server.address() as AddressInfo;
      resolve({ url: `http://localhost:${port}/`, close: () => server.close() });
    });
  });
}

async function runInChromium(
  url: string,
  request: BrowserRequest,
): Promise<BrowserResult & { version: string }> {
  const profile = mkdtempSync(join(tmpdir(), "varve-bench-chromium-"));
  const { CHROME_BIN } = process.env;
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: CHROME_BIN ?? "/usr/bin/chromium",
    headless: true,
    args: FLAGS,
  });
  try {
    const page = context.pages()[0] ?? (await context.newPage());
    page.setDefaultTimeout(PATIENCE_MS);
    page.on("console", (message) => process.stderr.write(`  [chromium] ${message.text()}\n`));
    await page.goto(url);
    const version = await page.evaluate(() => navigator.userAgent);
    const result = await page.evaluate(
      (asked) =>
        (globalThis as unknown as { bench(request: unknown): Promise<unknown> }).bench(asked),
      request,
    );
    return { ...(result as BrowserResult), version };
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}

/** The page's own build, which runs as it is and not bundled into this. */
async function bundle(root: string, out: string): Promise<void> {
  const { bundleWorkers }: { bundleWorkers(entries: string[], outdir: string): Promise<void> } =
    await import(pathToFileURL(join(root, "demo/build.mjs")).href);
  await bundleWorkers([join(root, "benches/browser/worker.ts")], out);
}

export async function browserBench({ root, quick }: BenchOptions): Promise<Section> {
  const out = join(root, ".build/bench-browser");
  await bundle(root, out);
  const server = await serve(out);
  const request: BrowserRequest = quick
    ? { samples: 3, runs: 2, cycles: 2_000 }
    : { samples: 21, runs: 7, cycles: 20_000 };
  try {
    const { calls, drops, equal, version } = await runInChromium(server.url, request);
    if (!equal) throw new Error("the stores did not end with equal contents");
    return section(calls, drops, version, request.cycles);
  } finally {
    server.close();
  }
}

const GROUPINGS = { all: "one commit for all", each: "a commit for each" };

function section(
  calls: BrowserResult["calls"],
  drops: BrowserResult["drops"],
  version: string,
  cycles: number,
): Section {
  const rows: Row[] = [
    ...calls.map(({ work, store, durability, ns }) => row(work, store, durability, "ns", ns)),
    ...drops.map(({ name, grouping, durability, ms }) =>
      row(
        `drop of ${cycles.toLocaleString("en")}, ${GROUPINGS[grouping]}`,
        name,
        durability,
        "ms",
        ms,
      ),
    ),
  ];
  const get = { atMost: 70 };
  const update = { atMost: 90 };
  const call = (id: string) => summarize(calls.find((one) => one.id === id)!.ns).median;
  const drop = (id: string, grouping: keyof typeof GROUPINGS) =>
    summarize(drops.find((one) => one.id === id && one.grouping === grouping)!.ms).median;
  const against = (id: string, grouping: keyof typeof GROUPINGS) =>
    drop(id, grouping) / drop("varve", grouping);
  return {
    title: "Chromium, a worker on OPFS, profile on disk",
    rows,
    goals: [
      goal("get of 64 bytes by string key, view included, one key", call("get1"), get, "ns"),
      goal("the same against a Map", call("get1") / call("map1"), { atMost: 4 }, "times"),
      goal("get, 64 keys in turn", call("get"), get, "ns"),
      goal("the same against a Map", call("get") / call("map"), { atMost: 4 }, "times"),
      goal("updateIf, one key", call("updateIf1"), update, "ns"),
      goal("updateIf with a predicate, one key", call("updateIfWhen1"), update, "ns"),
      goal("updateIf, 64 keys in turn", call("updateIf"), update, "ns"),
      goal(
        "drop against SQLite in one transaction",
        against("sqlite", "all"),
        { atLeast: 50 },
        "times faster",
      ),
      goal(
        "drop against IndexedDB, a transaction each, varve one write per turn",
        drop("indexeddb", "each") / drop("varve", "all"),
        { atLeast: 3000 },
        "times faster",
      ),
    ],
    notes: [
      version,
      `Further ratios to varve: ${[
        `SQLite by raw calls in one transaction ${against("sqlite-raw", "all").toFixed(1)}`,
        `IndexedDB in one transaction ${against("indexeddb", "all").toFixed(0)}`,
        `SQLite, a commit for each on both sides ${against("sqlite", "each").toFixed(1)}`,
        `IndexedDB, a commit for each on both sides ${against("indexeddb", "each").toFixed(0)}`,
      ].join("; ")}.`,
      "Single calls: 200,000 gets or 20,000 writes per sample, all in one turn, with the one write at its end. A key that comes twice in a row is encoded once, so one key is the best case and 64 in turn the ordinary one.",
      "SQLite: pool of OPFS files, WAL, exclusive locking, synchronous=normal, statements prepared once, the key bound with each. By raw calls: the C functions on a key bound once, which no program with more than one key can do; it shows what the engine alone costs.",
      "Every store is closed and opened again at the end, and all hold one pair of the right name.",
    ],
  };
}
