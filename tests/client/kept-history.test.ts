/** Clients of a database that keeps its history: `at`, `undo` and `pack`. */

import { type Client, type Database, memory } from "varve";
import {
  type AnyClient,
  at,
  ConflictError,
  CursorExpiredError,
  lastCommit,
  pack,
  SnapshotClosedError,
  snapshot,
  UniqueViolationError,
  undo,
} from "varve/client";
import { json, str, struct, u16 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { FakeStorage, platform } from "../contract/fake-storage.js";
import { rejects } from "../support/errors.js";
import { text, turn } from "../support/values.js";
import { shop } from "./support.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };
const ENDED = { code: "VARVE_SNAPSHOT_CLOSED" };
const EXPIRED = { name: "CursorExpiredError", code: "VARVE_CURSOR_EXPIRED" };
const CONFLICT = { name: "ConflictError", code: "VARVE_CONFLICT" };

const KEEP = { history: "keep" } as const;

const Product = struct("Product", { stock: u16, name: str });

const collections = {
  products: {
    of: Product,
    indexes: { byStock: "stock", byName: { fields: "name", unique: true } },
  },
  cache: json<number>(),
} as const;

const procedures = {
  /** Commits, each of which replaces values that fill some segments together. */
  fill: (db: Database, count: number) =>
    void setTimeout(() => {
      for (let i = 0; i < count; i += 1) {
        for (let j = 0; j < 20; j += 1) db.set(`k${(i + j * 3) % 50}`, `${i}`.padEnd(9_000, "-"));
        db.commit();
      }
      db.set("filled", "1");
    }, 0),
  /** The worker loses the database in the middle of everything, and opens it again. */
  close: (db: Database) => void setTimeout(() => db.close(), 0),
  /** The worker loses the database as soon as a pack has begun. */
  closeWhenPacking: (db: Database) => {
    const { log } = (db as unknown as Packing).session.engine;
    const { pack: begin } = log;
    log.pack = (before) => {
      Promise.resolve().then(() => db.close());
      return begin.call(log, before);
    };
  },
};

interface Packing {
  readonly session: { readonly engine: { readonly log: { pack(before: number): number } } };
}

/** The number of the newest transaction. */
async function newest(client: AnyClient): Promise<number> {
  for await (const { number } of (client as Client).log({ reverse: true, limit: 1 })) return number;
  throw new Error("The log is empty.");
}

/** The notes of all transactions. */
async function notes(client: AnyClient): Promise<(string | undefined)[]> {
  const found: (string | undefined)[] = [];
  for await (const { note } of (client as Client).log()) found.push(note);
  return found;
}

function noted(client: Pick<Client, "transaction">, note: string, values: Record<string, string>) {
  return client.transaction(
    (tx) => {
      for (const [key, value] of Object.entries(values)) tx.set(key, value);
    },
    { note },
  );
}

async function filled(client: Client & { call: { fill(count: number): Promise<void> } }) {
  await client.call.fill(60);
  while (!(await client.has("filled"))) await turn();
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 20));

/**
 * A relay between a client and its worker, which ends the owner instead of passing on the first request with a call, or the
 * first answer to it. Another one takes over.
 */
function losing(call: string, what: "request" | "answer" | "nothing") {
  const seen = { lost: 0, sent: 0 };
  const relay = (server: MessagePort): MessagePort => {
    const { port1, port2 } = new MessageChannel();
    const ids = new Set<number>();
    const handOver = () => {
      seen.lost += 1;
      server.postMessage({ type: "release" });
      server.postMessage({ type: "init", name: "shop" });
    };
    port1.onmessage = ({ data, ports }) => {
      const wanted = (data.requests ?? []).filter((one: { call: string }) => one.call === call);
      for (const { id } of wanted) ids.add(id);
      if (wanted.length > 0) seen.sent += 1;
      if (wanted.length > 0 && what === "request" && seen.lost === 0) handOver();
      else server.postMessage(data, [...(ports ?? [])]);
    };
    server.onmessage = ({ data, ports }) => {
      const isAnswer = (data.answers ?? []).some(({ id }: { id: number }) => ids.has(id));
      if (isAnswer && what === "answer" && seen.lost === 0) handOver();
      else port1.postMessage(data, [...(ports ?? [])]);
    };
    return port2;
  };
  return { relay, seen };
}

