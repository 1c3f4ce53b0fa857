/** Values stored by a client's collections, compared with those that `db.collection` stores. */

import { memory, open } from "varve";
import { auto, json, option, str, struct, text, timestamp, u16, u64, vec } from "varve/struct";
import { structured } from "varve/structured";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { clientsOf, shop } from "./support.js";

/** A class like those of dayjs and Decimal: its fields say little, and one is a function. */
class Amount {
  private readonly digits = [1, 5];
  readonly make = () => this;

  toJSON(): string {
    return this.digits.join(".");
  }
}

class Point {
  readonly x = 1;
  readonly "y z" = 2;
  get hidden(): number {
    return 3;
  }
}

/** A proxy like those of Vue, MobX and Immer, which returns proxies of nested values. */
function reactive<T extends object>(of: T): T {
  return new Proxy(of, {
    get(target, name, receiver) {
      const value: unknown = Reflect.get(target, name, receiver);
      const isWhole = value instanceof Date || value instanceof Function;
      return Object(value) === value && !isWhole ? reactive(value as object) : value;
    },
  });
}

const circle: { me?: unknown } = {};
circle.me = circle;
const shared = { a: 1 };
const failure = new RangeError("a");
const fails = {
  toJSON() {
    throw new RangeError("not this one");
  },
};

const VALUES: Readonly<Record<string, () => unknown>> = {
  "a URL": () => new URL("https://example.com/a?b=c"),
  "a nested URL": () => ({ list: [{ u: new URL("https://example.com/") }] }),
  "a date": () => ({ at: new Date(5), bad: new Date(Number.NaN) }),
  "an object with toJSON": () => ({ price: new Amount(), prices: [new Amount()] }),
  "toJSON that returns an object with toJSON": () => ({ toJSON: () => ({ at: new Amount() }) }),
  "toJSON that uses its key": () => ({ a: { toJSON: (key: string) => `at ${key}` } }),
  "toJSON that returns undefined": () => ({ a: { toJSON: () => undefined } }),
  "toJSON that throws": () => ({ a: fails }),
  "an instance of a class": () => new Point(),
  "a proxy": () => reactive({ a: 1, list: [{ b: [2] }], at: new Date(5) }),
  "a proxy of an array": () => reactive([1, { a: [2] }]),
  "missing properties and items": () => ({
    a: undefined,
    list: [undefined, ...Array(2), 1],
    n: null,
  }),
  "functions and symbols": () => ({ f: () => 1, s: Symbol("s"), list: [() => 1, Symbol("s")] }),
  "a function": () => () => 1,
  undefined: () => undefined,
  numbers: () => [Number.NaN, Number.POSITIVE_INFINITY, -0, 1e21, 0.1],
  "wrapper objects": () => [new String("a"), new Number(1), new Boolean(false)],
  "a bigint": () => ({ a: 1n }),
  "a bigint beside a URL": () => ({ u: new URL("https://example.com/"), a: 1n }),
  "a circular reference": () => circle,
  "a shared reference": () => ({ a: shared, b: [shared] }),
  "maps, sets and bytes": () => [new Map([[1, 2]]), new Set([1]), Uint8Array.of(1, 2), /a/],
  "an error": () => failure,
  "a lone surrogate": () => ({ a: "\ud800" }),
  "the property __proto__": () => JSON.parse('{"__proto__": {"a": 1}, "b": 2}') as unknown,
  "no prototype": () => Object.assign(Object.create(null) as object, { a: 1 }),
  text: () => "text",
};

/** The outcome of a call as text: the stored value, or the error. */
async function outcomeOf(call: () => unknown, isStructured = false): Promise<string> {
  try {
    const value = (await call()) ?? "nothing";
    if (!isStructured) return JSON.stringify(value);
    for (const one of [value, (value as { field?: unknown }).field]) {
      // Firefox's messages have the place where the worker has made the error of its bytes.
      if (one instanceof Error) Object.defineProperty(one, "stack", { value: "" });
    }
    return structured().encode(value).join();
  } catch (error) {
    const { name, code, message } = error as { name: string; code?: string; message: string };
    // A client knows what a message cannot carry, and says so in other words.
    if (isStructured && code === "VARVE_BAD_ARGUMENT") return `${name} ${code}`;
    return `${name} ${code} ${message.replace(/^Operation 0 of the batch: | Given: .*/g, "")}`;
  }
}

/** Compares outcomes. Before the worker is ready, an error of the program arrives as a different one. */
function check(found: string, expected: string, call: string): void {
  if (found === "TypeError VARVE_BAD_ARGUMENT not this one")
    assert(expected.includes("not this one"), call);
  else expect(found, call).toBe(expected);
}

const lossy = json<unknown>({ lossy: true });

