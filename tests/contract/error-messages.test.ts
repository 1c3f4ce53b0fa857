/** Error messages: each says what to do, for a reader without prior knowledge. */

import type { Database } from "varve";
import { json, str, struct, u16, u32 } from "varve/struct";
import { describe, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { everywhere, opened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

/** A class as in programs. */
class Product {
  price = 1;
}

everywhere("error messages", ({ storage }) => {
  test("the message for a wrong type says how to convert it to bytes", async () => {
    const db = await opened(storage);
    const stream = () => new ReadableStream();
    const wrong: [unknown, RegExp][] = [
      [new Blob(["a"]), /await it\.arrayBuffer\(\)\. Given: a Blob/],
      [new Response("a"), /await it\.arrayBuffer\(\)\. Given: a Response/],
      [stream(), /new Response\(stream\)\.arrayBuffer\(\)\. Given: a ReadableStream/],
      [{ pipe: () => {} }, /new Response\(stream\)/],
      [Promise.resolve("a"), /Await the promise first\. Given: a Promise/],
      [{ price: 1 }, /db\.collection\(name, json\(\)\)\. Given: an Object/],
      [new Product(), /json\(\)\)\. Given: a Product/],
      [7, /json\(\)\)\. Given: 7/],
      [null, /json\(\)\)\. Given: null/],
    ];
    for (const [value, message] of wrong) {
      throws(() => db.set("a", value as string), { ...BAD, message });
    }
    throws(() => db.get(7 as never), {
      ...BAD,
      message: /collection with the option key.*Given: 7/,
    });
    throws(() => db.get(new Blob([]) as never), { ...BAD, message: /A key .*arrayBuffer/ });
    expect(db.count()).toBe(0);
  });

  test("the message for a value that is too long says how to split it", async () => {
    const db = await opened(storage);
    const long = new Uint8Array(16_777_217);
    const message =
      /at most 16777216 bytes \(16 MiB\)\. Store it as a blob .*divide it: .*transaction\(\).*prefix/;
    throws(() => db.set("a", long), { ...BAD, message });
    throws(() => db.collection("texts", json<string>()).set("a", "x".repeat(16_777_216)), {
      ...BAD,
      message,
    });
    const key = /at most 65535 bytes\. Store what is longer in the value, or use its hash/;
    throws(() => db.set("k".repeat(65_536), ""), { ...BAD, message: key });
    throws(() => db.keys({ gte: "k".repeat(65_536) }), { ...BAD, message: key });
  });

  test("the message for an undeclared index names it and the declared ones", async () => {
    const db = await opened(storage);
    const Row = struct("Row", { stock: u16, name: str });
    const rows = db.collection("rows", Row, { indexes: { byStock: "stock", byName: "name" } });
    const undeclared = rows.index as unknown as Record<string, { get(value: unknown): unknown }>;
    const message = /collection "rows" has no index "byPrice" here.*indexes: byStock, byName/;
    throws(() => undeclared.byPrice?.get(1), { ...BAD, message });
    const bare = db.collection("bare", Row).index as Record<string, unknown>;
    throws(() => bare.byStock, { ...BAD, message: /"bare" has no index "byStock".*none/ });
    // Code that inspects any object finds nothing, and causes no error.
    expect(Object.keys(rows.index)).toStrictEqual(["byStock", "byName"]);
    expect(JSON.stringify(Object.keys(bare))).toBe("[]");
    expect("byPrice" in rows.index).toBe(false);
    for (const name of ["then", "toJSON", "$$typeof", "__v_raw", "nodeType", "asymmetricMatch"]) {
      expect(undeclared[name], name).toBe(undefined);
    }
    expect(await Promise.resolve(rows.index)).toBe(rows.index);
  });

  test("the message for a transaction that cannot be undone says what to do", async () => {
    const db = await opened(storage, { history: "keep" });
    db.set("price", "12");
    db.commit();
    const number = db.lastCommit;
    db.set("price", "13");
    db.commit();
    throws(() => db.undo(number), {
      code: "VARVE_CONFLICT",
      message: /"price".*Nothing was changed\. Write the values that are wanted; at\(\) shows/,
    });
  });

  test("messages for keys and ranges name the declared kind, and how to declare another", async () => {
    const db = await opened(storage, { ordered: false });
    const texts = db.collection("texts", json<number>()) as unknown as {
      get(key: unknown): unknown;
    };
    throws(() => texts.get(7), { ...BAD, message: /are strings.*option key\. Given: 7/ });
    throws(() => db.keys(), {
      ...BAD,
      message: /keys\(\) needs order\. Open it without that option/,
    });
    const numbers = db.collection("numbers", json<number>(), { key: u32 }) as unknown as Database;
    throws(() => numbers.get("7"), { ...BAD, message: /The key must be an integer from 0/ });
    const lines = db.collection("lines", json<number>());
    await rejects(lines.fromJsonLines(new Blob(["a"]) as never), {
      ...BAD,
      message: /of a Blob its stream\(\).*Given: a Blob/,
    });
  });
});

describe("descriptions of values", () => {
  test("describing a value runs none of its code", async () => {
    const { memory, open } = await import("varve");
    const db = await open("described", { storage: memory() });
    const fails = () => {
      throw new Error("it was called");
    };
    const prototype = Object.defineProperty({}, "constructor", { get: fails });
    const named = { constructor: Object.defineProperty(() => {}, "name", { get: fails }) };
    for (const value of [Object.create(prototype), Object.create(named), Object.create(null)]) {
      throws(() => db.set("a", value), { ...BAD, message: /Given: an Object/ });
    }
    await db.close();
  });
});
