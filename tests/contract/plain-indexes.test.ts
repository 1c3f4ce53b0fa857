/** Indexes over fields of plain objects, and indexes of many values of one record. */

import type { Database } from "varve";
import { standard } from "varve/standard";
import {
  array,
  desc,
  f64,
  json,
  option,
  str,
  struct,
  text,
  timestamp,
  u8,
  u16,
  u32,
  vec,
} from "varve/struct";
import { structured } from "varve/structured";
import { assert, expect, test } from "vitest";
import { z } from "zod";
import { rejects, throws } from "../support/errors.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const TAKEN = { code: "VARVE_UNIQUE_VIOLATION" } as const;
const MISMATCH = { code: "VARVE_SCHEMA_MISMATCH" } as const;

interface User {
  email?: string | null;
  age?: number;
  address?: { city?: string };
  tags?: string[];
}

const INDEXES = {
  byEmail: { fields: "email", type: str, unique: true },
  byCity: { fields: ["address.city", desc("age")], type: [str, u8] },
  byAge: { fields: "age", type: option(u8) },
  byTag: { fields: "tags", type: str, multiEntry: true },
} as const;

const usersOf = (db: Database) => db.collection("users", json<User>(), { indexes: INDEXES });
type Users = ReturnType<typeof usersOf>;

function filledUsers(db: Database): Users {
  const users = usersOf(db);
  users.set("ann", { email: "ann@x", age: 30, address: { city: "Bonn" }, tags: ["b", "a", "b"] });
  users.set("bob", { email: "bob@x", age: 40, address: { city: "Bonn" }, tags: ["c"] });
  users.set("cid", { age: 20, address: {}, tags: [] });
  users.set("dan", { email: null, address: { city: "Aachen" } });
  return users;
}

/** The engine behind a database, to store what another version writes. */
interface Inside {
  sessionOf(db: Database): {
    readonly engine: {
      get(key: Uint8Array, keyspace: number): Uint8Array<ArrayBuffer>;
      set(key: Uint8Array, value: Uint8Array, keyspace: number): void;
    };
  };
}

/** The keys of records and of entries of indexes. */
function keysOfAllKinds(db: Database): number {
  const { records, indexEntries } = db.stats();
  return records + indexEntries;
}