const CODECS = {
  "json()": json<unknown>(),
  "json({ lossy })": lossy,
  "structured()": structured(),
};

describe("json() and structured() collections of clients", () => {
  const all = Object.entries(VALUES).flatMap(([what, make]) =>
    Object.entries(CODECS).map(([name, free]) => ({ what, make, name, free })),
  );
  for (const { what, make, name, free } of all) {
    const isStructured = name === "structured()";
    const outcome = (call: () => unknown) => outcomeOf(call, isStructured);
    test(`${name}: every call stores ${what} as db.collection does`, async () => {
      const db = await open("direct", { storage: memory(), ...wasmOption() });
      onTestFinished(() => db.close());
      const direct = db.collection("free", free);
      const set = (value: unknown) =>
        outcome(() => {
          direct.set("a", value);
          return direct.get("a");
        });
      const [whole, inField] = [await set(make()), await set({ n: 1, field: make() })];
      // Each call is the first of its client, and has a key of its own.
      const served = clientsOf(servedAs(free));
      let keys = 0;
      for (const isUp of [false, true]) {
        type Shop = ReturnType<typeof served>;
        const calls: Record<string, (client: Shop, key: string) => Promise<unknown>> = {
          set: ({ free }, key) => free.set(key, make()),
          batch: ({ free }, key) => free.batch([{ type: "set", key, value: make() }]),
          push: ({ list }) => list.push(make()),
          transaction: (client, key) => client.transaction((tx) => tx.free.set(key, make())),
          returned: ({ free }, key) =>
            free.updateIf(key, () => ({ value: make() }).value as object, { valueIfMissing: 1 }),
          valueIfMissing: ({ free }, key) =>
            free.updateIf(key, () => {}, { valueIfMissing: make() }),
          update: ({ free }, key) => free.update(key, { valueIfMissing: make() }),
        };
        for (const [call, run] of Object.entries(calls)) {
          // For these calls a missing value has another meaning.
          if (make() === undefined && /returned|IfMissing|update/.test(call)) continue;
          const client = served();
          keys += 1;
          const key = `${keys}`;
          if (isUp) await client.ready;
          const found = await outcome(async () => {
            const returned = await run(client, key);
            return call === "push" ? client.list.get(returned as number) : client.free.get(key);
          });
          check(found, whole, `${call}, ${isUp}`);
        }
        const client = served();
        const key = `field ${isUp}`;
        if (isUp) await client.ready;
        const found = await outcome(async () => {
          const change = { set: { field: make() }, valueIfMissing: { n: 1, field: 0 } };
          await client.free.update(key, change as object);
          return client.free.get(key);
        });
        check(found, inField, `update, ${isUp}`);
      }
    });
  }

  test("json(): transactions and updates read the stored form", async () => {
    const client = shop(servedAs(lossy));
    await client.ready;
    const seen: unknown[] = [];
    await client.transaction(async (tx) => {
      tx.free.set("a", { price: new Amount(), at: new Date(5), gone: undefined });
      seen.push(await tx.free.get("a"));
    });
    const stored = { price: "1.5", at: "1970-01-01T00:00:00.005Z" };
    const look = (value: unknown) => void seen.push(value);
    await client.free.updateIf("b", look, {
      valueIfMissing: { price: new Amount(), at: new Date(5) },
    });
    expect(seen).toStrictEqual([stored, stored]);
    expect(await client.free.get("b")).toStrictEqual(stored);
  });

  test("json(): a value is taken as it was at the call", async () => {
    const client = shop(servedAs(json<unknown>()));
    const value = { u: new URL("https://example.com/"), list: [1] };
    const set = client.free.set("a", value);
    value.list.push(2);
    await set;
    expect(await client.free.get("a")).toStrictEqual({ u: "https://example.com/", list: [1] });
  });
});

/** What a worker serves. */
function servedAs(free: (typeof CODECS)[keyof typeof CODECS]) {
  return { collections: { free, list: { of: free, key: auto() } } };
}

