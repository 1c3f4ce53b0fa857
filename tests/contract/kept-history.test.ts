/** Databases that keep their history: `at`, `undo` and `pack`. */

import type { Database, Snapshot } from "varve";
import { auto, json, str, struct, text, u32 } from "varve/struct";
import { expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { random, text as textOf, turn } from "../support/values.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const KEEP = { history: "keep" } as const;
const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const MISMATCH = { name: "OptionsMismatchError", code: "VARVE_OPTIONS_MISMATCH" } as const;
const EXPIRED = { name: "CursorExpiredError", code: "VARVE_CURSOR_EXPIRED" } as const;
const CONFLICT = { name: "ConflictError", code: "VARVE_CONFLICT" } as const;
const UNIQUE = { name: "UniqueViolationError", code: "VARVE_UNIQUE_VIOLATION" } as const;

const Product = struct("Product", { stock: u32, name: str });
const INDEXES = { byStock: "stock", byName: { fields: "name", unique: true } } as const;

function entries(of: Pick<Snapshot, "entries">): [string, string | undefined][] {
  return Array.from(of.entries(), ([key, value]) => [key, textOf(value)]);
}

/** Runs a transaction of its own and returns its number. */
function noted(db: Database, note: string, body: () => void): number {
  db.transaction(body, { note });
  db.commit();
  return [...db.log()].at(-1)?.number as number;
}

everywhere("kept history", ({ storage }) => {
  test("whether history is kept is fixed when a database is created", async () => {
    const name = freshName();
    let db = await opened(storage, KEEP, name);
    expect([db.history, db.stats().history]).toStrictEqual(["keep", "keep"]);
    await rejects(opened(storage, { history: "none" }, name), MISMATCH);
    const second = await opened(storage, KEEP, name);
    await second.close();
    await db.close();
    await rejects(opened(storage, { history: "none" }, name), MISMATCH);
    db = await opened(storage, {}, name);
    expect(db.history).toBe("keep");
    const plain = freshName();
    const other = await opened(storage, {}, plain);
    expect([other.history, other.stats().history]).toStrictEqual(["none", "none"]);
    other.set("a", "1");
    throws(() => other.at(0), BAD);
    throws(() => other.undo(1), BAD);
    await rejects(other.pack({ before: 0 }), BAD);
    await other.close();
    await rejects(opened(storage, KEEP, plain), MISMATCH);
    await rejects(opened(storage, { history: "all" as "keep" }), BAD);
    await rejects(opened(storage, { ...KEEP, from: db.export() }), BAD);
  });

  test("each past commit is shown as it was, also after closing and opening", async () => {
    const name = freshName();
    let db = await opened(storage, KEEP, name);
    const states: [number, [string, string | undefined][]][] = [];
    const next = random(7);
    for (let i = 0; i < 200; i += 1) {
      for (let j = 0; j < 5; j += 1) {
        const key = `k${next(30)}`;
        if (next(4) === 0) db.delete(key);
        else db.set(key, `${i}-${j}`.padEnd(next(20) === 0 ? 3000 : 8, "."));
      }
      if (i === 90) db.clear();
      if (i % 50 === 7) db.set("large", "x".repeat(1_200_000) + i);
      db.commit();
      states.push([db.lastCommit, entries(db)]);
      if (i % 40 === 39) await turn();
    }
    for (let round = 0; round < 2; round += 1) {
      for (const i of [0, 1, 50, 89, 90, 91, 150, 199]) {
        const [cursor, content] = states[i] as (typeof states)[0];
        using past = db.at(cursor);
        // Keys first: a range walks over the log, and lookups then use what it found.
        const then = new Map(content);
        const keys = Array.from({ length: 8 }, () => (next(9) === 0 ? "large" : `k${next(30)}`));
        for (const key of keys) expect(past.getText(key)).toBe(then.get(key));
        const many = past.getMany(keys).map((view) => textOf(view));
        expect(many).toStrictEqual(keys.map((key) => then.get(key)));
        expect(entries(past)).toStrictEqual(content);
        expect(past.count()).toBe(content.length);
        for (const [key, value] of content.slice(0, 5)) expect(past.getText(key)).toBe(value);
      }
      using first = db.at(0);
      expect([first.count(), first.get("k1")]).toStrictEqual([0, undefined]);
      await db.compact();
      db = await reopened(db, storage, name);
    }
  });

  test("a past commit stays as it is while the database changes, and cannot be written to", async () => {
    const db = await opened(storage, KEEP);
    db.set("a", "1");
    db.commit();
    const cursor = db.lastCommit;
    db.set("a", "2");
    db.set("b", "2");
    const then = db.snapshot();
    using past = db.at(cursor);
    db.set("a", "3");
    db.delete("b");
    await turn();
    expect(entries(past)).toStrictEqual([["a", "1"]]);
    expect(entries(then)).toStrictEqual([
      ["a", "2"],
      ["b", "2"],
    ]);
    past.close();
    expect(entries(then)).toStrictEqual([
      ["a", "2"],
      ["b", "2"],
    ]);
    then.close();
    expect(entries(db)).toStrictEqual([["a", "3"]]);
    expect(db.stats().snapshots.count).toBe(0);
  });

  test("a key of a past commit is found however often it has changed since, until a count takes memory", async () => {
    const db = await opened(storage, KEEP);
    for (let i = 0; i < 10; i += 1) {
      for (let j = 0; j < 3; j += 1) db.set(`k${j}`, `${i}`);
      if (i === 5) db.set("later", "here");
      db.commit();
      if (i === 0) db.set("first", `${db.lastCommit}`);
    }
    const first = Number(db.getText("first"));
    using past = db.at(first);
    expect([past.getText("k1"), past.getText("later"), past.has("k2")]).toStrictEqual([
      "0",
      undefined,
      true,
    ]);
    expect(past.getMany(["k0", "none", "k2"]).map((view) => textOf(view))).toStrictEqual([
      "0",
      undefined,
      "0",
    ]);
    expect(db.stats().snapshots.memoryBytes).toBe(0);
    expect(past.count()).toBe(3);
    expect(db.stats().snapshots.memoryBytes > 0).toBe(true);
    db.set("k1", "later");
    expect(past.getText("k1")).toBe("0");
  });

  test("collections of a past commit have the indexes that they had", async () => {
    const db = await opened(storage, KEEP);
    const products = db.collection("products", Product, { indexes: INDEXES });
    products.set("a", { stock: 5, name: "A" });
    products.set("b", { stock: 3, name: "B" });
    db.commit();
    const cursor = db.lastCommit;
    products.set("a", { stock: 1, name: "C" });
    products.delete("b");
    products.set("c", { stock: 4, name: "B" });
    db.commit();
    using past = db.at(cursor);
    const then = past.collection("products", Product, { indexes: INDEXES });
    expect(
      [...then.index.byStock.entries()].map(([key, value]) => [key, value.stock]),
    ).toStrictEqual([
      ["b", 3],
      ["a", 5],
    ]);
    expect(then.index.byName.get("B")?.stock).toBe(3);
    expect(products.index.byName.get("B")?.stock).toBe(4);
    using before = db.at(0);
    expect(before.collection("products", Product, { indexes: INDEXES }).count()).toBe(0);
  });

  test("a time means the same transaction as in a walk from the beginning, also if the clock was set back", async () => {
    const db = await opened(storage, KEEP);
    const next = random(11);
    const real = Date.now;
    const start = real();
    const times: number[] = [];
    const values = new Map<number, string>();
    try {
      for (let i = 0; i < 60; i++) {
        const time = start + next(40) * 1_000;
        Date.now = () => time;
        times.push(time);
        if (next(2) === 0) db.set("a", String(i));
        else db.transaction(() => db.set("a", String(i)), { note: `note ${i}` });
        db.commit();
        values.set(db.lastCommit, String(i));
      }
    } finally {
      Date.now = real;
    }
    for (const time of [...times, start + 39_500, start + 100_000]) {
      let expected: number | undefined;
      let known = Number.POSITIVE_INFINITY;
      for (const transaction of db.log()) {
        if (transaction.type !== "transaction") continue;
        known = transaction.time?.getTime() ?? known;
        if (known <= time) expected = transaction.number;
      }
      if (expected === undefined) {
        throws(() => db.at(new Date(time)), BAD);
        continue;
      }
      using past = db.at(new Date(time));
      expect(past.getText("a")).toBe(values.get(expected));
    }
    await db.close();
  });

  test("a time shows the last transaction that was not later", async () => {
    const db = await opened(storage, KEEP);
    throws(() => db.at(new Date()), BAD);
    noted(db, "one", () => db.set("a", "1"));
    await new Promise((resolve) => setTimeout(resolve, 20));
    const between = new Date();
    await new Promise((resolve) => setTimeout(resolve, 20));
    noted(db, "two", () => db.set("a", "2"));
    db.set("a", "3");
    using past = db.at(between);
    expect(past.getText("a")).toBe("1");
    using now = db.at(new Date());
    expect(now.getText("a")).toBe("3");
    // What this turn wrote counts.
    db.transaction(() => db.set("a", "4"), { note: "three" });
    using latest = db.at(new Date());
    expect(latest.getText("a")).toBe("4");
    db.transaction(() => db.set("a", "5"), { note: "four" });
    expect(await db.pack({ before: new Date() })).toBe(db.lastCommit);
    throws(() => db.at(new Date(0)), BAD);
    throws(() => db.at(new Date(Number.NaN)), BAD);
    throws(() => db.at(-1), BAD);
    throws(() => db.at(1.5), BAD);
    throws(() => db.at("1" as unknown as number), BAD);
    throws(() => db.at(db.lastCommit + 1), BAD);
    db.transaction(() =>
      throws(() => db.at(0), { name: "ReentrancyError", code: "VARVE_REENTRANCY" }),
    );
  });

  test("undo restores what a transaction changed, in a transaction of its own", async () => {
    const db = await opened(storage, KEEP);
    db.set("a", "1");
    db.set("c", "x".repeat(700_000));
    db.commit();
    const number = noted(db, "mistake", () => {
      db.set("a", "2");
      db.set("b", "new");
      db.delete("c");
    });
    db.set("other", "1");
    db.undo(number, { note: "undo the mistake" });
    expect(entries(db)).toStrictEqual([
      ["a", "1"],
      ["c", "x".repeat(700_000)],
      ["other", "1"],
    ]);
    db.commit();
    const last = [...db.log()].at(-1);
    expect(last?.note).toBe("undo the mistake");
    // The undoing can be undone.
    db.undo(last?.number as number);
    expect(entries(db)).toStrictEqual([
      ["a", "2"],
      ["b", "new"],
      ["other", "1"],
    ]);
  });

  test("undo of what was changed since changes nothing and names the keys", async () => {
    const db = await opened(storage, KEEP);
    db.set("gone", "1");
    db.commit();
    const number = noted(db, "first", () => {
      db.set("a", "1");
      db.set("b", "1");
      db.delete("gone");
    });
    noted(db, "second", () => db.set("a", "2"));
    const before = entries(db);
    const error = throws(() => db.undo(number), CONFLICT);
    expect(error.message.includes('"a"')).toBe(true);
    expect(error.message.includes('"b"')).toBe(false);
    expect(entries(db)).toStrictEqual(before);
    const deletion = noted(db, "third", () => db.delete("b"));
    noted(db, "fourth", () => db.set("b", "again"));
    const last = noted(db, "fifth", () => db.delete("b"));
    throws(() => db.undo(deletion), CONFLICT);
    throws(() => db.undo(number, { why: "x" } as object), BAD);
    throws(() => db.undo(0), BAD);
    throws(() => db.undo(1.5), BAD);
    throws(() => db.undo(last, { note: 1 as unknown as string }), BAD);
    throws(() => db.undo(db.lastCommit + 1), BAD);
    db.transaction(() =>
      throws(() => db.undo(number), { name: "ReentrancyError", code: "VARVE_REENTRANCY" }),
    );
  });

  test("undo keeps indexes in accord with records, and unique values unique", async () => {
    const db = await opened(storage, KEEP);
    const products = db.collection("products", Product, { indexes: INDEXES });
    products.set("a", { stock: 5, name: "A" });
    db.commit();
    const number = noted(db, "sale", () => {
      products.set("a", { stock: 4, name: "A2" });
      products.set("b", { stock: 9, name: "B" });
    });
    db.undo(number);
    expect(products.get("a")?.snapshot()).toStrictEqual({ stock: 5, name: "A" });
    expect([...products.index.byStock.keys()]).toStrictEqual(["a"]);
    expect(products.index.byName.get("A")?.stock).toBe(5);
    expect(products.index.byName.get("A2")).toBe(undefined);
    const removal = noted(db, "removal", () => products.delete("a"));
    products.set("c", { stock: 1, name: "A" });
    throws(() => db.undo(removal), UNIQUE);
    expect([...products.keys()]).toStrictEqual(["c"]);
    products.delete("c");
    db.undo(removal);
    expect([...products.index.byName.keys()]).toStrictEqual(["a"]);
  });

  test("undo of a push assigns no id twice, and gives expiries back", async () => {
    const db = await opened(storage, KEEP);
    const jobs = db.collection("jobs", json<string>(), { key: auto() });
    jobs.push("one");
    db.commit();
    const number = noted(db, "push", () => jobs.push("two"));
    db.undo(number);
    expect([...jobs.keys()]).toStrictEqual([1]);
    expect(jobs.push("three")).toBe(3);
    const expireAt = new Date(Date.now() + 3_600_000);
    db.set("short", "lived", { expireAt });
    db.commit();
    const expires = db.getEntry("short")?.expires;
    const forever = noted(db, "forever", () => db.set("short", "for ever"));
    db.undo(forever);
    expect(db.getEntry("short")?.expires).toStrictEqual(expires);
  });

  test("undo of a transaction before a migration of its collection is refused", async () => {
    const db = await opened(storage, KEEP);
    const notes = db.collection("notes", text());
    notes.set("a", "1");
    db.commit();
    const number = noted(db, "change", () => notes.set("a", "2"));
    await db.migrate("notes", json<string>(), { migrate: (old: string) => old });
    throws(() => db.undo(number), CONFLICT);
    using past = db.at(number);
    expect(past.collection("notes", text()).get("a")).toBe("2");
  });

  test("undo is refused during a conversion, and discards an interrupted one as other writes do", async () => {
    const db = await opened(storage, KEEP);
    const notes = db.collection("notes", text());
    for (let i = 0; i < 100; i += 1) notes.set(`k${i}`, "old");
    db.commit();
    const number = noted(db, "change", () => notes.set("k0", "new"));
    const migrate = (onProgress: (progress: { records: number }) => void) =>
      db.migrate("notes", json<string>(), { migrate: (old: string) => old, onProgress });
    const interrupted = migrate(({ records }) => {
      throws(() => db.undo(number), { name: "ReentrancyError", code: "VARVE_REENTRANCY" });
      if (records > 0) throw new Error("stop");
    });
    await rejects(interrupted, { message: "stop" });
    expect(notes.get("k0")).toBe("new");
    db.undo(number);
    expect(notes.get("k0")).toBe("old");
    const converted = await migrate(() => {});
    expect(converted.get("k0")).toBe("old");
    expect(converted.count()).toBe(100);
  });

  test("undo leaves no index of a migration without the entries of its records, or with those of others", async () => {
    const db = await opened(storage, KEEP);
    const products = db.collection("products", Product);
    // It writes the description of the collection, too.
    const first = noted(db, "first", () => {
      for (let i = 0; i < 100; i += 1) products.set(`k${i}`, { stock: i, name: `product ${i}` });
    });
    let during = 0;
    const before = db.lastCommit;
    const indexed = await db.migrate("products", Product, {
      indexes: INDEXES,
      onProgress: ({ records }) => {
        if (records > 0) return;
        during = noted(db, "during", () => products.set("k7", { stock: 1_000, name: "seven" }));
      },
    });
    throws(() => db.undo(first), CONFLICT);
    throws(() => db.undo(during), CONFLICT);
    // Those of the migration itself.
    for (let number = before + 1; number <= db.lastCommit; number += 1) {
      if (number !== during) throws(() => db.undo(number), BAD);
    }
    expect(indexed.count()).toBe(100);
    expect(indexed.index.byStock.count()).toBe(100);
    expect(indexed.index.byName.get("seven")?.stock).toBe(1_000);
    const later = noted(db, "later", () => indexed.set("k7", { stock: 7, name: "product 7" }));
    db.undo(later);
    expect([...indexed.index.byStock.keys()].at(-1)).toBe("k7");
  });

  test("pack forgets what was before a commit, and frees its space", async () => {
    const name = freshName();
    let db = await opened(storage, KEEP, name);
    const states: [number, [string, string | undefined][]][] = [];
    for (let i = 0; i < 60; i += 1) {
      for (let j = 0; j < 20; j += 1) db.set(`k${(i + j * 3) % 50}`, `${i}`.padEnd(9_000, "-"));
      db.delete(`k${i % 50}`);
      db.commit();
      states.push([db.lastCommit, entries(db)]);
    }
    const segments = db.stats().segments;
    const [cursor] = states[40] as (typeof states)[0];
    let calls = 0;
    const packed = await db.pack({ before: cursor, onProgress: () => (calls += 1) });
    expect(packed).toBe(cursor);
    expect(calls > 0).toBe(true);
    expect(db.stats().segments < segments).toBe(true);
    expect(db.stats().snapshots.count).toBe(0);
    for (let round = 0; round < 2; round += 1) {
      for (const i of [40, 41, 50, 59]) {
        const [at, content] = states[i] as (typeof states)[0];
        using past = db.at(at);
        expect(entries(past)).toStrictEqual(content);
      }
      throws(() => db.at(states[39]?.[0] as number), EXPIRED);
      expect((await db.verify()).problems).toStrictEqual([]);
      db = await reopened(db, storage, name);
    }
    // A commit that was forgotten already, and one of the future.
    expect(await db.pack({ before: 0 })).toBe(cursor);
    await rejects(db.pack({ before: db.lastCommit + 1 }), BAD);
    await rejects(db.pack({} as { before: number }), BAD);
    await rejects(db.pack({ before: 0, other: 1 } as { before: number }), BAD);
  });

  test("pack is refused inside a transaction and a callback", async () => {
    const db = await opened(storage, KEEP);
    db.set("a", "1");
    db.commit();
    const refused: Promise<unknown>[] = [];
    const pack = () => {
      const packed = db.pack({ before: db.lastCommit });
      packed.catch(() => undefined);
      refused.push(packed);
    };
    db.transaction(pack);
    db.updateIf("a", pack);
    for (const one of refused) {
      await rejects(one, { name: "ReentrancyError", code: "VARVE_REENTRANCY" });
    }
    expect(refused.length).toBe(2);
  });

  test("a pack that is aborted leaves everything from its commit on", async () => {
    const db = await opened(storage, KEEP);
    const states: [number, [string, string | undefined][]][] = [];
    for (let i = 0; i < 60; i += 1) {
      for (let j = 0; j < 20; j += 1) db.set(`k${(i + j * 3) % 50}`, `${i}`.padEnd(9_000, "-"));
      db.commit();
      states.push([db.lastCommit, entries(db)]);
    }
    const [before, content] = states[50] as (typeof states)[0];
    const reason = new Error("enough");
    const abort = new AbortController();
    const onProgress = () => abort.abort(reason);
    const running = db.pack({ before, signal: abort.signal, onProgress });
    const second = db.pack({ before });
    expect(await running.catch((error: unknown) => error)).toBe(reason);
    await second.catch(() => undefined);
    using past = db.at(before);
    expect(entries(past)).toStrictEqual(content);
    using held = db.at(states[55]?.[0] as number);
    await db.pack({ before: db.lastCommit });
    expect(entries(past)).toStrictEqual(content);
    expect(entries(held)).toStrictEqual(states[55]?.[1]);
    throws(() => db.at(before), EXPIRED);
  });

  test("what a mark retains is not packed", async () => {
    const db = await opened(storage, KEEP);
    db.set("a", "1");
    db.commit();
    const cursor = db.lastCommit;
    db.retain("backup", cursor);
    db.set("a", "2");
    db.commit();
    expect(await db.pack({ before: db.lastCommit })).toBe(cursor);
    using past = db.at(cursor);
    expect(past.getText("a")).toBe("1");
  });
});
