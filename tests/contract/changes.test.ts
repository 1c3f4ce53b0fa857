/** `changes`, `retain` and `follow`: what happened since a cursor. */

import type { Database, FollowedTransaction, LogRecord } from "varve";
import { text, u32 } from "varve/struct";
import { assert, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { random, text as textOf, turn } from "../support/values.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const EXPIRED = { name: "CursorExpiredError", code: "VARVE_CURSOR_EXPIRED" } as const;

/** A change as a short text. */
function short({ type, collection, key, value }: Omit<LogRecord, "step">): string {
  const place = collection === undefined ? "" : `${collection}/`;
  const shown = value === undefined ? "" : `=${textOf(value)}`;
  return `${type} ${place}${String(key ?? "")}${shown}`;
}

function changed(db: Database, since: number, more: object = {}): string[] {
  return Array.from(db.changes({ since, ...more }), short).sort();
}

/** Replaces keys until compaction has freed what was written before. */
async function churn(db: Database, rounds = 8): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < 4; i++) db.set(`churn ${i}`, filled(400_000, round));
    await db.flushed;
  }
  await db.compact();
}

/** The next items of an iterator. */
async function taken(
  iterator: AsyncIterator<FollowedTransaction>,
  count: number,
): Promise<FollowedTransaction[]> {
  const items: FollowedTransaction[] = [];
  for (let i = 0; i < count; i++) {
    const { value, done } = await iterator.next();
    if (done === true) break;
    items.push(value);
  }
  return items;
}