describe("struct collections of clients", () => {
  const Product = struct("Product", {
    stock: u16,
    name: str,
    at: option(timestamp),
    tags: vec(str),
    views: option(u64),
  });
  const plain = { stock: 1, name: "a", at: 5, tags: ["x", "y"], views: 7n };
  const make = () => ({ ...plain, at: new Date(5), extra: () => 1 });
  const custom = {
    encode: (value: unknown) => new TextEncoder().encode((value as { text: string }).text),
    decode: (bytes: Uint8Array) => ({ text: new TextDecoder().decode(bytes.slice()) }) as unknown,
  };

  test("struct: proxies, views and objects with further fields are stored as by db.collection", async () => {
    for (const isUp of [false, true]) {
      const client = shop({ collections: { products: Product, notes: text() } });
      if (isUp) await client.ready;
      const { products } = client;
      const view = Product.view(Product.encode(plain));
      await products.set("a", reactive(make()));
      await products.batch([{ type: "set", key: "b", value: make() }]);
      await client.transaction((tx) => tx.products.set("c", view as unknown as typeof plain));
      await products.updateIf("d", () => reactive(make()), { valueIfMissing: reactive(make()) });
      await products.update("e", reactive({ set: { tags: ["z"] }, valueIfMissing: make() }));
      for (const key of ["a", "b", "c", "d"])
        expect(await products.get(key)).toStrictEqual(await products.get("a"));
      expect((await products.get("a"))?.tags).toStrictEqual(plain.tags);
      expect((await products.get("e"))?.tags).toStrictEqual(["z"]);
      const spread = products.set("f", { ...view } as unknown as typeof plain);
      await rejects(spread, { code: "VARVE_BAD_ARGUMENT" });
      expect(await products.has("f")).toBe(false);
    }
  });

  test("struct: values that cannot be cloned are refused with a code, also for custom codecs and procedures", async () => {
    const client = shop({
      collections: { own: custom },
      procedures: { keep: (_db, of: unknown) => of },
    });
    await client.own.set("a", reactive({ text: "a" }));
    expect(await client.own.get("a")).toStrictEqual({ text: "a" });
    const reported = { code: "VARVE_BAD_ARGUMENT", message: /f is a function. Give plain data/ };
    await rejects(client.own.set("b", { text: "b", f: () => 1 }), reported);
    await rejects(
      client.transaction((tx) => tx.own.set("b", { text: "b", f: () => 1 })),
      reported,
    );
    expect(await client.own.has("b")).toBe(false);
    expect(await client.call.keep(reactive({ a: [{ b: 1 }] }))).toStrictEqual({ a: [{ b: 1 }] });
    await rejects(client.call.keep({ f: () => 1 }), {
      ...reported,
      message: /keep\(\).* f is a function/,
    });
    const range = { prefix: (() => 1) as unknown as string };
    await rejects(client.count(range), { code: "VARVE_BAD_ARGUMENT", message: /count\(\)/ });
    await rejects(client.watch(range).next(), { code: "VARVE_BAD_ARGUMENT", message: /range/ });
    await rejects(client.own.get(range.prefix), { code: "VARVE_BAD_ARGUMENT" });
    await rejects(client.own.delete(range.prefix), { code: "VARVE_BAD_ARGUMENT" });
  });
});

describe("deeply nested values", () => {
  const Row = struct("Row", { name: str });
  for (const depth of [2_000, 4_000, 8_000, 100_000]) {
    test(`nesting: every call of a client sends or refuses ${depth} levels with a coded error`, async () => {
      let deep: unknown = [];
      for (let i = 1; i < depth; i++) deep = [deep];
      const given = deep as never;
      const client = shop({
        collections: { free: { of: json<unknown>() }, rows: { of: Row, key: [str, u16] } },
        procedures: { take: (_, value: unknown) => value !== undefined, give: () => deep },
      });
      const { free, rows } = client;
      const calls: Record<string, () => unknown> = {
        set: () => free.set("a", given),
        batch: () => free.batch([{ type: "set", key: "a", value: given }]),
        "update of a field": () =>
          free.update("a", { set: { n: given } as object, valueIfMissing: {} }),
        "update of what is missing": () => free.update("none", { valueIfMissing: given }),
        updateIf: () => free.updateIf("a", () => given, { valueIfMissing: 1 }),
        transaction: () => client.transaction((tx) => tx.free.set("a", given)),
        "transaction of structs": () => client.transaction((tx) => tx.rows.set(["a", 1], given)),
        "a key of a transaction": () => client.transaction((tx) => tx.rows.get(given)),
        get: () => free.get("a"),
        values: () => free.values().all(),
        "a struct": () => rows.set(["a", 1], { name: given }),
        "a key": () => rows.get(given),
        "a part of a key": () => rows.get([given, 1]),
        "the key of updateIf": () => rows.updateIf(given, () => {}),
        "a range": () => rows.keys({ gte: given }).all(),
        watch: () => rows.watch({ gte: given }).return(),
        "a raw value": () => client.set("a", given),
        "a procedure": () => client.call.take(given),
        "its answer": () => client.call.give(),
      };
      for (const isUp of [false, true]) {
        if (isUp) await client.ready;
        for (const [what, call] of Object.entries(calls)) {
          try {
            await call();
          } catch (error) {
            const { code } = error as { code?: unknown };
            assert(typeof code === "string" && code.startsWith("VARVE_"), `${what}: ${error}`);
          }
        }
      }
      await free.set("b", "after");
      expect(await free.get("b")).toBe("after");
    });
  }
});
