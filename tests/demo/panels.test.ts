import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";
import { startChromium, TIMEOUT_MS } from "./chromium.js";
import {
  appendTo,
  replaceIn,
  type Setup,
  seriousFaults,
  type Visit,
  visit,
  WATCH_SHIFTS,
} from "./visit.js";

/** The panels beside the race: the product drop and the crashes. */

function open(panel: string, setup?: Setup): Promise<Visit> {
  return visit(setup, startChromium, `#${panel}`);
}

function textOf(page: Page, id: string): Promise<string> {
  return page.locator(`#${id}`).innerText();
}

/** The number that an element shows. */
async function numberOf(page: Page, id: string): Promise<number> {
  return Number((await textOf(page, id)).replaceAll(",", ""));
}

/** The states of a list of checks, once none is open. */
async function checked(page: Page, id: string): Promise<(string | null)[]> {
  await page.waitForFunction(
    (list) => document.querySelectorAll(`#${list} [data-state=open]`).length === 0,
    id,
  );
  const items = await page.locator(`#${id} li`).all();
  return Promise.all(items.map((item) => item.getAttribute("data-state")));
}

const ALL_HOLD = ["ok", "ok", "ok"];

async function waitForLeft(page: Page, less: number): Promise<void> {
  await page.waitForFunction((limit) => {
    const text = document.getElementById("drop-left")?.textContent ?? "–";
    return Number(text.replaceAll(",", "")) < limit;
  }, less);
}

/** The rows of "Who bought": name, bought, answered. */
function boughtRows(page: Page): Promise<{ name: string; bought: number; answered: number }[]> {
  return page.evaluate(() =>
    [...document.querySelectorAll<HTMLTableRowElement>("#drop-tabs tr")].map((row) => {
      const [name = "", bought = "", answered = ""] = [...row.cells].map((one) => one.innerText);
      const number = (text: string) => Number(text.replaceAll(",", ""));
      return { name, bought: number(bought), answered: number(answered) };
    }),
  );
}

async function waitForOwners(page: Page, text: RegExp): Promise<void> {
  await page.locator("#drop-owners li", { hasText: text }).first().waitFor();
}

describe("the product drop on the page", () => {
  test("sells one stock from two tabs exactly, while each of them loses its worker and the owner's tab is closed", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page: a, errors } = await open("drop");
    await a.locator("#drop-owner", { hasText: "tab A (this)" }).waitFor();
    const opened = a.context().waitForEvent("page");
    await a.click("#drop-another");
    const b = await opened;
    b.on("pageerror", (error) => errors.push(String(error)));
    await b.locator("#drop-owner", { hasText: "tab A" }).waitFor();
    expect(await textOf(b, "drop-tab")).toBe("tab B");

    await b.focus("#drop-start");
    await b.keyboard.press("Enter");
    await waitForLeft(a, 4_500);
    await b.focus("#drop-kill");
    await b.keyboard.press("Enter");
    expect(await b.evaluate(() => document.activeElement?.id), "keeps the focus").toBe("drop-kill");
    await waitForOwners(b, /worker of tab A was killed; .* answered after [\d.,]+ ms/);
    await waitForLeft(a, 3_500);
    await a.click("#drop-kill");
    await a.locator("#drop-owners li:nth-child(2)", { hasText: "was killed" }).waitFor();
    for (const page of [a, b]) {
      expect(await checked(page, "drop-checks")).toStrictEqual(ALL_HOLD);
      expect(await numberOf(page, "drop-left")).toBe(0);
    }
    const rows = await boughtRows(a);
    expect(rows.map(({ name }) => name.slice(0, 5)).sort()).toStrictEqual(["Tab A", "Tab B"]);
    expect(rows.reduce((sum, { bought }) => sum + bought, 0)).toBe(5_000);
    for (const { name, bought, answered } of rows) {
      assert(bought > 0, `${name} has bought`);
      expect(answered, name).toBe(bought);
    }

    // Once more; in the middle the tab that owns the file is closed.
    await a.click("#drop-start");
    // None are left of the first drop.
    await b.waitForFunction(() => document.getElementById("drop-left")?.textContent !== "0");
    await waitForLeft(b, 4_500);
    const isA = /\(this\)/.test(await textOf(a, "drop-owner"));
    const [owner, other] = isA ? [a, b] : [b, a];
    await owner.close();
    await waitForOwners(other, /took over from tab [AB], which ended/);
    expect(await checked(other, "drop-checks")).toStrictEqual(ALL_HOLD);
    const left = await boughtRows(other);
    expect(left.reduce((sum, { bought }) => sum + bought, 0)).toBe(5_000);
    const closed = left.filter(({ name }) => name.includes("(closed)"));
    expect(closed.length).toBe(1);
    expect(errors).toStrictEqual([]);
  });

  test("goes on after a reload, and is exact when it is stopped", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page, errors } = await open("drop");
    await page.click("#drop-start");
    await waitForLeft(page, 4_800);
    await page.reload();
    await page.locator("#drop-start", { hasText: "Go on with the drop" }).waitFor();
    const before = await numberOf(page, "drop-left");
    await page.click("#drop-start");
    await waitForLeft(page, before);
    await page.click("#drop-start");
    expect(await checked(page, "drop-checks")).toStrictEqual(ALL_HOLD);
    const left = await numberOf(page, "drop-left");
    const rows = await boughtRows(page);
    expect(left + rows.reduce((sum, { bought }) => sum + bought, 0)).toBe(5_000);
    expect(errors).toStrictEqual([]);
  });

  test("says so if a pair is lost", { timeout: 2 * TIMEOUT_MS }, async () => {
    // A worker that now and then takes two pairs and sells one.
    const { page } = await open(
      "drop",
      replaceIn("drop-db.js", ".stock-=1", ".stock-=1+(Math.random()<0.01)"),
    );
    await page.click("#drop-start");
    await page.locator("#drop-checks [data-state=failed]", { hasText: "is not" }).waitFor();
  });
});

