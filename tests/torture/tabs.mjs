// Tabs take items from one stock while the tab that owns the database is closed, reloaded, killed and frozen.
// In the end everything is counted: no item may be lost or taken twice.
//   npm run torture:tabs [-- --in chromium,firefox] [--tabs n] [--rounds n] [--each n] [--seed n]
// The seed determines what happens to which tab; the moments are random. The results are written to
// benches/results/tabs.json.

import { rmSync } from "node:fs";
import { join } from "node:path";
import { bundleForBrowser } from "../../scripts/bundle.mjs";
import { entry, Problem, parseArguments, root, say } from "../../scripts/lib.mjs";
import { begin, keep } from "../../scripts/record.mjs";
import { serve } from "../../scripts/serve.mjs";
import { launch, withProfile } from "../browsers.mjs";
import { processOf, stop } from "../processes.mjs";

const USAGE = `npm run torture:tabs [-- --in chromium,firefox] [--tabs n] [--rounds n] [--each n] [--seed n]
  --tabs     8 when left out
  --rounds   how often something happens to the owner; 50 when left out
  --each     so many are taken for each tab, and more if the rounds last longer; 20,000 when left out`;

const PAGE = `<!doctype html><meta charset="utf-8"><title>varve tabs</title><link rel="icon" href="data:,">
<script type="module" src="/tab.js"></script>`;

const STOCK = 1_000_000;

/** The longest time of a request: the timeout of a call, and a little more. */
const LONGEST_MS = 32_000;

/** The longest pause between two mishaps. */
const PAUSE_MS = 700;

const FROZEN_MS = 1_500;

/** A driver cannot freeze a tab of Firefox, but its process can be stopped, with all of its tabs. */
const MISHAPS = {
  chromium: ["close", "reload", "kill", "freeze", "stop", "kill a worker"],
  firefox: ["close", "reload", "kill", "stop", "kill a worker"],
};

entry(async () => {
  const known = {
    "--in": "text",
    "--tabs": "count",
    "--rounds": "count",
    "--each": "count",
    "--seed": "count",
  };
  const { values } = parseArguments(process.argv.slice(2), known, USAGE);
  const platforms = values["--in"]?.split(",") ?? Object.keys(MISHAPS);
  const unknown = platforms.find((place) => !Object.hasOwn(MISHAPS, place));
  if (unknown !== undefined) throw new Problem(`${unknown} has no tabs here.\n\n${USAGE}`);
  const {
    "--tabs": tabs = 8,
    "--rounds": rounds = 50,
    "--each": each = 20_000,
    "--seed": seed = Date.now() % 1_000_000,
  } = values;
  say(`  seed ${seed}`);
  const begun = begin();
  const sum = { passed: 0, failed: 0 };
  const runs = [];
  for (const place of platforms) {
    const { passed, failed, ...reported } = await torture(place, { tabs, rounds, each, seed });
    sum.passed += passed;
    sum.failed += failed;
    runs.push({ place, ...reported });
  }
  keep("tabs", begun, { seed, tabs, rounds, each, runs });
  process.stdout.write(`${sum.passed} passed, ${sum.failed} failed, 0 skipped\n`);
  if (sum.failed > 0 || sum.passed === 0) process.exitCode = 1;
});

async function torture(place, { tabs, rounds, each, seed }) {
  const out = `.build/tests/tabs-${place}-${process.pid}`;
  const server = await serve([join(root, out)], { pages: { "/": PAGE } });
  try {
    await bundleForBrowser(["tests/torture/tab.ts", "tests/torture/tab-worker.ts"], out);
    return await withProfile(place, async (profile) => {
      const browser = await launch(place, profile);
      try {
        const tabsOfRun = new Tabs(place, browser, server.url, generator(seed));
        const reported = await tabsOfRun
          .run(tabs, rounds, each)
          .catch((error) => tabsOfRun.report(error));
        return { passed: rounds, failed: 0, version: await browser.version(), ...reported };
      } catch (error) {
        say(`FAILED ${place}: ${error.stack ?? error}`);
        say(`  again: npm run torture:tabs -- --in ${place} --tabs ${tabs} --seed ${seed}`);
        return { passed: 0, failed: 1, failure: String(error) };
      } finally {
        await browser.close();
      }
    });
  } finally {
    await server.close();
    rmSync(join(root, out), { recursive: true, force: true });
  }
}

