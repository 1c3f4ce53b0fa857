import type { Database, Key, Range } from "varve";
import {
  bytes,
  deepEqual,
  equal,
  ok,
  random,
  suite,
  test,
  text,
  throws,
  turn,
} from "../harness.js";
import { FakeStorage, platform } from "./fake.js";
import { everywhere, filled, freshName, opened, reopened } from "./places.js";

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
    deepEqual([...db.keys()], sorted);
    deepEqual([...db.values()].length, sorted.length);
    db = await reopened(db, storage, name);
    deepEqual([...db.keys()], sorted);
    deepEqual([...db.keys({ reverse: true })], sorted.reverse());
  });

  test("entries gives keys with values, and values only values", async () => {
    const db = await opened(storage);
    await filledWith(db, ["b", "a", "c"]);
    const entries: [string, string | undefined][] = [];
    for (const [key, value] of db.entries()) entries.push([key, text(value)]);
    deepEqual(entries, [
      ["a", "of a"],
      ["b", "of b"],
      ["c", "of c"],
    ]);
    const values: (string | undefined)[] = [];
    for (const value of db.values({ reverse: true })) values.push(text(value));
    deepEqual(values, ["of c", "of b", "of a"]);
  });

  test("an empty database has no keys, values or entries", async () => {
    const db = await opened(storage);
    deepEqual([...db.keys()], []);
    deepEqual([...db.values()], []);
    deepEqual([...db.entries({ reverse: true, keyAs: "bytes" })], []);
    equal(db.count({ prefix: "a" }), 0);
    equal(db.clear(), 0);
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
      deepEqual([...db.keys({ ...range, keyAs: "bytes" })], wanted, what);
      equal(db.count(range), wanted.length, what);
      const seen: Uint8Array[] = [];
      for (const value of db.values(range)) seen.push(value.slice());
      deepEqual(seen, wanted, what);
      if (i % 20 !== 0) continue;
      throws(() =>
        db.transaction(() => {
          equal(db.clear(range), wanted.length, what);
          equal(db.count(), keys.length - wanted.length, what);
          for (const key of wanted) equal(db.has(key), false);
          throw new Error("undone");
        }),
      );
      equal(db.count(), keys.length);
    }
  });

  test("bounds may be strings or any views of bytes", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "ab", "b", "é", "éa"]);
    deepEqual([...db.keys({ prefix: bytes("a") })], ["a", "ab"]);
    deepEqual([...db.keys({ prefix: "é" })], ["é", "éa"]);
    deepEqual(
      [...db.keys({ gt: new DataView(bytes("a").buffer as ArrayBuffer), lt: "b" })],
      ["ab"],
    );
    deepEqual(
      [...db.keys({ lte: bytes("b").buffer as ArrayBuffer, reverse: true, limit: 1 })],
      ["b"],
    );
    const mine = bytes("a");
    const scan = db.keys({ gte: mine });
    mine.fill(0xff);
    equal([...scan].length, 5, "a bound is copied");
  });

  test("all options of a range apply together, and an unsatisfiable range is empty", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "ab", "abc", "b", "c"]);
    deepEqual([...db.keys({ prefix: "a", gt: "ab" })], ["abc"]);
    deepEqual([...db.keys({ prefix: "ab", lt: "abc" })], ["ab"]);
    deepEqual([...db.keys({ prefix: "a", gte: "ab", lte: "ab" })], ["ab"]);
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
      deepEqual([...db.keys(range)], []);
      deepEqual([...db.entries(range)], []);
      equal(db.count(range), 0);
      equal(db.clear(range), 0);
    }
    equal(db.count(), 5);
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
    deepEqual([...db.keys({ gt: undefined, prefix: undefined, limit: undefined })], []);
    deepEqual([...db.keys(undefined)], []);
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
    deepEqual(seen, ["a"]);
    throws(() => [...db.entries({ gt: "a" })], { ...BAD, message: /keyAs/ });
    deepEqual([...db.keys({ keyAs: "bytes" })], [bytes("a"), binary, bytes("z")]);
    deepEqual([...db.keys({ lt: "b" })], ["a"]);
    equal([...db.values()].length, 3, "values need no names");
    // Two halves of one character, which are text only together.
    db.clear();
    db.set(new Uint8Array([0xc3]), "half");
    db.set(new Uint8Array([0xc3, 0xa9]), "whole");
    throws(() => [...db.keys()], { ...BAD, message: /keyAs/ });
    deepEqual([...db.keys({ gt: new Uint8Array([0xc3]) })], ["é"]);
  });

  test("keys as bytes are copies", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "b"]);
    const [first] = db.keys({ keyAs: "bytes" });
    first?.fill(0xff);
    deepEqual([...db.keys()], ["a", "b"]);
    await turn();
    equal(first?.length, 1);
  });

  test("long keys, and more keys than a page holds, all come once", async () => {
    const db = await opened(storage);
    const long = Array.from({ length: 20 }, (_, i) => `${"l".repeat(65_000)}${numbered(i)}`);
    const short = Array.from({ length: MANY }, (_, i) => numbered(i));
    await filledWith(db, [...long, ...short]);
    const all = [...short, ...long];
    deepEqual([...db.keys()], all);
    deepEqual([...db.keys({ reverse: true })], [...all].reverse());
    equal(db.count(), all.length);
    equal(db.count({ prefix: "key" }), MANY);
    equal(db.count({ prefix: "key", limit: 10 }), 10);
    const limited = [...db.keys({ gte: numbered(1_000), limit: 1_500 })];
    deepEqual(limited, short.slice(1_000, 2_500));
  });

  test("each for…of over one scan starts again, and sees the current data", async () => {
    const db = await opened(storage);
    const keys = db.keys({ prefix: "a" });
    db.set("a1", "");
    deepEqual([...keys], ["a1"]);
    db.set("a2", "");
    deepEqual([...keys], ["a1", "a2"]);
    const [one, two] = [keys[Symbol.iterator](), keys[Symbol.iterator]()];
    equal(one.next().value, "a1");
    equal(two.next().value, "a1");
    equal(one.next().value, "a2");
    equal(one.next().done, true);
    equal(one.next().done, true);
    equal(two.next().value, "a2");
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
        equal(key, numbered(0));
        break;
      }
      for (const key of db.keys({ reverse: true })) {
        equal(key, numbered(MANY - 1));
        break;
      }
    }
    ok(db.stats().memoryBytes - before < 1_000_000, "what was left early is held");
    const iterator = db.keys()[Symbol.iterator]();
    equal(iterator.next().value, numbered(0));
    iterator.return?.();
    equal(iterator.next().done, true);
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
        if (seen.size % 7 === 0) ok(text(value)?.includes("of"), "a value is current");
        // Between keys that stay, keys are added, deleted and changed, on both sides of the position.
        const other = numbered(next(MANY) * 2 + 1);
        if (next(2) === 0) db.set(other, "of another");
        else db.delete(other);
        db.set(numbered(next(MANY) * 2), `of ${seen.size}`);
        if (next(500) === 0) await turn();
      }
      for (const key of kept) equal(seen.get(key), 1, key);
      for (const [key, times] of seen) equal(times, 1, key);
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
    deepEqual(seen, ["of a", "changed", "of d"]);
    const limited: string[] = [];
    db.set("b", "of b");
    for (const [key] of db.entries({ limit: 3 })) {
      limited.push(key);
      db.delete("b");
    }
    deepEqual(limited, ["a", "c", "d"], "a limit counts what was seen");
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
    deepEqual(seen, expected);
    deepEqual(
      [...db.entries()].map(([key, value]) => key + text(value)),
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
    equal(deleted, MANY);
    equal(db.count(), 0);
  });

  test("an iteration goes on after a yield, and throws after close", async () => {
    const db = await opened(storage);
    await filledWith(
      db,
      Array.from({ length: MANY }, (_, i) => numbered(i)),
    );
    let steps = 0;
    for (const key of db.keys()) {
      equal(key, numbered(steps));
      steps += 1;
      if (steps % 600 === 0) await turn();
    }
    equal(steps, MANY);
    const [keys, values, entries] = [db.keys(), db.values(), db.entries()];
    const begun = [keys, values, entries].map((scan) => scan[Symbol.iterator]());
    for (const one of begun) equal(one.next().done, false);
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
    equal(iterator.next().value, "a");
    await one.close();
    throws(() => iterator.next(), CLOSED);
    deepEqual([...two.keys()], ["a", "b"]);
  });

  test("a transaction sees its own writes in order, and rolled back ones are in no range", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "c"]);
    throws(() =>
      db.transaction((tx) => {
        tx.set("b", "");
        tx.delete("a");
        deepEqual([...tx.keys()], ["b", "c"]);
        throw new Error("undone");
      }),
    );
    deepEqual([...db.keys()], ["a", "c"]);
  });

  test("a callback of updateIf may read ranges", async () => {
    const db = await opened(storage);
    await filledWith(db, ["a", "b"]);
    // The first range sorts the keys, which allocates memory that a callback cannot free.
    equal(db.count({ gt: "a" }), 1);
    ok(db.updateIf("a", () => [...db.keys()].join(" ")));
    equal(db.getText("a"), "a b");
    throws(() => db.updateIf("a", () => String(db.clear())), { name: "ReentrancyError" });
    equal(db.count(), 2);
  });

  test("clear deletes a range or everything, all or nothing, and returns how many", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    await filledWith(
      db,
      Array.from({ length: MANY }, (_, i) => numbered(i)),
    );
    db.set("other", "1");
    equal(db.clear({ prefix: "key", lt: numbered(10) }), 10);
    equal(db.clear({ prefix: "key", reverse: true, limit: 5 }), 5);
    equal(db.has(numbered(MANY - 5)), false);
    equal(db.has(numbered(MANY - 6)), true);
    throws(() =>
      db.transaction(() => {
        equal(db.clear(), MANY - 14);
        throw new Error("undone");
      }),
    );
    equal(db.count(), MANY - 14);
    equal(db.clear({ prefix: "key" }), MANY - 15);
    deepEqual([...db.keys()], ["other"]);
    db = await reopened(db, storage, name);
    deepEqual([...db.keys()], ["other"]);
    equal(db.clear(), 1);
    equal(db.count(), 0);
  });

  test("a database without order refuses every range, and counts all its keys", async () => {
    const db = await opened(storage, { ordered: false });
    await filledWith(db, ["a", "b"]);
    equal(db.count(), 2);
    const refused = { ...BAD, message: /ordered: false.*no ranges/ };
    throws(() => db.keys(), refused);
    throws(() => db.values(), refused);
    throws(() => db.entries({ prefix: "a" }), refused);
    throws(() => db.count({}), refused);
    throws(() => db.clear(), refused);
    equal(db.count(), 2);
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
        equal(key, numbered(i));
        equal(value.length, 40_000);
        ok(value[0] === i && value[39_999] === i, key);
        seen += 1;
      }
      equal(seen, 200);
    }
  });

  test("7: in strict mode a value is detached at the next step, alone", async () => {
    const db = await opened(storage, { strictViews: true });
    await filledWith(db, ["a", "b", "c"]);
    const mine = db.get("a") as Uint8Array;
    let last: Uint8Array | undefined;
    for (const [key, value] of db.entries()) {
      if (last !== undefined) equal(last.length, 0);
      equal(text(value), `of ${key}`);
      last = value;
    }
    equal(last?.length, 0);
    equal(text(mine), "of a", "what get gave is good until the yield");
    for (const value of db.values()) {
      last = value;
      break;
    }
    equal(last?.length, 0);
    throws(() => db.set("d", last as Uint8Array), { name: "StaleViewError" });
    const iterator = db.values()[Symbol.iterator]();
    const { value } = iterator.next();
    await turn();
    equal(value?.length, 0, "and at a yield");
    equal(text(iterator.next().value), "of b");
  });

  test("7: in strict mode a write to a value of an iteration is thrown by the next step", async () => {
    const heard: Error[] = [];
    const db = await opened(storage, { strictViews: true, onError: (error) => heard.push(error) });
    await filledWith(db, ["a", "b"]);
    const written = { code: "VARVE_VIEW_WRITTEN", message: /updateIf/ };
    const iterator = db.values()[Symbol.iterator]();
    iterator.next().value?.fill(88);
    throws(() => iterator.next(), written);
    equal(db.getText("a"), "of a");
    iterator.next().value?.fill(88);
    await turn();
    equal(heard.length, 1);
    throws(() => db.get("a"), written);
    equal(db.getText("b"), "of b");
  });
});

