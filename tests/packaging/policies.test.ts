/** Pages under the policies in docs/places.md: no action of the package is refused or reported. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { copied } from "../fixtures/fixture.js";
import { load, project, root } from "./project.js";

const RECIPES = readFileSync(root("docs/places.md"), "utf8");

/** A part of a policy, as written in docs/places.md. */
function named(directives: string): string {
  assert(RECIPES.includes(`\`${directives}\``), `docs/places.md names ${directives}`);
  return directives;
}

const REST = "default-src 'self'; img-src data:; report-uri /reports";
const SCRIPTS = named("script-src 'self' 'wasm-unsafe-eval'");
const TRUSTED = named("require-trusted-types-for 'script'; trusted-types varve shop");

/** Policies by description: the header, its value, and how the worker is made. */
const POLICIES: Record<string, readonly [header: string, policy: string, worker: string]> = {
  "a content security policy": [
    "content-security-policy",
    `${SCRIPTS}; ${REST}`,
    '() => new Worker("/db.js", { type: "module" })',
  ],
  "one that requires Trusted Types": [
    "content-security-policy",
    `${SCRIPTS}; ${TRUSTED}; ${REST}`,
    '() => new Worker(policy.createScriptURL("/db.js"), { type: "module" })',
  ],
  "one that only reports": [
    "content-security-policy-report-only",
    `${SCRIPTS}; ${TRUSTED}; ${REST}`,
    '() => new Worker(policy.createScriptURL("/db.js"), { type: "module" })',
  ],
};

const program = (worker: string) => `
  import { connect } from "/dist/client/index.js";
  globalThis.violations = [];
  document.addEventListener("securitypolicyviolation", (event) => {
    violations.push([event.effectiveDirective, event.blockedURI, event.sample].join(" "));
  });
  const policy = globalThis.trustedTypes?.createPolicy("shop", { createScriptURL: (url) => url });
  globalThis.shop = connect("shop", { worker: ${worker} });
  globalThis.channels = 0;
  const { postMessage } = BroadcastChannel.prototype;
  BroadcastChannel.prototype.postMessage = function (message) {
    channels += 1;
    postMessage.call(this, message);
  };
  globalThis.write = async (count) => {
    for (let i = 0; i < count; i += 1) await shop.set(crypto.randomUUID(), "value");
    return shop.status.owner;
  };
`;

interface Page {
  goto(url: string): Promise<unknown>;
  evaluate(expression: string): Promise<unknown>;
  waitForFunction(expression: string): Promise<unknown>;
}

interface Browser {
  newPage(): Promise<Page>;
  close(): Promise<void>;
}

interface Browsers {
  launch(place: string, profile: string, more: { timeout: number }): Promise<Browser>;
  withProfile(place: string, use: (profile: string) => Promise<void>): Promise<void>;
}

interface ServerOptions {
  pages: Record<string, string>;
  headers: Record<string, string>;
  posts: Record<string, (text: string) => void>;
}

/** Serves a page with this program, and returns its address and the reports about it. */
async function served(folder: string, headers: Record<string, string>) {
  const { serve } = await load<{
    serve(
      folders: string[],
      options: ServerOptions,
    ): Promise<{ url: string; close(): Promise<void> }>;
  }>("scripts/serve.mjs");
  const reports: string[] = [];
  const pages = {
    "/": '<!doctype html><link rel="icon" href="data:,"><script type="module" src="/main.js"></script>',
  };
  const posts = { "/reports": (text: string) => reports.push(text) };
  const folders = [folder, join(project(), "node_modules/varve")];
  const server = await serve(folders, { pages, headers, posts });
  onTestFinished(() => server.close());
  return { url: server.url, reports };
}

async function inBrowser(place: string, use: (browser: Browser) => Promise<void>): Promise<void> {
  const { launch, withProfile } = await load<Browsers>("tests/browsers.mjs");
  await withProfile(place, async (profile) => {
    const browser = await launch(place, profile, { timeout: 60_000 });
    try {
      await use(browser);
    } finally {
      await browser.close();
    }
  });
}

