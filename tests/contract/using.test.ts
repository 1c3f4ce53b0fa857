import { memory, open } from "varve";
import { equal, ok, rejects, suite, test, throws, turn, wasmOption } from "../harness.js";
import { everywhere, freshName, opened } from "./places.js";

// These tests are compiled for platforms without `using`, as the programs of most users are.

everywhere("using", ({ storage }) => {
  test("a database is closed at the end of its block, and its writes are there", async () => {
    const name = freshName();
    let kept: { get(key: string): unknown };
    {
      await using db = await open(name, { storage, ...wasmOption() });
      db.set("key", "value");
      kept = db;
    }
    throws(() => kept.get("key"), { code: "VARVE_DATABASE_CLOSED" });
    await using again = await open(name, { storage, ...wasmOption() });
    equal(again.getText("key"), "value");
  });

  test("a database is closed if its block throws, and the error is passed on", async () => {
    const name = freshName();
    const failing = async () => {
      await using db = await open(name, { storage, ...wasmOption() });
      db.set("key", "value");
      throw new Error("on purpose");
    };
    await rejects(failing(), { message: "on purpose" });
    equal((await opened(storage, {}, name)).getText("key"), "value");
  });

  test("a pin ends with its block, also across a yield, and a missing key has none", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    let outlived: { readonly bytes: Uint8Array };
    {
      using lease = db.pin("key");
      using none = db.pin("missing");
      equal(none, undefined);
      ok(lease !== undefined);
      db.set("key", "other");
      await turn();
      equal(new TextDecoder().decode(lease.bytes.slice()), "value");
      outlived = lease;
    }
    throws(() => outlived.bytes, { name: "StaleViewError", message: /disposed/ });
  });
});

suite("iterators with using", () => {
  test("the iteration ends with the block", async () => {
    const db = await opened(memory());
    for (const key of ["a", "b", "c"]) db.set(key, key);
    let outlived: Iterator<string>;
    {
      using steps = db.keys()[Symbol.iterator]();
      equal(steps.next().value, "a");
      outlived = steps;
    }
    equal(outlived.next().done, true);
  });

  test("strict views: the current value is detached at the end of the block", async () => {
    const db = await opened(memory(), { strictViews: true });
    db.set("a", "1");
    let value: Uint8Array | undefined;
    {
      using steps = db.values()[Symbol.iterator]();
      value = steps.next().value;
      equal(value?.length, 1);
    }
    equal(value?.length, 0);
  });
});
