/** `db.log()`: what was written, in which order and transaction, with notes. */

import type { Database, LogItem, LogOptions, LogRecord } from "varve";
import { CorruptionError } from "varve";
import { json, str, struct, text, u32 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { text as textOf, turn } from "../support/values.js";
import { FakeStorage } from "./fake-storage.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

/** A record as a short text. */
function short({ type, collection, key, value }: LogRecord): string {
  const place = collection === undefined ? "" : `${collection}/`;
  const shown = value === undefined ? "" : `=${textOf(value)}`;
  return `${type} ${place}${String(key)}${shown}`;
}

/** The transactions of a walk: the note, if there is one, and the records. */
function history(db: Database, options: LogOptions & { flat?: false } = {}): string[][] {
  return [...db.log(options)].map((tx) => {
    expect(tx.type).toBe("transaction");
    return [tx.note ?? "-"];
  });
}

function walked(db: Database, options: LogOptions & { flat?: false } = {}): string[][] {
  const seen: string[][] = [];
  for (const tx of db.log(options)) {
    seen.push([tx.note ?? "-", ...Array.from(tx, short)]);
  }
  return seen;
}

function flat(db: Database, options: LogOptions = {}): string[] {
  const seen: string[] = [];
  for (const item of db.log({ ...options, flat: true })) {
    if (item.type === "transaction") seen.push(`transaction ${item.note ?? "-"}`);
    else if (item.type === "gap" || item.type === "error") seen.push(item.type);
    else seen.push(short(item));
  }
  return seen;
}

/** The content that a walk from the start gives: of several records of a key the one with the largest version. */
function replayed(db: Database): Map<string, string> {
  const newest = new Map<string, { version: number; value: string | undefined }>();
  for (const item of db.log({ flat: true })) {
    if (item.type !== "set" && item.type !== "delete") continue;
    const key = `${item.collection ?? ""}/${String(item.key)}`;
    if ((newest.get(key)?.version ?? 0) > item.version) continue;
    newest.set(key, { version: item.version, value: item.value && textOf(item.value) });
  }
  const content = new Map<string, string>();
  for (const [key, { value }] of newest) if (value !== undefined) content.set(key, value);
  return content;
}

everywhere("log", ({ storage }) => {
  test("a walk shows what was set and deleted, in its order and transactions, with notes", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    expect(walked(db)).toStrictEqual([]);
    const before = Date.now();
    db.transaction(
      (tx) => {
        tx.set("apple", "1");
        tx.set("pear", "2");
      },
      { note: "first stock" },
    );
    db.commit();
    db.set("apple", "3");
    db.commit();
    db.transaction((tx) => tx.delete("pear"), { note: "sold out, größer" });
    await turn();
    const expected = [
      ["first stock", "set apple=1", "set pear=2"],
      ["-", "set apple=3"],
      ["sold out, größer", "delete pear"],
    ];
    expect(walked(db)).toStrictEqual(expected);
    db = await reopened(db, storage, name);
    expect(walked(db)).toStrictEqual(expected);
    expect(flat(db)).toStrictEqual(
      expected.flatMap(([note, ...records]) => [`transaction ${note}`, ...records]),
    );
    const [first, second, third] = db.log();
    assert((first?.time?.getTime() ?? 0) >= before);
    assert((third?.time?.getTime() ?? Number.POSITIVE_INFINITY) <= Date.now());
    expect([second?.time, second?.client, second?.moved]).toStrictEqual([
      undefined,
      undefined,
      false,
    ]);
    const numbers = [first, second, third].map((tx) => tx?.number ?? 0);
    expect(numbers).toStrictEqual([...numbers].sort((a, b) => a - b));
    expect(new Set(numbers).size).toBe(3);
  });

  test("in reverse the newest transaction comes first, with its records in their order", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 60; i++) {
      db.transaction(
        (tx) => {
          // Some of them cross segments, and one takes several.
          for (let j = 0; j < (i === 30 ? 8 : 2); j++) tx.set(`${i}/${j}`, filled(400_000, 97));
        },
        { note: `number ${i}` },
      );
      if (i % 4 === 0) db.commit();
    }
    await turn();
    const short = (options: LogOptions & { flat?: false }) =>
      Array.from(db.log(options), (tx) => [tx.note, ...Array.from(tx, (it) => it.key)]);
    const forwards = short({});
    expect(forwards.length).toBe(60);
    expect(short({ reverse: true })).toStrictEqual([...forwards].reverse());
    expect(short({ reverse: true, limit: 3 })).toStrictEqual(forwards.slice(-3).reverse());
    const numbers = Array.from(db.log({ reverse: true }), (tx) => tx.number).reverse();
    const [since, until] = [numbers[10] ?? 0, numbers[40] ?? 0];
    expect(short({ reverse: true, since, until })).toStrictEqual(forwards.slice(11, 41).reverse());
    throws(() => db.log({ reverse: 1 } as never), BAD);
    throws(() => db.log({ reverse: true, since: new Date() }), BAD);
  });

  test("transactions with notes are their own, whatever else the turn writes", async () => {
    const db = await opened(storage);
    db.set("a", "before");
    db.transaction((tx) => tx.set("a", "inside"), { note: "one" });
    // Of the same length, so it would be written over the record in place.
    db.set("a", "beyond");
    db.transaction((tx) => tx.set("a", "second"), { note: "two" });
    db.transaction((tx) => tx.set("b", "third"), { note: "" });
    db.transaction((tx) => tx.set("b", "plain"));
    await turn();
    expect(walked(db)).toStrictEqual([
      ["-", "set a=before"],
      ["one", "set a=inside"],
      ["-", "set a=beyond"],
      ["two", "set a=second"],
      ["", "set b=third"],
      ["-", "set b=plain"],
    ]);
  });

  test("a transaction that fails or writes nothing leaves no note", async () => {
    const db = await opened(storage);
    throws(
      () =>
        db.transaction(
          (tx) => {
            tx.set("a", "1");
            throw new RangeError("no");
          },
          { note: "failed" },
        ),
      { name: "RangeError" },
    );
    db.transaction(() => db.get("a"), { note: "read" });
    await turn();
    expect(walked(db)).toStrictEqual([]);
    expect(db.stats().liveBytes).toBe(0);
    db.set("b", "2");
    await turn();
    expect(walked(db)).toStrictEqual([["-", "set b=2"]]);
  });

  test("collections come by name with their keys, and their indexes not at all", async () => {
    const db = await opened(storage);
    const users = db.collection("users", json<{ name: string }>(), { key: u32 });
    const notes = db.collection("notes", text());
    const Fruit = struct("Fruit", { price: u32 });
    const fruits = db.collection("fruits", Fruit, {
      key: [str, u32],
      indexes: { byPrice: "price" },
    });
    db.transaction(
      () => {
        users.set(7, { name: "ann" });
        notes.set("a", "x");
        fruits.set(["apple", 1], { price: 3 });
        db.set(new Uint8Array([0xff]), "raw");
      },
      { note: "all" },
    );
    await turn();
    users.delete(7);
    notes.clear();
    await turn();
    const keys = [...db.log({ flat: true })].map((item) =>
      "key" in item ? [item.type, item.collection, item.key] : [item.type],
    );
    expect(keys).toStrictEqual([
      ["transaction"],
      ["set", "users", 7],
      ["set", "notes", "a"],
      ["set", "fruits", ["apple", 1]],
      ["set", undefined, new Uint8Array([0xff])],
      ["transaction"],
      ["delete", "users", 7],
      ["delete", "notes", "a"],
    ]);
    const values = [...db.log({ limit: 1, flat: true })].filter((item) => item.type === "set");
    expect(values.length).toBe(4);
  });

  test("a key outside of collections is text if it is UTF-8, and bytes if not", async () => {
    const db = await opened(storage);
    const keys = [
      "a",
      "größer",
      "\ufffd",
      "\ufeffmark",
      "x".repeat(60),
      "é".repeat(60),
      new Uint8Array([0xff, 0xfe]),
      new Uint8Array([0x61, 0xc3]),
      new Uint8Array([0xef, 0xbf, 0xbd, 0x80]),
      new Uint8Array(60).fill(0x80),
    ];
    for (const key of keys) db.set(key, "1");
    db.commit();
    const shown = [...db.log()].length;
    expect(shown).toBe(1);
    const found: unknown[] = [];
    for (const tx of db.log()) for (const { key } of tx) found.push(key);
    expect(found).toStrictEqual(keys);
  });

  test("clearing a large collection is one record", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    db.transaction(() => {
      for (let i = 0; i < 5_000; i++) notes.set(`k${i}`, "x");
    });
    await turn();
    notes.clear();
    await turn();
    const last = [...db.log({ flat: true })].at(-1) as LogRecord;
    expect([last.type, last.collection, last.key, last.value]).toStrictEqual([
      "clear",
      "notes",
      undefined,
      undefined,
    ]);
  });

  test("since, until and limit select transactions", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 5; i++) {
      db.transaction((tx) => tx.set("k", String(i)), { note: `n${i}` });
      db.commit();
    }
    const numbers = Array.from(db.log(), (tx) => tx.number);
    const notes = (options: LogOptions & { flat?: false }) => history(db, options).flat();
    expect(notes({ since: numbers[1] })).toStrictEqual(["n2", "n3", "n4"]);
    expect(notes({ until: numbers[1] })).toStrictEqual(["n0", "n1"]);
    expect(notes({ since: numbers[0], until: numbers[3], limit: 2 })).toStrictEqual(["n1", "n2"]);
    expect(notes({ limit: 0 })).toStrictEqual([]);
    expect(notes({ since: db.getEntry("k")?.version })).toStrictEqual([]);
    expect(notes({ since: 2 ** 52 })).toStrictEqual([]);
    expect(notes({ since: new Date(Date.now() + 1_000) })).toStrictEqual([]);
    expect(notes({ since: new Date(0), until: new Date(Date.now() + 1_000) }).length).toBe(5);
    expect(notes({ until: new Date(0) })).toStrictEqual([]);
    expect(flat(db, { limit: 1 })).toStrictEqual(["transaction n0", "set k=0"]);
  });

  test("a walk shows what was committed when its loop began, and goes on while others write", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 50; i++) {
      db.set(`k${i}`, "x");
      db.commit();
    }
    db.set("pending", "1");
    const seen: string[] = [];
    for (const tx of db.log()) {
      for (const { key } of tx) seen.push(String(key));
      db.set("meanwhile", filled(2_000, seen.length));
      db.commit();
    }
    expect(seen).toStrictEqual(Array.from({ length: 50 }, (_, i) => `k${i}`));
    // Two walks at a time, one of them left early.
    const pairs: [string, string][] = [];
    for (const outer of db.log({ limit: 3 })) {
      for (const inner of db.log()) {
        const [a] = outer;
        const [b] = inner;
        if (a !== undefined) pairs.push([String(a.key), String(b?.key)]);
        break;
      }
    }
    expect(pairs).toStrictEqual([
      ["k0", "k0"],
      ["k1", "k0"],
      ["k2", "k0"],
    ]);
  });

  test("a value is valid until the next step, and then refused", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    db.set("b", "2");
    await turn();
    const records: LogRecord[] = [];
    for (const item of db.log({ flat: true })) {
      if (item.type !== "set") continue;
      expect(textOf(item.value ?? new Uint8Array())).toBe(item.key === "a" ? "1" : "2");
      records.push(item);
    }
    for (const record of records) throws(() => record.value, { name: "StaleViewError" });
    await db.close();
    throws(() => db.log(), { name: "DatabaseClosedError" });
  });

  test("large values are shown while they are current, and transactions cross segments", async () => {
    const db = await opened(storage);
    const large = filled(3_000_000, 7);
    db.transaction(
      (tx) => {
        tx.set("large", large);
        for (let i = 0; i < 300; i++) tx.set(`k${i}`, filled(10_000, i % 256));
      },
      { note: "three segments" },
    );
    db.set("after", "1");
    await turn();
    const [tx] = db.log();
    expect(tx?.note).toBe("three segments");
    let count = 0;
    for (const one of db.log({ limit: 1 })) {
      for (const { key, value } of one) {
        const expected =
          key === "large" ? large : filled(10_000, Number(String(key).slice(1)) % 256);
        expect(value?.length).toBe(expected.length);
        expect(value?.every((byte, i) => byte === expected[i])).toBe(true);
        count += 1;
      }
    }
    expect(count).toBe(301);
    db.set("large", "small");
    await turn();
    // The old value may be gone already, but is never another one.
    const lengths: (number | undefined)[] = [];
    for (const item of db.log({ flat: true })) {
      if (item.type === "set" && item.key === "large") lengths.push(item.value?.length);
    }
    expect(lengths.length).toBe(2);
    expect(lengths[0] ?? large.length).toBe(large.length);
    expect(lengths[1]).toBe(5);
  });

  test("compaction leaves gaps and moved records, from which the content follows", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.transaction((tx) => tx.set("kept", "forever"), { note: "lost with its segment" });
    db.commit();
    const expected = new Map<string, string>([["/kept", "forever"]]);
    for (let round = 0; round < 3; round++) {
      for (let i = 0; i < 2_000; i++) {
        const value = `${round} ${"x".repeat(600)}`;
        db.set(`k${i}`, value);
        expected.set(`/k${i}`, value);
      }
      await turn();
    }
    for (let i = 0; i < 1_000; i++) {
      db.delete(`k${i}`);
      expected.delete(`/k${i}`);
    }
    await db.compact();
    expect(flat(db).includes("gap")).toBe(true);
    expect([...db.log()].some((tx) => tx.moved)).toBe(true);
    expect([...db.log()].some((tx) => tx.afterGap)).toBe(true);
    expect([...db.log()].some((tx) => tx.note !== undefined)).toBe(false);
    expect(replayed(db)).toStrictEqual(expected);
    const newest = db.getEntry("k1999")?.version ?? 0;
    db.set("new", "1");
    db = await reopened(db, storage, name);
    expected.set("/new", "1");
    expect(replayed(db)).toStrictEqual(expected);
    const later = [...db.log({ since: newest, flat: true })].flatMap((item) =>
      item.type === "set" ? [String(item.key)] : [],
    );
    expect(later).toStrictEqual(["new"]);
  });

  test("writing during a walk over a compacted log is no damage to it", async () => {
    const db = await opened(storage);
    const put = (tag: string, count: number, length: number) => {
      for (let i = 0; i < count; i++) db.set(`${tag}${i}`, filled(length, 1));
    };
    for (let round = 0; round < 10; round++) {
      db.transaction(() => put("k", 12, 40_000));
      await turn();
    }
    await db.compact();
    for (const reverse of [false, true]) {
      // One commit that ends in the last segment, which then grows while its beginning is shown.
      db.transaction(() => put("big", 12, 100_000));
      db.commit();
      let begun = 0;
      for (const item of db.log({ flat: true, reverse })) {
        assert(item.type !== "error", item.type === "error" ? item.error.message : "");
        if (item.type !== "set" || item.key !== "big0") continue;
        begun += 1;
        db.set("small", `${begun}`);
        db.commit();
      }
      assert(begun > 0, "the walk has shown the transaction");
    }
  });

  test("bad options and notes are refused, and nothing is changed", async () => {
    const db = await opened(storage);
    const loose = db as unknown as Record<string, (...args: unknown[]) => unknown>;
    const set = () => db.set("a", "1");
    const transaction = (...args: unknown[]) => loose.transaction?.apply(db, args);
    throws(() => transaction(set, { durability: "flushed" }), {
      ...BAD,
      message: /transaction\(\) has no option "durability". Its options are: note/,
    });
    throws(() => transaction(set, null), { ...BAD, message: /must be an object/ });
    throws(() => transaction(set, {}, 1), { ...BAD, message: /no more arguments/ });
    throws(() => transaction(set, { note: 7 }), { ...BAD, message: /note.*string.*7/ });
    throws(() => transaction(set, { note: "\ud800" }), { ...BAD, message: /lone surrogate/ });
    for (const note of ["x".repeat(65_537), "ä".repeat(32_769)]) {
      throws(() => transaction(set, { note }), { ...BAD, message: /65,536 bytes/ });
    }
    const nested = () => db.transaction(set, { note: "inner" });
    throws(() => db.transaction(nested), { ...BAD, message: /inside another/ });
    expect(db.has("a")).toBe(false);
    for (const options of [
      { since: -1 },
      { since: "1" },
      { until: 1.5 },
      { until: new Date(Number.NaN) },
      { limit: -1 },
      { flat: 1 },
      { backwards: true },
      null,
    ]) {
      throws(() => loose.log?.call(db, options), { ...BAD, message: /log\(\)/ });
    }
    await turn();
    expect(walked(db)).toStrictEqual([]);
    // The longest notes, one after the other. More of them would have compaction remove the first.
    const note = "ü".repeat(32_768);
    for (let i = 0; i < 12; i++) db.transaction((tx) => tx.set("a", String(i)), { note });
    await turn();
    const long = Array.from(db.log(), (tx) => [tx.note === note, ...Array.from(tx, short)]);
    expect(long).toStrictEqual(Array.from({ length: 12 }, (_, i) => [true, `set a=${i}`]));
  });

  test("a read-only database has a log and takes no notes", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    db.transaction((tx) => tx.set("a", "1"), { note: "n" });
    const again = await reopened(db, storage, name, { readOnly: true });
    expect(walked(again)).toStrictEqual([["n", "set a=1"]]);
    throws(() => again.transaction(() => 1, { note: "n" }), { name: "ReadOnlyError" });
  });

  test("strict views end at the next step", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("a", "1");
    db.set("b", "2");
    await turn();
    const views: Uint8Array[] = [];
    for (const item of db.log({ flat: true })) {
      if (item.type === "set" && item.value !== undefined) views.push(item.value);
      expect(views.slice(0, -1).every((view) => view.length === 0)).toBe(true);
    }
    expect(views.map((view) => view.length)).toStrictEqual([0, 0]);
  });
});