/** The tabs of a run, those that have ended included. */
class Tabs {
  #place;
  #browser;
  #url;
  #random;
  #tabs = [];
  /** The last reports of tabs that were closed or killed. */
  #gone = [];
  #names = 0;
  #history = [];
  #longestGap = 0;

  constructor(place, browser, url, random) {
    this.#place = place;
    this.#browser = browser;
    this.#url = url;
    this.#random = random;
  }

  async run(tabs, rounds, each) {
    const start = Date.now();
    const first = await this.#open();
    await first.page.evaluate(`client.set("stock", "${STOCK}")`);
    await first.page.evaluate(`begin(${JSON.stringify(first.name)})`);
    while (this.#tabs.length < tabs) await this.#begin();
    for (let round = 0; round < rounds; round += 1) {
      await pause(this.#random(PAUSE_MS));
      const mishaps = MISHAPS[this.#place];
      await this.#happen(mishaps[this.#random(mishaps.length)]);
      while (this.#tabs.length < tabs) await this.#begin();
    }
    while ((await this.#asked()) < tabs * each) await pause(PAUSE_MS);
    return this.#count(start);
  }

  /** The number of requests of all tabs, those that have ended included. */
  async #asked() {
    const accounts = [...this.#gone];
    for (const tab of this.#tabs) accounts.push(await this.#look(tab));
    const all = accounts.flatMap((account) => Object.values(account?.asked ?? {}));
    return all.reduce((a, b) => a + b, 0);
  }

  #summary() {
    const mishaps = MISHAPS[this.#place].map((mishap) => {
      const count = this.#history.filter((one) => one.startsWith(`${mishap} tab`)).length;
      return [mishap, count];
    });
    return Object.fromEntries(mishaps);
  }

  /** Prints the state of all tabs, and throws the error again. */
  async report(error) {
    say(`  it began with: ${this.#history.join(", ")}`);
    for (const tab of this.#tabs) {
      const looked = this.#look(tab).then((account) => JSON.stringify(account));
      say(`  ${tab.name}: ${await Promise.race([looked, pause(1_000).then(() => "no answer")])}`);
    }
    throw error;
  }

  async #open() {
    const page = await this.#browser.newPage();
    this.#names += 1;
    const tab = { page, name: `tab${this.#names}`, pid: 0 };
    page.on("pageerror", (error) => say(`  [${tab.name}] ${error}`));
    await page.goto(this.#url);
    await page.waitForFunction(() => "begin" in globalThis);
    tab.pid = await processOf(this.#browser, page);
    this.#tabs.push(tab);
    return tab;
  }

  async #begin() {
    const tab = await this.#open();
    await tab.page.evaluate(`begin(${JSON.stringify(tab.name)})`);
    return tab;
  }

  /** The tab that has the file, or any while there is none. */
  async #owner() {
    const accounts = await Promise.all(this.#tabs.map((tab) => this.#look(tab)));
    const owner = this.#tabs.find((_, i) => accounts[i]?.status.owner === "here");
    return owner ?? this.#tabs[this.#random(this.#tabs.length)];
  }

  async #look(tab) {
    try {
      tab.last = await tab.page.evaluate("account()");
      return tab.last;
    } catch {
      return undefined;
    }
  }

  async #happen(mishap) {
    const owner = await this.#owner();
    this.#history.push(`${mishap} ${owner.name} ${new Date().toISOString().slice(14, 23)}`);
    const begun = Date.now();
    switch (mishap) {
      case "close":
        await this.#leave(owner);
        await owner.page.close();
        break;
      case "reload":
        await this.#leave(owner);
        await owner.page.reload();
        await owner.page.waitForFunction(() => "begin" in globalThis);
        await this.#again(owner);
        break;
      case "kill":
        await this.#kill(owner);
        break;
      case "stop":
        await this.#stop(owner);
        break;
      case "kill a worker":
        await owner.page.evaluate("killWorker()");
        break;
      default:
        await this.#freeze(owner);
        break;
    }
    await this.#answered(begun);
  }

  /** Waits until a tab gets an answer again, and measures the time since the mishap. */
  async #answered(begun) {
    const [tab] = this.#tabs;
    if (tab === undefined) return;
    await tab.page.evaluate('client.get("stock", { timeout: 60000 })');
    this.#longestGap = Math.max(this.#longestGap, Date.now() - begun);
  }

  /** Removes a tab, and keeps its last report. */
  async #leave(tab) {
    await this.#look(tab);
    this.#tabs.splice(this.#tabs.indexOf(tab), 1);
    this.#gone.push(tab.last);
  }

  /** Starts the same page again under another name. */
  async #again(tab) {
    this.#names += 1;
    const next = { ...tab, name: `tab${this.#names}` };
    this.#tabs.push(next);
    await next.page.evaluate(`begin(${JSON.stringify(next.name)})`);
  }

