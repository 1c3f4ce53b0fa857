import { type Collection, type Database, open } from "varve";
import { auto, json, str, struct, text as textType, u32 } from "varve/struct";
import { assert, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { throws } from "../support/errors.js";
import { text, turn } from "../support/values.js";
import { FakeStorage, platform } from "./fake-storage.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const YEAR = 365 * 86_400_000;
const START = Date.UTC(2030, 0, 1);

/** A clock that stands still until it is set. It is that of the program until the test ends. */
class Clock {
  now = START;

  constructor() {
    const real = Date.now;
    Date.now = () => this.now;
    onTestFinished(() => {
      Date.now = real;
    });
  }

  /** Moves the clock, and begins a new turn. */
  async to(ms: number): Promise<void> {
    this.now = START + ms;
    await turn();
  }
}

const user = struct("User", { name: str, age: u32 });

everywhere("records that expire", ({ storage }) => {
  test("a key is absent everywhere from its time on, and never before", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    clock.now += 1;
    db.set("a", "1", { expireIn: 1_500 });
    db.set("b", "2", { expireAt: START + 60_000 });
    db.set("c", "3", { expireAt: new Date(START + 3_000) });
    db.set("d", "4");
    expect(db.getEntry("a")?.expires).toStrictEqual(new Date(START + 2_000));
    expect(db.getEntry("b")?.expires).toStrictEqual(new Date(START + 60_000));
    expect(db.getEntry("d")?.expires).toBe(undefined);
    await clock.to(1_999);
    expect([...db.keys()]).toStrictEqual(["a", "b", "c", "d"]);
    await clock.to(2_000);
    expect(db.get("a")).toBe(undefined);
    expect(db.getText("a")).toBe(undefined);
    expect(db.has("a")).toBe(false);
    expect(db.getEntry("a")).toBe(undefined);
    expect(db.pin("a")).toBe(undefined);
    expect(db.delete("a")).toBe(false);
    expect(db.updateIf("a", () => {})).toBe(false);
    expect(db.getMany(["a", "b"]).map((view) => view && text(view))).toStrictEqual([
      undefined,
      "2",
    ]);
    await clock.to(3_000);
    expect([...db.keys()]).toStrictEqual(["b", "d"]);
    expect(Array.from(db.values(), text)).toStrictEqual(["2", "4"]);
    expect(db.count()).toBe(2);
    expect(db.count({ lt: "d" })).toBe(1);
    const { keys, records } = db.stats();
    expect([keys, records]).toStrictEqual([2, 2]);
  });

  test("a turn sees one time", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    db.set("a", "1", { expireIn: 1_000 });
    await clock.to(500);
    expect(db.has("a")).toBe(true);
    clock.now = START + 5_000;
    expect(db.has("a")).toBe(true);
    await turn();
    expect(db.has("a")).toBe(false);
  });

  test("an update keeps the expiry, a set without options ends it, and touch changes it", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    db.set("kept", "1", { expireIn: 10_000 });
    db.set("ended", "1", { expireIn: 10_000 });
    db.set("touched", "1", { expireIn: 10_000 });
    db.set("forever", filled(3_000_000, 7), { expireIn: 10_000 });
    db.updateIf("kept", () => "a longer value");
    db.set("ended", "2");
    const { version } = db.getEntry("touched") ?? { version: 0 };
    expect(db.touch("touched", { expireIn: 20_000 })).toBe(true);
    expect(db.touch("missing", { expireIn: 20_000 })).toBe(false);
    expect(db.touch("forever", { expireIn: Number.POSITIVE_INFINITY })).toBe(true);
    const entry = db.getEntry("touched");
    expect(entry?.expires).toStrictEqual(new Date(START + 20_000));
    assert((entry?.version ?? 0) > version, "it has a new version");
    await clock.to(10_000);
    expect([...db.keys()]).toStrictEqual(["ended", "forever", "touched"]);
    expect(db.touch("kept", { expireIn: 20_000 })).toBe(false);
    expect(db.get("forever")?.length).toBe(3_000_000);
    await clock.to(20_000);
    expect([...db.keys()]).toStrictEqual(["ended", "forever"]);
  });

  test("an expired key can be set and inserted again, and ifVersion 0 holds for it", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    db.set("a", "old", { expireIn: 1_000 });
    db.set("b", "old", { expireIn: 1_000 });
    await clock.to(1_000);
    db.set("a", "new", { ifVersion: 0, expireIn: 5_000 });
    expect(db.updateIf("b", () => {}, { valueIfMissing: "inserted" })).toBe(true);
    await clock.to(4_000);
    expect(db.getText("a")).toBe("new");
    expect(db.getText("b")).toBe("inserted");
    await clock.to(6_000);
    expect([...db.keys()]).toStrictEqual(["b"]);
  });

  test("what was seen as expired stays so when the clock is set back, also after reopening", async () => {
    const clock = new Clock();
    const name = freshName();
    let db = await opened(storage, {}, name);
    for (let i = 0; i < 500; i++) db.set(`key ${i}`, "value", { expireIn: 1_000 + i });
    db.set("later", "value", { expireIn: 3 * YEAR });
    await clock.to(YEAR);
    expect(db.count()).toBe(1);
    await clock.to(-YEAR);
    expect([...db.keys()]).toStrictEqual(["later"]);
    db = await reopened(db, storage, name);
    expect([...db.keys()]).toStrictEqual(["later"]);
    await clock.to(-YEAR + 1_000);
    db.set("new", "value", { expireIn: 1_000 });
    expect(db.has("new")).toBe(true);
  });

  test("the room of many expired records comes back without a call", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    for (let i = 0; i < 2_000; i++) db.set(`key ${i}`, filled(1_000, 1), { expireIn: 1_000 });
    await db.flushed;
    const before = db.stats().liveBytes;
    await clock.to(1_000);
    expect(db.count()).toBe(0);
    await db.compact();
    expect(db.stats().liveBytes < before / 4).toBe(true);
  });

  test("a rolled back transaction leaves every expiry as it was", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    db.set("a", "1", { expireIn: 1_000 });
    db.set("b", "1");
    throws(
      () => {
        db.transaction(() => {
          db.set("a", "2");
          db.set("b", "2", { expireIn: 500 });
          db.touch("a", { expireIn: 9_000 });
          db.set("c", "2", { expireIn: 500 });
          throw new Error("no");
        });
      },
      { message: "no" },
    );
    expect(db.getEntry("a")?.expires).toStrictEqual(new Date(START + 1_000));
    await clock.to(1_000);
    expect([...db.keys()]).toStrictEqual(["b"]);
  });

  test("a read-only database hides what has expired", async () => {
    const clock = new Clock();
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.set("a", "1", { expireIn: 1_000 });
    db.set("b", "2");
    await db.close();
    clock.now = START + 1_000;
    const again = await opened(storage, { readOnly: true }, name);
    expect([...again.keys()]).toStrictEqual(["b"]);
    expect(again.count()).toBe(1);
    expect(again.has("a")).toBe(false);
  });

  test("an export has the expiry of each record and nothing that has expired", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    db.set("a", "1", { expireIn: 1_000 });
    db.set("b", "2", { expireIn: 5_000 });
    const users = usersOf(db);
    users.set("eve", { name: "Eve", age: 7 }, { expireIn: 5_000 });
    await clock.to(1_000);
    const bytes = await new Response(await db.export()).arrayBuffer();
    const copy = await open("copy", { from: bytes, readOnly: true, ...wasmOption() });
    onTestFinished(() => copy.close());
    expect([...copy.keys()]).toStrictEqual(["b"]);
    expect(copy.getEntry("b")?.expires).toStrictEqual(new Date(START + 5_000));
    expect(usersOf(copy).getEntry("eve")?.expires).toStrictEqual(new Date(START + 5_000));
    await clock.to(5_000);
    expect(copy.count()).toBe(0);
    expect([...usersOf(copy).index.byAge.keys()]).toStrictEqual([]);
  });

  test("index entries expire with their records, and unique values are free again", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    const users = usersOf(db);
    users.set("eve", { name: "Eve", age: 7 }, { expireIn: 1_000 });
    users.set("bob", { name: "Bob", age: 8 });
    throws(() => users.set("ann", { name: "Eve", age: 9 }), { code: "VARVE_UNIQUE_VIOLATION" });
    await clock.to(1_000);
    expect(users.count()).toBe(1);
    expect([...users.index.byAge.keys()]).toStrictEqual(["bob"]);
    expect(db.stats().indexEntries).toBe(2);
    users.set("ann", { name: "Eve", age: 7 });
    expect([...users.index.byAge.keys()]).toStrictEqual(["ann", "bob"]);
    await clock.to(2_000);
    expect([...users.index.byName.keys()]).toStrictEqual(["bob", "ann"]);
  });

  test("index entries follow when the expiry of a record changes", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    const users = usersOf(db);
    users.set("touched", { name: "A", age: 1 }, { expireIn: 1_000 });
    users.set("set", { name: "B", age: 2 }, { expireIn: 1_000 });
    users.set("updated", { name: "C", age: 3 }, { expireIn: 3_000 });
    users.set("ends", { name: "D", age: 4 });
    users.touch("touched", { expireIn: 5_000 });
    users.set("set", { name: "B", age: 2 });
    users.updateIf("updated", (one) => {
      one.age = 30;
    });
    users.touch("ends", { expireIn: 2_000 });
    await clock.to(2_000);
    expect([...users.index.byAge.keys()]).toStrictEqual(["touched", "set", "updated"]);
    await clock.to(3_000);
    expect([...users.index.byAge.keys()]).toStrictEqual(["touched", "set"]);
    await clock.to(5_000);
    expect([...users.index.byAge.keys()]).toStrictEqual(["set"]);
    expect([...users.keys()]).toStrictEqual(["set"]);
  });

  test("a collection's default holds for all that is set without an expiry of its own", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    const cache = db.collection("cache", json<{ n: number }>(), { expireIn: 2_000 });
    cache.set("default", { n: 1 });
    cache.set("own", { n: 2 }, { expireIn: 5_000 });
    cache.set("never", { n: 3 }, { expireIn: Number.POSITIVE_INFINITY });
    cache.updateIf("inserted", () => {}, { valueIfMissing: { n: 4 } });
    cache.batch([{ type: "set", key: "batch", value: { n: 5 } }]);
    const lines = '{"key":"line","value":{"n":6}}\n';
    expect(await cache.fromJsonLines(lines)).toBe(1);
    expect(cache.count()).toBe(6);
    await clock.to(2_000);
    expect([...cache.keys()]).toStrictEqual(["never", "own"]);
    await clock.to(5_000);
    expect([...cache.keys()]).toStrictEqual(["never"]);
  });

  test("push never gives the id of a record that has expired", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    const queue = db.collection("queue", textType(), { key: auto(), expireIn: 1_000 });
    expect([queue.push("a"), queue.push("b")]).toStrictEqual([1, 2]);
    await clock.to(1_000);
    expect(queue.push("c")).toBe(3);
  });

  test("a ref shows that its record has expired", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    const names: Collection<string, string, unknown, string> = db.collection(
      "names",
      textType(),
    ) as never;
    names.set("a", "Ann", { expireIn: 1_000 });
    const ref = names.ref("a");
    expect(ref.value).toBe("Ann");
    await clock.to(1_000);
    expect(ref.value).toBe(undefined);
  });

  test("an expiry that is past makes the key absent at once", async () => {
    new Clock();
    const db = await opened(storage);
    db.set("a", "1");
    db.set("a", "2", { expireAt: START - YEAR });
    expect(db.get("a")).toBe(undefined);
    db.set("b", "1", { expireAt: new Date(-5) });
    expect(db.count()).toBe(0);
  });

  test("an expiry that is no time is refused, and nothing is written", async () => {
    new Clock();
    const db = await opened(storage);
    for (const expireIn of [0, -1, Number.NaN, "60", null, new Date()]) {
      throws(() => db.set("a", "1", { expireIn: expireIn as number }), BAD);
      throws(() => db.collection("c", textType(), { expireIn: expireIn as number }), BAD);
    }
    for (const expireAt of [Number.NaN, "2030", null, new Date(Number.NaN), {}]) {
      throws(() => db.set("a", "1", { expireAt: expireAt as number }), BAD);
      throws(() => db.touch("a", { expireAt: expireAt as number }), BAD);
    }
    throws(() => db.set("a", "1", { expireIn: 1, expireAt: 1 }), BAD);
    throws(() => db.set("a", "1", { expireAt: START + 200 * YEAR }), BAD);
    throws(() => db.collection("c", textType(), { expireIn: 1e300 }), BAD);
    throws(() => db.set("a", "1", { expires: 1 } as never), BAD);
    const long = "k".repeat(65_523);
    throws(() => db.set(long, "1", { expireIn: 60_000 }), { ...BAD, message: "65,522" });
    expect(db.has(long)).toBe(false);
    db.set(long.slice(1), "1", { expireIn: 60_000 });
    expect(db.has(long.slice(1))).toBe(true);
    db.delete(long.slice(1));
    throws(() => db.touch("a", {}), BAD);
    throws(() => db.touch("a", { ifVersion: 1 } as never), BAD);
    throws(() => db.touch("a", undefined as never), BAD);
    throws(() => db.set("k".repeat(65_523), "1", { expireIn: 1 }), BAD);
    throws(() => db.set("" as never, "1", { expireIn: 1 }), BAD);
    db.set("a", "1");
    expect(db.getEntry("a")?.expires).toBe(undefined);
    expect(db.count()).toBe(1);
  });

  test("a snapshot keeps what had not expired when it was taken, and nothing else", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    const users = usersOf(db);
    users.set("ann", { name: "Ann", age: 3 }, { expireIn: 1_000 });
    users.set("bob", { name: "Bob", age: 4 }, { expireIn: 2_000 });
    users.set("eve", { name: "Eve", age: 5 });
    for (let i = 0; i < 300; i += 1) db.set(`key${i}`, "1", { expireIn: 1_000 + (i % 2) * 1_000 });
    await clock.to(1_000);
    const then = db.snapshot();
    const old = then.collection("users", user, {
      indexes: { byAge: "age", byName: { fields: "name", unique: true } },
    });
    const check = () => {
      expect([...old.keys()]).toStrictEqual(["bob", "eve"]);
      expect([...old.index.byAge.keys()]).toStrictEqual(["bob", "eve"]);
      expect(old.count()).toBe(2);
      expect(old.get("bob")?.age).toBe(4);
      expect(old.get("ann")).toBe(undefined);
      expect([then.count(), [...then.keys()].length, then.has("key1")]).toStrictEqual([
        150,
        150,
        true,
      ]);
      expect(then.getMany(["key0", "key1"]).map((view) => view && text(view))).toStrictEqual([
        undefined,
        "1",
      ]);
      expect([...then.values()].length).toBe(150);
    };
    check();
    await clock.to(2_000);
    check();
    expect([users.count(), db.count()]).toStrictEqual([1, 0]);
    users.clear();
    await clock.to(3_000);
    check();
    then.close();
    expect([users.count(), db.count()]).toStrictEqual([0, 0]);
  });

  test("an expiry is a deletion for changes, logs and followers", async () => {
    const clock = new Clock();
    const db = await opened(storage);
    db.set("a", "1", { expireIn: 1_000 });
    db.set("b", "1");
    await db.committed;
    const cursor = db.lastCommit;
    await clock.to(1_000);
    expect(db.has("a")).toBe(false);
    await db.committed;
    const seen = (records: Iterable<{ type: string; key: unknown }>) =>
      Array.from(records, ({ type, key }) => `${type} ${key}`);
    expect(seen(db.changes({ since: cursor }))).toStrictEqual(["delete a"]);
    const walked = Array.from(db.log({ since: cursor }), (tx) => seen(tx)).flat();
    expect(walked).toStrictEqual(["delete a"]);
    for await (const { records, number } of db.follow({ since: cursor })) {
      expect(seen(records)).toStrictEqual(["delete a"]);
      expect(seen(db.changes({ since: number }))).toStrictEqual([]);
      break;
    }
  });

  test("changes lead to the present also while much of what has expired is not deleted yet", async () => {
    const clock = new Clock();
    const name = freshName();
    const db = await opened(storage, {}, name);
    for (let i = 0; i < 500; i++) db.set(`old ${i}`, "1", { expireIn: 1_000 });
    db.commit();
    const since = db.lastCommit;
    for (let i = 0; i < 500; i++) db.set(`new ${i}`, "1", { expireIn: 1_000 });
    db.set("past", "1", { expireAt: START - 5_000 });
    db.set("stays", "1");
    db.commit();
    const changed = (database: Database) =>
      Array.from(database.changes({ since }), ({ type, key }) => `${type} ${String(key)}`);
    await clock.to(1_000);
    const deleted = Array.from({ length: 500 }, (_, i) => [`delete new ${i}`, `delete old ${i}`]);
    const wanted = ["delete past", "set stays", ...deleted.flat()];
    expect(changed(db).sort()).toStrictEqual(wanted.sort());
  });

  test("changes of a read-only database have nothing that has expired", async () => {
    const clock = new Clock();
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.set("a", "1", { expireIn: 1_000 });
    db.set("b", "1");
    await db.close();
    clock.now = START + 1_000;
    const again = await opened(storage, { readOnly: true }, name);
    const keys = Array.from(again.changes({ since: 0 }), ({ key }) => key);
    expect(keys).toStrictEqual(["b"]);
  });

  test("records expire in a database without order too", async () => {
    const clock = new Clock();
    const db = await opened(storage, { ordered: false });
    db.set("a", "1", { expireIn: 1_000 });
    db.set("b", "1");
    await clock.to(1_000);
    expect([db.has("a"), db.has("b"), db.count()]).toStrictEqual([false, true, 1]);
  });
});

function usersOf(db: Database) {
  return db.collection("users", user, {
    indexes: { byAge: "age", byName: { fields: "name", unique: true } },
  });
}

test("on a full disk, changes reports what it could not commit as lost", async () => {
  const clock = new Clock();
  const fake = new FakeStorage();
  const db = await opened(fake);
  for (let i = 0; i < 20_000; i += 1) {
    db.set(`${i}`.padEnd(100, "-"), "1", { expireAt: START + 1_000 });
  }
  db.commit();
  await clock.to(2_000);
  db.set("mine", "1");
  const committed = db.committed.then(
    () => true,
    () => false,
  );
  fake.fault = ({ op }) => (op === "write" ? platform.enospc() : undefined);
  throws(() => [...db.changes({ since: 0 })], { code: "VARVE_QUOTA_EXCEEDED" });
  expect([await committed, db.has("mine")]).toStrictEqual([false, false]);
  fake.fault = () => undefined;
  await db.close();
});
