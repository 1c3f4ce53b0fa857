/** JSON forms that a program declares: the bytes stay the same. */

import { codecOf } from "varve/codec";
import { fromJson, inJson, MalformedValueError, toJson } from "varve/json";
import {
  array,
  f64,
  option,
  type Schema,
  str,
  struct,
  u8,
  u16,
  u32,
  union,
  vec,
} from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";

type AnySchema = Pick<Schema<unknown>, "kind" | "view">;

const Card = struct("Card", { number: str, limit: u16 });
const Place = struct("Place", { x: u8 });
const variants = { Card, Place, Free: null };
const plain = union(variants);
const beside = inJson(plain, { tag: "kind" });
const typed = inJson(plain, { tag: "type" });
const within = inJson(union({ ...variants, Cash: u32, Tip: option(u8) }), {
  tag: "t",
  content: "c",
});

const card = { type: "Card", value: { number: "12", limit: 500 } } as const;
const place = { type: "Place", value: { x: 7 } } as const;
const free = { type: "Free" } as const;

/** The JSON of a value, which has to be read back as the same bytes, also from what JSON.stringify makes of its view. */
function written(schema: AnySchema, bytes: Uint8Array): string {
  const text = toJson(schema, bytes);
  expect(fromJson(schema, text)).toStrictEqual(bytes);
  expect(JSON.stringify(schema.view(bytes))).toBe(text);
  return text;
}

function refused(schema: AnySchema, text: string): string {
  const error = throws(() => fromJson(schema, text)) as MalformedValueError;
  assert(error instanceof MalformedValueError, String(error));
  assert(error.message.startsWith(`${error.field}: `), error.message);
  return error.message;
}