describe("past states of a remote database", () => {
  test("remote at: every read shows the past commit, collections and indexes included", async () => {
    const client = shop({ ...KEEP, collections });
    await client.set("a", "1");
    await client.set("gone", "1");
    await client.products.set("a", { stock: 7, name: "A" });
    await client.products.set("b", { stock: 3, name: "B" });
    await client.cache.set("n", 1);
    const entry = await client.getEntry("a");
    const cursor = await lastCommit(client);
    await client.set("a", "2");
    await client.set("later", "1");
    await client.delete("gone");
    await client.products.set("a", { stock: 1, name: "C" });
    await client.products.delete("b");
    await client.cache.set("n", 2);

    const past = await at(client, cursor);
    expect([await past.getText("a"), await past.getText("later")]).toStrictEqual(["1", undefined]);
    expect([await past.has("gone"), await past.count()]).toStrictEqual([true, 2]);
    expect(await past.getEntry("a")).toStrictEqual(entry);
    expect(text((await past.get("gone")) as Uint8Array)).toBe("1");
    const many = await past.getMany(["a", "later"]);
    expect(many.map((value) => value && text(value))).toStrictEqual(["1", undefined]);
    expect(await past.keys().all()).toStrictEqual(["a", "gone"]);
    const pairs: string[] = [];
    for await (const [key, value] of past.entries()) {
      pairs.push(`${key} ${text(value)}`);
      await client.set("gone", "again");
    }
    expect(pairs).toStrictEqual(["a 1", "gone 1"]);
    expect((await past.values({ prefix: "g" }).all()).map(text)).toStrictEqual(["1"]);
    const products = past.collection("products");
    expect((await products.get("a"))?.stock).toBe(7);
    expect([await products.count(), await products.has("b")]).toStrictEqual([2, true]);
    const inOrder = await products.index.byStock.entries().all();
    expect(inOrder.map(([key]) => key)).toStrictEqual(["b", "a"]);
    expect((await products.index.byName.get("B"))?.stock).toBe(3);
    expect(await past.collection("cache").get("n")).toBe(1);
    expect([await client.getText("a"), await client.cache.get("n")]).toStrictEqual(["2", 2]);

    await using first = await at(client, 0);
    expect([await first.count(), await first.collection("products").count()]).toStrictEqual([0, 0]);
    await past.close();
    assert((await rejects(past.get("a"), ENDED)) instanceof SnapshotClosedError);
    expect((await client.stats()).snapshots.count).toBe(1);
  });

  test("remote at: the number of a transaction, a version, and a time show the same", async () => {
    const client = shop(KEEP) as Client;
    await noted(client, "one", { a: "1" });
    const number = await newest(client);
    const version = (await client.getEntry("a"))?.version as number;
    await pause();
    const between = new Date();
    await pause();
    await noted(client, "two", { a: "2" });
    for (const point of [number, version, between]) {
      await using past = await at(client, point);
      expect(await past.getText("a")).toBe("1");
    }
    await using now = await at(client, new Date());
    expect(await now.getText("a")).toBe("2");
  });

  test("remote at: what was requested before it in the same task counts, and what is after it does not", async () => {
    const client = shop(KEEP) as Client;
    await noted(client, "one", { a: "1" });
    client.set("a", "2");
    const asked = at(client, new Date());
    client.set("a", "3");
    await using past = await asked;
    expect([await past.getText("a"), await client.getText("a")]).toStrictEqual(["2", "3"]);
  });

  test("remote at: it ends with its lease and with its owner, and the next owner shows the same commit", async () => {
    const client = shop({ ...KEEP, procedures });
    await client.set("a", "1");
    const cursor = await lastCommit(client);
    await client.set("a", "2");
    const leased = await at(client, cursor, { lease: 50 });
    expect(await leased.getText("a")).toBe("1");
    while ((await client.stats()).snapshots.count > 0) await turn();
    await rejects(leased.get("a"), ENDED);

    const lost = await at(client, cursor);
    await client.call.close();
    const reads = async () => {
      for (;;) expect(await lost.getText("a")).toBe("1");
    };
    await rejects(reads(), ENDED);
    await using past = await at(client, cursor);
    expect(await past.getText("a")).toBe("1");
    // The request itself may come to an owner that ends.
    const closed = client.call.close();
    const asked = Array.from({ length: 5 }, () => at(client, cursor));
    await closed;
    for (const one of asked) {
      await using found = await one;
      const value = await found.getText("a").catch(({ code }: { code: string }) => code);
      assert(value === "1" || value === ENDED.code, value);
    }
  });

  test("remote at: an answer that is lost with its owner comes from the next one", async () => {
    const { relay, seen } = losing("history", "answer");
    const client = shop(KEEP, { relay }) as Client;
    await client.set("a", "1");
    const { version } = (await client.getEntry("a")) as { version: number };
    await client.set("a", "2");
    await using past = await at(client, version);
    expect(await past.getText("a")).toBe("1");
    expect(seen.lost).toBe(1);
    assert(seen.sent > 1);
  });

  test("remote at: bad points are refused, and what is not kept, with the errors of the database", async () => {
    const client = shop(KEEP) as Client;
    await client.set("a", "1");
    const number = await lastCommit(client);
    const bad = [undefined, null, -1, 1.5, "1", {}, Number.NaN, new Date(Number.NaN), number + 1];
    for (const point of [...bad, new Date()]) await rejects(at(client, point as number), BAD);
    for (const options of [{ lease: 0 }, { lease: 1e9 }, { other: 1 }, { timeout: 0 }]) {
      await rejects(at(client, number, options as object), { ...BAD, message: /lease|timeout|at/ });
    }
    await rejects(at({} as Client, number), BAD);
    expect((await client.stats()).snapshots.count).toBe(0);
    await client.set("a", "2");
    expect(await pack(client, { before: await lastCommit(client) })).toBe(await lastCommit(client));
    assert((await rejects(at(client, number), EXPIRED)) instanceof CursorExpiredError);

    const other = shop() as Client;
    await other.set("a", "1");
    await rejects(at(other, 0), { ...BAD, message: /history/ });
    await rejects(undo(other, await newest(other)), { ...BAD, message: /history/ });
    await rejects(pack(other, { before: 0 }), { ...BAD, message: /history/ });
    expect([(await client.stats()).history, (await other.stats()).history]).toStrictEqual([
      "keep",
      "none",
    ]);
  });

  test("remote history: serving a database with another history than it was made with is refused", async () => {
    const storage = memory();
    const client = shop({ ...KEEP, storage }) as Client;
    await client.set("a", "1");
    await client.close();
    const other = shop({ history: "none", storage }) as Client;
    await rejects(other.get("a"), { code: "VARVE_OPTIONS_MISMATCH" });
    await rejects(other.ready, { code: "VARVE_OPTIONS_MISMATCH" });
  });

  test("remote history: what is not answered in time is named by its function", async () => {
    const relay = () => new MessageChannel().port1;
    const client = shop({}, { relay, timeout: 50 }) as Client;
    const calls = {
      snapshot: (options: object) => snapshot(client, options),
      at: (options: object) => at(client, 1, options),
      undo: (options: object) => undo(client, 1, options),
      pack: (options: object) => pack(client, { before: 1, ...options }),
      lastCommit: (options: object) => lastCommit(client, options),
    };
    for (const [name, call] of Object.entries(calls)) {
      const message = `${name}() on "shop" was not answered in time. It was not done.`;
      await rejects(call({ timeout: 1 }), { code: "VARVE_OWNER_UNAVAILABLE", message });
    }
  });

  test("remote snapshot: it is no client for what has happened since", async () => {
    const client = shop(KEEP) as Client;
    await client.set("a", "1");
    await using then = await snapshot(client);
    await rejects(lastCommit(then as unknown as Client), BAD);
  });
});