describe("the worker that dies", () => {
  test("has left every commit that it acknowledged, once by keyboard and ten times at random", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page, errors } = await open("plug");
    await page.focus("#plug-pull");
    await page.keyboard.press("Enter");
    await page.locator("#plug-pull", { hasText: "Pull the plug" }).waitFor();
    await page.keyboard.press("Enter");
    expect(await checked(page, "plug-checks")).toStrictEqual(ALL_HOLD);
    const [acknowledged, found] = [
      await numberOf(page, "plug-acknowledged"),
      await numberOf(page, "plug-found"),
    ];
    assert(acknowledged > 0 && found >= acknowledged, `${acknowledged} and ${found}`);
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("plug-pull");

    await page.selectOption("#plug-durability", "flushed");
    await page.click("#plug-ten");
    await page.locator("#plug-status", { hasText: "Ten workers were ended" }).waitFor();
    expect(await checked(page, "plug-checks")).toStrictEqual(ALL_HOLD);
    assert(/^Pulled 11 times: 11 exact\./.test(await textOf(page, "plug-rounds")));
    assert((await numberOf(page, "plug-acknowledged")) > acknowledged);
    expect(errors).toStrictEqual([]);
  });

  test("is caught if it acknowledges a commit that it did not make", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await open(
      "plug",
      appendTo(
        "plug-writer.js",
        `{ const post = MessagePort.prototype.postMessage;
           MessagePort.prototype.postMessage = function (message) {
             const more = message.kind === "acknowledged" ? 1_000_000 : 0;
             post.call(this, { ...message, commits: message.commits + more });
           }; }`,
      ),
    );
    await page.click("#plug-pull");
    await page.locator("#plug-pull", { hasText: "Pull the plug" }).waitFor();
    await page.click("#plug-pull");
    expect(await checked(page, "plug-checks")).toStrictEqual(["failed", "ok", "ok"]);
    assert(/^Pulled 1 time: 0 exact\./.test(await textOf(page, "plug-rounds")));
  });
});

/** Moves the slider, and returns what is there after opening again: the last commits flushed, acknowledged and found. */
async function crashAt(page: Page, at: number, unflushed: string): Promise<number[]> {
  await page.check(`#disk-unflushed [value=${unflushed}]`);
  await page.locator("#disk-at").fill(String(at));
  await page.locator(`#disk-picture[data-shown^="${at} ${unflushed} "]`).waitFor();
  expect(await checked(page, "disk-checks"), `${at}, ${unflushed}`).toStrictEqual(ALL_HOLD);
  const summary = await textOf(page, "disk-summary");
  const last = [
    /flushed: ([^.]+)\./,
    /Acknowledged: ([^.]+)\./,
    /after opening again: ([^.]+)\./,
  ].map((one) => Number(one.exec(summary)?.[1]?.replace("none", "0").replace("1 to ", "")));
  expect(last.filter(Number.isNaN), summary).toStrictEqual([]);
  return last;
}

