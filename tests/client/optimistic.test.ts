import { ConflictError, connect, memory, serve } from "varve";
import { json, str, struct, u16, u32 } from "varve/struct";
import {
  cleanup,
  deepEqual,
  equal,
  ok,
  rejects,
  replaceClock,
  suite,
  test,
  text,
  wasmOption,
} from "../harness.js";
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

  test("is done also where hundreds want the same key at once, those of collections too", async () => {
    const client = shop({ collections: { counts: json<{ n: number }>() } });
    await client.counts.set("all", { n: 0 });
    const updates = Array.from({ length: 300 }, () =>
      client.counts.updateIf("all", (value) => {
        value.n += 1;
      }),
    );
    deepEqual(new Set(await Promise.all(updates)), new Set([true]));
    deepEqual(await client.counts.get("all"), { n: 300 });
  });

  test("that throws in the line, or is given up there, holds up nobody behind it", async () => {
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
    equal(all.filter(({ status }, i) => i % 3 === 0 && status === "rejected").length, 0);
    const done = all.filter(({ status }) => status === "fulfilled").length;
    ok(done < 60 && (await client.get("stock"))?.[0] === 100 - done, `${done}`);
    equal(await client.updateIf("stock", dropOne), true);
  });

  test("rejects in time where no owner answers, each of them, and by its own name", async () => {
    const { port1, port2 } = new MessageChannel();
    const client = connect("nobody", { worker: () => port2, timeout: 50 });
    cleanup(async () => {
      await client.close();
      port1.close();
    });
    const late = [
      client.updateIf("stock", dropOne),
      client.updateIf("stock", dropOne),
      client.transaction((tx) => tx.set("stock", "1")),
    ];
    for (const [i, name] of ["updateIf", "updateIf", "transaction"].entries()) {
      const message = new RegExp(`^${name}\\(\\) on "nobody" was not answered in time`);
      await rejects(late[i] as Promise<unknown>, { code: "VARVE_OWNER_UNAVAILABLE", message });
    }
  });

  test("waits for nobody in the line where the owner has fallen silent: they are late together", async () => {
    const MANY = 20;
    const { port1, port2 } = new MessageChannel();
    serve("shop", { storage: memory(), ...wasmOption() }).listen(port1);
    const client = connect("shop", { worker: () => port2, timeout: 100 });
    cleanup(async () => {
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
          // The first of the line is at it once all have tried.
          if (runs > MANY) port1.postMessage = () => {};
          stock[0]! -= 1;
        })
        .catch(({ code }) => {
          equal(code, "VARVE_OWNER_UNAVAILABLE");
          askedUntil.push(asked);
        }),
    );
    await Promise.all(updates);
    Reflect.deleteProperty(port1, "postMessage");
    equal(askedUntil.length, MANY - 1);
    ok(Number(askedUntil.at(-1)) - Number(askedUntil[1]) < MANY / 2, `${askedUntil}`);
  });

  test("takes true and false of a predicate, and nothing else that would count as one", async () => {
    const client = shop();
    await client.set("stock", new Uint8Array([3]));
    for (const answer of [1, 0, "", undefined, Promise.resolve(true)]) {
      const predicate = (() => answer) as unknown as () => boolean;
      await rejects(client.updateIf("stock", dropOne, { predicate }), {
        code: "VARVE_BAD_ARGUMENT",
        message: /predicate of updateIf\(\) must return true or false/,
      });
    }
    deepEqual(await client.get("stock"), new Uint8Array([3]));
  });

  test("leaves more room for others after each conflict, up to an eighth of a second", async () => {
    const client = shop();
    await client.set("stock", "0");
    const { random } = Math;
    cleanup(() => {
      Math.random = random;
    });
    const pauses: number[] = [];
    // No other timer is set for a part of a millisecond.
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
    deepEqual(pauses, [2, 4, 8, 16, 32, 64, 128, 128, 128]);
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

suite("hundreds of a client's transactions at once", () => {
  const MANY = 300;

  const counted = async () => {
    const client = shop();
    await client.set("n", "0");
    const increment = () =>
      client.transaction(async (tx) => tx.set("n", `${Number(await tx.getText("n")) + 1}`));
    return { client, increment };
  };

  test("are all done where they want the same key", async () => {
    const { client, increment } = await counted();
    await Promise.all(Array.from({ length: MANY }, increment));
    equal(await client.getText("n"), `${MANY}`);
  });

  test("are all done beside as many updates of that key", async () => {
    const { client, increment } = await counted();
    const update = () =>
      client.updateIf("n", (bytes) => `${Number(new TextDecoder().decode(bytes)) + 1}`);
    const both = Array.from({ length: MANY }, () => [increment(), update()]);
    await Promise.all(both.flat());
    equal(await client.getText("n"), `${2 * MANY}`);
  });

  test("wait for none that itself waits for one of them", async () => {
    const { client, increment } = await counted();
    let runs = 0;
    const waiting = client.transaction(async (tx) => {
      runs += 1;
      await tx.get("other");
      if (runs === 1) await client.set("other", "1");
      // It is the first of the line now, and these meet conflicts of their own.
      else await Promise.all([increment(), increment(), increment()]);
      tx.set("done", "1");
    });
    await waiting;
    equal(runs, 2);
    deepEqual([await client.getText("n"), await client.getText("done")], ["3", "1"]);
  });
});

suite("a client's transaction over collections", () => {
  const Product = struct("Product", { stock: u16, name: str });

  const stocked = () =>
    shop({
      collections: { products: Product, sales: { of: json<{ by: string }>(), key: [str, u32] } },
    });

  test("reads and writes them together with raw keys, all or nothing", async () => {
    const client = stocked();
    await client.products.set("yeezy", { stock: 2, name: "Boost" });
    await client.transaction(async (tx) => {
      const product = await tx.products.get("yeezy");
      ok(product !== undefined);
      tx.products.set("yeezy", { ...product, stock: product.stock - 1 });
      tx.sales.set(["yeezy", 1], { by: "anna" });
      tx.set("sold", "1");
      equal((await tx.products.get("yeezy"))?.stock, 1);
      equal(await tx.sales.has(["yeezy", 2]), false);
    });
    deepEqual(await client.products.get("yeezy"), { stock: 1, name: "Boost" });
    deepEqual(await client.sales.get(["yeezy", 1]), { by: "anna" });
    equal(await client.getText("sold"), "1");
    const failing = client.transaction(async (tx) => {
      tx.products.delete("yeezy");
      tx.set("sold", "2");
      await tx.sales.get(["yeezy", 1]);
      throw new RangeError("no");
    });
    await rejects(failing, { name: "RangeError" });
    equal(await client.products.has("yeezy"), true);
    await client.transaction((tx) => tx.products.delete("yeezy"));
    equal(await client.products.has("yeezy"), false);
  });

  test("runs again when a record that it has read was changed, or has come to be", async () => {
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
    equal(runs, 3);
    equal(await client.getText("seen"), "4 true");
  });

  test("gives copies, and keeps what it was given as it was then", async () => {
    const client = stocked();
    const sale = { by: "anna" };
    await client.transaction(async (tx) => {
      tx.sales.set(["yeezy", 1], sale);
      sale.by = "changed";
      const found = await tx.sales.get(["yeezy", 1]);
      if (found !== undefined) found.by = "changed as well";
      // A raw key is another one, whatever it looks like.
      tx.set('["sales|["yeezy|number 1]]', "raw");
    });
    deepEqual(await client.sales.get(["yeezy", 1]), { by: "anna" });
  });

  test("checks what it has read also when it has written nothing to that", async () => {
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
    equal(sum, 2);
    equal(runs, 2);
  });
});
