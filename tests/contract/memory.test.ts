import type { Database } from "varve";
import { memory } from "varve";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";
import { throws } from "../support/errors.js";
import { random, turn } from "../support/values.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const MIB = 1_048_576;
const KEYS = 16_000;
const LENGTH = 1_000;

const keyOf = (i: number): string => `key ${i}`;

/** 16 MB of values, written over several turns. */
async function fill(db: Database): Promise<void> {
  for (let i = 0; i < KEYS; i += 1) {
    db.set(keyOf(i), filled(LENGTH, i & 0xff));
    if (i % 1_000 === 999) await turn();
  }
}

everywhere("memory of a database four times its memory", ({ storage }) => {
  test("a long run of random reads stays within the budget, as stats reports", async () => {
    const name = freshName();
    const options = { memory: 4 * MIB };
    const db = await opened(storage, options, name);
    await fill(db);
    const again = await reopened(db, storage, name, options);
    const start = again.stats();
    expect(start.budgetBytes).toBe(4 * MIB);
    expect(start.coldReads, "what opening reads is not counted").toBe(0);
    expect(start.coldBytes).toBe(0);
    expect(start.evictions).toBe(0);

    const next = random(11);
    const turns = context().build === "debug" ? 300 : 1_200;
    let settled = 0;
    for (let round = 0; round < turns; round += 1) {
      for (let i = 0; i < 50; i += 1) {
        const key = next(KEYS);
        const view = again.get(keyOf(key));
        assert(view?.length === LENGTH && view[LENGTH - 1] === (key & 0xff), `key ${key}`);
      }
      await Promise.resolve();
      const { memoryBytes, budgetBytes, wasmBytes } = again.stats();
      assert(memoryBytes <= budgetBytes * 1.25, `${memoryBytes} bytes in turn ${round}`);
      assert(memoryBytes < wasmBytes, "all memory holds that of records");
      if (round === turns / 4) settled = wasmBytes;
    }
    const end = again.stats();
    expect(end.wasmBytes, "all memory, which has stopped growing early in the run").toBe(settled);
    assert(end.coldReads > turns * 20, `${end.coldReads} cold reads`);
    assert(end.coldBytes >= end.coldReads * LENGTH, `${end.coldBytes} bytes of them`);
    assert(end.evictions > 0, "buffers were given up for others");
    expect(end.keys).toBe(KEYS);

    await again.close();
    throws(() => again.stats(), { code: "VARVE_DATABASE_CLOSED" });
    const third = await opened(storage, options, name);
    assert(third.stats().wasmBytes <= settled, "opening again allocates the same");
  });
});

everywhere("memory of a long transaction", ({ storage }) => {
  test("what it needed beyond the budget is freed when its turn ends", async () => {
    const db = await opened(storage, { memory: 4 * MIB }, freshName());
    for (const count of [6_000, 9_000, 12_000]) {
      db.transaction(() => {
        for (let key = 0; key < count; key += 1) db.set(keyOf(key), filled(LENGTH, key & 0xff));
      });
      const during = db.stats();
      assert(during.memoryBytes > 1.25 * during.budgetBytes, `${during.memoryBytes} bytes in it`);
      await turn();
      const { memoryBytes, budgetBytes } = db.stats();
      assert(memoryBytes <= 1.25 * budgetBytes, `${memoryBytes} bytes after ${count} writes`);
    }
    expect(db.get(keyOf(11_999))?.[LENGTH - 1]).toBe(11_999 & 0xff);
  });
});

everywhere("memory of a database that just fits", ({ storage }) => {
  test("endless overwriting does not grow the memory, whatever maintenance holds", async () => {
    const db = await opened(storage, { memory: 8 * MIB }, freshName());
    const count = 7_000;
    for (let key = 0; key < count; key += 1) {
      db.set(keyOf(key), filled(LENGTH, key & 0xff));
      if (key % 100 === 99) await turn();
    }
    const next = random(1);
    let settled = 0;
    for (let round = 0; round < 1_000; round += 1) {
      for (let i = 0; i < 16; i += 1) {
        const key = next(1 + next(count));
        db.set(keyOf(key), filled(LENGTH, key & 0xff));
      }
      for (const [key] of db.entries({ gte: keyOf(next(count)), limit: 8 })) assert(key !== "");
      await turn();
      const { wasmBytes } = db.stats();
      if (round < 100) settled = wasmBytes;
      else expect(wasmBytes, `all memory after ${round} turns`).toBe(settled);
    }
  });
});

