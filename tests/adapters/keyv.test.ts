import { Buffer } from "node:buffer";
import { gunzipSync, gzipSync } from "node:zlib";
import keyvTestSuite, { keyvIteratorTests } from "@keyv/test-suite";
import Keyv from "keyv";
import Keyv6 from "keyv-6";
import { file, open } from "varve";
import { KeyvVarve } from "varve/keyv";
import { text } from "varve/struct";
import * as vitest from "vitest";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { fresh, onBoth } from "./support.js";

/** Answers the deletion of several keys as Keyv 5 does, for which the suite is: by one boolean and not by many. */
class Keyv6As5 extends Keyv6 {
  override async delete(key: string | string[]): Promise<never> {
    const deleted: unknown = await super.delete(key as string);
    return (Array.isArray(deleted) ? deleted.every(Boolean) : deleted) as never;
  }
}

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };

onBoth("Keyv's own suite, with Keyv 5", (to) => {
  keyvTestSuite(vitest, Keyv, () => new KeyvVarve(to()));
  keyvIteratorTests(vitest, Keyv, () => new KeyvVarve(to()));
});

onBoth("Keyv's own suite, with Keyv 6", (to) => {
  keyvTestSuite(vitest, Keyv6As5 as never, () => new KeyvVarve(to()));
  keyvIteratorTests(vitest, Keyv6As5 as never, () => new KeyvVarve(to()));
});

/** Keyv 5 and 6 with the same calls, of which these tests use no others. */
const VERSIONS: Readonly<Record<string, typeof Keyv>> = { 5: Keyv, 6: Keyv6 as never };

for (const [version, AnyKeyv] of Object.entries(VERSIONS)) {
  onBoth(`keyv: Keyv ${version}`, (to, kind) => {
    const made = (namespace: string) => {
      const keyv = new AnyKeyv({ store: new KeyvVarve(to()), namespace });
      const errors: { code?: string; message?: string }[] = [];
      keyv.on("error", (error) => errors.push(error));
      return { keyv, errors };
    };
    const stored = async (ending: RegExp) => {
      for await (const key of to().keys({ prefix: "keyv/" })) {
        if (ending.test(key)) return to().getEntry(key);
      }
      return undefined;
    };

    test("keyv: a TTL is the expiry of the record", async () => {
      const { keyv } = made("expiry");
      const before = Date.now();
      await keyv.set("a", 1, 60_000);
      await keyv.setMany([
        { key: "b", value: 2, ttl: 90_000 },
        { key: "c", value: 3 },
      ]);
      const [a, b, c] = await Promise.all([/y:+a$/, /y:+b$/, /y:+c$/].map((key) => stored(key)));
      for (const [entry, ttl] of [
        [a, 60_000],
        [b, 90_000],
      ] as const) {
        const expires = Number(entry?.expires);
        assert(expires >= before + ttl && expires < Date.now() + ttl + 1_000, `${expires}`);
      }
      expect([c !== undefined, c?.expires]).toStrictEqual([true, undefined]);
    });

    test("keyv: a value is hidden from its millisecond on, and not only from the next second", async () => {
      const { keyv } = made("precise");
      const { now } = Date;
      onTestFinished(() => {
        Date.now = now;
      });
      const second = Math.floor(now() / 1_000) * 1_000;
      Date.now = () => second + 100;
      await keyv.setMany(["a", "b", "c"].map((key) => ({ key, value: 1, ttl: 500 })));
      Date.now = () => second + 599;
      expect([await keyv.get("a"), await keyv.has("a")]).toStrictEqual([1, true]);
      Date.now = () => second + 601;
      expect(await stored(/precise:+a$/)).not.toBe(undefined);
      expect(await keyv.get("a")).toBe(undefined);
      expect(await keyv.get(["b"])).toStrictEqual([undefined]);
      expect(await keyv.has("c")).toBe(false);
      Date.now = () => second + 1_000;
      expect(await stored(/precise/)).toBe(undefined);
    });

    test("keyv: what would expire after the year 2106 stays, and a TTL below 0 has passed", async () => {
      const { keyv, errors } = made("far");
      await keyv.set("a", 1, 200 * 365 * 86_400_000);
      expect(await keyv.get("a")).toBe(1);
      const store = new KeyvVarve(to());
      await store.set("far:b", "2", -1);
      expect(await store.get("far:b")).toBe(undefined);
      expect(errors).toStrictEqual([]);
    });

    test("keyv: clear leaves other namespaces, and all that is not Keyv's", async () => {
      const [one, two] = [made("one").keyv, made("one and more").keyv];
      await to().set("mine", "1");
      await one.set("a", 1);
      await two.set("a", 2);
      await one.clear();
      expect([await one.get("a"), await two.get("a")]).toStrictEqual([undefined, 2]);
      await new KeyvVarve(to()).clear();
      expect(await two.get("a")).toBe(undefined);
      expect(await to().getText("mine")).toBe("1");
      expect(await to().count()).toBe(1);
      await to().delete("mine");
    });

    test("keyv: a loop over many keys may delete them", async () => {
      const { keyv } = made("many");
      const all = Array.from({ length: 1_500 }, (_, value) => ({ key: `${value}`, value }));
      expect((await keyv.setMany(all)).every(Boolean)).toBe(true);
      const seen = new Set<number>();
      for await (const [key, value] of keyv.iterator?.("many") ?? []) {
        seen.add(value);
        if (value % 3 === 0) await keyv.delete(key);
      }
      expect(seen.size).toBe(1_500);
      expect(await to().count({ prefix: "keyv/many" })).toBe(1_000);
      await keyv.clear();
    });

    test("keyv: of several values with one that is refused none is stored", async () => {
      const { keyv, errors } = made("atomic");
      const results = await keyv.setMany([
        { key: "a", value: 1 },
        { key: "b", value: "x".repeat(17_000_000) },
      ]);
      expect(results).toStrictEqual([false, false]);
      expect(errors.map(({ code }) => code)).toStrictEqual([BAD.code]);
      expect(await keyv.get("a")).toBe(undefined);
    });

    test("keyv: the errors of a closed database have a code", async () => {
      const db = await fresh(kind);
      const keyv = new AnyKeyv(new KeyvVarve(db));
      const codes: unknown[] = [];
      keyv.on("error", (error) => codes.push(error.code));
      await db.close();
      expect(await keyv.set("a", 1)).toBe(false);
      expect(await keyv.delete("a")).toBe(false);
      await keyv.clear();
      expect(codes).toStrictEqual(Array(3).fill("VARVE_DATABASE_CLOSED"));
      await rejects(new KeyvVarve(db).get("a"), { code: "VARVE_DATABASE_CLOSED" });
      await rejects(new KeyvVarve(db).iterator().next(), { code: "VARVE_DATABASE_CLOSED" });
    });
  });
}

