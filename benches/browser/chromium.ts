import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { type BrowserContext, chromium, type Page } from "playwright-core";

/** The profile is on disk: a private window would keep OPFS in memory and be 20 to 200 times slower. */
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
const RUN_TIMEOUT_MS = 30 * 60_000;

const TYPES: Record<string, string> = {
  ".js": "text/javascript",
  ".wasm": "application/wasm",
};

/** `opfs-disable` keeps SQLite's other OPFS store, which is not measured, from being set up. */
const PAGE = `<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><script type="module">
  globalThis.bench = (name, request) => new Promise((resolve, reject) => {
    const worker = new Worker("./" + name + ".js?opfs-disable", { type: "module" });
    const end = (settle, value) => (worker.terminate(), settle(value));
    worker.onerror = (event) => end(reject, new Error(event.message || "the worker did not start"));
    worker.onmessage = ({ data }) => {
      if (data.type === "progress") console.log(data.doing);
      else if (data.type === "error") end(reject, new Error(data.message));
      else end(resolve, data.result);
    };
    worker.postMessage(request);
  });
</script>`;

/** With cross-origin isolation, the browser's clock has a resolution of 5 µs instead of 100. */
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

/** Calls the page's own build, which is imported at run time and not bundled. */
async function bundle(root: string, workers: readonly string[], out: string): Promise<void> {
  type Bundle = (entries: string[], outdir: string, more: object) => Promise<void>;
  const { bundleWorkers }: { bundleWorkers: Bundle } = await import(
    pathToFileURL(join(root, "demo/build.mjs")).href
  );
  await bundleWorkers(
    workers.map((path) => join(root, path)),
    out,
    { nodePaths: [join(root, "benches/rivals/node_modules")] },
  );
}

/** A Chromium with a new profile, on a page that starts workers. */
export class Chromium {
  private constructor(
    private readonly context: BrowserContext,
    private readonly page: Page,
    private readonly profile: string,
    private readonly server: { close(): void },
    /** The browser's user agent. */
    readonly version: string,
  ) {}

  /** `workers` are paths of scripts in the repository; `run` takes their names without the extension. */
  static async start(root: string, ...workers: string[]): Promise<Chromium> {
    const out = join(root, ".build/bench-browser");
    await bundle(root, workers, out);
    const server = await serve(out);
    const profile = mkdtempSync(join(tmpdir(), "varve-bench-chromium-"));
    const { CHROME_BIN } = process.env;
    const context = await chromium.launchPersistentContext(profile, {
      executablePath: CHROME_BIN ?? "/usr/bin/chromium",
      headless: true,
      args: FLAGS,
    });
    const page = context.pages()[0] ?? (await context.newPage());
    page.setDefaultTimeout(RUN_TIMEOUT_MS);
    page.on("console", (message) => process.stderr.write(`  [chromium] ${message.text()}\n`));
    await page.goto(server.url);
    const version = await page.evaluate(() => navigator.userAgent);
    return new Chromium(context, page, profile, server, version);
  }

  /** Posts a request to a new worker and resolves to its result. */
  async run<T>(worker: string, request: unknown): Promise<T> {
    const result = await this.page.evaluate(
      (call) =>
        (
          globalThis as unknown as { bench(worker: string, request: unknown): Promise<unknown> }
        ).bench(call.worker, call.request),
      { worker, request },
    );
    return result as T;
  }

  async close(): Promise<void> {
    await this.context.close();
    this.server.close();
    rmSync(this.profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 });
  }
}