everywhere("indexes of plain objects", ({ storage }) => {
  test("records are found by paths in plain objects, and those without a value are not in the index", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    filledUsers(db);
    for (const again of [false, true]) {
      if (again) db = await reopened(db, storage, name);
      const { byEmail, byCity, byAge } = usersOf(db).index;
      expect([...byEmail.keys()]).toStrictEqual(["ann", "bob"]);
      expect(byEmail.get("bob@x")?.age).toBe(40);
      expect(byEmail.get("dan@x")).toBe(undefined);
      expect([...byEmail.keys({ prefix: "b" })]).toStrictEqual(["bob"]);
      expect([...byCity.keys()]).toStrictEqual(["bob", "ann"]);
      expect([...byCity.keys({ eq: ["Bonn"], limit: 1 })]).toStrictEqual(["bob"]);
      expect([...byCity.keys({ eq: ["Bonn", 30] })]).toStrictEqual(["ann"]);
      // A type that is an option has a value for what is missing, as a field of a struct has.
      expect([...byAge.keys()]).toStrictEqual(["dan", "cid", "ann", "bob"]);
      expect([...byAge.keys({ eq: null })]).toStrictEqual(["dan"]);
      expect([...byAge.keys({ gte: 30, lt: 40 })]).toStrictEqual(["ann"]);
      expect(byAge.count()).toBe(4);
      expect(byEmail.count()).toBe(2);
      expect([...byAge.entries({ gt: 30 })]).toStrictEqual([["bob", usersOf(db).get("bob")]]);
    }
  });

  test("every kind of write changes the entries, and only those that differ", async () => {
    const db = await opened(storage);
    const users = filledUsers(db);
    const { byEmail, byCity, byTag } = users.index;
    users.updateIf("cid", (user) => {
      user.email = "cid@x";
      user.address = { city: "Chur" };
    });
    expect([...byEmail.keys()]).toStrictEqual(["ann", "bob", "cid"]);
    expect([...byCity.keys()]).toStrictEqual(["bob", "ann", "cid"]);
    users.updateIf("ann", (user) => {
      delete user.email;
    });
    expect([...byEmail.keys()]).toStrictEqual(["bob", "cid"]);
    const versions: number[] = [];
    const watching = byTag.watch({ eq: "a" }, (changes) =>
      versions.push(...changes.map(({ version }) => version)),
    );
    users.updateIf("ann", (user) => {
      user.tags = ["a", "z"];
    });
    await db.committed;
    await Promise.resolve();
    expect([...byTag.entries()].map(([key]) => key)).toStrictEqual(["ann", "bob", "ann"]);
    expect([...byTag.keys({ eq: "b" })]).toStrictEqual([]);
    expect(versions.length).toBe(1);
    watching.close();
    users.batch([
      { type: "delete", key: "bob" },
      { type: "set", key: "eve", value: { email: "bob@x", tags: ["a"] } },
    ]);
    expect([...byEmail.keys()]).toStrictEqual(["eve", "cid"]);
    expect([...byTag.keys({ eq: "a" })]).toStrictEqual(["ann", "eve"]);
    expect(users.delete("eve")).toBe(true);
    expect([...byTag.keys({ eq: "a" })]).toStrictEqual(["ann"]);
    expect(users.clear({ gte: "c" })).toBe(2);
    expect([...byTag.keys()]).toStrictEqual(["ann", "ann"]);
    expect(users.clear()).toBe(1);
    expect(db.stats().indexEntries).toBe(0);
  });

  test("a record is found once by each of its values, and by a range once for each in it", async () => {
    const db = await opened(storage);
    const { byTag } = filledUsers(db).index;
    expect([...byTag.keys({ eq: "b" })]).toStrictEqual(["ann"]);
    expect([...byTag.keys()]).toStrictEqual(["ann", "ann", "bob"]);
    expect([...byTag.keys({ reverse: true, limit: 2 })]).toStrictEqual(["bob", "ann"]);
    expect([...byTag.keys({ gte: "a", lte: "b" })]).toStrictEqual(["ann", "ann"]);
    expect([...byTag.keys({ after: ["a", "ann"] })]).toStrictEqual(["ann", "bob"]);
    expect(byTag.count()).toBe(3);
    expect(byTag.count({ eq: "b" })).toBe(1);
    expect(byTag.get("c")?.email).toBe("bob@x");
    expect(byTag.get("d")).toBe(undefined);
  });

  test("a value of another type is refused with its path, and nothing is written", async () => {
    const db = await opened(storage);
    const users = filledUsers(db);
    const before = keysOfAllKinds(db);
    const wrong: [unknown, RegExp][] = [
      [{ email: 5 }, /^The indexed field email must be a string. Given: 5\.$/],
      [{ age: 256 }, /^The indexed field age must be an integer from 0 to 255/],
      [{ address: { city: {} }, age: 1 }, /^The indexed field address\.city must be a string/],
      [{ tags: ["a", 5] }, /^The indexed field tags\[1\] must be a string. Given: 5\.$/],
      [{ tags: "a" }, /^The indexed field tags must be an array or a set/],
      [{ tags: { length: 1 } }, /^The indexed field tags must be an array or a set/],
    ];
    for (const [value, message] of wrong) {
      throws(() => users.set("new", value as User), { ...BAD, message });
      throws(() => users.set("ann", value as User), { ...BAD, message });
      throws(() => users.updateIf("ann", () => value as User), { ...BAD, message });
    }
    expect(users.has("new")).toBe(false);
    expect(users.get("ann")?.email).toBe("ann@x");
    expect(keysOfAllKinds(db)).toBe(before);
    // What leads to a field may be anything: then there is no value.
    users.set("new", { address: "Bonn" as never, tags: null as never });
    users.set("new", { address: ["Bonn"] as never, tags: [null, "n"] as never });
    users.set("new", 5 as never);
    expect([...users.index.byAge.keys({ eq: null })]).toStrictEqual(["dan", "new"]);
    expect(users.index.byTag.count()).toBe(3);
  });

  test("a unique index refuses a value of another record, of many values too", async () => {
    const db = await opened(storage);
    const users = filledUsers(db);
    throws(() => users.set("new", { email: "ann@x" }), TAKEN);
    users.set("ann", { email: "ann@x" });
    const indexes = {
      byAlias: { fields: "names", type: str, multiEntry: true, unique: true },
    } as const;
    const aliases = db.collection("aliases", json<{ names: string[] }>(), { indexes });
    aliases.set("a", { names: ["x", "y", "x"] });
    aliases.set("b", { names: ["z"] });
    const refused = throws(() => aliases.set("b", { names: ["w", "y"] }), TAKEN);
    assert(/already has this names: "y"/.test((refused as Error).message), String(refused));
    expect([...aliases.index.byAlias.keys()]).toStrictEqual(["a", "a", "b"]);
    aliases.set("a", { names: ["y"] });
    aliases.set("b", { names: ["x"] });
    expect([...aliases.index.byAlias.keys()]).toStrictEqual(["b", "a"]);
  });

  test("values of structured() and of schemas have indexes: over dates, sets and typed arrays", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    interface Draft {
      at: Date;
      tags?: Set<string>;
      scores?: Float64Array;
    }
    const draftsOf = () =>
      db.collection("drafts", structured<Draft>(), {
        key: u32,
        indexes: {
          byTime: { fields: desc("at"), type: timestamp },
          byTag: { fields: "tags", type: str, multiEntry: true },
          byScore: { fields: "scores", type: f64, multiEntry: true },
        },
      });
    const User = z.object({ name: z.string(), plan: z.string().default("free") });
    const plansOf = () =>
      db.collection("plans", standard(User), {
        indexes: { byPlan: { fields: "plan", type: str } },
      });
    draftsOf().set(1, { at: new Date(1), tags: new Set(["x", "y"]) });
    draftsOf().set(2, { at: new Date(2), scores: new Float64Array([1.5, -2, 1.5]) });
    throws(() => draftsOf().set(3, { at: "now" as never }), BAD);
    throws(() => draftsOf().set(3, { at: new Date(3), scores: new Float64Array([Number.NaN]) }), {
      ...BAD,
      message: /scores\[0\] must be a number other than NaN/,
    });
    plansOf().set("ann", { name: "Ann" });
    plansOf().set("bob", { name: "Bob", plan: "paid" });
    db = await reopened(db, storage, name);
    const { byTime, byTag, byScore } = draftsOf().index;
    expect([...byTime.keys()]).toStrictEqual([2, 1]);
    expect(byTime.get(new Date(1))?.tags).toStrictEqual(new Set(["x", "y"]));
    expect([...byTag.keys({ eq: "y" })]).toStrictEqual([1]);
    expect([...byScore.keys()]).toStrictEqual([2, 2]);
    expect([...byScore.keys({ lt: 0 })]).toStrictEqual([2]);
    const { byPlan } = plansOf().index;
    expect([...byPlan.keys({ eq: "free" })]).toStrictEqual(["ann"]);
  });

  test("lists in structs have an entry for each value", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const Inner = struct("Inner", { marks: array(u16, 2) });
    const Post = struct("Post", { tags: vec(str), inner: Inner, may: option(vec(option(u8))) });
    const indexes = {
      byTag: { fields: "tags", multiEntry: true },
      byMark: { fields: desc("inner.marks"), multiEntry: true },
      byMay: { fields: "may", multiEntry: true },
    } as const;
    const postsOf = () => db.collection("posts", Post, { key: u32, indexes });
    postsOf().set(1, { tags: ["b", "a", "b"], inner: { marks: [1, 2] } });
    postsOf().set(2, { tags: [], inner: { marks: [2, 2] }, may: [3, undefined, 3] });
    const seen = () => {
      const { byTag, byMark, byMay } = postsOf().index;
      return [[...byTag.keys()], [...byMark.keys()], [...byMay.keys()]];
    };
    expect(seen()).toStrictEqual([
      [1, 1],
      [1, 2, 1],
      [2, 2],
    ]);
    db = await reopened(db, storage, name);
    const posts = postsOf();
    expect([...posts.index.byMay.keys({ eq: null })]).toStrictEqual([2]);
    expect([...posts.index.byTag.values({ eq: "a" })].map(({ tags }) => tags.length)).toStrictEqual(
      [3],
    );
    posts.updateIf(1, (post) => post.tags.set(1, "c"));
    expect([...posts.index.byTag.entries()].map(([key]) => key)).toStrictEqual([1, 1]);
    expect([...posts.index.byTag.keys({ eq: "a" })]).toStrictEqual([]);
    expect([...posts.index.byTag.keys({ eq: "c" })]).toStrictEqual([1]);
    posts.updateIf(2, (post) => post.assign({ tags: ["c", "d"] }));
    expect([...posts.index.byTag.keys({ eq: "c" })]).toStrictEqual([1, 2]);
    posts.delete(1);
    expect(seen()).toStrictEqual([[2, 2], [2], [2, 2]]);
  });

  test("impossible indexes are refused with what to do", async () => {
    const db = await opened(storage);
    const Post = struct("Post", { tags: vec(str), name: str });
    const cases: [unknown, unknown, RegExp][] = [
      [json(), "email", /needs the field "email", but its type is not given: add the option type/],
      [
        json(),
        { fields: "email", type: [str] },
        /option type of the index "by" must be one type for/,
      ],
      [json(), { fields: ["a", "b"], type: [str] }, /must be one type for each field/],
      [json(), { fields: "a", type: "str" }, /needs a type of varve\/struct/],
      [json(), { fields: "a", type: desc(str) }, /takes no desc\(\): put it around/],
      [json(), { fields: "a", type: vec(str) }, /cannot be part of a key: its kind is vec/],
      [json(), { fields: ["a", "b"], type: [str, str], multiEntry: true }, /it takes one field/],
      [
        json(),
        { fields: "a", type: str, multiEntry: 1 },
        /option multiEntry .* must be true or false/,
      ],
      [json(), { fields: "a", type: str, multientry: true }, /multientry/],
      [text(), { fields: "a", type: str }, /its values have no fields/],
      [Post, { fields: "name", type: str }, /those of Post have types: leave out the option type/],
      [Post, { fields: "name", multiEntry: true }, /the field name is no list/],
      [Post, "tags", /tags cannot be part of a key: its kind is vec/],
    ];
    for (const [codec, by, message] of cases) {
      const name = freshName();
      const declare = () => db.collection(name, codec as never, { indexes: { by } } as never);
      throws(declare, { ...BAD, message });
    }
    filledUsers(db);
    const other = { ...INDEXES, byTag: { fields: "tags", type: str } } as const;
    throws(() => db.collection("users", json<User>(), { indexes: other }), MISMATCH);
    const retyped = { ...INDEXES, byAge: { fields: "age", type: option(u16) } } as const;
    throws(() => db.collection("users", json<User>(), { indexes: retyped }), MISMATCH);
  });

  test("a handle that declares no index keeps those of the file up to date", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    filledUsers(db);
    db = await reopened(db, storage, name);
    const users = db.collection("users", json<User>());
    users.set("ann", { email: "other@x", tags: ["a", "d"] });
    throws(() => users.set("ann", { tags: [5 as never] }), BAD);
    const { byEmail, byTag } = usersOf(db).index;
    expect([...byEmail.keys()]).toStrictEqual(["bob", "ann"]);
    expect([...byTag.keys()]).toStrictEqual(["ann", "bob", "ann"]);
  });

  test("a snapshot shows the indexes as they were", async () => {
    const db = await opened(storage);
    const users = filledUsers(db);
    using then = db.snapshot();
    users.clear();
    const { byTag, byEmail } = then.collection("users", json<User>(), { indexes: INDEXES }).index;
    expect([...byTag.keys()]).toStrictEqual(["ann", "ann", "bob"]);
    expect(byEmail.get("bob@x")?.age).toBe(40);
    expect([...users.index.byTag.keys()]).toStrictEqual([]);
  });

  test("live lists of an index of many values follow it, with a limit too", async () => {
    const db = await opened(storage);
    const users = filledUsers(db);
    const seen: string[][] = [[], []];
    const note = (i: number) => (rows: [string, User][]) => {
      seen[i] = rows.map(([key, { tags }]) => `${key} ${tags}`);
    };
    const all = users.index.byTag.live({ gte: "a", lt: "c" }, note(0));
    const two = users.index.byTag.live({ limit: 2, reverse: true }, note(1));
    const settled = async () => {
      await db.committed;
      for (let i = 0; i < 5; i++) await Promise.resolve();
    };
    await settled();
    expect(seen).toStrictEqual([
      ["ann b,a,b", "ann b,a,b"],
      ["bob c", "ann b,a,b"],
    ]);
    // The entries of "ann" stay, and one of them leaves the first list: its record is another in all others.
    users.set("ann", { tags: ["a", "e", "d"] });
    await settled();
    expect(seen).toStrictEqual([["ann a,e,d"], ["ann a,e,d", "ann a,e,d"]]);
    users.set("ann", { tags: ["a", "b"], age: 5 });
    users.delete("bob");
    await settled();
    expect(seen).toStrictEqual([
      ["ann a,b", "ann a,b"],
      ["ann a,b", "ann a,b"],
    ]);
    users.updateIf("ann", (user) => {
      user.age = 6;
    });
    users.set("bob", { tags: ["a"] });
    await settled();
    expect(seen).toStrictEqual([
      ["ann a,b", "bob a", "ann a,b"],
      ["ann a,b", "bob a"],
    ]);
    all.close();
    two.close();
  });

  test("entries expire with their records", async () => {
    const db = await opened(storage);
    const users = filledUsers(db);
    users.set(
      "gone",
      { email: "gone@x", tags: ["a", "b"] },
      { expireAt: new Date(Date.now() - 5_000) },
    );
    users.set("soon", { email: "soon@x", tags: ["a", "b"] }, { expireIn: 3_600_000 });
    users.updateIf("soon", (user) => {
      user.tags = ["b", "q"];
    });
    expect([...users.index.byTag.keys({ eq: "b" })]).toStrictEqual(["ann", "soon"]);
    users.touch("soon", { expireAt: new Date(Date.now() - 5_000) });
    expect([...users.index.byTag.keys()]).toStrictEqual(["ann", "ann", "bob"]);
    expect([...users.index.byEmail.keys()]).toStrictEqual(["ann", "bob"]);
  });

  test("JSON lines bring the entries, and the line of a wrong value is named", async () => {
    const db = await opened(storage);
    const users = usersOf(db);
    const lines = [
      '{"key":"a","value":{"tags":["x","y"]}}',
      '{"key":"b","value":{"tags":["x",2]}}',
    ];
    await rejects(users.fromJsonLines(`${lines.join("\n")}\n`), {
      message: /line 2.*indexed field tags\[1\] must be a string/i,
    });
    expect([...users.index.byTag.keys()]).toStrictEqual(["a", "a"]);
  });

  test("db.migrate builds them over records that are there, and a wrong value leaves all as it was", async () => {
    const db = await opened(storage);
    const plain = db.collection("users", json<User>());
    for (let i = 0; i < 300; i++)
      plain.set(`${1000 + i}`, { age: i % 7, tags: [`${i % 3}`, "all"] });
    const indexes = {
      byAge: { fields: "age", type: u8 },
      byTag: { fields: "tags", type: str, multiEntry: true },
    } as const;
    plain.set("1299", { tags: [5 as never] });
    await rejects(db.migrate("users", json<User>(), { indexes }), {
      ...BAD,
      message: /^The record "1299" of "users": The indexed field tags\[0\] must be a string/,
    });
    expect(keysOfAllKinds(db)).toBe(300);
    plain.set("1299", { tags: [6 as never], age: 1 });
    plain.set("1299", { tags: [] });
    let steps = 0;
    const users = await db.migrate("users", json<User>(), {
      indexes,
      onProgress: () => {
        steps += 1;
        plain.set(`${2000 + steps}`, { tags: ["late", "all"] });
      },
    });
    expect(users.index.byTag.count({ eq: "all" })).toBe(299 + steps);
    expect(users.index.byTag.count({ eq: "late" })).toBe(steps);
    expect(users.index.byTag.count({ eq: "0" })).toBe(100);
    expect(users.index.byAge.count()).toBe(299);
    // A record that an unfinished index refuses can be changed and deleted.
    plain.set("a", { tags: ["all"] });
    const named = { byName: { fields: "name", type: str } } as const;
    for (const key of ["x", "y", "z"]) users.set(key, { name: 5 } as never);
    const build = (onProgress?: () => void) =>
      db.migrate("users", json<User & { name?: unknown }>(), {
        indexes: { ...indexes, ...named },
        ...(onProgress && { onProgress }),
      });
    await rejects(
      build(() => {
        throw new Error("stop");
      }),
      { message: "stop" },
    );
    throws(() => users.set("w", { name: 6 } as never), BAD);
    expect(users.delete("x")).toBe(true);
    users.set("y", { name: "y" } as never);
    expect(users.updateIf("z", () => ({ name: "z" }) as never)).toBe(true);
    expect([...(await build()).index.byName.keys()]).toStrictEqual(["y", "z"]);
    // From structs, with the values.
    const Old = struct("Old", { tag: str });
    const old = db.collection("old", Old);
    for (let i = 0; i < 100; i++) old.set(`${i}`, { tag: `t${i % 2}` });
    const migrated = await db.migrate("old", json<User>(), {
      indexes,
      migrate: ({ tag }: { tag: string }) => ({ tags: [tag, "all"] }),
    });
    expect(migrated.index.byTag.count({ eq: "t1" })).toBe(50);
    expect(migrated.index.byTag.count()).toBe(200);
    await rejects(
      db.migrate("old", structured<{ age?: number; tags: unknown }>(), {
        indexes,
        migrate: (value: User) => ({ tags: value.tags?.[0] }),
      }),
      {
        ...BAD,
        message: /^The record "0" of "old": The indexed field tags must be an array or a set/,
      },
    );
    expect(migrated.index.byTag.count()).toBe(200);
  });

  test("an index with an option of a newer version is refused", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.collection("users", json<User>(), { indexes: { byAge: INDEXES.byAge } }).set("a", {
      age: 5,
    });
    const { engine } = (db.constructor as unknown as Inside).sessionOf(db);
    const key = new TextEncoder().encode("index/\0\0\0\u0002byAge");
    const stored = engine.get(key, 1).slice();
    const text = new TextDecoder().decode(stored.subarray(24));
    const newer = new TextEncoder().encode(text.replace("{", '{"folded":true,'));
    const bytes = new Uint8Array(24 + newer.length);
    bytes.set(stored.subarray(0, 24));
    bytes.set(newer, 24);
    new DataView(bytes.buffer).setUint32(20, newer.length, true);
    engine.set(key, bytes, 1);
    db.commit();
    db = await reopened(db, storage, name);
    throws(() => db.collection("users", json<User>()), {
      ...MISMATCH,
      message: /index "byAge" of "users" was declared by a newer version: .* option folded/,
    });
  });
});
