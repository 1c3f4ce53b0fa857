import { fromJson, MalformedValueError, toJson } from "varve/json";
import { json, option, str, struct, u8, u32, union, vec } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import type { Kind, StructKind } from "./kinds.js";
import { hex, reversed, unhex, type Vector, vectors } from "./vectors.js";

function vector(name: string): Vector {
  return vectors.find((one) => one.name === name) as Vector;
}

/** A struct with these fields. */
function of(fields: Record<string, Kind>): { kind: StructKind } {
  return { kind: { kind: "struct", name: "Test", fields: Object.entries(fields) } };
}

/** As JSON.stringify, which does not write -0. */
function stringify(value: unknown): string {
  const marked = JSON.stringify(value, (_, one) => (Object.is(one, -0) ? "minus zero" : one), "\t");
  return marked.replaceAll('"minus zero"', "-0.0");
}

/** The position and the reason of a refusal. */
function refused(kind: StructKind, json: string | Uint8Array): string {
  const error = throws(() => fromJson({ kind }, json)) as MalformedValueError;
  assert(error instanceof MalformedValueError, String(error));
  assert(error.message.startsWith(`${error.field}: `), error.message);
  return error.message;
}

/** The same JSON with the fields of every object in reverse order. */
function turn(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(turn);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).reverse();
  return Object.fromEntries(entries.map(([name, one]) => [name, turn(one)]));
}