everywhere("memory of large values", ({ storage }) => {
  const COUNT = 24;
  const options = { memory: 4 * MIB };
  /** A value of several chunks: with the header of a chunk, the last takes 128 bytes more than fit. */
  const KINDS = [
    { length: MIB - 128, most: 2, kind: "in segments of their own" },
    { length: 600_000, most: 2, kind: "in chunks" },
    { length: MIB, most: 2.01, kind: "of a MiB, in chunks" },
  ];

  async function large(length: number, most: number): Promise<Database> {
    const name = freshName();
    const db = await opened(storage, options, name);
    for (let i = 0; i < COUNT; i += 1) db.set(keyOf(10 + i), filled(length, i + 1));
    const { memoryBytes, budgetBytes } = db.stats();
    assert(memoryBytes <= most * budgetBytes, `${memoryBytes} bytes after writing in one turn`);
    return reopened(db, storage, name, options);
  }

  for (const { length, most, kind } of KINDS) {
    test(`reading all values in one turn stays bounded, and no view shows another's bytes (${kind})`, async () => {
      const db = await large(length, most);
      const views: Uint8Array[] = [];
      for (let i = 0; i < COUNT; i += 1) {
        const view = db.get(keyOf(10 + i));
        assert(view?.length === length, `${view?.length} bytes`);
        views.push(view);
        const { memoryBytes, budgetBytes } = db.stats();
        // Beyond the memory there is one more value at a time, and the buffer that reads it.
        const bound = most * budgetBytes + 2 * length + 4 * MIB;
        assert(memoryBytes <= bound, `${memoryBytes} bytes after ${i + 1} values`);
        assert(views.every((one, index) => one.length === length && one[i] === index + 1));
      }
      expect(views.at(-1)?.[length - 1]).toBe(COUNT);
    });

    test(`a scan within one turn stays bounded, each value complete until the next step (${kind})`, async () => {
      const db = await large(length, most);
      let seen = 0;
      for (const [key, value] of db.entries()) {
        seen += 1;
        expect(key).toBe(keyOf(9 + seen));
        assert(value.length === length && value[0] === seen && value[length - 1] === seen, key);
        const { memoryBytes, budgetBytes } = db.stats();
        assert(memoryBytes <= most * budgetBytes, `${memoryBytes} bytes after ${seen} values`);
      }
      expect(seen).toBe(COUNT);
    });

    test(`the view of a callback stays valid, however many others are read (${kind})`, async () => {
      const db = await large(length, most);
      const reading = (view: Uint8Array) => {
        view[0] = 98;
        for (let i = 1; i < COUNT; i += 1) expect(db.get(keyOf(10 + i))?.[length - 1]).toBe(i + 1);
        expect(view[1]).toBe(1);
      };
      expect(db.updateIf(keyOf(10), reading)).toBe(true);
      expect(db.get(keyOf(10))?.[0]).toBe(98);
      expect(
        db.updateIf(keyOf(10), (view) => {
          view[0] = 99;
          expect(db.get(keyOf(11))?.[5]).toBe(2);
        }),
      ).toBe(true);
      expect(db.get(keyOf(10))?.[0]).toBe(99);
    });

    test(`pinned values are kept, and freed afterwards (${kind})`, async () => {
      const db = await large(length, most);
      const count = Math.ceil((6 * MIB) / length);
      const pins = Array.from({ length: count }, (_, i) => db.pin(keyOf(10 + i)));
      for (let i = 0; i < COUNT; i += 1) db.get(keyOf(10 + i));
      pins.forEach((pin, i) => {
        assert(
          pin?.bytes.every((byte) => byte === i + 1),
          `pin ${i}`,
        );
      });
      await turn();
      assert(db.stats().memoryBytes > 6 * MIB);
      for (const pin of pins) pin?.dispose();
      await turn();
      assert(db.stats().memoryBytes < 6 * MIB, `${db.stats().memoryBytes} bytes`);
    });
  }
});

everywhere("values that fit in memory together", ({ storage }) => {
  const options = { memory: 16 * MIB };

  for (const length of [LENGTH, 64 * 1_024, MIB]) {
    test(`values of ${length} bytes stay in memory and are not read from the file again`, async () => {
      const name = freshName();
      const count = Math.min(1_000, (10 * MIB) / length);
      const db = await opened(storage, options, name);
      for (let i = 0; i < count; i += 1) db.set(keyOf(i), filled(length, i & 0xff));
      const again = await reopened(db, storage, name, options);
      const reads: number[] = [];
      for (let pass = 0; pass < 4; pass += 1) {
        const next = random(pass);
        for (let i = 0; i < count * 3; i += 1) {
          const key = pass === 0 ? i % count : next(count);
          expect(again.get(keyOf(key))?.[length - 1]).toBe(key & 0xff);
          if (i % 10 === 9) await turn();
        }
        reads.push(again.stats().coldReads);
      }
      // In the second and third pass single copies are still replaced by whole segments.
      expect(reads.at(-1), "reads of the file after three passes over all").toBe(reads[2]);
    });
  }
});

describe("stats", () => {
  test("a small database has no cold reads: all of it is in memory", async () => {
    const storage = memory();
    const name = freshName();
    const db = await opened(storage, {}, name);
    for (let i = 0; i < 100; i += 1) db.set(keyOf(i), filled(LENGTH, i));
    const again = await reopened(db, storage, name);
    for (let i = 0; i < 100; i += 1) expect(again.get(keyOf(i))?.[0]).toBe(i);
    const stats = again.stats();
    expect(stats.coldReads).toBe(0);
    expect(stats.evictions).toBe(0);
    expect(stats.keys).toBe(100);
  });

  test("budgetBytes reports the budget of the option memory", async () => {
    const budget = async (options: { memory?: number }) =>
      (await opened(memory(), options)).stats().budgetBytes;
    expect(await budget({})).toBe(64 * MIB);
    expect(await budget({ memory: MIB })).toBe(4 * MIB);
    expect(await budget({ memory: 10 * MIB + 5 })).toBe(10 * MIB);
  });

  test("a key and its bytes count when it is written, and not after it is deleted", async () => {
    const db = await opened(memory());
    expect(db.stats().liveBytes).toBe(0);
    db.set("key", filled(LENGTH, 1));
    const one = db.stats();
    expect(one.keys).toBe(1);
    assert(one.liveBytes > LENGTH && one.liveBytes < LENGTH + 200, `${one.liveBytes}`);
    assert(one.pendingBytes >= LENGTH);
    db.delete("key");
    expect(db.stats().keys).toBe(0);
    expect(db.stats().liveBytes).toBe(0);
  });
});
