import type { Database } from "varve";
import { str, struct, u32 } from "varve/struct";
import { assert, expect, test } from "vitest";
import { context } from "../support/context.js";
import { random, text, turn } from "../support/values.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const MIB = 1_048_576;
const Row = struct("Row", { number: u32, name: str });
const indexes = { byName: "name", byBoth: { fields: ["name", "number"] } } as const;

/** The debug wasm also ends with an error where memory grows under a view. */
const ROUNDS = context().build === "debug" ? 8 : 16;

/** Long calls that allocate, each over many of `count` keys. */
function longCalls(db: Database, count: number, below: (limit: number) => number) {
  const rows = db.collection("rows", Row, { indexes });
  const value = "a".repeat(1 + below(200));
  const key = () => `key ${below(count * 2)}`;
  const each = (work: (i: number) => unknown) => {
    for (let i = 0; i < count; i++) work(i);
  };
  return [
    () => db.clear({ prefix: "key", limit: count - 1 }),
    () => db.clear({ gte: "key 2", lt: "key 5" }),
    () => rows.clear(),
    () => each((i) => db.delete(`key ${i}`)),
    () => each(() => db.set(key(), value)),
    () => each((i) => db.updateIf(`key ${i}`, (bytes) => bytes.fill(i, 0, 1))),
    () => each((i) => rows.set(`${key()}`, { number: i, name: `name ${below(1_000)}${value}` })),
    () => each(() => db.get(key())),
    () => [...db.entries()].length,
    () => [...rows.values()].length,
    () => [...rows.index.byName.entries()].length,
    () => db.count({ gte: "key 3" }),
    () => db.transaction((tx) => each((i) => tx.delete(`key ${i}`))),
    () => db.transaction((tx) => each(() => tx.set(key(), value))),
    () => {
      for (let i = 0; i < 60; i++) db.set(`large ${below(20)}`, new Uint8Array(below(900_000)));
    },
    () => {
      const before = db.snapshot();
      try {
        each(() => db.set(key(), value));
        return [...before.keys()].length;
      } finally {
        before.close();
      }
    },
  ];
}

everywhere("views while memory is full", ({ storage, name: place }) => {
  // Browsers' files are slow, and the engine is the same.
  const rounds = place === "memory" ? ROUNDS : ROUNDS / 4;

  test("no call of a turn ends a view of get, whatever was called before and whatever maintenance does", async () => {
    for (let round = 0; round < rounds; round++) {
      const below = random(round);
      const name = freshName();
      const options = { memory: (4 + below(5)) * MIB };
      let db = await opened(storage, options, name);
      db.set("cfg", "the configuration");
      const count = 10_000 + below(40_000);
      const value = "a".repeat(1 + below(200));
      for (let i = 0; i < count; i++) {
        db.set(`key ${i}`, value);
        if (i % 5_000 === 0) await turn(below(8) === 0 ? below(15) : 0);
      }
      if (below(2) === 0) db = await reopened(db, storage, name, options);
      const calls = longCalls(db, count, below);
      for (let turns = 0; turns < 4; turns++) {
        const cfg = db.get("cfg");
        for (let i = 1 + below(3); i > 0; i--) {
          const call = calls[below(calls.length)] as () => unknown;
          try {
            call();
          } catch (error) {
            const { code, message } = error as { code?: string; message: string };
            assert(code === "VARVE_OUT_OF_MEMORY", `${round}: ${call}: ${message}`);
          }
          expect(text(cfg), `${round}: ${call}`).toBe("the configuration");
        }
        await turn(below(10));
      }
      await db.close();
    }
  }, 240_000);

  test("neither a range nor a count of a past commit ends a view of get, and in a turn without views they need no memory", async () => {
    const db = await opened(storage, { memory: 4 * MIB, history: "keep" });
    db.set("cfg", "the configuration");
    db.commit();
    const first = db.lastCommit;
    // What has changed since takes more memory than is reserved for a turn.
    const count = 90_000;
    const end = "/".repeat(220);
    for (let i = 0; i < count; i++) {
      db.set(`${i}${end}`, "");
      if (i % 5_000 === 0) await turn();
    }
    await turn();
    const cfg = db.get("cfg");
    const past = db.at(first);
    for (const call of [() => past.count(), () => [...past.keys()].length]) {
      try {
        expect(call()).toBe(1);
      } catch (error) {
        const { code, message } = error as { code?: string; message: string };
        assert(code === "VARVE_OUT_OF_MEMORY", message);
      }
      expect(text(cfg)).toBe("the configuration");
    }
    await turn();
    expect([past.count(), [...past.keys()]]).toStrictEqual([1, ["cfg"]]);
    past.close();
    await db.close();
  }, 60_000);
});
