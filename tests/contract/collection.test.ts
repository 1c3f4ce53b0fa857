import type { Database } from "varve";
import { json, text } from "varve/struct";
import { assert, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

interface Session {
  user: string;
  hits: number;
}

const sessionsOf = (db: Database) => db.collection("sessions", json<Session>());

everywhere("a collection", ({ storage }) => {
  test("json() stores objects and returns copies", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const given = { user: "ann", hits: 1 };
    sessionsOf(db).set("a1", given);
    given.hits = 7;
    const first = sessionsOf(db).get("a1");
    expect(first).toStrictEqual({ user: "ann", hits: 1 });
    (first as Session).hits = 9;
    expect(sessionsOf(db).get("a1")?.hits).toBe(1);
    db = await reopened(db, storage, name);
    expect(sessionsOf(db).get("a1")).toStrictEqual({ user: "ann", hits: 1 });
    expect(sessionsOf(db).get("a2")).toBe(undefined);
  });

  test("text() stores texts, also non-ASCII ones", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    for (const note of ["", "plain", "žluťoučký kůň", "🐎".repeat(100)]) {
      notes.set("note", note);
      expect(notes.get("note")).toBe(note);
    }
    throws(() => notes.set("note", "\ud800"), BAD);
    throws(() => notes.set("note", 1 as unknown as string), BAD);
    expect(notes.get("note")).toBe("🐎".repeat(100));
  });

  test("a codec of two functions stores the bytes that they make", async () => {
    const db = await opened(storage);
    const dates = db.collection<Date>("dates", {
      name: "seconds",
      encode: (date) => new Uint8Array(new Uint32Array([date.getTime() / 1000]).buffer),
      decode: (bytes) => new Date(1000 * (new Uint32Array(bytes.slice().buffer)[0] as number)),
    });
    dates.set("moon", new Date("1994-07-20T02:56:15Z"));
    expect(dates.get("moon")?.toISOString()).toBe("1994-07-20T02:56:15.000Z");
    throws(() => db.collection("others", {} as never), BAD);
  });

  test("records are invisible to raw calls and to other collections", async () => {
    const db = await opened(storage);
    const [a, b] = [db.collection("a", text()), db.collection("b", text())];
    db.set("key", "raw");
    a.set("key", "in a");
    b.set("key", "in b");
    b.set("other", "in b");
    expect(db.getText("key")).toBe("raw");
    expect(a.get("key")).toBe("in a");
    expect(b.get("key")).toBe("in b");
    expect([db.count(), a.count(), b.count()]).toStrictEqual([1, 1, 2]);
    expect([...db.keys()]).toStrictEqual(["key"]);
    expect([...b.keys()]).toStrictEqual(["key", "other"]);
    expect(db.clear()).toBe(1);
    expect(a.delete("key")).toBe(true);
    expect(a.delete("key")).toBe(false);
    expect([...b.entries()]).toStrictEqual([
      ["key", "in b"],
      ["other", "in b"],
    ]);
  });

  test("ranges of keys and pages work", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    for (const key of ["a", "ab", "b", "c", "č"]) notes.set(key, key.toUpperCase());
    expect([...notes.keys({ gte: "ab", lt: "c" })]).toStrictEqual(["ab", "b"]);
    expect([...notes.values({ prefix: "a" })]).toStrictEqual(["A", "AB"]);
    expect([...notes.keys({ reverse: true, limit: 2 })]).toStrictEqual(["č", "c"]);
    expect(notes.count({ gt: "a" })).toBe(4);
    const seen: string[] = [];
    for (let after: string | undefined; ; after = seen.at(-1)) {
      const page = [...notes.keys({ after, limit: 2 })];
      if (page.length === 0) break;
      seen.push(...page);
    }
    expect(seen).toStrictEqual(["a", "ab", "b", "c", "č"]);
    expect([...notes.keys({ after: "b", reverse: true })]).toStrictEqual(["ab", "a"]);
    expect([...notes.keys({ after: "b", gte: "a", lte: "c" })]).toStrictEqual(["c"]);
    expect(notes.clear({ lt: "b" })).toBe(2);
    expect([...notes.keys()]).toStrictEqual(["b", "c", "č"]);
    throws(() => notes.keys({ from: "a" } as never), BAD);
    throws(() => notes.keys({ gt: 1 } as never), BAD);
  });

  test("updateIf changes an object, or replaces it", async () => {
    const db = await opened(storage);
    const sessions = sessionsOf(db);
    sessions.set("a1", { user: "ann", hits: 1 });
    const hit = (session: Session) => {
      session.hits += 1;
    };
    expect(sessions.updateIf("a1", hit)).toBe(true);
    expect(sessions.updateIf("a1", hit, { predicate: ({ hits }) => hits > 2 })).toBe(false);
    expect(sessions.updateIf("a1", ({ hits }) => ({ user: "a longer name", hits }))).toBe(true);
    expect(sessions.get("a1")).toStrictEqual({ user: "a longer name", hits: 2 });
    expect(sessions.updateIf("a2", hit)).toBe(false);
    expect(sessions.updateIf("a2", hit, { valueIfMissing: { user: "bob", hits: 0 } })).toBe(true);
    expect(sessions.get("a2")?.hits).toBe(1);
    expect(
      sessions.updateIf("a2", hit, { predicate: ({ hits }) => hits > 1, predicateKey: "a1" }),
    ).toBe(true);
    expect(sessions.get("a2")?.hits).toBe(2);
    expect(
      sessions.updateIf("a3", hit, {
        predicate: () => false,
        valueIfMissing: { user: "eve", hits: 0 },
      }),
    ).toBe(false);
    expect(sessions.has("a3")).toBe(false);
  });

  test("a callback that throws, returns a promise or an invalid value changes nothing", async () => {
    const db = await opened(storage);
    const sessions = sessionsOf(db);
    sessions.set("a1", { user: "ann", hits: 1 });
    throws(
      () =>
        sessions.updateIf("a1", (session) => {
          session.hits = 5;
          throw new Error("no");
        }),
      { message: "no" },
    );
    throws(() => sessions.updateIf("a1", (async () => {}) as never), BAD);
    throws(() => sessions.updateIf("a1", ((s: Session) => (s.hits += 1)) as never), BAD);
    throws(() => sessions.updateIf("a1", () => ({ toJSON() {} }) as never), BAD);
    throws(() => sessions.updateIf("a1", () => db.set("raw", "x")), {
      code: "VARVE_REENTRANCY",
    });
    throws(() => sessions.updateIf("a1", () => {}, { predikate: () => true } as never), BAD);
    expect(sessions.get("a1")).toStrictEqual({ user: "ann", hits: 1 });
    expect(db.count()).toBe(0);
  });

  test("a value that cannot be encoded writes nothing", async () => {
    const db = await opened(storage);
    const sessions = sessionsOf(db);
    throws(() => sessions.set("a1", undefined as never), {
      ...BAD,
      message: /no JSON form\. Given/,
    });
    const circle: { self?: unknown } = {};
    circle.self = circle;
    throws(() => sessions.set("a1", circle as never), {
      ...BAD,
      message: /no JSON form: .*\. Given/s,
    });
    throws(() => sessions.set("a1", 5n as never), { ...BAD, message: /no JSON form/ });
    const writer = {
      toJSON: () => {
        throw new Error("no");
      },
    };
    throws(() => sessions.set("a1", writer as never), { message: "no" });
    expect(sessions.count()).toBe(0);
    expect(db.stats().pendingBytes).toBe(0);
  });

  test("writes take part in transactions, even if the first one is rolled back", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const [a, b] = [db.collection("a", text()), db.collection("b", text())];
    throws(
      () =>
        db.transaction(() => {
          a.set("key", "undone");
          db.set("key", "undone");
          expect(a.get("key")).toBe("undone");
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    expect([a.count(), db.count()]).toStrictEqual([0, 0]);
    b.set("key", "in b");
    db.transaction(() => {
      a.set("key", "in a");
      a.batch([
        { type: "set", key: "more", value: "in a" },
        { type: "delete", key: "key" },
      ]);
    });
    throws(() => a.batch([{ type: "delete", key: "more" }, {} as never]), BAD);
    db = await reopened(db, storage, name);
    expect([...db.collection("a", text()).entries()]).toStrictEqual([["more", "in a"]]);
    expect([...db.collection("b", text()).entries()]).toStrictEqual([["key", "in b"]]);
  });

  test("getMany and versions work", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    notes.set("a", "A");
    notes.set("b", "B");
    expect(notes.getMany(["b", "c", "a"])).toStrictEqual(["B", undefined, "A"]);
    const entry = notes.getEntry("a");
    expect(entry?.value).toBe("A");
    expect(notes.getEntry("c")).toBe(undefined);
    const ifVersion = entry?.version;
    notes.set("a", "A2", { ifVersion });
    throws(() => notes.set("a", "A3", { ifVersion }), { code: "VARVE_CONFLICT" });
    throws(() => notes.set("b", "B2", { ifVersion: 0 }), { code: "VARVE_CONFLICT" });
    notes.set("c", "C", { ifVersion: 0 });
    expect(notes.getMany(["a", "b", "c"])).toStrictEqual(["A2", "B", "C"]);
  });

  test("all handles of a database share a collection, and a closed handle has none", async () => {
    const name = freshName();
    const [one, two] = [await opened(storage, {}, name), await opened(storage, {}, name)];
    // memory() has separate databases per name; here both names are one.
    const [a, b] = [one.collection("notes", text()), two.collection("notes", text())];
    a.set("key", "A");
    expect(b.get("key")).toBe("A");
    throws(() => two.collection("notes", json()), { code: "VARVE_SCHEMA_MISMATCH" });
    const walk = a.keys()[Symbol.iterator]();
    await one.close();
    throws(() => a.get("key"), { code: "VARVE_DATABASE_CLOSED" });
    throws(() => walk.next(), { code: "VARVE_DATABASE_CLOSED" });
    throws(() => one.collection("notes", text()), { code: "VARVE_DATABASE_CLOSED" });
    expect(b.get("key")).toBe("A");
  });

  test("the stored codec is remembered, and other codecs are refused", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.collection("notes", text()).set("a", "A");
    db = await reopened(db, storage, name);
    throws(() => db.collection("notes", json()), {
      code: "VARVE_SCHEMA_MISMATCH",
      message: /"notes".*text.*json/,
    });
    db.collection("other", json()).set("a", 1);
    expect(db.collection("notes", text()).get("a")).toBe("A");
    expect(db.collection("other", json()).get("a")).toBe(1);
  });

  test("the name must be a string", async () => {
    const db = await opened(storage);
    for (const bad of ["", "x".repeat(201), 1, undefined, "\ud800"]) {
      throws(() => db.collection(bad as string, text()), BAD);
    }
    expect(db.collection("../\u0000/ž", text()).name).toBe("../\u0000/ž");
    db.collection("__proto__", text()).set("__proto__", "kept");
    expect(db.collection("__proto__", text()).get("__proto__")).toBe("kept");
    db.collection("constructor", json()).set("a", { __proto__: null, constructor: 1 });
    assert(db.collection("constructor", json()).has("a"));
  });

  test("a collection that never existed is empty in a read-only database", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.collection("notes", text()).set("a", "A");
    db = await reopened(db, storage, name, { readOnly: true });
    expect(db.collection("missing", text()).get("a")).toBe(undefined);
    expect(db.collection("missing", text()).count()).toBe(0);
    expect([...db.collection("missing", text()).keys()]).toStrictEqual([]);
    expect(db.collection("notes", text()).get("a")).toBe("A");
    throws(() => db.collection("missing", text()).set("a", "A"), { code: "VARVE_READ_ONLY" });
  });

  test("all but ranges works without key order", async () => {
    const name = freshName();
    let db = await opened(storage, { ordered: false }, name);
    db.collection("notes", text()).set("a", "A");
    db.collection("other", text()).set("a", "B");
    db = await reopened(db, storage, name, { ordered: false });
    expect(db.collection("third", text()).count()).toBe(0);
    db.collection("third", text()).set("a", "C");
    const notes = db.collection("notes", text());
    expect(notes.get("a")).toBe("A");
    expect(db.collection("other", text()).get("a")).toBe("B");
    throws(() => notes.keys(), BAD);
    expect(notes.count()).toBe(1);
  });

  test("what a call has declared is committed, also if it finds no record to change", async () => {
    const db = await opened(storage);
    const key = "missing";
    const changes = [
      () => db.collection("one", text()).delete(key),
      () => db.collection("two", text()).touch(key, { expireIn: 1_000 }),
      () => db.collection("three", text()).clear(),
      () => db.collection("four", text()).updateIf(key, () => {}),
    ];
    for (const change of changes) {
      expect(Number(change())).toBe(0);
      await db.committed;
      expect(db.stats().pendingBytes).toBe(0);
    }
  });

  test("clear is atomic", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    for (let i = 0; i < 3_000; i++) notes.set(`key ${i}`, "note");
    throws(
      () =>
        db.transaction(() => {
          expect(notes.clear()).toBe(3_000);
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    expect(notes.count()).toBe(3_000);
    expect(notes.clear()).toBe(3_000);
    expect(notes.count()).toBe(0);
  });
});
