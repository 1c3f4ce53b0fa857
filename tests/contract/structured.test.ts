/** Values of `structured()`: what structured clone keeps is kept, all else is refused, and no bytes do harm. */

import { json, str, struct, text } from "varve/struct";
import { type Structured, structured } from "varve/structured";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { differenceOf, randomOf, randomValue } from "../support/structured-values.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const MALFORMED = { name: "MalformedValueError", code: "VARVE_MALFORMED_VALUE" } as const;

const codec: Structured<unknown> = structured();
const turned = (value: unknown) => codec.decode(codec.encode(value));
const hex = (bytes: Uint8Array) =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const bytesOf = (digits: string) =>
  Uint8Array.from(digits.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));

describe("structured()", () => {
  test("structured(): thousands of random values come back as structuredClone copies them", () => {
    for (let seed = 1; seed <= 4_000; seed++) {
      const value = randomValue(randomOf(seed * 7_919));
      if (value === undefined) continue;
      const bytes = codec.encode(value);
      const found = codec.decode(bytes);
      expect(differenceOf(found, structuredClone(value)), `seed ${seed}`).toBe(undefined);
      expect(hex(codec.encode(found)), `the same bytes again, seed ${seed}`).toBe(hex(bytes));
    }
  });

  test("structured(): what JSON loses is kept", () => {
    const value = {
      at: new Date(1_790_000_000_123),
      never: new Date(Number.NaN),
      far: [new Date(8.64e15), new Date(-8.64e15), new Date(8.64e15 - 1)],
      map: new Map<unknown, unknown>([[{ a: 1 }, new Set([Number.NaN, -0])]]),
      big: [0n, -1n, 2n ** 200n, -(2n ** 64n)],
      bytes: [Uint8Array.of(1, 2), new ArrayBuffer(3), new DataView(new ArrayBuffer(2))],
      missing: undefined,
      holes: Object.assign([], { 1: 1, length: 3 }),
      boxed: [Object(1), Object("a"), Object(1n)],
      lone: ["\ud800", { "\udfff": "a\udc00\ud800" }],
    };
    expect(differenceOf(turned(value), value)).toBe(undefined);
    const match = /b(?<c>.)/.exec("abc");
    const found = turned(match) as RegExpExecArray;
    expect([found.index, found.input, found.groups?.c]).toStrictEqual([1, "abc", "c"]);
    const long: unknown[] = [];
    long[2 ** 32 - 2] = "end";
    expect((turned(long) as unknown[]).length).toBe(2 ** 32 - 1);
  });

  test("structured(): the same object stays the same, also in circles, keys and causes", () => {
    const shared = { when: new Date(5) };
    const map = new Map<unknown, unknown>([[shared, shared.when]]);
    map.set(map, [shared, map]);
    const error = new TypeError("no", { cause: { map } });
    (error.cause as { error?: unknown }).error = error;
    const found = turned([error, shared.when]) as [
      TypeError & { cause: Record<string, unknown> },
      Date,
    ];
    const [again, when] = found;
    expect(again.cause.error).toBe(again);
    const keys = [...(again.cause.map as typeof map).keys()] as (typeof shared)[];
    expect(keys[0]?.when).toBe(when);
    expect(keys[1] as unknown).toBe(again.cause.map);
  });

  test("structured(): errors keep their kind, message, stack and cause, and nothing else", () => {
    class Own extends RangeError {
      readonly code = 5;
    }
    const own = new Own("a", { cause: undefined });
    const found = turned(own) as RangeError & { code?: number };
    expect(Object.getPrototypeOf(found)).toBe(RangeError.prototype);
    expect([found.message, found.stack, found.code]).toStrictEqual(["a", own.stack, undefined]);
    assert(Object.hasOwn(found, "cause"));
    own.name = "Own";
    expect(Object.getPrototypeOf(turned(own))).toBe(Error.prototype);
    const bare = turned(new Error()) as Error;
    expect([Object.hasOwn(bare, "message"), Object.hasOwn(bare, "cause")]).toStrictEqual([
      false,
      false,
    ]);
    expect(Object.keys(found).length).toBe(0);
  });

  test("structured(): a typed array is stored without the rest of its buffer", () => {
    const all = new Uint8Array(1_000).fill(7);
    const bytes = codec.encode({
      part: all.subarray(10, 12),
      wide: new Uint16Array(all.buffer, 2, 1),
    });
    assert(bytes.length < 30, `${bytes.length} bytes`);
    const { part, wide } = codec.decode(bytes) as { part: Uint8Array; wide: Uint16Array };
    expect([part.buffer.byteLength, wide.buffer.byteLength, wide[0]]).toStrictEqual([2, 2, 0x0707]);
  });

  test("structured(): instances of classes lose their class, as in structuredClone", () => {
    class Point {
      readonly x = 1;
      get y(): number {
        return 2;
      }
    }
    const found = turned([new Point(), Object.create({ inherited: 1 })]);
    expect(found).toStrictEqual([{ x: 1 }, {}]);
    class Many extends Map {}
    expect(Object.getPrototypeOf(turned(new Many()))).toBe(Map.prototype);
  });

  test("structured(): what cannot be kept is refused, with the path to it", () => {
    const cases: [unknown, string, RegExp][] = [
      [undefined, "", /the value is undefined/],
      [() => 1, "", /the value is a function/],
      [{ user: { "on click": [() => 1] } }, '.user["on click"][0]', /is a function, which cannot/],
      [[1, Symbol("a")], "[1]", /is a symbol/],
      [new Map([["a", new Map([[Symbol("a"), 1]])]]), ".values()[0].keys()[0]", /is a symbol/],
      [new Set([1, { f() {} }]), ".values()[1].f", /is a function/],
      [Object.assign([1], { f() {} }), ".f", /is a function/],
      [new Error("a", { cause: { f() {} } }), ".cause.f", /is a function/],
      [{ a: new WeakMap() }, ".a", /is a WeakMap/],
      [{ a: Promise.resolve() }, ".a", /is a Promise/],
      [{ a: new URL("https://example.com/") }, ".a", /is a URL/],
      [{ a: new Blob(["a"]) }, ".a", /is a Blob/],
      [{ a: { [Symbol.toStringTag]: "Date", __proto__: class {} } }, ".a", /is a Date/],
    ];
    for (const [value, field, message] of cases) {
      const error = throws(() => codec.encode(value), { ...BAD, message });
      expect((error as Error & { field: string }).field).toBe(field);
    }
    const gone = Uint8Array.of(1);
    structuredClone(gone, { transfer: [gone.buffer] });
    throws(() => codec.encode({ gone }), {
      ...BAD,
      message: /\.gone has bytes that were transferred/,
    });
  });

  test("structured(): views of structs are stored as their snapshots, and spread ones are refused", () => {
    const Name = struct("Name", { name: str });
    const view = Name.view(Name.encode({ name: "Ann" }));
    expect(turned({ view })).toStrictEqual({ view: { name: "Ann" } });
    throws(() => codec.encode({ view: { ...view } }), BAD);
    expect(turned({ $v: { a: 1 } })).toStrictEqual({ $v: { a: 1 } });
  });

  test("structured(): 500 levels of nesting are stored, and deeper values are refused", () => {
    const nested = (levels: number, wrap: (value: unknown) => unknown) => {
      let value: unknown = "end";
      for (let i = 0; i < levels; i++) value = wrap(value);
      return value;
    };
    const wraps: ((value: unknown) => unknown)[] = [
      (value) => [value],
      (value) => ({ value }),
      (value) => new Map([[value, value]]),
      (value) => new Set([value]),
      (value) => Object.assign([value], { more: 1, length: 2 }),
      (cause) => new Error("a", { cause }),
    ];
    for (const wrap of wraps) {
      const bytes = codec.encode(nested(500, wrap));
      expect(hex(codec.encode(codec.decode(bytes)))).toBe(hex(bytes));
      for (const levels of [501, 20_000]) {
        throws(() => codec.encode(nested(levels, wrap)), { ...BAD, message: /nested/ });
      }
    }
    throws(() => codec.decode(new Uint8Array(1_000_000).fill(0x81)), MALFORMED);
    throws(() => codec.decode(bytesOf(`${"d81c".repeat(9_000)}80`)), MALFORMED);
  });

  test("structured(): code of a value may store other values meanwhile", () => {
    const value = {
      get inner() {
        return hex(codec.encode({ other: "x".repeat(2_000) })).length;
      },
      after: "end",
    };
    expect(turned(value)).toStrictEqual({ inner: 4_020, after: "end" });
    throws(
      () =>
        codec.encode({
          get inner() {
            throw new RangeError("own");
          },
        }),
      { name: "RangeError", message: "own" },
    );
    expect(turned({ a: 1 })).toStrictEqual({ a: 1 });
  });
});

