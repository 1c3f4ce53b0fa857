import type { KeySpec } from "varve/struct";
import {
  auto,
  blob,
  bool,
  bytes,
  desc,
  f32,
  f64,
  fixedStr,
  i8,
  i16,
  i32,
  i64,
  json,
  option,
  str,
  struct,
  text,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
} from "varve/struct";
import { expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { dateOfAnotherRealm, ofAnotherRealm } from "../support/values.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

/** Kinds of keys, and values of each in their order. */
const ORDERED: [string, KeySpec, unknown[]][] = [
  ["u8", u8, [0, 1, 127, 128, 255]],
  ["u16", u16, [0, 255, 256, 65_535]],
  ["u32", u32, [0, 1, 65_536, 4_294_967_295]],
  ["u53", u53, [0, 255, 4_294_967_295, 4_294_967_296, Number.MAX_SAFE_INTEGER]],
  ["i8", i8, [-128, -1, 0, 127]],
  ["i16", i16, [-32_768, -256, -1, 0, 32_767]],
  ["i32", i32, [-2_147_483_648, -65_536, -1, 0, 1, 2_147_483_647]],
  ["u64", u64, [0n, 255n, 1n << 32n, (1n << 64n) - 1n]],
  ["i64", i64, [-(1n << 63n), -1n, 0n, 1n, (1n << 63n) - 1n]],
  ["f32", f32, [-Infinity, -1.5, -(2 ** -149), 0, 2 ** -149, 1, 1.5, Infinity]],
  ["f64", f64, [-Infinity, -1e300, -1.5, -5e-324, 0, 5e-324, 0.1, 1e300, Infinity]],
  ["timestamp", timestamp, [-8.64e15, -1, 0, 1_700_000_000_000, 8.64e15]],
  ["bool", bool, [false, true]],
  ["str", str, ["!", "a", "a\u0000", "ab", "b", "ž", "🐎"]],
  ["desc u16", desc(u16), [300, 256, 255, 0]],
  ["desc f64", desc(f64), [2.5, 0, -1, -Infinity]],
  ["desc str", desc(str), ["b", "ab", "a\u0001", "a\u0000", "a", ""]],
  ["a tuple", [u32, desc(f64), str], TUPLES()],
  ["a tuple of bigint and text", [i64, str], BIG()],
];

function TUPLES(): unknown[] {
  const all: unknown[] = [];
  for (const a of [0, 7, 4_294_967_295]) {
    for (const b of [99.5, 0, -1]) {
      for (const c of ["", "\u0000", "a", "a\u0000", "a\u0000b", "aa", "b"]) all.push([a, b, c]);
    }
  }
  return all;
}

function BIG(): unknown[] {
  return [
    [-5n, "z"],
    [0n, ""],
    [0n, "a"],
    [1n << 40n, "a"],
  ];
}

everywhere("the keys of a collection", ({ storage }) => {
  test("keys come in the order of their values, and decode to the same values", async () => {
    const db = await opened(storage);
    for (const [name, key, values] of ORDERED) {
      const collection = db.collection(name, text(), { key });
      const given = values as never[];
      for (const value of [...given].reverse()) collection.set(value, String(value));
      expect([...collection.keys()], name).toStrictEqual(values);
      expect([...collection.keys({ reverse: true })], name).toStrictEqual([...values].reverse());
      for (const value of given) expect(collection.get(value)).toBe(String(value));
      const [first, second] = given as [never, never];
      expect([...collection.keys({ gt: first, lte: second })], name).toStrictEqual([second]);
      expect([...collection.keys({ lt: second })], name).toStrictEqual([first]);
      expect(collection.count({ gte: second }), name).toBe(values.length - 1);
      const paged: unknown[] = [];
      for (let after: never | undefined; ; after = paged.at(-1) as never) {
        const page = [...collection.keys({ after, limit: 2 })];
        if (page.length === 0) break;
        paged.push(...page);
      }
      expect(paged, name).toStrictEqual(values);
      expect(collection.delete(first)).toBe(true);
      expect(collection.has(first)).toBe(false);
    }
  });

  test("dates of another realm are accepted as keys and as fields", async () => {
    const db = await opened(storage);
    const Visit = struct("Visit", { at: timestamp });
    const visits = db.collection("visits", Visit, { key: timestamp, indexes: { byTime: "at" } });
    visits.set(dateOfAnotherRealm(5), { at: dateOfAnotherRealm(7) });
    expect(visits.get(new Date(5))?.at).toBe(7);
    expect(visits.index.byTime.count({ gte: 7 })).toBe(1);
  });

  test("bytes of another realm are accepted in keys", async () => {
    const db = await opened(storage);
    const parts = db.collection("parts", json<number>(), { key: [str, blob] });
    parts.set(["a", ofAnotherRealm(Uint8Array.of(0, 1))], 1);
    expect(parts.get(["a", Uint8Array.of(0, 1)])).toBe(1);
    throws(
      () => parts.set(["a", new DataView(new ArrayBuffer(1)) as unknown as Uint8Array], 1),
      BAD,
    );
  });

  test("invalid keys are refused", async () => {
    const db = await opened(storage);
    const bad: [KeySpec, unknown[]][] = [
      [u8, [-1, 256, 1.5, "1", 1n, undefined, null, [1]]],
      [u53, [2 ** 53, -1, Number.NaN]],
      [u64, [-1n, 1n << 64n, 1]],
      [i64, [1n << 63n, 1]],
      [f64, [Number.NaN, "1"]],
      [timestamp, [new Date(Number.NaN), "1970"]],
      [
        [u8, str],
        [[1], [1, "a", 2], ["a", 1], "a", { 0: 1, 1: "a", length: 2 }, [1, "\ud800"]],
      ],
      [[str], [["a".repeat(65_536)], ["a".repeat(65_534)]]],
      [auto(), [-1, "a"]],
    ];
    for (const [i, [key, keys]] of bad.entries()) {
      const collection = db.collection(`bad ${i}`, text(), { key });
      for (const one of keys as never[]) {
        throws(() => collection.get(one), BAD);
        throws(() => collection.set(one, "x"), BAD);
      }
      expect(collection.count()).toBe(0);
    }
    for (const key of [{}, null, "u32", [], [u32, "str"], () => u32]) {
      throws(() => db.collection("bad", text(), { key: key as typeof str }), BAD);
    }
    throws(() => db.collection("bad", text(), { keys: u32 } as never), BAD);
  });

  test("invalid ranges are refused for every kind of key, and do not select all records", async () => {
    const db = await opened(storage);
    const collections = [
      db.collection("strings", text()),
      db.collection("bytes", text(), { key: blob }),
      db.collection("numbers", text(), { key: u32 }),
      db.collection("tuples", text(), { key: [u32, str] }),
    ];
    const keys = ["a", Uint8Array.of(1), 1, [1, "a"]];
    for (const [i, collection] of collections.entries()) {
      collection.set(keys[i] as never, "kept");
      for (const range of [null, 5, Number.NaN, true, "a", [], () => 1, { from: 1 }] as never[]) {
        for (const call of ["keys", "values", "entries", "count", "clear"] as const) {
          throws(() => collection[call](range), BAD);
        }
      }
      expect(collection.count({})).toBe(1);
    }
  });

  test("tuple keys have ranges by their first parts", async () => {
    const db = await opened(storage);
    const scores = db.collection("scores", text(), { key: [u32, desc(f64), str] });
    for (const player of ["ann", "bob"]) {
      for (const game of [1, 2, 255, 256]) {
        for (const score of [10, 20.5]) scores.set([game, score, player], `${player} ${score}`);
      }
    }
    const best = [...scores.keys({ prefix: [2] })];
    expect(best).toStrictEqual([
      [2, 20.5, "ann"],
      [2, 20.5, "bob"],
      [2, 10, "ann"],
      [2, 10, "bob"],
    ]);
    expect([...scores.keys({ prefix: [2, 10] })]).toStrictEqual(best.slice(2));
    expect([...scores.keys({ prefix: [2], limit: 1, reverse: true })]).toStrictEqual(best.slice(3));
    expect(scores.count({ gt: [2] })).toBe(8);
    expect(scores.count({ gte: [2] })).toBe(12);
    expect(scores.count({ lt: [2] })).toBe(4);
    expect(scores.count({ lte: [2] })).toBe(8);
    // What comes after a score in descending order is below it.
    expect([...scores.keys({ prefix: [2], gt: [2, 20.5] })]).toStrictEqual(best.slice(2));
    expect([...scores.keys({ prefix: [2], after: [2, 20.5, "ann"], limit: 2 })]).toStrictEqual(
      best.slice(1, 3),
    );
    expect(scores.clear({ gte: [255], lt: [256, 20.5] })).toBe(4);
    expect(scores.count()).toBe(12);
    throws(() => scores.keys({ gt: [1], gte: [1] }), BAD);
    throws(() => scores.keys({ lt: [1, 2, "a", 3] } as never), BAD);
    for (const bound of [2, "ann", null, { length: 0 }]) {
      for (const option of ["gt", "gte", "lt", "lte", "prefix", "after"]) {
        throws(() => scores.clear({ [option]: bound } as never), BAD);
      }
    }
    expect(scores.count()).toBe(12);
  });

  test("string keys may be declared by a type, and byte keys are stored unchanged", async () => {
    const db = await opened(storage);
    db.collection("notes", text()).set("a", "A");
    expect(db.collection("notes", text(), { key: str }).get("a")).toBe("A");
    throws(() => db.collection("notes", text(), { key: u32 }), { code: "VARVE_SCHEMA_MISMATCH" });
    const notes = db.collection("notes", text());
    for (const option of ["gt", "lte", "after"]) {
      const wrong = { ...BAD, message: new RegExp(`option ${option} of keys`) };
      throws(() => notes.keys({ [option]: "" }), wrong);
    }
  });

  test("keys of fixed length must have that length, but bounds may have another", async () => {
    const db = await opened(storage);
    const codes = db.collection("codes", text(), { key: fixedStr(4) });
    for (const key of ["", "ab", "abc", "žž"]) codes.set(key, key);
    const hashes = db.collection("hashes", text(), { key: bytes(2) });
    for (const key of [0x0101, 0x0102, 0x0200]) hashes.set(Uint8Array.of(key >> 8, key), "");
    const pairs = db.collection("pairs", text(), { key: [option(fixedStr(2)), desc(bytes(1))] });
    pairs.set(["ab", Uint8Array.of(1)], "");
    for (const wrong of ["abcde", "žžž", "a\0", 5, "\ud800"] as never[]) {
      throws(() => codes.set(wrong, ""), BAD);
      throws(() => codes.get(wrong), BAD);
      throws(() => pairs.set([wrong, Uint8Array.of(1)], ""), BAD);
    }
    for (const wrong of [Uint8Array.of(1), new Uint8Array(3), "ab"] as never[]) {
      throws(() => hashes.set(wrong, ""), BAD);
      throws(() => pairs.set(["ab", new Uint8Array(2)], ""), BAD);
    }
    throws(() => codes.set("abcde", ""), { message: /a string of up to 4 bytes.*"abcde"/ });
    throws(() => hashes.set(new Uint8Array(3), ""), { message: /must be 2 bytes/ });
    expect([codes.count(), hashes.count(), pairs.count()]).toStrictEqual([4, 3, 1]);
    expect([...codes.keys({ gt: "abbbbbb" })]).toStrictEqual(["abc", "žž"]);
    expect([...hashes.keys({ gte: Uint8Array.of(1, 1, 9) })].length).toStrictEqual(2);
    expect(pairs.count({ gte: ["abb"] }) + pairs.count({ lt: ["abb"] })).toBe(1);
  });

  test("keys of a single text or of bytes support prefixes of any length", async () => {
    const db = await opened(storage);
    const kinds = [fixedStr(4), desc(str), desc(fixedStr(4)), option(fixedStr(4))];
    for (const [i, key] of kinds.entries()) {
      const codes = db.collection(`codes ${i}`, text(), { key: key as typeof str });
      for (const one of ["a", "ab", "abc", "b"]) codes.set(one, "");
      expect([...codes.keys({ prefix: "ab" })].sort()).toStrictEqual(["ab", "abc"]);
      expect(codes.count({ prefix: "" })).toBe(4);
      expect(codes.count({ prefix: "abcd" })).toBe(0);
    }
    const hashes = db.collection("hashes", text(), { key: bytes(3) });
    for (const key of [0, 1, 2]) hashes.set(Uint8Array.of(0, key, 7), "");
    expect([...hashes.keys({ prefix: Uint8Array.of(0, 1) })]).toStrictEqual([
      Uint8Array.of(0, 1, 7),
    ]);
    expect(hashes.count({ prefix: Uint8Array.of(0) })).toBe(3);
  });

  test("auto() assigns keys in order", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const jobsOf = () => db.collection("jobs", json<string>(), { key: auto() });
    let jobs = jobsOf();
    expect([jobs.push("a"), jobs.push("b"), jobs.push("c")]).toStrictEqual([1, 2, 3]);
    jobs.set(300, "d");
    expect(jobs.push("e")).toBe(301);
    jobs.delete(301);
    expect(jobs.push("f")).toBe(302);
    throws(
      () =>
        db.transaction(() => {
          expect(jobs.push("g")).toBe(303);
          expect(jobs.push("h")).toBe(304);
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    expect(jobs.push("i")).toBe(303);
    db = await reopened(db, storage, name);
    jobs = jobsOf();
    expect(jobs.push("j")).toBe(304);
    const [first] = jobs.entries({ limit: 1 });
    expect(first).toStrictEqual([1, "a"]);
    jobs.clear();
    expect(jobs.push("k")).toBe(305);
    throws(() => db.collection("numbers", json(), { key: u53 }).push(1), BAD);
  });

  test("keys survive reopening, and keys of another kind are refused", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const days = { key: [timestamp, str] } as const;
    db.collection("days", text(), days).set([new Date(86_400_000), "ann"], "here");
    db = await reopened(db, storage, name);
    expect([...db.collection("days", text(), days).entries()]).toStrictEqual([
      [[86_400_000, "ann"], "here"],
    ]);
    db = await reopened(db, storage, name);
    throws(() => db.collection("days", text(), { key: [str, timestamp] }), {
      code: "VARVE_SCHEMA_MISMATCH",
    });
    throws(() => db.collection("days", text()), { code: "VARVE_SCHEMA_MISMATCH" });
  });
});
