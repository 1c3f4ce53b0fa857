/** Clients that are used wrongly: each call is told at once, none hangs, and none is done by half. */

import { blob, json, str, struct, u16 } from "varve/struct";
import { bytes, deepEqual, equal, ofAnotherRealm, rejects, suite, test, text } from "../harness.js";
import { shop } from "./support.js";

const BAD = { code: "VARVE_BAD_ARGUMENT" };

const stocked = () =>
  shop({
    collections: {
      products: struct("Product", { stock: u16 }),
      files: { of: json<number>(), key: blob },
      parts: { of: json<number>(), key: [str, blob] },
    },
  });

suite("bytes of another realm", () => {
  const buffer = (of: string) => ofAnotherRealm(bytes(of).slice().buffer as ArrayBuffer);

  test("are keys and values of a client, whatever they lie in", async () => {
    const client = stocked();
    await client.set(buffer("a"), buffer("one"));
    equal(await client.getText("a"), "one");
    equal(await client.getText(ofAnotherRealm(bytes("a"))), "one");
    await client.batch([{ type: "set", key: buffer("b"), value: ofAnotherRealm(bytes("two")) }]);
    deepEqual((await client.getMany([buffer("b"), "a"])).map(text), ["two", "one"]);
    equal(await client.updateIf("a", () => buffer("three")), true);
    await client.transaction(async (tx) => {
      equal(await tx.getText(buffer("a")), "three");
      tx.set(buffer("b"), buffer("four"));
      equal(await tx.getText("b"), "four");
    });
    deepEqual(await client.keys({ gte: buffer("b") }).all(), ["b"]);
  });

  test("are keys of collections", async () => {
    const client = stocked();
    await client.files.set(ofAnotherRealm(Uint8Array.of(1)), 1);
    equal(await client.files.get(Uint8Array.of(1)), 1);
    await client.parts.set(["a", ofAnotherRealm(Uint8Array.of(1))], 2);
    equal(await client.parts.get(["a", Uint8Array.of(1)]), 2);
  });
});

suite("keys of a client's transaction", () => {
  test("are told apart whatever their bytes lie in", async () => {
    const client = stocked();
    const { files } = client;
    await client.transaction((tx) => {
      const given = tx.files as unknown as { set(key: unknown, value: number): void };
      given.set(Uint8Array.of(1).buffer, 1);
      given.set(Uint8Array.of(2).buffer, 2);
      given.set(new DataView(Uint8Array.of(3).buffer), 3);
      given.set(Uint16Array.of(4), 4);
      // The same bytes are the same key.
      given.set(Uint8Array.of(2), 5);
    });
    const found = await files.entries().all();
    deepEqual(
      found.map(([key, value]) => [...key, value]),
      [
        [1, 1],
        [2, 5],
        [3, 3],
        [4, 0, 4],
      ],
    );
  });

  test("are refused where they are none, and nothing is written", async () => {
    const client = stocked();
    for (const none of [undefined, null, 5, 2 ** 40, {}, "\ud800"] as unknown[] as string[]) {
      await rejects(
        client.transaction((tx) => tx.get(none)),
        BAD,
      );
      const writing = client.transaction((tx) => {
        tx.set("a", "1");
        tx.set(none, "1");
        tx.set("\ufffd", "1");
      });
      await rejects(writing, BAD);
    }
    equal(await client.count(), 0);
  });
});

suite("what a client's call is about", () => {
  test("stays what it was when it was called: keys of collections too", async () => {
    const client = stocked();
    await client.files.set(Uint8Array.of(7), 7);
    const key = Uint8Array.of(7);
    const range = { gte: key };
    const asked = [client.files.get(key), client.files.count(range)];
    key[0] = 8;
    deepEqual(await Promise.all(asked), [7, 1]);
  });

  test("is bytes for an update of a missing key, also where nothing is in it", async () => {
    const client = stocked();
    let found: unknown;
    const change = (value: Uint8Array) => {
      found = value;
      return "x";
    };
    equal(await client.updateIf("a", change, { valueIfMissing: "" }), true);
    deepEqual(found, new Uint8Array(0));
    await rejects(
      client.updateIf("b", () => {}, { valueIfMissing: "\ud800" }),
      BAD,
    );
    equal(await client.has("b"), false);
  });
});
