/** Tests of varve/idb-keyval, for every kind of database and every runtime. */

import type { Client, Database } from "varve";
import * as keyval from "varve/idb-keyval";
import { assert, describe, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";

const { get, set, del, clear, keys, values, entries, setMany, getMany, delMany, update } = keyval;

/** As IndexedDB calls its errors, with the code of varve. */
const NO_KEY = { name: "DataError", code: "VARVE_BAD_ARGUMENT" };
const NO_VALUE = { name: "DataCloneError", code: "VARVE_BAD_ARGUMENT" };

type To = Database | Client;

/**
 * What idb-keyval's own tests assert (its package does not have them), and more. `opened` gives a database, or a client
 * of one, that the test may close.
 */
export function idbKeyvalTests(kind: string, opened: () => Promise<To>): void {
  /** Two stores: that of calls without one, and another. */
  const stores = async () => {
    const to = await opened();
    keyval.setDefaultStore(keyval.createStore(to, "keyval"));
    return { to, other: keyval.createStore(to, "custom-kv") };
  };

  describe(`idb-keyval's tests, on ${kind}`, () => {
    test(`keyval on ${kind}: get and set`, async () => {
      await stores();
      await set("foo", "bar");
      expect(await get("foo")).toBe("bar");
      expect(await get("food")).toBe(undefined);
    });

    test(`keyval on ${kind}: del`, async () => {
      const { other } = await stores();
      await set("foo", "bar");
      await set("foo", "yo", other);
      await del("foo", other);
      expect([await get("foo"), await get("foo", other)]).toStrictEqual(["bar", undefined]);
      await del("foo");
      expect(await get("foo")).toBe(undefined);
      await del("food");
      await rejects(del({} as never), NO_KEY);
    });

    test(`keyval on ${kind}: clear`, async () => {
      const { other } = await stores();
      await setMany([
        ["foo", "bar"],
        ["hello", "world"],
      ]);
      await set("foo", "yo", other);
      await clear(other);
      expect([await get("foo"), await get("foo", other)]).toStrictEqual(["bar", undefined]);
      await clear();
      expect(await getMany(["foo", "hello"])).toStrictEqual([undefined, undefined]);
    });

    test(`keyval on ${kind}: keys of other types are other keys`, async () => {
      await stores();
      await set(123, "hello");
      expect([await get(123), await get("123")]).toStrictEqual(["hello", undefined]);
      await set([123, "456"], "hello");
      const found = [await get([123, "456"]), await get(["456", 123])];
      expect(found).toStrictEqual(["hello", undefined]);
      await set(123, 456);
      expect(await get(123)).toBe(456);
      await set(123, { foo: 123, hello: "world" });
      expect(await get(123)).toStrictEqual({ foo: 123, hello: "world" });
    });

    test(`keyval on ${kind}: each store has its own keys`, async () => {
      const { other } = await stores();
      await set("foo", "bar", other);
      expect([await get("foo"), await get("foo", other)]).toStrictEqual([undefined, "bar"]);
    });

    test(`keyval on ${kind}: bad keys and values have the errors of IndexedDB`, async () => {
      await stores();
      await rejects(set({} as never, "foo"), NO_KEY);
      await rejects(get({} as never), NO_KEY);
      for (const wrong of [() => {}, Symbol("a"), new WeakMap(), Promise.resolve(1)]) {
        await rejects(set("yo", wrong), NO_VALUE);
        await rejects(set("yo", { in: [wrong] }), NO_VALUE);
        await rejects(
          update("count", () => wrong),
          NO_VALUE,
        );
      }
      expect(await keys()).toStrictEqual([]);
    });

    test(`keyval on ${kind}: keys, values and entries, in the order of the keys`, async () => {
      const { other } = await stores();
      await setMany([
        ["foo", "bar"],
        [123, "456"],
        [124, { foo: "bar" }],
      ]);
      await setMany(
        [
          ["hello", "world"],
          [123, "456"],
        ],
        other,
      );
      expect(await keys()).toStrictEqual([123, 124, "foo"]);
      expect(await keys(other)).toStrictEqual([123, "hello"]);
      expect(await values()).toStrictEqual(["456", { foo: "bar" }, "bar"]);
      expect(await values(other)).toStrictEqual(["456", "world"]);
      expect(await entries()).toStrictEqual([
        [123, "456"],
        [124, { foo: "bar" }],
        ["foo", "bar"],
      ]);
      expect(await entries(other)).toStrictEqual([
        [123, "456"],
        ["hello", "world"],
      ]);
    });

    test(`keyval on ${kind}: setMany, getMany and delMany`, async () => {
      const { other } = await stores();
      await setMany([]);
      expect([await entries(), await getMany([])]).toStrictEqual([[], []]);
      await setMany([
        ["foo", "bar"],
        [123, "456"],
        ["hello", "world"],
      ]);
      await set("yo", "ok", other);
      expect(await getMany(["foo", 123, "yo"])).toStrictEqual(["bar", "456", undefined]);
      expect(await getMany(["yo", "hello"], other)).toStrictEqual(["ok", undefined]);
      await delMany(["foo", 123, "does-not-exist"]);
      expect(await getMany(["foo", 123, "hello"])).toStrictEqual([undefined, undefined, "world"]);
      await delMany(["yo"], other);
      expect([await entries(), await entries(other)]).toStrictEqual([[["hello", "world"]], []]);
    });

    test(`keyval on ${kind}: updates at the same time are made one after the other`, async () => {
      const { other } = await stores();
      const increment = (old: number | undefined) => (old ?? 0) + 1;
      const all = [undefined, undefined, undefined, other, other];
      await Promise.all(all.map((store) => update("count", increment, store)));
      expect([await get("count"), await get("count", other)]).toStrictEqual([3, 2]);
    });
  });

  describe(`more of idb-keyval's functions, on ${kind}`, () => {
    test(`keyval on ${kind}: a key that is there but undefined is a key`, async () => {
      await stores();
      await set("a", undefined);
      expect([await get("a"), await keys()]).toStrictEqual([undefined, ["a"]]);
      await update<number | undefined>("a", (old) => old);
      expect(await entries()).toStrictEqual([["a", undefined]]);
    });

    test(`keyval on ${kind}: values come back as structuredClone copies them`, async () => {
      await stores();
      const shared = { once: true };
      const list: unknown[] = [shared, "hole", shared];
      delete list[1];
      const all: Record<string, unknown> = {
        undefined: undefined,
        null: null,
        numbers: [0, 1.5, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
        big: -(2n ** 70n),
        text: 'a"\\\u0000é\ud800😀',
        date: new Date(5),
        bad: new Date(Number.NaN),
        pattern: /a+[/]/giu,
        map: new Map<unknown, unknown>([
          [{ a: 1 }, new Set([1, "1"])],
          [Number.NaN, list],
        ]),
        list,
        bytes: new Uint8Array([1, 2, 255]),
        floats: new Float64Array([0.1, -0]),
        buffer: new Uint8Array([7]).buffer,
        kinds: ["h", "u", ["h"], ["u"], { 0: "h" }],
      };
      all.self = all;
      Object.defineProperty(all, "__proto__", { value: { polluted: 1 }, enumerable: true });
      await set("a", all);
      const found = await get("a");
      assert(found.self === found && Object.getPrototypeOf(found) === Object.prototype);
      assert(found.list[0] === found.list[2] && !(1 in found.list) && found.list.length === 3);
      assert(found.map.get(Number.NaN) === found.list && found.list[0] !== shared);
      for (const one of [found, all]) {
        delete one.self;
        one.list = [...one.list];
      }
      expect(Object.getOwnPropertyDescriptor(found, "__proto__")?.value).toStrictEqual({
        polluted: 1,
      });
      for (const key of Object.keys(all)) expect([key, found[key]]).toStrictEqual([key, all[key]]);
      await set("zero", [-0, Object(5), Object("a")]);
      const [zero, five, a] = await get("zero");
      assert(Object.is(zero, -0) && typeof five === "object" && +five === 5 && `${a}` === "a");
    });

    test(`keyval on ${kind}: errors keep their class, message, stack and cause`, async () => {
      await stores();
      const given = new RangeError("too far", { cause: { at: 5 } });
      await setMany([
        ["a", given],
        ["b", Object.assign(new Error("b", { cause: "h" }), { name: "Mine" })],
      ]);
      const [a, b] = await getMany(["a", "b"]);
      assert(a instanceof RangeError && b instanceof Error && b.cause === "h");
      expect([a.message, a.stack, a.cause]).toStrictEqual(["too far", given.stack, { at: 5 }]);
    });

    test(`keyval on ${kind}: a view of a large buffer is stored without the rest`, async () => {
      const { to } = await stores();
      const large = new Uint8Array(100_000).fill(9);
      await set("a", { part: large.subarray(5, 8) });
      expect(await get("a")).toStrictEqual({ part: new Uint8Array([9, 9, 9]) });
      const [stored] = [await to.get((await anyKey(to)) as string)];
      assert((stored?.length ?? 0) < 200);
    });

    test(`keyval on ${kind}: what is given may change after the call`, async () => {
      await stores();
      const [key, value] = [[1, "a"], { list: [1] }];
      const done = set(key as IDBValidKey, value);
      key.push("more");
      value.list.push(2);
      await done;
      expect(await entries()).toStrictEqual([[[1, "a"], { list: [1] }]]);
    });

    test(`keyval on ${kind}: keys of every kind come back, in the order of IndexedDB`, async () => {
      await stores();
      const ordered: IDBValidKey[] = [
        ...[Number.NEGATIVE_INFINITY, -5e300, -1, -1e-9, 0, 1e-9, 1, 255, 256, 5e300],
        ...[Number.POSITIVE_INFINITY, new Date(-5), new Date(0), new Date(5)],
        ...["", "\u0000", "a", "a\u0000", "ab", "b", "\u007e", "\u007f", "é", "\u07fe", "\u07ff"],
        ...["\ud7ff", "😀", "\udfff", "\ue000", "\uffff"],
        ...[[], [0], [0, 0], [0, 1], [1], [new Date(1)], ["", ""], ["a"], ["a", 0], ["a\u0000"]],
        ...[["b"], [[]], [[1]], [[1], 1], [[1, 1]]],
      ];
      const at = ordered.indexOf("\uffff") + 1;
      const binary = [[], [0], [0, 0], [1], [126], [127], [254], [255], [255, 0]];
      ordered.splice(at, 0, ...binary.map((bytes) => new Uint8Array(bytes).buffer));
      const shuffled = ordered.map((key, i) => [key, i] as const);
      shuffled.sort(([, a], [, b]) => ((a * 7) % 11) - ((b * 7) % 11));
      await setMany(shuffled);
      expect(await values()).toStrictEqual(ordered.map((_, i) => i));
      expect(await keys()).toStrictEqual(ordered);
      expect(await getMany(ordered)).toStrictEqual(ordered.map((_, i) => i));
      expect([await get(-0), await get(new DataView(new ArrayBuffer(2)))]).toStrictEqual([
        ordered.indexOf(0),
        at + 2,
      ]);
    });

    test(`keyval on ${kind}: what is no key is refused`, async () => {
      await stores();
      const endless: unknown[] = [];
      endless.push(endless);
      const wrong = [undefined, null, true, Number.NaN, new Date(Number.NaN), 5n, /a/, [1, {}]];
      for (const key of [...wrong, endless, Symbol("a")] as unknown[] as IDBValidKey[]) {
        await rejects(set(key, 1), NO_KEY);
        await rejects(getMany([1, key]), NO_KEY);
        await rejects(delMany([1, key]), NO_KEY);
        await rejects(
          update(key, () => 1),
          NO_KEY,
        );
      }
      await rejects(set("a".repeat(70_000), 1), { code: "VARVE_BAD_ARGUMENT", message: /65,?535/ });
      await rejects(set("a", "b".repeat(17_000_000)), { code: "VARVE_BAD_ARGUMENT" });
      await rejects(
        setMany([
          ["ok", 1],
          ["a", "b".repeat(17_000_000)],
        ]),
        {},
      );
      let deep: unknown = 1;
      for (let i = 0; i < 100_000; i += 1) deep = { deep };
      await rejects(set("deep", deep), { ...NO_VALUE, message: /deep/ });
      expect(await keys()).toStrictEqual([]);
    });

    test(`keyval on ${kind}: an updater that throws changes nothing`, async () => {
      await stores();
      await set("a", 1);
      const thrown = new Error("no");
      const fail = () => {
        throw thrown;
      };
      assert((await rejects(update("a", fail))) === thrown);
      expect(await get("a")).toBe(1);
    });

    test(`keyval on ${kind}: names of stores do not overlap, and other keys are untouched`, async () => {
      const { to } = await stores();
      await to.set("mine", "1");
      const names = ["a", "a/", 'a"', 'a"b', "", "\u0001", "é"];
      const made = names.map((name) => keyval.createStore(to, name));
      for (const [i, store] of made.entries()) await set("b", i, store);
      for (const [i, store] of made.entries()) expect(await values(store)).toStrictEqual([i]);
      for (const store of made) await clear(store);
      expect(await to.count()).toBe(1);
    });

    test(`keyval on ${kind}: the errors of a closed database have a code`, async () => {
      const { to } = await stores();
      await to.close();
      const closed = { code: "VARVE_DATABASE_CLOSED" };
      for (const promise of [keys(), values(), entries(), clear()]) await rejects(promise, closed);
      await rejects(get("a"), closed);
      await rejects(getMany(["a"]), closed);
      await rejects(set("a", 1), closed);
      await rejects(setMany([["a", 1]]), closed);
      await rejects(del("a"), closed);
      await rejects(
        update("a", () => 1),
        closed,
      );
    });

    test(`keyval on ${kind}: anything but a database, a client or a name is refused`, async () => {
      const bad = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };
      for (const wrong of [undefined, null, {}, new Map(), 5]) {
        throws(() => keyval.createStore(wrong as never, "a"), bad);
      }
      throws(() => keyval.createStore("a", undefined as never), bad);
    });
  });
}

async function anyKey(to: To): Promise<string | undefined> {
  for await (const key of to.keys()) return key;
  return undefined;
}
