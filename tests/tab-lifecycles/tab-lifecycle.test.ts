import { assert, describe, expect, test } from "vitest";
import type { Stream } from "./tab.js";
import { add, owns, type Page, type Place, stop, type Tabs, tabsIn } from "./tabs.js";

/** The timeout of a call, and the time allowed beyond it. */
const TIMEOUT_MS = 3_000;
const GRACE_MS = 2_000;

/** The answers after which a stream of requests is under way. */
const MORE = 20;

/** Events in the tab that has the file, while another tab sends requests all the time. */
const MISHAPS: Record<string, (owner: Page, tabs: Tabs) => Promise<unknown>> = {
  "is closed": (owner) => owner.close(),
  "is reloaded": (owner) => owner.reload(),
  "navigates away": (owner) => owner.goto("about:blank"),
  "closes its client": (owner) => owner.evaluate("tab.close()"),
  "has its process killed": async (owner, tabs) => {
    process.kill(await tabs.processOf(owner), "SIGKILL");
  },
};

async function freeze(page: Page): Promise<() => Promise<unknown>> {
  const devtools = await page.createCDPSession();
  await devtools.send("Page.setWebLifecycleState", { state: "frozen" });
  return () => devtools.send("Page.setWebLifecycleState", { state: "active" });
}

for (const place of ["chromium", "firefox"] as const) {
  describe(`tabs in ${place === "chromium" ? "Chromium" : "Firefox"}`, () => {
    test("tabs: when several open at once, one is the owner and all are answered", async () => {
      const tabs = await tabsIn(place);
      const pages = await Promise.all([tabs.open(), tabs.open(), tabs.open()]);
      const counts = await Promise.all(pages.map((page) => add(page)));
      expect(counts.sort()).toStrictEqual([1, 2, 3]);
      const owners = await Promise.all(pages.map((page) => page.evaluate("tab.status().owner")));
      expect(owners.sort()).toStrictEqual(["elsewhere", "elsewhere", "here"]);
    });

    test("tabs: closing one while it opens the database does not stop the others", async () => {
      const tabs = await tabsIn(place);
      await tabs.open("?flees");
      const stays = await tabs.open();
      expect(await add(stays)).toBe(1);
      const [, second] = await Promise.all([tabs.open("?flees"), tabs.open()]);
      await stays.close();
      expect(await add(second)).toBe(2);
    });

    test("tabs: the owner's reload makes it one tab among others", async () => {
      const tabs = await tabsIn(place);
      const first = await tabs.open();
      await add(first);
      const second = await tabs.open();
      await add(second);
      await first.reload();
      await first.waitForFunction('"tab" in globalThis');
      expect(await add(first)).toBe(3);
      expect(await add(second)).toBe(4);
      await owns(second);
    });

    test("tabs: a hot-reloaded module shares the owner", async () => {
      const tabs = await tabsIn(place);
      const page = await tabs.open();
      await add(page);
      await page.evaluate("tab.reloaded()");
      expect(await page.evaluate('hot.add("sold")')).toBe(2);
      await page.evaluate("tab.close()");
      expect(await page.evaluate('hot.add("sold")')).toBe(3);
    });

    test("tabs: a tab in the back/forward cache releases the database, and reopens it when shown again", async () => {
      const tabs = await tabsIn(place);
      // Firefox discards a page that had a worker.
      if (place === "firefox") expect((await goneAndBack(tabs)).shows).toStrictEqual([false]);
      else await kept(tabs);
    });

    for (const [owner, isOwner] of [
      ["its own worker", true],
      ["another tab's worker", false],
    ] as const) {
      test(`tabs: last-moment requests of a page to ${owner} are done once, where the browser has time for them`, async () => {
        const tabs = await tabsIn(place);
        const first = await tabs.open(isOwner ? "?asks" : "");
        await owns(first);
        const second = await tabs.open(isOwner ? "" : "?asks");
        await add(second);
        const [goes, stays] = isOwner ? [first, second] : [second, first];
        await goes.close();
        // Firefox may end a page's worker, or its process, before its last message is sent.
        if (place === "chromium") {
          await stays.waitForFunction('tab.get("last").then((is) => is === 1)');
        }
        const count = await add(stays, "last");
        assert(count <= 2 && count >= (place === "chromium" ? 2 : 1), `${count} are there`);
        expect(await add(stays)).toBe(2);
      });
    }

    for (const [what, happen] of Object.entries(MISHAPS)) {
      test(`tabs: requests are answered or rejected in bounded time when the owner ${what}`, async () => {
        const tabs = await tabsIn(place);
        const owner = await tabs.open();
        await owns(owner);
        const other = await tabs.open(`?timeout=${TIMEOUT_MS}`);
        await add(other);
        await other.evaluate("void tab.begin()");
        await answered(other);
        await happen(owner, tabs);
        await owns(other);
        await answered(other);
        const reported = (await other.evaluate("tab.end()")) as Stream;
        await settled(other, reported);
      });
    }

    test("tabs: a follower is given each commit once while tabs with the file are closed and killed", async () => {
      const tabs = await tabsIn(place);
      const first = await tabs.open();
      await owns(first);
      const second = await tabs.open();
      await add(second);
      const third = await tabs.open();
      await add(third);
      await third.evaluate("void tab.beginToFollow()");
      const more = async (count: number) => {
        const before = Number(await third.evaluate("tab.followed()"));
        await third.waitForFunction(`tab.followed() > ${before + count}`);
      };
      await more(MORE);
      process.kill(await tabs.processOf(first), "SIGKILL");
      await more(MORE);
      await second.close();
      await more(MORE);
      await owns(third);
      const [keys, count] = (await third.evaluate("tab.endToFollow()")) as [string[], number];
      expect(keys).toStrictEqual(Array.from({ length: count }, (_, i) => `key/${i}`));
    });

    for (const [owner, isOwner] of [
      ["its own page", true],
      ["another tab", false],
    ] as const) {
      test(`tabs: another owner answers when the owner runs an endless procedure for ${owner}`, async () => {
        const tabs = await tabsIn(place);
        const owner = await tabs.open();
        await owns(owner);
        const [second, third] = [await tabs.open(), await tabs.open()];
        const counts = [await add(owner), await add(second), await add(third)];
        expect(counts).toStrictEqual([1, 2, 3]);
        // A short timeout, so that its caller stops waiting soon.
        const reported = (await (isOwner ? owner : third).evaluate("tab.hang(1000)")) as string;
        expect(reported).toBe("VARVE_OWNER_UNAVAILABLE unknown");
        // The owner's page sends no requests.
        const more = await Promise.all([add(second), add(second), add(third), add(third)]);
        expect(more.sort()).toStrictEqual([4, 5, 6, 7]);
        expect(await second.evaluate('tab.text("hung")')).toBe(undefined);
        expect(await add(owner)).toBe(8);
        expect((await owner.evaluate("tab.status().owner")) as string).toStrictEqual("elsewhere");
      });
    }

    test("tabs: requests are answered during a tab's call of an endless procedure, which two owners have tried", async () => {
      const tabs = await tabsIn(place);
      const owner = await tabs.open();
      await owns(owner);
      const [second, third] = [await tabs.open(), await tabs.open()];
      expect([await add(owner), await add(second), await add(third)]).toStrictEqual([1, 2, 3]);
      await third.evaluate("void (tab.hung = tab.hang(600_000))");
      const more = await Promise.all([add(owner), add(second), add(second), add(third)]);
      expect(more.sort()).toStrictEqual([4, 5, 6, 7]);
      // Refused by a third owner, long before its timeout.
      expect(await third.evaluate("tab.hung")).toBe("VARVE_OWNER_UNAVAILABLE false");
      expect(await second.evaluate('tab.text("hung")')).toBe(undefined);
      expect(await add(third)).toBe(8);
    });

    test("tabs: a suspended owner process is reported in time, and resumes", async () => {
      await stopped(place);
    });
  });
}

