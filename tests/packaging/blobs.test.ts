/** The programs of docs/blobs.md run as printed. */

import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ranAsShown, shown, shownIn } from "./documented-programs.js";
import { builtByVite, onPage, siteOf } from "./pages.js";
import { command, root } from "./project.js";
import { RECORDING_RATE, recording } from "./recording.js";

const PAGE = "docs/blobs.md";
const SECONDS = 60;

describe("the programs of docs/blobs.md", () => {
  test("every program is run", () => {
    const files = shownIn(PAGE).map(({ file }) => file);
    expect(files).toStrictEqual(["films.mjs", "films.ts", "page.ts", "sw.ts"]);
  });

  test("a blob in Node", async () => {
    expect((await ranAsShown(shown(PAGE, "films.mjs"))).split("\n")).toStrictEqual([
      "30 text/x-story It was a dark and stormy night",
      "dark",
      "intro 30",
    ]);
  });

  test("a recording plays from where one seeks, from a service worker, with and without an owner", async () => {
    const sources = ["page.ts", "films.ts", "sw.ts"].map(
      (name) => [name, shown(PAGE, name)] as const,
    );
    const folder = siteOf(Object.fromEntries(sources.map(([name, { source }]) => [name, source])));
    mkdirSync(join(folder, "public"));
    writeFileSync(join(folder, "public/intro.wav"), recording(SECONDS));
    const out = await builtByVite(folder);
    const [, ...bundles] = shown(PAGE, "sw.ts").command?.split(" ").slice(1) ?? [];
    command([root("node_modules/esbuild/bin/esbuild"), ...bundles], folder);
    cpSync(join(folder, "public/sw.js"), join(out, "sw.js"));
    await onPage([out], async (page, url) => {
      await page.waitForFunction("document.querySelector('audio')?.readyState >= 1");
      const seek = async (seconds: number) =>
        page.evaluate(`(async () => {
          const audio = document.querySelector("audio") ?? document.body.appendChild(new Audio("/films/intro"));
          await new Promise((resolve) => {
            audio.onseeked = resolve;
            if (audio.readyState >= 1) audio.currentTime = ${seconds};
            else audio.onloadedmetadata = () => (audio.currentTime = ${seconds});
          });
          return [audio.duration, audio.currentTime, audio.error];
        })()`);
      expect(await seek(50)).toStrictEqual([SECONDS, 50, null]);
      expect(await seek(10)).toStrictEqual([SECONDS, 10, null]);
      const range = (from: string) =>
        page.evaluate(`fetch("/films/intro", { headers: { range: "${from}" } }).then(async (answer) => [
          answer.status, answer.headers.get("content-range"), answer.headers.get("content-type"),
          (await answer.arrayBuffer()).byteLength
        ])`);
      const size = SECONDS * RECORDING_RATE + 44;
      expect(await range("bytes=0-43")).toStrictEqual([206, `bytes 0-43/${size}`, "audio/wav", 44]);
      expect(await range("bytes=300000-")).toStrictEqual([
        206,
        `bytes 300000-${size - 1}/${size}`,
        "audio/wav",
        size - 300_000,
      ]);
      expect(((await range(`bytes=${size}-`)) as unknown[])[0]).toBe(416);
      // A page that does not open the database: the service worker reads the file itself.
      await page.goto(`${url}/films/intro`);
      expect(await range("bytes=10-19")).toStrictEqual([
        206,
        `bytes 10-19/${size}`,
        "audio/wav",
        10,
      ]);
    });
  });
});