onBoth("keyv: the store", (to) => {
  test("keyv: a TTL that is no number, and a value that is not serialized, are refused", async () => {
    const store = new KeyvVarve(to());
    for (const ttl of ["10", Number.NaN, null, new Date()] as unknown[] as number[]) {
      await rejects(store.set("a", "1", ttl), { ...BAD, message: "TTL must be a number" });
      await rejects(store.setMany([{ key: "a", value: "1", ttl }]), BAD);
    }
    for (const value of [{ value: 1 }, 5, undefined, null]) {
      await rejects(store.set("a", value), { ...BAD, message: /serialize/ });
    }
    expect(await store.get("a")).toBe(undefined);
    const keyv = new Keyv({ store, serialize: undefined as never, throwOnErrors: true });
    await rejects(keyv.set("a", 1), { ...BAD, message: /serialize/ });
  });

  test("keyv: compression to text works, and compression to bytes is refused", async () => {
    const asText = {
      compress: (text: string) => gzipSync(text).toString("base64"),
      decompress: (text: string) => gunzipSync(Buffer.from(text, "base64")).toString(),
    };
    const keyv = new Keyv6({ store: new KeyvVarve(to()), compression: asText as never });
    await keyv.set("a", { many: "a".repeat(100) });
    expect(await keyv.get("a")).toStrictEqual({ many: "a".repeat(100) });
    const other = new Keyv6({
      store: new KeyvVarve(to()),
      compression: { compress: gzipSync, decompress: gunzipSync } as never,
    });
    const codes: unknown[] = [];
    other.on("error", ({ code }) => codes.push(code));
    expect([await other.set("b", 1), codes]).toStrictEqual([false, [BAD.code]]);
  });

  test("keyv: an empty key is a key", async () => {
    const store = new KeyvVarve(to(), { prefix: "empty/" });
    await store.set("", "1");
    expect([await store.get(""), await to().getText("empty/")]).toStrictEqual(["1", "1"]);
  });
});

describe("keyv: the constructor", () => {
  test("keyv: anything but a database or a client is refused, and a bad prefix", async () => {
    const db = await fresh("database");
    const collection = db.collection("a", text());
    const sqlite = { transaction: () => {}, prepare: () => {} };
    const others = [undefined, null, {}, new Map(), "shop", db.snapshot(), collection, sqlite];
    for (const wrong of others) {
      throws(() => new KeyvVarve(wrong as object), { ...BAD, message: /open\(\)/ });
    }
    throws(() => new KeyvVarve(db, { prefix: 5 as never }), { ...BAD, message: /prefix/ });
  });

  test("keyv: values are there when the database is opened again", async () => {
    const storage = file(context().directory ?? "");
    for (const expected of [undefined, { a: [1] }]) {
      const db = await open("keyv", { storage, ...wasmOption() });
      const keyv = new Keyv({ store: new KeyvVarve(db), throwOnErrors: true });
      expect(await keyv.get("a")).toStrictEqual(expected);
      await keyv.set("a", { a: [1] }, 60_000);
      await db.close();
    }
  });
});
