import { type Collection, type Database, memory, open, type Storage } from "varve";
import { auto, json, str, struct, text, u32, u53 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import { FakeStorage, platform } from "./fake-storage.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const MIB = 1_048_576;

const jobsOf = (db: Database) => db.collection("jobs", text(), { key: auto() });

everywhere("ids of push", ({ storage }) => {
  /** Each way in which a collection loses its highest records. */
  const deletions: [
    string,
    (jobs: Collection<number, string, string, string>, db: Database) => void,
  ][] = [
    ["are deleted one by one", (jobs) => [3, 2, 1].map((id) => jobs.delete(id))],
    ["are deleted from the front", (jobs) => [1, 2, 3].map((id) => jobs.delete(id))],
    ["are cleared", (jobs) => jobs.clear()],
    ["are cleared as a range", (jobs) => jobs.clear({ gte: 2 })],
    ["are cleared from the end", (jobs) => jobs.clear({ reverse: true, limit: 1 })],
    ["are deleted by a batch", (jobs) => jobs.batch([{ type: "delete", key: 3 }])],
    [
      "are deleted by a transaction",
      (jobs, db) => db.transaction(() => [1, 2, 3].map((id) => jobs.delete(id))),
    ],
    [
      "are deleted by a program that declares the keys as u53",
      (_, db) => db.collection("jobs", text(), { key: u53 }).delete(3),
    ],
  ];

  for (const [how, lose] of deletions) {
    test(`ids are assigned once when they ${how}, before and after reopening`, async () => {
      const name = freshName();
      let db = await opened(storage, {}, name);
      let jobs = jobsOf(db);
      expect(["a", "b", "c"].map((job) => jobs.push(job))).toStrictEqual([1, 2, 3]);
      lose(jobs, db);
      expect(jobs.push("d")).toBe(4);
      expect(jobs.push("e"), "they stay dense").toBe(5);
      jobs.clear();
      db = await reopened(db, storage, name);
      jobs = jobsOf(db);
      expect(jobs.push("f")).toBe(6);
      jobs.delete(6);
      db = await reopened(db, storage, name);
      expect(jobsOf(db).push("g")).toBe(7);
    });
  }

  test("ids are assigned once in a queue that is emptied repeatedly", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    let expected = 1;
    for (let round = 0; round < 30; round++) {
      const jobs = jobsOf(db);
      for (let i = 0; i < (round % 4) + 1; i++) expect(jobs.push("job")).toBe(expected++);
      if (round % 3 === 0) await turn();
      for (const [id] of [...jobs.entries()]) assert(jobs.delete(id));
      if (round % 5 === 0) db = await reopened(db, storage, name);
    }
    expect(jobsOf(db).count()).toBe(0);
  });

  test("ids continue after a rolled back deletion and after a refusal by an index", async () => {
    const db = await opened(storage);
    const jobs = jobsOf(db);
    for (const job of ["a", "b"]) jobs.push(job);
    throws(() =>
      db.transaction(() => {
        jobs.delete(2);
        expect(jobs.push("c")).toBe(3);
        throw new Error("undone");
      }),
    );
    expect(jobs.push("c")).toBe(3);
    expect(jobs.count()).toBe(3);
    expect(jobs.delete(9_000), "it was never assigned").toBe(false);
    expect(jobs.push("d")).toBe(4);
  });

  test("ids are not assigned again by a copy, nor by one without the last records", async () => {
    const db = await opened(storage);
    const jobs = jobsOf(db);
    for (const job of ["a", "b", "c"]) jobs.push(job);
    jobs.clear({ gte: 2 });
    const copy = await opened(storage, { from: new Response(db.export()) });
    expect(jobsOf(copy).push("d")).toBe(4);
    const shout = json<{ job: string }>();
    const moved = await db.migrate("jobs", shout, {
      key: auto(),
      migrate: (job: string) => (job === "a" ? undefined : { job }),
    });
    expect(moved.count()).toBe(0);
    expect(moved.push({ job: "d" })).toBe(4);
    moved.delete(4);
    const other = await opened(storage, { from: new Response(db.export()) });
    expect(other.collection("jobs", shout, { key: auto() }).push({ job: "e" })).toBe(5);
  });

  test("ids continue after a migration that leaves out the last records", async () => {
    const db = await opened(storage);
    const jobs = jobsOf(db);
    for (const job of ["a", "b", "c"]) jobs.push(job);
    const options = { key: auto(), migrate: (job: string) => (job === "c" ? undefined : { job }) };
    const moved = await db.migrate("jobs", json<{ job: string }>(), options);
    expect(moved.count()).toBe(2);
    expect(moved.push({ job: "d" })).toBe(4);
  });

  test("imported lines keep their keys, and push continues after them", async () => {
    const db = await opened(storage);
    const jobs = jobsOf(db);
    await jobs.fromJsonLines('{"key":7,"value":"a"}\n{"key":9,"value":"b"}\n');
    jobs.delete(9);
    expect(jobs.push("c")).toBe(10);
  });

  test("ids are dense and need no record if nothing is deleted", async () => {
    const db = await opened(storage);
    const jobs = jobsOf(db);
    jobs.push("first");
    const { version } = db.stats();
    for (let id = 2; id <= 100; id++) expect(jobs.push("job")).toBe(id);
    expect(db.stats().version - version).toBe(99);
    jobs.delete(1);
    const { version: before } = db.stats();
    for (let id = 2; id <= 99; id++) jobs.delete(id);
    expect(db.stats().version - before, "one note served for all of them").toBe(98);
  });
});

