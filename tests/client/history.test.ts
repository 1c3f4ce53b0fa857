/** What clients learn of the past: `lastCommit`, `changes`, `follow`; and records that expire. */

import type { Client, Database } from "varve";
import { type AnyClient, changes, follow, lastCommit } from "varve/client";
import { json, struct, u16 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { text, turn } from "../support/values.js";
import { shop } from "./support.js";

const BAD = { code: "VARVE_BAD_ARGUMENT" };

/** What the database itself gives, outside of the transaction that a procedure is. */
const local: { found: string[] | undefined } = { found: undefined };

/** What is called after a commit: some that the engine makes by itself call it only later. */
interface Listened {
  readonly session: { readonly commits: { readonly commitListeners: Set<() => void> } };
}

const procedures = {
  fill: (db: Database, prefix: string, count: number) => {
    for (let i = 0; i < count; i += 1) db.set(`${prefix}/${i}`, new Uint8Array(200).fill(i));
  },
  commits: (db: Database, from: number, count: number) =>
    void setTimeout(() => {
      for (let i = from; i < from + count; i += 1) {
        db.transaction(() => db.set(`n/${i}`, "1"), { note: `${i}` });
        db.commit();
      }
    }, 0),
  local: (db: Database, since: number) =>
    void setTimeout(() => {
      const lines: string[] = [];
      for (const { type, collection, key, version } of db.changes({ since })) {
        lines.push(`${type} ${collection} ${key} ${version}`);
      }
      local.found = lines;
    }, 0),
  /** The worker loses the database in the middle of everything, and opens it again. */
  close: (db: Database) => void setTimeout(() => db.close(), 0),
  compact: (db: Database) => void setTimeout(() => db.compact(), 0),
};

async function changed(client: AnyClient, since: number, collection?: string): Promise<string[]> {
  const lines: string[] = [];
  for await (const change of changes(client, { since, collection })) {
    lines.push(`${change.type} ${change.collection} ${change.key} ${change.version}`);
  }
  return lines;
}

async function changedThere(
  client: { call: { local(since: number): Promise<void> } },
  since: number,
) {
  local.found = undefined;
  await client.call.local(since);
  while (local.found === undefined) await turn();
  return local.found as string[];
}

/** The notes of the next `count` transactions. */
async function notes(client: AnyClient, since: number, count: number): Promise<string[]> {
  const found: string[] = [];
  if (count === 0) return found;
  for await (const { note, records } of follow(client, { since })) {
    assert(records.length > 0);
    found.push(String(note));
    if (found.length === count) break;
  }
  return found;
}

async function listed<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

/** A relay between a client and its worker, which can send a request to follow again. */
function repeating() {
  const sent: unknown[] = [];
  let send = (_: unknown) => {};
  const isFollow = (request: { args: readonly unknown[] }) => request.args[0] === "follow";
  const relay = (server: MessagePort): MessagePort => {
    const { port1, port2 } = new MessageChannel();
    send = (message) => server.postMessage(message);
    port1.onmessage = ({ data, ports }) => {
      if (data?.type === "requests" && data.requests.some(isFollow)) sent.push(data);
      server.postMessage(data, [...(ports ?? [])]);
    };
    server.onmessage = ({ data, ports }) => port1.postMessage(data, [...(ports ?? [])]);
    return port2;
  };
  const repeat = {
    get count() {
      return sent.length;
    },
    /** Sends the last request but one again. */
    previous: () => send(sent.at(-2)),
  };
  return { relay, repeat };
}

const numbers = (count: number) => Array.from({ length: count }, (_, i) => `${i}`);

describe("changes of a remote database", () => {
  test("remote changes: each key once, deletions included, as the database itself shows them", async () => {
    const client = shop({ procedures, collections: { scores: json<number>() } });
    await client.set("a", "1");
    await client.set("b", "1");
    const cursor = await lastCommit(client);
    expect(await changed(client, cursor)).toStrictEqual([]);
    await client.set("a", "2");
    await client.delete("b");
    await client.scores.set("ann", 7);
    await client.set("a", "3");
    const expected = await changedThere(client, cursor);
    expect(expected.length).toBe(3);
    expect(await changed(client, cursor)).toStrictEqual(expected);
    const [value] = await listed(changes(client, { since: cursor, collection: "scores" }));
    expect([value?.key, value?.value && text(value.value)]).toStrictEqual(["ann", "7"]);
    const [record] = await listed(changes(client, { since: cursor }));
    expect([record?.key, record?.value && text(record.value)]).toStrictEqual(["ann", "7"]);
  });

  test("remote changes: what was requested in the same task is in lastCommit and in changes", async () => {
    const client = shop();
    const cursor = await lastCommit(client);
    client.set("a", "1");
    const after = lastCommit(client);
    expect((await changed(client, cursor)).length).toBe(1);
    assert((await after) > cursor);
    expect(await changed(client, await after)).toStrictEqual([]);
  });

  test("remote changes: other owners go on, without a gap and without a doublet", async () => {
    const client = shop({ procedures });
    await client.call.fill("a", 3_000);
    const cursor = await lastCommit(client);
    await client.call.fill("b", 3_000);
    await client.clear({ gte: "a/1", lt: "a/3" });
    const expected = await changedThere(client, cursor);
    assert(expected.length > 5_000);
    const lines: string[] = [];
    for await (const { type, collection, key, version } of changes(client, { since: cursor })) {
      lines.push(`${type} ${collection} ${key} ${version}`);
      if (lines.length % 900 !== 0) continue;
      await client.call.close();
      // A change after the loop began is left to the next loop.
      await client.set("b/2999", "again");
    }
    const isNew = (line: string) => line.includes("b/2999 ");
    expect(lines.filter((line) => !isNew(line)).sort()).toStrictEqual(
      expected.filter((line) => !isNew(line)).sort(),
    );
  });

  test("remote changes: a loop that is left frees its memory at the owner", async () => {
    const client = shop({ procedures });
    await client.call.fill("a", 4_000);
    const memory = async () => (await client.stats()).wasmBytes;
    for await (const _ of changes(client, { since: 0 })) break;
    await client.get("a");
    const before = await memory();
    for (let i = 0; i < 40; i += 1) for await (const _ of changes(client, { since: 0 })) break;
    await client.get("a");
    expect(await memory()).toBe(before);
  });

  test("remote changes: many loops that take turns all reach their end", async () => {
    const client = shop({ procedures });
    await client.call.fill("a", 3_000);
    const loops = Array.from({ length: 20 }, () => changed(client, 0));
    for (const lines of await Promise.all(loops)) expect(lines.length).toBe(3_000);
  });

  test("remote changes: what has expired is deleted in the first loop after that", async () => {
    const client = shop();
    // More than are deleted when a turn begins.
    const keys = numbers(200);
    await Promise.all(keys.map((key) => client.set(key, "1", { expireIn: 60_000 })));
    const cursor = await lastCommit(client);
    const { now } = Date;
    Date.now = () => now() + 120_000;
    onTestFinished(() => {
      Date.now = now;
    });
    const found = await listed(changes(client, { since: cursor }));
    expect(found.map(({ type, key }) => `${type} ${key}`).sort()).toStrictEqual(
      keys.map((key) => `delete ${key}`).sort(),
    );
  });

  test("remote changes: bad options and expired cursors are refused", async () => {
    const client = shop({ procedures });
    const all = (options: object) => listed(changes(client, options as { since: number }));
    for (const bad of [{}, { since: -1 }, { since: 1e9 }, { since: 0, other: 1 }, { since: "a" }]) {
      await rejects(all(bad), BAD);
    }
    await rejects(all({ since: 0, timeout: -1 }), BAD);
    throws(() => changes({} as Client, { since: 0 }), BAD);
    await client.set("first", "1");
    const cursor = await lastCommit(client);
    await client.call.fill("a", 20_000);
    await client.clear({ gte: "a/1" });
    await client.compact();
    await rejects(all({ since: cursor }), { name: "CursorExpiredError" });
  });
});

describe("following a remote database", () => {
  test("remote follow: the past first, then each transaction as it is committed, each once", async () => {
    const client = shop({ procedures });
    await client.call.commits(0, 500);
    while ((await client.count()) < 500) await turn();
    const found = notes(client, 0, 510);
    await turn();
    await client.call.commits(500, 10);
    expect(await found).toStrictEqual(numbers(510));
  });

  test("remote follow: owners that end in the middle leave no gap and no doublet", async () => {
    const client = shop({ procedures });
    const found: string[] = [];
    let since = await lastCommit(client);
    const follower = (async () => {
      for await (const { note, number, records } of follow(client, { since })) {
        expect(records.length).toBe(1);
        found.push(String(note));
        since = number;
        if (found.length === 60 * 30) break;
      }
    })();
    for (let round = 0; round < 60; round += 1) {
      const all = numbers(30).map((i) => {
        const note = `${round * 30 + Number(i)}`;
        return client.transaction((tx) => tx.set(`n/${note}`, "1"), { note });
      });
      if (round % 3 === 0) await client.call.close();
      await Promise.all(all);
      if (round % 5 === 0) while (found.length < round * 30) await turn();
    }
    await follower;
    expect(found).toStrictEqual(numbers(60 * 30));
    expect(await notes(client, since, 0)).toStrictEqual([]);
  });

  test("remote follow: a request that is repeated while the next one waits takes nothing away", async () => {
    const { relay, repeat } = repeating();
    const client = shop({ procedures }, { timeout: 600, relay });
    await client.set("before", "1");
    const since = await lastCommit(client);
    const found = notes(client, since, 6);
    for (let round = 0; round < 2; round += 1) {
      // The next request waits once the first is answered, after half of its time.
      const asked = Math.max(repeat.count + 1, 3);
      while (repeat.count < asked) await turn(5);
      await turn(20);
      repeat.previous();
      await turn(20);
      for (let i = 0; i < 3; i += 1) {
        const note = `${round * 3 + i}`;
        await client.transaction((tx) => tx.set(`n/${note}`, "1"), { note });
        await turn(20);
      }
    }
    expect(await found).toStrictEqual(numbers(6));
  });

  test("remote follow: the cursor passes no commit that woke no loop, also if the owner ends then", async () => {
    const { relay, repeat } = repeating();
    let there: Database | undefined;
    const keep = (db: Database) => {
      there = db;
    };
    const client = shop({ procedures: { keep } }, { timeout: 600, relay });
    await client.call.keep();
    assert(there);
    const found = notes(client, await lastCommit(client), 1);
    while (repeat.count < 1) await turn(5);
    await turn(20);
    const listeners = (there as unknown as Listened).session.commits.commitListeners;
    const all = [...listeners];
    listeners.clear();
    there.transaction(() => there?.set("a", "1"), { note: "quiet" });
    there.commit();
    await turn();
    for (const listener of all) listeners.add(listener);
    // The next request is sent when the first has waited for long enough.
    let isFound = false;
    found.then(() => {
      isFound = true;
    });
    while (repeat.count < 2 && !isFound) await turn(5);
    await there.close();
    await client.transaction((tx) => tx.set("b", "1"), { note: "later" });
    expect(await found).toStrictEqual(["quiet"]);
  });

  test("remote follow: more loops than are kept all go on", async () => {
    const client = shop({ procedures });
    await client.set("before", "1");
    const since = await lastCommit(client);
    const loops = Array.from({ length: 50 }, () => notes(client, since, 2));
    await turn(20);
    for (const note of numbers(2)) {
      await client.transaction((tx) => tx.set("a", note), { note });
      await turn(20);
    }
    for (const found of await Promise.all(loops)) expect(found).toStrictEqual(numbers(2));
  });

  test("remote follow: it wakes when another client writes, and leaves out other collections", async () => {
    const client = shop({
      procedures,
      collections: { scores: json<number>(), products: struct("Product", { stock: u16 }) },
    });
    const loop = follow(client, { collection: "scores" });
    const next = loop.next();
    await client.set("raw", "1");
    await client.products.set("yeezy", { stock: 1 });
    await client.scores.set("ann", 7);
    const { value } = await next;
    assert(value);
    const [record] = value.records;
    expect([record?.collection, record?.key, record?.type]).toStrictEqual(["scores", "ann", "set"]);
    await loop.return(undefined);
  });

  test("remote follow: without since it begins when it is called", async () => {
    const client = shop({ procedures });
    await client.set("before", "1");
    const loop = follow(client);
    await client.set("after", "1");
    const { value } = await loop.next();
    expect(value?.records.map(({ key }) => key)).toStrictEqual(["after"]);
    await loop.return(undefined);
  });

  test("remote follow: a signal ends it with its reason, and closing the client without an error", async () => {
    const client = shop({ procedures });
    const stop = new AbortController();
    const aborted = follow(client, { signal: stop.signal }).next();
    await client.get("a");
    stop.abort(new Error("enough"));
    await rejects(aborted, { message: "enough" });
    await rejects(follow(client, { signal: stop.signal }).next(), { message: "enough" });
    const waiting = follow(client).next();
    await client.get("a");
    const began = Date.now();
    await (client as Client).close();
    expect((await waiting).done).toBe(true);
    assert(Date.now() - began < 5_000);
    await rejects(follow(client).next(), { code: "VARVE_DATABASE_CLOSED" });
  });

  test("remote follow: a loop that is left while it waits ends at once", async () => {
    const client = shop({ procedures });
    const loop = follow(client);
    const next = loop.next();
    await client.get("a");
    expect(await loop.return()).toStrictEqual({ done: true, value: undefined });
    expect((await next).done).toBe(true);
  });

  test("remote follow: bad options and what compaction took are refused", async () => {
    const client = shop({ procedures });
    const next = (options: object) => follow(client, options).next();
    for (const bad of [
      { since: -1 },
      { since: 1e9 },
      { other: 1 },
      { retain: "a" },
      { timeout: 0 },
    ]) {
      await rejects(next(bad), BAD);
    }
    await client.set("first", "1");
    const cursor = await lastCommit(client);
    await client.call.fill("a", 20_000);
    await client.clear({ gte: "a/1" });
    await client.compact();
    await rejects(next({ since: cursor }), { name: "CursorExpiredError" });
  });
});

describe("records of a remote database that expire", () => {
  test("remote expiry: set, touch, a default of the collection, and getEntry", async () => {
    const hour = 3_600_000;
    const client = shop({
      collections: { cache: { of: json<number>(), expireIn: hour }, stays: json<number>() },
    });
    const began = Date.now();
    await client.set("a", "1", { expireIn: hour });
    const { expires } = (await client.getEntry("a")) ?? {};
    assert(expires && +expires >= began + hour && +expires <= Date.now() + hour + 1_000);
    expect(await client.touch("a", { expireAt: new Date(began - hour) })).toBe(true);
    expect([await client.get("a"), await client.count()]).toStrictEqual([undefined, 0]);
    expect(await client.touch("a", { expireIn: hour })).toBe(false);
    await client.set("a", "2", { ifVersion: 0, expireAt: began + hour });
    expect(await client.touch("a", { expireIn: Number.POSITIVE_INFINITY })).toBe(true);
    expect((await client.getEntry("a"))?.expires).toBe(undefined);

    await client.cache.set("a", 1);
    assert((await client.cache.getEntry("a"))?.expires);
    await client.cache.set("a", 2, { expireIn: Number.POSITIVE_INFINITY });
    expect((await client.cache.getEntry("a"))?.expires).toBe(undefined);
    await client.stays.set("a", 1, { expireIn: hour });
    expect(await client.stays.touch("a", { expireAt: 1 })).toBe(true);
    expect(await client.stays.count()).toBe(0);
  });

  test("remote expiry: bad ones are refused with nothing written", async () => {
    const client = shop();
    await rejects(client.set("a", "1", { expireIn: 0 }), BAD);
    await rejects(client.set("a", "1", { expireIn: 1, expireAt: 1 }), BAD);
    await rejects(client.touch("a", {}), BAD);
    await rejects(client.touch("a", { expireIn: 1, other: 1 } as object), BAD);
    expect(await client.count()).toBe(0);
  });

  test("remote expiry: updateIf keeps it, and makes a missing record with the default", async () => {
    const hour = 3_600_000;
    const client = shop({ collections: { cache: { of: json<number>(), expireIn: hour } } });
    const [long, short] = [new Date(Date.now() + 24 * hour), new Date(Date.now() + 50 * hour)];
    await client.set("a", "1", { expireAt: long });
    const { expires } = (await client.getEntry("a")) ?? {};
    assert(expires);
    expect(await client.updateIf("a", () => "2")).toBe(true);
    expect(text((await client.getEntry("a"))?.value)).toBe("2");
    expect((await client.getEntry("a"))?.expires).toStrictEqual(expires);
    await client.set("stays", "1");
    await client.updateIf("stays", () => "2");
    expect((await client.getEntry("stays"))?.expires).toBe(undefined);

    await client.cache.set("a", 1, { expireAt: short });
    const before = (await client.cache.getEntry("a"))?.expires;
    await client.cache.updateIf("a", (n) => n + 1);
    const after = await client.cache.getEntry("a");
    expect([after?.value, after?.expires]).toStrictEqual([2, before]);
    await client.cache.set("stays", 1, { expireIn: Number.POSITIVE_INFINITY });
    await client.cache.updateIf("stays", (n) => n + 1);
    expect((await client.cache.getEntry("stays"))?.expires).toBe(undefined);
    await client.cache.updateIf("new", (n) => n + 1, { valueIfMissing: 1 });
    assert(+((await client.cache.getEntry("new"))?.expires ?? 0) <= Date.now() + hour + 1_000);

    // What a transaction sets is as `set` without options.
    await client.transaction((tx) => tx.set("a", "3"));
    expect((await client.getEntry("a"))?.expires).toBe(undefined);
  });

  test("remote expiry: what a transaction sets may expire, raw or in a collection", async () => {
    const hour = 3_600_000;
    const client = shop({ collections: { cache: { of: json<number>(), expireIn: hour } } });
    const time = new Date(Math.ceil(Date.now() / 1_000 + 7_200) * 1_000);
    const began = Date.now();
    await client.transaction((tx) => {
      const expiry = { expireAt: new Date(time) };
      tx.set("at", "1", expiry);
      // A copy was taken.
      expiry.expireAt.setTime(0);
      tx.set("in", "1", { expireIn: hour });
      tx.set("stays", "1", undefined);
      tx.cache.set("at", 1, { expireAt: time });
      tx.cache.set("default", 1);
      tx.cache.set("stays", 1, { expireIn: Number.POSITIVE_INFINITY });
    });
    expect((await client.getEntry("at"))?.expires).toStrictEqual(time);
    const expires = Number((await client.getEntry("in"))?.expires);
    assert(expires >= began + hour && expires <= Date.now() + hour + 1_000);
    expect((await client.getEntry("stays"))?.expires).toBe(undefined);
    expect((await client.cache.getEntry("at"))?.expires).toStrictEqual(time);
    assert((await client.cache.getEntry("default"))?.expires);
    expect((await client.cache.getEntry("stays"))?.expires).toBe(undefined);
    await client.transaction((tx) => tx.set("at", "2"));
    expect((await client.getEntry("at"))?.expires).toBe(undefined);
  });

  test("remote expiry: a bad one in a transaction refuses all of it", async () => {
    const client = shop() as Client;
    for (const bad of [
      { expireIn: 0 },
      { expireIn: 1, expireAt: 1 },
      { ifVersion: 0 },
      7,
      new Map(),
    ]) {
      const run = client.transaction((tx) => {
        tx.set("a", "1");
        tx.set("b", "1", bad as object);
      });
      await rejects(run, BAD);
    }
    expect(await client.count()).toBe(0);
  });
});
