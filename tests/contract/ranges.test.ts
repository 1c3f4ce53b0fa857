import type { Database, Key, Range } from "varve";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { bytes, random, text, turn } from "../support/values.js";
import { FakeStorage, platform } from "./fake-storage.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const CLOSED = { name: "DatabaseClosedError", code: "VARVE_DATABASE_CLOSED" } as const;

/** More than two pages. */
const MANY = 3_000;

function numbered(i: number): string {
  return `key ${String(i).padStart(6, "0")}`;
}

async function filledWith(db: Database, keys: Iterable<Key>): Promise<void> {
  for (const key of keys) db.set(key, typeof key === "string" ? `of ${key}` : key);
  await db.committed;
}

/** Converts each byte to a character, so that byte keys can be written and compared as text. */
function latin(key: Uint8Array): string {
  return String.fromCharCode(...key);
}

function compareBytes(a: Uint8Array, b: Uint8Array): number {
  const [left, right] = [latin(a), latin(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** The expected keys of a range, by its definition. */
function expected(keys: Uint8Array[], range: Range): Uint8Array[] {
  const raw = (key: Key): Uint8Array =>
    typeof key === "string" ? bytes(key) : (key as Uint8Array);
  const found = keys
    .filter((key) => range.gt === undefined || compareBytes(key, raw(range.gt)) > 0)
    .filter((key) => range.gte === undefined || compareBytes(key, raw(range.gte)) >= 0)
    .filter((key) => range.lt === undefined || compareBytes(key, raw(range.lt)) < 0)
    .filter((key) => range.lte === undefined || compareBytes(key, raw(range.lte)) <= 0)
    .filter((key) => range.prefix === undefined || latin(key).startsWith(latin(raw(range.prefix))))
    .sort(compareBytes);
  if (range.reverse === true) found.reverse();
  return found.slice(0, range.limit);
}

everywhere("ranges", ({ storage }) => {
  test("keys come in the order of their bytes, whatever order they were written in", async () => {
    const name = freshName();
    const keys = ["b", "a", "aa", "a\u0000", "ä", "z", "日本", "𝄞", "A", "~", "\uffee", "\u0000"];
    let db = await opened(storage, {}, name);
    await filledWith(db, keys);
    const sorted = keys.map(bytes).sort(compareBytes).map(text) as string[];
    expect([...db.keys()]).toStrictEqual(sorted);
    expect([...db.values()].length).toStrictEqual(sorted.length);
    db = await reopened(db, storage, name);
    expect([...db.keys()]).toStrictEqual(sorted);
    expect([...db.keys({ reverse: true })]).toStrictEqual(sorted.reverse());
  });

  test("entries gives keys with values, and values only values", async () => {
    const db = await opened(storage);
    await filledWith(db, ["b", "a", "c"]);
    const entries: [string, string | undefined][] = [];
    for (const [key, value] of db.entries()) entries.push([key, text(value)]);
    expect(entries).toStrictEqual([
      ["a", "of a"],
      ["b", "of b"],
      ["c", "of c"],
    ]);
    const values: (string | undefined)[] = [];
    for (const value of db.values({ reverse: true })) values.push(text(value));
    expect(values).toStrictEqual(["of c", "of b", "of a"]);
  });

  test("an empty database has no keys, values or entries", async () => {
    const db = await opened(storage);
    expect([...db.keys()]).toStrictEqual([]);
    expect([...db.values()]).toStrictEqual([]);
    expect([...db.entries({ reverse: true, keyAs: "bytes" })]).toStrictEqual([]);
    expect(db.count({ prefix: "a" })).toBe(0);
    expect(db.clear()).toBe(0);
  });

  test("every range respects its bounds, forwards and backwards, in every call", async () => {
    const db = await opened(storage);
    const next = random(7);
    const some = (): Uint8Array => {
      const key = new Uint8Array(1 + next(3));
      for (let i = 0; i < key.length; i++) key[i] = [0, 1, 97, 98, 254, 255][next(6)] as number;
      return key;
    };
    const all = new Map<string, Uint8Array>();
    for (let i = 0; i < 150; i++) {
      const key = some();
      all.set(latin(key), key);
    }
    const keys = [...all.values()];
    for (const key of keys) db.set(key, key);
    for (let i = 0; i < 400; i++) {
      const range: Range = {};
      const bounds = ["gt", "gte", "lt", "lte", "prefix"] as const;
      for (const bound of bounds) if (next(3) === 0) range[bound] = some();
      if (next(8) === 0) range.prefix = new Uint8Array(0);
      if (range.gt !== undefined) delete range.gte;
      if (range.lt !== undefined) delete range.lte;
      if (next(2) === 0) range.reverse = true;
      if (next(3) === 0) range.limit = next(12);
      const wanted = expected(keys, range);
      const what = JSON.stringify(range, (_, one) => (one instanceof Uint8Array ? [...one] : one));
      expect([...db.keys({ ...range, keyAs: "bytes" })], what).toStrictEqual(wanted);
      expect(db.count(range), what).toBe(wanted.length);
      const seen: Uint8Array[] = [];
      for (const value of db.values(range)) seen.push(value.slice());
      expect(seen, what).toStrictEqual(wanted);
      if (i % 20 !== 0) continue;
      throws(() =>
        db.transaction(() => {
          expect(db.clear(range), what).toBe(wanted.length);
          expect(db.count(), what).toBe(keys.length - wanted.length);
          for (const key of wanted) expect(db.has(key)).toBe(false);
          throw new Error("undone");
        }),
      );
      expect(db.count()).toBe(keys.length);
    }
  });

  test("bounds may be strings or any views of bytes", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "ab", "b", "é", "éa"]);
    expect([...db.keys({ prefix: bytes("a") })]).toStrictEqual(["a", "ab"]);
    expect([...db.keys({ prefix: "é" })]).toStrictEqual(["é", "éa"]);
    expect([
      ...db.keys({ gt: new DataView(bytes("a").buffer as ArrayBuffer), lt: "b" }),
    ]).toStrictEqual(["ab"]);
    expect([
      ...db.keys({ lte: bytes("b").buffer as ArrayBuffer, reverse: true, limit: 1 }),
    ]).toStrictEqual(["b"]);
    const mine = bytes("a");
    const scan = db.keys({ gte: mine });
    mine.fill(0xff);
    expect([...scan].length, "a bound is copied").toBe(5);
  });

  test("all options of a range apply together, and an unsatisfiable range is empty", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "ab", "abc", "b", "c"]);
    expect([...db.keys({ prefix: "a", gt: "ab" })]).toStrictEqual(["abc"]);
    expect([...db.keys({ prefix: "ab", lt: "abc" })]).toStrictEqual(["ab"]);
    expect([...db.keys({ prefix: "a", gte: "ab", lte: "ab" })]).toStrictEqual(["ab"]);
    const empty: Range[] = [
      { gt: "b", lt: "b" },
      { gt: "b", lte: "b" },
      { gte: "b", lt: "b" },
      { gte: "c", lte: "a" },
      { prefix: "a", gt: "b" },
      { prefix: "b", lt: "b" },
      { limit: 0 },
    ];
    for (const range of empty) {
      expect([...db.keys(range)]).toStrictEqual([]);
      expect([...db.entries(range)]).toStrictEqual([]);
      expect(db.count(range)).toBe(0);
      expect(db.clear(range)).toBe(0);
    }
    expect(db.count()).toBe(5);
  });

  test("unknown or wrong options are refused by name, before anything is read", async () => {
    const db = await opened(storage);
    const wrong: [object, RegExp][] = [
      [{ from: "a" }, /no option "from".*gt, gte, lt, lte, prefix, reverse, limit/],
      [{ gt: "a", gte: "a" }, /gt or gte, not both/],
      [{ lt: "a", lte: "b" }, /lt or lte, not both/],
      [{ gt: "" }, /option gt .*at least one byte/],
      [{ lte: new Uint8Array(0) }, /option lte .*at least one byte/],
      [{ gte: 7 }, /option gte .*string.*7/],
      [{ prefix: null }, /option prefix .*null/],
      [{ prefix: "a\ud800" }, /option prefix .*surrogate/],
      [{ lt: "k".repeat(65_536) }, /option lt .*65535/],
      [{ reverse: 1 }, /reverse.*1/],
      [{ limit: -1 }, /limit.*-1/],
      [{ limit: 1.5 }, /limit.*1\.5/],
      [{ limit: "3" }, /limit.*"3"/],
      [{ limit: Number.POSITIVE_INFINITY }, /limit/],
    ];
    for (const [range, message] of wrong) {
      throws(() => db.keys(range), { ...BAD, message });
      throws(() => db.values(range), { ...BAD, message });
      throws(() => db.entries(range), { ...BAD, message });
      throws(() => db.count(range), { ...BAD, message });
      throws(() => db.clear(range), { ...BAD, message });
    }
    for (const range of [null, "a", 7, [], () => {}]) {
      throws(() => db.keys(range as Range as object), BAD);
      throws(() => db.count(range as Range), BAD);
    }
    throws(() => db.keys({ keyAs: "buffer" } as object), { ...BAD, message: /keyAs.*"buffer"/ });
    throws(() => db.values({ keyAs: "bytes" } as object), { ...BAD, message: /"keyAs"/ });
    expect([...db.keys({ gt: undefined, prefix: undefined, limit: undefined })]).toStrictEqual([]);
    expect([...db.keys(undefined)]).toStrictEqual([]);
  });

  test("a stale view is refused as a bound", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    const view = db.get("key") as Uint8Array;
    await turn();
    throws(() => db.keys({ gt: view }), { name: "StaleViewError" });
  });

  test("keys that are not UTF-8 throw as strings and name the option; as bytes they are returned", async () => {
    const db = await opened(storage);
    const binary = new Uint8Array([0x6b, 0xff, 0xfe]);
    db.set("a", "1");
    db.set(binary, "2");
    db.set("z", "3");
    const seen: string[] = [];
    throws(
      () => {
        for (const key of db.keys()) seen.push(key);
      },
      { ...BAD, message: /not UTF-8.*keyAs: "bytes"/, cause: true },
    );
    expect(seen).toStrictEqual(["a"]);
    throws(() => [...db.entries({ gt: "a" })], { ...BAD, message: /keyAs/ });
    expect([...db.keys({ keyAs: "bytes" })]).toStrictEqual([bytes("a"), binary, bytes("z")]);
    expect([...db.keys({ lt: "b" })]).toStrictEqual(["a"]);
    expect([...db.values()].length, "values need no names").toBe(3);
    // Two halves of one character, which are text only together.
    db.clear();
    db.set(new Uint8Array([0xc3]), "half");
    db.set(new Uint8Array([0xc3, 0xa9]), "whole");
    throws(() => [...db.keys()], { ...BAD, message: /keyAs/ });
    expect([...db.keys({ gt: new Uint8Array([0xc3]) })]).toStrictEqual(["é"]);
  });

  test("keys as bytes are copies", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "b"]);
    const [first] = db.keys({ keyAs: "bytes" });
    first?.fill(0xff);
    expect([...db.keys()]).toStrictEqual(["a", "b"]);
    await turn();
    expect(first?.length).toBe(1);
  });

  test("long keys, and more keys than a page holds, all come once", async () => {
    const db = await opened(storage);
    const long = Array.from({ length: 20 }, (_, i) => `${"l".repeat(65_000)}${numbered(i)}`);
    const short = Array.from({ length: MANY }, (_, i) => numbered(i));
    await filledWith(db, [...long, ...short]);
    const all = [...short, ...long];
    expect([...db.keys()]).toStrictEqual(all);
    expect([...db.keys({ reverse: true })]).toStrictEqual([...all].reverse());
    expect(db.count()).toBe(all.length);
    expect(db.count({ prefix: "key" })).toBe(MANY);
    expect(db.count({ prefix: "key", limit: 10 })).toBe(10);
    const limited = [...db.keys({ gte: numbered(1_000), limit: 1_500 })];
    expect(limited).toStrictEqual(short.slice(1_000, 2_500));
  });

  test("each for…of over one scan starts again, and sees the current data", async () => {
    const db = await opened(storage);
    const keys = db.keys({ prefix: "a" });
    db.set("a1", "");
    expect([...keys]).toStrictEqual(["a1"]);
    db.set("a2", "");
    expect([...keys]).toStrictEqual(["a1", "a2"]);
    const [one, two] = [keys[Symbol.iterator](), keys[Symbol.iterator]()];
    expect(one.next().value).toBe("a1");
    expect(two.next().value).toBe("a1");
    expect(one.next().value).toBe("a2");
    expect(one.next().done).toBe(true);
    expect(one.next().done).toBe(true);
    expect(two.next().value).toBe("a2");
  });

  test("a loop may be left early, and the next one begins at the start", async () => {
    const db = await opened(storage);
    await filledWith(
      db,
      Array.from({ length: MANY }, (_, i) => numbered(i)),
    );
    const before = db.stats().memoryBytes;
    for (let round = 0; round < 300; round++) {
      for (const [key] of db.entries()) {
        expect(key).toBe(numbered(0));
        break;
      }
      for (const key of db.keys({ reverse: true })) {
        expect(key).toBe(numbered(MANY - 1));
        break;
      }
    }
    assert(db.stats().memoryBytes - before < 1_000_000, "what was left early is held");
    const iterator = db.keys()[Symbol.iterator]();
    expect(iterator.next().value).toBe(numbered(0));
    iterator.return?.();
    expect(iterator.next().done).toBe(true);
  });

  test("a key that exists throughout is seen exactly once, whatever is written meanwhile", async () => {
    const next = random(11);
    for (const reverse of [false, true]) {
      const db = await opened(storage);
      const kept = Array.from({ length: MANY }, (_, i) => numbered(i * 2));
      await filledWith(db, kept);
      const seen = new Map<string, number>();
      for (const [key, value] of db.entries({ reverse })) {
        seen.set(key, (seen.get(key) ?? 0) + 1);
        if (seen.size % 7 === 0) assert(text(value)?.includes("of"), "a value is current");
        // Between keys that stay, keys are added, deleted and changed, on both sides of the position.
        const other = numbered(next(MANY) * 2 + 1);
        if (next(2) === 0) db.set(other, "of another");
        else db.delete(other);
        db.set(numbered(next(MANY) * 2), `of ${seen.size}`);
        if (next(500) === 0) await turn();
      }
      for (const key of kept) expect(seen.get(key), key).toBe(1);
      for (const [key, times] of seen) expect(times, key).toBe(1);
    }
  });

  test("a value is the current one at its step; a deleted key has none", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "b", "c", "d"]);
    const seen: (string | undefined)[] = [];
    for (const [key, value] of db.entries()) {
      seen.push(text(value));
      if (key !== "a") continue;
      db.delete("b");
      db.set("c", "changed");
    }
    expect(seen).toStrictEqual(["of a", "changed", "of d"]);
    const limited: string[] = [];
    db.set("b", "of b");
    for (const [key] of db.entries({ limit: 3 })) {
      limited.push(key);
      db.delete("b");
    }
    expect(limited, "a limit counts what was seen").toStrictEqual(["a", "c", "d"]);
  });

  test("whatever happens between two steps, the next value is the current one", async () => {
    const db = await opened(storage);
    const names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    await filledWith(db, names);
    const between: (() => unknown)[] = [
      () => db.set("b", "a longer value of b"),
      () =>
        db.updateIf("c", (view) => {
          view[0] = 0x4f;
        }),
      () => db.updateIf("d", () => "replaced"),
      () =>
        throws(() =>
          db.transaction(() => {
            db.set("e", "undone");
            throw new Error("undone");
          }),
        ),
      () => db.delete("x"),
      () => db.set("g", ""),
      () => new Promise((resolve) => setTimeout(resolve, 1)),
    ];
    const seen: (string | undefined)[] = [];
    for (const value of db.values()) {
      seen.push(text(value));
      await between.shift()?.();
    }
    const expected = [
      "of a",
      "a longer value of b",
      "Of c",
      "replaced",
      "of e",
      "of f",
      "",
      "of h",
    ];
    expect(seen).toStrictEqual(expected);
    expect([...db.entries()].map(([key, value]) => key + text(value))).toStrictEqual(
      names.map((name, i) => name + expected[i]),
    );
  });

  test("deleting each key during a loop empties the range", async () => {
    const db = await opened(storage);
    await filledWith(
      db,
      Array.from({ length: MANY }, (_, i) => numbered(i)),
    );
    let deleted = 0;
    for (const key of db.keys()) deleted += Number(db.delete(key));
    expect(deleted).toBe(MANY);
    expect(db.count()).toBe(0);
  });

  test("an iteration goes on after a yield, and throws after close", async () => {
    const db = await opened(storage);
    await filledWith(
      db,
      Array.from({ length: MANY }, (_, i) => numbered(i)),
    );
    let steps = 0;
    for (const key of db.keys()) {
      expect(key).toBe(numbered(steps));
      steps += 1;
      if (steps % 600 === 0) await turn();
    }
    expect(steps).toBe(MANY);
    const [keys, values, entries] = [db.keys(), db.values(), db.entries()];
    const begun = [keys, values, entries].map((scan) => scan[Symbol.iterator]());
    for (const one of begun) expect(one.next().done).toBe(false);
    await db.close();
    for (const one of begun) throws(() => one.next(), CLOSED);
    for (const scan of [keys, values, entries]) throws(() => [...scan], CLOSED);
    for (const one of begun) one.return?.();
    throws(() => db.keys(), CLOSED);
  });

  test("an iteration of a closed handle throws although another handle is open", async () => {
    const name = freshName();
    const [one, two] = [await opened(storage, {}, name), await opened(storage, {}, name)];
    await filledWith(one, ["a", "b"]);
    const iterator = one.keys()[Symbol.iterator]();
    expect(iterator.next().value).toBe("a");
    await one.close();
    throws(() => iterator.next(), CLOSED);
    expect([...two.keys()]).toStrictEqual(["a", "b"]);
  });

  test("a transaction sees its own writes in order, and rolled back ones are in no range", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "c"]);
    throws(() =>
      db.transaction((tx) => {
        tx.set("b", "");
        tx.delete("a");
        expect([...tx.keys()]).toStrictEqual(["b", "c"]);
        throw new Error("undone");
      }),
    );
    expect([...db.keys()]).toStrictEqual(["a", "c"]);
  });

  test("a callback of updateIf may read ranges", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "b"]);
    // The first range sorts the keys, which allocates memory that a callback cannot free.
    expect(db.count({ gt: "a" })).toBe(1);
    assert(db.updateIf("a", () => [...db.keys()].join(" ")));
    expect(db.getText("a")).toBe("a b");
    throws(() => db.updateIf("a", () => String(db.clear())), { name: "ReentrancyError" });
    expect(db.count()).toBe(2);
  });

  test("clear deletes a range or everything, all or nothing, and returns how many", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    await filledWith(
      db,
      Array.from({ length: MANY }, (_, i) => numbered(i)),
    );
    db.set("other", "1");
    expect(db.clear({ prefix: "key", lt: numbered(10) })).toBe(10);
    expect(db.clear({ prefix: "key", reverse: true, limit: 5 })).toBe(5);
    expect(db.has(numbered(MANY - 5))).toBe(false);
    expect(db.has(numbered(MANY - 6))).toBe(true);
    throws(() =>
      db.transaction(() => {
        expect(db.clear()).toBe(MANY - 14);
        throw new Error("undone");
      }),
    );
    expect(db.count()).toBe(MANY - 14);
    expect(db.clear({ prefix: "key" })).toBe(MANY - 15);
    expect([...db.keys()]).toStrictEqual(["other"]);
    db = await reopened(db, storage, name);
    expect([...db.keys()]).toStrictEqual(["other"]);
    expect(db.clear()).toBe(1);
    expect(db.count()).toBe(0);
  });

  test("a database without order refuses every range, and counts all its keys", async () => {
    const db = await opened(storage, { ordered: false });
    await filledWith(db, ["a", "b"]);
    expect(db.count()).toBe(2);
    const refused = { ...BAD, message: /ordered: false.*no ranges/ };
    throws(() => db.keys(), refused);
    throws(() => db.values(), refused);
    throws(() => db.entries({ prefix: "a" }), refused);
    throws(() => db.count({}), refused);
    throws(() => db.clear(), refused);
    expect(db.count()).toBe(2);
  });

  test("a scan may be larger than the database's memory", async () => {
    const name = freshName();
    const options = { memory: 1_048_576 };
    let db = await opened(storage, options, name);
    for (let i = 0; i < 200; i++) {
      db.set(numbered(i), filled(40_000, i));
      if (i % 10 === 0) await db.committed;
    }
    db = await reopened(db, storage, name, options);
    for (const reverse of [false, true]) {
      let seen = 0;
      for (const [key, value] of db.entries({ reverse })) {
        const i = reverse ? 199 - seen : seen;
        expect(key).toBe(numbered(i));
        expect(value.length).toBe(40_000);
        assert(value[0] === i && value[39_999] === i, key);
        seen += 1;
      }
      expect(seen).toBe(200);
    }
  });

  test("7: in strict mode a value is detached at the next step, alone", async () => {
    const db = await opened(storage, { strictViews: true });
    await filledWith(db, ["a", "b", "c"]);
    const mine = db.get("a") as Uint8Array;
    let last: Uint8Array | undefined;
    for (const [key, value] of db.entries()) {
      if (last !== undefined) expect(last.length).toBe(0);
      expect(text(value)).toBe(`of ${key}`);
      last = value;
    }
    expect(last?.length).toBe(0);
    expect(text(mine), "what get gave is good until the yield").toBe("of a");
    for (const value of db.values()) {
      last = value;
      break;
    }
    expect(last?.length).toBe(0);
    throws(() => db.set("d", last as Uint8Array), { name: "StaleViewError" });
    const iterator = db.values()[Symbol.iterator]();
    const { value } = iterator.next();
    await turn();
    expect(value?.length, "and at a yield").toBe(0);
    expect(text(iterator.next().value)).toBe("of b");
  });

  test("7: in strict mode a write to a value of an iteration is thrown by the next step", async () => {
    const reported: Error[] = [];
    const db = await opened(storage, {
      strictViews: true,
      onError: (error) => reported.push(error),
    });
    await filledWith(db, ["a", "b"]);
    const written = { code: "VARVE_VIEW_WRITTEN", message: /updateIf/ };
    const iterator = db.values()[Symbol.iterator]();
    iterator.next().value?.fill(88);
    throws(() => iterator.next(), written);
    expect(db.getText("a")).toBe("of a");
    iterator.next().value?.fill(88);
    await turn();
    expect(reported.length).toBe(1);
    throws(() => db.get("a"), written);
    expect(db.getText("b")).toBe("of b");
  });
});

