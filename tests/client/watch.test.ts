import type { Client, Database, KeyChange } from "varve";
import { json, str, timestamp, u32 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { dateOfAnotherRealm, text, turn, until } from "../support/values.js";
import { shop } from "./support.js";

/** Collects the changes given to a listener, and waits for a number of them. */
function collected<T>() {
  const received: T[] = [];
  let wake = () => {};
  return {
    received,
    listener(one: T): void {
      received.push(one);
      wake();
    },
    async until(holds: () => boolean): Promise<void> {
      while (!holds()) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
  };
}

describe("watches", () => {
  test("watch: all removed keys of a range are reported, however long its keys are", async () => {
    const client = shop();
    const keys = Array.from(
      { length: 1_000 },
      (_, i) => `${String(i).padStart(4, "0")}${"x".repeat(300)}`,
    );
    await client.batch(keys.map((key) => ({ type: "set", key, value: "1" })));
    const { received, listener, until } = collected<readonly { key: string; version: number }[]>();
    client.watch({}, listener);
    await client.clear();
    await until(() => received.flat().length >= keys.length);
    expect(
      received
        .flat()
        .map(({ key }) => key)
        .sort(),
    ).toStrictEqual(keys);
  });

  test("watch: changed keys of its range are reported after the commit, whichever client wrote them", async () => {
    const client = shop({
      procedures: { touch: (db) => db.batch([{ type: "set", key: "a/3", value: "3" }]) },
    });
    await client.set("a/1", "1");
    const { received, listener, until } = collected<readonly { key: string; version: number }[]>();
    client.watch({ prefix: "a/" }, listener);
    await client.count();
    await client.batch([
      { type: "set", key: "a/2", value: "2" },
      { type: "delete", key: "a/1" },
      { type: "set", key: "b", value: "elsewhere" },
    ]);
    await until(() => received.length === 1);
    expect(received[0]?.map(({ key, version }) => [key, version > 0])).toStrictEqual([
      ["a/2", true],
      ["a/1", false],
    ]);
    await client.call.touch();
    await until(() => received.length === 2);
    const entry = await client.getEntry("a/3");
    expect(received[1]).toStrictEqual([{ key: "a/3", version: entry?.version }]);
  });

  test("watch: clear reports each removed key, and later writes follow", async () => {
    const client = shop();
    const keys = Array.from({ length: 400 }, (_, i) => `a/${i}`).sort();
    await client.batch(keys.map((key) => ({ type: "set" as const, key, value: "1" })));
    await client.set("b/1", "elsewhere");
    const { received, listener, until } = collected<readonly { key: string; version: number }[]>();
    const begun = new Map<string, number>();
    client.watch({ prefix: "a/" }, listener);
    await client.count();
    expect(await client.clear()).toBe(401);
    await until(() => received.flat().length === 400);
    for (const { key, version } of received.flat()) begun.set(key, version);
    expect([...begun.keys()].sort()).toStrictEqual(keys);
    assert([...begun.values()].every((version) => version === 0));
    await client.set("a/7", "again");
    await until(() => received.flat().length === 401);
    expect(received.at(-1)?.[0]?.key).toBe("a/7");
  });

  test("watch: the very next call is reported, also before an owner is known and behind another watch", async () => {
    const client = shop();
    const { received, listener, until } = collected<readonly KeyChange<string>[]>();
    const isReceived = (key: string) => received.flat().some((change) => change.key === key);
    client.watch({}, listener);
    await client.set("a", "1");
    await client.set("b", "1");
    await until(() => isReceived("b"));
    assert(isReceived("a"));
    client.watch({ prefix: "none" }, () => {}).close();
    const refused = client.watch({ limit: -1 }).next();
    await Promise.all([client.set("c", "1"), rejects(refused, { name: "TypeError" })]);
    await until(() => isReceived("c"));
  });

  test("watch and live: a key that expires is reported then, though nothing is called", async () => {
    const client = shop();
    const received: (readonly KeyChange<string>[])[] = [];
    const lives: string[][] = [];
    await client.set("a", "1", { expireIn: 900 });
    await client.set("b", "1");
    client.watch({ limit: 1 }, (changes) => received.push(changes));
    client.live({}, (rows) => lives.push(rows.map(([key]) => key)));
    await until(() => received.length === 1 && lives.length === 2);
    expect(lives).toStrictEqual([["a", "b"], ["b"]]);
    expect(received[0]?.map(({ key, version }) => [key, version > 0])).toStrictEqual([
      ["a", false],
      ["b", true],
    ]);
  });

  test("watch: a closed watch reports nothing", async () => {
    const client = shop();
    const { received, listener, until } = collected<unknown>();
    const closed: unknown[] = [];
    const watching = client.watch({}, (changes) => closed.push(changes));
    client.watch({}, listener);
    await client.count();
    watching.close();
    await client.set("a", "1");
    await until(() => received.length === 1);
    expect(closed.length).toBe(0);
  });

  test("watch: a collection reports its typed keys", async () => {
    const client = shop({ collections: { jobs: json<{ kind: string }>() } });
    const { received, listener, until } = collected<readonly { key: string }[]>();
    client.jobs.watch({}, listener);
    await client.count();
    await client.set("job", "raw");
    await client.jobs.set("job", { kind: "mail" });
    await until(() => received.length > 0);
    expect(received[0]?.map(({ key }) => key)).toStrictEqual(["job"]);
  });
});

/** The engine behind a database, to observe its calls. */
interface Inside {
  sessionOf(db: Database): { readonly engine: { scan: (...args: never[]) => unknown } };
}

describe("contents of watch reports", () => {
  test("watch: changes are found without reading the range again", async () => {
    let scans = 0;
    const client = shop({
      procedures: {
        look: (db) => {
          const { engine } = (db.constructor as unknown as Inside).sessionOf(db);
          const { scan } = engine;
          engine.scan = (...args) => {
            scans += 1;
            return scan.apply(engine, args);
          };
        },
        touch: (db) => {
          db.updateIf("n/0500", () => "by a procedure");
          db.delete("n/0501");
        },
      },
    });
    await client.batch(
      Array.from({ length: 1_000 }, (_, i) => ({
        type: "set" as const,
        key: `n/${String(i).padStart(4, "0")}`,
        value: "1",
      })),
    );
    const { received, listener, until } = collected<readonly KeyChange<string>[]>();
    client.watch({ prefix: "n/", gte: "n/0400" }, listener);
    await client.count();
    await client.call.look();
    await client.call.touch();
    await until(() => received.length === 1);
    await client.set("n/0001", "outside");
    await client.set("n/1000", "new");
    await until(() => received.length === 2);
    expect(received.flat().map(({ key, version }) => [key, version > 0])).toStrictEqual([
      ["n/0500", true],
      ["n/0501", false],
      ["n/1000", true],
    ]);
    expect(scans).toBe(0);
  });

  test("watch: undone and refused writes are not reported", async () => {
    const client = shop({
      procedures: {
        undone: (db) => {
          db.set("a", "2");
          throw new RangeError("no");
        },
      },
    });
    await client.set("a", "1");
    const { received, listener, until } = collected<readonly KeyChange<string>[]>();
    client.watch({}, listener);
    await client.count();
    await rejects(client.call.undone(), { name: "RangeError" });
    await rejects(client.set("a", "3", { ifVersion: 0 }), { code: "VARVE_CONFLICT" });
    await client.set("b", "1");
    await until(() => received.length === 1);
    expect(received[0]?.map(({ key }) => key)).toStrictEqual(["b"]);
  });

  test("watch: writes of the worker itself are reported", async () => {
    const client = shop({
      procedures: { later: (db) => void setTimeout(() => db.set("late", "1"), 5) },
    });
    const { received, listener, until } = collected<readonly KeyChange<string>[]>();
    client.watch({}, listener);
    await client.count();
    await client.call.later();
    await until(() => received.length === 1);
    expect(received[0]?.[0]?.key).toBe("late");
  });

  test("watch: a range with a limit reports the keys that enter and leave it", async () => {
    const client = shop();
    await client.batch(["b", "c", "d"].map((key) => ({ type: "set", key, value: "1" })));
    const { received, listener, until } = collected<readonly KeyChange<string>[]>();
    client.watch({ limit: 2 }, listener);
    await client.count();
    await client.set("a", "1");
    await until(() => received.length === 1);
    expect(received[0]?.map(({ key, version }) => [key, version > 0])).toStrictEqual([
      ["a", true],
      ["c", false],
    ]);
  });

  test("watch: a commit of more keys than are remembered reports every key", async () => {
    const client = shop();
    await client.set("n/000000", "0");
    const { received, listener, until } = collected<readonly KeyChange<string>[]>();
    client.watch({ prefix: "n/" }, listener);
    await client.count();
    const key = (i: number) => `n/${String(i).padStart(6, "0")}`;
    await client.batch(
      Array.from({ length: 12_000 }, (_, i) => ({ type: "set", key: key(i), value: "1" })),
    );
    await until(() => received.flat().length === 12_000);
    expect(await client.clear({ prefix: "n/" })).toBe(12_000);
    await until(() => received.flat().length === 24_000);
    assert(received.at(-1)?.every(({ version }) => version === 0));
  });

  test("watch: a collection with composite keys reports them", async () => {
    const client = shop({ collections: { visits: { of: json<number>(), key: [str, u32] } } });
    const { received, listener, until } = collected<readonly KeyChange<[string, number]>[]>();
    client.visits.watch({ prefix: ["anna"] }, listener);
    await client.count();
    await client.visits.set(["bert", 1], 1);
    await client.visits.set(["anna", 2], 1);
    await until(() => received.length === 1);
    expect(received[0]?.map(({ key }) => key)).toStrictEqual([["anna", 2]]);
  });
});

/** Reads a number of items of an iterable, and returns them. */
async function some<T>(from: AsyncIterable<T>, count: number, each?: () => void): Promise<T[]> {
  const found: T[] = [];
  for await (const one of from) {
    found.push(one);
    if (found.length === count) break;
    each?.();
  }
  return found;
}

test("watch and live: after a listener has closed the client no other one is called, and all end", async () => {
  const client = shop();
  await client.count();
  const calls: string[] = [];
  let close = () => {};
  const isClosed = new Promise<void>((resolve) => {
    close = () => resolve((client as Client).close());
  });
  const of = (name: string) => (all: readonly unknown[]) => {
    calls.push(name);
    if (all.length > 0) close();
  };
  const ends = ["a", "b"].flatMap((name) => [
    client.watch({}, of(name)).ended,
    client.live({}, of(name)).ended,
  ]);
  await until(() => calls.length === 2);
  calls.length = 0;
  const written = client.set("k", "1");
  await isClosed;
  await Promise.all([written, ...ends]);
  await turn();
  expect(calls).toStrictEqual(["a"]);
});

describe("watches as async iterables", () => {
  test("watch loop: it runs until break, and changes during its body come merged", async () => {
    const client = shop();
    const changes = client.watch({ prefix: "a/" });
    const first = changes.next();
    await client.count();
    await client.set("a/1", "1");
    expect((await first).value?.map(({ key }) => key)).toStrictEqual(["a/1"]);
    for (let i = 0; i < 5; i += 1) await client.set("a/2", String(i));
    await client.set("a/3", "1");
    // All changes so far come as one, with each key once.
    const rest: string[] = [];
    for await (const more of changes) {
      rest.push(...more.map(({ key }) => key));
      if (rest.includes("a/3")) break;
      await client.count();
    }
    assert(rest.filter((key) => key === "a/2").length < 5);
    expect(await changes.next()).toStrictEqual({ done: true, value: undefined });
  });

  test("watch loop: it ends with the reason of the signal, and when the client closes", async () => {
    const client = shop();
    const controller = new AbortController();
    const next = client.watch({}, { signal: controller.signal }).next();
    await client.count();
    controller.abort(new RangeError("enough"));
    await rejects(next, { name: "RangeError" });
    const last = client.watch().next();
    await client.count();
    await (client as Client).close();
    expect(await last).toStrictEqual({ done: true, value: undefined });
  });

  test("watch loop: one that is left while it waits ends at once", async () => {
    const client = shop();
    const [changes, rows] = [client.watch(), client.live()];
    const next = changes.next();
    expect((await rows.next()).done).toBe(false);
    const more = rows.next();
    for (const loop of [changes, rows]) {
      expect(await loop.return()).toStrictEqual({ done: true, value: undefined });
    }
    expect([await next, await more].map(({ done }) => done)).toStrictEqual([true, true]);
  });

  test("watch loop: it does not begin on a closed client", async () => {
    const client = shop();
    await (client as Client).close();
    const closed = { code: "VARVE_DATABASE_CLOSED" };
    await rejects(client.watch().next(), closed);
    await rejects(client.live().next(), closed);
    throws(() => client.watch({}, () => {}), closed);
    throws(() => client.live({}, () => {}), closed);
  });

  test("live loop: it begins with the contents, and ends with the last state", async () => {
    const client = shop({ collections: { jobs: json<string>() } });
    await client.jobs.set("a", "1");
    const sizes = await some(client.jobs.live(), 2, () => void client.jobs.set("b", "2"));
    expect(sizes).toStrictEqual([
      [["a", "1"]],
      [
        ["a", "1"],
        ["b", "2"],
      ],
    ]);
    const [raw] = await some(client.live({ prefix: "none" }), 1);
    expect(raw).toStrictEqual([]);
  });

  test("watch loop: a bad range is reported", async () => {
    const client = shop();
    await rejects(some(client.live({ limit: -1 }), 1), { name: "TypeError" });
  });
});

describe("live ranges with a listener", () => {
  test("live: the contents are given at first and after every change, up to the last state", async () => {
    const client = shop();
    await client.set("n/0", "0");
    const { received, listener, until } = collected<[string, Uint8Array][]>();
    using _ = client.live({ prefix: "n/" }, listener);
    await until(() => received.length === 1);
    expect(received[0]?.map(([key, value]) => key + text(value))).toStrictEqual(["n/00"]);
    for (let i = 1; i <= 40; i += 1) client.set(`n/${i}`, String(i));
    await until(() => received.at(-1)?.length === 41);
    assert(received.length <= 42);
  });
});

describe("watches that cannot begin", () => {
  test("watch: a bad range throws at once, or rejects if only the owner can check it", async () => {
    const client = shop({ collections: { jobs: json<string>() } });
    const never = () => assert(false, "no change is expected");
    const bad = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };
    const wrong = [{ limit: -1 }, { reverse: 1 }, { gt: "a", gte: "b" }, { perfix: "a" }, 5, null];
    for (const range of wrong as object[]) {
      for (const watched of [client, client.jobs] as Pick<Client, "watch" | "live">[]) {
        throws(() => watched.watch(range, never), { ...bad, message: /watch\(\)/ });
        throws(() => watched.live(range, never), { ...bad, message: /live\(\)/ });
      }
    }
    throws(() => client.watch({ after: "a" } as object, never), bad);
    throws(() => client.jobs.watch({ keyAs: "bytes" } as object, never), bad);
    for (const range of [{ limit: -1 }, { gt: "a", gte: "b" }, { perfix: "a" }] as object[]) {
      await rejects(client.watch(range).next(), bad);
      await rejects(client.jobs.live(range).next(), bad);
    }
    // Only the owner knows the type of a collection's keys.
    const late = client.jobs.live({ gte: 5 } as object, never).ended;
    await rejects(late, { ...bad, message: /live\(\)/ });
    const tasks = client.collection("tasks" as "jobs");
    await rejects(tasks.watch({}, never).ended, { ...bad, message: /no collection "tasks"/ });
    // Requests that wait for watches to begin proceed.
    await client.set("a", "1");
    expect(await client.getText("a")).toBe("1");
  });

  test("watch: bad options and a range that cannot be cloned throw at once", () => {
    const client = shop();
    const bad = { code: "VARVE_BAD_ARGUMENT" };
    for (const options of [null, 5, { singal: 1 }, { signal: 5 }] as object[]) {
      throws(() => client.watch({}, options), bad);
      throws(() => client.live({}, options), bad);
    }
    const range = { prefix: (() => {}) as unknown as string };
    throws(() => client.watch(range, () => {}), {
      code: "VARVE_BAD_ARGUMENT",
      message: /cannot be sent/,
    });
  });

  test("watch: its promise resolves when the watch or its client is closed", async () => {
    const client = shop();
    const [one, two, three] = [1, 2, 3].map(() => client.watch({}, () => {}));
    one?.close();
    expect(await one?.ended).toBe(undefined);
    two?.[Symbol.dispose]();
    expect(await two?.ended).toBe(undefined);
    const live = client.live({}, () => {});
    await (client as Client).close();
    expect(await three?.ended).toBe(undefined);
    expect(await live.ended).toBe(undefined);
  });

  test("watch: a key that is not UTF-8 ends it with the reason", async () => {
    const client = shop();
    await client.set("a", "1");
    const { received, listener, until } = collected<unknown>();
    const live = client.live({}, listener);
    await until(() => received.length === 1);
    await client.set(new Uint8Array([0xff]), "1");
    await rejects(live.ended, { code: "VARVE_BAD_ARGUMENT" });
  });
});

describe("keys of transactions", () => {
  test("transaction key: keys are distinguished by value and not by representation", async () => {
    const client = shop({
      collections: {
        times: { of: json<number>(), key: timestamp },
        pairs: { of: json<number>(), key: [str, str] },
      },
    });
    await client.transaction(async (tx) => {
      tx.times.set(new Date(1_000), 1);
      tx.times.set(new Date(1_001), 2);
      tx.times.set(1_000, 3);
      tx.pairs.set(["a", 'b|"c'], 1);
      tx.pairs.set(['a|"b', "c"], 2);
      expect(await tx.times.get(1_001)).toBe(2);
      expect(await tx.times.get(new Date(1_000))).toBe(3);
      expect(await tx.pairs.get(["a", 'b|"c'])).toBe(1);
    });
    expect(await client.times.values().all()).toStrictEqual([3, 2]);
    expect(await client.pairs.count()).toBe(2);
  });

  test("transaction key: dates of another realm are distinguished within one second", async () => {
    const client = shop({ collections: { times: { of: json<number>(), key: timestamp } } });
    await client.transaction((tx) => {
      tx.times.set(dateOfAnotherRealm(1_000), 1);
      tx.times.set(dateOfAnotherRealm(1_001), 2);
      tx.times.set(new Date(1_000), 3);
    });
    expect(await client.times.entries().all()).toStrictEqual([
      [1_000, 3],
      [1_001, 2],
    ]);
    expect(await client.times.getMany([dateOfAnotherRealm(1_001)])).toStrictEqual([2]);
  });
});
