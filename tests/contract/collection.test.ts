import type { Database } from "varve";
import { json, text } from "varve/struct";
import { deepEqual, equal, ok, test, throws } from "../harness.js";
import { everywhere, freshName, opened, reopened } from "./places.js";

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
    deepEqual(first, { user: "ann", hits: 1 });
    (first as Session).hits = 9;
    equal(sessionsOf(db).get("a1")?.hits, 1);
    db = await reopened(db, storage, name);
    deepEqual(sessionsOf(db).get("a1"), { user: "ann", hits: 1 });
    equal(sessionsOf(db).get("a2"), undefined);
  });

  test("text() stores texts, also non-ASCII ones", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    for (const note of ["", "plain", "žluťoučký kůň", "🐎".repeat(100)]) {
      notes.set("note", note);
      equal(notes.get("note"), note);
    }
    throws(() => notes.set("note", "\ud800"), BAD);
    throws(() => notes.set("note", 1 as unknown as string), BAD);
    equal(notes.get("note"), "🐎".repeat(100));
  });

  test("a codec of two functions stores the bytes that they make", async () => {
    const db = await opened(storage);
    const dates = db.collection<Date>("dates", {
      name: "seconds",
      encode: (date) => new Uint8Array(new Uint32Array([date.getTime() / 1000]).buffer),
      decode: (bytes) => new Date(1000 * (new Uint32Array(bytes.slice().buffer)[0] as number)),
    });
    dates.set("moon", new Date("1994-07-20T02:56:15Z"));
    equal(dates.get("moon")?.toISOString(), "1994-07-20T02:56:15.000Z");
    throws(() => db.collection("others", {} as never), BAD);
  });

  test("records are invisible to raw calls and to other collections", async () => {
    const db = await opened(storage);
    const [a, b] = [db.collection("a", text()), db.collection("b", text())];
    db.set("key", "raw");
    a.set("key", "in a");
    b.set("key", "in b");
    b.set("other", "in b");
    equal(db.getText("key"), "raw");
    equal(a.get("key"), "in a");
    equal(b.get("key"), "in b");
    deepEqual([db.count(), a.count(), b.count()], [1, 1, 2]);
    deepEqual([...db.keys()], ["key"]);
    deepEqual([...b.keys()], ["key", "other"]);
    equal(db.clear(), 1);
    equal(a.delete("key"), true);
    equal(a.delete("key"), false);
    deepEqual(
      [...b.entries()],
      [
        ["key", "in b"],
        ["other", "in b"],
      ],
    );
  });

  test("ranges of keys and pages work", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    for (const key of ["a", "ab", "b", "c", "č"]) notes.set(key, key.toUpperCase());
    deepEqual([...notes.keys({ gte: "ab", lt: "c" })], ["ab", "b"]);
    deepEqual([...notes.values({ prefix: "a" })], ["A", "AB"]);
    deepEqual([...notes.keys({ reverse: true, limit: 2 })], ["č", "c"]);
    equal(notes.count({ gt: "a" }), 4);
    const seen: string[] = [];
    for (let after: string | undefined; ; after = seen.at(-1)) {
      const page = [...notes.keys({ after, limit: 2 })];
      if (page.length === 0) break;
      seen.push(...page);
    }
    deepEqual(seen, ["a", "ab", "b", "c", "č"]);
    deepEqual([...notes.keys({ after: "b", reverse: true })], ["ab", "a"]);
    deepEqual([...notes.keys({ after: "b", gte: "a", lte: "c" })], ["c"]);
    equal(notes.clear({ lt: "b" }), 2);
    deepEqual([...notes.keys()], ["b", "c", "č"]);
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
    equal(sessions.updateIf("a1", hit), true);
    equal(sessions.updateIf("a1", hit, { predicate: ({ hits }) => hits > 2 }), false);
    equal(
      sessions.updateIf("a1", ({ hits }) => ({ user: "a longer name", hits })),
      true,
    );
    deepEqual(sessions.get("a1"), { user: "a longer name", hits: 2 });
    equal(sessions.updateIf("a2", hit), false);
    equal(sessions.updateIf("a2", hit, { valueIfMissing: { user: "bob", hits: 0 } }), true);
    equal(sessions.get("a2")?.hits, 1);
    equal(
      sessions.updateIf("a2", hit, { predicate: ({ hits }) => hits > 1, predicateKey: "a1" }),
      true,
    );
    equal(sessions.get("a2")?.hits, 2);
    equal(
      sessions.updateIf("a3", hit, {
        predicate: () => false,
        valueIfMissing: { user: "eve", hits: 0 },
      }),
      false,
    );
    equal(sessions.has("a3"), false);
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
    deepEqual(sessions.get("a1"), { user: "ann", hits: 1 });
    equal(db.count(), 0);
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
    equal(sessions.count(), 0);
    equal(db.stats().pendingBytes, 0);
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
          equal(a.get("key"), "undone");
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    deepEqual([a.count(), db.count()], [0, 0]);
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
    deepEqual([...db.collection("a", text()).entries()], [["more", "in a"]]);
    deepEqual([...db.collection("b", text()).entries()], [["key", "in b"]]);
  });

  test("getMany and versions work", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    notes.set("a", "A");
    notes.set("b", "B");
    deepEqual(notes.getMany(["b", "c", "a"]), ["B", undefined, "A"]);
    const entry = notes.getEntry("a");
    equal(entry?.value, "A");
    equal(notes.getEntry("c"), undefined);
    const ifVersion = entry?.version;
    notes.set("a", "A2", { ifVersion });
    throws(() => notes.set("a", "A3", { ifVersion }), { code: "VARVE_CONFLICT" });
    throws(() => notes.set("b", "B2", { ifVersion: 0 }), { code: "VARVE_CONFLICT" });
    notes.set("c", "C", { ifVersion: 0 });
    deepEqual(notes.getMany(["a", "b", "c"]), ["A2", "B", "C"]);
  });

  test("all handles of a database share a collection, and a closed handle has none", async () => {
    const name = freshName();
    const [one, two] = [await opened(storage, {}, name), await opened(storage, {}, name)];
    // memory() has separate databases per name; here both names are one.
    const [a, b] = [one.collection("notes", text()), two.collection("notes", text())];
    a.set("key", "A");
    equal(b.get("key"), "A");
    throws(() => two.collection("notes", json()), { code: "VARVE_SCHEMA_MISMATCH" });
    const walk = a.keys()[Symbol.iterator]();
    await one.close();
    throws(() => a.get("key"), { code: "VARVE_DATABASE_CLOSED" });
    throws(() => walk.next(), { code: "VARVE_DATABASE_CLOSED" });
    throws(() => one.collection("notes", text()), { code: "VARVE_DATABASE_CLOSED" });
    equal(b.get("key"), "A");
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
    equal(db.collection("notes", text()).get("a"), "A");
    equal(db.collection("other", json()).get("a"), 1);
  });

  test("the name must be a string", async () => {
    const db = await opened(storage);
    for (const bad of ["", "x".repeat(201), 1, undefined, "\ud800"]) {
      throws(() => db.collection(bad as string, text()), BAD);
    }
    equal(db.collection("../\u0000/ž", text()).name, "../\u0000/ž");
    db.collection("__proto__", text()).set("__proto__", "kept");
    equal(db.collection("__proto__", text()).get("__proto__"), "kept");
    db.collection("constructor", json()).set("a", { __proto__: null, constructor: 1 });
    ok(db.collection("constructor", json()).has("a"));
  });

  test("a collection that never existed is empty in a read-only database", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.collection("notes", text()).set("a", "A");
    db = await reopened(db, storage, name, { readOnly: true });
    equal(db.collection("missing", text()).get("a"), undefined);
    equal(db.collection("missing", text()).count(), 0);
    deepEqual([...db.collection("missing", text()).keys()], []);
    equal(db.collection("notes", text()).get("a"), "A");
    throws(() => db.collection("missing", text()).set("a", "A"), { code: "VARVE_READ_ONLY" });
  });

  test("all but ranges works without key order", async () => {
    const name = freshName();
    let db = await opened(storage, { ordered: false }, name);
    db.collection("notes", text()).set("a", "A");
    db.collection("other", text()).set("a", "B");
    db = await reopened(db, storage, name, { ordered: false });
    equal(db.collection("third", text()).count(), 0);
    db.collection("third", text()).set("a", "C");
    const notes = db.collection("notes", text());
    equal(notes.get("a"), "A");
    equal(db.collection("other", text()).get("a"), "B");
    throws(() => notes.keys(), BAD);
    equal(notes.count(), 1);
  });

  test("clear is atomic", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    for (let i = 0; i < 3_000; i++) notes.set(`key ${i}`, "note");
    throws(
      () =>
        db.transaction(() => {
          equal(notes.clear(), 3_000);
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    equal(notes.count(), 3_000);
    equal(notes.clear(), 3_000);
    equal(notes.count(), 0);
  });
});
