/** `watch` and `live` of a database, its collections and their indexes, compared with what reads show. */

import type { Database, KeyChange, Watching } from "varve";
import { text as codecOfText, json, str, struct, u32 } from "varve/struct";
import { assert, expect, onTestFinished, test } from "vitest";
import { context } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { random, text, turn, until } from "../support/values.js";
import { FakeStorage, platform } from "./fake-storage.js";
import { everywhere, freshName, opened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

const Product = struct("Product", { price: u32, name: str });

/** The collections of a database. */
function collectionsOf(db: Database) {
  return {
    products: db.collection("products", Product, {
      indexes: { byPrice: "price", byName: ["name", "price"] },
    }),
    pairs: db.collection("pairs", json<{ n: number }>(), { key: [str, u32] }),
  };
}

/** Rows in a form that can be compared, also after views have ended. */
function shown(rows: Iterable<readonly [unknown, unknown]>): string {
  return JSON.stringify(
    Array.from(rows, ([key, value]) => {
      const view = value as { snapshot?: () => unknown };
      const copy = typeof view.snapshot === "function" ? view.snapshot() : value;
      return [key, copy instanceof Uint8Array ? [...copy] : copy];
    }),
    (_, one) => (one instanceof Uint8Array ? [...one] : one),
  );
}

const RANGES = [
  {},
  { reverse: true },
  { limit: 4 },
  { limit: 3, reverse: true },
  { limit: 1 },
  { limit: 0 },
];

/** What is watched, whichever it is of. */
interface Followed {
  live(range: object, listener: (rows: [unknown, unknown][]) => void): { close(): void };
  watch(range: object, listener: (changes: readonly KeyChange<unknown>[]) => void): object;
  entries(range: object): Iterable<readonly [unknown, unknown]>;
}

everywhere("live", ({ storage }) => {
  test("live: what a random program has committed is given after each turn, as reads show it", async () => {
    const seeds = context().thorough ? 12 : 3;
    for (let seed = 1; seed <= seeds; seed += 1) {
      const next = random(seed);
      const durability = (["written", "buffered"] as const)[next(2)];
      const db = await opened(storage, { strictViews: next(2) === 0, durability });
      const { products, pairs } = collectionsOf(db);
      const bounds = [
        () => ({}),
        () => ({ gte: `${next(6)}` }),
        () => ({ lt: `${next(9)}` }),
        () => ({ prefix: `${next(9)}` }),
      ];
      const prices = [() => ({}), () => ({ gte: next(9) }), () => ({ eq: next(9) })];
      const range = (of: (() => object)[]) => ({
        ...RANGES[next(RANGES.length)],
        ...(of[next(of.length)] as () => object)(),
      });
      const begun = Array.from({ length: 14 }, (_, i) => {
        const [of, given] = [
          [db, range(bounds)],
          [products, range(bounds)],
          [products.index.byPrice, range(prices)],
          [products.index.byName, range([() => ({})])],
          [pairs, range([() => ({}), () => ({ prefix: ["1"] }), () => ({ gt: ["2"] })])],
        ][i % 5] as [unknown, object];
        const followed = of as Followed;
        const results: string[] = [];
        const versions = new Map<string, number>();
        followed.live(given, (rows) => results.push(shown(rows)));
        followed.watch(given, (changes) => {
          for (const { key, version } of changes) versions.set(JSON.stringify(key), version);
        });
        return { followed, given, results, versions };
      });
      const read = () => begun.map(({ followed, given }) => shown(followed.entries(given)));
      const states = read().map((state) => [state]);
      const write = () => {
        const key = `${next(9)}`;
        const product = { price: next(9), name: `n${next(4)}` };
        const kind = next(14);
        if (kind < 3) db.set(key, `${next(100)}`);
        else if (kind < 4) db.delete(key);
        else if (kind < 8) products.set(key, product);
        else if (kind < 9) products.delete(key);
        else if (kind < 10)
          products.updateIf(key, (p) => {
            p.price = next(9);
          });
        else if (kind < 11) pairs.set([key, next(3)], { n: next(100) });
        else if (kind < 12) pairs.delete([key, next(3)]);
        else if (kind < 13) products.clear(next(3) === 0 ? undefined : { gte: key, limit: 3 });
        else db.clear(next(3) === 0 ? undefined : { gt: key });
      };
      for (let i = 0; i < 50; i += 1) {
        const count = 1 + next(5);
        if (next(4) > 0) for (let k = 0; k < count; k += 1) write();
        else {
          const fails = next(3) === 0;
          try {
            db.transaction(() => {
              for (let k = 0; k < count; k += 1) write();
              if (fails) throw new Error("undone");
            });
          } catch (error) {
            expect((error as Error).message).toBe("undone");
          }
        }
        for (const [k, state] of read().entries()) states[k]?.push(state);
        if (next(3) > 0) await (next(2) === 0 ? turn() : db.committed);
      }
      await db.committed;
      await turn();
      const last = read();
      for (const [k, { results, given }] of begun.entries()) {
        expect(results.at(-1)).toBe(last[k]);
        let at = 0;
        for (const result of results) {
          at = (states[k] as string[]).indexOf(result, at);
          assert(at >= 0, `seed ${seed}: no state of ${JSON.stringify(given)}: ${result}`);
        }
      }
      // The versions that were reported are those of the records.
      for (const { followed, given, versions } of begun) {
        const of =
          followed === (db as unknown) ? db : followed === (pairs as unknown) ? pairs : products;
        const there = new Set(Array.from(followed.entries(given), ([key]) => JSON.stringify(key)));
        for (const [name, version] of versions) {
          const key = JSON.parse(name);
          const now = (of as typeof products).getEntry(key as string)?.version ?? 0;
          expect(version).toBe(there.has(name) ? now : 0);
        }
      }
      await db.close();
    }
  });

  test("live: one key, of a database and of a collection", async () => {
    const db = await opened(storage);
    const { pairs } = collectionsOf(db);
    const raw: (string | undefined)[] = [];
    const typed: unknown[] = [];
    db.live({ gte: "a", lte: "a" }, (rows) => raw.push(text(rows[0]?.[1])));
    pairs.live({ gte: ["a", 1], lte: ["a", 1] }, (rows) => typed.push(rows[0]?.[1]));
    await turn();
    db.set("a", "1");
    db.set("ab", "other");
    pairs.set(["a", 1], { n: 1 });
    pairs.set(["a", 2], { n: 2 });
    await turn();
    db.delete("a");
    pairs.delete(["a", 1]);
    await turn();
    expect(raw).toStrictEqual([undefined, "1", undefined]);
    expect(typed).toStrictEqual([undefined, { n: 1 }, undefined]);
  });

  test("live: the first rows come after the call, and rows that did not change are the same objects", async () => {
    const db = await opened(storage);
    const { products } = collectionsOf(db);
    products.set("a", { price: 1, name: "a" });
    products.set("b", { price: 2, name: "b" });
    const all: [string, { price: number; name: string }][][] = [];
    products.live({}, (rows) => all.push(rows));
    expect(all.length).toBe(0);
    await turn();
    products.updateIf("b", (p) => {
      p.price = 3;
    });
    await turn();
    const [first, second] = all;
    expect(first?.map(([key]) => key)).toStrictEqual(["a", "b"]);
    assert(first?.[0] === second?.[0]);
    expect(first?.[1]).toStrictEqual(["b", { price: 2, name: "b" }]);
    expect(second?.[1]).toStrictEqual(["b", { price: 3, name: "b" }]);
    expect(all.length).toBe(2);
  });

  test("watch: what a turn wrote is one report, after the commit, and what was rolled back is none", async () => {
    const db = await opened(storage);
    db.set("gone", "1");
    await db.committed;
    const reports: (readonly KeyChange<string>[])[] = [];
    let isWriting = false;
    db.watch({}, (changes) => {
      assert(!isWriting, "called within a write");
      reports.push(changes);
    });
    isWriting = true;
    db.set("a", "1");
    db.transaction(() => {
      db.set("b", "1");
      db.delete("gone");
    });
    throws(
      () =>
        db.transaction(() => {
          db.set("c", "1");
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    isWriting = false;
    await turn(10);
    expect(reports.length).toBe(1);
    expect(reports[0]?.map(({ key, version }) => [key, version > 0])).toStrictEqual([
      ["a", true],
      ["b", true],
      ["gone", false],
    ]);
    expect(reports[0]?.[0]?.version).toBe(db.getEntry("a")?.version);
  });

  test("watch: keys are reported in the order of their last writes", async () => {
    const db = await opened(storage);
    const reports: string[] = [];
    db.watch({}, (changes) => reports.push(changes.map(({ key }) => key).join("")));
    for (const written of ["bba", "cbac"]) {
      for (const key of written) db.set(key, "1");
      await turn(10);
    }
    expect(reports).toStrictEqual(["ba", "bac"]);
  });

  test("watch: a record that moves within an index is reported once, and one that leaves it as missing", async () => {
    const db = await opened(storage);
    const { products } = collectionsOf(db);
    products.set("a", { price: 1, name: "a" });
    const reports: (readonly KeyChange<string>[])[] = [];
    products.index.byPrice.watch({ lt: 10 }, (changes) => reports.push(changes));
    products.updateIf("a", (p) => {
      p.price = 5;
    });
    await turn(10);
    const version = products.getEntry("a")?.version;
    products.updateIf("a", (p) => {
      p.name = "b";
    });
    await turn(10);
    const later = products.getEntry("a")?.version;
    products.updateIf("a", (p) => {
      p.price = 10;
    });
    await turn(10);
    expect(reports).toStrictEqual([
      [{ key: "a", version }],
      [{ key: "a", version: later }],
      [{ key: "a", version: 0 }],
    ]);
  });

  test("watch: a loop is given changes together, and a signal, break and close end it", async () => {
    const db = await opened(storage);
    const controller = new AbortController();
    const seen: string[][] = [];
    let proceed = () => {};
    const isHeld = new Promise<void>((resolve) => {
      proceed = resolve;
    });
    const loop = (async () => {
      for await (const changes of db.watch({}, { signal: controller.signal })) {
        seen.push(changes.map(({ key }) => key));
        await isHeld;
      }
    })();
    const reported: string[] = [];
    db.watch({}, (changes) => reported.push(...changes.map(({ key }) => key)));
    db.set("a", "1");
    await until(() => seen.length === 1);
    db.set("b", "1");
    await turn(5);
    db.set("b", "2");
    db.set("c", "1");
    await until(() => reported.includes("c"));
    proceed();
    await until(() => seen.length === 2);
    expect(seen).toStrictEqual([["a"], ["b", "c"]]);
    controller.abort(new Error("enough"));
    await rejects(loop, { message: "enough" });
    for await (const rows of db.live({ limit: 1 })) {
      expect(rows.map(([key]) => key)).toStrictEqual(["a"]);
      break;
    }
    const watching = db.watch({}, () => assert(false, "it was closed"));
    watching.close();
    watching.close();
    await watching.ended;
    db.set("d", "1");
    await turn(10);
  });

  test("watch and live: a loop that is left while it waits ends at once", async () => {
    const db = await opened(storage);
    for (const loop of [db.watch({}), db.live({})]) {
      let next = loop.next();
      // A live range begins with its contents.
      await turn(5);
      if ((await Promise.race([next, undefined])) !== undefined) next = loop.next();
      await turn(5);
      expect(await loop.return()).toStrictEqual({ done: true, value: undefined });
      expect(await next).toStrictEqual({ done: true, value: undefined });
    }
  });

  test("watch and live: a loop that cannot begin leaves nothing at its signal", async () => {
    const db = await opened(storage);
    const { signal } = new AbortController();
    let listeners = 0;
    signal.addEventListener = () => {
      listeners += 1;
    };
    signal.removeEventListener = () => {
      listeners -= 1;
    };
    const loops = [db.watch({}, { signal }), db.live({}, { signal })];
    await db.close();
    for (const loop of loops) await rejects(loop.next(), { code: "VARVE_DATABASE_CLOSED" });
    expect(listeners).toBe(0);
  });

  test("watch and live: a listener may end its own watch and others, which are not called again", async () => {
    const db = await opened(storage);
    const { products } = collectionsOf(db);
    for (const of of [db, products, products.index.byPrice] as unknown as Followed[]) {
      for (const call of ["watch", "live"] as const) {
        const calls: string[] = [];
        const others: { close(): void }[] = [];
        let isEnding = false;
        const begin = (name: string) => {
          const own = of[call]({}, () => {
            calls.push(name);
            if (isEnding) for (const one of others) one.close();
          }) as { close(): void };
          others.push(own);
        };
        for (const name of ["a", "b"]) begin(name);
        await turn(5);
        calls.length = 0;
        isEnding = true;
        for (let i = 0; i < 2; i += 1) {
          db.set("k", `${i}`);
          products.set("k", { price: i, name: "n" });
          await turn(5);
        }
        expect(calls).toStrictEqual(["a"]);
      }
    }
  });

  test("watch and live: after a listener has closed the database no other one is called, and all end", async () => {
    const db = await opened(storage);
    const { products } = collectionsOf(db);
    const calls: string[] = [];
    const ends: Promise<void>[] = [];
    let close = () => {};
    const isClosed = new Promise<void>((resolve) => {
      close = () => resolve(db.close());
    });
    for (const of of [db, products, products.index.byPrice] as unknown as Followed[]) {
      for (const call of ["watch", "live"] as const) {
        const { ended } = of[call]({}, () => {
          calls.push(call);
          if (db.get("k") !== undefined) close();
        }) as Watching;
        ends.push(ended);
      }
    }
    const loop = (async () => {
      for await (const _ of db.watch({}));
    })();
    await turn(5);
    calls.length = 0;
    products.set("k", { price: 1, name: "n" });
    db.set("k", "1");
    await isClosed;
    await Promise.all([...ends, loop]);
    await turn(5);
    expect(calls.length).toBe(1);
  });

  test("watch: bytes as keys, and a key that is not UTF-8", async () => {
    const db = await opened(storage);
    const key = Uint8Array.of(255, 0);
    const rows: unknown[] = [];
    db.live({ keyAs: "bytes" }, (all) => rows.push(...all));
    const { ended } = db.watch({}, () => {});
    db.set(key, "1");
    await rejects(ended, BAD);
    await turn(10);
    expect(rows.length).toBe(1);
    expect((rows[0] as [Uint8Array])[0]).toStrictEqual(key);
  });

  test("watch: a listener that throws harms neither writes nor other listeners, and stays", async () => {
    const db = await opened(storage);
    let calls = 0;
    const thrown = uncaught();
    db.watch({}, () => {
      calls += 1;
      throw new Error("from a listener");
    });
    const keys: string[] = [];
    db.watch({}, (changes) => keys.push(...changes.map(({ key }) => key)));
    db.set("a", "1");
    await db.flushed;
    await until(() => calls === 1);
    db.set("b", "1");
    await until(() => calls === 2 && keys.length === 2);
    expect(db.getText("b")).toBe("1");
    await until(() => thrown.length === 2);
    expect(thrown).toStrictEqual(["from a listener", "from a listener"]);
  });

  test("watch: listeners that write are reported too, each turn's writes after the one before", async () => {
    const db = await opened(storage);
    const keys: string[] = [];
    db.watch({ prefix: "n" }, (changes) => {
      for (const { key } of changes) keys.push(key);
      if (keys.length < 4) db.set(`n${keys.length}`, "1");
    });
    db.set("n0", "1");
    await until(() => keys.length === 4);
    expect(keys).toStrictEqual(["n0", "n1", "n2", "n3"]);
  });

  test("live: records that expire are gone without a further call, and ones that take their place are there", async () => {
    const db = await opened(storage);
    const { products } = collectionsOf(db);
    const given: string[][] = [];
    const prices: string[][] = [];
    const gone: string[] = [];
    db.set("a", "1", { expireIn: 900 });
    db.set("b", "1");
    db.set("c", "1");
    products.set("p", { price: 1, name: "p" }, { expireIn: 900 });
    products.set("q", { price: 2, name: "q" });
    db.live({ limit: 2 }, (rows) => given.push(rows.map(([key]) => key)));
    products.index.byPrice.live({}, (rows) => prices.push(rows.map(([key]) => key)));
    db.watch({}, (changes) => {
      for (const { key, version } of changes) if (version === 0) gone.push(key);
    });
    await until(() => given.length === 2 && prices.length === 2 && gone.length === 1);
    expect(given).toStrictEqual([
      ["a", "b"],
      ["b", "c"],
    ]);
    expect(prices).toStrictEqual([["p", "q"], ["q"]]);
    expect(gone).toStrictEqual(["a"]);
  });

  test("watch: it ends with its handle, and another handle of the same database goes on", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    const other = await opened(storage, {}, name);
    const ofDb: string[] = [];
    const ofOther: string[] = [];
    const watching = db.watch({}, (changes) => ofDb.push(...changes.map(({ key }) => key)));
    const loop = (async () => {
      for await (const _ of db.live());
    })();
    other.watch({}, (changes) => ofOther.push(...changes.map(({ key }) => key)));
    db.set("a", "1");
    await until(() => ofDb.length === 1 && ofOther.length === 1);
    await db.close();
    await watching.ended;
    await loop;
    other.set("b", "1");
    await until(() => ofOther.length === 2);
    expect(ofDb).toStrictEqual(["a"]);
    throws(() => db.watch({}, () => {}), { code: "VARVE_DATABASE_CLOSED" });
  });

  test("watch and live: what makes no sense is refused at the call", async () => {
    const db = await opened(storage);
    const { products } = collectionsOf(db);
    const any = (given: unknown) => given as never;
    for (const of of [db, products, products.index.byPrice]) {
      for (const call of ["watch", "live"] as const) {
        const begin = (...args: unknown[]) => (of[call] as (...all: unknown[]) => unknown)(...args);
        throws(() => begin({ limit: -1 }, () => {}), BAD);
        throws(() => begin({ from: "a" }, () => {}), BAD);
        throws(() => begin({}, { listener: () => {} }), BAD);
        throws(() => begin({}, 1), BAD);
        throws(() => begin({}, () => {}, {}), BAD);
        throws(() => begin({}, function* generator() {}), BAD);
        throws(() => db.transaction(() => any(begin({}, () => {}))), { name: "ReentrancyError" });
      }
    }
    using then = db.snapshot();
    const past = then.collection("products", Product, { indexes: { byPrice: "price" } });
    throws(() => (past as typeof products).watch({}, () => {}), BAD);
    throws(() => past.index.byPrice.live({}, () => {}), BAD);
    const unordered = await opened(storage, { ordered: false });
    throws(() => unordered.live({}, () => {}), BAD);
  });

  test("watch: watches of a collection end with its conversion, as its objects do", async () => {
    const db = await opened(storage);
    const numbers = db.collection("numbers", json<number>());
    numbers.set("a", 1);
    await turn();
    const { ended } = numbers.live({}, () => {});
    const next = numbers.watch().next();
    const refused = Promise.all([
      rejects(ended, { name: "SchemaMismatchError" }),
      rejects(next, { name: "SchemaMismatchError" }),
    ]);
    const texts = await db.migrate("numbers", codecOfText(), {
      migrate: (old: number) => `${old}`,
    });
    await refused;
    const rows: unknown[] = [];
    texts.live({}, (all) => rows.push(...all));
    await until(() => rows.length > 0);
    expect(rows).toStrictEqual([["a", "1"]]);
  });
});

test("live: rows that a failed commit has lost are taken back", async () => {
  const storage = new FakeStorage();
  const db = await opened(storage, { onError: () => {} });
  db.set("a", "1");
  await db.committed;
  storage.fault = ({ op }) => (op === "write" ? platform.quota() : undefined);
  db.set("a", "lost");
  const given: (string | undefined)[] = [];
  // Begun in the turn of the write, which it shows.
  db.live({}, (rows) => given.push(text(rows[0]?.[1])));
  await rejects(db.committed, { name: "QuotaExceededError" });
  await until(() => given.length === 2);
  storage.fault = () => undefined;
  expect(given).toStrictEqual(["lost", "1"]);
  throws(() => db.get("a"), { name: "QuotaExceededError" });
  expect(db.getText("a")).toBe("1");
});

/** The messages of errors that nothing has caught, until the test ends. */
function uncaught(): string[] {
  const messages: string[] = [];
  const { process } = globalThis as {
    process?: {
      listeners(event: string): ((error: unknown) => void)[];
      removeAllListeners(event: string): void;
      on(event: string, listener: (error: unknown) => void): void;
    };
  };
  const note = (error: unknown) => {
    messages.push((error as Error).message);
  };
  if (process?.on !== undefined && !("Deno" in globalThis)) {
    const before = process.listeners("uncaughtException");
    process.removeAllListeners("uncaughtException");
    process.on("uncaughtException", note);
    onTestFinished(() => {
      process.removeAllListeners("uncaughtException");
      for (const listener of before) process.on("uncaughtException", listener);
    });
    return messages;
  }
  const listener = (event: Event) => {
    event.preventDefault();
    note((event as ErrorEvent).error);
  };
  globalThis.addEventListener("error", listener);
  onTestFinished(() => globalThis.removeEventListener("error", listener));
  return messages;
}