/** The most attempts: a browser that is short of memory caches no page. */
const TRIES = 5;

/** The reasons of the browser itself for not caching a page. */
const ITS_OWN = "masked";

/** Navigates away and back until the browser has cached the page. Fails for a reason that the page causes. */
async function kept(tabs: Tabs): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    const { shows, reasons } = await goneAndBack(tabs, `sold ${tries}`);
    if (shows.length > 1) return expect(shows).toStrictEqual([false, true]);
    assert(reasons.length > 0 && reasons.every((one) => one === ITS_OWN), `not kept: ${reasons}`);
    assert(tries < TRIES, `not kept in ${tries} times`);
  }
}

const REASONS = `(function reasons(of) {
  return of ? [...of.reasons.map(({ reason }) => reason), ...of.children.flatMap(reasons)] : [];
})(performance.getEntriesByType("navigation")[0].notRestoredReasons)`;

/** How the owner was shown after navigating away and back, and why it was not cached if it was not. */
async function goneAndBack(tabs: Tabs, key?: string) {
  const first = await tabs.open();
  await owns(first);
  await add(first, key);
  const second = await tabs.open();
  // It asked for the lock before the first tab left: requesting a lock that a cached page's worker still
  // holds makes the browser evict that page. It sends no requests to that worker.
  expect(await add(second, key)).toBe(2);
  await first.goto(`${tabs.url}/away`);
  await owns(second);
  expect(await add(second, key)).toBe(3);
  // A page that has a lock, or gets one while it is cached, is evicted.
  await second.evaluate("navigator.locks.query().then(() => {})");
  await first.goBack();
  await first.waitForFunction('"tab" in globalThis');
  expect(await add(first, key)).toBe(4);
  expect(await first.evaluate("tab.status().owner")).toBe("elsewhere");
  const shows = (await first.evaluate("tab.shows()")) as boolean[];
  const reasons = (await first.evaluate(REASONS)) as string[];
  await Promise.all([first.close(), second.close()]);
  return { shows, reasons };
}