  /** Kills its process, and with it all tabs of that process. */
  async #kill({ pid }) {
    const killed = this.#tabs.filter((tab) => tab.pid === pid);
    for (const tab of killed) await this.#leave(tab);
    process.kill(pid, "SIGKILL");
    await pause(50);
    for (const { page } of killed) await Promise.race([page.close().catch(() => {}), pause(1_000)]);
  }

  /** Suspends its process for a while. */
  async #stop({ pid }) {
    await stop(pid);
    await pause(this.#random(FROZEN_MS));
    process.kill(pid, "SIGCONT");
  }

  async #freeze(tab) {
    const devtools = await tab.page.createCDPSession();
    await devtools.send("Page.setWebLifecycleState", { state: "frozen" });
    await pause(this.#random(FROZEN_MS));
    await devtools.send("Page.setWebLifecycleState", { state: "active" });
    await devtools.detach();
  }

  /** Ends all tabs, and compares the answers that they got with the contents of the database. */
  async #count(start) {
    const ended = await Promise.all(this.#tabs.map(({ page }) => page.evaluate("end()")));
    const found = await this.#tabs[0].page.evaluate("found()");
    const { stock, twice, marks, own, declared } = found;
    expect(twice === 0, `${twice} were taken twice`);
    expect(STOCK - stock === marks.length, `${STOCK - stock} taken, and ${marks.length} marks`);
    const taken = new Map();
    for (const mark of marks) {
      const [, name, form] = mark.split("/");
      taken.set(`${name}/${form}`, (taken.get(`${name}/${form}`) ?? 0) + 1);
    }
    for (const [name, count] of own) taken.set(`${name}/update`, count);
    for (const [name, count] of declared) taken.set(`${name}/declared`, count);
    const there = (account, form) => taken.get(`${account.name}/${form}`) ?? 0;
    for (const account of ended) {
      expect(account.failures.length === 0, account.failures.join("\n"));
      expect(account.slowestMs <= LONGEST_MS, `a call took ${account.slowestMs} ms`);
      for (const [form, answered] of Object.entries(account.answered)) {
        const is = there(account, form);
        expect(is === answered, `${account.name}, ${form}: ${answered} answered, ${is} there`);
      }
    }
    for (const account of this.#gone.filter((one) => one !== undefined)) {
      for (const [form, answered] of Object.entries(account.answered)) {
        const is = there(account, form);
        expect(is >= answered, `${account.name}, ${form}: ${answered} answered, only ${is} there`);
      }
    }
    const refused = ended.reduce((sum, account) => sum + account.refused, 0);
    const slowest = Math.max(...ended.map(({ slowestMs }) => slowestMs));
    const all = [...taken.values()].reduce((a, b) => a + b, 0);
    const forms = {};
    for (const [key, count] of taken) {
      const form = key.slice(key.indexOf("/") + 1);
      forms[form] = (forms[form] ?? 0) + count;
    }
    const mishaps = this.#summary();
    const seconds = Math.round((Date.now() - start) / 1_000);
    const happened = Object.entries(mishaps).map((one) => one.join(" "));
    say(
      `  ${this.#place}: ${ended.length} tabs, ${happened.join(", ")}; ${all} taken, each once, ${refused} given up after conflicts; the slowest call ` +
        `${slowest} ms, the longest until answered again ${this.#longestGap} ms (${seconds} s)`,
    );
    const tabsStarted = ended.length + this.#gone.length;
    const longestGapMs = this.#longestGap;
    return {
      tabsStarted,
      mishaps,
      taken: all,
      forms,
      refused,
      slowestMs: slowest,
      longestGapMs,
      seconds,
    };
  }
}

function expect(holds, message) {
  if (!holds) throw new Error(message);
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** The same seed, the same numbers below a bound. */
function generator(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}