describe("struct: JSON forms of unions", () => {
  test("a tag among the fields names the variant", () => {
    const Order = struct("Order", { n: u8, by: beside });
    const json = (by: typeof card | typeof place | typeof free) =>
      written(Order, Order.encode({ n: 1, by }));
    expect(json(card)).toBe('{"n":1,"by":{"kind":"Card","number":"12","limit":500}}');
    expect(json(place)).toBe('{"n":1,"by":{"kind":"Place","x":7}}');
    expect(json(free)).toBe('{"n":1,"by":{"kind":"Free"}}');
  });

  test("a tag beside the content names the variant", () => {
    const Order = struct("Order", { by: within });
    const json = (by: Parameters<typeof Order.encode>[0]["by"]) =>
      written(Order, Order.encode({ by }));
    expect(json(card)).toBe('{"by":{"t":"Card","c":{"number":"12","limit":500}}}');
    expect(json({ type: "Cash", value: 9 })).toBe('{"by":{"t":"Cash","c":9}}');
    expect(json({ type: "Tip", value: undefined })).toBe('{"by":{"t":"Tip","c":null}}');
    expect(json(free)).toBe('{"by":{"t":"Free"}}');
    expect(fromJson(Order, '{"by":{"t":"Tip"}}')).toStrictEqual(
      Order.encode({ by: { type: "Tip", value: undefined } }),
    );
  });

  test("the tag may come anywhere, also in unions within unions", () => {
    const Inner = struct("Inner", { a: str, by: beside, list: vec(beside) });
    const Outer = struct("Outer", { by: inJson(union({ Inner, Card }), { tag: "kind" }), n: u8 });
    const value = {
      by: { type: "Inner", value: { a: "{}", by: card, list: [place, card, free] } },
      n: 3,
    } as const;
    const first = fromJson(
      Outer,
      `{"by":{"kind":"Inner","a":"{}","by":{"kind":"Card","number":"12","limit":500},
        "list":[{"kind":"Place","x":7},{"kind":"Card","number":"12","limit":500},{"kind":"Free"}]},"n":3}`,
    );
    const last = fromJson(
      Outer,
      `{"by":{"a":"{}","by":{"number":"12","k\\u0069nd":"Card","limit":500},
        "list":[{"x":7,"kind":"Place"},{"number":"12","limit":500,"kind":"C\\u0061rd"},{"kind":"Free"}],"kind":"Inner"},"n":3}`,
    );
    expect(first).toStrictEqual(Outer.encode(value));
    expect(last).toStrictEqual(first);
    written(Outer, first);
  });

  test("the form changes neither the bytes nor the layout nor what is stored of it", () => {
    const make = (by: typeof plain) => struct("Order", { by });
    const one = codecOf(make(plain));
    for (const by of [beside, typed, inJson(plain, { tag: "t", content: "c" })]) {
      const other = codecOf(make(by));
      expect(other.fingerprint).toBe(one.fingerprint);
      expect(JSON.stringify(other.kind)).toBe(JSON.stringify(one.kind));
      const bytes = make(by).encode({ by: card });
      expect(bytes).toStrictEqual(make(plain).encode({ by: card }));
      expect(make(by).view(bytes).snapshot()).toStrictEqual({ by: card });
      // One value in two forms.
      expect(toJson(make(plain), bytes)).toBe('{"by":{"Card":{"number":"12","limit":500}}}');
    }
  });

  test("the JSON of a snapshot is read, whatever the tag is called", () => {
    const Row = struct("Row", { value: u8, type: str });
    const Deep = struct("Deep", { value: Place });
    const both = { Row, Place, Deep, Free: null };
    for (const form of [
      { tag: "kind" },
      { tag: "t", content: "type" },
      { tag: "type", content: "value" },
      { tag: "type", content: "data" },
      { tag: "kind", content: "value" },
    ]) {
      const Test = struct("Test", { by: inJson(union(both), form) });
      for (const by of [
        { type: "Row", value: { value: 1, type: "Free" } },
        { type: "Deep", value: { value: { x: 1 } } },
        place,
        free,
      ] as const) {
        const bytes = Test.encode({ by });
        expect(fromJson(Test, JSON.stringify(Test.view(bytes).snapshot()))).toStrictEqual(bytes);
        written(Test, bytes);
      }
    }
  });

  test("the JSON of a snapshot is read where the tag is called type, unless its value could be a field", () => {
    const Percent = struct("Percent", { value: u8, of: str });
    const Wrapped = struct("Wrapped", { value: Place });
    const Test = struct("Test", {
      by: inJson(union({ Card, Percent, Wrapped, Free: null }), { tag: "type" }),
    });
    for (const by of [card, { type: "Percent", value: { value: 5, of: "all" } }, free] as const) {
      const bytes = Test.encode({ by });
      expect(fromJson(Test, JSON.stringify(Test.view(bytes).snapshot()))).toStrictEqual(bytes);
      written(Test, bytes);
    }
    const bytes = Test.encode({ by: { type: "Wrapped", value: { value: { x: 1 } } } });
    expect(written(Test, bytes)).toBe('{"by":{"type":"Wrapped","value":{"x":1}}}');
    expect(fromJson(Test, '{"by":{"type":"Percent","value":5,"of":"all"}}')).toStrictEqual(
      fromJson(Test, '{"by":{"of":"all","value":5,"type":"Percent"}}'),
    );
  });

  test("an error names the field by its path in the JSON", () => {
    const Order = struct("Order", { by: beside, more: within });
    const more = '"more":{"t":"Free"}';
    expect(refused(Order, `{"by":{"kind":"Card","number":"","limit":65536},${more}}`)).toBe(
      "$.by.limit: 65536 is out of range for u16",
    );
    expect(refused(Order, `{"by":{"limit":-1,"number":"","kind":"Card"},${more}}`)).toBe(
      "$.by.limit: -1 is out of range for u16",
    );
    expect(refused(Order, `{"by":{"kind":"Cheque"},${more}}`)).toBe(
      '$.by.kind: "Cheque" is not one of Card, Place, Free',
    );
    expect(refused(Order, `{"by":{"kind":5},${more}}`)).toBe(
      "$.by.kind: expected a name in quotes at byte 14, found 5",
    );
    expect(refused(Order, `{"by":{"x":7},${more}}`)).toBe(
      "$.by: missing field kind, which names the variant",
    );
    expect(refused(Order, `{"by":{},${more}}`)).toBe(
      "$.by: missing field kind, which names the variant",
    );
    expect(refused(Order, `{"by":{"kind":"Card","kind":"Card"},${more}}`)).toBe(
      "$.by: duplicate field kind",
    );
    expect(refused(Order, `{"by":{"x":7,"kind":"Place","kind":"Card"},${more}}`)).toBe(
      "$.by: duplicate field kind",
    );
    expect(refused(Order, `{"by":{"kind":"Card","limit":1},${more}}`)).toBe(
      "$.by: missing field number",
    );
    expect(refused(Order, `{"by":{"kind":"Free","x":1},${more}}`)).toBe('$.by: unknown field "x"');
    expect(refused(Order, `{"by":"Free",${more}}`)).toBe('$.by: expected { at byte 6, found "');
    expect(refused(Order, `{"by":{"Place":{"x":1}},${more}}`)).toBe(
      "$.by: missing field kind, which names the variant",
    );
    const by = '"by":{"kind":"Free"}';
    expect(refused(Order, `{${by},"more":{"t":"Card","c":{"limit":"1","number":""}}}`)).toBe(
      '$.more.c.limit: expected a number for u16 at byte 54, found "',
    );
    expect(refused(Order, `{${by},"more":{"c":1,"t":"Card"}}`)).toBe(
      "$.more.c: expected { at byte 34, found 1",
    );
    expect(refused(Order, `{${by},"more":{"t":"Card"}}`)).toBe("$.more: missing field c");
    expect(refused(Order, `{${by},"more":{"t":"Free","c":null}}`)).toBe(
      '$.more: unknown field "c"',
    );
    for (const text of [
      "{",
      '{"kind"',
      '{"kind":',
      '{"kind":"Card"',
      '{"kind":"Card",',
      '{"x":1',
      "[",
      "",
    ]) {
      refused(Order, `{"by":${text}`);
    }
  });

  test("unknown fields are skipped when that is asked for, before and behind the tag", () => {
    const Order = struct("Order", { by: typed });
    for (const by of [
      '{"type":"Place","more":{"type":"Card"},"x":7}',
      '{"more":[{}],"x":7,"value":{"x":1},"type":"Place"}',
      '{"type":"Place","value":1,"x":7}',
    ]) {
      const bytes = fromJson(Order, `{"by":${by}}`, { ignoreUnknown: true });
      expect(bytes).toStrictEqual(Order.encode({ by: place }));
      refused(Order, `{"by":${by}}`);
    }
  });

  test("malformed bytes are refused in every form", () => {
    for (const by of [beside, within]) {
      const Order = struct("Order", { by });
      const bytes = Order.encode({ by: place });
      bytes[0] = 9;
      throws(() => toJson(Order, bytes), { message: /^Order\.by: discriminant: 9/ });
      throws(() => JSON.stringify(Order.view(bytes)), { message: /^Order\.by: discriminant: 9/ });
      const named = Order.encode({ by: card });
      named.fill(0xff, named.length - 2);
      throws(() => toJson(Order, named), { message: /^Order\.by\..*number: UTF-8/ });
    }
  });

  test("JSON.stringify of a view, a part of it or a list has the form", () => {
    const Inner = struct("Inner", { by: beside });
    const Outer = struct("Outer", {
      inner: Inner,
      list: vec(beside),
      two: array(Inner, 2),
      n: f64,
    });
    const view = Outer.view(
      Outer.encode({
        inner: { by: card },
        list: [place, free],
        two: [{ by: free }, { by: place }],
        n: 0.5,
      }),
    );
    const [a, b, c] = [
      '{"kind":"Card","number":"12","limit":500}',
      '{"kind":"Place","x":7}',
      '{"kind":"Free"}',
    ];
    expect(JSON.stringify(view.inner)).toBe(`{"by":${a}}`);
    expect(JSON.stringify(view.list)).toBe(`[${b},${c}]`);
    expect(JSON.stringify({ two: view.two })).toBe(`{"two":[{"by":${c}},{"by":${b}}]}`);
    expect(JSON.stringify(view)).toBe(
      `{"inner":{"by":${a}},"list":[${b},${c}],"two":[{"by":${c}},{"by":${b}}],"n":0.5}`,
    );
  });

  test("a form that a type cannot have throws where it is declared", () => {
    const declared = (type: unknown, form: unknown) => () =>
      (inJson as (...args: unknown[]) => unknown)(type, form);
    for (const [type, form, message] of [
      [plain, { tag: "x" }, /The tag "x" is also a field of the variant Place/],
      [
        union({ Cash: u32 }),
        { tag: "t" },
        /The variant Cash is not a struct.*give the union content/,
      ],
      [plain, { tag: "t", content: "t" }, /different names/],
      [plain, { content: "c" }, /needs a tag, too/],
      [plain, { tag: "value" }, /cannot be called "value"/],
      [plain, { tag: 5 }, /^tag: must be a string/],
      [plain, { tag: "\ud800" }, /^tag: has a lone surrogate/],
      [plain, { tags: "t" }, /no option but .*tag/],
      [plain, undefined, /must be an object/],
      [u8, { tag: "t" }, /Only a union can have a tag, not u8/],
      [Card, { tag: "t" }, /Only a union can have a tag, not struct/],
      [undefined, { tag: "t" }, /needs a type of varve\/struct/],
      [{ kind: { kind: "json" } }, { tag: "t" }, /needs a type of varve\/struct/],
    ] as const) {
      throws(declared(type, form), { code: "VARVE_BAD_ARGUMENT", message });
    }
    throws(() => (inJson as (...args: unknown[]) => unknown)(plain, { tag: "t" }, 1), {
      message: /inJson\(\) takes no more arguments/,
    });
  });
});
