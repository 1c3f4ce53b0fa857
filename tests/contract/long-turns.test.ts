import type { Database } from "varve";
import { str, struct, text as texts, u32 } from "varve/struct";
import { assert, expect, test } from "vitest";
import { context } from "../support/context.js";
import { throws } from "../support/errors.js";
import { text, turn } from "../support/values.js";
import { everywhere, filled, freshName, opened, ownOrDetached, reopened } from "./storages.js";

const MIB = 1_048_576;

/** The minimum memory. */
const LITTLE = { memory: 4 * MIB } as const;

/** The number of steps is reduced in the debug build, which has the same behavior. */
const isDebug = context().build === "debug";

async function rows(db: Database, count: number, size: number): Promise<void> {
  const value = filled(size, 7);
  for (let i = 0; i < count; i++) {
    value[0] = i % 251;
    db.set(`row ${String(i).padStart(7, "0")}`, value);
    if (i % 500 === 499) await turn();
  }
  db.flush();
  await turn();
}

everywhere("views of one long turn", ({ storage, name: place }) => {
  // memory() has all data twice, and the debug build is slow.
  const scale = isDebug || place !== "file" ? 0.25 : 1;

  test("1: a view of get outlives an iteration over more than the memory", async () => {
    const name = freshName();
    const options = { memory: Math.max(4, 64 * scale) * MIB };
    let db = await opened(storage, options, name);
    db.set("cfg", "the configuration");
    const count = 120_000 * scale;
    await rows(db, count, 1_000);
    db = await reopened(db, storage, name, options);
    const cfg = db.get("cfg");
    let [seen, sum] = [0, 0];
    for (const [key, value] of db.entries({ prefix: "row " })) {
      expect(value[0]).toBe(Number(key.slice(4)) % 251);
      sum += value.length;
      seen += 1;
      if (seen % 10_000 === 0) expect(text(cfg), `after ${seen} rows`).toBe("the configuration");
    }
    expect([seen, sum]).toStrictEqual([count, count * 1_000]);
    expect(text(cfg)).toBe("the configuration");
    const { memoryBytes, budgetBytes } = db.stats();
    assert(memoryBytes < 1.6 * budgetBytes, `${memoryBytes} bytes of memory`);
    await turn();
    assert(db.stats().memoryBytes <= 1.25 * budgetBytes, "freed when the turn ended");
  });

  test("1: a view of get outlives 34 sets of a MiB", async () => {
    const db = await opened(storage);
    db.set("cfg", "the configuration");
    const cfg = db.get("cfg");
    for (let i = 0; i < 34; i++) {
      db.set(`${i}`, filled(MIB, i));
      expect(text(cfg), `after ${i}`).toBe("the configuration");
    }
  });

  test("1: a view of get outlives many small sets", async () => {
    const db = await opened(storage);
    db.set("cfg", "the configuration");
    const cfg = db.get("cfg");
    const count = 950_000 * scale;
    for (let i = 0; i < count; i++) db.set(`key ${i}`, "a small value");
    expect(text(cfg)).toBe("the configuration");
  });

  test("1: all views of a turn stay valid, however much it reads", async () => {
    const name = freshName();
    let db = await opened(storage, LITTLE, name);
    db.set("cfg", "the configuration");
    await rows(db, 6_000, 4_000);
    for (let i = 0; i < 8; i++) {
      db.set(`large ${i}`, filled(1.5 * MIB, i));
      await turn();
    }
    db = await reopened(db, storage, name, LITTLE);
    const cfg = db.get("cfg");
    const views = Array.from({ length: 6_000 }, (_, i) => {
      const at = (i * 1_663) % 6_000;
      return [db.get(`row ${String(at).padStart(7, "0")}`) as Uint8Array, at % 251] as const;
    });
    const large = Array.from({ length: 8 }, (_, i) => db.get(`large ${i}`) as Uint8Array);
    const many = db.getMany(views.map((_, i) => `row ${String(i).padStart(7, "0")}`));
    expect(text(cfg)).toBe("the configuration");
    for (const [view, first] of views) assert(view.length === 4_000 && view[0] === first);
    for (const [i, view] of large.entries())
      assert(view.length === 1.5 * MIB && ownOrDetached(view, i));
    for (const [i, view] of many.entries()) assert(view?.length === 4_000 && view[0] === i % 251);
    assert(db.stats().memoryBytes < 16 * MIB, `${db.stats().memoryBytes} bytes of memory`);
    await turn();
    assert(db.stats().memoryBytes < 6 * MIB, `${db.stats().memoryBytes} bytes of memory`);
  });

  test("1: views of records and of callbacks stay valid too", async () => {
    const Row = struct("Row", { number: u32, twice: u32 });
    const name = freshName();
    let db = await opened(storage, LITTLE, name);
    const put = db.collection("rows", Row);
    db.collection("filler", texts()).set("one", "x");
    for (let i = 0; i < 3_000; i++) {
      put.set(`${i}`, { number: i, twice: 2 * i });
      db.set(`filler ${i}`, filled(4_000, i % 251));
      if (i % 500 === 0) await turn();
    }
    db = await reopened(db, storage, name, LITTLE);
    const kept = db.collection("rows", Row);
    const first = kept.get("7");
    const all = Array.from({ length: 3_000 }, (_, i) => kept.get(`${i}`));
    for (const [i, row] of all.entries())
      expect([row?.number, row?.twice]).toStrictEqual([i, 2 * i]);
    expect(first?.twice).toBe(14);
    db.updateIf("filler 3", (view) => {
      for (let i = 0; i < 3_000; i++) {
        const other = db.get(`filler ${i}`);
        assert(i === 3 || (other?.length === 4_000 && other[7] === i % 251));
      }
      view.fill(9);
    });
    assert(ownOrDetached(db.get("filler 3") as Uint8Array, 9));
    const change = (row: { number: number }) => {
      row.number = 1;
    };
    const updated = kept.updateIf("8", change, {
      predicateKey: "9",
      predicate: (row) => {
        for (let i = 0; i < 3_000; i++) db.get(`filler ${i}`);
        return row.number === 9 && row.twice === 18;
      },
    });
    expect(updated).toBe(true);
    expect(first?.twice).toBe(14);
  });

  test("1: a view of get outlives updates of more than the memory, raw and of records", async () => {
    const Row = struct("Row", { number: u32, name: str });
    const name = freshName();
    let db = await opened(storage, LITTLE, name);
    db.set("cfg", "the configuration");
    await rows(db, 5_000, 4_000);
    const put = db.collection("rows", Row, { indexes: { byNumber: "number" } });
    for (let i = 0; i < 5_000; i++) {
      put.set(`${i}`, { number: i, name: "x".repeat(1_000) });
      if (i % 500 === 0) await turn();
    }
    db = await reopened(db, storage, name, LITTLE);
    const cfg = db.get("cfg");
    for (let i = 0; i < 5_000; i++) {
      const key = `row ${String(i).padStart(7, "0")}`;
      const add = (bytes: Uint8Array) => {
        bytes[1] = (bytes[0] as number) ^ 255;
      };
      expect(db.updateIf(key, add, { predicate: (bytes) => bytes[1] === 7 })).toBe(true);
    }
    const kept = db.collection("rows", Row, { indexes: { byNumber: "number" } });
    for (let i = 0; i < 5_000; i++) {
      const change = (row: { number: number; name: string }) => {
        row.number += 5_000;
        if (i % 3 === 0) row.name = "another length";
      };
      expect(kept.updateIf(`${i}`, change, { predicate: (row) => row.number === i })).toBe(true);
    }
    expect(text(cfg)).toBe("the configuration");
    for (let i = 0; i < 5_000; i++) {
      const view = db.get(`row ${String(i).padStart(7, "0")}`);
      assert(view?.[1] === ((i % 251) ^ 255) && view[2] === 7, `${i}`);
      const row = kept.get(`${i}`);
      expect(row?.number).toBe(5_000 + i);
      expect(row?.name.length).toBe(i % 3 === 0 ? 14 : 1_000);
    }
    expect(kept.index.byNumber.count({ gte: 5_000 })).toBe(5_000);
    expect(text(cfg)).toBe("the configuration");
  });

  test("1: a call that would end a view of get is refused, and works in the next turn", async () => {
    const db = await opened(storage, LITTLE);
    db.set("cfg", "the configuration");
    const cfg = db.get("cfg");
    const more = () => {
      for (let i = 0; i < 3_000_000; i++) db.set(`key ${i}`, "a small value");
    };
    throws(more, { name: "OutOfMemoryError", code: "VARVE_OUT_OF_MEMORY", message: /await/ });
    expect(text(cfg)).toBe("the configuration");
    const { records: count } = db.stats();
    assert(count > 20_000, `${count} were written before that`);
    await turn();
    const before = db.count();
    for (let i = 0; i < 50_000; i++) db.set(`more ${i}`, "a small value");
    expect(db.count()).toBe(before + 50_000);
    expect(db.getText("key 5")).toBe("a small value");
  });

  test("1: a view of get outlives deletions of many keys, also refused ones", async () => {
    const db = await opened(storage, LITTLE);
    db.set("cfg", "the configuration");
    const count = 300_000;
    for (let i = 0; i < count; i++) {
      db.set(`key ${i}`, "a small value");
      if (i % 10_000 === 0) await turn();
    }
    await turn();
    const deletions: Record<string, () => unknown> = {
      clear: () => db.clear({ prefix: "key", limit: count - 1 }),
      transaction: () =>
        db.transaction((tx) => {
          for (let i = 0; i < count; i++) tx.delete(`key ${i}`);
        }),
    };
    const refused = { name: "OutOfMemoryError", code: "VARVE_OUT_OF_MEMORY", message: /await/ };
    for (const [call, work] of Object.entries(deletions)) {
      const cfg = db.get("cfg");
      throws(work, refused);
      expect(text(cfg), call).toBe("the configuration");
      expect(db.count(), call).toBe(count + 1);
      await turn();
    }
    // In a turn without a view.
    expect(deletions.clear?.()).toBe(count - 1);
  });

  test("1: a view of get outlives the rollback of a refused transaction of indexed records", async () => {
    const Row = struct("Row", { number: u32, name: str });
    const db = await opened(storage, LITTLE);
    db.set("cfg", "the configuration");
    const indexes = { byBoth: { fields: ["name", "number"] }, byName: "name" } as const;
    const all = db.collection("rows", Row, { indexes });
    // From now on keys are kept in order.
    expect(all.count({ gte: "a" })).toBe(0);
    await turn();
    const cfg = db.get("cfg");
    const rest = "x".repeat(30);
    const add = (count: number) => {
      for (let i = 0; i < count; i++)
        all.set(`z${i}${rest}`, { number: i, name: `text${i}${rest}` });
    };
    throws(() => db.transaction(() => add(500_000)), {
      name: "OutOfMemoryError",
      code: "VARVE_OUT_OF_MEMORY",
      message: /await/,
    });
    expect(text(cfg)).toBe("the configuration");
    expect([all.count(), all.index.byName.count({ gte: "a" })]).toStrictEqual([0, 0]);
    await turn();
    add(1_000);
    expect(all.index.byName.count({ gte: "text5", lt: "text6" })).toBe(111);
    expect(all.index.byBoth.count({ gte: ["text5"], lt: ["text6"] })).toBe(111);
    expect([...all.keys({ limit: 2 })]).toStrictEqual([`z0${rest}`, `z100${rest}`]);
  });

  test("a turn without a view of get writes any amount", async () => {
    const db = await opened(storage, LITTLE);
    db.set("cfg", "the configuration");
    expect(db.getText("cfg")).toBe("the configuration");
    const count = isDebug ? 100_000 : 400_000;
    for (let i = 0; i < count; i++) db.set(`key ${i}`, "a small value");
    expect(db.count()).toBe(count + 1);
  });
});
