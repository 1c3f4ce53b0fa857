/** JSON forms that a program declares: the bytes stay the same. */

import { codecOf } from "varve/codec";
import { fromJson, inJson, MalformedValueError, toJson } from "varve/json";
import {
  added,
  array,
  enum8,
  f64,
  flatten,
  option,
  optNonZero,
  type Schema,
  str,
  struct,
  u8,
  u16,
  u32,
  union,
  vec,
  versioned,
} from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";
import { throws } from "../support/errors.js";
import { random } from "../support/values.js";
import { formedStruct, spelledSlowly } from "./forms.js";
import { randomFields, randomStruct } from "./random.js";
import { encode } from "./reference-codec.js";

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

describe("struct: JSON names of fields", () => {
  const Size = struct("Size", { maxWidth: u16, max_height: u16 });
  const Product = struct("Product", {
    productName: str,
    inStock: u32,
    size: inJson(Size, { renameAll: "kebab-case" }),
    list: vec(u8),
    internalNote: str,
  });
  const Formed = inJson(Product, {
    renameAll: "snake_case",
    fields: {
      inStock: { rename: "stock", alias: ["count", "quantity"], default: 5 },
      internalNote: { skip: true, default: "none" },
      list: { default: [1, 2, 3], alias: "items" },
    },
  });
  const value = {
    productName: "Yeezy",
    inStock: 7,
    internalNote: "none",
    size: { maxWidth: 1, max_height: 2 },
    list: [9],
  };
  const bytes = Product.encode(value);

  test("fields are called in JSON as the form says, and in one of the five spellings", () => {
    expect(written(Formed, bytes)).toBe(
      '{"product_name":"Yeezy","stock":7,"size":{"max-width":1,"max-height":2},"list":[9]}',
    );
    const Names = struct("Names", { aB: u8, HTTPStatus_code: u8, _id2x: u8, "é É": u8, $: u8 });
    const bytesOfNames = Names.encode({ aB: 1, HTTPStatus_code: 2, _id2x: 3, "é É": 4, $: 5 });
    for (const [renameAll, names] of [
      ["camelCase", ["aB", "httpStatusCode", "_id2x", "éÉ", "$"]],
      ["PascalCase", ["AB", "HttpStatusCode", "_Id2x", "éÉ", "$"]],
      ["snake_case", ["a_b", "http_status_code", "_id2x", "é_É", "$"]],
      ["kebab-case", ["a-b", "http-status-code", "_id2x", "é-É", "$"]],
      ["SCREAMING_SNAKE_CASE", ["A_B", "HTTP_STATUS_CODE", "_ID2X", "é_É", "$"]],
    ] as const) {
      const json = written(inJson(Names, { renameAll }), bytesOfNames);
      expect(Object.keys(JSON.parse(json))).toStrictEqual([...names]);
      for (const [i, own] of ["aB", "HTTPStatus_code", "_id2x", "é É", "$"].entries()) {
        expect(spelledSlowly(own, renameAll)).toBe(names[i]);
      }
    }
  });

  test("variants and names of enums have the spelling, too", () => {
    const Test = struct("Test", {
      state: inJson(enum8("inStock", "soldOut"), { renameAll: "kebab-case" }),
      by: inJson(union({ FreeGift: null, CashOnly: u8 }), { renameAll: "snake_case" }),
      to: inJson(union({ FreeGift: null, BigCard: Card }), { renameAll: "camelCase", tag: "type" }),
    });
    const json = (by: "FreeGift" | "CashOnly") =>
      written(
        Test,
        Test.encode({
          state: "soldOut",
          by: by === "FreeGift" ? { type: by } : { type: by, value: 1 },
          to: { type: "BigCard", value: { number: "1", limit: 2 } },
        }),
      );
    const to = '"to":{"type":"bigCard","number":"1","limit":2}';
    expect(json("FreeGift")).toBe(`{"state":"sold-out","by":"free_gift",${to}}`);
    expect(json("CashOnly")).toBe(`{"state":"sold-out","by":{"cash_only":1},${to}}`);
    expect(refused(Test, '{"state":"gone"')).toBe(
      '$.state: "gone" is not one of in-stock, sold-out',
    );
  });

  test("aliases and own names are read, each field once", () => {
    for (const name of ["stock", "count", "quantity", "inStock", "c\\u006funt"]) {
      const json = `{"productName":"Yeezy","${name}":7,"size":{"maxWidth":1,"max-height":2},"items":[9]}`;
      expect(fromJson(Formed, json)).toStrictEqual(bytes);
    }
    expect(refused(Formed, '{"stock":7,"count":7')).toBe("$: duplicate field stock");
    expect(refused(Formed, '{"in_stock":7')).toBe('$: unknown field "in_stock"');
    expect(refused(Formed, '{"size":{"maxWidth":-1}}')).toBe(
      "$.size.max-width: -1 is out of range for u16",
    );
    expect(refused(Formed, '{"count":-1}')).toBe("$.stock: -1 is out of range for u32");
  });

  test("a skipped field is neither written nor read, and has its default", () => {
    const other = Product.encode({ ...value, internalNote: "secret" });
    expect(JSON.parse(toJson(Formed, other))).toStrictEqual(JSON.parse(toJson(Formed, bytes)));
    expect(JSON.stringify(Formed.view(other)).includes("secret")).toBe(false);
    expect(Formed.view(fromJson(Formed, toJson(Formed, other))).internalNote).toBe("none");
    const json = toJson(Formed, bytes).slice(0, -1);
    for (const name of ["internalNote", "internal_note"]) {
      const given = `${json},"${name}":"mine"}`;
      expect(refused(Formed, given)).toBe(`$: unknown field "${name}"`);
      const read = fromJson(Formed, given, { ignoreUnknown: true });
      expect(Formed.view(read).internalNote).toBe("none");
    }
    const Rest = inJson(struct("Rest", { a: option(u8), b: optNonZero(u8), c: str, d: u8 }), {
      fields: { a: { skip: true }, b: { skip: true }, c: { skip: true, default: "longer" } },
    });
    const rest = fromJson(Rest, '{"d":1}');
    expect(rest).toStrictEqual(Rest.encode({ a: undefined, b: undefined, c: "longer", d: 1 }));
    expect(toJson(Rest, rest)).toBe('{"d":1}');
  });

  test("a missing field has its default, at any depth", () => {
    const json = '{"product_name":"Yeezy","size":{"max-width":1,"max-height":2}}';
    expect(Formed.view(fromJson(Formed, json)).snapshot()).toStrictEqual({
      ...value,
      inStock: 5,
      list: [1, 2, 3],
    });
    expect(refused(Formed, '{"size":{"max-width":1,"max-height":2}}')).toBe(
      "$: missing field product_name",
    );
    const Many = struct("Many", { all: vec(Formed), by: inJson(union({ Formed }), { tag: "t" }) });
    const read = fromJson(
      Many,
      `{"all":[${json},${json}],"by":${json.replace("{", '{"t":"Formed",')}}`,
    );
    const one = { ...value, inStock: 5, list: [1, 2, 3] };
    expect(Many.view(read).snapshot()).toStrictEqual({
      all: [one, one],
      by: { type: "Formed", value: one },
    });
    // A default is not what `null` means.
    expect(refused(Formed, '{"stock":null')).toBe(
      "$.stock: expected a number for u32 at byte 9, found n",
    );
    const Optional = inJson(struct("Optional", { a: option(u8) }), {
      fields: { a: { default: 3 } },
    });
    expect(Optional.view(fromJson(Optional, "{}")).a).toBe(3);
    expect(Optional.view(fromJson(Optional, '{"a":null}')).a).toBe(undefined);
  });

  test("flattened structs keep their form, which the struct around them can change", () => {
    const Outer = struct("Outer", {
      outerName: u8,
      size: flatten(inJson(Size, { renameAll: "camelCase" })),
    });
    const Changed = inJson(Outer, {
      renameAll: "kebab-case",
      fields: { max_height: { rename: "h" } },
    });
    const both = Outer.encode({ outerName: 1, maxWidth: 2, max_height: 3 });
    expect(written(Outer, both)).toBe('{"outerName":1,"maxWidth":2,"maxHeight":3}');
    expect(written(Changed, both)).toBe('{"outer-name":1,"maxWidth":2,"h":3}');
  });

  test("forms of versioned structs complete values of earlier versions", () => {
    const One = versioned("Row", { aB: u8, cD: u8 });
    const Two = inJson(
      versioned("Row", {
        aB: u8,
        cD: u8,
        eF: added(u16, 500),
        gH: added(str, "new"),
        iJ: added(u8, 6),
      }),
      {
        renameAll: "snake_case",
        fields: { cD: { skip: true, default: 9 }, gH: { skip: true }, iJ: { default: 8 } },
      },
    );
    const old = One.encode({ aB: 1, cD: 2 });
    expect(toJson(Two, old)).toBe('{"a_b":1,"e_f":500,"i_j":6}');
    expect(Two.view(fromJson(Two, '{"a_b":1}')).snapshot()).toStrictEqual({
      aB: 1,
      cD: 9,
      eF: 500,
      gH: "new",
      iJ: 8,
    });
  });

  test("a form that a struct cannot have throws where it is declared", () => {
    const declared = (type: unknown, form: unknown) => () =>
      (inJson as (...args: unknown[]) => unknown)(type, form);
    const Pair = struct("Pair", { a: u8, b: u8, aB: u8, a_b: u8 });
    const on = (form: object | number) => ({ fields: { a: form as object } });
    for (const [type, form, message] of [
      [Pair, { renameAll: "snake_case" }, /fields aB and a_b cannot both have the name "a_b"/],
      [Pair, on({ rename: "b" }), /fields a and b cannot both have the name "b"/],
      [Pair, on({ alias: "b" }), /fields a and b cannot both have the name "b"/],
      [Pair, { fields: { a: { rename: "c" }, b: { rename: "a" } } }, /a and b cannot both have/],
      [Pair, { fields: { a: { rename: "c" }, b: { alias: ["d", "c"] } } }, /name "c" in JSON/],
      [Pair, { fields: { c: {} } }, /Pair has no field c/],
      [Pair, { fields: 5 }, /fields must be an object/],
      [Pair, on(5), /Pair\.a must be an object/],
      [Pair, on({ renamed: "b" }), /Pair\.a has no option but rename, alias, skip, default/],
      [Pair, on({ rename: 5 }), /^Pair\.a: must be a string/],
      [Pair, on({ alias: ["x", 5] }), /^Pair\.a: must be a string/],
      [Pair, on({ skip: 1 }), /skip of Pair\.a must be true or false/],
      [Pair, on({ skip: true }), /Pair\.a needs a default to be skipped/],
      [Pair, on({ default: 256 }), /^Pair\.a: must be an integer from 0 to 255/],
      [Pair, { renameAll: "lowercase" }, /renameAll must be one of camelCase, snake_case/],
      [u8, { renameAll: "camelCase" }, /structs, unions and enums/],
      [plain, { fields: {} }, /Only a struct has fields/],
      [enum8("aB", "a_b"), { renameAll: "camelCase" }, /names aB and a_b cannot both/],
      [union({ aB: null, a_b: null }), { renameAll: "camelCase" }, /variants aB and a_b cannot/],
      [struct("One", { a: u8 }), on({ skip: true, default: 1 }), /a field that is not skipped/],
      [
        union({ A: inJson(struct("A", { a: u8 }), on({ alias: "t" })) }),
        { tag: "t" },
        /"t" is also a field of the variant A/,
      ],
    ] as const) {
      throws(declared(type, form), { code: "VARVE_BAD_ARGUMENT", message });
    }
  });

  test("random forms of random schemas", () => {
    const cases = context().thorough ? 3_000 : 500;
    let refusals = 0;
    for (let seed = 1; seed <= cases; seed++) {
      const next = random(seed);
      const kind = randomStruct(next);
      const bytes = encode(kind, randomFields(next, kind));
      try {
        const { type, to } = formedStruct(next, kind);
        const plainJson = JSON.parse(toJson({ kind }, bytes));
        const wanted = stringify(to(plainJson));
        let json: string;
        try {
          json = toJson(type, bytes);
        } catch (error) {
          // Only flattened structs can have names that are refused so late.
          assert(/cannot both have the name/.test(String(error)), String(error));
          refusals += 1;
          continue;
        }
        expect(stringify(JSON.parse(json))).toBe(wanted);
        expect(
          stringify(JSON.parse(JSON.stringify(type.view(bytes)))).replaceAll("-0.0", "0"),
        ).toBe(wanted.replaceAll("-0.0", "0"));
        const again = fromJson(type, json);
        expect(toJson({ kind }, again)).toBe(toJson({ kind }, bytes));
        // What comes last in the text is read as well, tags among the rest.
        const turned = fromJson(type, stringify(turn(to(plainJson))));
        expect(toJson(type, turned)).toBe(json);
        const snapshot = stringify(type.view(bytes).snapshot());
        expect(toJson(type, fromJson(type, snapshot))).toBe(json);
      } catch (error) {
        throw new Error(`seed ${seed}`, { cause: error });
      }
    }
    assert(refusals < cases / 20, `${refusals} refusals`);
  });
});

/** As JSON.stringify, with what JSON lacks as `toJson` writes it, and -0. */
function stringify(value: unknown): string {
  const text = JSON.stringify(value, (_, one: unknown) => {
    if (one instanceof Uint8Array) return btoa(String.fromCharCode(...one));
    if (typeof one === "bigint" || (typeof one === "number" && !Number.isFinite(one)))
      return `${one}`;
    return Object.is(one, -0) ? "minus zero" : one;
  });
  return text.replaceAll('"minus zero"', "-0.0");
}

/** The same JSON with the fields of every object in reverse order. */
function turn(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(turn);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).reverse();
  return Object.fromEntries(entries.map(([name, one]) => [name, turn(one)]));
}
