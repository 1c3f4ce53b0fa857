/** The programs of examples/ work with the packed package. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { builtBy, inChromium, tool, type Vite } from "../fixtures/fixture.js";
import { command, load, project, root, runtime } from "./project.js";
import { recording } from "./recording.js";

/** A copy of an example in the project that has installed the package. */
function example(name: string): string {
  const folder = join(project(), `example-${name}`);
  cpSync(root("examples", name), folder, { recursive: true });
  return folder;
}

/** Starts the server of an example and returns the address that it prints. */
async function started(
  folder: string,
  [program = process.execPath, ...args]: readonly string[] = [process.execPath, "server.mjs"],
  env: Readonly<Record<string, string>> = {},
): Promise<{ process: ChildProcess; url: string }> {
  const process_ = spawn(program, args, {
    cwd: folder,
    env: { ...process.env, PORT: "0", ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  onTestFinished(() => {
    process_.kill("SIGKILL");
  });
  const ended = once(process_, "exit").then(([code]) => {
    throw new Error(`the server ended with ${code}`);
  });
  ended.catch(() => {});
  const [url] = await Promise.race([
    once(createInterface({ input: process_.stdout }), "line"),
    ended,
  ]);
  return { process: process_, url: String(url) };
}

describe("the examples", () => {
  test("queue: a worker that is killed loses no job, and each has one result", async () => {
    const folder = example("queue");
    const run = (...args: string[]) => command([process.execPath, "queue.mjs", ...args], folder);
    const tasks = Array.from({ length: 40 }, (_, number) => `task ${number}`);
    run("add", ...tasks.slice(0, 20));
    run("add", ...tasks.slice(20));
    for (const before of [3, 9]) {
      const worker = spawn(process.execPath, ["queue.mjs", "work"], {
        cwd: folder,
        env: { ...process.env, LEASE_MS: "500" },
        stdio: ["ignore", "pipe", "inherit"],
      });
      let done = 0;
      for await (const _ of createInterface({ input: worker.stdout })) {
        done += 1;
        if (done === before) worker.kill("SIGKILL");
      }
    }
    run("work");
    const results = run("results")
      .trim()
      .split("\n")
      .map((line) => line.split("\t"));
    expect(results.map(([, , text]) => text)).toStrictEqual(
      tasks.map((task) => task.toUpperCase()),
    );
    const attempts = results.map(([, count]) => Number(count));
    assert(attempts.every((count) => count === 1 || count === 2));
    expect(run("work")).toBe("");
  });

  test("cache: a page is made once, also after kill -9, and again when its time is over", async () => {
    const folder = example("cache");
    const bun = [...(await runtime("bun")), "server.ts"];
    const ask = async (url: string) => {
      const answer = await fetch(new URL("a", url));
      return [answer.headers.get("x-cache"), await answer.text()];
    };
    const first = await started(folder, bun, { TTL_MS: "3000" });
    const [miss, made] = await ask(first.url);
    expect(miss).toBe("miss");
    expect(await ask(first.url)).toStrictEqual(["hit", made]);
    first.process.kill("SIGKILL");
    await once(first.process, "exit");

    const second = await started(folder, bun, { TTL_MS: "3000" });
    expect(await ask(second.url)).toStrictEqual(["hit", made]);
    let [kept, again] = await ask(second.url);
    for (; kept === "hit"; [kept, again] = await ask(second.url)) expect(again).toBe(made);
    assert(again !== made);
    second.process.kill("SIGINT");
    const [code] = await once(second.process, "exit");
    expect(code).toBe(0);
  });

  test("video: a recording is stored, and plays after a reload without a network", async () => {
    const folder = example("video");
    const { sw } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).scripts;
    command([root("node_modules/esbuild/bin/esbuild"), ...sw.split(" ").slice(1)], folder);
    const out = await builtBy(await tool<Vite>("vite/dist/node/index.js"), folder);
    const { serve } = await load<{
      serve(folders: string[]): Promise<{ url: string; close(): Promise<void> }>;
    }>("scripts/serve.mjs");
    const server = await serve([out]);
    await inChromium(async (page) => {
      await page.goto(server.url);
      await page.waitForFunction("!document.querySelector('input').disabled");
      const bytes = Buffer.from(recording(30)).toString("base64");
      await page.evaluate(`(async () => {
        const bytes = await (await fetch("data:;base64,${bytes}")).arrayBuffer();
        const chosen = new DataTransfer();
        chosen.items.add(new File([bytes], "ann's talk.wav", { type: "audio/wav" }));
        const input = document.querySelector("input");
        input.files = chosen.files;
        input.dispatchEvent(new Event("change"));
      })()`);
      await page.waitForFunction("document.querySelector('li')");
      expect(await page.evaluate("document.querySelector('li').textContent")).toBe(
        "ann's talk.wav 0.7 MB Remove",
      );
      await server.close();
      await page.goto(server.url);
      await page.waitForFunction("document.querySelector('li')");
      await page.evaluate("document.querySelector('li button').click()");
      await page.waitForFunction("document.querySelector('video').readyState >= 1");
      await page.evaluate("document.querySelector('video').currentTime = 20");
      await page.waitForFunction("document.querySelector('video').currentTime >= 20");
      expect(await page.evaluate("document.querySelector('video').duration")).toBe(30);
      await page.evaluate("document.querySelector('li button:last-child').click()");
      await page.waitForFunction("!document.querySelector('li')");
      expect(await page.evaluate("document.querySelector('#problem').textContent")).toBe("");
    });
  });

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
