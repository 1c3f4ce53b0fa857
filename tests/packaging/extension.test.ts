/** The package in an extension of Chromium, whose background is a service worker of separate modules. */

import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { load, project } from "./project.js";

const FILES = {
  "manifest.json": JSON.stringify({
    manifest_version: 3,
    name: "shop",
    version: "1.0",
    background: { service_worker: "background.js", type: "module" },
    content_security_policy: { extension_pages: "script-src 'self' 'wasm-unsafe-eval'" },
  }),
  "background.js": `
    import { connect, open, serve } from "./varve/index.js";
    const shop = connect("shop", { worker: serve("shop").here });
    const answers = {
      read: ({ key }) => shop.getText(key),
      async image({ key, bytes }) {
        const from = Uint8Array.from(bytes);
        return (await open("image", { from, readOnly: true })).getText(key);
      },
    };
    chrome.runtime.onMessage.addListener((message, _sender, answer) => {
      answers[message.ask](message).then(answer, (error) => answer(String(error)));
      return true;
    });`,
  "page.html": '<!doctype html><title>shop</title><script type="module" src="page.js"></script>',
  "page.js": `
    import { connect } from "./varve/client/index.js";
    globalThis.ask = (message) => chrome.runtime.sendMessage(message);
    globalThis.visit = async (value) => {
      const shop = connect("shop");
      await shop.set("key", value);
      const bytes = new Uint8Array(await new Response(await shop.export()).arrayBuffer());
      await shop.close();
      return [...bytes];
    };`,
};

interface Target {
  type(): string;
  url(): string;
}

interface Page {
  goto(url: string): Promise<unknown>;
  evaluate(expression: string): Promise<unknown>;
  waitForFunction(expression: string): Promise<unknown>;
}

interface Browser {
  waitForTarget(wanted: (target: Target) => boolean): Promise<Target>;
  close(): Promise<void>;
}

interface Browsers {
  launch(place: "chromium", profile: string, more: { extensions: string[] }): Promise<Browser>;
  firstPage(place: "chromium", browser: Browser): Promise<Page>;
  withProfile(place: "chromium", use: (profile: string) => Promise<void>): Promise<void>;
}

describe("an extension of Chromium (Manifest V3)", () => {
  test("the background reads the writes of a page, and bytes that it receives", async () => {
    const folder = join(project(), "extension");
    mkdirSync(folder, { recursive: true });
    for (const [name, content] of Object.entries(FILES)) writeFileSync(join(folder, name), content);
    cpSync(join(project(), "node_modules/varve/dist"), join(folder, "varve"), { recursive: true });
    const { launch, firstPage, withProfile } = await load<Browsers>("tests/browsers.mjs");
    await withProfile("chromium", async (profile) => {
      const browser = await launch("chromium", profile, { extensions: [folder] });
      try {
        const background = await browser.waitForTarget((one) => one.type() === "service_worker");
        const page = await firstPage("chromium", browser);
        await page.goto(new URL("page.html", background.url()).href);
        await page.waitForFunction('"visit" in globalThis');
        for (const value of ["one", "two"]) {
          const bytes = JSON.stringify(await page.evaluate(`visit("${value}")`));
          expect(await page.evaluate('ask({ ask: "read", key: "key" })')).toBe(value);
          expect(await page.evaluate(`ask({ ask: "image", key: "key", bytes: ${bytes} })`)).toBe(
            value,
          );
        }
      } finally {
        await browser.close();
      }
    });
  });
});
