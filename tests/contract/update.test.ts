import type { Change, Predicate } from "varve";
import { assert, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { ofAnotherRealm, text, turn } from "../support/values.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

const increment: Change = (view) => {
  view[0] = (view[0] as number) + 1;
};

everywhere("updateIf", ({ storage }) => {
  test("updateIf changes the bytes in place and returns true", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.set("key", new Uint8Array([1, 2, 3]));
    expect(db.updateIf("key", increment)).toBe(true);
    expect(db.get("key")?.slice()).toStrictEqual(new Uint8Array([2, 2, 3]));
    await db.committed;
    expect(db.updateIf("key", increment)).toBe(true);
    expect(db.updateIf("key", increment)).toBe(true);
    expect(db.get("key")?.slice()).toStrictEqual(new Uint8Array([4, 2, 3]));
    db = await reopened(db, storage, name);
    expect(db.get("key")?.slice()).toStrictEqual(new Uint8Array([4, 2, 3]));
  });

  test("a value longer than a frame is changed in place", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    db.set("key", filled(700_000, 1));
    db.updateIf("key", increment);
    await db.committed;
    db.updateIf("key", increment);
    expect(db.get("key")?.[0]).toBe(3);
    db = await reopened(db, storage, name);
    expect(db.get("key")?.[0]).toBe(3);
    expect(db.get("key")?.[399_999]).toBe(1);
  });

  test("twenty thousand updates of one turn add one record to the file", async () => {
    const db = await opened(storage);
    db.set("key", new Uint8Array(4));
    await db.committed;
    const before = db.stats().fileBytes;
    for (let i = 0; i < 20_000; i++) {
      db.updateIf("key", (view) => {
        const count = new DataView(view.buffer, view.byteOffset, view.length);
        count.setUint32(0, count.getUint32(0) + 1);
      });
    }
    assert(db.stats().pendingBytes < 1_000);
    await db.committed;
    expect(db.stats().fileBytes).toBe(before);
    expect(db.get("key")?.slice()).toStrictEqual(new Uint8Array([0, 0, 0x4e, 0x20]));
  });

  test("a missing key returns false and calls nothing", async () => {
    const db = await opened(storage);
    let calls = 0;
    const count = () => {
      calls += 1;
      return true;
    };
    expect(db.updateIf("missing", count as unknown as Change, { predicate: count })).toBe(false);
    expect(calls).toBe(0);
    expect(db.count()).toBe(0);
  });

  test("a refusing predicate returns false, and nothing is changed", async () => {
    const db = await opened(storage);
    db.set("key", new Uint8Array([5]));
    const above =
      (limit: number): Predicate =>
      (view) =>
        (view[0] as number) > limit;
    expect(db.updateIf("key", increment, { predicate: above(5) })).toBe(false);
    expect(db.get("key")?.[0]).toBe(5);
    expect(db.updateIf("key", increment, { predicate: above(4) })).toBe(true);
    expect(db.get("key")?.[0]).toBe(6);
  });

  test("writes of a refusing predicate are rolled back", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const meddling: Predicate = (view) => {
      view.fill(0);
      return false;
    };
    expect(db.updateIf("key", increment, { predicate: meddling })).toBe(false);
    expect(db.getText("key")).toBe("value");
    db.commit();
    expect(db.updateIf("key", increment, { predicate: meddling })).toBe(false);
    expect(db.getText("key")).toBe("value");
  });

  test("predicateKey gives the predicate another key's bytes", async () => {
    const db = await opened(storage);
    db.set("key", new Uint8Array([1]));
    db.set("switch", "off");
    const on = { predicateKey: "switch", predicate: (view: Uint8Array) => text(view) === "on" };
    expect(db.updateIf("key", increment, on)).toBe(false);
    db.set("switch", "on");
    expect(db.updateIf("key", increment, on)).toBe(true);
    expect(db.get("key")?.[0]).toBe(2);
    expect(db.getText("switch")).toBe("on");
    expect(db.updateIf("missing", increment, on)).toBe(false);
  });

  test("a missing predicateKey returns false, even with valueIfMissing", async () => {
    const db = await opened(storage);
    db.set("key", new Uint8Array([1]));
    const options = { predicateKey: "missing", predicate: () => true };
    expect(db.updateIf("key", increment, options)).toBe(false);
    expect(db.updateIf("new", increment, { ...options, valueIfMissing: "0" })).toBe(false);
    expect(db.count()).toBe(1);
  });

  test("valueIfMissing is inserted and then updated, predicate included", async () => {
    const db = await opened(storage);
    const options = {
      valueIfMissing: new Uint8Array([10]),
      predicate: (v: Uint8Array) => v[0] === 10,
    };
    expect(db.updateIf("key", increment, options)).toBe(true);
    expect(db.get("key")?.[0]).toBe(11);
    expect(db.updateIf("key", increment, options)).toBe(false);
    expect(db.get("key")?.[0]).toBe(11);
    expect(db.updateIf("text", () => undefined, { valueIfMissing: "as it is" })).toBe(true);
    expect(db.getText("text")).toBe("as it is");
  });

  test("valueIfMissing leaves nothing if the predicate refuses or the callback throws", async () => {
    const db = await opened(storage);
    expect(db.updateIf("key", increment, { valueIfMissing: "0", predicate: () => false })).toBe(
      false,
    );
    expect(db.has("key")).toBe(false);
    const thrower = () => {
      throw new RangeError("mine");
    };
    throws(() => db.updateIf("key", thrower, { valueIfMissing: "0" }), { message: "mine" });
    throws(() => db.updateIf("key", increment, { valueIfMissing: "0", predicate: thrower }), {
      message: "mine",
    });
    expect(db.has("key")).toBe(false);
    expect(db.count()).toBe(0);
  });

  test("the callback may return new bytes of any size and kind", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const results = [
      "longer than before",
      "",
      filled(600_000, 7),
      new ArrayBuffer(3),
      "é",
      "x".repeat(100),
    ];
    let expected = "start";
    for (const between of [() => {}, () => db.commit()]) {
      for (const result of results) {
        db.set("key", expected);
        between();
        expect(db.updateIf("key", () => result)).toBe(true);
        const bytes =
          typeof result === "string" ? new TextEncoder().encode(result) : new Uint8Array(result);
        expect(db.get("key")?.slice()).toStrictEqual(bytes);
      }
      expected = "another start";
    }
    db.updateIf("key", () => "the last one");
    db = await reopened(db, storage, name);
    expect(db.getText("key")).toBe("the last one");
  });

  test("the callback may return an ArrayBuffer of another realm", async () => {
    const db = await opened(storage);
    db.set("key", "1");
    expect(db.updateIf("key", () => ofAnotherRealm(Uint8Array.of(50).buffer))).toBe(true);
    expect(db.getText("key")).toBe("2");
  });

  test("the callback may return a part of its own view, and a view of another record", async () => {
    const db = await opened(storage);
    for (const between of [() => {}, () => db.commit()]) {
      db.set("key", "0123456789");
      db.set("other", "a longer value than that");
      between();
      db.updateIf("key", (view) => view.subarray(3, 7));
      expect(db.getText("key")).toBe("3456");
      db.updateIf("key", () => db.get("other"));
      expect(db.getText("key")).toBe("a longer value than that");
    }
  });

  test("a part of the view returned while the memory grows keeps its bytes", async () => {
    const db = await opened(storage, { memory: 1_048_576 });
    const big = Uint8Array.from({ length: 3_000_000 }, (_, i) => i % 251);
    db.set("key", big);
    for (let i = 1; i <= 4; i++) db.updateIf("key", (view) => view.subarray(1));
    expect(db.get("key")?.slice()).toStrictEqual(big.slice(4));
  });

  test("a throwing callback restores every byte", async () => {
    const db = await opened(storage);
    const fail: Change = (view) => {
      view.fill(0);
      throw new RangeError("mine");
    };
    for (const size of [0, 1, 9, 64, 5_000, 300_000, 600_000, 900_000]) {
      const value = filled(size, 77);
      db.set("key", value);
      throws(() => db.updateIf("key", fail), { name: "RangeError", message: "mine" });
      expect(db.get("key")?.slice(), `${size}, in the turn of its set`).toStrictEqual(value);
      db.commit();
      throws(() => db.updateIf("key", fail), { message: "mine" });
      expect(db.get("key")?.slice(), `${size}, after a commit`).toStrictEqual(value);
      db.updateIf("key", (view) => {
        view.fill(78);
      });
      throws(() => db.updateIf("key", fail), { message: "mine" });
      expect(db.get("key")?.slice(), `${size}, after another update`).toStrictEqual(
        filled(size, 78),
      );
    }
  });

  test("a throwing callback leaves nothing to be written", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    await db.committed;
    throws(() =>
      db.updateIf("key", () => {
        throw new Error("no");
      }),
    );
    expect(db.stats().pendingBytes).toBe(0);
  });

  test("a callback that returns a promise is refused, and its bytes are restored", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    let kept: Uint8Array | undefined;
    const late = async (view: Uint8Array) => {
      view.fill(0);
      await null;
      kept = view;
      view.fill(1);
    };
    throws(() => db.updateIf("key", late as unknown as Change), { ...BAD, message: /promise/ });
    expect(db.getText("key")).toBe("value");
    await turn();
    expect(kept?.length, "the continuing function must find a detached view").toBe(0);
    expect(db.getText("key")).toBe("value");
  });

  test("a rejecting promise of a callback or predicate causes one error and no second", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const late = async () => {
      throw new Error("rejected");
    };
    throws(() => db.updateIf("key", late as unknown as Change), { ...BAD, message: /promise/ });
    const predicate = late as unknown as Predicate;
    throws(() => db.updateIf("key", increment, { predicate }), { ...BAD, message: /promise/ });
    await turn();
    expect(db.getText("key")).toBe("value");
  });

  test("a thenable counts as a promise", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const thenable = {};
    Reflect.set(thenable, "then", () => {});
    throws(() => db.updateIf("key", () => thenable as unknown as undefined), {
      ...BAD,
      message: /promise/,
    });
    expect(db.getText("key")).toBe("value");
  });

  test("a predicate must return true or false", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    for (const answer of [1, 0, "yes", "", null, undefined, {}]) {
      const predicate = (() => answer) as unknown as Predicate;
      throws(() => db.updateIf("key", increment, { predicate }), {
        ...BAD,
        message: /true or false/,
      });
    }
    expect(db.getText("key")).toBe("value");
  });

  test("a result that is neither nothing nor bytes is refused, and the bytes are restored", async () => {
    const db = await opened(storage);
    db.set("key", new Uint8Array([1]));
    for (const result of [5, true, null, {}, [1, 2]]) {
      const change = ((view: Uint8Array) => {
        view[0] = 9;
        return result;
      }) as unknown as Change;
      throws(() => db.updateIf("key", change), { ...BAD, message: /nothing, or the new bytes/ });
      expect(db.get("key")?.[0]).toBe(1);
    }
    const tooLong: Change = () => filled(16_777_217, 1);
    throws(() => db.updateIf("key", tooLong), { ...BAD, message: /16777216/ });
    expect(db.get("key")?.[0]).toBe(1);
  });

  test("writes inside a callback or predicate are refused, and the update goes on", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    db.set("other", "other");
    const writes: [string, () => unknown][] = [
      ["set()", () => db.set("other", "changed")],
      ["delete()", () => db.delete("other")],
      ["updateIf()", () => db.updateIf("other", increment)],
      ["batch()", () => db.batch([{ type: "delete", key: "other" }])],
      ["transaction()", () => db.transaction(() => 1)],
      ["commit()", () => db.commit()],
      ["flush()", () => db.flush()],
    ];
    const all = () => {
      for (const [message, write] of writes) {
        throws(write, { name: "ReentrancyError", code: "VARVE_REENTRANCY", message });
      }
    };
    const predicate: Predicate = () => {
      all();
      return true;
    };
    const change: Change = (view) => {
      all();
      view[0] = 86;
    };
    expect(db.updateIf("key", change, { predicate })).toBe(true);
    expect(db.updateIf("key", change, { predicate, predicateKey: "other" })).toBe(true);
    expect(db.getText("key")).toBe("Value");
    expect(db.getText("other")).toBe("other");
    throws(() =>
      db.updateIf("key", (view) => {
        view.fill(0);
        db.set("other", "changed");
      }),
    );
    expect(db.getText("key")).toBe("Value");
    db.set("other", "allowed again");
    expect(db.getText("other")).toBe("allowed again");
  });

  test("close inside a callback is refused, and the database stays open", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    let closing: Promise<void> | undefined;
    db.updateIf("key", () => {
      closing = db.close();
    });
    let error: unknown;
    await closing?.catch((thrown: unknown) => {
      error = thrown;
    });
    expect((error as Error | undefined)?.name).toBe("ReentrancyError");
    expect(db.getText("key")).toBe("value");
  });

  test("reads inside a callback see the database, including the record under change", async () => {
    const db = await opened(storage);
    db.set("key", new Uint8Array([1, 1]));
    db.set("step", new Uint8Array([5]));
    db.commit();
    db.updateIf(
      "key",
      (view) => {
        view[0] = (view[0] as number) + (db.get("step")?.[0] as number);
        expect(db.has("key")).toBe(true);
        expect(db.count()).toBe(2);
        expect(db.get("key")?.length).toBe(2);
      },
      { predicate: () => db.get("step")?.[0] === 5 },
    );
    expect(db.get("key")?.slice()).toStrictEqual(new Uint8Array([6, 1]));
  });

  test("unknown, wrong or useless options are refused by name", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const call = (options: unknown) => () => db.updateIf("key", increment, options as object);
    throws(call({ predicat: () => true }), {
      ...BAD,
      message: /"predicat".*predicate, predicateKey/,
    });
    throws(call({ predicate: "yes" }), { ...BAD, message: /predicate.*function/ });
    throws(call({ predicateKey: "other" }), { ...BAD, message: /predicateKey/ });
    throws(call({ predicate: () => true, predicateKey: 7 }), { ...BAD, message: /key.*7/ });
    throws(call(null), BAD);
    throws(
      call(() => true),
      BAD,
    );
    throws(call([]), BAD);
    const missing = { valueIfMissing: 3 as unknown as string };
    throws(() => db.updateIf("missing", increment, missing), { ...BAD, message: /value.*3/ });
    throws(() => db.updateIf("key", undefined as unknown as Change), {
      ...BAD,
      message: /function/,
    });
    expect(db.getText("key")).toBe("value");
    expect(db.updateIf("key", increment, {})).toBe(true);
  });
});
