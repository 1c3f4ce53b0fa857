/** `client.log()`, and notes of clients' transactions. */

import type { Client, Database, RemoteLogItem, RemoteLogOptions } from "varve";
import { json, str, u32 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { bytes, text, turn } from "../support/values.js";
import { shop } from "./support.js";

const BAD = { code: "VARVE_BAD_ARGUMENT" };

/** Writes `commits` commits of `records` records each. */
function fill(db: Database, commits: number, records: number): void {
  for (let i = 0; i < commits; i += 1) {
    for (let j = 0; j < records; j += 1) db.set(`${i}/${j}`, new Uint8Array(200).fill(i));
    db.commit();
  }
}

/** What the database itself shows, as lines. */
function local(db: Database, options: RemoteLogOptions = {}): string[] {
  const lines: string[] = [];
  for (const tx of db.log(options as { flat?: false })) {
    lines.push(`${tx.number} ${tx.note} ${tx.moved} ${tx.afterGap}`);
    for (const { type, collection, key, version, value } of tx) {
      lines.push(`${type} ${collection} ${key} ${version} ${value?.length} ${value?.[0]}`);
    }
  }
  return lines;
}

const procedures = {
  fill: (db: Database, commits: number, records: number) =>
    void setTimeout(() => fill(db, commits, records), 0),
  local: (db: Database, options?: RemoteLogOptions) => local(db, options),
  close: (db: Database) => void setTimeout(() => db.close(), 0),
  compact: (db: Database) => void setTimeout(() => db.compact(), 0),
};

async function filled(commits: number, records: number) {
  const client = shop({ procedures });
  await client.call.fill(commits, records);
  while ((await client.count()) < commits * records) await turn();
  return client;
}

async function over(client: Client, options: RemoteLogOptions = {}): Promise<string[]> {
  const lines: string[] = [];
  for await (const tx of client.log(options as { flat?: false })) {
    lines.push(`${tx.number} ${tx.note} ${tx.moved} ${tx.afterGap}`);
    for await (const { type, collection, key, version, value } of tx) {
      lines.push(`${type} ${collection} ${key} ${version} ${value?.length} ${value?.[0]}`);
    }
  }
  return lines;
}

async function items(walk: AsyncIterable<RemoteLogItem>): Promise<RemoteLogItem[]> {
  const found: RemoteLogItem[] = [];
  for await (const item of walk) found.push(item);
  return found;
}

describe("the log of a remote database", () => {
  test("remote log: it has the transactions and records that the database itself shows", async () => {
    const client = await filled(40, 90);
    const expected = await client.call.local();
    expect(expected.length).toBe(40 * 91);
    expect(await over(client as Client)).toStrictEqual(expected);
    const [first] = expected as [string];
    const since = Number(first.split(" ")[0]);
    for (const options of [{ since }, { until: since + 100 }, { since, limit: 3 }, { limit: 0 }]) {
      const found = await over(client as Client, options);
      expect(found).toStrictEqual(await client.call.local(options));
    }
  });

  test("remote log: a transaction larger than a page has all its records", async () => {
    const client = await filled(1, 5_000);
    const expected = await client.call.local();
    expect(await over(client as Client)).toStrictEqual(expected);
    const flat = await items(client.log({ flat: true }));
    const records = flat.filter((item) => item.type === "set").length;
    expect(records).toBe(5_000);
  });

  test("remote log: collections, deletions and clears", async () => {
    const client = shop({
      collections: { scores: { of: json<number>(), key: [str, u32] }, texts: json<string>() },
    });
    await client.scores.set(["a", 7], 1.5);
    await client.texts.set("t", "one");
    await client.set("raw", "2");
    await client.delete("raw");
    const found: unknown[] = [];
    for await (const tx of client.log()) {
      for await (const { type, collection, key, value } of tx) {
        found.push([type, collection, key, value && text(value)]);
      }
    }
    expect(found).toStrictEqual([
      ["set", "scores", ["a", 7], "1.5"],
      ["set", "texts", "t", '"one"'],
      ["set", undefined, "raw", "2"],
      ["delete", undefined, "raw", undefined],
    ]);
  });

  test("remote log: writes requested in the same task are shown", async () => {
    const client = shop();
    client.set("a", "1");
    const [transaction, record] = await items(client.log({ flat: true }));
    assert(transaction?.type === "transaction" && record?.type === "set");
    expect([record.key, record.value]).toStrictEqual(["a", bytes("1")]);
  });

  test("remote log: skipping records, and steps that are not awaited", async () => {
    const client = await filled(30, 70);
    const numbers: number[] = [];
    for await (const tx of client.log()) numbers.push(tx.number);
    expect(numbers.length).toBe(30);
    const walk = client.log()[Symbol.asyncIterator]();
    const steps = await Promise.all(numbers.map(() => walk.next()));
    expect(steps.map(({ value }) => value?.number)).toStrictEqual(numbers);
    expect(await walk.next()).toStrictEqual({ done: true, value: undefined });
    const again = client.log()[Symbol.asyncIterator]();
    const first = (await again.next()).value;
    await again.next();
    assert(first !== undefined);
    const late = await first[Symbol.asyncIterator]().next();
    expect(late, "the walk has gone on").toStrictEqual({ done: true, value: undefined });
  });

  test("remote log: it goes on with another owner, without a gap and without a doublet", async () => {
    const client = await filled(25, 333);
    const expected = await client.call.local();
    const lines: string[] = [];
    let closed = 0;
    for await (const tx of client.log()) {
      lines.push(`${tx.number} ${tx.note} ${tx.moved} ${tx.afterGap}`);
      for await (const { type, collection, key, version, value } of tx) {
        lines.push(`${type} ${collection} ${key} ${version} ${value?.length} ${value?.[0]}`);
        if (lines.length % 1_500 !== 0) continue;
        await client.call.close();
        closed += 1;
      }
    }
    assert(closed > 3);
    expect(lines).toStrictEqual(expected);
  });

  test("remote log: the next owner shows what was compacted meanwhile where it was moved to", async () => {
    const client = shop({ procedures });
    await client.call.fill(12, 1_000);
    while ((await client.count()) < 12_000) await turn();
    const seen = new Map<unknown, number>();
    let records = 0;
    for await (const item of client.log({ flat: true })) {
      if (item.type !== "set" && item.type !== "delete") continue;
      records += 1;
      seen.set(item.key, Math.max(item.version, seen.get(item.key) ?? 0));
      if (records !== 3_000) continue;
      // Of what follows, half is deleted and the rest is moved.
      await client.clear({ gte: "6", lt: "9" });
      await client.compact();
      await client.call.close();
    }
    for (const key of await client.keys().all()) {
      const entry = await client.getEntry(key);
      expect(seen.get(key), key).toBe(entry?.version);
    }
  });

  test("remote log: bad options are refused", async () => {
    const client = shop();
    await rejects(items(client.log({ flat: true, since: -1 })), BAD);
    await rejects(over(client as Client, { until: new Date(Number.NaN) }), BAD);
    await rejects(over(client as Client, { limit: 1.5 }), BAD);
    await rejects(over(client as Client, { other: 1 } as RemoteLogOptions), BAD);
    await rejects(over(client as Client, { timeout: -1 }), BAD);
    const aborted = AbortSignal.abort(new Error("enough"));
    await rejects(over(client as Client, { signal: aborted }), { message: "enough" });
  });

  test("remote log: leaving a loop frees the walk at its owner", async () => {
    const client = await filled(20, 400);
    const memory = async () => (await client.stats()).wasmBytes;
    for await (const _ of client.log()) break;
    await client.get("a");
    const before = await memory();
    for (let i = 0; i < 40; i += 1) {
      for await (const tx of client.log()) {
        for await (const _ of tx) break;
        break;
      }
    }
    await client.get("a");
    expect(await memory()).toBe(before);
  });

  test("remote log: a client that closes ends its loops", async () => {
    const client = await filled(20, 400);
    const walk = client.log()[Symbol.asyncIterator]();
    await walk.next();
    await (client as Client).close();
    const rest = async () => {
      for (;;) if ((await walk.next()).done) return;
    };
    await rejects(rest(), { code: "VARVE_DATABASE_CLOSED" });
  });
});

describe("notes of clients' transactions", () => {
  test("remote note: the log shows it, with the time and the client", async () => {
    const client = shop();
    const before = Date.now();
    await client.set("alone", "0");
    // The writes of all four are in one message.
    await Promise.all([
      client.transaction((tx) => tx.set("a", "1")),
      client.transaction((tx) => tx.set("price", "12"), { note: "price rise" }),
      client.transaction((tx) => tx.set("stock", "3"), { note: "delivery" }),
      client.transaction((tx) => tx.set("b", "2")),
    ]);
    await client.transaction(
      async (tx) => {
        await tx.get("price");
        tx.set("price", "13");
        tx.delete("alone");
      },
      { note: "größer" },
    );
    const found: unknown[] = [];
    const clients = new Set<bigint | undefined>();
    for await (const tx of client.log()) {
      const keys: unknown[] = [];
      for await (const { key } of tx) keys.push(key);
      found.push([tx.note, keys]);
      if (tx.note === undefined) continue;
      assert(tx.time !== undefined && tx.time.getTime() >= before && +tx.time <= Date.now());
      clients.add(tx.client);
    }
    expect(found).toStrictEqual([
      [undefined, ["alone"]],
      [undefined, ["a"]],
      ["price rise", ["price"]],
      ["delivery", ["stock"]],
      [undefined, ["b"]],
      ["größer", ["price", "alone"]],
    ]);
    expect(clients.size, "all by this client").toBe(1);
    assert(typeof [...clients][0] === "bigint");
  });

  test("remote note: after conflicts there is one transaction", async () => {
    const client = shop();
    await client.set("stock", "0");
    const buy = async (i: number) =>
      client.transaction(
        async (tx) => tx.set("stock", String(Number(await tx.getText("stock")) + 1)),
        { note: `buy ${i}`, retries: 100 },
      );
    await Promise.all(Array.from({ length: 12 }, (_, i) => buy(i)));
    const notes: (string | undefined)[] = [];
    for await (const { note } of client.log({ since: 1 })) notes.push(note);
    const expected = Array.from({ length: 12 }, (_, i) => `buy ${i}`);
    expect(notes.filter((note) => note !== undefined).sort()).toStrictEqual(expected.sort());
    expect(await client.getText("stock")).toBe("12");
  });

  test("remote note: those of procedures, from their arguments", async () => {
    const client = shop({
      procedures: {
        buy: (db: Database, id: string, count: number) => db.set(id, String(count)),
        look: (db: Database) => db.count(),
        fail: (db: Database) => {
          db.set("failed", "1");
          throw new RangeError("not today");
        },
      },
      notes: {
        buy: (id, count) => {
          if (count === 0) throw new RangeError("buy something");
          return count < 0 ? (undefined as unknown as string) : `${count} of ${id}`;
        },
        fail: () => "fail",
      },
    });
    await client.ready;
    const { buy } = client.call;
    await Promise.all([buy("a", 1), client.set("b", "2"), buy("c", 3), client.call.look()]);
    await rejects(client.call.fail(), { message: "not today" });
    await rejects(buy("d", 0), { message: "buy something" });
    await rejects(buy("d", -1), BAD);
    await buy("e", 5);
    const found: unknown[] = [];
    for await (const tx of client.log()) {
      for await (const { key } of tx) found.push([tx.note, key]);
    }
    expect(found).toStrictEqual([
      ["1 of a", "a"],
      [undefined, "b"],
      ["3 of c", "c"],
      ["5 of e", "e"],
    ]);
    const wrong = (notes: unknown) => () => shop({ procedures: {}, notes: notes as never });
    for (const notes of [7, { buy: () => "x" }, []]) throws(wrong(notes), BAD);
  });

  test("remote note: a bad one is refused, and nothing is written", async () => {
    const client = shop();
    const write = (note: unknown) =>
      client.transaction((tx) => tx.set("a", "1"), { note: note as string });
    await rejects(write(7), BAD);
    await rejects(write("x".repeat(65_537)), BAD);
    await rejects(write("\ud800"), BAD);
    expect(await client.get("a")).toBe(undefined);
    await write("x".repeat(65_536));
    await client.set("b", "2");
    const walk = client.log()[Symbol.asyncIterator]();
    expect((await walk.next()).value?.note?.length).toBe(65_536);
    const loosely = client.updateIf as (...args: unknown[]) => Promise<unknown>;
    const refused = loosely.call(client, "a", () => undefined, { note: "n" });
    await rejects(refused, BAD);
  });
});
