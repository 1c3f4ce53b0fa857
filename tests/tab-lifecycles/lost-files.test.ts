import { assert, describe, expect, test } from "vitest";
import { type Page, type Place, type Tabs, tabsIn } from "./tabs.js";

const LOST = { name: "FileLostError", code: "VARVE_FILE_LOST" };
const REMOVED = { ...LOST, reason: "removed" };

type Lose = (page: Page, tabs: Tabs) => Promise<unknown>;

const clear: Lose = (page, tabs) => tabs.clearData(page);
const LOSSES: Record<Place, Record<string, Lose>> = {
  chromium: {
    "with the site's data": clear,
    "by the program itself": (page) => page.evaluate("lost.removeAll()"),
  },
  // In Firefox a program cannot remove an open file.
  firefox: { "with the site's data": clear },
};

/** Calls the page's first worker. */
function ask(page: Page, ...call: string[]): Promise<unknown> {
  return page.evaluate(`lost.ask(0, ...${JSON.stringify(call)})`);
}

function askClient(page: Page, ...call: string[]): Promise<unknown> {
  return page.evaluate(`lost.client(...${JSON.stringify(call)})`);
}

/** A page whose worker has a database with a key that was flushed. */
async function written(tabs: Tabs): Promise<Page> {
  const page = await tabs.open("lost");
  await ask(page, "open");
  await ask(page, "set", "a", "flushed before");
  expect(await ask(page, "flushed")).toBe(undefined);
  return page;
}

/** Files that take the place of the removed one. */
const REPLACEMENTS: Record<string, (page: Page) => Promise<unknown>> = {
  "an empty one": (page) => page.evaluate("lost.make()"),
  async "another database"(page) {
    for (const call of [["open"], ["set", "a", "of another"], ["flushed"]]) {
      expect(await page.evaluate(`lost.ask(1, ...${JSON.stringify(call)})`)).toBe(undefined);
    }
  },
};

async function lose(page: Page, tabs: Tabs, how: Lose = clear): Promise<void> {
  await how(page, tabs);
  await page.waitForFunction("lost.isThere().then((is) => !is)");
}

/** Opens the database again, which creates a new one. */
async function openAgain(page: Page): Promise<void> {
  expect(await ask(page, "open")).toBe(undefined);
  expect(await ask(page, "get", "a")).toBe(undefined);
  await ask(page, "set", "a", "new");
  expect(await ask(page, "flushed")).toBe(undefined);
  expect(await ask(page, "close")).toBe(undefined);
}