suite("ranges on a failing file", () => {
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
    equal(db.count(), 1_200, "nothing was cleared");
    const values = db.values()[Symbol.iterator]();
    let seen = 0;
    for (; seen < 10; seen++) equal(values.next().value?.[0], seen % 256);
    fake.fault = ({ op }) => (op === "read" ? platform.io() : undefined);
    let failures = 0;
    while (seen < 1_200 && failures < 3) {
      try {
        equal(values.next().value?.[0], seen % 256);
        seen += 1;
      } catch (error) {
        equal((error as Error).name, "StorageError");
        failures += 1;
      }
    }
    equal(failures, 3);
    fake.fault = () => undefined;
    // The failed step is repeated: nothing is skipped.
    for (; seen < 1_200; seen++) equal(values.next().value?.[0], seen % 256);
    equal(values.next().done, true);
    equal(db.count(), 1_200);
  });

  test("a database that refuses writes supports ranges", async () => {
    const fake = await larger();
    const db = await opened(fake);
    fake.fault = ({ op }) => (op === "flush" ? platform.io() : undefined);
    db.set("poison", "1");
    throws(() => db.flush(), { name: "StorageError" });
    throws(() => db.clear({ limit: 1 }), { name: "DatabasePoisonedError" });
    equal([...db.keys({ prefix: "key" })].length, 1_200);
    equal(db.count({ prefix: "key" }), 1_200);
    const pin = db.pin(numbered(1));
    equal(pin?.bytes[0], 1);
    pin?.dispose();
  });
});