describe("undo for clients", () => {
  test("remote undo: it restores what a transaction changed, in one of its own with a note", async () => {
    const client = shop({ ...KEEP, collections });
    await client.set("a", "1", { expireAt: new Date(4_000_000_000_000) });
    const { expires } = (await client.getEntry("a")) ?? {};
    assert(expires);
    await client.products.set("a", { stock: 5, name: "A" });
    await client.transaction(
      (tx) => {
        tx.set("a", "2");
        tx.set("b", "new");
        tx.products.set("a", { stock: 4, name: "B" });
      },
      { note: "mistake" },
    );
    const number = await newest(client);
    const seen: string[] = [];
    client.watch({}, (changes) => seen.push(...changes.map(({ key }) => key)));
    await client.set("other", "1");
    expect(await undo(client, number, { note: "undo the mistake" })).toBe(undefined);
    expect([await client.getText("a"), await client.has("b")]).toStrictEqual(["1", false]);
    expect((await client.getEntry("a"))?.expires).toStrictEqual(expires);
    expect(await client.products.get("a")).toStrictEqual({ stock: 5, name: "A" });
    expect((await client.products.index.byName.get("A"))?.stock).toBe(5);
    expect(await client.products.index.byName.get("B")).toBe(undefined);
    while (seen.length < 3) await turn();
    expect([...new Set(seen)].sort()).toStrictEqual(["a", "b", "other"]);
    const senders: (bigint | undefined)[] = [];
    for await (const tx of client.log()) if (tx.note !== undefined) senders.push(tx.client);
    expect(senders.length).toBe(2);
    assert(senders[0] !== undefined && senders[0] === senders[1]);
    // The undoing can be undone.
    await undo(client, await newest(client));
    expect([await client.getText("a"), await client.getText("b")]).toStrictEqual(["2", "new"]);
    expect((await notes(client)).at(-1)).toBe(undefined);
  });

  test("remote undo: what was changed since is a conflict, which names it and changes nothing", async () => {
    const client = shop({ ...KEEP, collections });
    await noted(client, "first", { a: "1", b: "1" });
    const number = await newest(client);
    await client.set("a", "2");
    const error = await rejects(undo(client, number, { note: "no" }), CONFLICT);
    assert(error instanceof ConflictError);
    assert(error.message.includes('"a"') && !error.message.includes('"b"'), error.message);
    expect([await client.getText("a"), await client.getText("b")]).toStrictEqual(["2", "1"]);
    expect(await notes(client)).toStrictEqual(["first", undefined]);

    await client.products.set("a", { stock: 5, name: "A" });
    await client.products.delete("a");
    const removal = await newest(client);
    await client.products.set("c", { stock: 1, name: "A" });
    const taken = await rejects(undo(client, removal), { code: "VARVE_UNIQUE_VIOLATION" });
    assert(taken instanceof UniqueViolationError);
    expect([taken.collection, taken.index]).toStrictEqual(["products", "byName"]);
    expect(await client.products.keys().all()).toStrictEqual(["c"]);
    expect((await client.stats()).snapshots.count).toBe(0);
  });

  test("remote undo: bad arguments are refused, and what pack has forgotten", async () => {
    const client = shop(KEEP) as Client;
    await noted(client, "first", { a: "1" });
    const number = await newest(client);
    for (const bad of [undefined, 0, -1, 1.5, "1", new Date(), number + 1_000]) {
      await rejects(undo(client, bad as number), BAD);
    }
    for (const bad of [
      { other: 1 },
      { note: 1 },
      { note: "x".repeat(70_000) },
      { timeout: 0 },
      7,
    ]) {
      await rejects(undo(client, number, bad as object), BAD);
    }
    expect(await client.getText("a")).toBe("1");
    await client.set("b", "1");
    await pack(client, { before: await lastCommit(client) });
    await rejects(undo(client, number), EXPIRED);
    expect((await client.stats()).snapshots.count).toBe(0);
  });

  test("remote undo: it is done in the order of the calls of its task, and fails without them", async () => {
    const client = shop({ ...KEEP, durability: "buffered" }) as Client;
    await client.set("a", "1");
    await client.set("a", "2");
    const number = await newest(client);
    const before = client.set("b", "1");
    const undone = undo(client, number);
    const read = client.getText("a");
    const after = client.set("a", "3");
    await Promise.all([before, undone, after]);
    expect([await read, await client.getText("a"), await client.getText("b")]).toStrictEqual([
      "1",
      "3",
      "1",
    ]);
    const settled = await Promise.allSettled([
      client.set("c", "1"),
      undo(client, number),
      undo(client, number + 1_000),
      client.set("d", "1"),
    ]);
    expect(settled.map(({ status }) => status)).toStrictEqual([
      "fulfilled",
      "rejected",
      "rejected",
      "fulfilled",
    ]);
    expect([await client.has("c"), await client.has("d")]).toStrictEqual([true, true]);
  });

  test("remote undo: if what is before it in its task cannot be committed, neither is done", async () => {
    const storage = new FakeStorage();
    const client = shop({ ...KEEP, storage, durability: "buffered" }) as Client;
    await client.set("a", "1");
    await client.set("a", "2");
    const number = await newest(client);
    storage.fault = ({ op }) => (op === "write" ? platform.quota() : undefined);
    const settled = await Promise.allSettled([client.set("b", "1"), undo(client, number)]);
    const codes = settled.map((one) => (one as { reason?: { code?: string } }).reason?.code);
    expect(codes).toStrictEqual(["VARVE_QUOTA_EXCEEDED", "VARVE_QUOTA_EXCEEDED"]);
    storage.fault = () => undefined;
    expect([await client.getText("a"), await client.has("b")]).toStrictEqual(["2", false]);
    await Promise.all([client.set("b", "2"), undo(client, number)]);
    expect([await client.getText("a"), await client.getText("b")]).toStrictEqual(["1", "2"]);
  });

  for (const what of ["answer", "request"] as const) {
    for (const note of ["undone", undefined]) {
      const title = `${what} is lost with its owner${note === undefined ? ", without a note" : ""}`;
      test(`remote undo: it is done exactly once if its ${title}`, async () => {
        const { relay, seen } = losing("undo", what);
        const client = shop(KEEP, { relay }) as Client;
        await client.set("a", "1");
        await noted(client, "mistake", { a: "2" });
        const number = await newest(client);
        await undo(client, number, note === undefined ? {} : { note });
        expect(await client.getText("a")).toBe("1");
        expect(await notes(client)).toStrictEqual([undefined, "mistake", note]);
        expect([seen.lost, seen.sent]).toStrictEqual([1, 2]);
      });
    }
  }

  test("remote undo: a conflict whose answer is lost with its owner stays one", async () => {
    const { relay, seen } = losing("undo", "answer");
    const client = shop(KEEP, { relay }) as Client;
    await client.set("a", "1");
    const number = await newest(client);
    await client.set("a", "2");
    assert((await rejects(undo(client, number), CONFLICT)) instanceof ConflictError);
    expect([seen.lost, seen.sent]).toStrictEqual([1, 2]);
    expect(await client.getText("a")).toBe("2");
  });
});