for (const place of ["chromium", "firefox"] as const) {
  const IN = place === "chromium" ? "Chromium" : "Firefox";

  describe(`a database whose file is removed while it is open, in ${IN}`, () => {
    for (const [what, how] of Object.entries(LOSSES[place])) {
      test(`${what}, is reported by the promise of a flush, refuses writes, and can be saved`, async () => {
        const tabs = await tabsIn(place);
        const page = await written(tabs);
        await lose(page, tabs, how);
        await ask(page, "set", "b", "written after it");
        expect(await ask(page, "flushed")).toStrictEqual(REMOVED);
        expect(await ask(page, "setCommitted", "c", "refused")).toStrictEqual(REMOVED);
        expect(await ask(page, "set", "c", "refused")).toStrictEqual(REMOVED);
        expect(await ask(page, "flush")).toStrictEqual(REMOVED);
        expect(await ask(page, "flushed")).toStrictEqual(REMOVED);
        expect(await ask(page, "reported")).toStrictEqual([REMOVED]);
        expect(await ask(page, "get", "a")).toBe("flushed before");
        expect(await ask(page, "get", "c")).toBe(undefined);
        // Chromium still writes to the removed file. Firefox refuses the write, which is undone.
        const b = place === "chromium" ? { b: "written after it" } : {};
        expect(await ask(page, "saved")).toStrictEqual({ a: "flushed before", ...b });
        expect(await ask(page, "close")).toStrictEqual(REMOVED);
        // In Chromium a file that the program itself has removed stays busy.
        if (how === clear) await openAgain(page);
      });
    }

    test("is reported to onError after a write", async () => {
      const tabs = await tabsIn(place);
      const page = await written(tabs);
      await lose(page, tabs);
      await ask(page, "set", "b", "written after it");
      await page.waitForFunction(
        'lost.ask(0, "reported").then((reported) => reported.length === 1)',
      );
      expect(await ask(page, "reported")).toStrictEqual([REMOVED]);
      expect(await ask(page, "set", "c", "1")).toStrictEqual(
        place === "chromium" ? undefined : REMOVED,
      );
      expect(await ask(page, "flushed")).toStrictEqual(REMOVED);
    });

    test("is reported by a promise of earlier flushed writes", async () => {
      const tabs = await tabsIn(place);
      const page = await written(tabs);
      await lose(page, tabs);
      expect(await ask(page, "flushed")).toStrictEqual(REMOVED);
    });

    test("is reported by its close", async () => {
      const tabs = await tabsIn(place);
      const page = await written(tabs);
      await lose(page, tabs);
      expect(await ask(page, "close")).toStrictEqual(REMOVED);
    });

    for (const [what, make] of Object.entries(REPLACEMENTS)) {
      test(`is not confused with ${what} in its place`, async () => {
        const tabs = await tabsIn(place);
        const page = await written(tabs);
        await lose(page, tabs);
        await make(page);
        await ask(page, "set", "b", "written after it");
        // Firefox closes the removed file, so that the new one can be opened and is not compared with it.
        const reason = place === "chromium" ? "replaced" : "removed";
        expect(await ask(page, "flushed")).toStrictEqual({ ...LOST, reason });
        expect(await ask(page, "close")).toStrictEqual({ ...LOST, reason });
      });
    }

    test("fails for clients with that error, which still read and save, until the owner closes", async () => {
      const tabs = await tabsIn(place);
      const owner = await tabs.open("lost");
      await owner.evaluate("lost.connect()");
      await askClient(owner, "setText", "a", "flushed before");
      expect(await askClient(owner, "flush")).toBe(undefined);
      const other = await tabs.open("lost");
      await other.evaluate("lost.connect()");
      expect(await askClient(other, "getText", "a")).toBe("flushed before");
      expect(await owner.evaluate("lost.status().owner")).toBe("here");
      await lose(owner, tabs);
      await askClient(other, "setText", "b", "written after it");
      expect(await askClient(other, "flush")).toStrictEqual(REMOVED);
      for (const page of [owner, other]) {
        expect(await askClient(page, "setText", "c", "refused")).toStrictEqual(REMOVED);
        expect(await askClient(page, "getText", "a")).toBe("flushed before");
        assert(((await askClient(page, "size")) as number) > 0);
      }
      await owner.close();
      await other.waitForFunction('lost.status().owner === "here"');
      expect(await askClient(other, "getText", "a")).toBe(undefined);
      expect(await askClient(other, "setText", "a", "new")).toBe(undefined);
      expect(await askClient(other, "flush")).toBe(undefined);
    });

    test("is new for a client that closes and connects again", async () => {
      const tabs = await tabsIn(place);
      const page = await tabs.open("lost");
      await page.evaluate("lost.connect()");
      await askClient(page, "setText", "a", "flushed before");
      expect(await askClient(page, "flush")).toBe(undefined);
      await lose(page, tabs);
      expect(await askClient(page, "flush")).toStrictEqual(REMOVED);
      expect(await askClient(page, "close")).toBe(undefined);
      await page.evaluate("lost.connect()");
      expect(await askClient(page, "getText", "a")).toBe(undefined);
      expect(await askClient(page, "setText", "a", "new")).toBe(undefined);
      expect(await askClient(page, "flush")).toBe(undefined);
    });

    test("is not reported for a database that the program compacts or replaces", async () => {
      const tabs = await tabsIn(place);
      const page = await written(tabs);
      expect(await ask(page, "compact")).toBe(undefined);
      expect(await ask(page, "flushed")).toBe(undefined);
      expect(await ask(page, "replace")).toBe(undefined);
      await ask(page, "set", "b", "behind the replacement");
      expect(await ask(page, "flushed")).toBe(undefined);
      expect(await ask(page, "close")).toBe(undefined);
      expect(await ask(page, "reported")).toStrictEqual([]);
    });
  });
}
