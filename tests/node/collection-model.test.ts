import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { type Database, file, type OpenOptions, open } from "varve";
import { desc, f64, type Infer, i32, option, str, struct, u16, u32 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { random, turn } from "../support/values.js";
import { folder } from "./support/processes.js";

/**
 * Random programs on a collection with indexes, compared with a map. Every few steps each index must equal all
 * records in its order, also after the file is reopened, and in a copy of it as a crash leaves it.
 */

const Row = struct("Row", { count: u16, price: f64, brand: str, rank: option(i32), sku: u32 });
type Row = Infer<typeof Row>;
type Key = readonly [number, string];
type Model = Map<string, Row>;

/** Keys of every kind: records, and entries of indexes. */
function keysOfAllKinds(db: Database): number {
  const { records, indexEntries } = db.stats();
  return records + indexEntries;
}

const rowsOf = (db: Database) =>
  db.collection("rows", Row, {
    key: [u32, str],
    indexes: {
      byCount: "count",
      byBrand: ["brand", desc("price")],
      byRank: desc("rank"),
      bySku: { fields: "sku", unique: true },
    },
  });
type Rows = ReturnType<typeof rowsOf>;

type Random = ReturnType<typeof random>;
const PRICES = [-Infinity, -1.5, -0, 0, 1e-300, 2, 1e300];
const TEXTS = ["", "a", "a\u0000", "a\u0000b", "ab", "ž", "a longer name than the others have"];
const pick = <T>(next: Random, list: readonly T[]): T => list[next(list.length)] as T;

function someKey(next: Random): Key {
  return [next(4), pick(next, TEXTS)];
}

function someRow(next: Random): Row {
  const rank = next(3) === 0 ? undefined : next(7) - 3;
  const [price, brand] = [pick(next, PRICES), pick(next, TEXTS)];
  return { count: next(5), price, brand, rank, sku: next(60) };
}

const compare = (a: unknown, b: unknown) => {
  if (a === b) return 0;
  if (a === undefined || b === undefined) return a === undefined ? -1 : 1;
  return (a as number) < (b as number) ? -1 : 1;
};

/** All keys in the order of some parts, then of the keys. */
function sorted(model: Model, parts: (row: Row) => [unknown, 1 | -1][]): Key[] {
  const entries = [...model].map(([key, row]) => ({ key: JSON.parse(key) as Key, of: parts(row) }));
  entries.sort((a, b) => {
    for (const [i, [value, way]] of a.of.entries()) {
      const order = compare(value, b.of[i]?.[0]) * way;
      if (order !== 0) return order;
    }
    return compare(a.key[0], b.key[0]) || compare(a.key[1], b.key[1]);
  });
  return entries.map(({ key }) => key);
}

function agree(rows: Rows, model: Model): void {
  const { byCount, byBrand, byRank, bySku } = rows.index;
  const keys = sorted(model, () => []);
  expect([...rows.keys()]).toStrictEqual(keys as [number, string][]);
  for (const [key, row] of rows.entries()) {
    expect(row.snapshot()).toStrictEqual(model.get(JSON.stringify(key)) as Row);
  }
  expect([...byCount.keys()]).toStrictEqual(sorted(model, ({ count }) => [[count, 1]]) as never);
  const brands = sorted(model, ({ brand, price }) => [
    [brand, 1],
    [price, -1],
  ]);
  expect([...byBrand.keys()]).toStrictEqual(brands as never);
  expect([...byRank.keys({ reverse: true })].reverse()).toStrictEqual(
    sorted(model, ({ rank }) => [[rank, -1]]) as never,
  );
  expect([...bySku.values()].map(({ sku }) => sku)).toStrictEqual(
    [...model.values()].map(({ sku }) => sku).sort((a, b) => a - b),
  );
  expect(byCount.count({ gte: 2, lt: 4 })).toBe(
    [...model.values()].filter(({ count }) => count === 2 || count === 3).length,
  );
  expect(rows.count()).toBe(model.size);
}

/** Applies the same write to both. A refusal by the unique index has to be the same as well. */
function write(rows: Rows, model: Model, key: Key, row: Row | undefined, way: number): void {
  const name = JSON.stringify(key);
  if (row === undefined) {
    expect(rows.delete(key)).toBe(model.delete(name));
    return;
  }
  const old = model.get(name);
  const isTaken = [...model].some(([other, { sku }]) => other !== name && sku === row.sku);
  let error: { code?: unknown } | undefined;
  try {
    if (way === 0 || old === undefined) rows.set(key, row);
    else if (way === 1) rows.updateIf(key, () => row);
    else {
      rows.updateIf(key, (view) => {
        view.count = row.count;
        view.price = row.price;
        view.brand = row.brand;
        view.assign({ rank: row.rank });
        view.sku = row.sku;
      });
    }
  } catch (thrown) {
    error = thrown as { code?: unknown };
  }
  expect(error?.code, String(error)).toBe(isTaken ? "VARVE_UNIQUE_VIOLATION" : undefined);
  if (!isTaken) model.set(name, { ...row, price: row.price });
}

function step(db: Database, rows: Rows, model: Model, next: Random, depth = 0): void {
  const kind = next(12);
  if (kind < 6) write(rows, model, someKey(next), someRow(next), next(3));
  else if (kind < 8) write(rows, model, someKey(next), undefined, 0);
  else if (kind === 8) {
    // This changes no indexed field. The new value may equal the old one.
    const key = someKey(next);
    const found = model.get(JSON.stringify(key));
    expect(rows.updateIf(key, () => {}, { predicate: ({ count }) => count > 1 })).toBe(
      (found?.count ?? 0) > 1,
    );
  } else if (kind === 9 && next(3) === 0) {
    const first = next(4);
    expect(rows.clear({ prefix: [first] })).toBe(
      sorted(model, () => []).filter(([a]) => a === first).length,
    );
    for (const name of [...model.keys()]) if (JSON.parse(name)[0] === first) model.delete(name);
  } else if (depth < 3) {
    const before = new Map(model);
    const isUndone = next(2) === 0;
    try {
      db.transaction(() => {
        for (let i = next(6); i >= 0; i--) step(db, rows, model, next, depth + 1);
        if (isUndone) throw new Error("undone");
      });
    } catch (error) {
      if ((error as Error).message !== "undone") throw error;
      model.clear();
      for (const [key, row] of before) model.set(key, row);
    }
  }
}

async function run(seed: number, directory: string, steps: number): Promise<void> {
  const next = random(seed);
  const options: OpenOptions = { storage: file(directory), memory: 1 << 20, ...wasmOption() };
  const path = (name: string) => join(directory, `${name}.varve`);
  const name = `model-${seed}`;
  const model: Model = new Map();
  let db = await open(name, options);
  let rows = rowsOf(db);
  try {
    for (let i = 0; i < steps; i++) {
      step(db, rows, model, next);
      if (next(8) === 0) agree(rows, model);
      if (next(10) === 0) await turn();
      if (next(40) === 0) {
        await db.close();
        db = await open(name, options);
        rows = rowsOf(db);
        agree(rows, model);
      }
      if (next(40) === 0) {
        db.commit();
        copyFileSync(path(name), path(`${name}-${i}`));
        const crashed = await open(`${name}-${i}`, options);
        agree(rowsOf(crashed), model);
        await crashed.close();
      }
    }
    agree(rows, model);
  } catch (error) {
    throw new Error(`The program of seed ${seed}: ${(error as Error).stack}`, { cause: error });
  } finally {
    await db.close();
  }
}

describe("a model of collections", () => {
  const { thorough } = context();
  const programs = thorough ? 20 : 4;
  test("random programs with indexes agree with a map, also after reopening and crashes", async () => {
    const directory = folder();
    for (let seed = 1; seed <= programs; seed++) await run(seed, directory, 200);
  });

  test("a migration interrupted by a crash has happened or not, and continues", async () => {
    const directory = folder();
    const options: OpenOptions = { storage: file(directory), ...wasmOption() };
    const path = (name: string) => join(directory, `${name}.varve`);
    const Later = struct("Row", { sku: u32, total: f64 });
    const indexes = { byTotal: "total", bySku: { fields: "sku", unique: true } } as const;
    const migrated = (db: Database, onProgress?: () => void) =>
      db.migrate("rows", Later, {
        key: u32,
        indexes,
        migrate: ({ sku, price }: { sku: number; price: number }) => {
          // A slice ends with the page that is done after 4 ms.
          if (sku % 16 === 0) for (const end = Date.now() + 2; Date.now() < end; );
          return { sku, total: price * 2 };
        },
        ...(onProgress === undefined ? {} : { onProgress }),
      });
    const db = await open("first", options);
    const Earlier = struct("Row", { price: f64, sku: u32 });
    const rows = db.collection("rows", Earlier, { key: u32, indexes: { byPrice: "price" } });
    for (let i = 0; i < 400; i++) rows.set(i, { price: -i, sku: i });
    const copies: string[] = [];
    const copy = () => {
      copies.push(`copy-${copies.length}`);
      copyFileSync(path("first"), path(copies.at(-1) as string));
    };
    const clock = setInterval(copy, 1);
    await migrated(db, copy);
    clearInterval(clock);
    copy();
    await db.close();
    const seen = { before: 0, after: 0 };
    for (const name of copies) {
      const crashed = await open(name, options);
      try {
        const before = crashed.collection("rows", Earlier, { key: u32 });
        expect([...before.values()].map(({ price }) => price)).toStrictEqual(
          Array.from({ length: 400 }, (_, i) => -i),
        );
        seen.before += 1;
      } catch (error) {
        expect((error as { code?: unknown }).code, String(error)).toBe("VARVE_SCHEMA_MISMATCH");
        seen.after += 1;
      }
      const { index } = await migrated(crashed);
      expect([...index.byTotal.keys()].reverse()).toStrictEqual(
        Array.from({ length: 400 }, (_, i) => i),
      );
      expect([...index.bySku.values()].map(({ total }) => total)).toStrictEqual(
        Array.from({ length: 400 }, (_, i) => -2 * i),
      );
      expect(keysOfAllKinds(crashed)).toBe(3 * 400);
      await crashed.close();
    }
    assert(seen.before > 2 && seen.after > 0, JSON.stringify(seen));
  });
});