describe("bytes that are no value", () => {
  test("malformed: each is refused with a code", () => {
    const cases: Record<string, string> = {
      nothing: "",
      undefined: "f7",
      "more behind the end": "0101",
      "a length beyond the end": "5affffffff00",
      "a list of 4 billion items": "9affffffff",
      "a list of 2 ** 63 items": "9b8000000000000000",
      "a map of 4 billion fields": "baffffffff",
      "a name that is no text": "a10102",
      "invalid UTF-8": "61ff",
      "an unknown tag": "d9fffe00",
      "an unknown class": "d81b8263466f6f01",
      "a class without a name": "d81b80",
      "an Error without message": "d81b81654572726f72",
      "a wrong regular expression": "d9524a82612860",
      "a reference to nothing": "d81d00",
      "a reference into itself": "d81cd81d00",
      "a shared number": "d81c01",
      "a date out of range": "c1fb7fefffffffffffff",
      "a date of text": "c16161",
      "a break": "ff",
      "a list that does not end": "9f0101",
      "a head without a meaning": "1c",
      "an integer without an end": "1f",
      "odd bytes of 16-bit numbers": "d84541ff",
      "an item behind an array's end": "d81b8365417272617901a1613901",
      "an array whose length is text": "d81b83654172726179613aa0",
      "an array with another length": "d81b8365417272617901a1666c656e67746805",
      "a wrong boxed number": "d81b82664e756d62657261 61".replace(" ", ""),
      "a map without entries": "d9010380",
      "a simple value": "e0",
    };
    for (const [what, digits] of Object.entries(cases)) {
      try {
        throws(() => codec.decode(bytesOf(digits)), MALFORMED);
      } catch (error) {
        throw new Error(what, { cause: error });
      }
    }
  });

  test("malformed: 20,000 random and changed values end soon, with a value or an error with a code", () => {
    const random = randomOf(20_261_127);
    const started = Date.now();
    for (let i = 0; i < 20_000; i++) {
      let bytes: Uint8Array;
      if (i % 3 === 0) bytes = Uint8Array.from({ length: random(40) }, () => random(256));
      else {
        bytes = codec.encode(randomValue(random, 3) ?? null);
        for (let n = random(3) + 1; n > 0; n--) bytes[random(bytes.length)] = random(256);
        if (i % 3 === 2) bytes = bytes.subarray(0, random(bytes.length + 1));
      }
      try {
        codec.decode(bytes);
      } catch (error) {
        expect((error as { code?: unknown }).code, hex(bytes)).toBe("VARVE_MALFORMED_VALUE");
      }
    }
    assert(Date.now() - started < 60_000, "it ends");
    expect(Object.keys(Object.prototype).length).toBe(0);
  });

  test("malformed: no name changes a prototype", () => {
    const named = codec.encode(
      JSON.parse('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}}}'),
    );
    const found = codec.decode(named) as Record<string, unknown>;
    expect(Object.getPrototypeOf(found)).toBe(Object.prototype);
    assert(Object.hasOwn(found, "__proto__"));
    const list = codec.decode(bytesOf(`d81b8365417272617901a1${hex(codec.encode("__proto__"))}a0`));
    expect(Object.getPrototypeOf(list)).toBe(Array.prototype);
    expect(({} as { polluted?: number }).polluted).toBe(undefined);
  });

  test("malformed: a small value cannot take much memory", () => {
    // 40 levels of two references to the level below, which would be a million million objects if they were copied.
    let digits = "d81c80";
    for (let i = 0; i < 40; i++)
      digits = `d81c82${digits}d81d${(40 - i)
        .toString(16)
        .padStart(2, "0")
        .replace(/^([2-9].|1[89a-f])$/, "18$1")}`;
    const bytes = bytesOf(digits);
    assert(codec.decode(bytes) !== undefined);
    const started = performance.now();
    for (let i = 0; i < 12; i++) {
      const long = codec.decode(bytesOf("d81b836541727261791a01c9c380a0")) as unknown[];
      expect(long.length).toBe(30_000_000);
    }
    assert(performance.now() - started < 1_000, "no memory is filled for 30 million items");
    assert(
      (codec as unknown as { toJsonText(bytes: Uint8Array): string }).toJsonText(bytes).length <
        3_000,
    );
  });

  test("other writers: lists and maps without a length, and integers of 64 bits are read", () => {
    expect(codec.decode(bytesOf("9f01bf616102ffff"))).toStrictEqual([1, { a: 2 }]);
    expect(codec.decode(bytesOf("1bffffffffffffffff"))).toBe(2n ** 64n - 1n);
    expect(codec.decode(bytesOf("3bffffffffffffffff"))).toBe(-(2n ** 64n));
    expect(codec.decode(bytesOf("1b001fffffffffffff"))).toBe(Number.MAX_SAFE_INTEGER);
    expect(codec.decode(bytesOf("f93c00"))).toBe(1);
  });
});

