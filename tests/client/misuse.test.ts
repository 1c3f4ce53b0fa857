/** Clients that are misused: every call is rejected at once, none hangs, and none is done partially. */

import { type Bytes, type Client, connect, type TextRange } from "varve";
import { blob, json, str, struct, u16 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { replaceClock } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { bytes, ofAnotherRealm, text, turn, until } from "../support/values.js";
import { shop } from "./support.js";

const BAD = { code: "VARVE_BAD_ARGUMENT" };

type Change = () => undefined;
type Predicate = () => boolean;

const stocked = () =>
  shop({
    collections: {
      products: struct("Product", { stock: u16 }),
      files: { of: json<number>(), key: blob },
      parts: { of: json<number>(), key: [str, blob] },
    },
  });

describe("a worker of another version of varve", () => {
  test("its page gets an error, before anything is done", async () => {
    const relay = (server: MessagePort): MessagePort => {
      const { port1, port2 } = new MessageChannel();
      onTestFinished(() => port1.close());
      port1.onmessage = ({ data, ports }) => {
        const older = data.type === "init" ? { ...data, protocol: data.protocol - 1 } : data;
        server.postMessage(older, [...ports]);
      };
      server.onmessage = ({ data, ports }) => port1.postMessage(data, [...ports]);
      return port2;
    };
    const client = shop({}, { relay, timeout: 5_000 });
    await rejects(client.set("a", "1"), {
      code: "VARVE_VERSION_CHANGED",
      message: "are of two versions of varve",
    });
  });
});

describe("a worker that never answers", () => {
  test("silent worker: calls that time out name it, and what its file needs", async () => {
    const { port1, port2 } = new MessageChannel();
    onTestFinished(() => port1.close());
    const client = connect("silent", { worker: () => port2, timeout: 50 });
    const message =
      /^get\(\) on "silent" was not answered in time\. It was not done\. Its worker has not answered at all: .*export default serve/;
    await rejects(client.get("a"), { code: "VARVE_OWNER_UNAVAILABLE", message });
    await client.close();
  });

  test("silent worker: one that has answered before is not named", async () => {
    const client = shop({ procedures: {} }, { timeout: 1 });
    await client.ready;
    const scan = client.get("a", { timeout: 60_000 });
    await scan;
    const lapsed = await client.get("a", { timeout: 0.001 }).catch((error: Error) => error);
    expect(/has not answered at all/.test(String(lapsed))).toBe(false);
  });
});

describe("extra arguments of calls", () => {
  test("call: options in the wrong argument are refused", async () => {
    const client = stocked();
    await client.products.set("a", { stock: 1 });
    const loosely = (call: unknown) => call as (...args: unknown[]) => unknown;
    const late = client.transaction(async (tx) => loosely(tx.set)("a", "1", { ifVersion: 9 }));
    await rejects(late, { ...BAD, message: /set\(\) of a transaction has no option "ifVersion"/ });
    const update = loosely(client.products.update).bind(client.products);
    const within = { ...BAD, message: /update\(\) takes its options within its second argument/ };
    throws(() => update("a", { add: { stock: 1 } }, { timeout: 5 }), within);
    const batch = client.batch([{ type: "delete", key: "a", ifVersion: 1 } as never]);
    await rejects(batch, { ...BAD, message: /"ifVersion"/ });
    await rejects(client.delete("a", { ifVersion: 1 } as object), { ...BAD, message: /ifVersion/ });
    for (const call of [client.watch, client.live].map(loosely)) {
      const more = { ...BAD, message: /takes a listener or options/ };
      throws(() => call.call(client, {}, () => {}, { signal: AbortSignal.abort() }), more);
    }
    for (const call of [client.products.watch, client.products.live].map(loosely)) {
      const more = { ...BAD, message: /takes a listener or options/ };
      throws(() => call.call(client.products, {}, () => {}, { signal: AbortSignal.abort() }), more);
    }
    expect(await client.has("a")).toBe(false);
    expect(await client.products.get("a")).toStrictEqual({ stock: 1 });
  });
});

describe("callbacks of clients", () => {
  test("callback: generators are refused, because they would never run", async () => {
    const client = stocked();
    await client.set("a", "1");
    await client.products.set("a", { stock: 1 });
    let runs = 0;
    const generators: unknown[] = [
      function* () {
        runs += 1;
        yield;
      },
      async function* () {
        runs += 1;
        yield;
      },
    ];
    for (const generator of generators) {
      const refused = { ...BAD, message: /transaction\(\).*generator/ };
      await rejects(client.transaction(generator as Change), refused);
      // Also if the key gets a value later, whatever was to be written.
      const late = client.transaction(async (tx) => {
        tx.set("a", "2");
        return (generator as () => unknown)();
      });
      await rejects(late, refused);
      const returns = { ...BAD, message: /must return the new value or nothing/ };
      await rejects(client.updateIf("a", generator as Change), returns);
      await rejects(client.products.updateIf("a", generator as Change), returns);
      const badResult = { ...BAD, message: /must return true or false/ };
      const predicate = generator as Predicate;
      await rejects(
        client.updateIf("a", () => "2", { predicate }),
        badResult,
      );
    }
    expect(runs).toBe(0);
    expect(await client.getText("a")).toBe("1");
    expect(await client.products.get("a")).toStrictEqual({ stock: 1 });
  });

  test("listener: generators are refused, and async functions are accepted", async () => {
    const client = stocked();
    const refused = { ...BAD, message: /watch takes a function, not a generator/ };
    const generators = [function* () {}, async function* () {}] as unknown[] as (() => void)[];
    for (const generator of generators) {
      throws(() => client.watch({}, generator), refused);
      throws(() => client.live({}, generator), refused);
      throws(() => client.products.watch({}, generator), refused);
      throws(() => client.products.live({}, generator), refused);
    }
    let calls = 0;
    const listener = async () => {
      calls += 1;
    };
    client.watch({}, listener);
    client.live({}, listener);
    await client.set("a", "1");
    await until(() => calls >= 2);
  });

  test("callback: values that are no functions are refused, also if the key is missing", async () => {
    const client = stocked();
    for (const none of [undefined, null, 5, {}] as unknown[]) {
      await rejects(client.transaction(none as Change), BAD);
      await rejects(client.updateIf("a", none as Change), BAD);
      await rejects(client.products.updateIf("a", none as Change), BAD);
      if (none === undefined) continue;
      const predicate = none as Predicate;
      await rejects(
        client.updateIf("a", () => "2", { predicate }),
        BAD,
      );
    }
  });

  test("callback: a refused async function leaves no unhandled rejection", async () => {
    const client = stocked();
    await client.set("a", "1");
    let taken = 0;
    const later = () => {
      const promise = Promise.resolve();
      promise.catch = () => {
        taken += 1;
        return promise;
      };
      return promise;
    };
    await rejects(client.updateIf("a", later), BAD);
    const predicate = later as unknown as Predicate;
    await rejects(
      client.updateIf("a", () => "2", { predicate }),
      BAD,
    );
    expect(taken).toBe(2);
    expect(await client.getText("a")).toBe("1");
  });
});

describe("bad options of clients", () => {
  test("options: bad ones are refused before anything is read or run", async () => {
    const client = stocked();
    await client.set("a", "1");
    let runs = 0;
    const run = () => {
      runs += 1;
    };
    const wrong: object[] = [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 60, "3", null].map(
      (retries) => ({ retries }),
    );
    wrong.push({ retires: 3 }, { predicate: null }, { signal: { aborted: false } });
    for (const options of wrong) {
      await rejects(client.transaction(run, options), BAD);
      await rejects(client.updateIf("a", run, options), BAD);
      await rejects(client.products.updateIf("a", run, options), BAD);
    }
    // A transaction does not take this option.
    await rejects(client.transaction(run, { predicate: () => true } as object), BAD);
    expect(runs).toBe(0);
    expect(await client.getText("a")).toBe("1");
  });

  test("options: a bad version throws at once, with the same error", () => {
    for (const version of [-1, 1.5, Number.NaN, "1", null] as unknown[] as number[]) {
      throws(() => connect("shop", { version }), { ...BAD, message: /version must be an integer/ });
    }
  });

  test("options: undefined options of a retry are accepted", async () => {
    const client = stocked();
    let runs = 0;
    const meddling = client.transaction(
      async (tx) => {
        runs += 1;
        await tx.get("a");
        await client.set("a", "1");
        tx.set("a", "2");
      },
      { retries: 0 },
    );
    await rejects(meddling, { code: "VARVE_CONFLICT" });
    expect(runs).toBe(1);
  });
});

describe("bytes of another realm", () => {
  const buffer = (of: string) => ofAnotherRealm(bytes(of).slice().buffer as ArrayBuffer);

  test("foreign bytes: they are keys and values, whatever buffer they are in", async () => {
    const client = stocked();
    await client.set(buffer("a"), buffer("one"));
    expect(await client.getText("a")).toBe("one");
    expect(await client.getText(ofAnotherRealm(bytes("a")))).toBe("one");
    await client.batch([{ type: "set", key: buffer("b"), value: ofAnotherRealm(bytes("two")) }]);
    expect((await client.getMany([buffer("b"), "a"])).map(text)).toStrictEqual(["two", "one"]);
    expect(await client.updateIf("a", () => buffer("three"))).toBe(true);
    await client.transaction(async (tx) => {
      expect(await tx.getText(buffer("a"))).toBe("three");
      tx.set(buffer("b"), buffer("four"));
      expect(await tx.getText("b")).toBe("four");
    });
    expect(await client.keys({ gte: buffer("b") }).all()).toStrictEqual(["b"]);
  });

  test("foreign bytes: they are keys of collections", async () => {
    const client = stocked();
    await client.files.set(ofAnotherRealm(Uint8Array.of(1)), 1);
    expect(await client.files.get(Uint8Array.of(1))).toBe(1);
    await client.parts.set(["a", ofAnotherRealm(Uint8Array.of(1))], 2);
    expect(await client.parts.get(["a", Uint8Array.of(1)])).toBe(2);
  });
});

describe("detached bytes", () => {
  const bad = { ...BAD, name: "TypeError", message: /detached/ };
  const transferred = () => {
    const of = (make: (buffer: ArrayBuffer) => Bytes) => {
      const given = make(Uint8Array.of(1, 2, 3, 4).buffer);
      const buffer = given instanceof ArrayBuffer ? given : (given.buffer as ArrayBuffer);
      structuredClone(buffer, { transfer: [buffer] });
      return given;
    };
    return [
      of((buffer) => buffer),
      of((buffer) => new Uint8Array(buffer)),
      of((buffer) => new Uint16Array(buffer, 2)),
      of((buffer) => new DataView(buffer)),
    ];
  };

  test("detached bytes: every call refuses them as keys, as it does other bad keys", async () => {
    const client = stocked();
    await client.set("a", "1");
    for (const gone of transferred()) {
      const range = { gte: gone };
      for (const call of [
        () => client.get(gone),
        () => client.getMany(["a", gone]),
        () => client.set(gone, "1"),
        () => client.set("b", gone),
        () => client.delete(gone),
        () => client.batch([{ type: "delete", key: gone }]),
        () => client.updateIf(gone, () => "1", { valueIfMissing: "1" }),
        () => client.transaction((tx) => tx.get(gone)),
        () => client.transaction((tx) => tx.set(gone, "1")),
        () => client.transaction((tx) => tx.set("b", gone)),
        () => client.transaction((tx) => tx.delete(gone)),
        () => client.keys(range).all(),
        () => client.keys(range)[Symbol.asyncIterator]().next(),
        () => client.count({ prefix: gone }),
        () => client.clear(range),
        () => client.watch(range as TextRange).next(),
        () => client.live(range as TextRange).next(),
      ]) {
        await rejects(call(), bad);
      }
      throws(() => client.watch(range as TextRange, () => {}), bad);
      throws(() => client.live(range as TextRange, () => {}), bad);
    }
    expect(await client.keys().all()).toStrictEqual(["a"]);
  });

  test("detached bytes: reads, transactions and watches of collections refuse them as keys", async () => {
    const client = stocked();
    const { files, parts } = client;
    for (const gone of transferred() as Uint8Array<ArrayBuffer>[]) {
      for (const call of [
        () => files.get(gone),
        () => files.getMany([gone]),
        () => parts.get(["a", gone]),
        () => files.updateIf(gone, () => 1, { valueIfMissing: 1 }),
        () => client.transaction((tx) => tx.files.get(gone)),
        () => client.transaction((tx) => tx.files.set(gone, 1)),
        () => client.transaction((tx) => tx.files.delete(gone)),
        () => files.entries({ lt: gone }).all(),
        () => files.watch({ lt: gone }).next(),
        () => files.live({ lt: gone }).next(),
      ]) {
        await rejects(call(), bad);
      }
    }
  });
});

describe("keys of a client's transaction", () => {
  test("transaction key: bytes are distinguished by content, whatever buffer they are in", async () => {
    const client = stocked();
    const { files } = client;
    await client.transaction((tx) => {
      const given = tx.files as unknown as { set(key: unknown, value: number): void };
      given.set(Uint8Array.of(1).buffer, 1);
      given.set(Uint8Array.of(2).buffer, 2);
      given.set(new DataView(Uint8Array.of(3).buffer), 3);
      given.set(Uint16Array.of(4), 4);
      // Equal bytes are the same key.
      given.set(Uint8Array.of(2), 5);
    });
    const found = await files.entries().all();
    expect(found.map(([key, value]) => [...key, value])).toStrictEqual([
      [1, 1],
      [2, 5],
      [3, 3],
      [4, 0, 4],
    ]);
  });

  test("transaction key: bad keys are refused, and nothing is written", async () => {
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
    expect(await client.count()).toBe(0);
  });
});

describe("arguments of calls", () => {
  test("call: arguments are copied at the call, keys of collections too", async () => {
    const client = stocked();
    await client.files.set(Uint8Array.of(7), 7);
    const key = Uint8Array.of(7);
    const range = { gte: key };
    const asked = [client.files.get(key), client.files.count(range)];
    key[0] = 8;
    expect(await Promise.all(asked)).toStrictEqual([7, 1]);
  });

  test("call: valueIfMissing is passed to updateIf as bytes, also if it is empty", async () => {
    const client = stocked();
    let found: unknown;
    const change = (value: Uint8Array) => {
      found = value;
      return "x";
    };
    expect(await client.updateIf("a", change, { valueIfMissing: "" })).toBe(true);
    expect(found).toStrictEqual(new Uint8Array(0));
    await rejects(
      client.updateIf("b", () => {}, { valueIfMissing: "\ud800" }),
      BAD,
    );
    expect(await client.has("b")).toBe(false);
  });
});

describe("aborted transactions", () => {
  const wanted = { message: "not wanted" };

  test("transaction: it does not begin if its signal was aborted before", async () => {
    const client = stocked();
    const signal = AbortSignal.abort(new Error("not wanted"));
    let runs = 0;
    const run = () => {
      runs += 1;
    };
    await rejects(client.transaction(run, { signal }), wanted);
    await rejects(client.updateIf("a", run, { signal, valueIfMissing: "1" }), wanted);
    expect(runs).toBe(0);
  });

  test("transaction: aborting rejects at once, and nothing more is written", async () => {
    const client = stocked();
    const controller = new AbortController();
    let goOn = () => {};
    const hanging = client.transaction(
      async (tx) => {
        tx.set("a", "1");
        await new Promise<void>((resolve) => {
          goOn = resolve;
        });
        tx.set("b", "1");
      },
      { signal: controller.signal },
    );
    await turn();
    controller.abort(new Error("not wanted"));
    await rejects(hanging, wanted);
    goOn();
    await turn(20);
    expect(await client.count()).toBe(0);
  });

  test("transaction: aborting in the retry queue rejects at once, and the others proceed", async () => {
    const client = stocked();
    await client.set("n", "0");
    // No turn in the retry queue ends because it has lasted too long.
    const real = replaceClock({
      setTimeout: (act, ms = 0) => real.setTimeout(ms === 1_000 ? () => {} : act, ms),
    });
    let waiting = 0;
    let isFirst = false;
    /** Causes a conflict, so that the transaction enters the retry queue. */
    const meeting = (then: () => unknown, signal?: AbortSignal) => {
      let runs = 0;
      return client.transaction(
        async (tx) => {
          runs += 1;
          const n = Number(await tx.getText("n"));
          if (runs === 1) {
            await client.set("n", `${n}`);
            waiting += 1;
          } else await then();
          tx.set("n", `${n + 1}`);
        },
        { signal },
      );
    };
    const [first, second] = [new AbortController(), new AbortController()];
    const hanging = meeting(() => {
      isFirst = true;
      return new Promise(() => {});
    }, first.signal);
    await until(() => isFirst);
    const behind = meeting(() => {}, second.signal);
    const last = meeting(() => {});
    await until(() => waiting === 3);
    await client.has("n");
    await turn(20);
    second.abort(new Error("not wanted"));
    await rejects(behind, wanted);
    first.abort(new Error("not wanted"));
    await rejects(hanging, wanted);
    await last;
    expect(await client.getText("n")).toBe("1");
  });
});

describe("a client closed after its worker was ended", () => {
  test("close: it waits for earlier requests, and answers every one", async () => {
    const { port1, port2 } = new MessageChannel();
    onTestFinished(() => port1.close());
    const client = connect("shop", { worker: () => port2, timeout: 50 });
    let isGone = false;
    port1.onmessage = ({ data }) => {
      if (data.type === "release") isGone = true;
    };
    port1.postMessage({ type: "ready", channel: undefined, build: "0.1.x" });
    const here = { type: "owner", owner: "elsewhere", client: 0, round: 0 };
    const ready = client.ready;
    port1.postMessage(here);
    await ready;
    port1.postMessage({ type: "failed", error: { name: "Error", message: "it has ended" } });
    await until(() => isGone);
    const late = client.set("a", "1");
    const [closing, again] = [client.close(), client.close()];
    await rejects(late, { code: "VARVE_OWNER_UNAVAILABLE" });
    await closing;
    await again;
    expect((client as Client).status.state).toBe("closed");
    await rejects(client.get("a"), { code: "VARVE_DATABASE_CLOSED" });
  });
});

describe("arguments that are neither text nor bytes", () => {
  test("call: a Blob, a promise, a stream or a Map as key or value is refused by what it is", async () => {
    const client = stocked();
    const given: [unknown, RegExp][] = [
      [new Blob(["x"]), /Await the bytes .*Given: Blob/],
      [new Response("x"), /Await the bytes .*Given: Response/],
      [new Response("x").body, /stream.*Given: ReadableStream/],
      [Promise.resolve("x"), /promise.*Given: Promise/],
      // biome-ignore lint/suspicious/noThenProperty: the object under test is a thenable, as the queries of ORMs are.
      [{ then: () => {} }, /promise/],
      [new Map([["a", "1"]]), /Given: Map/],
      [new Set(["a"]), /Given: Set/],
      [new Proxy(new Uint8Array(2), {}), /no Proxy/],
    ];
    for (const [one, message] of given) {
      const none = one as string;
      const gone = one as Uint8Array<ArrayBuffer>;
      const refused = { ...BAD, name: "TypeError", message };
      for (const call of [
        () => client.set("b", none),
        () => client.set(none, "b"),
        () => client.get(none),
        () => client.getMany([none]),
        () => client.delete(none),
        () => client.batch([{ type: "set", key: "b", value: none }]),
        () => client.batch([{ type: "delete", key: none }]),
        () => client.updateIf(none, () => {}),
        () => client.updateIf("b", () => {}, { valueIfMissing: none }),
        () => client.transaction((tx) => tx.set("b", none)),
        () => client.transaction((tx) => tx.get(none)),
        () => client.count({ prefix: none }),
        () => client.files.get(gone),
        () => client.files.getMany([gone]),
        () => client.files.set(gone, 1),
        () => client.files.delete(gone),
        () => client.files.batch([{ type: "delete", key: gone }]),
      ]) {
        await rejects(call(), refused);
      }
    }
    expect(await client.count()).toBe(0);
    expect(await client.getMany(new Set(["a"]))).toStrictEqual([undefined]);
    expect(await client.files.getMany(new Set([Uint8Array.of(1)]))).toStrictEqual([undefined]);
  });
});

describe("what a client needs", () => {
  test("connect: without a worker the error says so, and what to do", async () => {
    // In a browser it would be the package's own worker.
    const client = connect("workerless", { worker: (() => 5) as never });
    await rejects(client.get("a"), { message: /needs its own worker/ });
    if (typeof Worker === "function") return;
    const none = connect("none");
    await rejects(none.get("a"), {
      code: "VARVE_STORAGE_UNAVAILABLE",
      message: /^connect\("none"\) needs its own worker\. On a server use open\(\)/,
    });
  });

  test("procedure: one that returns a promise is named in the error", async () => {
    const client = shop({ procedures: { later: (() => Promise.resolve(1)) as () => unknown } });
    await rejects(client.call.later(), {
      ...BAD,
      message: /^The procedure "later" of serve\(\) must be synchronous, but it returned a promise/,
    });
  });

  test("updateIf: null is a value, as in the database itself", async () => {
    const client = shop({
      collections: { notes: json<unknown>() },
      procedures: {
        local: (db) => {
          const notes = db.collection("notes", json<unknown>());
          notes.set("local", 1);
          notes.updateIf("local", () => null);
        },
      },
    });
    await client.call.local();
    await client.notes.set("a", 1);
    expect(await client.notes.updateIf("a", () => null)).toBe(true);
    expect(await client.notes.values().all()).toStrictEqual([null, null]);
    expect(await client.notes.updateIf("a", () => undefined)).toBe(true);
    await client.set("raw", "1");
    await rejects(
      client.updateIf("raw", () => null),
      BAD,
    );
    expect(await client.getText("raw")).toBe("1");
  });
});

describe("misleading arguments", () => {
  test("call: an argument with overridden properties is taken as it is at the call", async () => {
    const client = shop({
      collections: {
        rows: { of: json<unknown>(), key: [str, u16] },
        blobs: { of: json<unknown>(), key: blob },
      },
      procedures: { size: (_, given: Uint8Array) => given.length },
    });
    class Sub extends Uint8Array<ArrayBuffer> {
      override get length(): number {
        return 1 << 20;
      }
      override get byteLength(): number {
        return 1;
      }
      override get byteOffset(): number {
        return 2;
      }
    }
    let calls = 0;
    const meddle = () => {
      calls += 1;
      client.set("meanwhile", String(calls));
    };
    const lying = (length: number) =>
      Object.defineProperty(new Uint8Array(5).fill(65), "length", {
        get() {
          meddle();
          return length;
        },
      });
    for (const make of [
      () => new Sub(new ArrayBuffer(5)).fill(65),
      () => lying(1),
      () => lying(4_000),
      () => lying(-1),
    ]) {
      const key = make();
      const value = make();
      const done = [client.set(key, value), client.blobs.set(key, "typed")];
      key.fill(66);
      value.fill(66);
      await Promise.all(done);
      expect(await client.getText("AAAAA")).toBe("AAAAA");
      expect(await client.blobs.get(new Uint8Array(5).fill(65))).toBe("typed");
      expect((await client.getMany([make(), "AAAAA"])).map(text)).toStrictEqual(["AAAAA", "AAAAA"]);
      expect(await client.call.size(new Uint8Array(5))).toBe(5);
      expect(await client.delete(make())).toBe(true);
      expect(await client.blobs.delete(make())).toBe(true);
    }
    const parts = ["a", 1] as [string, number];
    const key = Object.defineProperty([...parts] as typeof parts, 1, {
      get() {
        meddle();
        return 1;
      },
    });
    const set = client.rows.set(key, "first");
    key[0] = "changed";
    await set;
    key[0] = "a";
    expect(await client.rows.get(key)).toBe("first");
    expect(await client.rows.get(parts)).toBe("first");
    expect(await client.rows.getMany([key, parts])).toStrictEqual(["first", "first"]);
    expect(await client.rows.updateIf(key, () => "second")).toBe(true);
    expect(await client.transaction((tx) => tx.rows.get(key))).toBe("second");
    expect(await client.rows.keys({ gte: key, lte: key }).all()).toStrictEqual([parts]);
    const value = {
      get field() {
        meddle();
        return calls;
      },
    };
    await client.rows.set(parts, value);
    expect(await client.rows.get(parts)).toStrictEqual({ field: calls });
    expect(await client.getText("meanwhile")).toBe(String(calls));
  });

  test("call: bytes in growable, shrinking or shared memory are read once", async () => {
    const client = shop({});
    const make = ArrayBuffer as new (
      length: number,
      more?: object,
    ) => ArrayBuffer & {
      resize?(length: number): void;
    };
    const buffer = new make(100, { maxByteLength: 2_000 });
    if (typeof buffer.resize === "function") {
      const whole = new Uint8Array(buffer).fill(7);
      const sets = [client.set("array", whole), client.set("buffer", buffer)];
      buffer.resize(2_000);
      await Promise.all(sets);
      for (const key of ["array", "buffer"]) {
        expect(await client.get(key)).toStrictEqual(new Uint8Array(100).fill(7));
      }
      const part = new Uint8Array(buffer, 50, 50);
      buffer.resize(10);
      // The view is out of bounds, and so has no bytes.
      const answer = await client.set("part", part).then(
        () => "set",
        ({ code }) => code,
      );
      assert(answer === BAD.code || (await client.get("part"))?.length === 0, answer);
    }
    if (typeof SharedArrayBuffer === "function") {
      const shared = new Uint8Array(new SharedArrayBuffer(100)).fill(8);
      const set = client.set("shared", shared as never);
      shared.fill(1);
      await set;
      expect(await client.get("shared")).toStrictEqual(new Uint8Array(100).fill(8));
    }
  });
});
