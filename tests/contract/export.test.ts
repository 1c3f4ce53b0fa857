import { type Database, memory, type OpenOptions, open } from "varve";
import { json, str, struct, text, u16, u32 } from "varve/struct";
import { assert, describe, expect, onTestFinished, test } from "vitest";
import { replaceClock, wasmOption } from "../support/context.js";
import { rejects, throws } from "../support/errors.js";
import { random, turn } from "../support/values.js";
import { everywhere, filled, opened } from "./storages.js";

const Product = struct("Product", { stock: u16, name: str });

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

type Bytes = Uint8Array<ArrayBuffer>;

/** Reads with a reader, because a `Response` of a failing stream hides the error in some browsers. */
async function bytesOf(stream: ReadableStream<Bytes>): Promise<Bytes> {
  const chunks: Bytes[] = [];
  const reader = stream.getReader();
  for (;;) {
    const { value } = await reader.read();
    if (value === undefined) return new Uint8Array(await new Blob(chunks).arrayBuffer());
    chunks.push(value);
  }
}

/** Opens a database from bytes, and closes it when the test ends. */
async function openedFrom(options: OpenOptions): Promise<Database> {
  const db = await open("image", { readOnly: true, ...wasmOption(), ...options });
  onTestFinished(() => db.close());
  return db;
}

function includes(bytes: Bytes, text: string): boolean {
  const wanted = new TextEncoder().encode(text);
  const first = wanted[0] as number;
  for (let at = bytes.indexOf(first); at >= 0; at = bytes.indexOf(first, at + 1)) {
    if (wanted.every((byte, i) => bytes[at + i] === byte)) return true;
  }
  return false;
}

/** The engine behind a database, to see when it is asked for a range. */
interface Inside {
  sessionOf(db: Database): { readonly engine: { scan: (...args: never[]) => unknown } };
}

