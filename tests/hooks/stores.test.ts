/** What the hooks of all frameworks have in common, by the stores for Svelte, which need no framework. */

import { connect, memory, open, serve, type Watching, type WatchOptions } from "varve";
import { type RangeResult, type ReadableStore, useRange, useStatus, useValue } from "varve/svelte";
import { assert, expect, onTestFinished, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { turn, until } from "../support/values.js";
import { counted, everySource, fill, key, rename } from "./support.js";

/** The results of a store, until the test ends or `end` is called. */
function followed<T>(store: ReadableStore<T>) {
  const results: T[] = [];
  const end = store.subscribe((result) => results.push(result));
  onTestFinished(end);
  const last = () => results[results.length - 1] as T;
  return { results, end, last };
}

type Result = RangeResult<string, { stock: number; name: string }>;

const keysOf = ({ rows }: Result) => rows.map(([key]) => key).join();

everySource("stores", (make) => {
  test("a value is pending, then known, and follows each change; a missing one is undefined", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { results, last } = followed(useValue(shop.products, key(1)));
    expect(results).toStrictEqual([{ value: undefined, isPending: true, error: undefined }]);
    await until(() => results.length === 2);
    expect(last()).toStrictEqual({
      value: { stock: 1, name: "product 1" },
      isPending: false,
      error: undefined,
    });
    await rename(shop, 2, "another");
    await rename(shop, 1, "changed");
    await until(() => results.length === 3);
    expect(last().value?.name).toBe("changed");
    await shop.products.delete(key(1));
    await until(() => results.length === 4);
    expect(last()).toStrictEqual({ value: undefined, isPending: false, error: undefined });
  });

  test("rows that have not changed are the same objects, and nothing is reported without a change", async () => {
    const shop = await make();
    await fill(shop, 100);
    const { results, last } = followed(useRange(shop.products, { limit: 50 }));
    await until(() => results.length === 2);
    const before = last().rows;
    expect(before.length).toBe(50);
    await rename(shop, 80, "outside");
    await rename(shop, 7, "changed");
    await until(() => results.length === 3);
    const after = last().rows;
    const changed = after.flatMap((row, i) => (row === before[i] ? [] : [i]));
    expect(changed).toStrictEqual([7]);
    expect(after[7]?.[1].name).toBe("changed");
    assert(after[8]?.[1] === before[8]?.[1], "values too");
  });

  test("ranges of collections and indexes, in reverse and limited", async () => {
    const shop = await make();
    await fill(shop, 9, (i) => 9 - i);
    const { index } = shop.products;
    const byKey = followed(useRange(shop.products, { reverse: true, limit: 2 }));
    const byStock = followed(useRange(index.byStock, { lt: 4 }));
    const all = followed(useRange(shop.products));
    const first = followed(useValue(index.byStock, 3));
    await until(() => [byKey, byStock, all, first].every(({ last }) => !last().isPending));
    expect(keysOf(byKey.last())).toBe("p0008,p0007");
    expect(keysOf(byStock.last())).toBe("p0008,p0007,p0006");
    expect(all.last().rows.length).toBe(9);
    expect(first.last().value?.name).toBe("product 6");
    await rename(shop, 0, "sold", 0);
    await until(() => byStock.results.length === 3);
    expect(keysOf(byStock.last())).toBe("p0000,p0008,p0007,p0006");
  });

  test("a condition comes before the limit, and a change that it leaves out is not reported", async () => {
    const shop = await make();
    await fill(shop, 10);
    const range = { limit: 3, where: ({ stock }: { stock: number }) => stock % 2 === 1 };
    const { results, last } = followed(useRange(shop.products, range));
    await until(() => results.length === 2);
    expect(keysOf(last())).toBe("p0001,p0003,p0005");
    await rename(shop, 2, "even");
    await rename(shop, 9, "behind the limit");
    await rename(shop, 4, "odd now", 41);
    await until(() => results.length === 3);
    expect(keysOf(last())).toBe("p0001,p0003,p0004");
  });

  test("raw keys: text and bytes, whichever kind of buffer the bytes are in", async () => {
    const { to } = await make();
    await to.set("a", "1");
    await to.set(new Uint8Array([1]), "2");
    await to.set(new Uint8Array([2]), "3");
    const text = (value: Uint8Array | undefined) => value && new TextDecoder().decode(value);
    const keys = [
      "a",
      new Uint8Array([1]),
      new Uint8Array([2]).buffer,
      new DataView(new ArrayBuffer(1)),
    ];
    const all = keys.map((one) => followed(useValue(to, one)));
    await until(() => all.every(({ last }) => !last().isPending));
    expect(all.map(({ last }) => text(last().value))).toStrictEqual(["1", "2", "3", undefined]);
    const rows = followed(useRange(to, { gte: "a" }));
    await until(() => !rows.last().isPending);
    expect(rows.last().rows.map(([name]) => name)).toStrictEqual(["a"]);
  });

  test("equal ranges are followed once, others and values apart", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const all = [
      followed(useRange(source, { gte: key(1), lte: key(1) })),
      followed(useRange(source, { gte: key(1), lte: key(1), limit: undefined })),
      followed(useRange(source, { gte: key(1), lte: key(1), where: () => true })),
    ];
    await until(() => all.every(({ last }) => !last().isPending));
    expect(counts).toStrictEqual({ begun: 1, open: 1 });
    assert(all[0]?.last() === all[1]?.last(), "they share the result");
    const value = followed(useValue(source, key(1)));
    const others = followed(useRange(source, { gte: key(1), lte: key(2) }));
    await until(() => [value, others].every(({ last }) => !last().isPending));
    expect(counts.begun).toBe(3);
    expect(value.last().value?.name).toBe("product 1");
    expect(others.last().rows.length).toBe(2);
  });

  test("it ends a second after the last listener, and not if another one came", async () => {
    const shop = await make();
    await fill(shop, 3);
    const { counts, source } = counted(shop.products);
    const once = followed(useValue(source, key(1)));
    once.end();
    await turn();
    expect(counts.begun).toBe(0);
    const first = followed(useValue(source, key(1)));
    await until(() => !first.last().isPending);
    first.end();
    await turn(300);
    const second = followed(useValue(source, key(1)));
    expect(second.results.length).toBe(1);
    expect(second.last().value?.name).toBe("product 1");
    await turn(1_000);
    expect(counts).toStrictEqual({ begun: 1, open: 1 });
    second.end();
    await rename(shop, 1, "changed");
    await turn(1_300);
    expect(counts).toStrictEqual({ begun: 1, open: 0 });
    expect(first.results.length).toBe(2);
    const third = followed(useValue(source, key(1)));
    expect(third.last().isPending).toBe(true);
    await until(() => third.last().value?.name === "changed");
    expect(counts).toStrictEqual({ begun: 2, open: 1 });
  });

  test("without a source or a key nothing is followed, and it stays pending", async () => {
    const { products } = await make();
    const { counts, source } = counted(products);
    const none = undefined as typeof source | undefined;
    const all = [followed(useValue(source, undefined)), followed(useValue(none, "a"))];
    const rows = followed(useRange(none, { limit: 1 }));
    await turn(50);
    expect(counts.begun).toBe(0);
    for (const { results } of all) {
      expect(results).toStrictEqual([{ value: undefined, isPending: true, error: undefined }]);
    }
    expect(rows.results).toStrictEqual([{ rows: [], isPending: true, error: undefined }]);
  });

  test("a bad range is an error, in the place of a result", async () => {
    const shop = await make();
    await fill(shop, 3);
    const bad = { code: "VARVE_BAD_ARGUMENT" };
    const where = () => true;
    const limits = [{ limit: -1 }, { limit: -1, where }, { limit: Number.NaN, where }];
    for (const range of [...limits, { above: 1 }]) {
      const { last } = followed(useRange(shop.products, range as { limit: number }));
      await until(() => last().error !== undefined);
      expect((last().error as typeof bad).code).toBe(bad.code);
      expect([last().isPending, last().rows.length]).toStrictEqual([false, 0]);
    }
  });

  test("after a close the last rows stay, with an error that says why they are not followed", async () => {
    const shop = await make();
    await fill(shop, 3);
    const range = followed(useRange(shop.products));
    await until(() => !range.last().isPending);
    await shop.to.close();
    await until(() => range.last().error !== undefined);
    expect((range.last().error as Error).name).toBe("DatabaseClosedError");
    expect(range.last().rows.length).toBe(3);
    const late = followed(useValue(shop.products, key(1)));
    await until(() => late.last().error !== undefined);
    expect((late.last().error as Error).name).toBe("DatabaseClosedError");
  });
});

