/** Live ranges, whose rows come as differences, compared with what reads show. */

import { type Client, connect, destroy, memory, type Served, serve, type WorkerLike } from "varve";
import { blob, json, str, struct, text, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { random, turn, until } from "../support/values.js";
import { shop } from "./support.js";

const Product = struct("Product", { price: u32, name: str });

const COLLECTIONS = {
  numbers: { of: json<{ n: number }>(), key: u32 },
  structs: { of: Product, key: str },
  texts: { of: text(), key: blob },
  pairs: { of: json<number>(), key: [str, u32] },
} as const;

/** One served database, and clients with and without its schemas. */
function clients(count: number) {
  const served = serve("shop", { storage: memory(), ...wasmOption(), collections: COLLECTIONS });
  return Array.from({ length: count }, (_, i) => {
    const { port1, port2 } = new MessageChannel();
    served.listen(port1);
    const collections = i % 2 === 0 ? { collections: { structs: Product } } : {};
    const worker = (): WorkerLike => port2;
    const client = connect<Served<Record<never, never>, typeof COLLECTIONS>>("shop", {
      worker,
      ...(collections as object),
    });
    onTestFinished(async () => {
      await (client as Client).close();
      port1.close();
    });
    return client;
  });
}

type Watched = Pick<Client, "live" | "entries">;

const RANGES = [
  {},
  { reverse: true },
  { limit: 4 },
  { limit: 4, reverse: true },
  { limit: 1 },
  { limit: 0 },
];

const NAMES = [undefined, "numbers", "structs", "texts", "pairs"] as const;

/** The keys of each store: not all are ASCII, and some begin with others. */
const KEYS: Readonly<Record<string, (i: number) => unknown>> = {
  raw: (i) => ["a", "ab", "é", "z\u{1f600}", "中", "~"][i % 6] + "b".repeat(i / 6),
  numbers: (i) => [0, 1, 127, 128, 255, 256, 65_536, 4_294_967_295][i % 8],
  structs: (i) => ["ß", "x", "xy", "Ω"][i % 4] + String(i),
  texts: (i) => Uint8Array.of(i * 20, 255 - i),
  pairs: (i) => [["a", "a\0", "é"][i % 3], i],
};

const VALUES: Readonly<Record<string, (n: number) => unknown>> = {
  raw: (n) => `${n}`,
  numbers: (n) => ({ n }),
  structs: (n) => ({ price: n, name: `n${n}` }),
  texts: (n) => (n % 3 === 0 ? "" : `${n}é`),
  pairs: (n) => n,
};

/** The form in which rows are compared: bytes are no text. */
function shown(rows: readonly unknown[]): string {
  return JSON.stringify(rows, (_, one) => (one instanceof Uint8Array ? [...one] : one));
}

describe("rows of live ranges", () => {
  test("live: every result is a state of the range, in order, and the last one is what a read shows", async () => {
    const seeds = context().thorough ? 20 : 3;
    for (let seed = 1; seed <= seeds; seed += 1) {
      const next = random(seed);
      const all = clients(3);
      const lives: { of: Watched; range: object; results: string[] }[] = [];
      for (const client of all) {
        for (const name of NAMES) {
          const range = RANGES[next(RANGES.length)] as object;
          const asBytes = name === undefined && next(2) === 0 ? { keyAs: "bytes" } : undefined;
          const of = (name === undefined ? client : client.collection(name)) as Watched;
          const live = { of, range: { ...range, ...asBytes }, results: [] as string[] };
          of.live(live.range as object, (rows) => live.results.push(shown(rows)));
          lives.push(live);
        }
      }
      const read = () =>
        Promise.all(
          lives.map(async ({ of, range }) => shown(await of.entries(range as object).all())),
        );
      const isShown = async () => {
        const now = await read();
        await until(() => lives.every(({ results }, i) => results.at(-1) === now[i]));
        return now;
      };
      const states = (await isShown()).map((state) => [state]);
      for (let i = 0; i < 60; i += 1) {
        const client = all[next(3)] as (typeof all)[number];
        const name = NAMES[next(NAMES.length)];
        const of = (name === undefined ? client : client.collection(name)) as unknown as Client;
        const keyOf = KEYS[name ?? "raw"] as (i: number) => string;
        const valueFor = VALUES[name ?? "raw"] as (n: number) => string;
        const chance = next(10);
        if (chance < 5) await of.set(keyOf(next(12)), valueFor(i));
        else if (chance < 7) await of.delete(keyOf(next(12)));
        else if (chance < 9) {
          await of.batch(
            Array.from({ length: 1 + next(12) }, () => {
              const key = keyOf(next(12));
              return next(3) === 0
                ? { type: "delete", key }
                : { type: "set", key, value: valueFor(i) };
            }),
          );
        } else await of.clear(next(2) === 0 ? undefined : ({ limit: 3, reverse: true } as object));
        for (const [k, state] of (await read()).entries()) states[k]?.push(state);
        if (next(4) === 0) await turn(2);
      }
      await isShown();
      lives.forEach(({ results }, k) => {
        // Results may leave states out, and none is of two moments or older than the one before.
        let at = 0;
        for (const result of results) {
          at = (states[k] as string[]).indexOf(result, at);
          assert(
            at >= 0,
            `seed ${seed}: a result of live range ${k} was no state of it: ${result}`,
          );
        }
      });
    }
  });

  test("live: of many rows, one that changes is sent alone, and the others stay the same objects", async () => {
    let sent: { changes: unknown[]; rows: object }[] = [];
    const client = shop(
      { collections: { numbers: { of: json<{ n: number }>(), key: u32 } } },
      {
        relay: (server) => {
          server.addEventListener("message", ({ data }) => {
            if (data.type === "changes") sent.push(data);
            assert(data.type !== "responses" || data.answers.length < 2_000);
          });
          return server;
        },
      },
    );
    await client.numbers.batch(
      Array.from({ length: 2_000 }, (_, n) => ({ type: "set", key: n, value: { n } })),
    );
    const results: [number, { n: number }][][] = [];
    client.numbers.live({ reverse: true }, (rows) => results.push(rows));
    await until(() => results.length === 1);
    sent = [];
    await client.numbers.set(700, { n: -1 });
    await until(() => results.length === 2);
    expect(sent.length).toBe(1);
    expect(sent[0]?.changes.length).toBe(1);
    const [before = [], after = []] = results;
    assert(before !== after);
    expect(after[1_299]).toStrictEqual([700, { n: -1 }]);
    expect(before[1_299]).toStrictEqual([700, { n: 700 }]);
    expect(after.filter((row, i) => row !== before[i]).length).toBe(1);
    await client.numbers.delete(1_999);
    await until(() => results.length === 3);
    expect(sent[1]?.changes.length).toBe(1);
    expect(results[2]?.[0]?.[0]).toBe(1_998);
    expect(results[2]?.length).toBe(1_999);
  });

  test("live: rows that have not changed stay the same objects when the next owner sends all of them", async () => {
    let fullAnswers = 0;
    const client = shop(
      {
        collections: { numbers: { of: json<{ n: number }>(), key: u32 } },
        procedures: { end: (db) => void setTimeout(() => db.close(), 0) },
      },
      {
        relay: (server) => {
          server.addEventListener("message", ({ data }) => {
            if (data.type === "changes" && data.isAll) fullAnswers += 1;
          });
          return server;
        },
      },
    );
    await client.numbers.batch(
      Array.from({ length: 200 }, (_, n) => ({ type: "set", key: n, value: { n } })),
    );
    const results: [number, { n: number }][][] = [];
    client.numbers.live({ reverse: true }, (rows) => results.push(rows));
    await until(() => results.length === 1);
    expect(fullAnswers).toBe(1);
    await client.call.end();
    while (fullAnswers < 2) await client.numbers.count();
    await client.numbers.set(70, { n: -1 });
    await until(() => results.at(-1)?.[129]?.[1].n === -1);
    const [before = []] = results;
    const after = results.at(-1) ?? [];
    expect(after.length).toBe(200);
    expect(after.flatMap((row, i) => (row === before[i] ? [] : [row[0]]))).toStrictEqual([70]);
  });

  test("live and watch: a database that was lost and made again is reported, although its versions are the same", async () => {
    const storage = memory();
    let made = 0;
    const client = shop({
      storage,
      version: 1,
      migrate: (db) => {
        made += 1;
        db.set("a", `${made}`);
      },
      procedures: { end: (db) => void setTimeout(() => db.close(), 0) },
    });
    const versions = [(await client.getEntry("a"))?.version];
    const shown: (string | undefined)[] = [];
    client.live({}, ([row]) => shown.push(row && new TextDecoder().decode(row[1])));
    const changed: string[] = [];
    client.watch({}, (changes) => changed.push(...changes.map(({ key }) => key)));
    await until(() => shown.length === 1);
    await client.call.end();
    for (let isGone = false; !isGone; ) {
      isGone = await destroy("shop", { storage }).catch(() => false);
      await turn();
    }
    versions.push((await client.getEntry("a"))?.version);
    await until(() => shown.length > 1 && changed.length > 0);
    expect(versions[1]).toBe(versions[0]);
    expect(shown).toStrictEqual(["1", "2"]);
    expect(changed).toStrictEqual(["a"]);
  });

  test("live: rows that have expired are left out from the next change on, and those behind move up", async () => {
    const client = shop({ collections: { numbers: { of: json<number>(), key: u32 } } });
    const of = client.numbers;
    await of.set(1, 1, { expireAt: new Date(Date.now() + 1_000) });
    for (const key of [2, 3, 4]) await of.set(key, key);
    let keys: number[] = [];
    of.live({ limit: 3 }, (rows) => {
      keys = rows.map(([key]) => key);
    });
    await until(() => keys.length === 3);
    expect(keys).toStrictEqual([1, 2, 3]);
    // An expiry is rounded up to a second.
    while ((await of.get(1)) !== undefined) await turn(50);
    await of.set(2, 20);
    await until(() => keys[0] !== 1);
    expect(keys).toStrictEqual([2, 3, 4]);
  });

  test("live: a value that cannot be read ends it with the reason, and others go on", async () => {
    const bad = {
      name: "bad",
      encode: (value: string) => new TextEncoder().encode(value),
      decode: (given: Uint8Array): string => {
        if (given[0] === 0x21) throw new RangeError("unreadable");
        return new TextDecoder().decode(given.slice());
      },
    };
    const client = shop({ collections: { secrets: { of: bad } } });
    const { secrets } = client as unknown as { secrets: Client };
    let raw = 0;
    client.live({}, () => {
      raw += 1;
    });
    let rows: unknown[] = [];
    const live = secrets.live({}, (all) => {
      rows = all;
    });
    await secrets.set("a", "fine");
    await until(() => rows.length === 1);
    expect(rows).toStrictEqual([["a", "fine"]]);
    const ended = live.ended;
    secrets.set("b", "!");
    await rejects(ended, { name: "RangeError", message: /unreadable/ });
    const before = raw;
    await (client as Client).set("raw", "1");
    await until(() => raw > before);
  });

  test("live: writes that were undone give no result", async () => {
    const client = shop({
      procedures: {
        undone: (db) => {
          db.set("a", "2");
          throw new RangeError("no");
        },
      },
    });
    await client.set("a", "1");
    const results: number[] = [];
    client.live({}, (rows) => results.push(rows.length));
    await until(() => results.length === 1);
    await rejects(client.call.undone(), { name: "RangeError" });
    await client.set("b", "1");
    await until(() => results.length === 2);
    expect(results).toStrictEqual([1, 2]);
  });

  test("live: a client of another build is sent no rows", async () => {
    let pretended = (build: string) => build;
    const client = shop(
      {},
      {
        relay: (server) => {
          const post = server.postMessage.bind(server);
          server.postMessage = (message: { rows?: unknown; build?: string }) =>
            post(
              "rows" in message ? { ...message, build: pretended(`${message.build}`) } : message,
            );
          return server;
        },
      },
    );
    await client.set("a", "1");
    const never = () => assert(false, "no rows are expected");
    pretended = (build) => `${build}-other`;
    await rejects(client.live({}, never).ended, { name: "SchemaMismatchError" });
    // An older build: the event "outdated" reports that, and the live range just ends.
    pretended = (build) => build.replace(/(?<=\.)\d+/, (protocol) => `${Number(protocol) - 1}`);
    expect(await client.live({}, never).ended).toBe(undefined);
    pretended = (build) => build;
    const [rows] = await Promise.all([client.live().next()]);
    expect(rows.value?.length).toBe(1);
  });
});
