/** Snapshots that the owner keeps for a client. */

import type { Client, Database } from "varve";
import { lastCommit, SnapshotClosedError, snapshot } from "varve/client";
import { json, str, struct, u16 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { rejects } from "../support/errors.js";
import { text, turn } from "../support/values.js";
import { shop } from "./support.js";

const BAD = { code: "VARVE_BAD_ARGUMENT" };
const ENDED = { code: "VARVE_SNAPSHOT_CLOSED" };

const Product = struct("Product", { stock: u16, name: str });

const procedures = {
  fill: (db: Database, value: string, count: number) => {
    for (let i = 0; i < count; i += 1) db.set(`k/${`${i}`.padStart(4, "0")}`, value);
  },
  close: (db: Database) => void setTimeout(() => db.close(), 0),
};

const collections = {
  products: { of: Product, indexes: { byStock: "stock" } },
  cache: json<number>(),
} as const;

describe("snapshots of a remote database", () => {
  test("remote snapshot: every read shows the moment at which it was taken", async () => {
    const client = shop({ procedures, collections });
    await client.call.fill("old", 3_000);
    await client.set("gone", "1");
    await client.products.set("a", { stock: 7, name: "A" });
    await client.products.set("b", { stock: 3, name: "B" });
    await client.cache.set("n", 1);
    const entry = await client.getEntry("gone");
    assert(entry);
    const then = await snapshot(client);
    await client.call.fill("new", 3_000);
    await client.set("later", "1");
    await client.delete("gone");
    await client.products.set("a", { stock: 1, name: "A" });
    await client.products.delete("b");
    await client.cache.set("n", 2);

    expect(await then.getText("gone")).toBe("1");
    expect([await then.has("gone"), await then.has("later")]).toStrictEqual([true, false]);
    expect((await then.getEntry("gone"))?.version).toBe(entry.version);
    expect(text((await then.get("k/0007")) as Uint8Array)).toBe("old");
    const many = await then.getMany(["k/0001", "later"]);
    expect(many.map((value) => value && text(value))).toStrictEqual(["old", undefined]);
    expect([await then.count(), await then.count({ prefix: "k/00" })]).toStrictEqual([3_001, 100]);
    expect((await then.keys({ prefix: "k/000" }).all()).length).toBe(10);
    const values: (string | undefined)[] = [];
    for await (const value of then.values({ prefix: "k/" })) {
      values.push(text(value));
      if (values.length % 1_000 === 0) await client.set(`k/${values.length}x`, "new");
    }
    expect([values.length, values.every((value) => value === "old")]).toStrictEqual([3_000, true]);
    const pairs = await then.entries({ gte: "g", lt: "h" }).all();
    expect(pairs.map(([key, value]) => [key, text(value)])).toStrictEqual([["gone", "1"]]);

    const products = then.collection("products");
    expect((await products.get("a"))?.stock).toBe(7);
    expect([await products.count(), await products.has("b")]).toStrictEqual([2, true]);
    const all = await products.entries().all();
    expect(all.map(([key, { stock }]) => [key, stock])).toStrictEqual([
      ["a", 7],
      ["b", 3],
    ]);
    const inOrder = await products.index.byStock.entries().all();
    expect(inOrder.map(([key]) => key)).toStrictEqual(["b", "a"]);
    expect((await products.getMany(["b"]))[0]?.name).toBe("B");
    expect(await then.collection("cache").get("n")).toBe(1);
    expect(await client.cache.get("n")).toBe(2);
    await then.close();
  });

  test("remote snapshot: writes that were requested before are in it, and those after are not", async () => {
    const client = shop();
    client.set("a", "1");
    const taken = snapshot(client as Client);
    client.set("b", "1");
    const then = await taken;
    expect(await then.has("a")).toBe(true);
    await client.set("c", "1");
    expect(await then.has("c")).toBe(false);
    await then.close();
  });

  test("remote snapshot: a write of the same task after it is not in it", async () => {
    const client = shop();
    await client.set("price", "12");
    const taken = snapshot(client as Client);
    client.set("price", "13");
    const then = await taken;
    expect([await then.getText("price"), await client.getText("price")]).toStrictEqual([
      "12",
      "13",
    ]);
    await then.close();
  });

  test("remote snapshot: the owner keeps none whose client gave up before the answer came", async () => {
    const stop = new AbortController();
    const abort = () => stop.abort(new Error("enough"));
    const client = shop({ procedures: { abort } });
    await client.set("a", "1");
    const taken = snapshot(client as Client, { signal: stop.signal });
    const aborted = client.call.abort();
    await rejects(taken, { message: "enough" });
    await aborted;
    expect((await client.stats()).snapshots.count).toBe(0);
  });

  test("remote snapshot: it ends when it is closed, not read for its lease, or its owner ends", async () => {
    const client = shop({ procedures });
    await client.set("a", "1");
    const open = async () => (await client.stats()).snapshots.count;
    const closed = await snapshot(client as Client);
    expect(await open()).toBe(1);
    await closed.close();
    await closed.close();
    assert((await rejects(closed.get("a"), ENDED)) instanceof SnapshotClosedError);
    expect(await open()).toBe(0);

    const leased = await snapshot(client as Client, { lease: 300 });
    for (let i = 0; i < 6; i += 1) {
      await new Promise((resolve) => setTimeout(resolve, 100));
      expect(await leased.getText("a")).toBe("1");
    }
    while ((await open()) > 0) await turn();
    await rejects(leased.keys().all(), ENDED);

    const lost = await snapshot(client as Client);
    await client.call.close();
    const reads = async () => {
      for (;;) expect(await lost.count()).toBe(1);
    };
    await rejects(reads(), ENDED);
    expect(await client.getText("a")).toBe("1");
    assert((await lastCommit(client)) > 0);
  });

  test("remote snapshot: it cannot be written to or watched, and bad options are refused", async () => {
    const client = shop({ collections });
    for (const bad of [
      { lease: 0 },
      { lease: 1e9 },
      { lease: "1" },
      { other: 1 },
      { timeout: 0 },
    ]) {
      await rejects(snapshot(client, bad as object), BAD);
    }
    const then = await snapshot(client);
    const products = then.collection("products") as unknown as typeof client.products;
    await rejects(products.set("a", { stock: 1, name: "A" }), { code: "VARVE_READ_ONLY" });
    await rejects(then.get("" as string), BAD);
    for (const bad of [7, { other: 1 }]) {
      await rejects(then.get("a", bad as object), { ...BAD, message: /^get\(\)/ });
      await rejects(then.keys({}, bad as object).all(), { ...BAD, message: /^keys\(\)/ });
    }
    await rejects(then.count({ gt: 7 } as object), BAD);
    expect(await client.products.count()).toBe(0);
    await then.close();
  });
});
