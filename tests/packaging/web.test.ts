/** Pages without a bundler, from the packed package: `dist/web` works from the page's origin and from another. */

import { readFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { join } from "node:path";
import { assert, expect, onTestFinished, test } from "vitest";
import { load, project, root } from "./project.js";

interface Page {
  goto(url: string): Promise<unknown>;
  evaluate(expression: string): Promise<unknown>;
  waitForFunction(expression: string): Promise<unknown>;
}

interface Browsers {
  launch(place: string, profile: string): Promise<{ newPage(): Promise<Page>; close(): unknown }>;
  withProfile(place: string, use: (profile: string) => Promise<void>): Promise<void>;
}

const TYPES: Record<string, string> = { js: "text/javascript", wasm: "application/wasm" };

/** Serves the package's folder, and one page. Returns the address and the paths of the package that were requested. */
async function served(
  html: string,
  headers: Record<string, string> = {},
  answer: (pathname: string, response: ServerResponse) => boolean = () => false,
) {
  const requested: string[] = [];
  const server = createServer(({ url = "/" }, response) => {
    const { pathname } = new URL(url, "http://localhost");
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    if (pathname === "/") {
      response.writeHead(200, { "content-type": "text/html" }).end(html);
      return;
    }
    if (!pathname.startsWith("/dist/")) {
      response.writeHead(404).end();
      return;
    }
    requested.push(pathname);
    if (answer(pathname, response)) return;
    const type = TYPES[pathname.split(".").at(-1) ?? ""] ?? "text/plain";
    response.writeHead(200, { "content-type": type });
    response.end(readFileSync(join(project(), "node_modules/varve", pathname)));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  const { port } = server.address() as { port: number };
  return { url: `http://127.0.0.1:${port}`, requested };
}

const ALLOWED = { "access-control-allow-origin": "*" };

const page = (origin: string) => `<!doctype html><link rel="icon" href="data:,"><body>
  <script type="module" nonce="page">
    import { connect } from "${origin}/dist/web/client.js";
    import { json } from "${origin}/dist/web/struct.js";
    addEventListener("error", ({ message }) => { document.body.dataset.seen = message });
    const shop = connect("shop");
    const before = await shop.getText("yeezy");
    await shop.set("yeezy", "Boost 350");
    document.body.dataset.seen = [before, await shop.getText("yeezy"), typeof json, location.origin].join(" ");
  </script>`;

/** What the page shows, at its first visit and at the next. */
async function visits(place: string, url: string): Promise<unknown[]> {
  const { launch, withProfile } = await load<Browsers>("tests/browsers.mjs");
  const shown: unknown[] = [];
  await withProfile(place, async (profile) => {
    const browser = await launch(place, profile);
    try {
      const tab = await browser.newPage();
      for (let visit = 0; visit < 2; visit += 1) {
        await tab.goto(url);
        await tab.waitForFunction("document.body.dataset.seen");
        shown.push(await tab.evaluate("document.body.dataset.seen"));
      }
    } finally {
      await browser.close();
    }
  });
  return shown;
}

for (const place of ["chromium", "firefox"]) {
  for (const isElsewhere of [false, true]) {
    test(`${place}: a page loads the package in five requests, from ${isElsewhere ? "another origin" : "its own"}`, async () => {
      const files = isElsewhere ? await served("", ALLOWED) : undefined;
      const site = await served(page(files?.url ?? ""));
      expect(await visits(place, site.url)).toStrictEqual([
        ` Boost 350 function ${site.url}`,
        `Boost 350 Boost 350 function ${site.url}`,
      ]);
      const { requested } = files ?? site;
      const names = new Set(requested.map((path) => path.replace(/chunk-\w+/, "chunk")));
      expect([...names].sort()).toStrictEqual([
        "/dist/varve.wasm",
        "/dist/web/chunk.js",
        "/dist/web/client.js",
        "/dist/web/struct.js",
        "/dist/web/worker.js",
      ]);
      assert(new Set(requested).size === 5, [...new Set(requested)].join(" "));
    });
  }
}

/** The policy that docs/places.md gives for the package at another origin. */
function policyFor(origin: string): string {
  const [policy] = /script-src 'self' 'wasm-unsafe-eval' https:[^`]*/.exec(
    readFileSync(root("docs/places.md"), "utf8"),
  ) ?? [""];
  assert(policy.includes("worker-src"), "docs/places.md has a policy");
  const here = policy.replaceAll("https://cdn.example", origin);
  return `default-src 'self'; img-src data:; ${here.replace("'self'", "'self' 'nonce-page'")}`;
}

for (const place of ["chromium", "firefox"]) {
  test(`${place}: from another origin it runs under the documented content security policy`, async () => {
    const { url } = await served("", ALLOWED);
    const site = await served(page(url), { "content-security-policy": policyFor(url) });
    expect(await visits(place, site.url)).toStrictEqual([
      ` Boost 350 function ${site.url}`,
      `Boost 350 Boost 350 function ${site.url}`,
    ]);
  });

  test(`${place}: wasm that does not arrive is named in the error`, async () => {
    const isWasm = (pathname: string) => pathname.endsWith(".wasm");
    const denied = await served("", ALLOWED, (pathname, response) => {
      if (isWasm(pathname)) response.removeHeader("access-control-allow-origin");
      return false;
    });
    const replaced = await served("", ALLOWED, (pathname, response) => {
      if (!isWasm(pathname)) return false;
      response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html>");
      return true;
    });
    for (const [{ url }, reason] of [
      [denied, "there is no connection, its server does not allow it"],
      [replaced, "status 200, type text/html."],
    ] as const) {
      const site = await served(page(url));
      const seen = await visits(place, site.url);
      const shown = `The wasm of varve could not be fetched from ${url}/dist/varve.wasm: ${reason}`;
      for (const text of seen) assert(`${text}`.includes(shown), `${text}`);
    }
  });
}
