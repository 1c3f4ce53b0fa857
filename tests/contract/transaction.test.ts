import type { BatchOperation, Change, Predicate } from "varve";
import { json, text } from "varve/struct";
import { expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { text as textOf, turn } from "../support/values.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

everywhere("batch and transaction", ({ storage }) => {
  test("a batch applies its writes in order", async () => {
    const db = await opened(storage);
    db.set("gone", "1");
    db.batch([
      { type: "set", key: "a", value: "1" },
      { type: "set", key: "a", value: "2" },
      { type: "delete", key: "gone" },
      { type: "delete", key: "never there" },
      { type: "set", key: new Uint8Array([98]), value: new Uint8Array([51]) },
    ]);
    expect(db.getText("a")).toBe("2");
    expect(db.has("gone")).toBe(false);
    expect(db.getText("b")).toBe("3");
    db.batch([]);
    expect(db.count()).toBe(2);
  });

  test("a close refused by a transaction works when it is called again", async () => {
    const db = await opened(storage);
    let refused: Promise<void> | undefined;
    db.transaction((tx) => {
      tx.set("a", "1");
      refused = db.close();
      refused.catch(() => {});
    });
    await rejects(refused as unknown as Promise<void>, { name: "ReentrancyError" });
    expect(db.getText("a")).toBe("1");
    await db.close();
    throws(() => db.get("a"), { name: "DatabaseClosedError" });
  });

  test("a batch with one bad operation applies none, and the error names it", async () => {
    const db = await opened(storage);
    db.set("a", "old");
    db.set("b", "old");
    const bad: [unknown, RegExp][] = [
      [{ type: "put", key: "c", value: "1" }, /Operation 2.*"set" or "delete".*"put"/],
      [{ key: "c", value: "1" }, /Operation 2/],
      [null, /Operation 2/],
      ["set", /Operation 2/],
      [{ type: "set", key: "", value: "1" }, /Operation 2.*at least one byte/],
      [{ type: "set", key: "c" }, /Operation 2.*value/],
      [{ type: "delete" }, /Operation 2.*key/],
    ];
    for (const [operation, message] of bad) {
      const operations = [
        { type: "set", key: "a", value: "new" },
        { type: "delete", key: "b" },
        operation,
      ] as BatchOperation[];
      throws(() => db.batch(operations), { ...BAD, message });
      expect(db.getText("a")).toBe("old");
      expect(db.getText("b")).toBe("old");
      expect(db.count()).toBe(2);
    }
    throws(() => db.batch("ab" as unknown as BatchOperation[]), { ...BAD, message: /array/ });
  });

  test("a batch refuses unknown properties, so that no compare-and-set becomes an overwrite", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text());
    db.set("a", "old");
    notes.set("a", "old");
    const operation = { type: "set", key: "a", value: "new", ifVersion: 0 } as const;
    const refused = { ...BAD, message: /Operation 1.*no property "ifVersion".*type, key, value/ };
    throws(() => db.batch([{ type: "delete", key: "a" }, operation]), refused);
    throws(() => notes.batch([{ type: "delete", key: "a" }, operation]), refused);
    expect([db.getText("a"), notes.get("a")]).toStrictEqual(["old", "old"]);
  });

  test("a transaction keeps all of its writes and returns its result", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const result = db.transaction((tx) => {
      expect(tx).toBe(db);
      tx.set("a", "1");
      db.set("b", "2");
      expect(tx.getText("b")).toBe("2");
      return 42;
    });
    expect(result).toBe(42);
    db = await reopened(db, storage, name);
    expect(db.getText("a")).toBe("1");
    expect(db.getText("b")).toBe("2");
  });

  test("a transaction that throws rolls back sets, deletes and updates, in memory and in the file", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.set("set", "old");
    db.set("deleted", "old");
    db.set("updated", "old");
    db.set("resized", "old");
    db.set("large", filled(600_000, 1));
    for (const between of [() => {}, () => db.commit()]) {
      between();
      throws(
        () =>
          db.transaction((tx) => {
            tx.set("set", "new");
            tx.set("added", "new");
            tx.delete("deleted");
            tx.updateIf("updated", (view) => {
              view.fill(90);
            });
            tx.updateIf("resized", () => "much longer");
            tx.set("large", filled(700_000, 2));
            tx.set("another large", filled(700_000, 3));
            tx.batch([{ type: "set", key: "batched", value: "new" }]);
            throw new RangeError("mine");
          }),
        { name: "RangeError", message: "mine" },
      );
      for (const key of ["set", "deleted", "updated", "resized"])
        expect(db.getText(key), key).toBe("old");
      expect(db.get("large")?.length).toBe(600_000);
      expect(db.count()).toBe(5);
    }
    db = await reopened(db, storage, name);
    for (const key of ["set", "deleted", "updated", "resized"])
      expect(db.getText(key), key).toBe("old");
    expect(db.count()).toBe(5);
  });

  test("an inner transaction can fail alone, without affecting the outer one", async () => {
    const db = await opened(storage);
    db.transaction(() => {
      db.set("outer", "1");
      throws(() =>
        db.transaction(() => {
          db.set("outer", "2");
          db.set("inner", "2");
          db.transaction(() => db.set("innermost", "2"));
          throw new Error("inner");
        }),
      );
      expect(db.getText("outer")).toBe("1");
      db.transaction(() => db.set("kept", "3"));
    });
    expect(db.getText("outer")).toBe("1");
    expect(db.getText("kept")).toBe("3");
    expect(db.count()).toBe(2);
  });

  test("a failing outer transaction rolls back the inner ones", async () => {
    const db = await opened(storage);
    throws(() =>
      db.transaction(() => {
        db.transaction(() => db.set("inner", "1"));
        expect(db.getText("inner")).toBe("1");
        throw new Error("outer");
      }),
    );
    expect(db.count()).toBe(0);
  });

  test("a transaction of many megabytes is one commit, and is rolled back as one", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const write = () => {
      for (let i = 0; i < 300; i++) db.set(`key ${i}`, filled(20_000, i));
    };
    throws(() =>
      db.transaction(() => {
        write();
        throw new Error("undone");
      }),
    );
    expect(db.count()).toBe(0);
    db.transaction(write);
    expect(db.count()).toBe(300);
    db = await reopened(db, storage, name);
    expect(db.count()).toBe(300);
    expect(db.get("key 299")?.[0]).toBe(299 % 256);
  });

  test("a transaction that returns a promise is refused and rolled back", async () => {
    const db = await opened(storage);
    const late = (async (tx: typeof db) => {
      tx.set("a", "1");
    }) as unknown as (tx: typeof db) => number;
    throws(() => db.transaction(late), { ...BAD, message: /synchronous.*promise/ });
    expect(db.count()).toBe(0);
    await turn();
    expect(db.count()).toBe(0);
  });

  test("a generator is refused wherever a synchronous function is required", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", json<{ text: string }>());
    db.set("a", "old");
    notes.set("a", { text: "old" });
    const generators: unknown[] = [
      function* () {
        yield db.set("a", "new");
      },
      async function* () {
        yield db.set("a", "new");
      },
    ];
    for (const generator of generators) {
      const refused = { ...BAD, message: /synchronous.*generator/ };
      throws(() => db.transaction(generator as () => number), refused);
      throws(() => db.updateIf("a", generator as Change), refused);
      throws(() => db.updateIf("a", () => {}, { predicate: generator as Predicate }), refused);
      throws(() => notes.updateIf("a", generator as () => undefined), refused);
      await rejects(db.migrate("notes", text(), { migrate: generator as () => string }), refused);
    }
    expect([db.getText("a"), notes.get("a")]).toStrictEqual(["old", { text: "old" }]);
  });

  test("a transaction with invalid arguments is refused", async () => {
    const db = await opened(storage);
    throws(() => db.transaction(undefined as unknown as () => number), {
      ...BAD,
      message: /function/,
    });
  });

  test("commit, flush and close are refused inside a transaction, which goes on", async () => {
    const db = await opened(storage);
    let closing: Promise<void> | undefined;
    db.transaction(() => {
      db.set("a", "1");
      const refused = { name: "ReentrancyError", message: /transaction/ };
      throws(() => db.commit(), refused);
      throws(() => db.flush(), refused);
      closing = db.close();
      closing.catch(() => {});
      db.set("b", "2");
    });
    await rejects(closing as Promise<void>, { name: "ReentrancyError" });
    db.commit();
    expect(db.count()).toBe(2);
  });

  test("views of a rolled back transaction keep their bytes", async () => {
    const db = await opened(storage);
    db.set("key", "old");
    const before = db.get("key");
    throws(() =>
      db.transaction(() => {
        db.updateIf("key", (view) => {
          view.fill(90);
        });
        throw new Error("undone");
      }),
    );
    expect(textOf(before)).toBe("old");
    expect(db.getText("key")).toBe("old");
  });
});
