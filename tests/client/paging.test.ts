import type { Database } from "varve";
import { json, str, struct, u32 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { rejects } from "../support/errors.js";
import { shop } from "./support.js";

const ROWS = 3_000;

function name(i: number): string {
  return `n/${String(i).padStart(5, "0")}`;
}

function fill(db: Database): void {
  for (let i = 0; i < ROWS; i += 1) db.set(name(i), String(i));
}

/** The calls that read a page. */
interface Inside {
  read(...args: unknown[]): unknown;
}

/** All items of an iterable. */
async function over<T>(rows: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const row of rows) found.push(row);
  return found;
}

describe("iteration of remote ranges", () => {
  test("iteration: it yields the same as all(), in every range, order and key form", async () => {
    const client = shop({ procedures: { fill } });
    await client.call.fill();
    await client.set("m", "before");
    await client.set("o", "behind");
    const ranges = [
      {},
      { prefix: "n/" },
      { gt: name(10), lte: name(2_500) },
      { gte: name(10), lt: name(2_500), reverse: true },
      { prefix: "n/", reverse: true, limit: 1_500 },
      { limit: 64 },
      { limit: 65 },
      { limit: 0 },
      { gt: "x" },
    ];
    for (const range of ranges) {
      expect(await over(client.keys(range))).toStrictEqual(await client.keys(range).all());
      expect(await over(client.values(range))).toStrictEqual(await client.values(range).all());
      expect(await over(client.entries(range))).toStrictEqual(await client.entries(range).all());
    }
    const bytes = { keyAs: "bytes", gt: name(100), limit: 200 } as const;
    expect(await over(client.keys(bytes))).toStrictEqual(await client.keys(bytes).all());
  });

  test("iteration: collections and indexes", async () => {
    const Visit = struct("Visit", { count: u32, by: str });
    const client = shop({
      collections: {
        visits: { of: Visit, key: [str, u32], indexes: { byCount: "count" } },
        notes: json<number>(),
      },
    });
    const keys = Array.from({ length: 300 }, (_, i) => [i % 2 ? "a" : "b", i] as [string, number]);
    await client.visits.batch(
      keys.map((key, i) => ({ type: "set", key, value: { count: i % 7, by: "x" } })),
    );
    for (const range of [
      {},
      { reverse: true, limit: 200 },
      { gt: ["a", 20] as [string, number] },
    ]) {
      expect(await over(client.visits.keys(range))).toStrictEqual(
        await client.visits.keys(range).all(),
      );
      expect(await over(client.visits.values(range))).toStrictEqual(
        await client.visits.values(range).all(),
      );
      expect(await over(client.visits.entries(range))).toStrictEqual(
        await client.visits.entries(range).all(),
      );
    }
    const { byCount } = client.visits.index;
    expect(await over(byCount.keys({ gte: 3 }))).toStrictEqual(
      await byCount.keys({ gte: 3 }).all(),
    );
    expect(await over(client.notes.entries())).toStrictEqual([]);
  });

  test("iteration: a concurrent write behind the last key is seen", async () => {
    const client = shop({ procedures: { fill } });
    await client.call.fill();
    const seen: string[] = [];
    for await (const key of client.keys()) {
      if (seen.length === 0) {
        await client.delete(name(2_000));
        await client.set(`${name(2_500)}/new`, "1");
        await client.set("a", "before all");
      }
      seen.push(key);
    }
    expect(seen.length).toBe(ROWS);
    assert(
      seen.includes(`${name(2_500)}/new`) && !seen.includes(name(2_000)) && !seen.includes("a"),
    );
  });

  test("iteration: large ranges come in several messages, and each large value in its own", async () => {
    let asked = 0;
    const client = shop({ procedures: { fill } });
    const large = new Uint8Array(200_000);
    for (const key of ["a", "b", "c", "d"]) await client.set(key, large);
    const values = client.values();
    const page = (values as unknown as Inside).read;
    Object.assign(values, {
      read: (...args: unknown[]) => {
        asked += 1;
        return page(...args);
      },
    });
    expect((await over(values)).length).toBe(4);
    // Two values fill a page, and the second one says that it is the last.
    expect(asked).toBe(2);
  });

  test("iteration: a bad range is refused", async () => {
    const client = shop();
    await rejects(over(client.keys({ limit: -1 })), { name: "TypeError" });
    await rejects(over(client.keys({ gt: "a", gte: "b" })), { name: "TypeError" });
  });
});
