import type { Page } from "playwright-core";
import { assert, describe, expect, test } from "vitest";
import { WORKLOADS } from "../../demo/race/plan.js";
import { startPrivateChromium, TIMEOUT_MS } from "./chromium.js";
import { appendTo, type Setup, seriousFaults, visit, WATCH_SHIFTS } from "./visit.js";

/** The page of demo/ in a real Chromium. */

/** Appends a script to the worker, to simulate a browser with a defect. */
function appendToWorker(script: string): Setup {
  return appendTo("worker.js", script);
}

/** Leaves only these stores and workloads checked. */
async function choose(page: Page, stores: string[], workloads: string[]): Promise<void> {
  await page.evaluate(
    ({ wanted }) => {
      for (const box of document.querySelectorAll<HTMLInputElement>("#choice input")) {
        box.checked = wanted.includes(box.value);
      }
    },
    { wanted: [...stores, ...workloads] },
  );
}

async function verdict(page: Page): Promise<string | null> {
  const status = page.locator("#status[data-verdict]");
  await status.waitFor();
  return status.getAttribute("data-verdict");
}

interface ShownRow {
  workload: string;
  store: string;
  outcome: string;
  cells: string[];
}

function shownRows(page: Page): Promise<ShownRow[]> {
  return page.evaluate(() =>
    [...document.querySelectorAll<HTMLTableRowElement>(".panel:not([hidden]) tbody tr")].map(
      (row) => ({
        workload: row.closest("[data-workload]")?.getAttribute("data-workload") ?? "",
        store: row.getAttribute("data-store") ?? "",
        outcome: row.getAttribute("data-outcome") ?? "",
        cells: [...row.cells].map((cell) => cell.textContent ?? ""),
      }),
    ),
  );
}

const QUICK = WORKLOADS.filter(({ quick }) => quick).map(({ id }) => id);
const STORES = ["varve", "sqlite", "indexeddb", "dexie", "idb-keyval", "localforage", "map"];

