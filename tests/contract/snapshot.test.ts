/** `db.snapshot()`: everything as it was at one moment, across awaits and writes. */

import type { Database, Snapshot } from "varve";
import { json, option, str, struct, text, u16, u32 } from "varve/struct";
import { expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { bytes, random, text as textOf, turn } from "../support/values.js";
import { everywhere, filled, freshName, opened } from "./storages.js";

const CLOSED = { name: "SnapshotClosedError", code: "VARVE_SNAPSHOT_CLOSED" } as const;
const READ_ONLY = { name: "ReadOnlyError", code: "VARVE_READ_ONLY" } as const;

const Product = struct("Product", { stock: u16, name: str });
const INDEXES = { byStock: "stock", byName: { fields: "name", unique: true } } as const;

/** The entries of a database or of a snapshot, as texts. */
function entries(of: Pick<Snapshot, "entries">, range = {}): [string, string | undefined][] {
  return Array.from(of.entries(range), ([key, value]) => [key, textOf(value)]);
}

everywhere("snapshot", ({ storage }) => {
  test("a snapshot shows what was there, across awaits and writes, and the database what is", async () => {
    const db = await opened(storage);
    for (const key of ["a", "b", "c", "d"]) db.set(key, `${key}1`);
    const versions = ["a", "b"].map((key) => db.getEntry(key)?.version);
    const then = db.snapshot();
    db.set("a", "a2");
    db.set("aa", "new");
    db.delete("b");
    db.updateIf("c", (view) => {
      view[0] = 120;
    });
    await turn();
    db.set("a", "a3, which is longer");
    db.set("b", "b2");
    await turn();
    expect(entries(then)).toStrictEqual([
      ["a", "a1"],
      ["b", "b1"],
      ["c", "c1"],
      ["d", "d1"],
    ]);
    expect(then.getText("a")).toBe("a1");
    expect(textOf(then.get("c"))).toBe("c1");
    expect(then.get("aa")).toBe(undefined);
    expect([then.has("b"), then.has("aa"), then.count()]).toStrictEqual([true, false, 4]);
    expect(then.getMany(["d", "aa", "a", "b"]).map(textOf)).toStrictEqual([
      "d1",
      undefined,
      "a1",
      "b1",
    ]);
    expect(["a", "b"].map((key) => then.getEntry(key)?.version)).toStrictEqual(versions);
    expect(textOf(then.getEntry("a")?.value)).toBe("a1");
    expect(then.getEntry("aa")).toBe(undefined);
    expect([...then.keys({ gt: "a", reverse: true })]).toStrictEqual(["d", "c", "b"]);
    expect([...then.keys({ gt: "a", lte: "c", limit: 1 })]).toStrictEqual(["b"]);
    expect([...then.keys({ prefix: "a", keyAs: "bytes" })].map(textOf)).toStrictEqual(["a"]);
    expect(Array.from(then.values({ gte: "b" }), textOf)).toStrictEqual(["b1", "c1", "d1"]);
    expect([then.count({ gte: "b" }), then.count({ prefix: "a" })]).toStrictEqual([3, 1]);
    expect(entries(db)).toStrictEqual([
      ["a", "a3, which is longer"],
      ["aa", "new"],
      ["b", "b2"],
      ["c", "x1"],
      ["d", "d1"],
    ]);
    then.close();
    expect(db.count()).toBe(5);
  });

  test("a snapshot has the writes before it, and none that were rolled back", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const then = db.snapshot();
    throws(
      () =>
        db.transaction(() => {
          db.set("a", "2");
          db.delete("a");
          db.set("b", "2");
          db.clear();
          db.set("c", "2");
          expect(entries(then)).toStrictEqual([["a", "1"]]);
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    expect(entries(then)).toStrictEqual([["a", "1"]]);
    db.set("a", "3");
    const later = db.snapshot();
    expect([entries(then), entries(later)]).toStrictEqual([[["a", "1"]], [["a", "3"]]]);
  });

  test("several snapshots each show their moment, in whatever order they are closed", async () => {
    const db = await opened(storage);
    const next = random(7);
    const now = new Map<string, string>();
    let open: [Snapshot, Map<string, string>][] = [];
    const compare = (of: Database | Snapshot, content: Map<string, string>) => {
      const sorted = [...content].sort(([a], [b]) => (a < b ? -1 : 1));
      expect(entries(of)).toStrictEqual(sorted);
      const key = `key ${next(40)}`;
      expect(of.getText(key)).toBe(content.get(key));
      const above = sorted.filter(([other]) => other >= key);
      expect(of.count({ gte: key })).toBe(above.length);
      expect(entries(of, { gte: key, reverse: true })).toStrictEqual(above.reverse());
      expect(of.count()).toBe(content.size);
    };
    for (let step = 0; step < 600; step++) {
      const key = `key ${next(40)}`;
      const what = next(20);
      if (what < 10) {
        const value = `${step} `.repeat(next(30));
        db.set(key, value);
        now.set(key, value);
      } else if (what < 13) {
        expect(db.delete(key)).toBe(now.delete(key));
      } else if (what === 13 && next(4) === 0) {
        db.clear();
        now.clear();
      } else if (what < 15 && open.length < 6) {
        open.push([db.snapshot(), new Map(now)]);
      } else if (what < 17 && open.length > 0) {
        const [closed] = open.splice(next(open.length), 1);
        closed?.[0].close();
      } else if (what < 18) {
        await turn();
      } else {
        compare(db, now);
        for (const [then, content] of open) compare(then, content);
      }
    }
    for (const [then, content] of open) compare(then, content);
    open = [];
  });

  test("values of every size are there as they were, also after they were replaced", async () => {
    const db = await opened(storage, { memory: 8 << 20 });
    const sizes = [0, 1, 5_000, 300_000, 700_000, 1_500_000, 5_000_000];
    for (const [i, size] of sizes.entries()) db.set(`${i}`, filled(size, i + 1));
    using then = db.snapshot();
    for (let round = 0; round < 3; round++) {
      for (const [i, size] of sizes.entries()) db.set(`${i}`, filled(size + round, 100 + i));
      await turn();
    }
    db.clear();
    await turn(30);
    for (const [i, size] of sizes.entries()) {
      const value = then.get(`${i}`);
      expect(value?.length).toBe(size);
      expect(value?.every((byte) => byte === i + 1)).toBe(true);
      await turn();
    }
    expect(db.count()).toBe(0);
  });

  test("a loop over a snapshot sees none of what is written in it", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 3000; i++) db.set(`key ${i}`.padEnd(12, "."), `${i}`);
    using then = db.snapshot();
    let seen = 0;
    let last = "";
    for (const [key, value] of then.entries()) {
      expect(key > last).toBe(true);
      expect(textOf(value)).toBe(key.slice(4).replaceAll(".", ""));
      last = key;
      seen += 1;
      db.set(key, "changed");
      db.delete(`key ${seen}`.padEnd(12, "."));
      db.set(`${key} new`, "new");
      if (seen % 500 === 0) await turn();
    }
    expect(seen).toBe(3000);
    expect(then.count({ gte: "key 1" })).toBe([...then.keys({ gte: "key 1" })].length);
  });

  test("collections and their indexes are as they were, with views of records", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product, { indexes: INDEXES });
    for (let i = 0; i < 8; i++) products.set(`p${i}`, { stock: i % 3, name: `name ${i}` });
    const versions = products.getEntry("p1")?.version;
    using then = db.snapshot();
    const past = then.collection("products", Product, { indexes: INDEXES });
    products.set("p1", { stock: 100, name: "changed" });
    products.delete("p0");
    products.updateIf("p3", (product) => {
      product.stock = 7;
    });
    products.set("q", { stock: 1, name: "later" });
    await turn();
    expect(past.name).toBe("products");
    expect([past.count(), past.count({ gte: "p6" })]).toStrictEqual([8, 2]);
    expect([past.get("p1")?.name, past.get("p1")?.stock]).toStrictEqual(["name 1", 1]);
    expect([past.has("p0"), past.has("q"), past.get("q")]).toStrictEqual([true, false, undefined]);
    expect(past.getEntry("p1")?.version).toBe(versions);
    expect(past.getMany(["p3", "q"]).map((product) => product?.stock)).toStrictEqual([
      0,
      undefined,
    ]);
    expect([...past.keys({ reverse: true, limit: 2 })]).toStrictEqual(["p7", "p6"]);
    expect(Array.from(past.values({ limit: 2 }), ({ name }) => name)).toStrictEqual([
      "name 0",
      "name 1",
    ]);
    expect(
      Array.from(past.entries({ gte: "p7" }), ([key, { stock }]) => [key, stock]),
    ).toStrictEqual([["p7", 1]]);
    const { byStock, byName } = past.index;
    expect([...byStock.keys({ eq: 0 })]).toStrictEqual(["p0", "p3", "p6"]);
    expect(Array.from(byStock.entries({ gte: 2 }), ([key, { name }]) => [key, name])).toStrictEqual(
      [
        ["p2", "name 2"],
        ["p5", "name 5"],
      ],
    );
    expect([byStock.count(), byStock.count({ gt: 1 })]).toStrictEqual([8, 2]);
    expect([byName.get("name 1")?.stock, byName.get("changed")]).toStrictEqual([1, undefined]);
    const ref = past.ref("p1");
    await turn();
    expect(ref.value?.name).toBe("name 1");
    const lines = await new Response(past.toJsonLines({ gte: "p6" })).text();
    expect(lines).toBe(
      '{"key":"p6","value":{"stock":0,"name":"name 6"}}\n' +
        '{"key":"p7","value":{"stock":1,"name":"name 7"}}\n',
    );
    // Those of the database itself are as they are.
    expect([products.count(), products.get("p1")?.name]).toStrictEqual([8, "changed"]);
    expect([...products.index.byStock.keys({ eq: 0 })]).toStrictEqual(["p6"]);
  });

  test("a collection that was made, cleared or migrated later is as it was", async () => {
    const db = await opened(storage);
    const kept = db.collection("kept", Product, { indexes: INDEXES });
    kept.set("a", { stock: 1, name: "one" });
    const cleared = db.collection("cleared", json<number>(), { key: u32 });
    for (let i = 0; i < 3000; i++) cleared.set(i, i);
    using then = db.snapshot();
    const before = then.collection("kept", Product, { indexes: INDEXES });
    cleared.clear();
    cleared.set(5, 500);
    const More = struct("Product", { stock: u32, name: str, price: option(u16) });
    const now = await db.migrate("kept", More, { indexes: { byPrice: "price" } });
    now.set("b", { stock: 2, name: "two", price: 3 });
    db.collection("made", text()).set("a", "later");
    await turn();
    for (const past of [before, then.collection("kept", Product, { indexes: INDEXES })]) {
      expect(Array.from(past.entries(), ([key, { name }]) => [key, name])).toStrictEqual([
        ["a", "one"],
      ]);
      expect([...past.index.byStock.keys()]).toStrictEqual(["a"]);
    }
    const numbers = then.collection("cleared", json<number>(), { key: u32 });
    expect([numbers.count(), numbers.get(5), numbers.count({ gte: 2990 })]).toStrictEqual([
      3000, 5, 10,
    ]);
    expect([...numbers.keys({ reverse: true, limit: 1 })]).toStrictEqual([2999]);
    const made = then.collection("made", text());
    expect([made.count(), made.get("a"), [...made.keys()].length]).toStrictEqual([0, undefined, 0]);
    const indexed = then.collection("never", Product, { indexes: INDEXES });
    expect([indexed.count(), indexed.index.byStock.count()]).toStrictEqual([0, 0]);
    throws(() => then.collection("kept", More), { name: "SchemaMismatchError" });
    throws(() => then.collection("kept", Product, { indexes: { byNone: "stock" } }), {
      name: "SchemaMismatchError",
    });
    expect([now.count(), cleared.count(), db.stats().records]).toStrictEqual([2, 1, 4]);
  });

  test("a write to a collection of a snapshot is refused, and writes nothing", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product, { indexes: INDEXES });
    products.set("a", { stock: 1, name: "one" });
    using then = db.snapshot();
    // Programs without types can try.
    for (const name of ["products", "never"]) {
      const past = then.collection(name, Product) as typeof products;
      const value = { stock: 2, name: "two" };
      throws(() => past.set("a", value), { ...READ_ONLY, message: /snapshot.*db\.collection/ });
      throws(() => past.delete("a"), READ_ONLY);
      throws(() => past.clear(), READ_ONLY);
      throws(() => past.updateIf("a", () => value), READ_ONLY);
      throws(() => past.batch([{ type: "set", key: "b", value }]), READ_ONLY);
      const lines = new Blob(['{"key":"b","value":{"stock":1,"name":"b"}}\n']).stream();
      await rejects(past.fromJsonLines(lines as never), READ_ONLY);
    }
    await turn();
    expect([products.count(), products.get("a")?.stock]).toStrictEqual([1, 1]);
    expect(db.stats().records).toBe(1);
  });

  test("a snapshot is refused inside transactions and callbacks, but can be read there", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const refused = { name: "ReentrancyError", message: /snapshot\(\)/ };
    db.transaction(() => throws(() => db.snapshot(), refused) && undefined);
    db.updateIf("a", () => {
      throws(() => db.snapshot(), refused);
    });
    using then = db.snapshot();
    db.transaction(() => {
      db.set("a", "2");
      expect(then.getText("a")).toBe("1");
    });
    db.updateIf("a", (view) => {
      view[0] = 51;
      expect(then.getText("a")).toBe("1");
    });
    expect([db.getText("a"), then.getText("a"), db.stats().snapshots.count]).toStrictEqual([
      "3",
      "1",
      1,
    ]);
  });

  test("a closed snapshot throws, its views stay until the turn ends, and others go on", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const rows = db.collection("rows", Product, { indexes: INDEXES });
    rows.set("a", { stock: 1, name: "one" });
    const other = db.snapshot();
    const then = db.snapshot();
    const past = then.collection("rows", Product, { indexes: INDEXES });
    const ref = past.ref("a");
    expect(ref.value?.stock).toBe(1);
    const walk = then.keys()[Symbol.iterator]();
    db.set("a", "2");
    const view = then.get("a");
    then.close();
    then.close();
    expect(textOf(view)).toBe("1");
    const calls: (() => unknown)[] = [
      () => then.get("a"),
      () => then.getText("a"),
      () => then.has("a"),
      () => then.getMany(["a"]),
      () => then.getEntry("a"),
      () => then.count(),
      () => then.count({ gte: "a" }),
      () => then.keys(),
      () => then.values(),
      () => then.entries(),
      () => then.collection("rows", Product),
      () => past.get("a"),
      () => past.has("a"),
      () => past.getMany(["a"]),
      () => past.getEntry("a"),
      () => past.ref("a"),
      () => past.count(),
      () => past.keys(),
      () => past.index.byStock.get(1),
      () => past.index.byStock.count(),
      () => ref.value,
      () => walk.next(),
    ];
    for (const call of calls) throws(call, { ...CLOSED, message: /db\.snapshot\(\)/ });
    expect([other.getText("a"), db.getText("a")]).toStrictEqual(["1", "2"]);
    {
      using inner = db.snapshot();
      expect(inner.getText("a")).toBe("2");
    }
    expect(db.stats().snapshots.count).toBe(1);
  });

  test("closing the database ends its snapshots, and only those of the handle that is closed", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    const handle = await opened(storage, {}, name);
    db.set("a", "1");
    const [one, other] = [db.snapshot(), handle.snapshot()];
    db.set("a", "2");
    await db.close();
    throws(() => one.get("a"), { code: "VARVE_DATABASE_CLOSED" });
    one.close();
    expect([other.getText("a"), handle.stats().snapshots.count]).toStrictEqual(["1", 1]);
    await handle.close();
    throws(() => other.get("a"), { code: "VARVE_DATABASE_CLOSED" });
    other.close();
    const again = await opened(storage, {}, name);
    expect([again.getText("a"), again.stats().snapshots.count]).toStrictEqual(["2", 0]);
  });

  test("what a snapshot holds back of the file is shown, and freed after it was closed", async () => {
    const db = await opened(storage, { memory: 8 << 20 });
    for (let i = 0; i < 20; i++) db.set(`${i}`, filled(200_000, i));
    expect(db.stats().snapshots).toStrictEqual({ count: 0, heldBytes: 0, memoryBytes: 0 });
    const then = db.snapshot();
    for (let round = 0; round < 6; round++) {
      for (let i = 0; i < 20; i++) db.set(`${i}`, filled(200_000, 100 + i));
      await turn();
    }
    await db.compact();
    const { snapshots, fileBytes } = db.stats();
    expect(snapshots.count).toBe(1);
    expect(snapshots.heldBytes >= 20_000_000 && snapshots.heldBytes < fileBytes).toBe(true);
    expect(snapshots.memoryBytes > 0 && snapshots.memoryBytes < 10_000).toBe(true);
    expect(fileBytes > 24_000_000).toBe(true);
    expect(then.get("7")?.every((byte) => byte === 7)).toBe(true);
    then.close();
    await db.compact();
    expect(db.stats().snapshots).toStrictEqual({ count: 0, heldBytes: 0, memoryBytes: 0 });
    expect(db.stats().fileBytes < 14_000_000).toBe(true);
    expect(db.get("7")?.every((byte) => byte === 107)).toBe(true);
    expect((await db.verify()).ok).toBe(true);
  });

  test("options of the database apply: strictViews, ordered: false, readOnly", async () => {
    const name = freshName();
    let db = await opened(storage, { strictViews: true }, name);
    db.set("a", "1");
    const then = db.snapshot();
    db.set("a", "2");
    const view = then.get("a");
    expect(textOf(view)).toBe("1");
    await turn();
    expect(view?.length).toBe(0);
    const step = then.values()[Symbol.iterator]();
    const value = step.next().value;
    step.return();
    expect(value?.length).toBe(0);
    await db.close();
    db = await opened(storage, { ordered: false }, name);
    for (let i = 0; i < 2000; i++) db.set(`${i}`, `${i}`);
    const points = db.snapshot();
    for (let i = 0; i < 2000; i++) db.delete(`${i}`);
    db.delete("a");
    db.set("5", "new");
    expect([points.getText("5"), points.getText("1999"), points.count()]).toStrictEqual([
      "5",
      "1999",
      2001,
    ]);
    for (const call of ["keys", "values", "entries"] as const) {
      throws(() => points[call](), { code: "VARVE_BAD_ARGUMENT", message: /ordered: false/ });
    }
    throws(() => points.count({ gte: "1" }), { code: "VARVE_BAD_ARGUMENT" });
    await db.close();
    db = await opened(storage, { readOnly: true }, name);
    using past = db.snapshot();
    expect(entries(past)).toStrictEqual([["5", "new"]]);
  });

  test("bad arguments are refused as by the database", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    using then = db.snapshot();
    const bad = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" };
    throws(() => then.get(7 as never), bad);
    throws(() => then.has("" as never), bad);
    throws(() => then.getMany("a" as never), bad);
    throws(() => then.getEntry(null as never), bad);
    throws(() => then.keys({ above: 1 } as never), bad);
    throws(() => then.count({ gte: 7 } as never), bad);
    throws(() => then.collection("", json()), bad);
    throws(() => then.collection("rows", {} as never), bad);
    throws(() => then.collection("rows", json(), { unknown: 1 } as never), bad);
    db.set("bytes", new Uint8Array([255]));
    using later = db.snapshot();
    throws(() => later.getText("bytes"), bad);
    expect(textOf(then.get(bytes("a")))).toBe("1");
  });
});
