import {
  ConflictError,
  MalformedValueError,
  type RemoteCollection,
  UniqueViolationError,
} from "varve";
import { auto, flatten, json, option, str, struct, text, timestamp, u16, u32 } from "varve/struct";
import { structured } from "varve/structured";
import { assert, describe, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { until } from "../support/values.js";
import { shop } from "./support.js";

const Product = struct("Product", { stock: u16, name: str });

const yeezy = { stock: 2, name: "Yeezy Boost 350 V2" };

const collections = {
  products: { of: Product, indexes: { byStock: "stock" } },
  sessions: json<{ user: string; tags?: string[] }>(),
  notes: { of: text(), key: auto() },
  scores: { of: json<number>(), key: [u32, str] },
  visits: { of: json<number>(), key: timestamp },
} as const;

describe("remote collections", () => {
  test("remote collection: dates are keys in every call", async () => {
    const { visits } = shop({ collections });
    const [first, second, never] = [new Date(1), new Date(2), new Date(3)];
    await visits.set(first, 10);
    await visits.set(second, 20);
    expect(await visits.get(second)).toBe(20);
    expect(await visits.getMany([second, never, first])).toStrictEqual([20, undefined, 10]);
    expect(await visits.values({ gte: second }).all()).toStrictEqual([20]);
    expect(await visits.updateIf(first, (value) => value + 1)).toBe(true);
    expect(await visits.delete(second)).toBe(true);
    expect(await visits.entries().all()).toStrictEqual([[1, 11]]);
  });

  test("remote collection: values are stored by the schema and returned as plain objects", async () => {
    const client = shop({ collections });
    await client.products.set("yeezy", yeezy);
    const found = await client.products.get("yeezy");
    expect(found).toStrictEqual(yeezy);
    expect(await client.products.get("none")).toBe(undefined);
    expect(await client.products.has("yeezy")).toBe(true);
    expect(await client.get("yeezy"), "raw calls do not see it").toBe(undefined);
    await rejects(client.products.set("bad", { stock: 70_000, name: "" }), { message: /stock/ });
    expect(await client.products.count()).toBe(1);
  });

  test("remote collection: an error has the same properties as in the worker", async () => {
    const client = shop({
      collections: {
        products: { of: Product, indexes: { byName: { fields: "name", unique: true } } },
      },
      procedures: {
        malformed: () => Product.check(new Uint8Array(1)),
      },
    });
    await client.products.set("a", yeezy);
    const twice = await rejects(client.products.set("b", yeezy), { name: "UniqueViolationError" });
    assert(twice instanceof UniqueViolationError);
    expect([twice.collection, twice.index]).toStrictEqual(["products", "byName"]);
    const bad = await rejects(client.call.malformed(), { name: "MalformedValueError" });
    assert(bad instanceof MalformedValueError);
    throws(() => Product.check(new Uint8Array(1)), { message: bad.message });
    const here = throws(() => Product.check(new Uint8Array(1))) as MalformedValueError;
    expect([bad.field, bad.message]).toStrictEqual([here.field, here.message]);
    assert(bad.field !== "", "which field it was");
  });

  test("remote collection: update without a change is refused, and an empty change is done", async () => {
    const client = shop({ collections });
    await client.products.set("yeezy", yeezy);
    const bad = { code: "VARVE_BAD_ARGUMENT", message: /update\(\)/ };
    for (const change of [undefined, null, 5, "add"]) {
      await rejects(client.products.update("yeezy", change as never), bad);
    }
    expect(await client.products.update("yeezy", {})).toStrictEqual({
      applied: true,
      value: yeezy,
    });
    expect(await client.products.update("none", {})).toStrictEqual({
      applied: false,
      value: undefined,
    });
  });

  test("remote collection: indexes of plain objects and of many values, in calls and live", async () => {
    const client = shop({
      collections: {
        users: {
          of: json<{ email?: string; tags?: string[] }>(),
          indexes: {
            byEmail: { fields: "email", type: str, unique: true },
            byTag: { fields: "tags", type: str, multiEntry: true },
          },
        },
        moments: {
          of: structured<{ at: Date }>(),
          indexes: { byTime: { fields: "at", type: timestamp } },
        },
      },
    });
    const { moments, users } = client;
    const { byEmail, byTag } = users.index;
    const lists: string[][] = [];
    const live = byTag.live({ gte: "b", limit: 3 }, (rows) => lists.push(rows.map(([key]) => key)));
    const two = byTag.live({ eq: "b" }, () => {});
    await users.set("ann", { email: "ann@x", tags: ["b", "a", "c"] });
    await users.set("bob", { tags: ["b", "b"] });
    expect((await byEmail.get("ann@x"))?.tags?.length).toBe(3);
    expect(await byTag.keys().all()).toStrictEqual(["ann", "ann", "bob", "ann"]);
    expect(await byTag.count({ eq: "b" })).toBe(2);
    expect(await byTag.entries({ eq: "c" }).all()).toStrictEqual([
      ["ann", { email: "ann@x", tags: ["b", "a", "c"] }],
    ]);
    await until(() => String(lists.at(-1)) === "ann,bob,ann");
    await users.updateIf("ann", (user) => ({ ...user, tags: ["c", "d"] }));
    await until(() => String(lists.at(-1)) === "bob,ann,ann");
    await users.update("bob", { set: { tags: ["z"] } });
    await until(() => String(lists.at(-1)) === "ann,ann,bob");
    live.close();
    two.close();
    await rejects(users.set("cid", { tags: ["a", 5 as never] }), {
      code: "VARVE_BAD_ARGUMENT",
      message: /indexed field tags\[1\] must be a string/,
    });
    await rejects(users.set("cid", { email: "ann@x" }), { name: "UniqueViolationError" });
    await client.transaction(async (tx) => {
      tx.collection("users").set("cid", { tags: ["c"] });
    });
    expect(await byTag.keys({ eq: "c" }).all()).toStrictEqual(["ann", "cid"]);
    await moments.set("a", { at: new Date(5) });
    expect(await moments.index.byTime.get(new Date(5))).toStrictEqual({ at: new Date(5) });
  });

  test("remote collection: numeric and composite keys", async () => {
    const client = shop({ collections });
    expect(await client.notes.push("one")).toBe(1);
    expect(await client.notes.push("two")).toBe(2);
    expect(await client.notes.entries({ reverse: true }).all()).toStrictEqual([
      [2, "two"],
      [1, "one"],
    ]);
    await client.scores.set([7, "ann"], 99);
    await client.scores.set([7, "bob"], 11);
    expect(await client.scores.keys().all()).toStrictEqual([
      [7, "ann"],
      [7, "bob"],
    ]);
    expect(await client.scores.delete([7, "ann"])).toBe(true);
    expect(await client.scores.clear()).toBe(1);
  });

  test("remote collection: indexes find records", async () => {
    const client = shop({ collections });
    await client.products.batch([
      { type: "set", key: "a", value: { stock: 3, name: "A" } },
      { type: "set", key: "b", value: { stock: 1, name: "B" } },
      { type: "set", key: "c", value: { stock: 9, name: "C" } },
    ]);
    const few = await client.products.index.byStock.entries({ lt: 5 }).all();
    expect(await client.products.index.byStock.entries({ eq: 1 }).all()).toStrictEqual(
      few.slice(0, 1),
    );
    expect(few.map(([key, { name }]) => key + name)).toStrictEqual(["bB", "aA"]);
    expect(await client.products.index.byStock.count()).toBe(3);
  });

  test("remote collection: arguments are copied at the call", async () => {
    const client = shop({ collections });
    const session = { user: "ann", tags: ["a"] };
    const set = client.sessions.set("s", session);
    session.tags.push("b");
    await set;
    expect(await client.sessions.get("s")).toStrictEqual({ user: "ann", tags: ["a"] });
  });

  test("remote collection: an unknown name is reported", async () => {
    const client = shop({ collections });
    const orders = client.collection("orders" as "products");
    await rejects(orders.get("a"), { message: /no collection "orders".*products/ });
  });

  test("remote collection: a late call is reported with its name", async () => {
    const busy = () => {
      for (const end = Date.now() + 50; Date.now() < end; );
    };
    const client = shop({ collections, procedures: { busy } });
    await client.products.set("a", yeezy);
    const busied = client.call.busy();
    // A separate message, after the first.
    for (let i = 0; i < 8; i += 1) await undefined;
    const late = [
      client.products.update("a", { add: { stock: 1 }, timeout: 10 }),
      client.transaction((tx) => tx.products.set("a", yeezy), { timeout: 10 }),
    ];
    await rejects(late[0] as Promise<unknown>, { message: /^update\(\) reached/ });
    await rejects(late[1] as Promise<unknown>, { message: /^transaction\(\) reached/ });
    await busied;
  });
});

describe("declarative updates", () => {
  test("update: it adds and sets if its conditions hold, and returns the value", async () => {
    const client = shop({ collections });
    await client.products.set("yeezy", yeezy);
    const buy = { add: { stock: -1 }, where: { stock: { gt: 0 } } };
    const sold = await Promise.all([1, 2, 3].map(() => client.products.update("yeezy", buy)));
    expect(sold.map(({ applied, value }) => [applied, value?.stock])).toStrictEqual([
      [true, 1],
      [true, 0],
      [false, 0],
    ]);
    const renamed = await client.products.update("yeezy", {
      set: { name: "sold out" },
      where: { stock: 0 },
    });
    expect(renamed).toStrictEqual({ applied: true, value: { stock: 0, name: "sold out" } });
  });

  test("update: the value is unchanged if the schema refuses the new one", async () => {
    const client = shop({ collections });
    await client.products.set("yeezy", { stock: 0, name: "a" });
    await rejects(client.products.update("yeezy", { add: { stock: -1 } }), { message: /stock/ });
    expect(await client.products.get("yeezy")).toStrictEqual({ stock: 0, name: "a" });
  });

  test("update: unknown options and bad conditions are refused", async () => {
    const client = shop({ collections });
    await client.products.set("yeezy", yeezy);
    const products = client.products as unknown as {
      update(key: string, change: unknown): Promise<unknown>;
    };
    const add = { stock: -1 };
    const unheeded: [change: unknown, message: RegExp][] = [
      [{ add, were: { stock: { gt: 9 } } }, /update\(\) has no option "were"/],
      [{ add, where: { stock: { above: 9 } } }, /on stock has no option "above"/],
      [{ add, where: { stock: new Date(0) } }, /on stock must be a primitive.*a Date/],
      [{ add, where: { stock: [9] } }, /on stock must be a primitive.*an Array/],
      [{ add, where: { stock: new Uint8Array([9]) } }, /on stock must be a primitive.*Uint8Array/],
      ["add", /update\(\) must be an object/],
      [{ add, where: { stock: { gt: undefined } } }, /on stock has gt: undefined/],
      [{ add, where: { stock: { lte: undefined, gt: 0 } } }, /on stock has lte: undefined/],
      [{ add, where: null }, /where of update\(\) must be an object/],
      [{ add: [1] }, /add of update\(\) must be an object/],
      [{ set: null }, /set of update\(\) must be an object/],
    ];
    for (const [change, message] of unheeded) {
      await rejects(products.update("yeezy", change), { code: "VARVE_BAD_ARGUMENT", message });
      await rejects(products.update("none", change), { code: "VARVE_BAD_ARGUMENT", message });
    }
    expect(await client.products.get("yeezy")).toStrictEqual(yeezy);
  });

  test("update: names that are no fields of the struct are refused, as are those of view methods", async () => {
    const Inner = struct("Inner", { rank: u16 });
    const Outer = struct("Outer", { stock: u16, inner: flatten(Inner), price: option(u16) });
    const client = shop({ collections: { outer: Outer } });
    const outer = client.outer as unknown as {
      set(key: string, value: unknown): Promise<void>;
      get(key: string): Promise<unknown>;
      update(key: string, change: unknown): Promise<unknown>;
    };
    const value = { stock: 3, rank: 1, price: undefined };
    await outer.set("a", value);
    const names = ["$v", "$s", "snapshot", "constructor", "stokc", "inner"];
    for (const reported of [
      ...names.map((name) => ({ [name]: 1 })),
      JSON.parse('{"__proto__":1}'),
    ]) {
      for (const part of ["add", "set", "where"]) {
        await rejects(outer.update("a", { [part]: reported }), {
          code: "VARVE_BAD_ARGUMENT",
          message: new RegExp(`${part} of update\\(\\) names .*fields are: stock, rank, price`),
        });
      }
    }
    expect(await outer.get("a")).toStrictEqual(value);
    const set = { rank: 2, price: 9 };
    expect(await outer.update("a", { set, where: { price: undefined } })).toStrictEqual({
      applied: true,
      value: { ...value, ...set },
    });
    const there = { price: { not: undefined } };
    expect(await outer.update("a", { add: { stock: 1 }, where: there })).toStrictEqual({
      applied: true,
      value: { ...value, ...set, stock: 4 },
    });
  });

  test("update: values without fields are refused, and an empty change returns the value", async () => {
    const client = shop({ collections: { free: json<unknown>(), notes: text() } });
    const { free, notes } = client as unknown as Record<
      "free" | "notes",
      RemoteCollection<string, string, unknown, unknown>
    >;
    await notes.set("a", "text");
    for (const value of ["text", null, 5]) {
      await free.set("a", value);
      for (const reported of [{ set: { b: 1 } }, { add: { b: 1 } }, { where: { b: 1 } }]) {
        await rejects(free.update("a", reported as never), { message: /changes fields/ });
      }
      expect(await free.update("a", {})).toStrictEqual({ applied: true, value });
    }
    await rejects(notes.update("a", { set: { b: 1 } } as never), {
      message: /changes fields.*Use set\(\)/,
    });
    expect(await notes.get("a")).toBe("text");
  });

  test("update: plain objects are accepted, and a missing key only with valueIfMissing", async () => {
    const client = shop({ collections });
    const set = { user: "bob" };
    expect(await client.sessions.update("s", { set })).toStrictEqual({
      applied: false,
      value: undefined,
    });
    const made = await client.sessions.update("s", { set, valueIfMissing: { user: "ann" } });
    expect(made).toStrictEqual({ applied: true, value: { user: "bob" } });
  });
});

describe("updateIf of remote collections", () => {
  test("updateIf: the callback changes a copy or returns another value, which is stored", async () => {
    const client = shop({ collections });
    await client.products.set("yeezy", { stock: 20, name: "a" });
    const drop = () =>
      client.products.updateIf(
        "yeezy",
        (product) => {
          product.stock -= 1;
        },
        { predicate: ({ stock }) => stock > 0, retries: 100 },
      );
    const sold = await Promise.all(Array.from({ length: 15 }, drop));
    assert(sold.every((one) => one));
    expect((await client.products.get("yeezy"))?.stock).toBe(5);
    expect(await client.products.updateIf("none", () => {})).toBe(false);
    expect(await client.sessions.updateIf("s", () => {}, { valueIfMissing: { user: "ann" } })).toBe(
      true,
    );
    expect(await client.sessions.get("s")).toStrictEqual({ user: "ann" });
  });

  test("updateIf: it gives up after the given number of conflicts", async () => {
    const client = shop({ collections });
    await client.products.set("yeezy", yeezy);
    const { version } = (await client.products.getEntry("yeezy"))!;
    await client.products.set("yeezy", yeezy);
    const late = client.products.set("yeezy", yeezy, { ifVersion: version });
    assert((await rejects(late, { code: "VARVE_CONFLICT" })) instanceof ConflictError);
  });
});
