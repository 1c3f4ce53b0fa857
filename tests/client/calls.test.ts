import {
  connect,
  type Database,
  DatabaseClosedError,
  memory,
  type Storage,
  serve,
  VarveError,
} from "varve";
import { struct, u16, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { FakeStorage } from "../contract/fake-storage.js";
import { refuseAll } from "../support/closed.js";
import { wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { bytes, text } from "../support/values.js";
import { shop } from "./support.js";

describe("client calls", () => {
  test("client: set, get and delete round-trip", async () => {
    const client = shop();
    expect(await client.get("yeezy")).toBe(undefined);
    expect(await client.set("yeezy", "Boost")).toBe(undefined);
    expect(text(await client.get("yeezy"))).toBe("Boost");
    expect(await client.getText("yeezy")).toBe("Boost");
    expect(await client.has("yeezy")).toBe(true);
    expect(await client.delete("yeezy")).toBe(true);
    expect(await client.delete("yeezy")).toBe(false);
    expect(await client.has("yeezy")).toBe(false);
  });

  test("client: an owner's announcement that arrives late does not make deadlines earlier", async () => {
    const owner = new MessageChannel();
    const page = new MessageChannel();
    serve("late", { storage: memory(), ...wasmOption() }).listen(owner.port1);
    const isLate = ({ type, client }: { type: string; client?: number }) =>
      type === "owner" && client === 0;
    owner.port2.onmessage = ({ data }) =>
      setTimeout(() => page.port1.postMessage(data), isLate(data) ? 400 : 0);
    page.port1.onmessage = ({ data }) => owner.port2.postMessage(data);
    const client = connect("late", { worker: () => page.port2 });
    onTestFinished(async () => {
      await client.close();
      for (const { port1 } of [owner, page]) port1.close();
    });
    const found = new Promise((resolve) => {
      client.addEventListener("status", () => {
        if (client.status.state === "open") resolve(client.get("a", { timeout: 300 }));
      });
    });
    await client.ready;
    expect(await found).toBe(undefined);
  });

  test("client: returned values are copies that the caller may change", async () => {
    const client = shop();
    await client.set("a", bytes("one"));
    const value = await client.get("a");
    expect(value?.buffer.byteLength).toBe(3);
    value?.fill(0);
    expect(await client.getText("a")).toBe("one");
  });

  test("client: keys and values are copied at the call", async () => {
    const client = shop();
    const [key, value] = [bytes("key"), bytes("value")];
    const set = client.set(key, value);
    key.fill(0);
    value.fill(0);
    await set;
    expect(await client.getText("key")).toBe("value");
  });

  test("client: bytes of every kind are accepted", async () => {
    const client = shop();
    const buffer = bytes("_abc_").buffer as ArrayBuffer;
    await client.set(new DataView(buffer, 1, 3), buffer);
    expect(await client.getText("abc")).toBe("_abc_");
    expect(await client.getText(new Uint8Array(buffer, 1, 3))).toBe("_abc_");
  });

  test("client: a read sees earlier writes without awaiting them", async () => {
    const client = shop();
    client.set("a", "1");
    const one = client.getText("a");
    client.set("a", "2");
    const two = client.getText("a");
    expect(await Promise.all([one, two])).toStrictEqual(["1", "2"]);
  });

  test("client: getMany, getEntry, ranges and count", async () => {
    const client = shop();
    await client.batch([
      { type: "set", key: "a/1", value: "one" },
      { type: "set", key: "a/2", value: "two" },
      { type: "set", key: "b/1", value: "three" },
      { type: "delete", key: "c" },
    ]);
    expect((await client.getMany(["b/1", "none", "a/1"])).map(text)).toStrictEqual([
      "three",
      undefined,
      "one",
    ]);
    const entry = await client.getEntry("a/1");
    expect(text(entry?.value)).toBe("one");
    assert((entry?.version ?? 0) > 0);
    expect(await client.getEntry("none")).toBe(undefined);
    expect(await client.count()).toBe(3);
    expect(await client.count({ prefix: "a/" })).toBe(2);
    expect(await client.keys({ prefix: "a/" }).all()).toStrictEqual(["a/1", "a/2"]);
    expect((await client.values({ reverse: true, limit: 1 }).all()).map(text)).toStrictEqual([
      "three",
    ]);
    const seen: string[] = [];
    for await (const [key, value] of client.entries({ gte: "a/2" }))
      seen.push(`${key}=${text(value)}`);
    expect(seen).toStrictEqual(["a/2=two", "b/1=three"]);
    const [first] = await client.keys({ keyAs: "bytes" }).all();
    expect(text(first)).toStrictEqual("a/1");
    expect(await client.clear({ prefix: "a/" })).toBe(2);
    expect((await client.stats()).keys).toBe(1);
  });

  test("client: set with ifVersion writes only over that version", async () => {
    const client = shop();
    await client.set("a", "1", { ifVersion: 0 });
    await rejects(client.set("a", "2", { ifVersion: 0 }), { code: "VARVE_CONFLICT" });
    const { version } = (await client.getEntry("a"))!;
    await client.set("a", "2", { ifVersion: version });
    expect(await client.getText("a")).toBe("2");
  });

  test("client: commit and flush cover earlier requests", async () => {
    const client = shop({ durability: "buffered" });
    client.set("a", "1");
    await client.commit();
    client.set("a", "2");
    await client.flush();
    expect((await client.stats()).unflushed).toBe(false);
  });

  test("client: under flushed, only a batch that changed something waits for the check of the file", async () => {
    let checks = 0;
    class CheckedStorage extends FakeStorage {
      override async open() {
        const sync = async () => {
          checks += 1;
        };
        return { ...(await super.open()), sync };
      }
    }
    const client = shop({ storage: new CheckedStorage(), durability: "flushed" });
    await client.set("a", "1");
    const afterWrite = checks;
    assert(afterWrite > 0);
    expect(await client.getText("a")).toBe("1");
    expect(await client.keys().all()).toStrictEqual(["a"]);
    expect(checks).toBe(afterWrite);
    await client.flush();
    assert(checks > afterWrite);
  });

  test("client: calls are answered at every durability", async () => {
    for (const durability of ["buffered", "written", "flushed"] as const) {
      const client = shop({ durability });
      await client.set("a", durability);
      expect(await client.getText("a")).toBe(durability);
    }
  });
});

describe("client errors", () => {
  test("error: class and code are the same as in the worker", async () => {
    const client = shop();
    const error = await rejects(client.set("a", "1", { ifVersion: 7 }), {
      name: "ConflictError",
      code: "VARVE_CONFLICT",
    });
    assert(error instanceof VarveError);
    await rejects(client.get(""), { name: "TypeError", code: "VARVE_BAD_ARGUMENT" });
    await rejects(client.keys({ limit: -1 }).all(), { name: "TypeError", message: /limit/ });
  });

  test("error: it rejects one call and not the others of its message", async () => {
    const client = shop();
    const results = await Promise.allSettled([
      client.set("a", "1"),
      client.set("", "2"),
      client.set("b", "3"),
    ]);
    expect(results.map(({ status }) => status)).toStrictEqual([
      "fulfilled",
      "rejected",
      "fulfilled",
    ]);
    expect(await client.keys().all()).toStrictEqual(["a", "b"]);
  });

  test("error: arguments that cannot be cloned reject their call only", async () => {
    const client = shop();
    const before = client.set("a", "1");
    const wrong = client.set("b", (() => {}) as unknown as string);
    const after = client.set("c", "3");
    await rejects(wrong, {
      code: "VARVE_BAD_ARGUMENT",
      message: /set\(\) .*cannot be sent/,
      cause: true,
    });
    await before;
    await after;
    expect(await client.keys().all()).toStrictEqual(["a", "c"]);
  });

  test("error: a bad timeout rejects at once, and the call is not done", async () => {
    const client = shop();
    for (const timeout of [Number.NaN, Number.POSITIVE_INFINITY, 0, "10" as unknown as number]) {
      await rejects(client.set("a", "1", { timeout }), { message: /timeout/ });
    }
    expect(await client.has("a")).toBe(false);
  });

  test("error: bad and unknown options are reported, and the call is not done", async () => {
    const client = shop({ collections: { products: struct("Product", { stock: u16 }) } });
    const bad = { code: "VARVE_BAD_ARGUMENT" };
    const none = null as unknown as undefined;
    const wrong = [none, 5, { singal: 1 }, { signal: 5 }] as unknown[] as object[];
    await client.products.set("a", { stock: 1 });
    for (const options of wrong) {
      await rejects(client.get("a", options), bad);
      await rejects(client.set("a", "1", options), bad);
      await rejects(client.set("a", "1", { ...options, ifVersoin: 3 } as object), bad);
      await rejects(client.stats(options), bad);
      await rejects(client.keys({}, options).all(), bad);
      await rejects(client.verify(options), bad);
      const empty = () => new Uint8Array(1);
      await rejects(client.updateIf("a", empty, options), bad);
      await rejects(
        client.transaction((tx) => tx.get("a"), options),
        bad,
      );
      await rejects(client.products.get("a", options), bad);
      await rejects(client.products.set("a", { stock: 2 }, options), bad);
      await rejects(client.products.delete("a", options), bad);
    }
    expect(await client.has("a")).toBe(false);
    expect(await client.products.get("a")).toStrictEqual({ stock: 1 });
  });

  test("error: bad ranges, keys and lists are reported", async () => {
    const client = shop();
    const bad = { code: "VARVE_BAD_ARGUMENT" };
    const none = null as unknown as undefined;
    for (const range of [none, 5 as never, { limit: Number.NaN }, { gt: 5 as unknown as string }]) {
      await rejects(client.count(range), bad);
      await rejects(client.clear(range), bad);
      for (const scan of [client.keys(range), client.values(range), client.entries(range)]) {
        await rejects(scan.all(), bad);
        await rejects(scan[Symbol.asyncIterator]().next(), bad);
      }
    }
    await rejects(client.getMany(none as never), bad);
    await rejects(client.batch(none as never), bad);
    await rejects(client.batch([none as never]), bad);
    await rejects(client.get(none as never), bad);
    await rejects(client.set(none as never, "1"), bad);
  });

  test("error: a bad name, option or timeout throws at once", () => {
    throws(() => connect(""), { code: "VARVE_BAD_ARGUMENT" });
    throws(() => connect("shop", { wroker: 1 } as object), { message: /wroker/ });
    throws(() => connect("shop", { timeout: 0 }), { message: /timeout/ });
  });

  test("error: ready and every call reject if the database cannot be opened", async () => {
    const client = shop({
      storage: { ...memory(), open: () => Promise.reject(new Error("no disk")) },
    });
    await rejects(client.get("a"), { message: "no disk" });
    await rejects(client.ready, { message: "no disk" });
    expect(client.status.state).toBe("idle");
  });

  test("error: a wrong database name is reported with the one that the worker serves", async () => {
    const client = shop();
    await client.ready;
    const { port1, port2 } = new MessageChannel();
    const { serve } = await import("varve");
    serve("other", { storage: memory() }).listen(port1);
    const wrong = connect("shop", { worker: () => port2 });
    await rejects(wrong.get("a"), { code: "VARVE_BAD_ARGUMENT", message: /"other".*"shop"/ });
    await wrong.close();
    port1.close();
  });
});

describe("request batches", () => {
  test("batch: every call is answered, whatever another one returns or throws", async () => {
    const client = shop({
      procedures: {
        deep: (db, depth: number) => {
          db.set("deep", String(depth));
          let list: unknown[] = [];
          for (let i = 0; i < depth; i += 1) list = [list];
          return list;
        },
        chained: () => {
          const error = new RangeError("a chain");
          error.cause = error;
          throw error;
        },
        functional: () => {
          throw Object.assign(new RangeError("functional"), { reason: () => {} });
        },
        unreadable: () => {
          const name = {
            get: () => {
              throw new Error("not this one");
            },
          };
          throw Object.defineProperty(new Error("unreadable"), "name", name);
        },
      },
    });
    await client.ready;
    const { deep, chained, functional, unreadable } = client.call;
    const errors = [chained(), functional(), unreadable()];
    const beside = client.set("beside", "1");
    await rejects(errors[0]!, { name: "RangeError", message: "a chain" });
    await rejects(errors[1]!, { name: "RangeError", message: "functional" });
    await rejects(errors[2]!, { message: /cannot be read/ });
    await beside;
    for (const depth of [100, 1_000, 3_000, 6_000, 12_000, 100_000]) {
      // Messages can carry different values in each runtime. A call whose answer cannot be sent was undone.
      const answer = deep(depth).then(
        () => true,
        (error) => error.applied === true || error.code === "VARVE_BAD_ARGUMENT",
      );
      const next = client.set("next", String(depth));
      assert(await answer, String(depth));
      await next;
    }
  });

  test("batch: getMany accepts a list of keys that is generated during iteration", async () => {
    const client = shop({ collections: { products: struct("Product", { stock: u16 }) } });
    await client.products.set("a", { stock: 1 });
    await client.set("a", "1");
    const keys = function* () {
      yield "a";
      yield "b";
    };
    expect(await client.products.getMany(keys())).toStrictEqual([{ stock: 1 }, undefined]);
    expect((await client.getMany(keys())).map(text)).toStrictEqual(["1", undefined]);
  });
});

describe("an owner whose program closes its database", () => {
  test("owner: a database closed by its program is reopened with all acknowledged writes", async () => {
    const client = shop({
      procedures: {
        close: (db) => void setTimeout(() => db.close(), 0),
        put: (db) => db.set("b", "2"),
      },
    });
    await client.set("a", "1");
    let received: unknown;
    const watching = client.watch({}, (changes) => {
      received = changes.map(({ key }) => key);
    });
    await client.call.close();
    await new Promise((resolve) => setTimeout(resolve, 20));
    await client.call.put();
    expect(await client.getText("b")).toBe("2");
    expect(await client.getText("a")).toBe("1");
    while (received === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
    expect(received).toStrictEqual(["b"]);
    watching.close();
    await watching.ended;
  });
});

describe("an owner whose database is poisoned", () => {
  test("owner: a poisoned database is reopened with all acknowledged writes", async () => {
    const plain = memory();
    let fails = false;
    const storage: Storage = {
      ...plain,
      async open(name, mode) {
        const { file } = await plain.open(name, mode);
        const flush = () => {
          if (fails) throw new Error("the disk is gone");
        };
        const close = () => file.close();
        const { read, write, truncate, getSize } = file;
        const calls = { read, write, truncate, getSize };
        for (const [call, of] of Object.entries(calls))
          Object.assign(calls, { [call]: of.bind(file) });
        return { file: { ...calls, flush, close } };
      },
    };
    const client = shop({ storage, durability: "flushed" });
    await client.set("a", "1");
    fails = true;
    await rejects(client.set("b", "2"));
    fails = false;
    await rejects(client.set("c", "3"), { code: "VARVE_DATABASE_POISONED" });
    await client.set("d", "4");
    expect(await client.getText("a")).toBe("1");
    expect(await client.getText("d")).toBe("4");
  });
});

describe("an await using block", () => {
  test("await using: the client closes at the end, after its requests are answered", async () => {
    let late: Promise<void>;
    let kept: { get(key: string): Promise<unknown> };
    {
      await using client = shop();
      late = client.set("a", "1");
      kept = client;
    }
    await late;
    await rejects(kept.get("a"), { code: "VARVE_DATABASE_CLOSED" });
  });
});

describe("calls and their end", () => {
  test("call: aborting rejects with the reason of the signal", async () => {
    const client = shop();
    await client.ready;
    const controller = new AbortController();
    const call = client.get("a", { signal: controller.signal });
    controller.abort(new Error("not wanted"));
    await rejects(call, { message: "not wanted" });
    await rejects(client.get("a", { signal: controller.signal }), { message: "not wanted" });
    // The request was never sent, and later requests are done.
    await client.set("a", "1");
    expect(await client.getText("a")).toBe("1");
  });

  test("call: cancelling a sent call does not keep later calls from being done", async () => {
    const client = shop();
    await client.ready;
    const controller = new AbortController();
    const call = client.set("a", "1", { signal: controller.signal });
    await Promise.resolve();
    await new Promise((resolve) =>
      queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => resolve(0)))),
    );
    controller.abort();
    await rejects(call, { name: "AbortError" });
    await client.set("b", "2");
    expect(await client.getText("b")).toBe("2");
  });

  test("call: one made before close is answered, and one made after it rejects", async () => {
    const client = shop();
    const set = client.set("a", "1");
    const closing = client.close();
    await set;
    await closing;
    const late = await rejects(client.get("a"), { code: "VARVE_DATABASE_CLOSED" });
    assert(late instanceof DatabaseClosedError);
    expect(client.status.state).toBe("closed");
  });

  test("call: every method is refused after close", async () => {
    const client = shop({
      collections: {
        products: { of: struct("Product", { price: u32 }), indexes: { byPrice: "price" } },
      },
    });
    const { products } = client;
    await client.close();
    const received = () => {};
    await refuseAll(client, {
      addEventListener: "stays",
      batch: (of) => of.batch([]),
      call: "stays",
      clear: (of) => of.clear(),
      close: "stays",
      collection: "stays",
      commit: (of) => of.commit(),
      compact: (of) => of.compact(),
      count: (of) => of.count(),
      delete: (of) => of.delete("a"),
      dispatchEvent: "stays",
      entries: (of) => of.entries().all(),
      export: (of) => of.export(),
      flush: (of) => of.flush(),
      get: (of) => of.get("a"),
      getEntry: (of) => of.getEntry("a"),
      getMany: (of) => of.getMany(["a"]),
      getText: (of) => of.getText("a"),
      has: (of) => of.has("a"),
      keys: (of) => of.keys().all(),
      log: (of) => of.log()[Symbol.asyncIterator]().next(),
      live: (of) => of.live({}, received),
      products: "stays",
      ready: (of) => of.ready,
      removeEventListener: "stays",
      set: (of) => of.set("a", "1"),
      stats: (of) => of.stats(),
      status: "stays",
      touch: (of) => of.touch("a", { expireIn: 1 }),
      transaction: (of) => of.transaction((tx) => tx.get("a")),
      updateIf: (of) => of.updateIf("a", () => "2"),
      values: (of) => of.values().all(),
      verify: (of) => of.verify(),
      watch: (of) => of.watch({}, received),
    });
    await refuseAll(products, {
      batch: (of) => of.batch([]),
      clear: (of) => of.clear(),
      count: (of) => of.count(),
      delete: (of) => of.delete("a"),
      entries: (of) => of.entries().all(),
      get: (of) => of.get("a"),
      getEntry: (of) => of.getEntry("a"),
      getMany: (of) => of.getMany(["a"]),
      has: (of) => of.has("a"),
      index: "stays",
      keys: (of) => of.keys().all(),
      live: (of) => of.live({}, received),
      name: "stays",
      push: (of) => of.push({ price: 1 }),
      set: (of) => of.set("a", { price: 1 }),
      touch: (of) => of.touch("a", { expireIn: 1 }),
      update: (of) => of.update("a", { set: { price: 2 } }),
      updateIf: (of) => of.updateIf("a", () => {}),
      values: (of) => of.values().all(),
      views: "stays",
      watch: (of) => of.watch({}, received),
    });
    await refuseAll(products.index.byPrice, {
      count: (of) => of.count(),
      entries: (of) => of.entries().all(),
      get: (of) => of.get(1),
      keys: (of) => of.keys().all(),
      name: "stays",
      values: (of) => of.values().all(),
    });
  });

  test("call: without an owner it times out and reports that it was not done", async () => {
    const { port1, port2 } = new MessageChannel();
    const client = connect("shop", { worker: () => port2, timeout: 150 });
    const error = await rejects(client.set("a", "1"), { code: "VARVE_OWNER_UNAVAILABLE" });
    expect((error as { applied?: unknown }).applied).toBe(false);
    await client.close();
    port1.close();
  });
});

