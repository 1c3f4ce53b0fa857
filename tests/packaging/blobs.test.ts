/** The programs of docs/blobs.md run as printed. */

import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ranAsShown, shown, shownIn } from "./documented-programs.js";
import { builtByVite, onPage, siteOf } from "./pages.js";
import { command, root } from "./project.js";

const PAGE = "docs/blobs.md";
const SECONDS = 60;
const RATE = 22_050;

/** A recording that every browser plays: uncompressed, one byte a sample, all zero. */
function recording(): Uint8Array {
  const header = new DataView(new ArrayBuffer(44));
  const length = SECONDS * RATE;
  const write = (at: number, text: string) => {
    for (let i = 0; i < text.length; i++) header.setUint8(at + i, text.charCodeAt(i));
  };
  write(0, "RIFF");
  header.setUint32(4, 36 + length, true);
  write(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true);
  header.setUint16(22, 1, true);
  header.setUint32(24, RATE, true);
  header.setUint32(28, RATE, true);
  header.setUint16(32, 1, true);
  header.setUint16(34, 8, true);
  write(36, "data");
  header.setUint32(40, length, true);
  const bytes = new Uint8Array(44 + length).fill(128);
  bytes.set(new Uint8Array(header.buffer));
  return bytes;
}

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
    writeFileSync(join(folder, "public/intro.wav"), recording());
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
      const size = SECONDS * RATE + 44;
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
