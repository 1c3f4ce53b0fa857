/** `json()` refuses what JSON would lose, and `json({ lossy: true })` stores what JSON makes of it. */

import { json, str, struct } from "varve/struct";
import { assert, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { everywhere, opened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

/** An object like those of dayjs and Decimal. */
class Amount {
  toJSON(): string {
    return "1.5";
  }
}

const lost = (): [what: string, value: unknown, path: string][] => [
  ["a Date", new Date(5), "the value"],
  ["a Date", { since: new Date(Number.NaN) }, ".since"],
  ["a Map", { a: [1, new Map([[1, 2]])] }, ".a[1]"],
  ["a Set", { "b c": new Set() }, '["b c"]'],
  ["a Uint8Array", [Uint8Array.of(1)], "[0]"],
  ["a Float64Array", { a: new Float64Array(0) }, ".a"],
  ["a ArrayBuffer", { a: new ArrayBuffer(2) }, ".a"],
  ["a DataView", { a: new DataView(new ArrayBuffer(2)) }, ".a"],
  ["a RegExp", { a: /a/ }, ".a"],
  ["a Error", { a: Object.assign(new Error("a"), { code: 1 }) }, ".a"],
  ["a Blob", { a: new Blob(["a"]) }, ".a"],
  ["a Promise", { a: Promise.resolve(1) }, ".a"],
  ["a WeakMap", { a: new WeakMap() }, ".a"],
  ["NaN", { a: { b: Number.NaN } }, ".a.b"],
  ["Infinity", [[Infinity]], "[0][0]"],
  ["-Infinity", -Infinity, "the value"],
  ["NaN", { a: new Number(Number.NaN) }, ".a"],
  ["undefined", { list: [1, undefined] }, ".list[1]"],
  ["undefined", { list: Object.assign([1], { length: 3 }) }, ".list[1]"],
  ["a function", { a: { call: () => 1 } }, ".a.call"],
  ["a function", [() => 1], "[0]"],
  ["a symbol", { a: Symbol("a") }, ".a"],
  // Beside, or in, what a function of the value returns.
  ["a Date", { price: new Amount(), at: new Date(5) }, ".at"],
  ["a Date", { toJSON: () => ({ at: new Date(5) }) }, ".at"],
  ["NaN", { a: { toJSON: () => Number.NaN } }, ".a"],
  ["a Map", { a: { toJSON: () => new Map() } }, ".a"],
  ["undefined", [{ toJSON: () => undefined }], "[0]"],
];

everywhere("json() without losses", ({ storage }) => {
  test("json(): what JSON would lose is refused, with its path and what to use", async () => {
    const db = await opened(storage);
    const values = db.collection("values", json<unknown>());
    values.set("before", { a: 1 });
    for (const [what, value, path] of lost()) {
      const named = what.replace(/^a (?=[AE])/, "an? ");
      const error = throws(() => values.set("a", value), { ...BAD });
      assert(
        new RegExp(`^json\\(\\): .* is ${named}, which JSON does not keep\\.`).test(
          error.message,
        ) && error.message.startsWith(`json(): ${path} is `),
        `${path}, ${what}: ${error.message}`,
      );
      assert(
        error.message.endsWith("Use structured() of varve/structured, or json({ lossy: true })."),
        error.message,
      );
      expect((error as Error & { field: string }).field).toBe(path === "the value" ? "" : path);
      throws(() => values.updateIf("before", () => ({ value }) as never), BAD);
    }
    expect([...values.entries()]).toStrictEqual([["before", { a: 1 }]]);
  });

  test("json(): what JSON keeps is stored, and what classes want to be is kept", async () => {
    const db = await opened(storage);
    const values = db.collection("values", json<unknown>());
    const stored = (value: unknown) => {
      values.set("a", value);
      return values.get("a");
    };
    const Name = struct("Name", { name: str });
    class Point {
      readonly x = 1;
    }
    const url = new URL("https://example.com/a");
    expect(stored({ url, price: new Amount(), list: [url] })).toStrictEqual({
      url: "https://example.com/a",
      price: "1.5",
      list: ["https://example.com/a"],
    });
    expect(stored({ toJSON: (key: string) => [key] })).toStrictEqual([""]);
    expect(stored({ a: { toJSON: (key: string) => `at ${key}` } })).toStrictEqual({ a: "at a" });
    expect(stored({ a: { toJSON: () => undefined }, b: 1 })).toStrictEqual({ b: 1 });
    expect(stored({ gone: undefined, none: null, is: false })).toStrictEqual({
      none: null,
      is: false,
    });
    expect(stored([-0, 1e300, "\ud800"])).toStrictEqual([0, 1e300, "\ud800"]);
    expect(
      stored([new Point(), Object.create(null), new Number(5), new String("a"), new Boolean(true)]),
    ).toStrictEqual([{ x: 1 }, {}, 5, "a", true]);
    expect(stored({ name: Name.view(Name.encode({ name: "Ann" })) })).toStrictEqual({
      name: { name: "Ann" },
    });
    const shared = { a: 1 };
    expect(stored([shared, shared])).toStrictEqual([shared, shared]);
    const many = Array.from({ length: 20_000 }, () => shared);
    expect(stored(many)).toStrictEqual(many);
    let calls = 0;
    stored({ toJSON: () => ++calls });
    expect(calls).toBe(1);
  });

  test("json(): circles, bigints and missing values have no JSON form, of any size", async () => {
    const db = await opened(storage);
    const values = db.collection("values", json<unknown>());
    const circle: unknown[] = [];
    circle.push(circle, circle);
    const large: { list: unknown[] } = { list: [] };
    for (let i = 0; i < 20_000; i++) large.list.push({ large });
    for (const value of [circle, large, { a: 1n }, undefined, () => 1]) {
      throws(() => values.set("a", value), { ...BAD, message: /has no JSON form/ });
    }
    expect(values.count()).toBe(0);
  });

  test("json({ lossy: true }): stores what JSON.stringify makes of a value, in the same collections", async () => {
    const db = await opened(storage);
    const lossy = db.collection("values", json<unknown>({ lossy: true }));
    for (const [, value] of lost()) {
      const text = JSON.stringify(value);
      if (text === undefined) continue;
      lossy.set("a", value);
      expect(JSON.stringify(lossy.get("a"))).toBe(text);
    }
    lossy.set("a", { at: new Date(5), map: new Map([[1, 2]]), no: Number.NaN });
    const strict = db.collection("values", json<unknown>());
    expect(strict.get("a")).toStrictEqual({ at: "1970-01-01T00:00:00.005Z", map: {}, no: null });
    for (const wrong of [null, 1, { losy: true }, { lossy: 1 }])
      throws(() => json(wrong as object), BAD);
  });
});