describe("a port given to two clients", () => {
  const refused = { code: "VARVE_STORAGE_UNAVAILABLE", message: /needs its own worker/ };

  /** A served port, and clients that all get the same port. */
  const shared = () => {
    const { port1, port2 } = new MessageChannel();
    serve("shop", { storage: memory(), ...wasmOption() }).listen(port1);
    onTestFinished(() => port1.close());
    const another = () => {
      const client = connect("shop", { worker: () => port2 });
      onTestFinished(() => client.close());
      return client;
    };
    return { port2, another };
  };

  test("port: a second client is refused, since it would receive the answers to the first", async () => {
    const { another } = shared();
    const first = another();
    await first.batch([
      { type: "set", key: "a", value: "first" },
      { type: "set", key: "b", value: "second" },
    ]);
    const second = another();
    // The two clients number their calls alike from here on.
    await rejects(second.has("a"), refused);
    const [mine, yours] = [first.getText("a"), second.getText("b")];
    await rejects(yours, refused);
    expect(await mine).toBe("first");
    await rejects(second.ready, refused);
    expect(second.status.state).toBe("idle");
    await second.close();
    expect(await first.getText("b")).toBe("second");
  });

  test("port: it is refused also after the first client has closed it", async () => {
    const { another } = shared();
    const first = another();
    await first.set("a", "first");
    await first.close();
    await rejects(another().getText("a"), refused);
  });

  test("port: one that cannot be closed is accepted again", async () => {
    const { port2 } = shared();
    const endless = {
      postMessage: (message: unknown) => port2.postMessage(message),
      addEventListener: (type: string, listener: (event: Event) => void) =>
        port2.addEventListener(type, listener),
      start: () => port2.start(),
    };
    onTestFinished(() => port2.close());
    for (const value of ["first", "second"]) {
      const client = connect("shop", { worker: () => endless });
      await client.set("a", value);
      expect(await client.getText("a")).toBe(value);
      await client.close();
    }
  });
});

