import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { type Database, file, type OpenOptions, open } from "varve";
import { desc, f64, type Infer, i32, option, str, struct, u8, u16, u32, vec } from "varve/struct";
import { structured } from "varve/structured";
import { assert, describe, expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { random, turn } from "../support/values.js";
import { folder } from "./support/processes.js";

/**
 * Random programs on two collections with indexes, one of structs and one of plain objects, compared with a map. Every few
 * steps each index must equal all records in its order, also after the file is reopened, and in a copy of it as a crash
 * leaves it.
 */

const FIELDS = { count: u16, price: f64, brand: str, rank: option(i32), sku: u32 };
const Row = struct("Row", { ...FIELDS, tags: vec(u8) });
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
      byTag: { fields: "tags", multiEntry: true },
    },
  });
type Rows = ReturnType<typeof rowsOf>;

const plainOf = (db: Database) =>
  db.collection("plain", structured<Row>(), {
    key: [u32, str],
    indexes: {
      byCount: { fields: "count", type: u16 },
      byBrand: { fields: ["brand", desc("price")], type: [str, f64] },
      byRank: { fields: desc("rank"), type: option(i32) },
      bySku: { fields: "sku", type: u32, unique: true },
      byTag: { fields: "tags", type: u8, multiEntry: true },
    },
  });
type Plain = ReturnType<typeof plainOf>;

/** Both collections, which have the same records. */
interface Both {
  readonly rows: Rows;
  readonly plain: Plain;
}

const bothOf = (db: Database): Both => ({ rows: rowsOf(db), plain: plainOf(db) });

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
  const tags = Array.from({ length: next(4) }, () => next(5));
  return { count: next(5), price, brand, rank, sku: next(60), tags };
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

/** The keys of the records that have each tag, in the order of the tags. */
function tagged(model: Model): [number, Key][] {
  const keys = sorted(model, () => []);
  const tagsOf = (key: Key) => (model.get(JSON.stringify(key)) as Row).tags;
  return [0, 1, 2, 3, 4].flatMap((tag) =>
    keys.filter((key) => tagsOf(key).includes(tag)).map((key): [number, Key] => [tag, key]),
  );
}

function agree({ rows, plain }: Both, model: Model): void {
  agreeOne(rows, model);
  agreeOne(plain, model);
}

function agreeOne(rows: Rows | Plain, model: Model): void {
  const { byCount, byBrand, byRank, bySku, byTag } = rows.index;
  const keys = sorted(model, () => []);
  expect([...rows.keys()]).toStrictEqual(keys as [number, string][]);
  for (const [key, row] of rows.entries()) {
    const value = "snapshot" in row ? row.snapshot() : row;
    expect(value).toStrictEqual(model.get(JSON.stringify(key)) as Row);
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
  const tags = tagged(model);
  expect([...byTag.keys()]).toStrictEqual(tags.map(([, key]) => key) as never);
  expect([...byTag.keys({ gte: 1, lt: 3, reverse: true })].reverse()).toStrictEqual(
    tags.filter(([tag]) => tag === 1 || tag === 2).map(([, key]) => key) as never,
  );
  expect(byTag.count()).toBe(tags.length);
  expect([...(bySku.values() as Iterable<{ sku: number }>)].map(({ sku }) => sku)).toStrictEqual(
    [...model.values()].map(({ sku }) => sku).sort((a, b) => a - b),
  );
  expect(byCount.count({ gte: 2, lt: 4 })).toBe(
    [...model.values()].filter(({ count }) => count === 2 || count === 3).length,
  );
  expect(rows.count()).toBe(model.size);
}

/** Applies the same write to both. A refusal by the unique index has to be the same as well. */
function write(both: Both, model: Model, key: Key, row: Row | undefined, way: number): void {
  const before = new Map(model);
  writeOne(both.plain, before, key, row, way);
  writeOne(both.rows, model, key, row, way);
}

function writeOne(
  rows: Rows | Plain,
  model: Model,
  key: Key,
  row: Row | undefined,
  way: number,
): void {
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
      (rows as Rows).updateIf(key, (view) => {
        view.count = row.count;
        view.price = row.price;
        view.brand = row.brand;
        const { rank, tags } = row;
        if ("snapshot" in view) view.assign({ rank, tags });
        else Object.assign(view, { rank, tags: [...tags] });
        view.sku = row.sku;
      });
    }
  } catch (thrown) {
    error = thrown as { code?: unknown };
  }
  expect(error?.code, String(error)).toBe(isTaken ? "VARVE_UNIQUE_VIOLATION" : undefined);
  if (!isTaken) model.set(name, { ...row, price: row.price });
}

function step(db: Database, both: Both, model: Model, next: Random, depth = 0): void {
  const kind = next(12);
  if (kind < 6) write(both, model, someKey(next), someRow(next), next(3));
  else if (kind < 8) write(both, model, someKey(next), undefined, 0);
  else if (kind === 8) {
    // This changes no indexed field. The new value may equal the old one.
    const key = someKey(next);
    const found = model.get(JSON.stringify(key));
    const predicate = ({ count }: { count: number }) => count > 1;
    const applied = (found?.count ?? 0) > 1;
    expect(both.rows.updateIf(key, () => {}, { predicate })).toBe(applied);
    expect(both.plain.updateIf(key, () => {}, { predicate })).toBe(applied);
  } else if (kind === 9 && next(3) === 0) {
    const first = next(4);
    const count = sorted(model, () => []).filter(([a]) => a === first).length;
    expect(both.rows.clear({ prefix: [first] })).toBe(count);
    expect(both.plain.clear({ prefix: [first] })).toBe(count);
    for (const name of [...model.keys()]) if (JSON.parse(name)[0] === first) model.delete(name);
  } else if (depth < 3) {
    const before = new Map(model);
    const isUndone = next(2) === 0;
    try {
      db.transaction(() => {
        for (let i = next(6); i >= 0; i--) step(db, both, model, next, depth + 1);
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
  let both = bothOf(db);
  try {
    for (let i = 0; i < steps; i++) {
      step(db, both, model, next);
      if (next(8) === 0) agree(both, model);
      if (next(10) === 0) await turn();
      if (next(40) === 0) {
        await db.close();
        db = await open(name, options);
        both = bothOf(db);
        agree(both, model);
      }
      if (next(40) === 0) {
        db.commit();
        copyFileSync(path(name), path(`${name}-${i}`));
        const crashed = await open(`${name}-${i}`, options);
        agree(bothOf(crashed), model);
        expect((await crashed.verify()).ok).toBe(true);
        await crashed.close();
      }
    }
    agree(both, model);
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