everywhere("export", ({ storage }) => {
  test("the copy has all collections, however long their names are", async () => {
    const db = await opened(storage);
    const names = Array.from({ length: 400 }, (_, i) => String(i).padStart(200, "x"));
    for (const name of names) db.collection(name, text()).set("a", name);
    const copy = await openedFrom({ from: await bytesOf(db.export()) });
    for (const name of names) expect(copy.collection(name, text()).get("a")).toBe(name);
  });

  test("the copy opens with all live data, from a checkpoint and without reading the log", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 5_000; i++) db.set(`key ${i}`, `value ${i}`);
    db.set("empty", "");
    db.set("large", filled(3_000_000, 7));
    db.set(filled(60_000, 1), "a long key");
    const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
    for (let i = 0; i < 500; i++) products.set(`p${i}`, { stock: i % 50, name: `product ${i}` });
    db.collection("notes", text(), { key: [u32, str] }).set([7, "a"], "a note");
    const copy = await openedFrom({ from: await bytesOf(db.export()) });
    expect(copy.count()).toBe(5_003);
    expect([...copy.keys()]).toStrictEqual([...db.keys()]);
    expect(copy.get("large")).toStrictEqual(db.get("large"));
    expect(copy.getText(filled(60_000, 1))).toBe("a long key");
    const there = copy.collection("products", Product, { indexes: { byStock: "stock" } });
    expect(there.get("p49")?.name).toBe("product 49");
    expect([...there.index.byStock.entries({ gte: 49 })].map(([key]) => key)).toStrictEqual(
      Array.from({ length: 10 }, (_, i) => `p${50 * i + 49}`).sort(),
    );
    expect(copy.collection("notes", text(), { key: [u32, str] }).get([7, "a"])).toBe("a note");
    const { wasClean, fromCheckpoint, replayedFrames } = copy.recovery;
    expect([wasClean, fromCheckpoint]).toStrictEqual([true, true]);
    assert(replayedFrames <= 1, `${replayedFrames} frames were replayed`);
    expect((await copy.verify()).ok).toBe(true);
  });

  test("keys are sorted part by part while the program goes on", async () => {
    const db = await opened(storage);
    const [count, value] = [20_000, filled(200, 1)];
    db.transaction(() => {
      for (let i = 0; i < count; i++) db.set(`key ${(i * 7_919) % count}`, value);
    });
    db.commit();
    const { engine } = (db.constructor as unknown as Inside).sessionOf(db);
    const { scan } = engine;
    let parts = 0;
    let sorted = 0;
    engine.scan = (...args) => {
      sorted ||= parts;
      return scan.apply(engine, args);
    };
    const change = (from: number) => {
      for (let i = from; i < count; i += 40) {
        db.delete(`key ${i}`);
        db.set(`key ${i + 10}`, "moved");
        db.set(`new ${i}`, "1");
      }
    };
    const undone = (from: number) => {
      for (let i = from; i < count; i += 80) {
        db.set(`key ${i + 20}`, "undone");
        db.delete(`key ${i + 21}`);
        db.set(`undone ${i}`, "1");
      }
      throw new Error("undone");
    };
    const onProgress = () => {
      parts += 1;
      if (parts > 3) return;
      change(parts);
      throws(() => db.transaction(() => undone(parts)), { message: "undone" });
    };
    const bytes = await bytesOf(db.export({ onProgress }));
    // Four MiB are four parts, and no pause follows the last one.
    assert(sorted >= 3, `${sorted} pauses before the first range`);
    const copy = await openedFrom({ from: bytes });
    expect([...copy.keys()]).toStrictEqual([...db.keys()]);
    expect(copy.getText("key 11")).toBe("moved");
  });

  test("the copy contains nothing deleted, replaced, rolled back or dropped", async () => {
    const db = await opened(storage);
    const secret = (n: number) => `Rumpelstiltskin ${n} ${"x".repeat(50)}`;
    for (let i = 0; i < 300; i++) db.set(`public ${i}`, `${i}`);
    db.set("replaced", secret(1));
    db.set("deleted", secret(2));
    db.set("Rumpelstiltskin's key", "1");
    const products = db.collection("products", Product, { indexes: { byName: "name" } });
    products.set("a", { stock: 1, name: secret(3) });
    products.set("b", { stock: 2, name: "harmless" });
    const old = db.collection("old", json<string>());
    for (let i = 0; i < 100; i++) old.set(`${i}`, "harmless");
    old.set("a", secret(4));
    db.flush();
    db.set("replaced", "harmless");
    db.delete("deleted");
    db.delete("Rumpelstiltskin's key");
    products.delete("a");
    old.delete("a");
    throws(() =>
      db.transaction((tx) => {
        tx.set("rolled back", secret(5));
        throw new Error("undone");
      }),
    );
    // The migration is half done when this ends, and none of its values are current.
    const ending = new AbortController();
    const converting = db.migrate("old", Product, {
      migrate: () => ({ stock: 1, name: secret(6) }),
      onProgress: ({ records }) => {
        if (records > 0) ending.abort();
      },
      signal: ending.signal,
    });
    await rejects(converting, { name: "AbortError" });
    const bytes = await bytesOf(db.export());
    expect(includes(bytes, "harmless")).toBe(true);
    expect(includes(bytes, "Rumpelstiltskin")).toBe(false);
    assert(bytes.length < 100_000, `it has ${bytes.length} bytes`);
  });

  test("the copy is a complete snapshot while the program goes on writing", async () => {
    const db = await opened(storage);
    const both = (n: number) =>
      db.transaction((tx) => {
        for (let i = 0; i < 50; i++) tx.set(`n${i}`, `${n}`);
      });
    both(0);
    const exports: Promise<Bytes>[] = [];
    for (let n = 1; n < 30; n++) {
      if (n % 7 === 0) exports.push(bytesOf(db.export()));
      both(n);
      await (n % 2 === 0 ? turn() : undefined);
    }
    for (const bytes of await Promise.all(exports)) {
      const copy = await openedFrom({ from: bytes });
      expect(
        new Set(Array.from(copy.values(), (value) => new TextDecoder().decode(value))).size,
      ).toBe(1);
    }
  });

  test("the copy has the initial state even if all of it is changed, deleted and added to", async () => {
    // Cold, so that old values have to be read before they are kept.
    const db = await opened(storage, { memory: 4_194_304 });
    const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
    const next = random(12);
    const value = () => `${next(1_000_000)}`.repeat(1 + next(60));
    for (let i = 0; i < 30_000; i++) db.set(`key ${i}`, value());
    for (let i = 0; i < 3_000; i++) products.set(`p${i}`, { stock: i % 50, name: value() });
    db.set("large", filled(700_000, 1));
    const expected = new Map([...db.keys()].map((key) => [key, db.get(key)?.slice()]));
    const namesIn = (them: typeof products) => {
      const names = new Map<string, string>();
      for (const [key, { name }] of them.entries()) names.set(key, name);
      return names;
    };
    const names = namesIn(products);
    let progress = 0;
    let isOver = false;
    const written = (async () => {
      while (progress === 0) await turn();
      for (let round = 0; !isOver; round++) {
        for (let n = 0; n < 200; n++) {
          const key = `key ${next(31_000)}`;
          if (next(3) === 0) db.delete(key);
          else if (next(2) === 0) db.set(key, value());
          else db.updateIf(key, () => value(), { valueIfMissing: "none" });
        }
        products.delete(`p${next(3_000)}`);
        products.set(`p${next(4_000)}`, { stock: next(60), name: "written meanwhile" });
        if (round === 3) db.set("large", "small");
        if (round === 5) db.clear({ prefix: "key 1" });
        throws(() =>
          db.transaction(() => {
            db.clear({ prefix: `key ${next(30)}` });
            db.set("large", "undone");
            throw new Error("undone");
          }),
        );
        await turn();
      }
    })();
    const onProgress = () => {
      progress += 1;
    };
    const both = [db.export({ onProgress }), db.export()].map(bytesOf);
    const [bytes, other] = await Promise.all(both);
    isOver = true;
    await written;
    assert(progress > 3, `${progress} reports`);
    const copy = await openedFrom({ from: bytes as Bytes });
    expect([...copy.keys()]).toStrictEqual([...expected.keys()]);
    // 20,000 calls of expect() take longer than the export.
    for (const [key, old] of expected) {
      const value = copy.get(key);
      assert(value?.length === old?.length && old?.every((byte, i) => value?.[i] === byte), key);
    }
    const there = copy.collection("products", Product, { indexes: { byStock: "stock" } });
    expect(namesIn(there)).toStrictEqual(names);
    const byStock = [...there.index.byStock.entries({ gte: 49 })].map(([key]) => key);
    expect(byStock.length).toBe(60);
    expect((await copy.verify()).ok).toBe(true);
    assert((await openedFrom({ from: other as Bytes })).count() > 10_000);
    expect((await db.verify()).ok).toBe(true);
  });

  test("what is cleared while the copy is made is in it, and is one record of the log", async () => {
    const db = await opened(storage);
    const scores = db.collection("scores", json<number>());
    for (let i = 0; i < 20_000; i++) db.set(`key ${i}`, `value ${i}`);
    for (let i = 0; i < 2_000; i++) scores.set(`${i}`, i);
    db.commit();
    const before = db.lastCommit;
    let isCleared = false;
    const onProgress = () => {
      // First the keys are sorted.
      if (isCleared || db.stats().snapshots.count === 0) return;
      isCleared = true;
      expect([db.clear(), scores.clear()]).toStrictEqual([20_000, 2_000]);
      db.set("key 7", "again");
    };
    const copy = await openedFrom({ from: await bytesOf(db.export({ onProgress })) });
    assert(isCleared);
    expect([copy.count(), copy.getText("key 7")]).toStrictEqual([20_000, "value 7"]);
    const there = copy.collection("scores", json<number>());
    expect([there.count(), there.get("1999")]).toStrictEqual([2_000, 1_999]);
    expect([db.count(), scores.count(), db.stats().snapshots.count]).toStrictEqual([1, 0, 0]);
    const types = Array.from(db.changes({ since: before }), ({ type }) => type);
    expect(types.sort()).toStrictEqual(["clear", "clear", "set"]);
  });

  test("the program goes on while the index of the copy is written", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 20_000; i++) db.set(`key ${i}`, `value ${i}`);
    const reported: number[] = [];
    let time = 0;
    // Every part is made to take longer than its slice.
    replaceClock({
      now() {
        time += 1_000;
        return time;
      },
    });
    await bytesOf(db.export({ onProgress: ({ bytes }) => reported.push(bytes) }));
    const all = reported.at(-2);
    const after = reported.filter((bytes) => bytes === all).length;
    assert(after > 4, `when all records had been copied it rested ${after} times`);
  });

  test("progress is reported, and a signal, a throw or a canceled stream ends the export", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 20_000; i++) db.set(`key ${i}`, `value ${i}`.repeat(5));
    const reported: number[] = [];
    let total = 0;
    const whole = await bytesOf(
      db.export({
        onProgress(progress) {
          reported.push(progress.bytes);
          total = progress.total;
        },
      }),
    );
    assert(reported.every((bytes, i) => bytes >= (reported[i - 1] ?? 0) && bytes <= total));
    expect(reported.at(-1)).toBe(total);
    const ending = new AbortController();
    const ended = db.export({ onProgress: () => ending.abort(), signal: ending.signal });
    await rejects(bytesOf(ended), { name: "AbortError" });
    await rejects(bytesOf(db.export({ signal: AbortSignal.abort() })), { name: "AbortError" });
    const thrown = db.export({
      onProgress() {
        throw new Error("enough");
      },
    });
    await rejects(bytesOf(thrown), { message: "enough" });
    await db.export().cancel();
    while (db.stats().snapshots.count > 0) await turn();
    throws(() => db.export({ progress: 1 } as never), BAD);
    for (let i = 0; i < 100; i++) db.set(`key ${i}`, "after");
    await turn();
    const again = await openedFrom({ from: await bytesOf(db.export()) });
    expect(again.getText("key 99")).toBe("after");
    expect((await openedFrom({ from: whole })).getText("key 1")).toBe("value 1".repeat(5));
  });

  test("closing the database fails the export, and closes nothing twice", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 30_000; i++) db.set(`key ${i}`, `value ${i}`);
    let closing: Promise<void> | undefined;
    const onProgress = () => {
      closing ??= db.close();
    };
    await rejects(bytesOf(db.export({ onProgress })), { code: "VARVE_DATABASE_CLOSED" });
    await closing;
  });

  test("a copy saved as a file is a database like any other", async () => {
    const db = await opened(storage);
    const products = db.collection("products", Product, { indexes: { byStock: "stock" } });
    products.set("a", { stock: 1, name: "A" });
    const kept = memory();
    const { file } = await kept.open("shop");
    file.write(await bytesOf(db.export()), { at: 0 });
    file.close();
    const copy = await opened(kept, {}, "shop");
    const there = copy.collection("products", Product, { indexes: { byStock: "stock" } });
    there.set("b", { stock: 0, name: "B" });
    const others = copy.collection("others", text());
    others.set("a", "1");
    await copy.close();
    const again = await opened(kept, {}, "shop");
    const products2 = again.collection("products", Product, { indexes: { byStock: "stock" } });
    expect([...products2.index.byStock.entries()].map(([key]) => key)).toStrictEqual(["b", "a"]);
    expect((await again.verify()).ok).toBe(true);
  });

  test("the export of an empty database is an empty database, and needs key order", async () => {
    const db = await opened(storage);
    const copy = await openedFrom({ from: await bytesOf(db.export()) });
    expect(copy.count()).toBe(0);
    const unordered = await opened(storage, { ordered: false });
    throws(() => unordered.export(), { ...BAD, message: "ordered" });
  });
});

