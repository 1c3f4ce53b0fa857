// What is killed: each begins a life, passes on what it tells, and dies by SIGKILL when reported so.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { bundleForBrowser, bundleForNode } from "../../scripts/bundle.mjs";
import { Problem, root } from "../../scripts/lib.mjs";
import { serve } from "../../scripts/serve.mjs";
import { firstPage, launch, withProfile } from "../browsers.mjs";

const PAGE = `<!doctype html><meta charset="utf-8"><title>varve torture</title><link rel="icon" href="data:,">
<script type="module" src="/page.js"></script>`;

/** A killed process is gone within that time, or the system is in trouble. */
const GONE_MS = 60_000;

/**
 * By name, each `(use) => …`: gives a victim to `use`, in a place where its databases outlive it.
 * `victim.begin(order, hear)` begins a life, and `victim.kill()` resolves when it is dead and what it
 * reported before has been heard. `victim.close()` ends it however it is, and a life may begin anew after
 * that. `victim.version` names the program, from the first life on.
 */
export const VICTIMS = {
  node: withProcess,
  "chromium-renderer": (use) => withBrowser("chromium", RendererVictim, use),
  chromium: (use) => withBrowser("chromium", BrowserVictim, use),
  firefox: (use) => withBrowser("firefox", BrowserVictim, use),
};

async function withProcess(use) {
  const out = `.build/tests/kills-node-${process.pid}`;
  const folder = mkdtempSync(join(tmpdir(), "varve-kills-"));
  const victim = new ProcessVictim(join(root, out, "process.mjs"), folder);
  try {
    await bundleForNode(["tests/torture/process.ts"], out);
    return await use(victim);
  } finally {
    await victim.close();
    rmSync(join(root, out), { recursive: true, force: true });
    rmSync(folder, { recursive: true, force: true });
  }
}

class ProcessVictim {
  #program;
  #folder;
  #child;
  #closed;
  version = `node/${process.versions.node}`;

  constructor(program, folder) {
    this.#program = program;
    this.#folder = folder;
  }

  async begin(order, hear) {
    const args = [this.#program, this.#folder, JSON.stringify(order)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#child = child;
    this.#closed = once(child, "close");
    // A line that was cut off was not reported.
    createInterface(child.stdout).on(
      "line",
      (line) => line.endsWith("}") && hear(JSON.parse(line)),
    );
  }

  async kill() {
    this.#child?.kill("SIGKILL");
    if (this.#closed !== undefined) await soon(this.#closed, "a killed program has not ended");
  }

  close() {
    return this.kill();
  }
}

async function withBrowser(place, Victim, use) {
  const out = `.build/tests/kills-${place}-${process.pid}`;
  let hear = () => {};
  const posts = { "/news": (said) => hear(JSON.parse(said)) };
  const server = await serve([join(root, out)], { pages: { "/": PAGE }, posts });
  try {
    await bundleForBrowser(["tests/torture/page.ts", "tests/torture/worker.ts"], out);
    return await withProfile(place, async (profile) => {
      const victim = new Victim(place, profile, server.url, (listener) => {
        hear = listener;
      });
      try {
        return await use(victim);
      } finally {
        await victim.close();
      }
    });
  } finally {
    await server.close();
    rmSync(join(root, out), { recursive: true, force: true });
  }
}

/** A browser, and a page in it. */
class BrowserVictim {
  #place;
  #profile;
  #url;
  #listen;
  browser;
  page;
  version;

  constructor(place, profile, url, listen) {
    this.#place = place;
    this.#profile = profile;
    this.#url = url;
    this.#listen = listen;
  }

  async begin(order, hear) {
    this.#listen(hear);
    this.browser ??= await launch(this.#place, this.#profile);
    this.version ??= await this.browser.version();
    this.page = await this.freshPage(this.#place);
    await this.page.goto(this.#url);
    await this.page.waitForFunction(() => "begin" in globalThis);
    await this.page.evaluate(`begin(${JSON.stringify(order)})`);
  }

  freshPage(place) {
    return firstPage(place, this.browser);
  }

  /** All processes of the browser at once: it was started as the leader of their group. */
  async kill() {
    const program = this.browser?.process();
    if (program == null) return;
    const exited =
      program.exitCode === null && program.signalCode === null && once(program, "exit");
    process.kill(-program.pid, "SIGKILL");
    if (exited !== false) await soon(exited, "a killed browser has not ended");
    await emptied(program.pid);
    await this.browser.close().catch(() => {});
    this.browser = undefined;
  }

  /** All processes of the browser, whatever they are doing. */
  async close() {
    await BrowserVictim.prototype.kill.call(this);
    this.page = undefined;
  }
}

/** The page's own process is killed; the browser lives on. */
class RendererVictim extends BrowserVictim {
  /** The page that died is left as it is, and another opened. */
  async freshPage(place) {
    return this.page === undefined ? super.freshPage(place) : this.browser.newPage();
  }

  async kill() {
    if (this.page === undefined) return;
    const crashed = once(this.page, "error");
    const devtools = await this.browser.target().createCDPSession();
    // One of them is that of the page. The others are kept in reserve by the browser, which gives them
    // to new pages until it has heard that they are dead: such a page would never come.
    const killed = await renderers(devtools);
    for (const id of killed) process.kill(id, "SIGKILL");
    await soon(crashed, "a page whose process was killed has not crashed");
    await soon(forgotten(devtools, killed), "a browser still counts on killed processes");
    await devtools.detach();
    await this.page.close();
  }
}

async function renderers(devtools) {
  const { processInfo } = await devtools.send("SystemInfo.getProcessInfo");
  return processInfo.filter(({ type }) => type === "renderer").map(({ id }) => id);
}

async function forgotten(devtools, killed) {
  while ((await renderers(devtools)).some((id) => killed.includes(id))) await pause();
}

/** Waits, but no longer than a death may take. */
function soon(death, what) {
  let timer;
  const late = new Promise((_, reject) => {
    const seconds = GONE_MS / 1_000;
    timer = setTimeout(() => reject(new Problem(`${what} after ${seconds} s.`)), GONE_MS);
  });
  return Promise.race([death, late]).finally(() => clearTimeout(timer));
}

/** Waits until a group has no process any more. */
async function emptied(group) {
  for (const until = Date.now() + GONE_MS; Date.now() < until; ) {
    try {
      process.kill(-group, 0);
    } catch {
      return;
    }
    await pause();
  }
  throw new Problem(`processes of the group ${group} are still there after they were killed.`);
}

function pause() {
  return new Promise((resolve) => setTimeout(resolve, 5));
}