describe("log of a damaged file", () => {
  test("a flipped bit anywhere is one error, and all other transactions are there", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake);
    for (let i = 0; i < 12; i++) {
      const write = () => db.set(`k${i}`, filled(40 + i, i));
      if (i % 2 === 0) db.transaction(write, { note: `n${i}` });
      else write();
      db.flush();
    }
    const items = (): LogItem[] => [...db.log({ flat: true })];
    const keysOf = (all: LogItem[]) =>
      all.flatMap((item) => (item.type === "set" ? [String(item.key)] : []));
    const keys = keysOf(items());
    expect(keys.length).toBe(12);
    const first = 8_192 + 64;
    // Frames fill the file from the first one on without spaces; those of flushes have no records.
    let end = Math.min(fake.content.length, 8_192 + 4_096);
    while (fake.content[end - 1] === 0) end -= 1;
    let damaged = 0;
    for (let at = first; at < end; at += 5) {
      const bit = 1 << (at % 8);
      fake.content[at] = (fake.content[at] as number) ^ bit;
      const found = items();
      const errors = found.filter((item) => item.type === "error");
      const missing = keys.length - keysOf(found).length;
      if (errors.length > 0) {
        damaged += 1;
        expect(errors.length).toBe(1);
        const [error] = errors;
        assert(error?.error instanceof CorruptionError);
        assert((error?.offset ?? Number.POSITIVE_INFINITY) <= at);
        assert((error?.offset ?? 0) + (error?.length ?? 0) > at);
        // A nested walk throws it once and goes on.
        const steps = db.log()[Symbol.iterator]();
        let thrown = 0;
        let transactions = 0;
        for (;;) {
          try {
            if (steps.next().done === true) break;
            transactions += 1;
          } catch (caught) {
            assert(caught instanceof CorruptionError);
            thrown += 1;
          }
        }
        expect([thrown, transactions]).toStrictEqual([1, keys.length - missing]);
      }
      assert(missing <= errors.length, `${missing} are missing`);
      fake.content[at] = (fake.content[at] as number) ^ bit;
    }
    assert(damaged > 100, `${damaged} walks met damage`);
    expect(keysOf(items())).toStrictEqual(keys);
  });
});