describe("pack for clients", () => {
  test("remote pack: it forgets what was before a commit, and reports its progress", async () => {
    const client = shop({ ...KEEP, procedures });
    await filled(client);
    const numbers: number[] = [];
    for await (const { number } of client.log()) numbers.push(number);
    const [early, kept] = [numbers[10], numbers[40]] as [number, number];
    const { segments } = await client.stats();
    const doing = new Set<string | undefined>();
    client.addEventListener("status", () => doing.add(client.status.progress?.doing));
    await using held = await at(client, early);
    const values = await held.values().all();
    const first = await pack(client, { before: kept });
    // The number of a transaction is that of its first change, and `pack` resolves to the last one of its commit.
    assert(first >= kept && first < (numbers[41] as number), `${first} for ${kept}`);
    assert(doing.has("packing"), [...doing].join());
    await rejects(at(client, early), EXPIRED);
    expect(await held.values().all()).toStrictEqual(values);
    await held.close();
    await pack(client, { before: kept });
    assert((await client.stats()).segments < segments);
    await using past = await at(client, first);
    expect(await past.count()).toBe(50);
    expect((await client.verify()).problems).toStrictEqual([]);
  });

  test("remote pack: a signal ends it, and the next call goes on", async () => {
    const client = shop({ ...KEEP, procedures });
    await filled(client);
    const last = await lastCommit(client);
    const stop = new AbortController();
    const onStatus = () => {
      if (client.status.progress?.doing === "packing") stop.abort(new Error("enough"));
    };
    client.addEventListener("status", onStatus);
    await rejects(pack(client, { before: last, signal: stop.signal }), { message: "enough" });
    client.removeEventListener("status", onStatus);
    while (client.status.progress !== undefined) await turn();
    expect(await pack(client, { before: last })).toBe(last);
    await using past = await at(client, last);
    expect(await past.count()).toBe(51);
  });

  test("remote pack: what an owner leaves undone, the next one does", async () => {
    const { relay, seen } = losing("pack", "nothing");
    const client = shop({ ...KEEP, procedures }, { relay });
    await filled(client);
    const last = await lastCommit(client);
    await client.call.closeWhenPacking();
    expect(await pack(client, { before: last })).toBe(last);
    expect(seen.sent).toBe(2);
    expect(await client.count()).toBe(51);
  });

  test("remote pack: a time means the same commit if the answer is lost with its owner", async () => {
    const { relay, seen } = losing("pack", "answer");
    const client = shop({ ...KEEP, procedures }, { relay });
    await noted(client, "one", { a: "1" });
    await filled(client);
    const last = await lastCommit(client);
    await pause();
    const before = new Date();
    await pause();
    await noted(client, "two", { a: "2" });
    expect(await pack(client, { before })).toBe(last);
    expect([seen.lost, seen.sent]).toStrictEqual([1, 2]);
  });

  test("remote pack: bad options are refused, and nothing is forgotten", async () => {
    const client = shop(KEEP) as Client;
    await client.set("a", "1");
    const last = await lastCommit(client);
    for (const bad of [
      {},
      7,
      undefined,
      { before: -1 },
      { before: "1" },
      { before: last + 1 },
      { before: new Date() },
      { before: last, other: 1 },
      { before: last, timeout: 0 },
    ]) {
      await rejects(pack(client, bad as { before: number }), BAD);
    }
    await using past = await at(client, 0);
    expect(await past.count()).toBe(0);
  });
});
