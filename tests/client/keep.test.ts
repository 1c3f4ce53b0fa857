/** Kept ranges, which are read synchronously, compared with what reads by requests show. */

import { type Client, connect, memory, open, type Served, serve, type WorkerLike } from "varve";
import { keep } from "varve/keep";
import { blob, json, str, struct, u16, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { random, turn, until } from "../support/values.js";
import { shop } from "./support.js";

const Product = struct("Product", { stock: u16, name: str });

const COLLECTIONS = {
  products: { of: Product, key: str, indexes: { byStock: "stock" } },
  numbers: { of: json<{ n: number }>(), key: u32 },
  texts: { of: json<string>(), key: blob },
  pairs: { of: json<number>(), key: [str, u32] },
} as const;

const PROCEDURES = {
  /** Closes the database of the owner, after which the next one opens it. */
  end: (db: { close(): Promise<void> }) => void setTimeout(() => db.close(), 0),
};

/** Clients of one database, each with an owner of its own, which it can end. */
function clients(count: number) {
  const storage = memory();
  return Array.from({ length: count }, () => {
    const served = serve("shop", {
      storage,
      ...wasmOption(),
      collections: COLLECTIONS,
      procedures: PROCEDURES,
    });
    const { port1, port2 } = new MessageChannel();
    served.listen(port1);
    const client = connect<Served<typeof PROCEDURES, typeof COLLECTIONS>>("shop", {
      worker: (): WorkerLike => port2,
    });
    onTestFinished(async () => {
      await (client as Client).close();
      port1.close();
    });
    return client;
  });
}

describe("a kept range", () => {
  test("keep: what it shows is a state of the range in order, whichever client writes, and while owners end", async () => {
    const seeds = context().thorough ? 12 : 4;
    for (let seed = 1; seed <= seeds; seed += 1) {
      const next = random(seed);
      const all = clients(3);
      const any = () => all[next(all.length)] as (typeof all)[number];
      const ranges = [{}, { gte: "c" }, { limit: 3 }, { limit: 2, reverse: true }];
      const shown: { rows: () => string; seen: string[]; read: () => Promise<string> }[] = [];
      for (const client of all) {
        for (const range of ranges) {
          const products = client.collection("products");
          const kept = await keep(products, range);
          const rows = () => JSON.stringify([...kept]);
          const seen = [rows()];
          kept.subscribe(() => seen.push(rows()));
          shown.push({
            rows,
            seen,
            read: async () => JSON.stringify(await products.entries(range).all()),
          });
        }
        const { byStock } = client.collection("products").index;
        const kept = await keep(byStock, { lt: 5 });
        const rows = () => JSON.stringify(kept.rows);
        const read = async () => JSON.stringify(await byStock.entries({ lt: 5 }).all());
        shown.push({ rows, seen: [], read });
      }
      const states = shown.map((): string[] => []);
      const note = async () => {
        for (const [i, { read }] of shown.entries()) (states[i] as string[]).push(await read());
      };
      await note();
      const keyOf = () => "abcdefgh"[next(8)] as string;
      for (let step = 0; step < 40; step += 1) {
        const products = any().collection("products");
        const chance = next(12);
        const value = () => ({ stock: next(10), name: `${step}` });
        if (chance < 6) await products.set(keyOf(), value());
        else if (chance < 8) await products.delete(keyOf());
        else if (chance < 9) await products.clear(next(2) === 0 ? { lt: keyOf() } : {});
        else if (chance < 11) {
          await products.batch(
            [keyOf(), keyOf()].map((key) => ({ type: "set", key, value: value() })),
          );
        } else await any().call.end();
        await note();
        if (next(4) === 0) await turn(2);
      }
      await until(() => shown.every(({ rows }, i) => rows() === states[i]?.at(-1)));
      for (const [i, { seen }] of shown.entries()) {
        // It may leave states out, and shows none that is older than the one before.
        let at = 0;
        for (const one of seen) {
          at = (states[i] as string[]).indexOf(one, at);
          assert(at >= 0, `seed ${seed}: range ${i} showed what was no state of it: ${one}`);
        }
      }
    }
  });

  test("keep: a key of each kind is found by its value, in clients and in databases", async () => {
    const client = clients(1)[0] as ReturnType<typeof clients>[number];
    const db = await open("kept", { storage: memory(), ...wasmOption() });
    onTestFinished(() => db.close());
    const { numbers, texts, pairs } = COLLECTIONS;
    const stores = [
      {
        raw: client,
        numbers: client.collection("numbers"),
        texts: client.collection("texts"),
        pairs: client.collection("pairs"),
      },
      {
        raw: db,
        numbers: db.collection("numbers", numbers.of, { key: numbers.key }),
        texts: db.collection("texts", texts.of, { key: texts.key }),
        pairs: db.collection("pairs", pairs.of, { key: [str, u32] }),
      },
    ];
    for (const { raw, numbers, texts, pairs } of stores) {
      await raw.set("a", "1");
      await numbers.set(7, { n: 70 });
      await texts.set(Uint8Array.of(0, 255), "bytes");
      await pairs.set(["é", 3], 33);
      using bytes = await keep(raw as Client, {});
      expect(bytes.get("a")?.[0]).toBe(0x31);
      expect([...bytes.keys()]).toStrictEqual(["a"]);
      using counted = await keep(numbers as never, {} as never);
      expect(counted.get(7 as never)).toStrictEqual({ n: 70 });
      expect([counted.has(7 as never), counted.has(8 as never)]).toStrictEqual([true, false]);
      using named = await keep(texts as never, {} as never);
      expect(named.get(Uint8Array.of(0, 255) as never)).toBe("bytes");
      using paired = await keep(pairs as never, {} as never);
      expect(paired.get(["é", 3] as never)).toBe(33);
      expect(paired.get(["é", 4] as never)).toBe(undefined);
      expect([...paired.values()]).toStrictEqual([33]);
      await pairs.delete(["é", 3]);
      await until(() => paired.size === 0);
      expect(paired.has(["é", 3] as never)).toBe(false);
    }
  });

  test("keep: rows that have not changed stay the same objects, also with the next owner", async () => {
    const client = clients(1)[0] as ReturnType<typeof clients>[number];
    const numbers = client.collection("numbers");
    for (let n = 0; n < 50; n += 1) await numbers.set(n, { n });
    const kept = await keep(numbers, {});
    const before = kept.rows;
    let changes = 0;
    kept.subscribe(() => {
      changes += 1;
    });
    await numbers.set(20, { n: -1 });
    await until(() => changes === 1);
    const after = kept.rows;
    expect(after.filter((row, i) => row !== before[i]).map(([key]) => key)).toStrictEqual([20]);
    await client.call.end();
    await numbers.set(30, { n: -1 });
    await until(() => kept.get(30)?.n === -1);
    const last = kept.rows;
    expect(last.filter((row, i) => row !== after[i]).map(([key]) => key)).toStrictEqual([30]);
    expect(kept.get(20)).toStrictEqual({ n: -1 });
  });

  test("keep: a range with too many rows is refused before more than one of those is sent", async () => {
    let most = 0;
    const client = shop(
      { collections: { numbers: { of: json<number>(), key: u32 } } },
      {
        relay: (server) => {
          server.addEventListener("message", ({ data }) => {
            if (data.type === "changes") most = Math.max(most, data.changes.length);
          });
          return server;
        },
      },
    );
    const { numbers } = client;
    await numbers.batch(Array.from({ length: 50 }, (_, n) => ({ type: "set", key: n, value: n })));
    for (const range of [{}, { limit: 1_000 }, { reverse: true }]) {
      const error = await rejects(keep(numbers, range, { maxRows: 20 }), { name: "TypeError" });
      assert(/more than 20 rows/.test(String(error)), String(error));
    }
    expect(most).toBe(21);
    expect((await keep(numbers, { limit: 20 }, { maxRows: 20 })).size).toBe(20);
    expect((await keep(numbers, {}, { maxRows: 50 })).size).toBe(50);
  });

  test("keep: a range that gets too many rows ends, and its reads throw why", async () => {
    const client = shop({ collections: { numbers: { of: json<number>(), key: u32 } } });
    const { numbers } = client;
    await numbers.set(1, 1);
    const kept = await keep(numbers, {}, { maxRows: 2 });
    await numbers.set(2, 2);
    await until(() => kept.size === 2);
    numbers.set(3, 3);
    const reason = await rejects(kept.ended, { name: "TypeError", message: /more than 2 rows/ });
    for (const read of [() => kept.rows, () => kept.get(1), () => kept.has(1), () => [...kept]]) {
      expect(throws(read)).toBe(reason);
    }
  });

  test("keep: it ends by close, using, a signal and with its client", async () => {
    const client = shop();
    await client.set("a", "1");
    const closed = await keep(client);
    let calls = 0;
    closed.subscribe(() => {
      calls += 1;
    });
    closed.close();
    closed.close();
    await closed.ended;
    throws(() => closed.get("a"), { name: "DatabaseClosedError" });
    throws(() => closed.subscribe(() => {}), { name: "DatabaseClosedError" });
    const used = await (async () => {
      using kept = await keep(client);
      expect(kept.size).toBe(1);
      return kept;
    })();
    throws(() => used.size, { name: "DatabaseClosedError" });
    const abort = new AbortController();
    const aborted = await keep(client, {}, { signal: abort.signal });
    abort.abort(new RangeError("enough"));
    await aborted.ended;
    throws(() => [...aborted.keys()], { name: "DatabaseClosedError" });
    await rejects(keep(client, {}, { signal: abort.signal }), { name: "RangeError" });
    const later = new AbortController();
    const begun = keep(client, {}, { signal: later.signal });
    later.abort(new RangeError("too late"));
    await rejects(begun, { name: "RangeError", message: /too late/ });
    const last = await keep(client);
    await client.set("b", "1");
    await client.close();
    await last.ended;
    throws(() => last.has("a"), { name: "DatabaseClosedError" });
    await rejects(keep(client), { name: "DatabaseClosedError" });
    expect(calls).toBe(0);
  });

  test("keep: of several listeners, each is called once for a change, until it is removed", async () => {
    const client = shop();
    const kept = await keep(client);
    const calls = [0, 0];
    const count = (i: number) => () => {
      calls[i] = (calls[i] as number) + 1;
    };
    const remove = kept.subscribe(count(0));
    kept.subscribe(count(1));
    await client.set("a", "1");
    await until(() => calls[1] === 1);
    expect(calls).toStrictEqual([1, 1]);
    remove();
    await client.set("b", "1");
    await until(() => calls[1] === 2);
    expect(calls).toStrictEqual([1, 2]);
    kept.close();
  });

  test("keep: a bad source, range or option is refused with the reason", async () => {
    const client = shop();
    const bad: [() => Promise<unknown>, RegExp][] = [
      [() => keep({} as never), /takes a collection/],
      [() => keep(undefined as never), /takes a collection/],
      [() => keep(client, null as never), /range of keep\(\) must be an object/],
      [() => keep(client, "a" as never), /range of keep\(\) must be an object/],
      [() => keep(client, { from: "a" } as never), /from/],
      [() => keep(client, { limit: -1 }), /limit/],
      [() => keep(client, { limit: Number.NaN }), /limit/],
      [() => keep(client, {}, { maxRows: 0 }), /maxRows/],
      [() => keep(client, {}, { maxRows: 1.5 }), /maxRows/],
      [() => keep(client, {}, { most: 1 } as never), /most/],
      [() => keep(client, {}, { signal: {} as never }), /signal/],
    ];
    for (const [call, message] of bad) await rejects(call(), { name: "TypeError", message });
    const kept = await keep(client);
    throws(() => kept.subscribe(undefined as never), { name: "TypeError" });
    kept.close();
  });
});