describe("ids on a full disk", () => {
  test("the highest id can be deleted when nothing can be written, and is not assigned again", async () => {
    const fake = new FakeStorage();
    let db = await opened(fake, {}, "full");
    const jobs = jobsOf(db);
    for (let i = 0; i < 300; i++) jobs.push("x".repeat(10_000));
    db.commit();
    fake.fault = ({ op, at, length }) => {
      const isTooMuch =
        (op === "write" && at + length > 8 * MIB) || (op === "truncate" && at > 8 * MIB);
      return isTooMuch ? platform.quota() : undefined;
    };
    const REFUSED = { code: "VARVE_QUOTA_EXCEEDED" };
    for (let size = 10_000; size > 0; size = size >> 2) {
      throws(() => {
        for (;;) {
          db.set(`filler ${size} ${Math.random()}`, "x".repeat(size));
          db.commit();
        }
      }, REFUSED);
    }
    for (let id = 300; id > 0; id--) {
      expect(jobs.delete(id)).toBe(true);
      db.commit();
    }
    fake.fault = () => undefined;
    expect(jobs.push("next")).toBe(301);
    db = await reopened(db, fake, "full");
    expect(jobsOf(db).push("next")).toBe(302);
  });
});

describe("the limit of collections", () => {
  const LIMIT = 65_534;
  const FULL = { code: "VARVE_QUOTA_EXCEEDED", message: /65534 collections and indexes/ };

  /** A database with only this many unassigned keyspace numbers. */
  async function nearlyFull(storage: Storage, name: string, left: number): Promise<Database> {
    const db = await open(name, { storage, ...wasmOption() });
    db.collection("first", text()).set("key", "first");
    // Every collection gets a number; the last assigned one is stored with its first record.
    for (let i = 0; i < LIMIT - left - 2; i++) db.collection(`asked for ${i}`, text());
    db.collection("last", text()).set("key", "last");
    await db.close();
    return opened(storage, {}, name);
  }

  test("reaching the limit throws an error, and affects nothing else", async () => {
    const name = freshName();
    const storage = memory();
    const db = await nearlyFull(storage, name, 0);
    // Collections that failed were never written, so their numbers are free.
    for (let i = 0; i < LIMIT - 2; i++) db.collection(`again ${i}`, text());
    throws(() => db.collection("one too many", text()), FULL);
    throws(() => db.collection("one too many", text()), FULL);
    expect(db.collection("first", text()).get("key")).toBe("first");
    db.collection("again 7", text()).set("key", "seven");
    db.set("raw", "goes on");
    db.flush();
    throws(
      () => db.collection("one too many", struct("A", { a: u32 }), { indexes: { a: "a" } }),
      FULL,
    );
    const after = await reopened(db, storage, name);
    expect(after.collection("again 7", text()).get("key")).toBe("seven");
    expect(after.collection("last", text()).get("key")).toBe("last");
    expect(after.getText("raw")).toBe("goes on");
  });

  test("keyspace numbers left by migrations are assigned again", async () => {
    const name = freshName();
    const storage = memory();
    let db = await nearlyFull(storage, name, 1);
    for (let round = 0; round < 6; round++) {
      const made = await db.migrate("first", json<{ round: number }>(), {
        migrate: () => ({ round }),
      });
      expect(made.get("key")).toStrictEqual({ round });
      const back = await db.migrate("first", text(), { migrate: () => `${round}` });
      expect(back.get("key")).toBe(`${round}`);
      expect(db.collection("last", text()).get("key")).toBe("last");
    }
    db.collection("new", text()).set("key", "new");
    db = await reopened(db, storage, name);
    expect(db.collection("first", text()).get("key")).toBe("5");
    expect(db.collection("last", text()).get("key")).toBe("last");
    expect(db.collection("new", text()).get("key")).toBe("new");
  });

  test("a copy does not assign the keyspace of an empty collection to another one", async () => {
    const db = await opened(memory());
    const empty = db.collection("empty", text());
    empty.set("key", "value");
    empty.delete("key");
    const copy = await opened(memory(), { from: new Response(db.export()) });
    copy.collection("other", text(), { key: str }).set("key", "other");
    expect(copy.collection("empty", text()).get("key")).toBe(undefined);
    expect(copy.collection("other", text()).get("key")).toBe("other");
  });
});