test("what one listener throws is an uncaught error, and the others are called", async () => {
  const listeners: ((rows: [string, string][]) => void)[] = [];
  function live(_: object, listener: (rows: [string, string][]) => void): Watching;
  function live(_?: object, options?: WatchOptions): AsyncGenerator<[string, string][]>;
  function live(_?: object, listener?: unknown): unknown {
    listeners.push(listener as (typeof listeners)[0]);
    return { close() {}, ended: new Promise(() => {}) };
  }
  const source = {
    live,
    get: (key: string) => key,
    set() {},
  };
  const thrown: unknown[] = [];
  const isNode = "process" in globalThis;
  const { process } = globalThis as { process?: NodeJS.Process };
  const note = (error: unknown) => {
    thrown.push(error);
  };
  const onError = (event: ErrorEvent) => {
    event.preventDefault();
    note(event.error);
  };
  if (isNode) process?.prependListener("uncaughtException", note);
  else globalThis.addEventListener("error", onError);
  // Vitest reports uncaught exceptions as failures.
  const others = isNode ? process?.listeners("uncaughtException").slice(1) : [];
  for (const other of others ?? []) process?.removeListener("uncaughtException", other);
  onTestFinished(() => {
    process?.removeListener?.("uncaughtException", note);
    for (const other of others ?? []) process?.on("uncaughtException", other);
    if (!isNode) globalThis.removeEventListener("error", onError);
  });
  const failing = useValue(source, "a").subscribe(({ isPending }) => {
    if (!isPending) throw new Error("a listener failed");
  });
  const { last } = followed(useValue(source, "a"));
  await until(() => listeners.length === 1);
  listeners[0]?.([["a", "value"]]);
  await until(() => thrown.length === 1);
  expect((thrown[0] as Error).message).toBe("a listener failed");
  expect(last()).toStrictEqual({ value: "value", isPending: false, error: undefined });
  failing();
});

