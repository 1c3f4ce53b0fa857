// Starts writers, forwards their reports, and kills them with SIGKILL.

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
<script type="module" src="/writer-page.js"></script>`;

/** The time within which a killed process must be gone. */
const GONE_MS = 60_000;

/**
 * By name, each `(use) => …`: passes a victim to `use`, in a place where its databases outlive it.
 * `victim.begin(order, onReport)` starts a writer. `victim.kill()` kills it, and resolves when it is gone and all
 * its reports were received. `victim.close()` ends everything in any state; `begin` may be called again.
 * `victim.version` is the version of the program, set by the first `begin`.
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
  const victim = new ProcessVictim(join(root, out, "writer-process.mjs"), folder);
  try {
    await bundleForNode(["tests/torture/writer-process.ts"], out);
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

  async begin(order, onReport) {
    const args = [this.#program, this.#folder, JSON.stringify(order)];
    const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
    this.#child = child;
    this.#closed = once(child, "close");
    // A line that the kill has cut off is not a report.
    createInterface(child.stdout).on(
      "line",
      (line) => line.endsWith("}") && onReport(JSON.parse(line)),
    );
  }

  async kill() {
    this.#child?.kill("SIGKILL");
    if (this.#closed !== undefined) await inTime(this.#closed, "a killed program has not ended");
  }

  close() {
    return this.kill();
  }
}

async function withBrowser(place, Victim, use) {
  const out = `.build/tests/kills-${place}-${process.pid}`;
  let onReport = () => {};
  const posts = { "/reports": (body) => onReport(JSON.parse(body)) };
  const server = await serve([join(root, out)], { pages: { "/": PAGE }, posts });
  try {
    await bundleForBrowser(["tests/torture/writer-page.ts", "tests/torture/writer-worker.ts"], out);
    return await withProfile(place, async (profile) => {
      const victim = new Victim(place, profile, server.url, (listener) => {
        onReport = listener;
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

  async begin(order, onReport) {
    this.#listen(onReport);
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

  /** Kills all processes of the browser at once: the browser is the leader of their process group. */
  async kill() {
    const program = this.browser?.process();
    if (program == null) return;
    const exited =
      program.exitCode === null && program.signalCode === null && once(program, "exit");
    process.kill(-program.pid, "SIGKILL");
    if (exited !== false) await inTime(exited, "a killed browser has not ended");
    await emptied(program.pid);
    await this.browser.close().catch(() => {});
    this.browser = undefined;
  }

  /** Kills all processes of the browser, for renderer victims too. */
  async close() {
    await BrowserVictim.prototype.kill.call(this);
    this.page = undefined;
  }
}

/** Kills the process of the page; the browser keeps running. */
class RendererVictim extends BrowserVictim {
  /** Opens another page in place of a crashed one. */
  async freshPage(place) {
    return this.page === undefined ? super.freshPage(place) : this.browser.newPage();
  }

  async kill() {
    if (this.page === undefined) return;
    const crashed = once(this.page, "error");
    const devtools = await this.browser.target().createCDPSession();
    // One of them is the page's. The others are spare: the browser would assign a killed one to a new page until
    // it has noticed its end, and that page would never load.
    const killed = await renderers(devtools);
    for (const id of killed) process.kill(id, "SIGKILL");
    await inTime(crashed, "a page whose process was killed has not crashed");
    await inTime(forgotten(devtools, killed), "the browser still lists killed processes");
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

/** Waits for the end of a killed process; fails after `GONE_MS`. */
function inTime(end, what) {
  let timer;
  const late = new Promise((_, reject) => {
    const seconds = GONE_MS / 1_000;
    timer = setTimeout(() => reject(new Problem(`${what} after ${seconds} s.`)), GONE_MS);
  });
  return Promise.race([end, late]).finally(() => clearTimeout(timer));
}

/** Waits until a process group is empty. */
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