everywhere("changes", ({ storage }) => {
  test("lastCommit grows with each commit and not with pending writes", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    expect(db.lastCommit).toBe(0);
    db.set("a", "1");
    expect(db.lastCommit).toBe(0);
    db.commit();
    const first = db.lastCommit;
    expect(first).toBe(db.getEntry("a")?.version);
    db.transaction((tx) => {
      tx.set("b", "1");
      tx.set("c", "1");
    });
    db.commit();
    const second = db.lastCommit;
    expect([...db.log({ since: first })].length).toBe(1);
    expect([...db.log({ since: second })].length).toBe(0);
    db = await reopened(db, storage, name);
    assert(db.lastCommit >= second);
    expect(changed(db, first)).toStrictEqual(["set b=1", "set c=1"]);
    expect(changed(db, second)).toStrictEqual([]);
  });

  test("each key that changed comes once, as it is now", async () => {
    const db = await opened(storage);
    const users = db.collection("users", text(), { key: u32 });
    db.set("stays", "1");
    db.set("goes", "1");
    users.set(1, "ann");
    users.set(2, "bob");
    db.commit();
    const since = db.lastCommit;
    expect(changed(db, since)).toStrictEqual([]);
    for (let i = 0; i < 5; i++) {
      db.set("counter", String(i));
      db.commit();
    }
    db.delete("goes");
    db.set("comes and goes", "1");
    db.commit();
    db.delete("comes and goes");
    users.set(1, "anna");
    users.delete(2);
    db.commit();
    const middle = db.lastCommit;
    users.set(2, "bob again");
    // Pending writes are committed first.
    expect(changed(db, since)).toStrictEqual([
      "delete comes and goes",
      "delete goes",
      "set counter=4",
      "set users/1=anna",
      "set users/2=bob again",
    ]);
    expect(changed(db, since, { collection: "users" })).toStrictEqual([
      "set users/1=anna",
      "set users/2=bob again",
    ]);
    expect(changed(db, since, { until: middle, collection: "users" })).toStrictEqual([
      "set users/1=anna",
    ]);
    const versions = Array.from(db.changes({ since }), (it) => it.version);
    assert(versions.every((version) => version > since && version <= db.lastCommit));
  });

  test("a collection that was emptied is one change, before what was set later", async () => {
    const db = await opened(storage);
    const many = db.collection("many", text());
    for (let i = 0; i < 3_000; i++) many.set(`key ${i}`, "old");
    db.set("other", "1");
    db.commit();
    const since = db.lastCommit;
    many.clear();
    many.set("key 1", "new");
    const expected = ["clear many/", "set many/key 1=new"];
    expect(Array.from(db.changes({ since }), short)).toStrictEqual(expected);
    await db.compact();
    expect(Array.from(db.changes({ since }), short)).toStrictEqual(expected);
  });

  test("random programs: changes lead from every earlier state to the present, or have expired", async () => {
    const next = random(7);
    const name = freshName();
    let db = await opened(storage, {}, name);
    let state = new Map<string, string>();
    const states: [cursor: number, state: Map<string, string>][] = [[0, new Map()]];
    let known = 0;
    for (let round = 0; round < 30; round++) {
      state = new Map(state);
      for (let i = next(40); i > 0; i--) {
        const key = `key ${next(200)}`;
        if (next(3) === 0) {
          db.delete(key);
          state.delete(key);
        } else {
          const value = "x".repeat(next(20_000)) + round;
          db.set(key, value);
          state.set(key, value);
        }
      }
      db.commit();
      states.push([db.lastCommit, state]);
      if (next(4) === 0) await db.compact();
      if (next(8) === 0) db = await reopened(db, storage, name);
      for (const [cursor, before] of states) {
        const after = new Map(before);
        try {
          for (const { type, key, value } of db.changes({ since: cursor })) {
            if (type === "set") after.set(String(key), textOf(value) ?? "");
            else after.delete(String(key));
          }
        } catch (error) {
          expect((error as { code?: string }).code).toBe(EXPIRED.code);
          continue;
        }
        known += 1;
        expect([...after].sort()).toStrictEqual([...state].sort());
      }
    }
    assert(known > 100, `${known} cursors`);
  });

  test("a cursor from before a deletion that compaction dropped has expired; one after it has not", async () => {
    const db = await opened(storage);
    db.set("deleted", "1");
    db.commit();
    const before = db.lastCommit;
    db.delete("deleted");
    db.commit();
    const after = db.lastCommit;
    await churn(db);
    throws(() => changed(db, before), EXPIRED);
    throws(() => db.retain("late", before), EXPIRED);
    expect(changed(db, after).map((it) => it.slice(0, 11))).toStrictEqual([
      "set churn 0",
      "set churn 1",
      "set churn 2",
      "set churn 3",
    ]);
  });

  test("a mark keeps all since its cursor, across reopening, until it moves or is dropped", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.set("deleted", "1");
    db.commit();
    const since = db.lastCommit;
    db.retain("backup", since);
    db.delete("deleted");
    await churn(db);
    db = await reopened(db, storage, name);
    await churn(db);
    expect(db.stats().retained).toStrictEqual([{ name: "backup", cursor: since }]);
    const kept = db.stats().retainedBytes;
    assert(kept > 10_000_000, `${kept} bytes`);
    expect(changed(db, since)[0]).toBe("delete deleted");
    expect([...db.log({ since })].filter((tx) => tx.afterGap).length).toBe(0);
    db.retain("backup", db.lastCommit);
    db.retain("other", db.lastCommit);
    expect(db.stats().retained.length).toBe(2);
    await churn(db);
    assert(db.stats().retainedBytes < kept);
    throws(() => changed(db, since), EXPIRED);
    db.retain("backup", undefined);
    db.retain("other", null);
    db.retain("never there", undefined);
    expect(db.stats().retained).toStrictEqual([]);
    expect(db.stats().retainedBytes).toBe(0);
  });

  test("a mark of a transaction that fails is not set", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    db.commit();
    throws(
      () =>
        db.transaction((tx) => {
          tx.retain("backup", 0);
          throw new RangeError("no");
        }),
      { name: "RangeError" },
    );
    expect(db.stats().retained).toStrictEqual([]);
  });

  test("follow gives the past first, and then each commit", async () => {
    const db = await opened(storage);
    db.transaction((tx) => tx.set("a", "1"), { note: "first" });
    db.transaction((tx) => tx.delete("a"), { note: "second" });
    db.commit();
    const iterator = db.follow({ since: 0 })[Symbol.asyncIterator]();
    const past = await taken(iterator, 2);
    expect(past.map((tx) => [tx.note ?? "", ...tx.records.map(short)])).toStrictEqual([
      ["first", "set a=1"],
      ["second", "delete a"],
    ]);
    const waiting = taken(iterator, 1);
    await turn(5);
    db.transaction((tx) => tx.set("b", "2"), { note: "third" });
    const [third] = await waiting;
    expect(third?.records.map(short)).toStrictEqual(["set b=2"]);
    // What was given stays as it is.
    db.set("b", "3");
    db.commit();
    await churn(db, 1);
    expect(third?.records.map(short)).toStrictEqual(["set b=2"]);
    // It goes on from the number of any.
    const again = db.follow({ since: past[0]?.number ?? -1 })[Symbol.asyncIterator]();
    expect((await taken(again, 2)).map((tx) => tx.note ?? "")).toStrictEqual(["second", "third"]);
    await again.return?.();
    await iterator.return?.();
  });

  test("follow: a loop that is left while it waits ends at once, and its mark has moved", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    db.commit();
    const iterator = db.follow({ since: 0, retain: "replica" })[Symbol.asyncIterator]();
    const [first] = await taken(iterator, 1);
    const next = iterator.next();
    await turn(5);
    expect(await iterator.return?.()).toStrictEqual({ done: true, value: undefined });
    expect(await next).toStrictEqual({ done: true, value: undefined });
    expect(db.stats().retained.map(({ cursor }) => cursor)).toStrictEqual([first?.number]);
  });

  test("follow without a cursor begins with the next commit, or at its mark", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    db.commit();
    const iterator = db.follow({ retain: "replica" })[Symbol.asyncIterator]();
    const first = taken(iterator, 1);
    await turn(1);
    db.set("b", "2");
    expect((await first).flatMap((tx) => tx.records.map(short))).toStrictEqual(["set b=2"]);
    // It was not handled, so the mark has not passed it.
    await iterator.return?.();
    const again = db.follow({ retain: "replica" })[Symbol.asyncIterator]();
    expect((await taken(again, 1)).flatMap((tx) => tx.records.map(short))).toStrictEqual([
      "set b=2",
    ]);
    const next = taken(again, 1);
    await turn(1);
    expect(db.stats().retained.length).toBe(1);
    db.set("c", "3");
    expect((await next).flatMap((tx) => tx.records.map(short))).toStrictEqual(["set c=3"]);
    await again.return?.();
    const last = db.follow({ retain: "replica" })[Symbol.asyncIterator]();
    expect((await taken(last, 1)).flatMap((tx) => tx.records.map(short))).toStrictEqual([
      "set c=3",
    ]);
    await last.return?.();
  });

  test("a second loop over what follow returned begins again, or goes on from its mark", async () => {
    const db = await opened(storage);
    for (const value of ["1", "2"]) {
      db.set("a", value);
      db.commit();
    }
    const numbersOf = async (followed: AsyncIterable<{ number: number }>, count: number) => {
      const numbers: number[] = [];
      for await (const { number } of followed) {
        if (numbers.push(number) === count) break;
      }
      return numbers;
    };
    const followed = db.follow({ since: 0 });
    const all = await numbersOf(followed, 2);
    expect(await numbersOf(followed, 2)).toStrictEqual(all);
    const marked = db.follow({ since: 0, retain: "replica" });
    expect(await numbersOf(marked, 2)).toStrictEqual(all);
    // The last one was not handled: no next one was asked for.
    expect(await numbersOf(marked, 1)).toStrictEqual(all.slice(1));
  });

  test("a slow follower with a mark misses nothing that compaction would take", async () => {
    const db = await opened(storage);
    const seen: string[] = [];
    const stop = new AbortController();
    const follows = (async () => {
      for await (const tx of db.follow({ since: 0, retain: "slow", signal: stop.signal })) {
        for (const { key, value } of tx.records) {
          if (key === "n") seen.push(textOf(value) ?? "");
        }
        await turn(1);
      }
    })();
    await turn(1);
    for (let n = 1; n <= 40; n++) {
      db.transaction(
        (tx) => {
          tx.set("n", String(n));
          tx.set("large", filled(300_000, n));
        },
        { note: "" },
      );
      await turn(0);
      if (n % 10 === 0) await db.compact();
    }
    while (seen.length < 40) await turn(1);
    stop.abort(new RangeError("enough"));
    await rejects(follows, { name: "RangeError", message: "enough" });
    expect(seen).toStrictEqual(Array.from({ length: 40 }, (_, i) => String(i + 1)));
  });

  test("a follower goes on from the number that it kept, however far the log was walked and compacted", async () => {
    const db = await opened(storage);
    const from = async (since: number) => {
      const stop = new AbortController();
      const numbers: number[] = [];
      const follows = (async () => {
        for await (const { number } of db.follow({ since, retain: "f", signal: stop.signal })) {
          numbers.push(number);
        }
      })();
      await turn(20);
      stop.abort(new RangeError("enough"));
      await rejects(follows, { name: "RangeError" });
      return numbers;
    };
    // A transaction that goes over several segments, of which the number is the first version.
    const large = () =>
      db.transaction(
        (tx) => {
          for (let i = 0; i < 10; i++) tx.set(`large ${i}`, filled(300_000, i));
        },
        { note: "large" },
      );
    large();
    await db.flushed;
    const [kept, ...others] = await from(0);
    expect(others).toStrictEqual([]);
    await churn(db, 4);
    for (let i = 0; i < 10; i++) db.set(`large ${i}`, "small");
    await db.flushed;
    await db.compact();
    assert(((await from(kept ?? 0)).at(-1) ?? 0) > (kept ?? 0));
  });

  test("a follower and a mark may begin right after a compaction", async () => {
    const db = await opened(storage);
    await churn(db);
    for (let i = 0; i < 4; i++) db.set(`churn ${i}`, "small");
    await db.flushed;
    await db.compact();
    const iterator = db.follow()[Symbol.asyncIterator]();
    const first = taken(iterator, 1);
    await turn(1);
    db.retain("mark", db.lastCommit);
    db.set("a", "1");
    expect((await first).flatMap((tx) => tx.records.map(short))).toStrictEqual(["set a=1"]);
    await iterator.return?.();
  });

  test("a follower of a quiet collection gets numbers, so that its mark moves", async () => {
    const db = await opened(storage);
    db.collection("quiet", text());
    const iterator = db.follow({ since: 0, collection: "quiet", retain: "f" });
    const items: FollowedTransaction[] = [];
    const follows = (async () => {
      for await (const item of iterator) items.push(item);
    })();
    for (let i = 0; i < 700; i++) db.transaction((tx) => tx.set("a", "1"), { note: "" });
    db.commit();
    for (let i = 0; i < 100 && items.length < 2; i++) await turn(1);
    await turn(5);
    expect(items.map(({ records }) => records.length)).toStrictEqual([0, 0]);
    expect(db.stats().retained).toStrictEqual([{ name: "f", cursor: items[1]?.number ?? 0 }]);
    await db.close();
    await follows;
  });

  test("a follower without a mark gets an error for what it has missed", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    db.commit();
    const iterator = db.follow({ since: 0 })[Symbol.asyncIterator]();
    await taken(iterator, 1);
    await churn(db);
    await rejects(taken(iterator, 30), EXPIRED);
  });

  test("follow shows only a collection, and ends at a close", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    const users = db.collection("users", text());
    db.set("other", "1");
    db.commit();
    users.set("a", "ann");
    db.set("other", "2");
    db.commit();
    const seen: string[] = [];
    const follows = (async () => {
      for await (const tx of db.follow({ since: 0, collection: "users" })) {
        seen.push(...tx.records.map(short));
      }
    })();
    await turn(5);
    users.set("b", "bob");
    await turn(5);
    await db.close();
    await follows;
    expect(seen).toStrictEqual(["set users/a=ann", "set users/b=bob"]);
  });

  test("without order, the collections that the program has declared have their names", async () => {
    const db = await opened(storage, { ordered: false });
    const users = db.collection("users", text(), { key: u32 });
    users.set(1, "ann");
    db.set("a", "1");
    db.commit();
    expect(changed(db, 0)).toStrictEqual(["set a=1", "set users/1=ann"]);
    expect(changed(db, 0, { collection: "users" })).toStrictEqual(["set users/1=ann"]);
    const iterator = db.follow({ since: 0, collection: "users" })[Symbol.asyncIterator]();
    const [first] = await taken(iterator, 1);
    expect(first?.records.map(short)).toStrictEqual(["set users/1=ann"]);
    await iterator.return?.();
  });

  test("an abort ends follow at once, also while it waits", async () => {
    const db = await opened(storage);
    const stop = new AbortController();
    const waiting = taken(db.follow({ signal: stop.signal })[Symbol.asyncIterator](), 1);
    await turn(1);
    stop.abort(new RangeError("stop"));
    await rejects(waiting, { name: "RangeError" });
    const late = db.follow({ signal: stop.signal })[Symbol.asyncIterator]();
    await rejects(late.next(), { name: "RangeError" });
  });

  test("more marks than their record has room for are refused", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 50; i++) db.retain(`${i}`.padEnd(240, "-"), 0);
    throws(
      () => {
        for (let i = 50; i < 100; i++) db.retain(`${i}`.padEnd(240, "-"), 0);
      },
      { ...BAD, message: "16 KiB" },
    );
    const [first] = db.stats().retained;
    db.retain(first?.name ?? "", undefined);
    db.retain("x".repeat(240), 0);
  });

  test("bad arguments are refused", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    db.commit();
    for (const since of [-1, 1.5, Number.NaN, "1", undefined, null, new Date()]) {
      throws(() => db.changes({ since } as never), BAD);
    }
    for (const options of [null, 1, [], { since: 0, sinse: 1 }, { since: 0, collection: "" }]) {
      throws(() => db.changes(options as never), BAD);
    }
    throws(() => db.changes({ since: 0, until: -1 }), BAD);
    for (const options of [
      { since: -1 },
      { since: new Date() },
      { signal: {} },
      { collection: 1 },
      { retain: "" },
      { retain: "x".repeat(256) },
      { until: 1 },
    ]) {
      throws(() => db.follow(options as never), BAD);
    }
    for (const name of ["", "x".repeat(256), "\ud800", 1, undefined]) {
      throws(() => db.retain(name as never, 0), BAD);
    }
    for (const cursor of [-1, 0.5, "1", new Date()]) {
      throws(() => db.retain("backup", cursor as never), BAD);
    }
    // A cursor of the future is of another database.
    const future = db.lastCommit + 1;
    throws(() => changed(db, future), { ...BAD, message: "lastCommit" });
    throws(() => db.retain("backup", future), { ...BAD, message: "lastCommit" });
    await rejects(db.follow({ since: future })[Symbol.asyncIterator]().next(), BAD);
    throws(() => db.transaction(() => changed(db, 0)), { code: "VARVE_REENTRANCY" });
  });
});
