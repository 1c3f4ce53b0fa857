import suite from "abstract-level/test/index.js";
import tape, { type Test } from "tape";
import { type Client, type Database, file, open } from "varve";
import { VarveLevel } from "varve/level";
import { text } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { bytes } from "../support/values.js";
import { fresh, type Kind, onBoth } from "./support.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };

let prefixes = 0;

/** A level that nothing was stored in. */
function made<K = string, V = string>(to: Database | Client, options: object = {}) {
  prefixes += 1;
  return new VarveLevel<K, V>(to, { ...options, prefix: `level-${prefixes}/` });
}

interface Row {
  readonly type: string;
  readonly name?: string;
  readonly id?: number;
  readonly test?: number;
  readonly ok?: boolean;
}

/** Runs a suite of tape. Resolves to how many assertions held, and to the others by the names of their tests. */
async function tapeResults(define: (test: Test) => void) {
  const harness = tape.createHarness();
  const results = { passed: 0, failed: [] as string[] };
  const names = new Map<number, string>();
  const stream = harness.createStream({ objectMode: true });
  const ended = new Promise<void>((resolve, reject) => {
    stream.on("data", (row: Row) => {
      if (row.type === "test") names.set(row.id ?? -1, row.name ?? "");
      if (row.type !== "assert") return;
      if (row.ok) results.passed += 1;
      else results.failed.push(`${names.get(row.test ?? -1)}: ${row.name}`);
    });
    stream.on("end", resolve);
    stream.on("error", reject);
  });
  define(harness);
  await ended;
  return results;
}

/** The fewest assertions that the suite makes: a suite that stops early does not pass. */
const FEWEST = { database: 5_100, client: 4_250 };

describe("abstract-level's own suite", () => {
  for (const kind of Object.keys(FEWEST) as Kind[]) {
    test(`level: all of its assertions hold on a ${kind}`, async () => {
      // It takes minutes with strict views, with which the tests below run.
      const to = await fresh(kind, { strictViews: false });
      const { passed, failed } = await tapeResults((test) => {
        suite({ test, factory: (options) => made(to, options) });
      });
      expect(failed).toStrictEqual([]);
      assert(passed >= FEWEST[kind], `${passed} assertions`);
    });
  }
});

onBoth("level", (to, kind) => {
  test("level: bytes, text and JSON come back, also under an empty key", async () => {
    const level = made<string, unknown>(to(), { valueEncoding: "json" });
    await level.put("", { a: [1] });
    await level.put("é", false);
    expect(await level.iterator().all()).toStrictEqual([
      ["", { a: [1] }],
      ["é", false],
    ]);
    const view = { keyEncoding: "view", valueEncoding: "view" } as const;
    await level.put(new Uint8Array([0xff]) as never, bytes("raw"), view as object);
    expect(await level.get(new Uint8Array([0xff]) as never, view as object)).toStrictEqual(
      bytes("raw"),
    );
  });

  test("level: what was read stays as it was after other reads and writes", async () => {
    const level = made<string, Uint8Array>(to(), { valueEncoding: "view" });
    await level.put("a", bytes("one"));
    const got = [await level.get("a"), (await level.getMany(["a"]))[0]];
    for await (const value of level.values()) got.push(value);
    await level.put("a", bytes("two"));
    await level.clear();
    expect(got).toStrictEqual([bytes("one"), bytes("one"), bytes("one")]);
  });

  test("level: it touches nothing but what is below its prefix", async () => {
    await to().clear();
    await to().set("mine", "1");
    await to().set("level-", "2");
    const [one, two] = [made(to()), made(to())];
    await one.put("a", "1");
    await two.put("a", "2");
    await one.clear();
    expect(await two.keys().all()).toStrictEqual(["a"]);
    await two.clear({ gte: "a", lt: "b" });
    expect([await to().getText("mine"), await to().count()]).toStrictEqual(["1", 2]);
    await to().clear();
  });

  test("level: a batch with one operation that is refused does nothing", async () => {
    const level = made(to());
    const operations = [
      { type: "put" as const, key: "a", value: "1" },
      { type: "put" as const, key: "b", value: "x".repeat(17_000_000) },
    ];
    await rejects(level.batch(operations), BAD);
    await rejects(level.put("x".repeat(66_000), "1"), BAD);
    expect(await level.keys().all()).toStrictEqual([]);
  });

  test("level: of two bounds at one end the one that includes its key counts", async () => {
    const level = made(to());
    for (const key of ["a", "b", "c"]) await level.put(key, key);
    expect(await level.keys({ gt: "b", gte: "a", lt: "b", lte: "c" }).all()).toStrictEqual([
      "a",
      "b",
      "c",
    ]);
  });

  test("level: a closed database is reported by open and by every call", async () => {
    const db = await fresh(kind);
    const level = made(db);
    await level.open();
    await db.close();
    const closed = { code: "VARVE_DATABASE_CLOSED" };
    await rejects(level.get("a"), closed);
    await rejects(level.put("a", "1"), closed);
    await rejects(level.batch([{ type: "del", key: "a" }]), closed);
    await rejects(level.clear(), closed);
    await rejects(async () => level.keys().all(), closed);
    const error = await rejects(made(db).open(), { code: "LEVEL_DATABASE_NOT_OPEN" });
    expect((error.cause as { code?: string }).code).toBe(closed.code);
    await level.close();
  });
});

describe("level: the class", () => {
  test("level: anything but a database or a client is refused, and a bad prefix", async () => {
    const db = await fresh("database");
    const collection = db.collection("a", text());
    const sqlite = { transaction: () => {}, prepare: () => {} };
    const others = [undefined, null, {}, new Map(), "shop", db.snapshot(), collection, sqlite];
    for (const wrong of others) {
      throws(() => new VarveLevel(wrong as never), { ...BAD, message: /open\(\)/ });
    }
    for (const prefix of [5, ""]) {
      throws(() => new VarveLevel(db, { prefix: prefix as never }), { ...BAD, message: /prefix/ });
    }
  });

  test("level: iterators and snapshots that were closed leave no snapshot open", async () => {
    const db = await fresh("database");
    const level = made(db);
    await level.put("a", "1");
    const snapshot = level.snapshot();
    for await (const _ of level.iterator()) break;
    const iterator = level.iterator({ snapshot });
    await level.put("a", "2");
    expect([await iterator.next(), await level.get("a", { snapshot })]).toStrictEqual([
      ["a", "1"],
      "1",
    ]);
    await iterator.close();
    expect(db.stats().snapshots.count).toBe(1);
    await snapshot.close();
    level.keys();
    await level.close();
    expect(db.stats().snapshots.count).toBe(0);
  });

  test("level: values are there when the database is opened again", async () => {
    const storage = file(context().directory ?? "");
    for (const expected of [undefined, "1"]) {
      const db = await open("level", { storage, ...wasmOption() });
      onTestFinished(() => db.close());
      const level = new VarveLevel(db);
      expect(await level.get("a")).toBe(expected);
      await level.put("a", "1");
      await level.close();
      await db.close();
    }
  });
});
