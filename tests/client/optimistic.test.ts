import { ConflictError } from "varve";
import { deepEqual, equal, ok, rejects, suite, test, text } from "../harness.js";
import { shop } from "./support.js";

const dropOne = (stock: Uint8Array) => {
  stock[0]! -= 1;
};

suite("a client's updateIf", () => {
  test("changes a copy in place, or returns new bytes, and writes that", async () => {
    const client = shop();
    await client.set("stock", new Uint8Array([3]));
    equal(await client.updateIf("stock", dropOne), true);
    deepEqual(await client.get("stock"), new Uint8Array([2]));
    equal(await client.updateIf("stock", () => "none"), true);
    equal(await client.getText("stock"), "none");
  });

  test("is refused by its predicate and by a missing key, which are values", async () => {
    const client = shop();
    equal(await client.updateIf("stock", dropOne), false);
    equal(await client.updateIf("stock", dropOne, { valueIfMissing: new Uint8Array([9]) }), true);
    equal(await client.updateIf("stock", dropOne, { predicate: (bytes) => bytes[0]! > 8 }), false);
    deepEqual(await client.get("stock"), new Uint8Array([8]));
  });

  test("loses nothing when many want the same key at once", async () => {
    const client = shop();
    await client.set("stock", new Uint8Array([40]));
    const all = Array.from({ length: 30 }, () =>
      client.updateIf("stock", dropOne, { retries: 200 }),
    );
    deepEqual(new Set(await Promise.all(all)), new Set([true]));
    deepEqual(await client.get("stock"), new Uint8Array([10]));
  });

  test("gives up after so many conflicts", async () => {
    const client = shop();
    await client.set("stock", new Uint8Array([1]));
    let runs = 0;
    const meddling = client.transaction(
      async (tx) => {
        runs += 1;
        await tx.get("stock");
        await client.set("stock", new Uint8Array([runs]));
        tx.set("stock", "mine");
      },
      { retries: 2 },
    );
    ok((await rejects(meddling, { code: "VARVE_CONFLICT" })) instanceof ConflictError);
    equal(runs, 3);
    deepEqual(await client.get("stock"), new Uint8Array([3]));
  });

  test("throws what its callback throws, and writes nothing", async () => {
    const client = shop();
    await client.set("a", "1");
    const failing = client.updateIf("a", () => {
      throw new Error("mine");
    });
    await rejects(failing, { message: "mine" });
    equal(await client.getText("a"), "1");
  });
});

suite("a client's transaction", () => {
  test("reads what it has written, and writes all at its end", async () => {
    const client = shop();
    await client.set("a", "1");
    const result = await client.transaction(async (tx) => {
      tx.set("a", "2");
      tx.set("b", "3");
      tx.delete("c");
      equal(await client.getText("a"), "1");
      return [await tx.getText("a"), await tx.has("c"), text(await tx.get("b"))];
    });
    deepEqual(result, ["2", false, "3"]);
    deepEqual((await client.getMany(["a", "b"])).map(text), ["2", "3"]);
  });

  test("runs again when something that it has read was changed meanwhile", async () => {
    const client = shop();
    await client.set("from", new Uint8Array([5]));
    let runs = 0;
    await client.transaction(async (tx) => {
      runs += 1;
      const from = (await tx.get("from"))!;
      if (runs === 1) await client.set("from", new Uint8Array([7]));
      tx.set("to", from);
    });
    equal(runs, 2);
    deepEqual(await client.get("to"), new Uint8Array([7]));
  });

  test("notices that a key which was missing has appeared", async () => {
    const client = shop();
    let runs = 0;
    await client.transaction(async (tx) => {
      runs += 1;
      if (!(await tx.has("name"))) tx.set("name", "first");
      if (runs === 1) await client.set("name", "other");
    });
    equal(runs, 2);
    equal(await client.getText("name"), "other");
  });

  test("leaves nothing when its function throws, and is over when that has returned", async () => {
    const client = shop();
    let kept: { set(key: string, value: string): void } | undefined;
    const failing = client.transaction((tx) => {
      kept = tx;
      tx.set("a", "1");
      throw new Error("mine");
    });
    await rejects(failing, { message: "mine" });
    equal(await client.has("a"), false);
    await client.transaction((tx) => {
      kept = tx;
    });
    await rejects(async () => kept?.set("a", "1"), { code: "VARVE_REENTRANCY" });
  });
});
