/** The programs of examples/ work with the packed package. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { builtBy, inChromium, tool, type Vite } from "../fixtures/fixture.js";
import { load, project, root } from "./project.js";

/** A copy of an example in the project that has installed the package. */
function example(name: string): string {
  const folder = join(project(), `example-${name}`);
  cpSync(root("examples", name), folder, { recursive: true });
  return folder;
}

/** Starts the server of an example and returns the address that it prints. */
async function started(folder: string): Promise<{ process: ChildProcess; url: string }> {
  const process_ = spawn(process.execPath, ["server.mjs"], {
    cwd: folder,
    env: { ...process.env, PORT: "0" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => {
    process_.kill("SIGKILL");
  });
  const [url] = await once(createInterface({ input: process_.stdout }), "line");
  return { process: process_, url: String(url) };
}

describe("the examples", () => {
  test("node: an answered visit is counted after kill -9", async () => {
    const folder = example("node");
    const first = await started(folder);
    await (await fetch(`${first.url}/a`)).text();
    assert((await (await fetch(`${first.url}/a`)).text()).startsWith("Visit 2 of /a"));
    first.process.kill("SIGKILL");
    await once(first.process, "exit");

    const second = await started(folder);
    assert((await (await fetch(`${second.url}/a`)).text()).startsWith("Visit 3 of /a"));
    second.process.kill("SIGINT");
    const [code] = await once(second.process, "exit");
    expect(code).toBe(0);
  });

  test("todo: an item is added, ticked, kept over a reload and removed", async () => {
    const out = await builtBy(await tool<Vite>("vite/dist/node/index.js"), example("todo"));
    const { serve } = await load<{
      serve(folders: string[]): Promise<{ url: string; close(): Promise<void> }>;
    }>("scripts/serve.mjs");
    const server = await serve([out]);
    onTestFinished(() => server.close());
    const left = 'document.querySelector("#left").textContent';
    await inChromium(async (page) => {
      await page.goto(server.url);
      await page.waitForFunction(`${left} === "0 of 0 left"`);
      await page.evaluate(`(() => {
        for (const title of ["Buy milk", "Call Ann"]) {
          document.querySelector("#title").value = title;
          document.querySelector("form").requestSubmit();
        }
      })()`);
      await page.waitForFunction(`${left} === "2 of 2 left"`);
      await page.evaluate('document.querySelector("li input").click()');
      await page.waitForFunction(`${left} === "1 of 2 left"`);

      await page.goto(server.url);
      await page.waitForFunction(`${left} === "1 of 2 left"`);
      await page.evaluate('document.querySelector("#clear").click()');
      await page.waitForFunction(`${left} === "1 of 1 left"`);
      expect(await page.evaluate('document.querySelector("ul").textContent')).toBe("Call Ann");
      expect(await page.evaluate('document.querySelector("#problem").textContent')).toBe("");
    });
  });
});