function sectorsOf(page: Page, state: string): Promise<number> {
  return page.locator(`#disk-picture [data-state=${state}]`).count();
}

describe("the disk that loses power", () => {
  test("has all flushed commits wherever the slider stands, and shows which sectors it held", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page, errors } = await open("plug");
    await page.locator("#disk-at:not([disabled])").waitFor();
    const steps = Number(await page.locator("#disk-at").getAttribute("max"));
    for (const at of [0, 1, 5, 17, 30, 44, 59, 71, steps]) {
      const [flushed, acknowledged, found] = await crashAt(page, at, "none");
      assert(found! >= flushed!, `${found} of ${flushed}`);
      expect(await sectorsOf(page, "kept"), "none is kept").toBe(0);
      const all = await crashAt(page, at, "all");
      assert(all[2]! >= acknowledged!, `all ${acknowledged} are kept, and ${all[2]} found`);
      expect(await sectorsOf(page, "lost"), "none is lost").toBe(0);
      const some = await crashAt(page, at, "some");
      assert(some[2]! >= flushed!, `${some[2]} of ${flushed}`);
      expect(some.slice(0, 2)).toStrictEqual([flushed, acknowledged]);
    }
    for (let seed = 2; seed <= 6; seed++) {
      await page.locator("#disk-at").fill("66");
      await page.click("#disk-draw");
      await page.locator(`#disk-picture[data-shown="66 some ${seed}"]`).waitFor();
      expect(await checked(page, "disk-checks"), `draw ${seed}`).toStrictEqual(ALL_HOLD);
    }
    expect(await crashAt(page, steps, "none"), "all are flushed").toStrictEqual([18, 18, 18]);
    expect(await page.locator("#disk-commits [data-there=true]").count()).toBe(18);
    const label = await page.locator("#disk-picture").getAttribute("aria-label");
    assert(
      /^Of \d+ sectors: \d+ flushed, 0 not flushed but kept, 0 lost, 0 not written yet\.$/.test(
        label ?? "",
      ),
      String(label),
    );

    await page.focus("#disk-at");
    await page.keyboard.press("ArrowLeft");
    await page.locator("#disk-step", { hasText: `${steps - 1} of` }).waitFor();
    const spoken = await page.locator("#disk-at").getAttribute("aria-valuetext");
    assert(
      spoken?.startsWith(`step ${steps - 1} of ${steps}. Acknowledged as flushed: 1 to 15.`),
      String(spoken),
    );

    await page.click("#disk-sweep");
    await page.locator("#disk-status", { hasText: "disks" }).waitFor();
    expect(await textOf(page, "disk-status")).toBe(
      `${3 * (steps + 1)} disks were opened: each had all flushed commits, and no commit in part.`,
    );
    expect(errors).toStrictEqual([]);
  });

  test("is caught if it drops a sector that was flushed", { timeout: 2 * TIMEOUT_MS }, async () => {
    const { page } = await open(
      "plug",
      appendTo(
        "plug-disk.js",
        `{ const set = Map.prototype.set;
           Map.prototype.set = function (key, value) {
             const isLost = key === 20 && value instanceof Uint8Array && value.length === 512;
             return isLost ? this : set.call(this, key, value);
           }; }`,
      ),
    );
    await page.locator("#disk-checks [data-state=failed]").first().waitFor();
    expect((await checked(page, "disk-checks"))[0]).toBe("failed");
    await page.click("#disk-sweep");
    await page.locator("#disk-status", { hasText: /disks failed\. The first: step \d+/ }).waitFor();
  });
});