/** Waits until that tab's stream has had so many more answers, and so is under way. */
async function answered(page: Page): Promise<void> {
  const enough = ((await page.evaluate("tab.answered()")) as number) + MORE;
  await page.waitForFunction(`tab.answered() >= ${enough}`);
}

/** Checks that no request was lost, repeated or left without an answer. */
async function settled(page: Page, reported: Stream): Promise<void> {
  expect(reported.others).toStrictEqual([]);
  const { slowestMs, stillMs } = reported;
  assert(
    slowestMs < TIMEOUT_MS + GRACE_MS + stillMs,
    `one took ${slowestMs} ms, ${stillMs} stood still`,
  );
  assert(reported.answered > 0);
  const done = (await page.evaluate('tab.get("stream")')) as number;
  assert(done >= reported.answered, `${reported.answered} were answered, and ${done} are there`);
  assert(
    done <= reported.answered + reported.unknown,
    `${done} are there of ${reported.answered} answered`,
  );
}

/** A suspended process releases neither lock nor file, and sends no messages. */
async function stopped(place: Place): Promise<void> {
  const tabs = await tabsIn(place);
  const owner = await tabs.open();
  await add(owner);
  const other = await tabs.open("?timeout=1000");
  await add(other);
  expect(await other.evaluate("tab.status().owner")).toBe("elsewhere");
  const process_ = await tabs.processOf(owner);
  try {
    await stop(process_);
    const { code, applied, message } = (await other.evaluate('tab.failure("sold")')) as {
      code: string;
      applied: unknown;
      message: string;
    };
    expect(code).toBe("VARVE_OWNER_UNAVAILABLE");
    expect(applied).toBe("unknown");
    assert(/does not answer|another tab/i.test(message), message);
  } finally {
    process.kill(process_, "SIGCONT");
  }
  await other.waitForFunction('tab.status().state === "open"');
  const sold = await add(other);
  assert(sold === 3 || sold === 4, `${sold} are there`);
}

describe("a frozen tab in Chromium", () => {
  test("frozen tab: it resigns, and resumes when shown again", async () => {
    const tabs = await tabsIn("chromium");
    const first = await tabs.open();
    await add(first);
    const second = await tabs.open();
    await add(second);
    const thaw = await freeze(first);
    expect(await add(second)).toBe(3);
    await owns(second);
    await thaw();
    expect(await add(first)).toBe(4);
    expect(await first.evaluate("tab.status().owner")).toBe("elsewhere");
  });

  test("discarded tab: it leaves nothing open, and starts again", async () => {
    const tabs = await tabsIn("chromium");
    const first = await tabs.open();
    await add(first);
    const second = await tabs.open();
    const discarded = await tabs.processOf(first);
    await freeze(first);
    // A browser short of memory ends a tab's process without notice.
    process.kill(discarded, "SIGKILL");
    expect(await add(second)).toBe(2);
    const again = await tabs.open();
    expect(await add(again)).toBe(3);
  });
});
