import { inJson } from "varve/json";
import {
  added,
  blob,
  bool,
  desc,
  f64,
  i64,
  json,
  option,
  str,
  struct,
  text,
  u16,
  u32,
  u64,
  union,
  versioned,
} from "varve/struct";
import { assert, expect, test } from "vitest";
import { rejects, throws } from "../support/errors.js";
import { until } from "../support/values.js";
import { everywhere, opened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const MALFORMED = { code: "VARVE_MALFORMED_VALUE" } as const;

const Row = struct("Row", { id: u64, price: f64, name: str, rank: option(u16), raw: blob });

async function textOf(stream: ReadableStream<Uint8Array>): Promise<string> {
  return new Response(stream as ReadableStream<Uint8Array<ArrayBuffer>>).text();
}

everywhere("JSON lines", ({ storage }) => {
  test("records survive an export and an import into another collection, with its indexes", async () => {
    const db = await opened(storage);
    const definition = { key: [i64, desc(f64), str], indexes: { byPrice: "price" } } as const;
    const rows = db.collection("rows", Row, definition);
    for (let i = 0; i < 2_000; i++) {
      const raw = new Uint8Array(i % 5).fill(i);
      const name = i % 7 === 0 ? `ž"\\\n${i}` : "x".repeat(i % 50);
      const rank = i % 3 === 0 ? undefined : i;
      rows.set([BigInt(-i), i % 2 === 0 ? i : -Infinity, `k"{${i}`], {
        id: BigInt(i) << 40n,
        price: i / 8,
        name,
        rank,
        raw,
      });
    }
    const lines = await textOf(rows.toJsonLines());
    expect(lines.split("\n").length).toBe(2_001);
    const copy = db.collection("copy", Row, definition);
    let reported = 0;
    const count = await copy.fromJsonLines(lines, {
      onProgress: ({ records }) => (reported = records),
    });
    expect([count, reported]).toStrictEqual([2_000, 2_000]);
    expect(await textOf(copy.toJsonLines())).toBe(lines);
    expect([...copy.index.byPrice.keys()]).toStrictEqual([...rows.index.byPrice.keys()]);
    const [first] = (await textOf(rows.toJsonLines({ limit: 1 }))).split("\n");
    expect(first).toBe(
      '{"key":["-1999","-Infinity","k\\"{1999"],"value":{"id":"2197923743924224","price":249.875,' +
        `"name":"${"x".repeat(49)}","rank":1999,"raw":"z8/Pzw=="}}`,
    );
  });

  test("lines have the JSON form that a schema declares, and the records are the same without it", async () => {
    const db = await opened(storage);
    const Plain = struct("Plain", { unitPrice: u16, note: str, by: union({ Row, Free: null }) });
    const Formed = inJson(
      struct("Plain", {
        unitPrice: u16,
        note: str,
        by: inJson(union({ Row, Free: null }), { tag: "type" }),
      }),
      {
        renameAll: "snake_case",
        fields: {
          note: { skip: true, default: "none" },
          unitPrice: { alias: "price", default: 9 },
        },
      },
    );
    const rows = db.collection("rows", Formed);
    rows.set("a", { unitPrice: 5, note: "secret", by: { type: "Free" } });
    expect(await textOf(rows.toJsonLines())).toBe(
      '{"key":"a","value":{"unit_price":5,"by":{"type":"Free"}}}\n',
    );
    await rows.fromJsonLines(
      '{"key":"b","value":{"by":{"type":"Free"}}}\n{"key":"c","value":{"price":7,"by":{"type":"Free"}}}',
    );
    const plain = db.collection("rows", Plain);
    expect([...plain.values()].map((row) => row.snapshot())).toStrictEqual([
      { unitPrice: 5, note: "secret", by: { type: "Free" } },
      { unitPrice: 9, note: "none", by: { type: "Free" } },
      { unitPrice: 7, note: "none", by: { type: "Free" } },
    ]);
    expect(await textOf(plain.toJsonLines({ gte: "c" }))).toBe(
      '{"key":"c","value":{"unitPrice":7,"note":"none","by":"Free"}}\n',
    );
    await rejects(rows.fromJsonLines('{"key":"d","value":{"by":{"type":"Row","id":"x"}}}'), {
      ...MALFORMED,
      message: /\$\.by\.id: /,
    });
  });

  test("records of earlier versions are written with the defaults of fields that they lack", async () => {
    const db = await opened(storage);
    db.collection("rows", versioned("Row", { n: u16 })).set("a", { n: 1 });
    const rows = db.collection("rows", versioned("Row", { n: u16, more: added(u16, 5) }));
    expect(await textOf(rows.toJsonLines())).toBe('{"key":"a","value":{"n":1,"more":5}}\n');
    await rows.fromJsonLines('{"key":"b","value":{"n":2}}');
    expect(rows.get("b")?.more).toBe(5);
  });

  test("lines are read from streams in chunks of any size, with spaces and members in any order", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", json<unknown>(), { key: u32 });
    const lines =
      ' { "value" : {"a":[1,{"b":"}\\""}]} , "key" : 1 }\r\n\n{"key":2,"value":"é"}\n{"key":3,"value":null}';
    const bytes = new TextEncoder().encode(lines);
    const chunksOf = function* (size: number) {
      for (let at = 0; at < bytes.length; at += size) yield bytes.slice(at, at + size);
    };
    for (const size of [1, 2, 7, 1_000]) {
      notes.clear();
      expect(await notes.fromJsonLines(chunksOf(size))).toBe(3);
      expect([...notes.entries()]).toStrictEqual([
        [1, { a: [1, { b: '}"' }] }],
        [2, "é"],
        [3, null],
      ]);
    }
    notes.clear();
    expect(await notes.fromJsonLines(new Response(bytes).body as ReadableStream<Uint8Array>)).toBe(
      3,
    );
    expect(await notes.fromJsonLines("")).toBe(0);
    const texts = db.collection("texts", text());
    expect(await texts.fromJsonLines('{"key":"a","value":"A\\n"}')).toBe(1);
    expect(texts.get("a")).toBe("A\n");
    expect(await textOf(texts.toJsonLines())).toBe('{"key":"a","value":"A\\n"}\n');
    expect(await textOf(db.collection("none", text()).toJsonLines())).toBe("");
  });

  test("strings may be divided anywhere, also within a character, and come from a stream", async () => {
    const db = await opened(storage);
    const texts = db.collection("texts", json<string>());
    const lines = '{"key":"a","value":"😀é😀"}\n{"key":"😀","value":"🎈"}\n';
    const units = lines.split("");
    const streamed = () =>
      new ReadableStream<string>({
        start(to) {
          for (const unit of units) to.enqueue(unit);
          to.close();
        },
      });
    const later = async function* () {
      for (const unit of units) yield unit;
    };
    const at = lines.indexOf("😀") + 1;
    const halves = [lines.slice(0, at), "", lines.slice(at)];
    for (const source of [units, later(), streamed(), halves]) {
      texts.clear();
      expect(await texts.fromJsonLines(source)).toBe(2);
      expect([...texts.entries()]).toStrictEqual([
        ["a", "😀é😀"],
        ["😀", "🎈"],
      ]);
    }
  });

  test("a lone surrogate in a string is refused, wherever its chunk ends", async () => {
    const db = await opened(storage);
    const texts = db.collection("texts", json<string>());
    const rest = new TextEncoder().encode('"}\n');
    const [high, low] = ["\ud83d", "\ude00"];
    const head = '{"key":"a","value":"';
    for (const source of [
      `${head}${high}"}`,
      `${head}${low}"}`,
      [head, high, '"}'],
      [head, low, '"}'],
      [`${head}${high}`, `${high}${low}"}`],
      [`${head}${high}`],
      [`${head}${high}`, rest],
      [`${head}${high}`, new Uint8Array(0), `${low}"}`],
    ]) {
      await rejects(texts.fromJsonLines(source), { ...BAD, message: /lone surrogate/ });
      expect(texts.count()).toBe(0);
    }
  });

  test("lines that arrive one by one without a pause share commits", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", json<number>(), { key: u32 });
    const lines = async function* () {
      for (let i = 0; i < 2_000; i++) yield `{"key":${i},"value":${i}}\n`;
    };
    const before = db.stats().frame;
    expect(await notes.fromJsonLines(lines())).toBe(2_000);
    db.commit();
    const frames = db.stats().frame - before;
    assert(frames < 1_000, `2,000 lines took ${frames} frames`);
    expect(notes.count()).toBe(2_000);
    expect(notes.get(1_999)).toBe(1_999);
  });

  test("lines are stored when they arrive, before later ones do", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", json<number>(), { key: u32 });
    let isOver = false;
    const lines = async function* () {
      yield '{"key":1,"value":1}\n{"key":2,';
      await until(() => notes.has(1));
      yield '"value":2}\n';
      await until(() => notes.has(2));
      isOver = true;
    };
    expect(await notes.fromJsonLines(lines())).toBe(2);
    expect(isOver).toBe(true);
  });

  test("progress is reported and a signal aborts, in both directions", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text(), { key: u32 });
    for (let i = 0; i < 3_000; i++) notes.set(i, "x".repeat(100));
    const reported: number[] = [];
    const listen = ({ records }: { records: number }) => void reported.push(records);
    const lines = await textOf(notes.toJsonLines({}, { onProgress: listen }));
    assert(reported.length > 3, `${reported}`);
    expect([reported.at(-1), [...reported].sort((a, b) => a - b)]).toStrictEqual([3_000, reported]);

    const enough = new Error("enough");
    const writing = new AbortController();
    const reader = notes.toJsonLines(undefined, { signal: writing.signal }).getReader();
    expect((await reader.read()).done).toBe(false);
    writing.abort(enough);
    await rejects(reader.read(), { message: "enough" });
    const late = notes.toJsonLines(undefined, { signal: writing.signal });
    await rejects(late.getReader().read(), { message: "enough" });
    const fails = () => {
      throw enough;
    };
    const failing = notes.toJsonLines({ gte: 5 }, { onProgress: fails }).getReader();
    await rejects(failing.read(), { message: "enough" });
    throws(() => notes.toJsonLines({}, { progress: fails } as object), {
      ...BAD,
      message: /progress/,
    });
    throws(() => notes.toJsonLines({}, { signal: 1 } as object), {
      ...BAD,
      message: /AbortSignal/,
    });

    // A pending read of the source is ended too, and the source is canceled.
    for (const isStream of [true, false]) {
      notes.clear();
      const reading = new AbortController();
      let cancelled: unknown;
      const [first = "", second = ""] = lines.split("\n");
      const hanging = isStream
        ? new ReadableStream<Uint8Array>({
            start: (to) => to.enqueue(new TextEncoder().encode(`${first}\n${second}`)),
            cancel: (reason) => {
              cancelled = reason;
            },
          })
        : (async function* () {
            yield `${first}\n${second}`;
            await new Promise(() => {});
          })();
      const stored = notes.fromJsonLines(hanging, { signal: reading.signal });
      await until(() => notes.count() === 1);
      reading.abort(enough);
      await rejects(stored, { message: "enough" });
      expect(notes.count()).toBe(1);
      if (isStream) await until(() => cancelled === enough);
    }
  });

  test("other tasks run while lines are written, and can abort a reader that never waits", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", text(), { key: u32 });
    const value = "x".repeat(100);
    db.transaction(() => {
      for (let i = 0; i < 40_000; i++) notes.set(i, value);
    });
    const aborting = new AbortController();
    setTimeout(() => aborting.abort(new Error("enough")), 0);
    const { signal } = aborting;
    const reader = notes.toJsonLines({}, { signal }).getReader();
    const readAll = async () => {
      while (!(await reader.read()).done);
    };
    await rejects(readAll(), { message: "enough" });
    const last = await textOf(notes.toJsonLines({ gte: 39_999 }));
    expect(last).toBe(`{"key":39999,"value":"${value}"}\n`);
  });

  test("a byte order mark at the start is skipped, even if it is split", async () => {
    const db = await opened(storage);
    const texts = db.collection("texts", text());
    const marked = '\ufeff{"key":"a","value":"\ufeffA"}\n{"key":"b","value":"B"}';
    expect(await texts.fromJsonLines(marked)).toBe(2);
    expect([texts.get("a"), texts.get("b")]).toStrictEqual(["\ufeffA", "B"]);
    const bytes = Array.from(new TextEncoder().encode(marked), (byte) => Uint8Array.of(byte));
    expect(await texts.fromJsonLines(bytes)).toBe(2);
    await rejects(texts.fromJsonLines(marked.replace("\n", "\n\ufeff")), { message: /^Line 2: / });
  });

  test("a wrong line ends the import, and the error names it", async () => {
    const db = await opened(storage);
    const rows = db.collection("rows", Row, { key: [u32, bool] });
    const value = '{"id":"1","price":1,"name":"","rank":null,"raw":""}';
    const good = `{"key":[1,true],"value":${value}}`;
    const wrong: [string, RegExp][] = [
      ["x", /Line 2: \{ is missing at 0/],
      [`{"key":[2,true]}`, /Line 2: .*no "value"/],
      [`{"value":${value}}`, /Line 2: .*no "key"/],
      [`{"key":[2,true],"value":${value},"more":1}`, /Line 2: .*"more"/],
      [`{"key":[2,true],"key":[2,true],"value":${value}}`, /Line 2: .*"key"/],
      [`${good} x`, /Line 2: .*after its end/],
      [`{"key":[2,true],"value":{"id":"1"}}`, /Line 2: .*\$/],
      [`{"key":[2,true],"value":${value.replace('"price":1', '"price":"a"')}}`, /Line 2: .*price/],
      [`{"key":[2,true],"value":${value}`, /Line 2: /],
      [`{"key":2,"value":${value}}`, /Line 2: .*array of 2 parts/],
      [`{"key":[2],"value":${value}}`, /Line 2: .*2 parts/],
      [`{"key":[-1,true],"value":${value}}`, /Line 2: Part 0 of the key/],
      [`{"key":[2,tru],"value":${value}}`, /Line 2: .*invalid JSON/],
    ];
    for (const [line, message] of wrong) {
      rows.clear();
      const error = await rejects(rows.fromJsonLines(`${good}\n${line}\n${good}`), { message });
      const { code } = error as { code?: unknown };
      assert(code === MALFORMED.code || code === BAD.code, `${line} gave ${String(error)}`);
      expect([...rows.keys()], line).toStrictEqual([[1, true]]);
    }
    const names = db.collection("names", Row, {
      indexes: { byName: { fields: "name", unique: true } },
    });
    const [a, b] = ["a", "b"].map((key) => `{"key":"${key}","value":${value}}`);
    await rejects(names.fromJsonLines(`${a}\n${b}`), {
      code: "VARVE_UNIQUE_VIOLATION",
      message: /^Line 2: Another record of "names" already has this name/,
    });
    await rejects(rows.fromJsonLines(5 as never), BAD);
    await rejects(rows.fromJsonLines([5] as never), { ...BAD, message: /Chunks .* Given: 5/ });
    await rejects(rows.fromJsonLines(good, { lenient: true } as never), BAD);
    const unknown = good.replace('"id"', '"other":{},"id"');
    await rejects(rows.fromJsonLines(unknown), MALFORMED);
    expect(await rows.fromJsonLines(unknown, { ignoreUnknown: true })).toBe(1);
    const codec = { encode: () => new Uint8Array(1), decode: () => 1 };
    const own = db.collection("own", codec);
    own.set("a", 1);
    await rejects(textOf(own.toJsonLines()));
    await rejects(own.fromJsonLines('{"key":"a","value":1}'));
    const signal = AbortSignal.abort(new Error("enough"));
    await rejects(rows.fromJsonLines(good, { signal }), { message: "enough" });
  });
});