describe("arguments of procedures", () => {
  test("procedure: arguments are copied at the call", async () => {
    const client = shop({ procedures: { keep: (_db, of: { list: number[] }) => of.list } });
    const of = { list: [1, 2] };
    const kept = client.call.keep(of);
    of.list.push(3);
    expect(await kept).toStrictEqual([1, 2]);
    const wrong = (() => {}) as unknown as { list: number[] };
    const refused = { code: "VARVE_BAD_ARGUMENT", message: /keep\(\) .*\[1\] is a function/ };
    await rejects(client.call.keep(wrong), refused);
  });
});

describe("procedures", () => {
  const procedures = {
    buy(db: Database, id: string) {
      const one = (stock: Uint8Array) => {
        stock[0]! -= 1;
      };
      return db.updateIf(id, one, { predicate: (stock) => stock[0]! > 0 });
    },
    fail(db: Database) {
      db.set("trace", "1");
      throw new RangeError("sold out");
    },
    view: (db: Database, key: string) => ({ views: [db.get(key)] }),
    wait: (_: Database): unknown => Promise.resolve(),
  };

  test("procedure: it is called by name, with arguments and an answer", async () => {
    const client = shop({ procedures });
    await client.set("yeezy", new Uint8Array([2]));
    const sold = await Promise.all([1, 2, 3].map(() => client.call.buy("yeezy")));
    expect(sold).toStrictEqual([true, true, false]);
  });

  test("procedure: a throw undoes its writes", async () => {
    const client = shop({ procedures });
    await rejects(client.call.fail(), { name: "RangeError", message: "sold out" });
    expect(await client.has("trace")).toBe(false);
  });

  test("procedure: views in an answer arrive as copies", async () => {
    const client = shop({ procedures });
    await client.set("a", "view");
    const { views } = await client.call.view("a");
    expect(text(views[0])).toBe("view");
    expect(views[0]?.buffer.byteLength).toBe(4);
  });

  test("procedure: an answer that cannot be cloned undoes its writes", async () => {
    const client = shop({
      collections: { products: struct("Product", { stock: u16 }) },
      procedures: {
        scan: (db) => {
          db.set("trace", "1");
          return { found: [db.entries()] };
        },
        code: (db) => {
          db.set("trace", "1");
          return () => db as unknown;
        },
        first: (db) =>
          db.collection("products", struct("Product", { stock: u16 })).get("yeezy") as unknown,
        when: () => new Date(7),
      },
    });
    const refused = { code: "VARVE_BAD_ARGUMENT", message: /structuredClone/ };
    const asked = [client.call.scan(), client.call.code(), client.call.when()] as const;
    await rejects(asked[0], refused);
    await rejects(asked[1], refused);
    expect((await asked[2]).getTime()).toBe(7);
    expect(await client.has("trace")).toBe(false);
    await client.products.set("yeezy", { stock: 3 });
    expect(await client.call.first()).toStrictEqual({ stock: 3 });
  });

  test("procedure: circular and shared references in an answer are kept", async () => {
    const client = shop({
      procedures: {
        ring: (db) => {
          const view = db.get("a");
          const ring: { me?: unknown; list: unknown[] } = { list: [view, new Date(7)] };
          ring.me = ring;
          ring.list.push(ring.list, ring.list[1], new Map([[ring, new Set([ring])]]));
          return ring;
        },
        prototype: () => JSON.parse('{"__proto__": {"a": 1}, "b": 2}') as object,
      },
    });
    await client.set("a", "view");
    const ring = await client.call.ring();
    expect(ring.me).toBe(ring);
    expect(text(ring.list[0] as Uint8Array)).toBe("view");
    expect(ring.list[2]).toBe(ring.list);
    expect((ring.list[1] as Date).getTime()).toBe(7);
    expect(ring.list[3]).toBe(ring.list[1]);
    assert((ring.list[4] as Map<unknown, Set<unknown>>).get(ring)?.has(ring));
    expect(Object.keys(await client.call.prototype())).toStrictEqual(["__proto__", "b"]);
  });

  test("procedure: a thrown value that is no error is reported to the caller", async () => {
    const client = shop({
      procedures: {
        object: () => {
          throw { status: 404 };
        },
        nothing: () => {
          throw null;
        },
      },
    });
    await rejects(client.call.object(), { name: "Error", message: "an Object was thrown." });
    await rejects(client.call.nothing(), { name: "Error", message: "null" });
  });

  test("procedure: async functions and unknown names are refused", async () => {
    const client = shop({ procedures });
    await rejects(client.call.wait(), { code: "VARVE_BAD_ARGUMENT", message: /synchronous/ });
    const { call } = client as unknown as { call: { sell(): Promise<void> } };
    await rejects(call.sell(), { message: /no procedure "sell".*buy/ });
  });
});