describe("struct: JSON", () => {
  test("a lone surrogate in the text is refused, and not stored as another character", () => {
    const Row = struct("Row", { name: str });
    for (const name of ["\ud83d", "\ude00", "\ude00\ud83d"]) {
      throws(() => fromJson(Row, `{"name":"${name}"}`), { message: /lone surrogate/ });
      throws(() => fromJson(json(), `"${name}"`), { message: /lone surrogate/ });
    }
    expect(toJson(json(), fromJson(json(), '"😀"'))).toBe('"😀"');
  });

  test("text nested a hundred thousand deep is read, skipped or refused, without a stack overflow", () => {
    const deep = (open: string, close: string) => open.repeat(100_000) + close.repeat(100_000);
    for (const text of [deep("[", "]"), `${deep('{"a":', "}").replace("}", "1}")}`]) {
      try {
        expect(toJson(json(), fromJson(json(), text))).toBe(text);
      } catch (error) {
        // Not every platform can parse it.
        assert(error instanceof MalformedValueError, String(error));
      }
      const Row = struct("Row", { name: str });
      throws(() => fromJson(Row, text), { code: "VARVE_MALFORMED_VALUE" });
      throws(() => fromJson(Row, `{"name":${text}}`), { code: "VARVE_MALFORMED_VALUE" });
      const read = fromJson(Row, `{"name":"a","more":${text}}`, { ignoreUnknown: true });
      expect(toJson(Row, read)).toBe('{"name":"a"}');
    }
  });

  for (const { name, schema, values } of vectors) {
    test(`Rust's bytes convert to JSON, and the JSON to those bytes: ${name}`, () => {
      for (const { bytes, value } of values) {
        const json = toJson({ kind: schema }, unhex(bytes));
        expect(JSON.parse(json)).toStrictEqual(value);
        expect(fromJson({ kind: schema }, json)).toStrictEqual(unhex(bytes));
        expect(fromJson({ kind: schema }, stringify(value))).toStrictEqual(unhex(bytes));
      }
    });
  }

  test("fields may come in any order, those of flattened structs among the others", () => {
    for (const { name, schema, values } of vectors) {
      for (const [index, { value }] of values.entries()) {
        const bytes = fromJson({ kind: schema }, stringify(turn(value)));
        expect(hex(bytes)).toBe(reversed.get(`${name} ${index}`));
        expect(JSON.parse(toJson({ kind: schema }, bytes))).toStrictEqual(value);
      }
    }
  });

  test("malformed bytes are refused where Rust refuses them, whatever JSON was written before", () => {
    for (const { name, schema, malformed } of vectors) {
      for (const { about, at, why, bytes } of malformed) {
        const error = throws(() => toJson({ kind: schema }, unhex(bytes))) as MalformedValueError;
        assert(error instanceof MalformedValueError, `${name}, ${about}: ${error}`);
        const path = at === "" ? name : `${name}.${at}`;
        assert(error.field.startsWith(path), `${name}, ${about}: ${error.field}`);
        assert(error.message.startsWith(`${error.field}: ${why}: `), `${name}, ${about}: ${error}`);
      }
    }
  });

  test("an error names the field by its path", () => {
    const { schema } = vector("Deep");
    const json = (words: unknown[]) =>
      JSON.stringify({ n: 1, names: [], words, lists: [], blobs: [], shapes: [], last: "" });
    const good = { text: "", n: 1 };
    expect(refused(schema, json([good, good, { ...good, n: 256 }]))).toBe(
      "$.words[2].n: 256 is out of range for u8",
    );
    expect(refused(schema, json([{ n: 1 }]))).toBe("$.words[0]: missing field text");
    expect(refused(schema, json([good, { ...good, m: 1 }]))).toBe('$.words[1]: unknown field "m"');
    expect(refused(schema, json([good, 7]))).toBe("$.words[1]: expected { at byte 45, found 7");
    expect(refused(vector("Unions").schema, '{"n":1,"shape":{"Boxed":{"flag":1}}}')).toBe(
      "$.shape.Boxed.flag: expected false at byte 32, found 1",
    );
    expect(refused(vector("Unions").schema, '{"n":1,"shape":"Round"}')).toBe(
      '$.shape: "Round" is not one of Empty, Tiny, Circle, Named, Corner, Half, Boxed',
    );
    expect(refused(vector("Unions").schema, '{"n":1,"shape":"Tiny"}')).toBe(
      "$.shape: Tiny needs a payload",
    );
  });

  test("invalid JSON is refused", () => {
    const { schema } = vector("Product");
    for (const json of [
      "",
      " ",
      "{",
      '{"stock":1',
      '{"stock":1,',
      '{"stock":1,"name":"a"',
      '{"stock":1,"name":"a"}}',
      '{"stock":1,"name":"a"} 1',
      '{"stock":1,"name":"a",}',
      '{,"stock":1,"name":"a"}',
      '{"stock":1 "name":"a"}',
      '{"stock" 1,"name":"a"}',
      '{stock:1,"name":"a"}',
      '{"stock":01,"name":"a"}',
      '{"stock":+1,"name":"a"}',
      '{"stock":1.,"name":"a"}',
      '{"stock":.5,"name":"a"}',
      '{"stock":1e,"name":"a"}',
      '{"stock":-,"name":"a"}',
      '{"stock":0x1,"name":"a"}',
      '{"stock":"1","name":"a"}',
      '{"stock":1,"name":\'a\'}',
      '{"stock":1,"name":"a\nb"}',
      '{"stock":1,"name":"a\\x"}',
      '{"stock":1,"name":"\\u12"}',
      '{"stock":1,"name":"\\ud800"}',
      '{"stock":1,"name":"\\ud800\\u0041"}',
      '{"stock":1,"name":"\\udc00"}',
      '{"stock":1,"name":null}',
      '{"stock":1,"stock":1,"name":"a"}',
      "[]",
      "null",
      "tru",
    ]) {
      refused(schema, json);
      refused(schema, new TextEncoder().encode(json));
    }
    refused(
      schema,
      Uint8Array.of(...new TextEncoder().encode('{"stock":1,"name":"'), 255, 34, 125),
    );
  });

  test("a text ends at the given position, whatever follows", () => {
    const { schema } = vector("Product");
    const bytes = new TextEncoder().encode('{"stock":12,"name":"ab"}');
    for (let end = 0; end < bytes.length; end++) refused(schema, bytes.subarray(0, end));
    expect(JSON.parse(toJson({ kind: schema }, fromJson({ kind: schema }, bytes)))).toStrictEqual({
      stock: 12,
      name: "ab",
    });
  });

  test("escapes are decoded, in names too", () => {
    const { schema } = vector("Product");
    const json =
      '{"st\\u006fck":1,"name":"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e4\\u20ac\\ud83d\\ude00"}';
    const bytes = fromJson({ kind: schema }, json);
    expect(JSON.parse(toJson({ kind: schema }, bytes))).toStrictEqual(JSON.parse(json));
  });

  test("numbers are exact, in every notation", () => {
    const schema = of({
      a: { kind: "f64" },
      b: { kind: "u64" },
      c: { kind: "i64" },
      d: { kind: "i32" },
    });
    const through = (a: string, b: string, c: string, d: string) =>
      toJson(schema, fromJson(schema, `{"a":${a},"b":${b},"c":${c},"d":${d}}`));
    for (const a of [
      "0.1",
      "-0",
      "1e300",
      "-1.5E-7",
      "123456789012345678",
      "0.30000000000000004",
      "5e-324",
      "1.7976931348623157e308",
      "9007199254740993",
      "0.000001",
      "123.456",
      "100000000000000000000000",
    ]) {
      const { a: found } = JSON.parse(through(a, "0", "0", "0"));
      assert(Object.is(found, Number(a)), `${a}: ${found}`);
    }
    expect(through("0", "18446744073709551615", "-9223372036854775808", "-2147483648")).toBe(
      '{"a":0,"b":"18446744073709551615","c":"-9223372036854775808","d":-2147483648}',
    );
    expect(through('"-Infinity"', '"9007199254740993"', '"-1"', "1e3")).toBe(
      '{"a":"-Infinity","b":"9007199254740993","c":"-1","d":1000}',
    );
    for (const [field, json] of [
      ["a", "1e999"],
      ["a", '"1"'],
      ["b", "18446744073709551616"],
      ["b", "-1"],
      ["b", "1.0"],
      ["b", '"1'],
      ["b", '""'],
      ["c", "9223372036854775808"],
      ["c", "-9223372036854775809"],
      ["c", '"01"'],
      ["d", "2147483648"],
      ["d", "1.5"],
    ] as const) {
      const values = { a: "0", b: "0", c: "0", d: "0", [field]: json };
      const error = throws(() => through(values.a, values.b, values.c, values.d));
      assert(error.message.startsWith(`$.${field}: `), error.message);
    }
  });

  test("times are milliseconds or ISO 8601", () => {
    const schema = of({ at: { kind: "timestamp" } });
    const through = (at: unknown) =>
      JSON.parse(toJson(schema, fromJson(schema, JSON.stringify({ at })))).at;
    expect(through(-5)).toBe(-5);
    expect(through("2026-11-21T20:00:00.123Z")).toBe(Date.UTC(2026, 10, 21, 20, 0, 0, 123));
    expect(through("1969-12-31T23:59:59+01:00")).toBe(-3_601_000);
    expect(through("2024-02-29T23:59Z")).toBe(Date.UTC(2024, 1, 29, 23, 59));
    expect(through("+275760-09-13T00:00:00.000Z")).toBe(8.64e15);
    for (const at of [
      "2026-11-21",
      "2026-13-21T20:00:00Z",
      "2026-02-29T20:00:00Z",
      "2026-04-31T20:00:00Z",
      "yesterday",
      "",
      8.64e15 + 1,
      1.5,
      null,
    ]) {
      throws(() => through(at), { code: "VARVE_MALFORMED_VALUE" });
    }
  });

  test("bytes are canonical base64", () => {
    const schema = of({ a: { kind: "blob" }, b: { kind: "bytes", length: 2 } });
    const bytes = fromJson(schema, '{"a":"AP+A","b":"/+8="}');
    expect(toJson(schema, bytes)).toBe('{"a":"AP+A","b":"/+8="}');
    for (const a of ["A", "AA", "AA=", "AB==", "A===", "AAA", "AP-A", "AP A", "====", "AA==AA=="]) {
      refused(schema.kind, JSON.stringify({ a, b: "AAA=" }));
    }
    refused(schema.kind, '{"a":"","b":"AAAA"}');
  });

  test("options may be missing, and everything else must not", () => {
    const schema = of({
      a: { kind: "option", of: { kind: "u8" } },
      b: { kind: "optNonZero", of: { kind: "u8" } },
      c: { kind: "u8" },
    });
    expect(toJson(schema, fromJson(schema, '{"c":1}'))).toBe('{"a":null,"b":null,"c":1}');
    expect(refused(schema.kind, "{}")).toBe("$: missing field c");
    expect(refused(schema.kind, '{"b":0,"c":1}')).toBe("$.b: 0 means absent here: write null");
  });

  test("variants may have the form of JSON.stringify of a snapshot", () => {
    const Inner = struct("Inner", { by: union({ A: u8, B: null }) });
    const Paid = struct("Paid", {
      by: union({ Cash: u32, Card: str, Inner, Tip: option(u8), Free: null }),
      all: vec(union({ Cash: u32, Free: null })),
    });
    const all = [{ type: "Cash", value: 7 }, { type: "Free" }] as const;
    for (const by of [
      { type: "Cash", value: 100 },
      { type: "Card", value: 'a "card"' },
      { type: "Inner", value: { by: { type: "A", value: 3 } } },
      { type: "Inner", value: { by: { type: "B" } } },
      { type: "Tip", value: 5 },
      { type: "Tip", value: undefined },
      { type: "Free" },
    ] as const) {
      const bytes = Paid.encode({ by, all });
      const view = Paid.view(bytes);
      expect(Paid.view(fromJson(Paid, JSON.stringify(view.snapshot()))).snapshot()).toStrictEqual(
        view.snapshot(),
      );
      expect(fromJson(Paid, JSON.stringify(view))).toStrictEqual(bytes);
      expect(fromJson(Paid, toJson(Paid, bytes))).toStrictEqual(bytes);
    }
    const cash = Paid.encode({ by: { type: "Cash", value: 1 }, all: [] });
    for (const by of [
      '{"Cash":1}',
      '{ "value": 1 , "type": "Cash" }',
      '{"type":"C\\u0061sh","value":1}',
    ]) {
      expect(fromJson(Paid, `{"by":${by},"all":[]}`)).toStrictEqual(cash);
    }
    for (const [by, why] of [
      ['{"type":"Cheque","value":1}', /"Cheque" is not one of Cash, Card/],
      ['{"type":"Cash"}', /Cash needs a payload/],
      ['{"type":"Free","value":1}', /Free has no payload/],
      ['{"type":"Cash","value":"1"}', /\$\.by\.Cash: /],
      ['{"type":"Cash","value":1,"type":"Cash"}', /duplicate field "type"/],
      ['{"type":"Cash","value":1,"value":1}', /duplicate field "value"/],
      ['{"type":"Cash","value":1,"more":1}', /"more" is not one of/],
      ['{"value":1}', /missing field type/],
      ['{"type":1}', /a name in quotes/],
      ['{"type":"Cash","value":1]', /expected/],
      ['{"Cheque":1}', /"Cheque" is not one of Cash, Card/],
    ] as const) {
      const refusal = { code: "VARVE_MALFORMED_VALUE", message: why };
      throws(() => fromJson(Paid, `{"by":${by},"all":[]}`), refusal);
    }
    // A variant with that name keeps its old JSON form.
    const Named = struct("Named", { by: union({ type: str, Free: null }) });
    const named = Named.encode({ by: { type: "type", value: "Free" } });
    expect(fromJson(Named, '{"by":{"type":"Free"}}')).toStrictEqual(named);
  });

  test("unknown fields may be skipped, whatever they hold", () => {
    const schema = of({ n: { kind: "u8" } });
    for (const other of ["1", '"a\\"}"', "[[1],{}]", '{"n":{"n":[]}}', "null", "-1e5", '""']) {
      const json = `{"m":${other},"n":7,"o":${other}}`;
      expect(fromJson(schema, json, { ignoreUnknown: true })).toStrictEqual(Uint8Array.of(7));
      throws(() => fromJson(schema, json), { message: '$: unknown field "m"' });
    }
  });

  test("a refused text leaves no trace in the next one", () => {
    const schema = of({
      a: { kind: "fixedStr", length: 8 },
      b: { kind: "vec", of: { kind: "option", of: { kind: "u64" } } },
      c: { kind: "str" },
    });
    const good = `{"a":"x","b":[${"null,".repeat(199)}null],"c":"y"}`;
    const before = fromJson(schema, good);
    refused(schema.kind, `{"a":"12345678","b":[${"18446744073709551615,".repeat(140)}x`);
    expect(fromJson(schema, good)).toStrictEqual(before);
    refused(schema.kind, `{"c":"${"long ".repeat(1000)}`);
    expect(fromJson(schema, good)).toStrictEqual(before);
    refused(schema.kind, `{"a":"${"longer ".repeat(500)}"}`);
    expect(fromJson(schema, good)).toStrictEqual(before);
  });
});
