import { type Database, type Key, memory, open, type Value } from "varve";
import { fromJson, toJson } from "varve/json";
import {
  array,
  blob,
  bytes,
  json,
  option,
  str,
  struct,
  timestamp,
  u32,
  union,
  vec,
} from "varve/struct";
import { assert, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { text } from "../support/values.js";
import { everywhere, filled, opened } from "./storages.js";

/** Arrays that report another length than they have, and their true bytes. */
function liars(db: Database): [name: string, array: Uint8Array, really: number][] {
  const lying = (length: number, given: unknown): Uint8Array =>
    Object.defineProperty(filled(length, 65), "length", {
      get: typeof given === "function" ? (given as () => number) : () => given,
    });
  let calls = 0;
  class Sub extends Uint8Array {
    override get length(): number {
      return 1 << 20;
    }
    override get byteLength(): number {
      return -1;
    }
    override get byteOffset(): number {
      return 7;
    }
    override get buffer(): ArrayBuffer {
      return new ArrayBuffer(3);
    }
  }
  return [
    ["less than nothing", lying(5, -1), 5],
    ["much more", lying(5, 4_000), 5],
    ["more than can be", lying(5, 2 ** 40), 5],
    ["no number", lying(5, "five"), 5],
    ["another one each time", lying(5, () => (calls++ % 2 === 0 ? 1 : 3_000)), 5],
    [
      "something while it writes",
      lying(5, () => {
        db.set("meanwhile", "written");
        return 5;
      }),
      5,
    ],
    ["less, of a long one", lying(100_000, 3), 100_000],
    ["more, of a long one", lying(2_000, 16_000_000), 2_000],
    ["all wrong, as its class does", new Sub(5).fill(65), 5],
  ];
}

/** Runs a side effect, then returns a value. */
function after<T>(meddle: () => unknown, value: T): () => T {
  return () => {
    meddle();
    return value;
  };
}

/** A date for a key, with a side effect when it is read. */
function dateOf(meddle: () => unknown, time: number): Date {
  return { getTime: after(meddle, time) } as unknown as Date;
}

everywhere("hostile arguments", ({ storage }) => {
  test("a database and its collections have a short JSON form, without their memory", async () => {
    const db = await opened(storage);
    for (const handle of [db, db.collection("rows", json()), db.keys()]) {
      const { length } = JSON.stringify(handle);
      assert(length < 500, `${length} characters`);
    }
  });

  test("arrays are stored by their true length, whatever their length property returns", async () => {
    const db = await opened(storage);
    db.set("secret", filled(4_000, 99));
    const names = liars(db).map(([name]) => name);
    for (const name of names) {
      for (const waits of [false, true]) {
        const [, value, length] = liars(db).find(([one]) => one === name) as never as [
          string,
          Uint8Array,
          number,
        ];
        // After several sets in a row, further ones are buffered.
        if (waits) for (let i = 0; i < 4; i++) db.set(`other ${i}`, "x");
        db.set(`of ${name}`, value);
        expect(db.get(`of ${name}`)?.slice(), name).toStrictEqual(filled(length, 65));
        db.updateIf(`of ${name}`, () => value);
        expect(db.get(`of ${name}`)?.slice(), name).toStrictEqual(filled(length, 65));
        if (length > 65_535) continue;
        if (waits) for (let i = 0; i < 4; i++) db.set(`other ${i}`, "x");
        db.set(value, name);
        expect(db.getText("A".repeat(length))).toBe(name);
        expect(text(db.get(value))).toBe(name);
        expect(db.getMany([value, "secret", value]).map((view) => view?.length)).toStrictEqual([
          name.length,
          4_000,
          name.length,
        ]);
        expect(db.count({ gte: value, lte: value }), name).toBe(1);
        expect(db.delete(value)).toBe(true);
      }
    }
    expect(db.get("secret")?.slice()).toStrictEqual(filled(4_000, 99));
  });

  test("hostile arguments of every call give an error or a result, and poison nothing", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const write = () => db.set("meanwhile", filled(3_000, 1));
    const trap = () => {
      write();
      return undefined;
    };
    const view = Object.defineProperties(new DataView(new ArrayBuffer(9)), {
      byteLength: { get: () => trap() ?? 4_000_000 },
    });
    const hostile: unknown[] = [
      ...liars(db).map(([, array]) => array),
      new Proxy(filled(5, 1), {}),
      new Proxy(filled(5, 1), { get: trap, getPrototypeOf: () => trap() ?? Uint8Array.prototype }),
      new Proxy(["a", "b"], {}),
      view,
      Object.create(Uint8Array.prototype),
      Object.create(filled(5, 1)),
      { length: -1, [Symbol.toStringTag]: "ArrayBuffer" },
      { [Symbol.iterator]: () => trap() ?? ["key"].values() },
      -1,
      Number.NaN,
      null,
      undefined,
      Symbol("s"),
      () => write(),
    ];
    for (const one of hostile) {
      const [key, value] = [one as Key, one as Value];
      const calls: (() => unknown)[] = [
        () => db.get(key),
        () => db.getText(key),
        () => db.has(key),
        () => db.getEntry(key),
        () => db.getMany(one as Key[]),
        () => db.getMany(["key", key, "key"]),
        () => db.set(key, "x"),
        () => db.set("x", value),
        () => db.set(key, value),
        () => db.delete(key),
        () => db.updateIf(key, () => value, { valueIfMissing: "1" }),
        () => db.updateIf("key", () => value),
        () => db.updateIf("key", () => {}, { predicateKey: key, predicate: () => true }),
        () => db.updateIf("new", () => {}, { valueIfMissing: value }),
        () => db.batch([{ type: "set", key, value }]),
        () => db.batch([{ type: "delete", key }]),
        () => db.count({ gte: key }),
        () => [...db.entries({ gt: key, lt: key })],
        () => [...db.keys({ prefix: key })],
        () => db.clear({ gte: key, limit: 0 }),
        () => db.pin(key)?.dispose(),
      ];
      for (const call of calls) {
        try {
          call();
        } catch {
          // Any result is fine as long as the database goes on.
        }
        db.set("key", "value");
        expect(db.getText("key")).toBe("value");
      }
    }
    expect(db.stats().poisoned).toBe(false);
    db.flush();
  });

  test("tuple keys are those that their getters return, whatever these do to the database", async () => {
    const db = await opened(storage);
    const rows = db.collection("rows", json<unknown>(), { key: [str, timestamp, bytes(2)] });
    const others = db.collection("others", json<unknown>(), { key: [str, u32] });
    let calls = 0;
    const meddle = () => {
      calls += 1;
      others.set([`a long key, ${"x".repeat(300)}`, calls], calls);
      others.get(["other", 1]);
      [...others.keys({ gte: ["b", 7], lt: ["c"] })];
      db.set("raw", filled(5_000, calls % 256));
      db.transaction(() => db.delete("none"));
    };
    const part = Uint8Array.of(3, 4);
    const key = (name: string) =>
      Object.defineProperty([name, dateOf(meddle, 5), part] as const, 2, {
        get: after(meddle, part),
      }) as [string, Date, Uint8Array<ArrayBuffer>];
    rows.set(key("a"), "first");
    rows.set(key("b"), "second");
    for (const [name, value] of [
      ["a", "first"],
      ["b", "second"],
    ] as const) {
      expect(rows.get([name, new Date(5), part])).toBe(value);
      expect(rows.get(key(name))).toBe(value);
      expect(rows.getMany([key(name), [name, new Date(5), part]])).toStrictEqual([value, value]);
      expect(rows.has(key(name))).toBe(true);
      expect(rows.getEntry(key(name))?.value).toBe(value);
      expect(rows.ref(key(name)).value).toBe(value);
      expect(rows.count({ gte: key(name), lte: key(name) })).toBe(1);
      expect([...rows.values({ prefix: key(name) })].length).toBe(1);
      expect(rows.updateIf(key(name), () => `${value}, changed`)).toBe(true);
      expect(rows.get([name, new Date(5), part])).toBe(`${value}, changed`);
      expect(rows.delete(key(name))).toBe(true);
      expect(rows.has([name, new Date(5), part])).toBe(false);
    }
    rows.updateIf(key("c"), () => {}, { valueIfMissing: "new" });
    expect([...rows.entries()]).toStrictEqual([[["c", 5, part], "new"]]);
    assert(calls > 0);
    expect((await db.verify()).problems).toStrictEqual([]);
  });

  test("byte parts of keys are stored by their true length", async () => {
    const db = await opened(storage);
    const rows = db.collection("rows", json<unknown>(), { key: [bytes(5), u32] });
    const names = liars(db)
      .filter(([, , really]) => really === 5)
      .map(([name]) => name);
    assert(names.length > 3);
    for (const name of names) {
      const [, part = filled(0, 0)] = liars(db).find(([one]) => one === name) ?? [];
      rows.set([part as never, 1], name);
      expect(rows.get([filled(5, 65), 1])).toBe(name);
      expect(rows.get([part as never, 1])).toBe(name);
      expect(rows.delete([part as never, 1])).toBe(true);
    }
    const endless = Object.defineProperty(filled(5, 65), Symbol.iterator, {
      value: function* () {
        for (;;) yield 65;
      },
    });
    rows.set([endless, 2], "endless");
    expect([...rows.keys()]).toStrictEqual([[filled(5, 65), 2]]);
    const bad = { code: "VARVE_BAD_ARGUMENT" } as const;
    throws(() => rows.get([{ BYTES_PER_ELEMENT: 1, length: 5 } as never, 1]), bad);
    throws(() => rows.get([new Proxy(filled(5, 1), {}), 1]), bad);
    throws(() => rows.get([filled(4, 1), 1]), bad);
  });

  test("bytes in fields of structs are stored by their true length", async () => {
    const db = await opened(storage);
    const Part = struct("LyingPart", {
      blob,
      option: option(blob),
      union: union({ bytes: blob }),
      list: vec(blob),
    });
    const parts = db.collection("parts", Part);
    const fixed = db.collection("fixed", struct("LyingFixed", { five: bytes(5) }));
    db.set("secret", "TOPSECRET-".repeat(500));
    for (const [name, array, really] of liars(db)) {
      const given = {
        blob: array,
        option: array,
        union: { type: "bytes", value: array },
        list: [array, array],
      };
      parts.set("key", given as never);
      const found = parts.get("key");
      const lengths = [found?.blob.length, found?.option?.length, found?.list.at(1)?.length];
      expect(lengths, name).toStrictEqual([really, really, really]);
      assert(found?.blob.every((byte) => byte === 65) && found.list.at(1)?.every((b) => b === 65));
      if (really === 5) fixed.set("key", { five: array });
      else throws(() => fixed.set("key", { five: array }), { code: "VARVE_BAD_ARGUMENT" });
      expect(fixed.get("key")?.five.length).toBe(5);
    }
  });

  test("what the codec of a program returns is stored by its true length", async () => {
    const db = await opened(storage);
    for (const [name, array, really] of liars(db)) {
      const own = db.collection(`own ${name}`, { encode: () => array, decode: (b) => b.slice() });
      own.set("key", new Uint8Array());
      expect(own.get("key"), name).toStrictEqual(filled(really, 65));
    }
  });

  test("a list whose length is none, or changes, is refused or stored as it was read", async () => {
    const db = await opened(storage);
    const texts = db.collection("texts", struct("LyingTexts", { all: vec(str) }));
    const pairs = db.collection("pairs", struct("LyingPairs", { both: array(u32, 2) }));
    const claiming = (length: unknown): string[] =>
      new Proxy(["abc", "def"], {
        get: (target, name) => (name === "length" ? length : Reflect.get(target, name)),
      });
    for (const length of [1.5, -1, 3, 2 ** 31, 1e9, 2 ** 40, Number.NaN, "2", undefined]) {
      throws(() => texts.set("key", { all: claiming(length) }), { code: "VARVE_BAD_ARGUMENT" });
      const both = claiming(length) as unknown as number[];
      throws(() => pairs.set("key", { both }), { code: "VARVE_BAD_ARGUMENT" });
    }
    let reads = 0;
    const growing = new Proxy(["abc", "def"], {
      get: (target, name) => (name === "length" ? 1 + reads++ : Reflect.get(target, name)),
    });
    texts.set("key", { all: growing });
    expect(texts.get("key")?.all.snapshot()).toStrictEqual(["abc"]);
  });

  test("a value that getters of its key change, or during which they store another, is stored or refused", async () => {
    const db = await opened(storage);
    const rows = db.collection("rows", json<unknown>(), { key: [timestamp, u32] });
    rows.set([1, 1], "x");
    const value = { list: ["a"] };
    const keyed = (meddle: () => void) => [dateOf(meddle, 2), 2] as [Date, number];
    const meddlers = [
      () => rows.set([3, 3], { of: "another length, by far" }),
      () => value.list.push("more"),
      () => {
        value.list.push("more");
        rows.set([3, 3], value);
      },
      () => {
        try {
          rows.set([4, -1], { refused: true });
        } catch {
          // The key is invalid, but its value was measured all the same.
        }
      },
    ];
    for (const meddle of meddlers) {
      try {
        rows.set(keyed(meddle), value);
        assert(["a", undefined].includes((rows.get([2, 2]) as typeof value | undefined)?.list[0]));
      } catch (error) {
        expect((error as { code?: unknown }).code).toBe("VARVE_BAD_ARGUMENT");
      }
      expect(rows.get([1, 1])).toBe("x");
    }
    const Row = struct("Row", { n: u32, list: vec(u32) });
    const structs = db.collection("structs", Row, { key: [timestamp, u32] });
    const row = { n: 1, list: [1] };
    structs.set(
      keyed(() => structs.set([3, 3], { n: 2, list: [1, 2, 3, 4, 5, 6] })),
      row,
    );
    expect(structs.get([2, 2])?.snapshot()).toStrictEqual({ n: 1, list: [1] });
    expect((await db.verify()).problems).toStrictEqual([]);
  });

  test("keys of getMany that are other views have their true bytes, and their own getters are not called", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    db.set("b", "2");
    let calls = 0;
    const view = (name: string) =>
      Object.defineProperties(new DataView(new TextEncoder().encode(name).buffer), {
        buffer: { get: after(() => (calls += 1), new ArrayBuffer(1)) },
        byteLength: { get: after(() => (calls += 1), -1) },
        byteOffset: { get: after(() => (calls += 1), 1_000) },
      }) as DataView<ArrayBuffer>;
    const wanted = () => ["a", view("b"), "none", view("a"), view("none"), "b"] as Key[];
    expect(db.getMany(wanted()).map(text)).toStrictEqual([
      "1",
      "2",
      undefined,
      "1",
      undefined,
      "2",
    ]);
    expect(
      db.getMany({ [Symbol.iterator]: () => wanted()[Symbol.iterator]() }).map(text),
    ).toStrictEqual(["1", "2", undefined, "1", undefined, "2"]);
    db.set(view("c"), view("3"));
    expect(db.getText("c")).toBe("3");
    expect(calls).toBe(0);
  });

  test("arrays without memory are refused wherever bytes are taken, and nothing is stored as empty", async () => {
    const db = await opened(storage);
    const gone = <T extends Uint8Array | Float32Array>(array: T): T => {
      structuredClone(array.buffer, { transfer: [array.buffer] });
      return array;
    };
    const lost = () => gone(new Uint8Array(4));
    const Row = struct("Row", {
      raw: blob,
      list: vec(u32),
      rows: vec(vec(u32)),
      maybe: option(blob),
      one: union({ Raw: blob, None: null }),
    });
    const row = {
      raw: new Uint8Array(2),
      list: [1],
      rows: [[1]],
      maybe: null,
      one: { type: "None" },
    } as const;
    const rows = db.collection("rows", Row, { key: [str, blob] });
    const key = ["a", new Uint8Array(1)] as const;
    rows.set(key, row);
    const own = db.collection("own", { encode: lost, decode: () => 0 });
    const lines = db.collection("lines", json());
    const calls: (() => unknown)[] = [
      () => rows.set(key, { ...row, raw: lost() }),
      () => rows.set(key, { ...row, list: lost() as never }),
      () => rows.set(key, { ...row, list: gone(new Float32Array(4)) as never }),
      () => rows.set(key, { ...row, rows: [lost() as never] }),
      () => rows.set(key, { ...row, maybe: lost() }),
      () => rows.set(key, { ...row, one: { type: "Raw", value: lost() } }),
      () =>
        rows.updateIf(key, (its) => {
          its.raw = lost();
        }),
      () =>
        rows.updateIf(key, (its) => {
          its.list = lost() as never;
        }),
      () => rows.set(["b", lost()], row),
      () => rows.count({ gte: ["a", lost()] }),
      () => own.set("a", 1),
      () => Row.encode({ ...row, raw: lost() }),
      () => Row.view(lost()),
      () => Row.check(lost()),
      () => toJson(Row, lost()),
      () => fromJson(Row, lost()),
    ];
    for (const call of calls) throws(call, { code: "VARVE_BAD_ARGUMENT" });
    await rejects(lines.fromJsonLines([lost()]), { code: "VARVE_BAD_ARGUMENT" });
    await rejects(lines.fromJsonLines(lost()), { code: "VARVE_BAD_ARGUMENT" });
    const from = { storage: memory(), from: lost() };
    await rejects(open("from", from), { code: "VARVE_BAD_ARGUMENT" });
    expect(rows.get(key)?.snapshot()).toStrictEqual(Row.view(Row.encode(row)).snapshot());
    expect([rows.count(), own.count(), lines.count()]).toStrictEqual([1, 0, 0]);
    const { list } = { ...row, list: new Uint32Array(0) };
    rows.set(key, { ...row, raw: new Uint8Array(0), list });
    expect(rows.get(key)?.raw.length).toBe(0);
  });

  test("keys of getMany are as of their turn, even if the array grows", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    db.set("b", "2");
    const growing: Key[] = Object.defineProperty(["a"], 1, {
      get: after(() => {
        if (growing.length < 5) growing.push("a");
        db.set("meanwhile", filled(2_000, 1));
      }, "b"),
    });
    expect(db.getMany(growing).slice(0, 2).map(text)).toStrictEqual(["1", "2"]);
    expect(db.getMany(["meanwhile"])[0]?.length).toBe(2_000);
  });

  test("values in memory that grows, shrinks or is shared are read once", async () => {
    const db = await opened(storage);
    const make = ArrayBuffer as new (
      length: number,
      more?: object,
    ) => ArrayBuffer & {
      resize?(length: number): void;
    };
    const buffer = new make(3_000, { maxByteLength: 20_000 });
    if (typeof buffer.resize === "function") {
      const whole = new Uint8Array(buffer).fill(7);
      const resizing = (length: number) => dateOf(() => buffer.resize?.(length), 1);
      for (const length of [3_000, 10, 20_000]) {
        buffer.resize(length);
        whole.fill(7);
        db.set("tracking", whole);
        db.set("buffer", buffer);
        db.updateIf("tracking", () => whole);
        for (const key of ["tracking", "buffer"])
          expect(db.get(key)?.slice()).toStrictEqual(filled(length, 7));
        db.set(whole.subarray(0, 5), "a key in it");
        expect(db.getText(filled(5, 7))).toBe("a key in it");
        expect(db.delete(filled(5, 7))).toBe(true);
      }
      // A view that the buffer has shrunk below is empty.
      const part = new Uint8Array(buffer, 100, 500);
      buffer.resize(50);
      throws(() => db.set("part", part), { code: "VARVE_BAD_ARGUMENT" });
      const Row = struct("Row", { data: vec(u32), id: bytes(4) });
      const rows = db.collection("rows", Row, { key: [timestamp, u32] });
      for (const length of [2, 20_000]) {
        buffer.resize(4);
        new Uint8Array(buffer).fill(9);
        const id = new Uint8Array(buffer);
        try {
          rows.set([resizing(length), 1], { data: [1], id });
          expect(rows.get([1, 1])?.id.slice()).toStrictEqual(filled(4, 9));
        } catch (error) {
          expect((error as { code?: unknown }).code).toBe("VARVE_BAD_ARGUMENT");
        }
      }
    }
    if (typeof SharedArrayBuffer === "function") {
      const shared = new Uint8Array(new SharedArrayBuffer(3_000)).fill(
        8,
      ) as unknown as Uint8Array<ArrayBuffer>;
      db.set("shared", shared);
      shared.fill(1);
      expect(db.get("shared")?.slice()).toStrictEqual(filled(3_000, 8));
      db.set("short", shared.subarray(0, 10));
      db.set(shared.subarray(0, 5), "a key in it");
      shared.fill(2);
      expect(db.get("short")?.slice()).toStrictEqual(filled(10, 1));
      expect(db.getText(filled(5, 1))).toBe("a key in it");
    }
    expect((await db.verify()).problems).toStrictEqual([]);
  });
});