describe("the race", () => {
  test("is run by keyboard, ends with equal contents of all stores, and its results can be sorted, read and sent", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page, url, errors, received } = await visit(async (browser) => {
      await browser.addInitScript(WATCH_SHIFTS);
      await browser.grantPermissions(["clipboard-read", "clipboard-write"]);
    });
    const first = received();
    assert(first > 0 && first < 100_000, `${first} bytes before an engine is loaded`);
    expect(await seriousFaults(page), "before the race").toStrictEqual([]);

    await page.focus("#quick");
    const start = Date.now();
    await page.keyboard.press("Enter");
    await page.locator("#stop").waitFor();
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("stop");
    assert(await page.locator("#pause").isVisible(), "there is a way to pause while it runs");
    expect(await verdict(page)).toBe("equal");
    const seconds = (Date.now() - start) / 1_000;
    assert(seconds < 60, `a quick look took ${seconds} seconds, also on a busy machine`);
    expect(await page.evaluate(() => document.activeElement?.id), "where it was").toBe("quick");

    const rows = await shownRows(page);
    expect(rows.length).toBe(10 * QUICK.length);
    for (const { workload, store, outcome, cells } of rows) {
      const hasNone = workload === "range" && ["idb-keyval", "localforage", "map"].includes(store);
      expect(outcome, `${workload}, ${store}: ${cells.join(" ")}`).toBe(
        hasNone ? "absent" : "measured",
      );
      const isTime = /^[\d.,]+ (ns|µs|ms|s)$/.test(cells[3] ?? "");
      expect(isTime, `${workload}, ${store}: ${cells[3]}`).toBe(!hasNone);
    }
    const shifted = await page.evaluate(() => (window as unknown as { shifted: number }).shifted);
    assert(shifted < 0.05, `the layout shifted by ${shifted}`);

    await page.locator("[data-workload=get-random] th.p50 button").press("Enter");
    const sorted = await page.evaluate(() => ({
      sort: document.querySelector("[data-workload=get-random] th.p50")?.getAttribute("aria-sort"),
      first: document
        .querySelector("[data-workload=get-random] tbody tr")
        ?.getAttribute("data-store"),
    }));
    expect(sorted).toStrictEqual({ sort: "ascending", first: "map" });

    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await seriousFaults(page), colorScheme).toStrictEqual([]);
    }
    await page.click("#copy-link");
    await page.locator("#copy-link", { hasText: "Copied" }).waitFor();
    const link = await page.evaluate(() => navigator.clipboard.readText());
    assert(link.startsWith(`${url}/#race=`), link);
    for (const width of [360, 768, 1024, 2560]) {
      await page.setViewportSize({ width, height: 800 });
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(wide, "nothing sticks out").toBe(width);
    }
    expect(errors).toStrictEqual([]);

    const cut = await page.context().newPage();
    await cut.goto(link.slice(0, link.length / 2));
    await cut.locator("#error:not([hidden])", { hasText: "is cut off or damaged" }).waitFor();

    const other = await page.context().newPage();
    await other.goto(link);
    await other.locator("#source", { hasText: "From the link" }).waitFor();
    const sent = await shownRows(other);
    const byOrder = (all: ShownRow[]) => all.map((row) => JSON.stringify(row)).sort();
    expect(byOrder(sent)).toStrictEqual(byOrder(await shownRows(page)));
  });

  test("is paused, goes on, is stopped, and runs again on what was left behind", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await visit();
    await choose(
      page,
      ["varve", "sqlite", "indexeddb"],
      ["get-random", "update-random", "load-random"],
    );
    await page.click("#full");
    await page.waitForFunction(() => (document.querySelector("progress")?.value ?? 0) > 0.02);
    await page.click("#pause");
    expect(await page.locator("#status").textContent()).toBe("Paused.");
    // The turn that has begun ends.
    await page.waitForTimeout(3_000);
    const doing = await page.locator("#doing").textContent();
    await page.waitForTimeout(1_000);
    expect(await page.locator("#doing").textContent(), "nothing goes on").toBe(doing);
    await page.click("#pause");
    await page.waitForFunction(
      (before) => document.querySelector("#doing")?.textContent !== before,
      doing,
    );
    await page.click("#stop");
    expect(await verdict(page)).toBe("stopped");
    expect(await page.locator("#doing").textContent()).toBe("Stopped.");
    assert(await page.locator("#quick").isVisible());
    await page.click("#quick");
    expect(await verdict(page)).toBe("equal");
  });

  test("pauses while its tab is in the background, and says so", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await visit();
    const setHidden = (hidden: boolean) =>
      page.evaluate((value) => {
        Object.defineProperty(document, "hidden", { configurable: true, value });
        document.dispatchEvent(new Event("visibilitychange"));
      }, hidden);
    await choose(page, ["varve", "map"], ["get-random", "update-random"]);
    await page.click("#quick");
    await page.waitForFunction(() => (document.querySelector("progress")?.value ?? 0) > 0);
    await setHidden(true);
    assert(/in the background/.test((await page.locator("#status").textContent()) ?? ""));
    assert(/in the background/.test((await page.locator("#notes").textContent()) ?? ""));
    await page.waitForTimeout(1_000);
    expect(await page.locator("#status").getAttribute("data-verdict")).toBe(null);
    await setHidden(false);
    expect(await verdict(page)).toBe("equal");
  });

  test("says that a window is private, where storage is in memory", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await visit(undefined, startPrivateChromium);
    await choose(page, ["map"], ["get-random"]);
    await page.click("#quick");
    expect(await verdict(page)).toBe("equal");
    assert(/private window/.test((await page.locator("#notes").textContent()) ?? ""));

    const ordinary = await visit();
    await choose(ordinary.page, ["map"], ["get-random"]);
    await ordinary.page.click("#quick");
    expect(await verdict(ordinary.page)).toBe("equal");
    expect(await ordinary.page.locator("#notes").textContent()).toBe("");
  });

  test("names the missing feature in a browser without a private file system", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await visit(async (browser) => {
      await browser.addInitScript(() => {
        Object.defineProperty(StorageManager.prototype, "getDirectory", { value: undefined });
      });
    });
    await page.click("#quick");
    const error = page.locator("#error:not([hidden])");
    await error.waitFor();
    assert(/private file system/.test((await error.textContent()) ?? ""));
    expect(await error.getAttribute("role")).toBe("alert");
    assert(await page.locator("#quick").isVisible(), "one may try again");
  });

  test("names a store that fails, and goes on with the others", {
    timeout: 2 * TIMEOUT_MS,
  }, async () => {
    const { page } = await visit(
      appendToWorker("IDBFactory.prototype.open = () => { throw new Error('no room for it'); };"),
    );
    await choose(page, STORES, ["get-random"]);
    await page.click("#quick");
    expect(await verdict(page)).toBe("unequal");
    const rows = await shownRows(page);
    const outcomes = Object.fromEntries(rows.map(({ store, outcome }) => [store, outcome]));
    for (const store of ["varve", "sqlite", "map"]) expect(outcomes[store], store).toBe("measured");
    const failed = rows.filter(({ store }) => store === "indexeddb");
    assert(
      /^failed: .*no room for it/.test(failed[0]?.cells.at(-1) ?? ""),
      String(failed[0]?.cells),
    );
  });

  test("has no times of a store that loses a record", { timeout: 2 * TIMEOUT_MS }, async () => {
    // One of the new records is not stored.
    const { page } = await visit(
      appendToWorker(`
        const put = IDBObjectStore.prototype.put;
        IDBObjectStore.prototype.put = function (value, key) {
          return key === "user000000002007" ? this.get(key) : put.call(this, value, key);
        };`),
    );
    await choose(page, ["varve", "indexeddb", "map"], ["load-sequential"]);
    await page.click("#quick");
    expect(await verdict(page)).toBe("unequal");
    const rows = await shownRows(page);
    const lost = rows.find(({ store }) => store === "indexeddb");
    expect(lost?.outcome).toBe("void");
    expect(lost?.cells[3]).toBe("–");
    assert(/1,199 records, and expected were 1,200 records/.test(lost?.cells.at(-1) ?? ""));
    expect(rows.find(({ store }) => store === "varve")?.outcome).toBe("measured");
  });
});
