import { ConflictError, connect, memory, serve } from "varve";
import { json, str, struct, u16, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { replaceClock, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { text } from "../support/values.js";
import { shop } from "./support.js";

const dropOne = (stock: Uint8Array) => {
  stock[0]! -= 1;
};

describe("updateIf of clients", () => {
  test("updateIf: the callback changes a copy in place or returns new bytes", async () => {
    const client = shop();
    await client.set("stock", new Uint8Array([3]));
    expect(await client.updateIf("stock", dropOne)).toBe(true);
    expect(await client.get("stock")).toStrictEqual(new Uint8Array([2]));
    expect(await client.updateIf("stock", () => "none")).toBe(true);
    expect(await client.getText("stock")).toBe("none");
  });

  test("updateIf: it resolves to false if the predicate refuses or the key is missing", async () => {
    const client = shop();
    expect(await client.updateIf("stock", dropOne)).toBe(false);
    expect(await client.updateIf("stock", dropOne, { valueIfMissing: new Uint8Array([9]) })).toBe(
      true,
    );
    expect(await client.updateIf("stock", dropOne, { predicate: (bytes) => bytes[0]! > 8 })).toBe(
      false,
    );
    expect(await client.get("stock")).toStrictEqual(new Uint8Array([8]));
  });

  test("updateIf: many concurrent updates of one key lose nothing", async () => {
    const client = shop();
    await client.set("stock", new Uint8Array([40]));
    const all = Array.from({ length: 30 }, () =>
      client.updateIf("stock", dropOne, { retries: 200 }),
    );
    expect(new Set(await Promise.all(all))).toStrictEqual(new Set([true]));
    expect(await client.get("stock")).toStrictEqual(new Uint8Array([10]));
  });

  test("updateIf: hundreds of concurrent updates of one key are all done, also in collections", async () => {
    const client = shop({ collections: { counts: json<{ n: number }>() } });
    await client.counts.set("all", { n: 0 });
    const updates = Array.from({ length: 300 }, () =>
      client.counts.updateIf("all", (value) => {
        value.n += 1;
      }),
    );
    expect(new Set(await Promise.all(updates))).toStrictEqual(new Set([true]));
    expect(await client.counts.get("all")).toStrictEqual({ n: 300 });
  });

  test("updateIf: one that throws or is aborted in the retry queue does not block the others", async () => {
    const client = shop();
    await client.set("stock", new Uint8Array([100]));
    const given = new AbortController();
    let runs = 0;
    const updates = Array.from({ length: 60 }, (_, i) =>
      client.updateIf(
        "stock",
        (stock) => {
          runs += 1;
          if (runs > 60 && i % 3 === 1) throw new Error("not this one");
          if (runs > 60) given.abort();
          stock[0]! -= 1;
        },
        i % 3 === 2 ? { signal: given.signal } : {},
      ),
    );
    const all = await Promise.allSettled(updates);
    expect(all.filter(({ status }, i) => i % 3 === 0 && status === "rejected").length).toBe(0);
    const done = all.filter(({ status }) => status === "fulfilled").length;
    assert(done < 60 && (await client.get("stock"))?.[0] === 100 - done, `${done}`);
    expect(await client.updateIf("stock", dropOne)).toBe(true);
  });

  test("updateIf: without an owner every call times out, with its own name", async () => {
    const { port1, port2 } = new MessageChannel();
    const client = connect("unserved", { worker: () => port2, timeout: 50 });
    onTestFinished(async () => {
      await client.close();
      port1.close();
    });
    const late = [
      client.updateIf("stock", dropOne),
      client.updateIf("stock", dropOne),
      client.transaction((tx) => tx.set("stock", "1")),
    ];
    for (const [i, name] of ["updateIf", "updateIf", "transaction"].entries()) {
      const message = new RegExp(`^${name}\\(\\) on "unserved" was not answered in time`);
      await rejects(late[i] as Promise<unknown>, { code: "VARVE_OWNER_UNAVAILABLE", message });
    }
  });

  test("updateIf: when the owner stops answering, queued retries time out together", async () => {
    const MANY = 20;
    const { port1, port2 } = new MessageChannel();
    serve("shop", { storage: memory(), ...wasmOption() }).listen(port1);
    const client = connect("shop", { worker: () => port2, timeout: 100 });
    onTestFinished(async () => {
      await client.close();
      port1.close();
    });
    await client.set("stock", new Uint8Array([100]));
    let asked = 0;
    const ask = port2.postMessage.bind(port2);
    port2.postMessage = (message: unknown) => {
      asked += 1;
      ask(message);
    };
    let runs = 0;
    const askedUntil: number[] = [];
    const updates = Array.from({ length: MANY }, () =>
      client
        .updateIf("stock", (stock) => {
          runs += 1;
          // The first transaction of the queue retries once all have tried.
          if (runs > MANY) port1.postMessage = () => {};
          stock[0]! -= 1;
        })
        .catch(({ code }) => {
          expect(code).toBe("VARVE_OWNER_UNAVAILABLE");
          askedUntil.push(asked);
        }),
    );
    await Promise.all(updates);
    Reflect.deleteProperty(port1, "postMessage");
    expect(askedUntil.length).toBe(MANY - 1);
    assert(Number(askedUntil.at(-1)) - Number(askedUntil[1]) < MANY / 2, `${askedUntil}`);
  });

  test("updateIf: the predicate must return true or false", async () => {
    const client = shop();
    await client.set("stock", new Uint8Array([3]));
    for (const answer of [1, 0, "", undefined, Promise.resolve(true)]) {
      const predicate = (() => answer) as unknown as () => boolean;
      await rejects(client.updateIf("stock", dropOne, { predicate }), {
        code: "VARVE_BAD_ARGUMENT",
        message: /predicate of updateIf\(\) must return true or false/,
      });
    }
    expect(await client.get("stock")).toStrictEqual(new Uint8Array([3]));
  });

  test("updateIf: the pause between retries doubles up to an eighth of a second", async () => {
    const client = shop();
    await client.set("stock", "0");
    const { random } = Math;
    onTestFinished(() => {
      Math.random = random;
    });
    const pauses: number[] = [];
    // Only these timers have a fractional number of milliseconds.
    Math.random = () => 0.999;
    const real = replaceClock({
      setTimeout(act, ms = 0, ...more) {
        if (Number.isInteger(ms)) return real.setTimeout(act, ms, ...more);
        pauses.push(Math.round(ms));
        return real.setTimeout(act, 0);
      },
    });
    const meddling = client.transaction(async (tx) => {
      await tx.get("stock");
      await client.set("stock", "1");
      tx.set("stock", "mine");
    });
    await rejects(meddling, { code: "VARVE_CONFLICT" });
    expect(pauses).toStrictEqual([2, 4, 8, 16, 32, 64, 128, 128, 128]);
  });

  test("updateIf: it gives up after the given number of conflicts", async () => {
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
    assert((await rejects(meddling, { code: "VARVE_CONFLICT" })) instanceof ConflictError);
    expect(runs).toBe(3);
    expect(await client.get("stock")).toStrictEqual(new Uint8Array([3]));
  });

  test("updateIf: an error of the callback rejects, and nothing is written", async () => {
    const client = shop();
    await client.set("a", "1");
    const failing = client.updateIf("a", () => {
      throw new Error("mine");
    });
    await rejects(failing, { message: "mine" });
    expect(await client.getText("a")).toBe("1");
  });
});

describe("transactions of clients", () => {
  test("transaction: it reads its own writes, and makes them at its end", async () => {
    const client = shop();
    await client.set("a", "1");
    const result = await client.transaction(async (tx) => {
      tx.set("a", "2");
      tx.set("b", "3");
      tx.delete("c");
      expect(await client.getText("a")).toBe("1");
      return [await tx.getText("a"), await tx.has("c"), text(await tx.get("b"))];
    });
    expect(result).toStrictEqual(["2", false, "3"]);
    expect((await client.getMany(["a", "b"])).map(text)).toStrictEqual(["2", "3"]);
  });

  test("transaction: it runs again if a key that it read was changed", async () => {
    const client = shop();
    await client.set("from", new Uint8Array([5]));
    let runs = 0;
    await client.transaction(async (tx) => {
      runs += 1;
      const from = (await tx.get("from"))!;
      if (runs === 1) await client.set("from", new Uint8Array([7]));
      tx.set("to", from);
    });
    expect(runs).toBe(2);
    expect(await client.get("to")).toStrictEqual(new Uint8Array([7]));
  });

  test("transaction: it runs again if a missing key that it read was created", async () => {
    const client = shop();
    let runs = 0;
    await client.transaction(async (tx) => {
      runs += 1;
      if (!(await tx.has("name"))) tx.set("name", "first");
      if (runs === 1) await client.set("name", "other");
    });
    expect(runs).toBe(2);
    expect(await client.getText("name")).toBe("other");
  });

  test("transaction: an error of its function undoes it, and later calls on it are refused", async () => {
    const client = shop();
    let kept: { set(key: string, value: string): void } | undefined;
    const failing = client.transaction((tx) => {
      kept = tx;
      tx.set("a", "1");
      throw new Error("mine");
    });
    await rejects(failing, { message: "mine" });
    expect(await client.has("a")).toBe(false);
    await client.transaction((tx) => {
      kept = tx;
    });
    await rejects(async () => kept?.set("a", "1"), { code: "VARVE_REENTRANCY" });
  });
});

describe("hundreds of concurrent transactions", () => {
  const MANY = 300;

  const counted = async () => {
    const client = shop();
    await client.set("n", "0");
    const increment = () =>
      client.transaction(async (tx) => tx.set("n", `${Number(await tx.getText("n")) + 1}`));
    return { client, increment };
  };

  test("transactions: hundreds on one key are all done", async () => {
    const { client, increment } = await counted();
    await Promise.all(Array.from({ length: MANY }, increment));
    expect(await client.getText("n")).toBe(`${MANY}`);
  });

  test("transactions: hundreds are done beside as many updates of the same key", async () => {
    const { client, increment } = await counted();
    const update = () =>
      client.updateIf("n", (bytes) => `${Number(new TextDecoder().decode(bytes)) + 1}`);
    const both = Array.from({ length: MANY }, () => [increment(), update()]);
    await Promise.all(both.flat());
    expect(await client.getText("n")).toBe(`${2 * MANY}`);
  });

  test("transactions: one in the retry queue that waits for others does not block them", async () => {
    const { client, increment } = await counted();
    let runs = 0;
    const waiting = client.transaction(async (tx) => {
      runs += 1;
      await tx.get("other");
      if (runs === 1) await client.set("other", "1");
      // This transaction is now the first of the queue, and these have conflicts of their own.
      else await Promise.all([increment(), increment(), increment()]);
      tx.set("done", "1");
    });
    await waiting;
    expect(runs).toBe(2);
    expect([await client.getText("n"), await client.getText("done")]).toStrictEqual(["3", "1"]);
  });
});

describe("transactions over collections", () => {
  const Product = struct("Product", { stock: u16, name: str });

  const stocked = () =>
    shop({
      collections: { products: Product, sales: { of: json<{ by: string }>(), key: [str, u32] } },
    });

  test("transaction: collections and raw keys are written together or not at all", async () => {
    const client = stocked();
    await client.products.set("yeezy", { stock: 2, name: "Boost" });
    await client.transaction(async (tx) => {
      const product = await tx.products.get("yeezy");
      assert(product !== undefined);
      tx.products.set("yeezy", { ...product, stock: product.stock - 1 });
      tx.sales.set(["yeezy", 1], { by: "anna" });
      tx.set("sold", "1");
      expect((await tx.products.get("yeezy"))?.stock).toBe(1);
      expect(await tx.sales.has(["yeezy", 2])).toBe(false);
    });
    expect(await client.products.get("yeezy")).toStrictEqual({ stock: 1, name: "Boost" });
    expect(await client.sales.get(["yeezy", 1])).toStrictEqual({ by: "anna" });
    expect(await client.getText("sold")).toBe("1");
    const failing = client.transaction(async (tx) => {
      tx.products.delete("yeezy");
      tx.set("sold", "2");
      await tx.sales.get(["yeezy", 1]);
      throw new RangeError("no");
    });
    await rejects(failing, { name: "RangeError" });
    expect(await client.products.has("yeezy")).toBe(true);
    await client.transaction((tx) => tx.products.delete("yeezy"));
    expect(await client.products.has("yeezy")).toBe(false);
  });

  test("transaction: it runs again if a record that it read was changed or created", async () => {
    const client = stocked();
    await client.products.set("yeezy", { stock: 5, name: "Boost" });
    let runs = 0;
    await client.transaction(async (tx) => {
      runs += 1;
      const product = await tx.products.get("yeezy");
      const isSold = await tx.sales.has(["yeezy", 1]);
      if (runs === 1) await client.products.update("yeezy", { add: { stock: -1 } });
      if (runs === 2) await client.sales.set(["yeezy", 1], { by: "bert" });
      tx.set("seen", `${product?.stock} ${isSold}`);
    });
    expect(runs).toBe(3);
    expect(await client.getText("seen")).toBe("4 true");
  });

  test("transaction: it returns copies, and takes values as they were when given", async () => {
    const client = stocked();
    const sale = { by: "anna" };
    await client.transaction(async (tx) => {
      tx.sales.set(["yeezy", 1], sale);
      sale.by = "changed";
      const found = await tx.sales.get(["yeezy", 1]);
      if (found !== undefined) found.by = "changed as well";
      // A raw key is distinct from any key of a collection, even with the same text.
      tx.set('["sales|["yeezy|number 1]]', "raw");
    });
    expect(await client.sales.get(["yeezy", 1])).toStrictEqual({ by: "anna" });
  });

  test("transaction: reads are checked also in a collection without writes", async () => {
    const client = stocked();
    await client.products.set("a", { stock: 1, name: "a" });
    await client.products.set("b", { stock: 1, name: "b" });
    let runs = 0;
    const sum = await client.transaction(async (tx) => {
      runs += 1;
      const a = await tx.products.get("a");
      if (runs === 1) {
        await client.products.update("a", { add: { stock: -1 } });
        await client.products.update("b", { add: { stock: 1 } });
      }
      const b = await tx.products.get("b");
      return (a?.stock ?? 0) + (b?.stock ?? 0);
    });
    expect(sum).toBe(2);
    expect(runs).toBe(2);
  });
});
