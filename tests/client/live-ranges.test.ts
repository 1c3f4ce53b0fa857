/** Live ranges compared with plain reads, under random writes and message faults. */

import { type Client, connect, memory, type Served, serve, type WorkerLike } from "varve";
import { json, struct, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { random, turn, until } from "../support/values.js";
import { shop } from "./support.js";

/** A worker whose messages may be lost, delayed, repeated and reordered. */
class FaultyWorker implements WorkerLike {
  isFaulty = false;
  private readonly port: MessagePort;
  private readonly next: (below: number) => number;

  constructor(port: MessagePort, next: (below: number) => number) {
    this.port = port;
    this.next = next;
  }

  postMessage(message: unknown): void {
    this.pass(message, () => this.port.postMessage(message));
  }

  addEventListener(type: string, listener: (event: Event) => void): void {
    this.port.addEventListener(type, (event) => {
      this.pass((event as MessageEvent).data, () => listener(event));
    });
    this.port.start();
  }

  close(): void {
    this.port.close();
  }

  private pass(message: unknown, send: () => void): void {
    const { next } = this;
    const isWatch = /watch|changes/.test((message as { type: string }).type);
    const mishap = this.isFaulty && isWatch ? next(8) : 8;
    if (mishap === 0) return;
    if (mishap < 3) send();
    if (mishap < 4) setTimeout(send, next(8));
    else send();
  }
}

interface RawRange {
  readonly prefix?: string;
  readonly gte?: string;
  readonly lt?: string;
  readonly limit?: number;
  readonly reverse?: boolean;
}

const RANGES: readonly RawRange[] = [
  {},
  { prefix: "1" },
  { gte: "04", lt: "17" },
  { limit: 3 },
  { limit: 3, reverse: true },
  { limit: 5, gte: "05" },
  { limit: 4, prefix: "1", reverse: true },
  { limit: 100, reverse: true },
  { limit: 1 },
  { limit: 0 },
];

function keyOf(number: number): string {
  return String(number).padStart(2, "0");
}

describe("live ranges", () => {
  test("live: every kind of range shows its contents, despite lost, late and repeated messages", async () => {
    const seeds = context().thorough ? 10 : 3;
    for (let seed = 1; seed <= seeds; seed += 1) {
      const next = random(seed);
      const { port1, port2 } = new MessageChannel();
      const served = serve("shop", {
        storage: memory(),
        ...wasmOption(),
        collections: { rows: { of: json<number>(), key: u32 } },
      });
      served.listen(port1);
      const worker = new FaultyWorker(port2, next);
      const client = connect<Served<Record<never, never>, (typeof served)["collections"]>>("shop", {
        worker: () => worker,
      });
      onTestFinished(async () => {
        await (client as Client).close();
        port1.close();
      });
      const raw = RANGES.map((range) => {
        const one = { range, rows: [] as unknown, watching: undefined as Disposable | undefined };
        one.watching = client.live(range, (rows) => {
          one.rows = rows.map(([key]) => key);
        });
        return one;
      });
      const typed = [{}, { limit: 4 }, { limit: 4, reverse: true }, { gt: 5, limit: 2 }].map(
        (range) => {
          const one = { range, rows: [] as unknown };
          client.collection("rows").live(range, (rows) => {
            one.rows = rows;
          });
          return one;
        },
      );
      await client.count();
      worker.isFaulty = true;
      const write = async () => {
        const key = next(24);
        const chance = next(10);
        if (chance < 4) await client.set(keyOf(key), String(key));
        else if (chance < 6) await client.delete(keyOf(key));
        else if (chance < 8) await client.collection("rows").set(key, next(100));
        else if (chance < 9) await client.collection("rows").delete(key);
        else if (next(4) === 0) await client.clear({ gte: keyOf(key), limit: 6 });
        else {
          const keys = [0, 1, 2, 3].map(() => keyOf(next(24)));
          await client.batch(keys.map((one) => ({ type: "set", key: one, value: "b" })));
        }
        if (next(5) === 0) await turn(2);
      };
      for (let i = 0; i < 80; i += 1) await write();
      worker.isFaulty = false;
      // The loss of the last message is noticed with the next change in the range.
      for (;;) {
        await client.set(keyOf(6), "x");
        await client.set(keyOf(12), "x");
        await client.set(keyOf(19), "x");
        for (const key of [0, 7, 23]) await client.collection("rows").set(key, key);
        for (let i = 0; i < 30; i += 1) await turn(1);
        const now = await Promise.all(
          raw.map(async ({ range }) => (await client.entries(range).all()).map(([key]) => key)),
        );
        const rows = await Promise.all(
          typed.map(({ range }) => client.collection("rows").entries(range).all()),
        );
        const shown = JSON.stringify([raw.map((one) => one.rows), typed.map((one) => one.rows)]);
        if (shown === JSON.stringify([now, rows])) break;
        await client.set(keyOf(0), "x");
        await client.set(keyOf(23), "x");
        await client.batch([0, 23, 11, 16].map((key) => ({ type: "delete", key: keyOf(key) })));
        for (const key of [0, 7, 23]) await client.collection("rows").delete(key);
      }
    }
  });
});

/** The engine behind a database, to count its reads. */
interface Inside {
  sessionOf(db: unknown): {
    readonly engine: Record<"version" | "scan", (...args: never[]) => unknown>;
  };
}

const Product = struct("Product", { price: u32 });

/** A client of a database that counts the reads for watches. */
async function counted() {
  let reads = 0;
  const client = shop({
    collections: {
      rows: { of: Product, key: u32, indexes: { byPrice: "price" } },
      others: json<number>(),
    },
    procedures: {
      look: (db) => {
        const { engine } = (db.constructor as unknown as Inside).sessionOf(db);
        for (const name of ["version", "scan"] as const) {
          const read = engine[name];
          engine[name] = (...args) => {
            reads += 1;
            return read.apply(engine, args);
          };
        }
      },
    },
  });
  for (let i = 10; i < 30; i += 1) {
    client.set(String(i), "1");
    client.collection("rows").set(i, { price: 1 });
  }
  await client.others.set("0", 0);
  /** Reports to the last watch of the key "~", which no other watch covers. */
  let reports = 0;
  const begin = async () => {
    client.watch({ gte: "~" }, (changes) => {
      if (changes.some(({ key }) => key === "~")) reports += 1;
    });
    await client.call.look();
    await readsFor(() => client.count());
  };
  /** The number of engine reads for these writes, until every watch has been notified. */
  const readsFor = async (write: () => Promise<unknown>) => {
    const before = reports;
    reads = 0;
    await write();
    await client.set("~", "1");
    await until(() => reports > before);
    // One read is for the last watch.
    return reads - 1;
  };
  return { client, begin, readsFor };
}

function keysAndFates(changes: readonly { key: unknown; version: number }[]) {
  return changes.map(({ key, version }) => [key, version > 0]);
}

describe("owners of live ranges", () => {
  test("live: a commit outside the keyspace and bounds of a range reads nothing", async () => {
    const { client, begin, readsFor } = await counted();
    let shown = 0;
    const show = () => {
      shown += 1;
    };
    for (let i = 0; i < 10; i += 1) {
      client.live({ limit: 5 }, show);
      client.live({ limit: 50, lt: "~" }, show);
      client.live({ prefix: "1", limit: 5, reverse: true }, show);
      client.live({ prefix: "2" }, show);
      client.watch({ limit: 5 }, show);
      client.collection("rows").live({ limit: 5 }, show);
      client.collection("rows").live({ limit: 50 }, show);
      client.collection("rows").live({ gte: 20, lt: 25, reverse: true, limit: 2 }, show);
      client.collection("rows").watch({ limit: 5 }, show);
    }
    await begin();
    await until(() => shown === 70);
    const elsewhere = await readsFor(async () => {
      for (let i = 0; i < 20; i += 1) await client.others.set(String(i), i);
    });
    expect(elsewhere).toBe(0);
    const outside = await readsFor(() => client.set("~~", "1"));
    // The key also is in the range of the last watch.
    expect(outside).toBe(1);
    expect(shown).toBe(70);
  });

  test("live: a change behind the last row of a full window reads nothing, in both directions", async () => {
    const { client, begin, readsFor } = await counted();
    const changes: unknown[] = [];
    client.watch({ limit: 3 }, (all) => changes.push(...all));
    client.watch({ limit: 3, reverse: true, lt: "3" }, (all) => changes.push(...all));
    client.collection("rows").watch({ limit: 3 }, (all) => changes.push(...all));
    client.collection("rows").watch({ limit: 3, reverse: true }, (all) => changes.push(...all));
    await begin();
    const reads = await readsFor(async () => {
      await client.set("13", "2");
      await client.set("26", "2");
      await client.delete("20");
      await client.set("205", "new");
      await client.collection("rows").set(13, { price: 2 });
      await client.collection("rows").delete(26);
    });
    expect(reads).toBe(0);
    expect(changes).toStrictEqual([]);
  });

  test("live: a full window reads its changed rows and those that move up", async () => {
    const { client, begin, readsFor } = await counted();
    let first: unknown[] = [];
    let last: unknown[] = [];
    client.watch({ limit: 3 }, (all) => {
      first = keysAndFates(all);
    });
    client.collection("rows").watch({ limit: 3, reverse: true }, (all) => {
      last = keysAndFates(all);
    });
    await begin();
    expect(await readsFor(() => client.set("11", "2"))).toBe(1);
    expect(first).toStrictEqual([["11", true]]);
    // A key, a page of keys, and the key that moves up.
    expect(await readsFor(() => client.delete("10"))).toBe(3);
    expect(first).toStrictEqual([
      ["10", false],
      ["13", true],
    ]);
    expect(await readsFor(() => client.set("115", "1"))).toBe(1);
    expect(first).toStrictEqual([
      ["115", true],
      ["13", false],
    ]);
    expect(await readsFor(() => client.set("13", "2"))).toBe(0);
    expect(await readsFor(() => client.collection("rows").set(40, { price: 1 }))).toBe(1);
    expect(last).toStrictEqual([
      [40, true],
      [27, false],
    ]);
    expect(await readsFor(() => client.collection("rows").delete(29))).toBe(3);
    expect(last).toStrictEqual([
      [29, false],
      [27, true],
    ]);
  });

  test("live: very many keys written in other ranges read nothing", async () => {
    const { client, begin, readsFor } = await counted();
    client.watch({ limit: 5 }, () => {});
    client.watch({ lt: "3" }, () => {});
    client.collection("rows").watch({}, () => {});
    await begin();
    const many = (to: (key: string) => unknown) =>
      Array.from({ length: 12_000 }, (_, i) => to(`x${i}`));
    expect(await readsFor(() => Promise.all(many((key) => client.others.set(key, 1))))).toBe(0);
    const batch = many((key) => ({ type: "set", key, value: "1" })) as {
      type: "set";
      key: string;
      value: string;
    }[];
    // With the last watch's own key there are too many, so that its range may be read again.
    assert((await readsFor(() => client.batch(batch))) <= 1);
  });

  test("live: a write just before the last watch ended is reported", async () => {
    const client = shop();
    const first = client.watch({}, () => {});
    await client.count();
    // Sent in one message, followed by the end of the watch.
    const written = client.set("a", "1");
    for (let i = 0; i < 4; i += 1) await Promise.resolve();
    first.close();
    await written;
    const received: string[] = [];
    client.watch({}, (changes) => received.push(...changes.map(({ key }) => key)));
    await client.count();
    await client.set("b", "1");
    await until(() => received.length > 0);
    assert(received.includes("b"));
  });
});
