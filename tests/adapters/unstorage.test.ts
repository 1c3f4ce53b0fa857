import { Buffer } from "node:buffer";
import { createStorage, type Driver, restoreSnapshot, type Storage } from "unstorage";
import type { Client, Database } from "varve";
import { text } from "varve/struct";
import driver, { varveDriver } from "varve/unstorage";
import { afterEach, assert, describe, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { bytes, until } from "../support/values.js";
import { fresh, onBoth } from "./support.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };

const storageOn = (to: Database | Client) => createStorage({ driver: varveDriver(to) });

// unstorage's tests of drivers are not in its package. These make the same assertions as its test/drivers/utils.ts.
onBoth("unstorage's tests of drivers", (to) => {
  const sorted = async (keys: Promise<string[]>) => (await keys).sort();
  const filled = async (storage: Storage, keys: readonly string[]) => {
    for (const key of keys) await storage.setItem(key, "test_data");
  };
  afterEach(() => storageOn(to()).clear());

  test("unstorage: a restored snapshot is there", async () => {
    const storage = storageOn(to());
    await restoreSnapshot(storage, { initial: "works" });
    expect(await storage.getItem("initial")).toBe("works");
  });

  test("unstorage: at first there is nothing", async () => {
    const storage = storageOn(to());
    expect(await storage.hasItem("s1:a")).toBe(false);
    expect(await storage.getItem("s2:a")).toBe(null);
    expect(await storage.getKeys()).toStrictEqual([]);
  });

  test("unstorage: what was set is there, whatever its query", async () => {
    const storage = storageOn(to());
    await filled(storage, ["s1:a", "s2:a", "s3:a?q=1"]);
    expect(await storage.hasItem("s1:a")).toBe(true);
    expect(await storage.getItem("s1:a")).toBe("test_data");
    expect(await storage.getItem("s3:a?q=2")).toBe("test_data");
  });

  test("unstorage: all keys, and those of a base", async () => {
    const storage = storageOn(to());
    await filled(storage, ["s1:a", "s2:a", "s3:a?q=1"]);
    expect(await sorted(storage.getKeys())).toStrictEqual(["s1:a", "s2:a", "s3:a"]);
    expect(await sorted(storage.getKeys("s1"))).toStrictEqual(["s1:a"]);
  });

  test("unstorage: keys up to a depth", async () => {
    const storage = storageOn(to());
    const deep = ["depth0:depth1:depth2_0", "depth0:depth1:depth2_1"];
    const middle = ["depth0:depth1_0", "depth0:depth1_1"];
    await filled(storage, ["depth0_0", ...deep, ...middle]);
    const upTo = (maxDepth: number) => sorted(storage.getKeys(undefined, { maxDepth }));
    expect(await upTo(0)).toStrictEqual(["depth0_0"]);
    expect(await upTo(1)).toStrictEqual([...middle, "depth0_0"]);
    expect(await upTo(2)).toStrictEqual([...deep, ...middle, "depth0_0"]);
  });

  test("unstorage: objects, primitive values and those with toJSON come back", async () => {
    const storage = storageOn(to());
    const withJson = (value: unknown) =>
      new (class Named {
        toJSON = () => value;
      })();
    await storage.setItem("/data/test.json", { json: "works" });
    await storage.setItem("/data/true.json", true);
    await storage.setItem("/data/serialized1.json", withJson("SERIALIZED"));
    await storage.setItem("/data/serialized2.json", withJson({ serializedObj: "works" }));
    expect(await storage.getItem("/data/test.json")).toStrictEqual({ json: "works" });
    expect(await storage.getItem("/data/true.json")).toBe(true);
    expect(await storage.getItem("/data/serialized1.json")).toBe("SERIALIZED");
    const second = await storage.getItem("/data/serialized2.json");
    expect(second).toStrictEqual({ serializedObj: "works" });
  });

  test("unstorage: an object of a class is refused", async () => {
    class Named {}
    const message = "[unstorage] Cannot stringify value!";
    await rejects(storageOn(to()).setItem("/data/badvalue.json", new Named()), { message });
  });

  test("unstorage: raw bytes come back", async () => {
    const storage = storageOn(to());
    const value = new Uint8Array([1, 2, 3]);
    await storage.setItemRaw("/data/raw.bin", value);
    const found = await storage.getItemRaw("/data/raw.bin");
    expect(found.length).toBe(value.length);
    expect(Buffer.from(found).toString("base64")).toBe(Buffer.from(value).toString("base64"));
  });

  test("unstorage: several items at once", async () => {
    const storage = storageOn(to());
    const keys = ["t:1", "t:2", "t:3"];
    await storage.setItems(keys.map((key) => ({ key, value: `test_data_${key}` })));
    for (const key of keys) expect(await storage.getItem(key)).toBe(`test_data_${key}`);
    await storage.setItem("v3:a?q=1", "test_data_v3:a?q=1");
    const found = await storage.getItems([{ key: "t:1" }, "t:2", { key: "v3:a?q=1" }, "none:a"]);
    expect(found).toStrictEqual([
      { key: "t:1", value: "test_data_t:1" },
      { key: "t:2", value: "test_data_t:2" },
      { key: "v3:a", value: "test_data_v3:a?q=1" },
      { key: "none:a", value: null },
    ]);
  });

  test("unstorage: 0 and false are values", async () => {
    const storage = storageOn(to());
    await storage.setItem("zero", 0);
    await storage.setItem("my-false-flag", false);
    expect(await storage.getItem("zero")).toBe(0);
    expect(await storage.getItem("my-false-flag")).toBe(false);
  });

  test("unstorage: a removed item is missing", async () => {
    const storage = storageOn(to());
    await storage.setItem("s1:a", "test_data");
    await storage.removeItem("s1:a", false);
    expect(await storage.hasItem("s1:a")).toBe(false);
    expect(await storage.getItem("s1:a")).toBe(null);
  });

  test("unstorage: clear leaves nothing, also when there is nothing", async () => {
    const storage = storageOn(to());
    await filled(storage, ["a", "b:c"]);
    for (let i = 0; i < 2; i += 1) {
      await storage.clear();
      expect(await storage.getKeys()).toStrictEqual([]);
    }
  });
});

onBoth("unstorage: the driver", (to, kind) => {
  const codeOf = (promise: Promise<unknown>) => rejects(promise, BAD);

  test("unstorage: a ttl is the expiry of the record, in seconds", async () => {
    const storage = createStorage({ driver: varveDriver(to(), { ttl: 600 }) });
    const before = Date.now();
    await storage.setItem("a", "1", { ttl: 60 });
    await storage.setItem("b", "1");
    await storage.setItem("c", "1", { ttl: 0 });
    await storage.setItemRaw("d", bytes("1"), { ttl: 60 });
    await storage.setItems([{ key: "e", value: "1", options: { ttl: 70 } }], { ttl: 90 });
    await storage.setItems([{ key: "f", value: "1" }], { ttl: 90 });
    const seconds = { a: 60, b: 600, c: undefined, d: 60, e: 70, f: 90 };
    for (const [key, ttl] of Object.entries(seconds)) {
      const entry = await to().getEntry(`unstorage/${key}`);
      const left = entry?.expires && Math.round((Number(entry.expires) - before) / 1000 - ttl!);
      assert(ttl === undefined ? left === undefined : left === 0 || left === 1, `${key} ${left}`);
      const meta = await storage.getMeta(key);
      expect(meta.size).toBe(1);
      assert(ttl === undefined ? !("ttl" in meta) : Math.abs(meta.ttl! - ttl) <= 1, `${meta.ttl}`);
    }
    expect({ ...(await storage.getMeta("none", { nativeOnly: true })) }).toStrictEqual({});
    await storage.setItem("gone", "1", { ttl: -1 });
    expect(await storage.getItem("gone")).toBe(null);
    await storage.clear();
  });

  test("unstorage: bad arguments are refused, and nothing is stored", async () => {
    const storage = storageOn(to());
    for (const ttl of ["60", Number.NaN, {}, true]) {
      await codeOf(storage.setItem("a", "1", { ttl }));
      await codeOf(storage.setItems([{ key: "a", value: "1" }], { ttl }));
    }
    await codeOf(storage.setItemRaw("a", { not: "bytes" }));
    await codeOf(storage.setItemRaw("a", "x".repeat(17_000_000)));
    const two = [
      { key: "a", value: "1" },
      { key: "b", value: "x".repeat(17_000_000) },
    ];
    await codeOf(storage.setItems(two));
    expect(await storage.getKeys()).toStrictEqual([]);
  });

  test("unstorage: text is bytes, and bytes that are no text are no item", async () => {
    const storage = storageOn(to());
    await storage.setItem("a", "é");
    expect(await storage.getItemRaw("a")).toStrictEqual(bytes("é"));
    expect(await storage.getItemRaw("none")).toBe(null);
    await storage.setItemRaw("b", new Uint8Array([0xff]));
    await codeOf(storage.getItem("b"));
    await storage.clear();
  });

  test("unstorage: clear of a base leaves the rest, and all that is not unstorage's", async () => {
    const storage = createStorage();
    storage.mount("cache", varveDriver(to()));
    storage.mount("other", varveDriver(to(), { prefix: "other/" }));
    await to().set("mine", "1");
    for (const key of ["cache:a:x", "cache:b:x", "other:a:x"]) await storage.setItem(key, "1");
    await varveDriver(to()).clear("a:");
    expect(await storage.getKeys()).toStrictEqual(["cache:b:x", "other:a:x"]);
    await storage.clear("cache");
    expect(await storage.getKeys()).toStrictEqual(["other:a:x"]);
    await storage.dispose();
    expect(await to().getText("mine")).toBe("1");
    await to().clear();
  });

  test("unstorage: a watcher is called for what is written", async () => {
    const storage = storageOn(to());
    const seen: string[] = [];
    const unwatch = await storage.watch((event, key) => seen.push(`${event} ${key}`));
    await storage.setItem("a:b", "1");
    await until(() => seen.length === 1);
    await storage.removeItem("a:b");
    await until(() => seen.length === 2);
    // Also for what others write, and no longer after the end.
    await to().set("unstorage/c", "1");
    await until(() => seen.length === 3);
    await unwatch();
    await storage.setItem("d", "1");
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(seen).toStrictEqual(["update a:b", "remove a:b", "update c"]);
    await storage.clear();
  });

  test("unstorage: the errors of a closed database have a code", async () => {
    const db = await fresh(kind);
    const storage = storageOn(db);
    await db.close();
    const closed = { code: "VARVE_DATABASE_CLOSED" };
    await rejects(storage.setItem("a", "1"), closed);
    await rejects(storage.getItem("a"), closed);
    await rejects(storage.getItems(["a"]), closed);
    await rejects(storage.getItemRaw("a"), closed);
    await rejects(storage.setItems([{ key: "a", value: "1" }]), closed);
    await rejects(storage.getKeys(), closed);
    await rejects(storage.clear(), closed);
    await rejects(Promise.resolve(storage.getMeta("a")), closed);
  });
});

describe("unstorage: the function", () => {
  test("unstorage: anything but a database or a client is refused, and a bad prefix", async () => {
    const db = await fresh("database");
    const collection = db.collection("a", text());
    const sqlite = { transaction: () => {}, prepare: () => {} };
    const others = [undefined, null, {}, new Map(), "shop", db.snapshot(), collection, sqlite];
    for (const wrong of others) {
      throws(() => varveDriver(wrong as object), { ...BAD, message: /open\(\)/ });
    }
    throws(() => varveDriver(db, { prefix: 5 as never }), { ...BAD, message: /prefix/ });
  });

  test("unstorage: it is a driver, and gives its database", async () => {
    const db = await fresh("database");
    const made: Driver = driver(db, { ttl: 5 });
    expect([made.name, made.options]).toStrictEqual(["varve", { ttl: 5 }]);
    expect(made.getInstance?.()).toBe(db);
  });
});