describe("databases in bytes", () => {
  async function some(count = 200): Promise<Bytes> {
    const db = await opened(memory());
    for (let i = 0; i < count; i++) db.set(`key ${i}`, `value ${i}`.repeat(1 + (i % 20)));
    return bytesOf(db.export());
  }

  test("bytes are accepted in every form, and the caller may reuse them", async () => {
    const bytes = await some();
    const framed = new Uint8Array(bytes.length + 100);
    framed.set(bytes, 50);
    const forms = [
      bytes.slice(),
      bytes.slice().buffer,
      new DataView(framed.buffer, 50, bytes.length),
      new Blob([bytes]),
      new Response(bytes.slice()),
      new Blob([bytes]).stream(),
      Promise.resolve(bytes.slice()),
    ];
    for (const from of forms) {
      const db = await openedFrom({ from: from as Bytes });
      // Later changes to the given bytes must have no effect.
      if (from instanceof Uint8Array) from.fill(255);
      framed.fill(0, 0, 50);
      expect(db.count()).toBe(200);
      expect(db.getText("key 1")).toBe("value 1value 1");
      expect([...db.keys({ prefix: "key 19" })].length).toStrictEqual(11);
    }
  });

  test("memory is proportional to the bytes, and enough for a turn that reads everything", async () => {
    const MIB = 1_048_576;
    for (const [count, large, most] of [
      [60, 0, 3 * MIB],
      [20_000, 0, 12 * MIB],
      [50, 3_000_000, 18 * MIB],
    ] as const) {
      const kept = memory();
      const db = await opened(kept, {}, "kept");
      for (let i = 0; i < count; i++) db.set(`key ${i}`, `value ${i}`);
      if (large > 0) db.set("large", filled(large, 7));
      const exported = await bytesOf(db.export());
      await db.close();
      const { file } = await kept.open("kept");
      const whole = new Uint8Array(file.getSize());
      file.read(whole, { at: 0 });
      file.close();
      for (const from of [exported, whole]) {
        const copy = await openedFrom({ from });
        const { wasmBytes } = copy.stats();
        // Segments of 1 MiB are larger than their content, and one of them has the order of keys.
        assert(
          wasmBytes < most + (from === whole ? 10 * MIB : 0),
          `${wasmBytes} of ${from.length}`,
        );
        const views = [...copy.keys()].map((key) => copy.get(key));
        for (const view of views) assert(view !== undefined && view.length > 0);
        expect(copy.stats().wasmBytes).toBe(wasmBytes);
      }
    }
  });

  test("writes are refused with ReadOnlyError", async () => {
    const db = await openedFrom({ from: await some() });
    for (const write of [
      () => db.set("a", "1"),
      () => db.delete("key 1"),
      () => db.clear(),
      () => db.updateIf("key 1", () => "2"),
      () => db.collection("c", text()).set("a", "1"),
    ]) {
      throws(write, { code: "VARVE_READ_ONLY" });
    }
    await rejects(db.compact(), { code: "VARVE_READ_ONLY" });
    expect(db.getText("key 0")).toBe("value 0");
  });

  test("from with a storage, and sources of other types, are refused", async () => {
    const from = await some(1);
    const wasm = wasmOption();
    await rejects(open("a", { from, readOnly: true, storage: memory(), ...wasm }), BAD);
    await rejects(open("", { from, readOnly: true, ...wasm }), BAD);
    for (const none of ["text", 7, null, {}, []]) {
      const given = { from: none as unknown as Bytes, readOnly: true, ...wasm };
      await rejects(open("a", given), { ...BAD, message: "from" });
    }
    const missing = new Response("none", { status: 404 });
    await rejects(open("a", { from: missing, readOnly: true, ...wasm }), {
      code: "VARVE_STORAGE_UNAVAILABLE",
      message: "404",
    });
    const failed = Promise.reject(new Error("the network"));
    await rejects(open("a", { from: failed, readOnly: true, ...wasm }), { message: "the network" });
  });

  test("two databases of the same name are separate", async () => {
    const [one, two] = [await some(1), await some(2)];
    const a = await openedFrom({ from: one });
    const b = await openedFrom({ from: two });
    expect([a.count(), b.count()]).toStrictEqual([1, 2]);
    await a.close();
    expect(b.getText("key 1")).toBe("value 1value 1");
  });

  test("bytes that are no database, cut off or changed are refused with the reason", async () => {
    const bytes = await some();
    const codes = new Set<string>();
    const refused = async (from: Bytes): Promise<boolean> => {
      let db: Database | undefined;
      try {
        db = await open("hostile", { from, readOnly: true, ...wasmOption() });
        for (const [key, value] of db.entries()) {
          assert(new TextDecoder().decode(value).startsWith("value "), key);
        }
        return false;
      } catch (error) {
        const { code } = error as { code?: string };
        codes.add(String(code));
        assert(
          ["VARVE_CORRUPTION", "VARVE_UNSUPPORTED_FORMAT"].includes(String(code)),
          String(error),
        );
        return true;
      } finally {
        await db?.close();
      }
    };
    for (const none of [
      new Uint8Array(0),
      filled(8_192, 0),
      filled(20_000, 0),
      filled(50_000, 1),
    ]) {
      expect(await refused(none), `${none.length} bytes of ${none[0]}`).toBe(true);
    }
    const next = random(6);
    let refusals = 0;
    for (let round = 0; round < 150; round++) {
      const hostile = bytes.slice(0, round % 5 === 0 ? next(bytes.length) : undefined);
      for (let n = round % 4; n > 0; n--) {
        const at = next(hostile.length);
        if (round % 3 === 0) hostile.fill(next(256), at, at + next(2_000));
        else if (hostile.length > 0) hostile[at] = next(256);
      }
      refusals += Number(await refused(hostile));
    }
    assert(refusals > 30, `${refusals} were refused`);
    expect(codes.size).toBe(2);
  });
});
