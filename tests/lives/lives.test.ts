import { deepEqual, equal, ok, suite, test } from "../harness.js";
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
  suite(`tabs in ${place === "chromium" ? "Chromium" : "Firefox"}`, () => {
    test("tabs: when several open at once, one is the owner and all are answered", async () => {
      const tabs = await tabsIn(place);
      const pages = await Promise.all([tabs.open(), tabs.open(), tabs.open()]);
      const counts = await Promise.all(pages.map((page) => add(page)));
      deepEqual(counts.sort(), [1, 2, 3]);
      const owners = await Promise.all(pages.map((page) => page.evaluate("tab.status().owner")));
      deepEqual(owners.sort(), ["elsewhere", "elsewhere", "here"]);
    });

    test("tabs: closing one while it opens the database does not stop the others", async () => {
      const tabs = await tabsIn(place);
      await tabs.open("?flees");
      const stays = await tabs.open();
      equal(await add(stays), 1);
      const [, second] = await Promise.all([tabs.open("?flees"), tabs.open()]);
      await stays.close();
      equal(await add(second), 2);
    });

    test("tabs: the owner's reload makes it one tab among others", async () => {
      const tabs = await tabsIn(place);
      const first = await tabs.open();
      await add(first);
      const second = await tabs.open();
      await add(second);
      await first.reload();
      await first.waitForFunction('"tab" in globalThis');
      equal(await add(first), 3);
      equal(await add(second), 4);
      await owns(second);
    });

    test("tabs: a hot-reloaded module shares the owner", async () => {
      const tabs = await tabsIn(place);
      const page = await tabs.open();
      await add(page);
      await page.evaluate("tab.reloaded()");
      equal(await page.evaluate('hot.add("sold")'), 2);
      await page.evaluate("tab.close()");
      equal(await page.evaluate('hot.add("sold")'), 3);
    });

    test("tabs: a tab in the back/forward cache releases the database, and reopens it when shown again", async () => {
      const tabs = await tabsIn(place);
      // Firefox discards a page that had a worker.
      if (place === "firefox") deepEqual((await goneAndBack(tabs)).shows, [false]);
      else await kept(tabs);
    });

    for (const [whose, isOwner] of [
      ["its own worker", true],
      ["another tab's worker", false],
    ] as const) {
      test(`tabs: last-moment requests of a page to ${whose} are done once, where the browser has time for them`, async () => {
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
        ok(count <= 2 && count >= (place === "chromium" ? 2 : 1), `${count} are there`);
        equal(await add(stays), 2);
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
        const told = (await other.evaluate("tab.end()")) as Stream;
        await settled(other, told);
      });
    }

    for (const [whose, isOwner] of [
      ["its own page", true],
      ["another tab", false],
    ] as const) {
      test(`tabs: another owner answers when the owner runs an endless procedure for ${whose}`, async () => {
        const tabs = await tabsIn(place);
        const owner = await tabs.open();
        await owns(owner);
        const [second, third] = [await tabs.open(), await tabs.open()];
        const counts = [await add(owner), await add(second), await add(third)];
        deepEqual(counts, [1, 2, 3]);
        // A short timeout, so that its caller stops waiting soon.
        const told = (await (isOwner ? owner : third).evaluate("tab.hang(1000)")) as string;
        equal(told, "VARVE_OWNER_UNAVAILABLE unknown");
        // The owner's page sends no requests.
        const more = await Promise.all([add(second), add(second), add(third), add(third)]);
        deepEqual(more.sort(), [4, 5, 6, 7]);
        equal(await second.evaluate('tab.text("hung")'), undefined);
        equal(await add(owner), 8);
        deepEqual((await owner.evaluate("tab.status().owner")) as string, "elsewhere");
      });
    }

    test("tabs: requests are answered during a tab's call of an endless procedure, which two owners have tried", async () => {
      const tabs = await tabsIn(place);
      const owner = await tabs.open();
      await owns(owner);
      const [second, third] = [await tabs.open(), await tabs.open()];
      deepEqual([await add(owner), await add(second), await add(third)], [1, 2, 3]);
      await third.evaluate("void (tab.hung = tab.hang(600_000))");
      const more = await Promise.all([add(owner), add(second), add(second), add(third)]);
      deepEqual(more.sort(), [4, 5, 6, 7]);
      // Refused by a third owner, long before its timeout.
      equal(await third.evaluate("tab.hung"), "VARVE_OWNER_UNAVAILABLE false");
      equal(await second.evaluate('tab.text("hung")'), undefined);
      equal(await add(third), 8);
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
    if (shows.length > 1) return deepEqual(shows, [false, true]);
    ok(reasons.length > 0 && reasons.every((one) => one === ITS_OWN), `not kept: ${reasons}`);
    ok(tries < TRIES, `not kept in ${tries} times`);
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
  equal(await add(second, key), 2);
  await first.goto(`${tabs.url}/away`);
  await owns(second);
  equal(await add(second, key), 3);
  // A page that has a lock, or gets one while it is cached, is evicted.
  await second.evaluate("navigator.locks.query().then(() => {})");
  await first.goBack();
  await first.waitForFunction('"tab" in globalThis');
  equal(await add(first, key), 4);
  equal(await first.evaluate("tab.status().owner"), "elsewhere");
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
async function settled(page: Page, told: Stream): Promise<void> {
  deepEqual(told.others, []);
  const { slowestMs, stillMs } = told;
  ok(
    slowestMs < TIMEOUT_MS + GRACE_MS + stillMs,
    `one took ${slowestMs} ms, ${stillMs} stood still`,
  );
  ok(told.answered > 0);
  const done = (await page.evaluate('tab.get("stream")')) as number;
  ok(done >= told.answered, `${told.answered} were answered, and ${done} are there`);
  ok(done <= told.answered + told.unknown, `${done} are there of ${told.answered} answered`);
}

/** A suspended process releases neither lock nor file, and sends no messages. */
async function stopped(place: Place): Promise<void> {
  const tabs = await tabsIn(place);
  const owner = await tabs.open();
  await add(owner);
  const other = await tabs.open("?timeout=1000");
  await add(other);
  equal(await other.evaluate("tab.status().owner"), "elsewhere");
  const process_ = await tabs.processOf(owner);
  try {
    await stop(process_);
    const { code, applied, message } = (await other.evaluate('tab.failure("sold")')) as {
      code: string;
      applied: unknown;
      message: string;
    };
    equal(code, "VARVE_OWNER_UNAVAILABLE");
    equal(applied, "unknown");
    ok(/does not answer|another tab/i.test(message), message);
  } finally {
    process.kill(process_, "SIGCONT");
  }
  await other.waitForFunction('tab.status().state === "open"');
  const sold = await add(other);
  ok(sold === 3 || sold === 4, `${sold} are there`);
}

suite("a frozen tab in Chromium", () => {
  test("frozen tab: it hands over, and resumes when shown again", async () => {
    const tabs = await tabsIn("chromium");
    const first = await tabs.open();
    await add(first);
    const second = await tabs.open();
    await add(second);
    const thaw = await freeze(first);
    equal(await add(second), 3);
    await owns(second);
    await thaw();
    equal(await add(first), 4);
    equal(await first.evaluate("tab.status().owner"), "elsewhere");
  });

  test("discarded tab: it leaves nothing open, and starts anew", async () => {
    const tabs = await tabsIn("chromium");
    const first = await tabs.open();
    await add(first);
    const second = await tabs.open();
    const discarded = await tabs.processOf(first);
    await freeze(first);
    // A browser short of memory ends a tab's process without notice.
    process.kill(discarded, "SIGKILL");
    equal(await add(second), 2);
    const again = await tabs.open();
    equal(await add(again), 3);
  });
});