everywhere("collections of structured()", ({ storage }) => {
  type Draft = { title: string; at: Date; tags: Set<string>; parts?: Map<number, Uint8Array> };

  test("a collection stores, changes and lists them, also when it is opened again", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    let drafts = db.collection("drafts", structured<Draft>());
    drafts.set("a", { title: "A", at: new Date(5), tags: new Set(["x"]) });
    assert(drafts.updateIf("a", (draft) => void draft.tags.add("y")));
    drafts.set("b", {
      title: "B",
      at: new Date(6),
      tags: new Set(),
      parts: new Map([[1, Uint8Array.of(9)]]),
    });
    throws(() => drafts.set("c", { title: () => 1 } as never), {
      ...BAD,
      message: /\.title is a function/,
    });
    throws(() => db.collection("drafts", text()), { code: "VARVE_SCHEMA_MISMATCH" });
    db = await reopened(db, storage, name);
    drafts = db.collection("drafts", structured<Draft>());
    expect([...(drafts.get("a")?.tags ?? [])]).toStrictEqual(["x", "y"]);
    expect(drafts.get("b")?.parts?.get(1)).toStrictEqual(Uint8Array.of(9));
    expect([...drafts.entries()].map(([key, { at }]) => [key, at.getTime()])).toStrictEqual([
      ["a", 5],
      ["b", 6],
    ]);
    expect(drafts.count()).toBe(2);
  });

  test("JSON lines hold all of a value, and bring it back", async () => {
    const db = await opened(storage);
    const [from, to] = [db.collection("from", structured()), db.collection("to", structured())];
    for (let seed = 1; seed <= 300; seed++) {
      from.set(String(seed), randomValue(randomOf(seed * 104_729)) ?? null);
    }
    const circle: unknown[] = [new Date(5), -0, { $Date: "text" }, 5n];
    circle[5] = "\ud800";
    circle.push(circle);
    from.set("circle", circle);
    const lines = await new Response(
      from.toJsonLines() as ReadableStream<Uint8Array<ArrayBuffer>>,
    ).text();
    assert(
      lines.includes(
        '{"key":"circle","value":{"$shared":{"$Array":[7,{"0":{"$Date":"1970-01-01T00:00:00.005Z"},' +
          '"1":{"$float":"-0"},"2":{"$Object":{"$Date":"text"}},"3":{"$BigInt":"5"},"5":"\\ud800","6":{"$ref":0}}]}}}',
      ),
      lines.slice(-400),
    );
    expect(await to.fromJsonLines(lines)).toBe(301);
    for (const [key, value] of from.entries()) {
      expect(hex(codec.encode(to.get(key))), key).toBe(hex(codec.encode(value)));
    }
  });

  test("JSON lines: what stands for nothing is refused", async () => {
    const db = await opened(storage);
    const to = db.collection("to", structured());
    const wrong = [
      '{"$Date":5}',
      '{"$Date":"never"}',
      '{"$float":"1"}',
      '{"$BigInt":"x"}',
      '{"$Map":[1]}',
      '{"$Map":[[1]]}',
      '{"$Set":5}',
      '{"$RegExp":["(",""]}',
      '{"$Uint8Array":"*"}',
      '{"$Uint16Array":"AA=="}',
      '{"$ref":0}',
      '{"$unknown":1}',
      '{"$TypeError":[1]}',
      '{"$Object":1}',
      '{"$undefined":true}',
    ];
    for (const value of wrong) {
      let code: unknown;
      try {
        await to.fromJsonLines(`{"key":"a","value":${value}}`);
      } catch (error) {
        code = (error as { code?: unknown }).code;
      }
      expect(code, value).toBe("VARVE_MALFORMED_VALUE");
    }
    expect(to.count()).toBe(0);
  });

  test("migrate turns json() into structured(), and back", async () => {
    const db = await opened(storage);
    type Old = { at: string };
    db.collection("notes", json<Old>()).set("a", { at: "1970-01-01T00:00:00.005Z" });
    const notes = await db.migrate("notes", structured<{ at: Date }>(), {
      migrate: (old) => ({ at: new Date((old as Old).at) }),
    });
    expect(notes.get("a")?.at.getTime()).toBe(5);
    const back = await db.migrate("notes", text(), {
      migrate: (bytes) =>
        String(
          structured<{ at: Date }>()
            .decode(bytes as Uint8Array)
            .at.getTime(),
        ),
    });
    expect(back.get("a")).toBe("5");
  });
});
