import { memory, open } from "varve";
import { assert, describe, expect, test } from "vitest";
import { wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import { everywhere, freshName, opened } from "./storages.js";

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
    expect(again.getText("key")).toBe("value");
  });

  test("a database is closed if its block throws, and the error is passed on", async () => {
    const name = freshName();
    const failing = async () => {
      await using db = await open(name, { storage, ...wasmOption() });
      db.set("key", "value");
      throw new Error("on purpose");
    };
    await rejects(failing(), { message: "on purpose" });
    expect((await opened(storage, {}, name)).getText("key")).toBe("value");
  });

  test("a pin ends with its block, also across a yield, and a missing key has none", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    let outlived: { readonly bytes: Uint8Array };
    {
      using lease = db.pin("key");
      using none = db.pin("missing");
      expect(none).toBe(undefined);
      assert(lease !== undefined);
      db.set("key", "other");
      await turn();
      expect(new TextDecoder().decode(lease.bytes.slice())).toBe("value");
      outlived = lease;
    }
    throws(() => outlived.bytes, { name: "StaleViewError", message: /disposed/ });
  });
});

describe("iterators with using", () => {
  test("the iteration ends with the block", async () => {
    const db = await opened(memory());
    for (const key of ["a", "b", "c"]) db.set(key, key);
    let outlived: Iterator<string>;
    {
      using steps = db.keys()[Symbol.iterator]();
      expect(steps.next().value).toBe("a");
      outlived = steps;
    }
    expect(outlived.next().done).toBe(true);
  });

  test("strict views: the current value is detached at the end of the block", async () => {
    const db = await opened(memory(), { strictViews: true });
    db.set("a", "1");
    let value: Uint8Array | undefined;
    {
      using steps = db.values()[Symbol.iterator]();
      value = steps.next().value;
      expect(value?.length).toBe(1);
    }
    expect(value?.length).toBe(0);
  });
});