describe("the panels", () => {
  for (const panel of ["drop", "plug"]) {
    test(`${panel}: stands in any window, moves nothing, and axe finds no serious fault`, {
      timeout: 2 * TIMEOUT_MS,
    }, async () => {
      const { page, errors } = await open(panel, async (browser) => {
        await browser.addInitScript(WATCH_SHIFTS);
      });
      const button = panel === "drop" ? "#drop-start" : "#plug-pull";
      const list = panel === "drop" ? "drop-checks" : "plug-checks";
      await page.locator(button).click();
      if (panel === "drop") await waitForLeft(page, 4_900);
      else await page.locator(button, { hasText: "Pull the plug" }).waitFor();
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        expect(await seriousFaults(page), `${colorScheme}, at work`).toStrictEqual([]);
      }
      await page.click(button);
      expect(await checked(page, list)).toStrictEqual(ALL_HOLD);
      const shifted = await page.evaluate(() => (window as unknown as { shifted: number }).shifted);
      assert(shifted < 0.05, `the layout shifted by ${shifted}`);
      for (const summary of await page.locator(`#${panel} .code summary`).all()) {
        await summary.press("Enter");
      }
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        expect(await seriousFaults(page), `${colorScheme}, at the end`).toStrictEqual([]);
      }
      for (const width of [360, 768, 1024, 1600, 2560]) {
        await page.setViewportSize({ width, height: 800 });
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        expect(wide, "nothing sticks out").toBe(width);
      }
      expect(errors).toStrictEqual([]);
    });

    test(`${panel}: shows the code that runs, and copies it`, {
      timeout: 2 * TIMEOUT_MS,
    }, async () => {
      const { page } = await open(panel, async (browser) => {
        await browser.grantPermissions(["clipboard-read", "clipboard-write"]);
      });
      await page.locator(`#${panel} .code`).waitFor();
      const blocks = await page.locator(`#${panel} .code details`).all();
      assert(blocks.length >= 2);
      for (const block of blocks) {
        const name = await block.locator("pre").getAttribute("aria-label");
        const path = join(context().root, "demo/panels", panel, name ?? "");
        const source = readFileSync(path, "utf8");
        expect(await block.locator("code").textContent()).toBe(source);
        await block.locator("summary").click();
        await block.locator("button").click();
        await block.locator("button", { hasText: "Copied" }).waitFor();
        expect(await page.evaluate(() => navigator.clipboard.readText())).toBe(source);
      }
    });
  }

  test("say what is missing in a browser without a private file system", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const none = `Object.defineProperty(StorageManager.prototype, "getDirectory", { value: undefined });`;
    const { page, url } = await open("drop", async (browser) => {
      await appendTo("drop-db.js", none)(browser);
      await appendTo("plug-writer.js", none)(browser);
    });
    const missing = /^That failed: StorageUnavailableError: .*private file system/;
    await page.click("#drop-start");
    await page.locator("#drop-status", { hasText: missing }).waitFor();
    await page.goto(`${url}/#plug`);
    await page.click("#plug-pull");
    await page.locator("#plug-status", { hasText: missing }).waitFor();
    expect(await textOf(page, "plug-pull"), "one may try again").toBe("Start writing");
  });

  test("are loaded when they are first shown, and the address names the one that is shown", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page, errors } = await visit();
    const shown = () =>
      page.evaluate(() => ({
        views: [...document.querySelectorAll<HTMLElement>(".view")]
          .filter((view) => view.offsetParent !== null)
          .map(({ id }) => id),
        current: document.querySelector("nav [aria-current]")?.textContent,
      }));
    expect(await shown()).toStrictEqual({ views: ["race"], current: "Race" });
    expect(await page.locator("#drop .mount > *").count(), "not loaded yet").toBe(0);
    await page.getByRole("link", { name: "Product drop" }).press("Enter");
    await page.locator("#drop-start").waitFor();
    expect(await shown()).toStrictEqual({ views: ["drop"], current: "Product drop" });
    expect(await page.title()).toBe("Product drop, live · varve");
    expect(await page.evaluate(() => scrollY), "the top is in sight").toBe(0);
    await page.getByRole("link", { name: "Pull the plug" }).click();
    await page.locator("#plug-pull").waitFor();
    expect(await shown()).toStrictEqual({ views: ["plug"], current: "Pull the plug" });
    await page.goBack();
    await page.goBack();
    expect(await shown()).toStrictEqual({ views: ["race"], current: "Race" });
    expect(errors).toStrictEqual([]);
  });
});