/** Two tabs of a browser, both with the page at this address. */
function inTabs(
  place: string,
  url: string,
  use: (first: Page, second: Page) => Promise<void>,
): Promise<void> {
  return inBrowser(place, async (browser) => {
    const pages: Page[] = [];
    for (let i = 0; i < 2; i += 1) {
      const page = await browser.newPage();
      await page.goto(url);
      await page.waitForFunction('"write" in globalThis');
      await page.evaluate("write(1)");
      pages.push(page);
    }
    await use(pages[0] as Page, pages[1] as Page);
  });
}

for (const place of ["chromium", "firefox"]) {
  describe(`tabs of ${place}`, () => {
    for (const [what, [header, policy, worker]] of Object.entries(POLICIES)) {
      test(`tabs under ${what} cause no report, and reach each other by a port`, async () => {
        const folder = copied();
        writeFileSync(join(folder, "main.js"), program(worker));
        writeFileSync(
          join(folder, "db.js"),
          'import { serve } from "/dist/index.js"; export default serve("shop");',
        );
        const { url, reports } = await served(folder, { [header]: policy });
        await inTabs(place, url, async (first, second) => {
          expect(await first.evaluate("write(20)")).toBe("here");
          expect(await second.evaluate("write(200)")).toBe("elsewhere");
          await second.waitForFunction(
            "(async (before) => (await write(5), channels === before))(channels)",
          );
          for (const page of [first, second]) {
            expect(await page.evaluate("violations")).toStrictEqual([]);
            await page.evaluate("shop.close()");
          }
        });
        expect(reports).toStrictEqual([]);
      });
    }
  });
}

/** Workers that a page cannot have: the policy, how the worker is made, and the error message. */
const REFUSED: Record<
  string,
  readonly [policy: string, worker: string, messages: Record<string, RegExp>]
> = {
  "a file that is not there": [
    "",
    'new Worker("/none.js", { type: "module" })',
    {
      chromium: /failed to load: its file is missing/,
      firefox: /none\.js came with the status 404/,
    },
  ],
  "a file that is no JavaScript": [
    "",
    'new Worker("/", { type: "module" })',
    { chromium: /or no JavaScript/, firefox: /the type text\/html/ },
  ],
  "an import that is not there": [
    "",
    'new Worker("/imports.js", { type: "module" })',
    { chromium: /none\.js came with the status 404/, firefox: /one of its imports has an error/ },
  ],
  "a file that throws": [
    "",
    'new Worker("/throws.js", { type: "module" })',
    { chromium: /failed: .*thrown at the start/, firefox: /failed: .*thrown at the start/ },
  ],
  "another origin": [
    "",
    'new Worker("https://127.0.0.1:9/db.js", { type: "module" })',
    { chromium: /cannot be accessed.*page's own origin/, firefox: /from another origin/ },
  ],
  "a content security policy": [
    "worker-src 'none'",
    'new Worker("/imports.js", { type: "module" })',
    {
      chromium: /worker-src of the content security policy refuses .*imports\.js/,
      firefox: /worker-src of the content security policy refuses .*imports\.js/,
    },
  ],
  "Trusted Types": [
    "require-trusted-types-for 'script'",
    'new Worker("/imports.js", { type: "module" })',
    {
      chromium: /TrustedScriptURL in the option worker/,
      firefox: /TrustedScriptURL in the option worker/,
    },
  ],
};

for (const place of ["chromium", "firefox"]) {
  describe(`workers refused by ${place}`, () => {
    test("the error gives the reason, as far as the browser reports it", async () => {
      const folder = copied();
      writeFileSync(join(folder, "imports.js"), 'import "/none.js";');
      writeFileSync(join(folder, "throws.js"), 'throw new Error("thrown at the start");');
      await inBrowser(place, async (browser) => {
        for (const [what, [policy, worker, messages]] of Object.entries(REFUSED)) {
          writeFileSync(
            join(folder, "main.js"),
            `import { connect } from "/dist/client/index.js";
            globalThis.refused = connect("shop", { worker: () => ${worker} }).get("key").catch(
              ({ code, message }) => code + " " + message,
            );`,
          );
          const { url } = await served(folder, policy ? { "content-security-policy": policy } : {});
          const page = await browser.newPage();
          await page.goto(url);
          await page.waitForFunction('"refused" in globalThis');
          const refused = String(await page.evaluate("refused"));
          assert(refused.startsWith("VARVE_STORAGE_UNAVAILABLE "), `${what}: ${refused}`);
          assert(messages[place]?.test(refused), `${what}: ${refused}`);
        }
      });
    });
  });
}