describe("ranges on a failing file", () => {
  /** A database that is larger than the memory it is opened with. */
  async function larger(): Promise<FakeStorage> {
    const fake = new FakeStorage();
    const db = await opened(fake);
    for (let i = 0; i < 1_200; i++) db.set(numbered(i), filled(10_000, i));
    await db.close();
    return fake;
  }

  test("a range throws the error of the file, and continues when the file works again", async () => {
    const fake = await larger();
    const db = await opened(fake, { memory: 1_048_576 });
    const failed = { name: "StorageError", code: "VARVE_STORAGE", cause: true };
    fake.fault = ({ op }) => (op === "read" ? platform.io() : undefined);
    throws(() => [...db.values()], failed);
    throws(() => [...db.entries({ reverse: true })], failed);
    throws(() => db.clear({ limit: 1_100 }), failed);
    fake.fault = () => undefined;
    expect(db.count(), "nothing was cleared").toBe(1_200);
    const values = db.values()[Symbol.iterator]();
    let seen = 0;
    for (; seen < 10; seen++) expect(values.next().value?.[0]).toBe(seen % 256);
    fake.fault = ({ op }) => (op === "read" ? platform.io() : undefined);
    let failures = 0;
    while (seen < 1_200 && failures < 3) {
      try {
        expect(values.next().value?.[0]).toBe(seen % 256);
        seen += 1;
      } catch (error) {
        expect((error as Error).name).toBe("StorageError");
        failures += 1;
      }
    }
    expect(failures).toBe(3);
    fake.fault = () => undefined;
    // The failed step is repeated: nothing is skipped.
    for (; seen < 1_200; seen++) expect(values.next().value?.[0]).toBe(seen % 256);
    expect(values.next().done).toBe(true);
    expect(db.count()).toBe(1_200);
  });

  test("a database that refuses writes supports ranges", async () => {
    const fake = await larger();
    const db = await opened(fake);
    fake.fault = ({ op }) => (op === "flush" ? platform.io() : undefined);
    db.set("poison", "1");
    throws(() => db.flush(), { name: "StorageError" });
    throws(() => db.clear({ limit: 1 }), { name: "DatabasePoisonedError" });
    expect([...db.keys({ prefix: "key" })].length).toBe(1_200);
    expect(db.count({ prefix: "key" })).toBe(1_200);
    const pin = db.pin(numbered(1));
    expect(pin?.bytes[0]).toBe(1);
    pin?.dispose();
  });
});