everySource("status", (make) => {
  test("the status of a client is followed; a database is open", async () => {
    const shop = await make();
    const { results, last, end } = followed(useStatus(shop.to));
    await shop.products.set("a", { stock: 1, name: "a" });
    expect([last().state, last().owner !== undefined]).toStrictEqual(["open", true]);
    const count = results.length;
    end();
    await shop.to.close();
    expect(results.length).toBe(count);
  });
});

test("while a client's database cannot be opened its results are pending, and its status says why", async () => {
  const { port1, port2 } = new MessageChannel();
  const refused = () => Promise.reject(new Error("there is no such disk"));
  serve("shop", { storage: { ...memory(), open: refused }, ...wasmOption() }).listen(port1);
  const client = connect("shop", { worker: () => port2 });
  onTestFinished(async () => {
    await client.close();
    port1.close();
    port2.close();
  });
  const value = followed(useValue(client, "a"));
  const status = followed(useStatus(client));
  await until(() => /no such disk/.test(status.last().reason ?? ""));
  await turn(50);
  expect(value.results).toStrictEqual([{ value: undefined, isPending: true, error: undefined }]);
});

test("different keys are followed apart: infinite numbers, bigints, dates and parts", async () => {
  const { f64, i64, timestamp, json } = await import("varve/struct");
  const db = await open("keys", { storage: memory(), ...wasmOption() });
  onTestFinished(() => db.close());
  const numbers = db.collection("numbers", json<string>(), { key: f64 });
  const parts = db.collection("parts", json<string>(), { key: [i64, timestamp] });
  numbers.set(Number.NEGATIVE_INFINITY, "least");
  numbers.set(Number.POSITIVE_INFINITY, "most");
  parts.set([1n, new Date(5)], "one");
  parts.set([2n, new Date(5)], "two");
  const all = [
    followed(useValue(numbers, Number.NEGATIVE_INFINITY)),
    followed(useValue(numbers, Number.POSITIVE_INFINITY)),
    followed(useValue(parts, [1n, new Date(5)])),
    followed(useValue(parts, [2n, new Date(5)])),
    followed(useValue(parts, [2n, new Date(6)])),
  ];
  await until(() => all.every(({ last }) => !last().isPending));
  expect(all.map(({ last }) => last().value)).toStrictEqual([
    "least",
    "most",
    "one",
    "two",
    undefined,
  ]);
});
