/**
 * JSON compared with that of Rust: the texts in `json.json` are those of crate/tests/schema/json.rs, which reads those in
 * `json-typescript.json`. `UPDATE_VECTORS=1 npx vitest run vectors/json` writes the latter.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fromJson, inJson, toJson } from "varve/json";
import {
  added,
  array,
  bool,
  enum8,
  flatten,
  option,
  type Schema,
  str,
  struct,
  timestamp,
  u8,
  u16,
  u32,
  union,
  vec,
  versioned,
} from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { hex, unhex, vectors } from "../struct/vectors.js";
import { context } from "../support/context.js";
import { throws } from "../support/errors.js";
import { random } from "../support/values.js";

const Card = inJson(struct("Card", { number: str, max_amount: u16 }), {
  fields: { max_amount: { rename: "limit", default: 500 } },
});
const Percent = struct("Percent", { value: u8, of: str });
const State = inJson(enum8("InStock", "SoldOut"), { renameAll: "kebab-case" });
const Inside = inJson(union({ GiftCard: Card, Percent, NoCharge: null }), {
  tag: "type",
  renameAll: "camelCase",
});
const Beside = inJson(union({ Cash: u32, Card, Tip: option(u8), Free: null }), {
  tag: "t",
  content: "c",
});
const Outside = inJson(union({ CashOnly: u32, Free: null }), { renameAll: "SCREAMING_SNAKE_CASE" });
const Page = inJson(struct("Page", { first_row: u32, http_status2: u8 }), {
  renameAll: "PascalCase",
});
const Order = inJson(
  struct("Order", {
    order_id: u32,
    state: State,
    inside: Inside,
    beside: Beside,
    outside: Outside,
    all: vec(Inside),
    pair: array(Beside, 2),
    maybe: option(Inside),
    page: flatten(Page),
    note: str,
    tags: vec(u16),
    is_open: bool,
    changed_at: timestamp,
    internal_count: u32,
    internal_note: str,
  }),
  {
    renameAll: "camelCase",
    fields: {
      note: { rename: "noteText", alias: ["note text", "text"], default: "" },
      tags: { default: [] },
      is_open: { default: true },
      internal_count: { skip: true, default: 7 },
      internal_note: { skip: true, default: "" },
    },
  },
);
const Grown = inJson(
  versioned("Grown", {
    unitPrice: u16,
    addedLater: added(u32, 5),
    moreText: added(str, ""),
    isSkipped: added(u8, 9),
  }),
  { renameAll: "snake_case", fields: { isSkipped: { skip: true } } },
);
type Any = Pick<Schema<unknown>, "kind">;
const FORMS: Record<string, Any> = { Order, Grown };

/**
 * What Rust can express of a schema: lists of u8 are bytes there, and only fields can be marked as times or safe integers, not
 * items. In JSON they differ.
 */
function asInRust(_: string, value: unknown): unknown {
  const { kind, of, length } = Object(value) as {
    kind?: string;
    of?: { kind: string };
    length?: number;
  };
  if (of?.kind === "u8" && kind === "vec") return { kind: "blob" };
  if (of?.kind === "u8" && kind === "array") return { kind: "bytes", length };
  const plain = of && { timestamp: "i64", u53: "u64" }[of.kind];
  return plain ? { kind, of: { kind: plain }, length } : value;
}

function schemaFor(name: string): Any {
  const plain = vectors.find((vector) => vector.name === name)?.schema;
  return FORMS[name] ?? { kind: JSON.parse(JSON.stringify(plain, asInRust)) };
}

type Case = readonly [
  kind: "read" | "refused" | "lenient",
  name: string,
  text: string,
  ...result: string[],
];

function pathOf(name: string): string {
  return join(context().root, "tests/vectors", name);
}

const REST =
  '"state":"sold-out","inside":{"type":"noCharge"},"beside":{"t":"Free"},"outside":"FREE","all":[],' +
  '"pair":[{"t":"Free"},{"t":"Free"}],"FirstRow":1,"HttpStatus2":2,"changedAt":0';
const order = (fields: string, rest = REST) => `{${fields}${fields && ","}${rest}}`;
const inside = (json: string) => REST.replace('"inside":{"type":"noCharge"}', `"inside":${json}`);
const beside = (json: string) => REST.replace('"beside":{"t":"Free"}', `"beside":${json}`);

/** Texts that have to be read in the same way. */
function readable(): [string, string][] {
  const orders = [
    order('"orderId":1'),
    order('"order_id":1,"text":"\\u017e \\ud83d\\ude00","tags":[1,2],"isOpen":false'),
    order('"note text":" / \\/ ","orderId":1e2'),
    order('"orderId":1', inside('{"limit":9,"type":"giftCard","number":"1"}')),
    order('"orderId":1', inside('{"number":"1","typ\\u0065":"giftCard"}')),
    order('"orderId":1', inside('{"type":"percent","value":5,"of":"all"}')),
    order('"orderId":1', inside('{"type":"GiftCard","value":{"number":"1","max_amount":2}}')),
    order('"orderId":1', inside('{"type":"Percent","value":{"of":"x","value":2}}')),
    order('"orderId":1', inside('{"type":"NoCharge"}')),
    order('"orderId":1', beside('{"c":{"number":"1"},"t":"Card"}')),
    order('"orderId":1', beside('{"t":"Tip"}')),
    order('"orderId":1', beside('{"type":"Cash","value":7}')),
    order('"orderId":1', beside('{"value":{"number":"a"},"type":"Card"}')),
    order('"orderId":1', REST.replace('"outside":"FREE"', '"outside":{"CashOnly":4}')),
    order(
      '"orderId":1',
      REST.replace('"outside":"FREE"', '"outside":{"type":"CASH_ONLY","value":4}'),
    ),
    ...[
      "2026-11-21T20:00:00.123Z",
      "1969-12-31T23:59:59+01:00",
      "2024-02-29T23:59Z",
      "2000-02-29T24:00:00.000Z",
      "+275760-09-13T00:00:00.000Z",
      "-271821-04-20T00:00:00.000Z",
      "0001-01-01T00:00:00.9999-23:59",
    ].map((time) => order('"orderId":1', REST.replace('"changedAt":0', `"changedAt":"${time}"`))),
  ];
  const grown = [
    '{"unit_price":1}',
    '{"moreText":"a","unitPrice":2}',
    '{"added_later":3,"unit_price":4}',
  ];
  return [
    ...orders.map((text): [string, string] => ["Order", text]),
    ...grown.map((text): [string, string] => ["Grown", text]),
    ...numbers().map((text): [string, string] => ["Numbers", text]),
  ];
}

/** Numbers of all sizes, in the notations of JavaScript and others. */
function numbers(): string[] {
  const next = random(36);
  const bits = new DataView(new ArrayBuffer(8));
  const float = () => {
    bits.setUint32(0, next(2 ** 32));
    bits.setUint32(4, next(2 ** 32));
    const value = bits.getFloat64(0);
    return Number.isFinite(value) ? value : 0;
  };
  const text = (k: string, m: string) =>
    `{"a":0,"b":1e2,"c":-1.0,"d":0,"e":true,"f":"18446744073709551615","g":-5E+1,"h":0,"i":1,` +
    `"j":-9223372036854775808,"k":${k},"l":false,"m":${m},"n":false}`;
  const texts = Array.from({ length: 100 }, (_, i) => {
    const whole = (next(2_000_001) - 1_000_000) / 10 ** next(10);
    const long = `${next(10 ** 9)}${next(10 ** 9)}.${next(10 ** 9)}e${next(40) - 20}`;
    return text(
      String(Math.fround(whole)),
      i % 3 === 0 ? String(float()) : i % 3 === 1 ? String(whole) : long,
    );
  });
  for (const one of [
    "1e21",
    "1e20",
    "123456789012345680000",
    "0.000001",
    "1e-7",
    "5e-324",
    "-0",
    "1.7976931348623157e308",
  ]) {
    texts.push(text("0.1", one), text("-1.5", `-${one}`.replace("--", "")));
  }
  texts.push(text('"NaN"', '"-Infinity"'), text("3.4028235e38", '"Infinity"'));
  return texts;
}

const REFUSED: [string, string][] = [
  ...[
    "",
    "{",
    "[]",
    order(""),
    order('"orderId":-1'),
    order('"orderId":01'),
    order('"orderId":1.5'),
    order('"orderId":1,"internal_count":7'),
    order('"orderId":1,"internalNote":""'),
    order('"orderId":1,"order_id":1'),
    order('"orderId":1,"text":"a","noteText":"b"'),
    order('"orderId":1,"note":"\\ud800"'),
    order('"orderId":1,"text":"\\x"'),
    order('"orderId":1,"text":"a'),
    order('"orderId":1,"tags":[1,2,65536]'),
    order('"orderId":1,"tags":null'),
    order('"orderId":1,"isOpen":1'),
    `${order('"orderId":1')} 1`,
    order('"orderId":1', inside('{"type":"GiftCards"}')),
    order('"orderId":1', inside('{"type":5}')),
    order('"orderId":1', inside('{"limit":-1,"type":"giftCard"}')),
    order('"orderId":1', inside('{"type":"giftCard"}')),
    order('"orderId":1', inside('{"type":"noCharge","type":"noCharge"}')),
    order('"orderId":1', inside('{"number":"1"}')),
    order('"orderId":1', inside("{}")),
    order('"orderId":1', inside('"noCharge"')),
    order('"orderId":1', beside('{"t":"Card"}')),
    order('"orderId":1', beside('{"t":"Cash","c":-1}')),
    order('"orderId":1', beside('{"t":"Free","c":null}')),
    order('"orderId":1', beside('{"c":1}')),
    order('"orderId":1', beside('{"type":"Cash"}')),
    order('"orderId":1', beside('{"type":"Card","value":{"limit":"1"}}')),
    order('"orderId":1', REST.replace('"outside":"FREE"', '"outside":{"CASH_ONLY":-1}')),
    order('"orderId":1', REST.replace('"outside":"FREE"', '"outside":"CASH_ONLY"')),
    order('"orderId":1', REST.replace('"outside":"FREE"', '"outside":{"Free":1}')),
    order('"orderId":1', REST.replace('"pair":[{"t":"Free"}', '"pair":[{"t":"Fee"}')),
    order('"orderId":1', REST.replace('"pair":[{"t":"Free"},', '"pair":[')),
    order('"orderId":1', REST.replace('"changedAt":0', '"changedAt":"2026-02-29T20:00:00Z"')),
    order('"orderId":1', REST.replace('"changedAt":0', '"changedAt":"2026-13-01T20:00:00Z"')),
    order('"orderId":1', REST.replace('"changedAt":0', '"changedAt":8640000000000001')),
  ].map((text): [string, string] => ["Order", text]),
  ["Grown", "{}"],
  ["Grown", '{"unit_price":1,"is_skipped":1}'],
];

const LENIENT: [string, string][] = [
  ["Order", order('"orderId":1,"internalCount":8,"more":[{"a":"]}"}]')],
  [
    "Order",
    order('"orderId":1', inside('{"more":{"type":"percent"},"number":"","type":"giftCard"}')),
  ],
  ["Order", order('"orderId":1', inside('{"type":"noCharge","value":1}'))],
  ["Grown", '{"unit_price":1,"is_skipped":1,"isSkipped":2}'],
];

/** All cases with what is made of them here. */
function cases(): Case[] {
  const read = (kind: "read" | "lenient", [name, text]: [string, string]): Case => {
    const schema = schemaFor(name);
    const bytes = fromJson(schema, text, { ignoreUnknown: kind === "lenient" });
    return [kind, name, text, hex(bytes), toJson(schema, bytes)];
  };
  return [
    ...readable().map((one) => read("read", one)),
    ...REFUSED.map(([name, text]): Case => {
      const error = throws(() => fromJson(schemaFor(name), text), {
        code: "VARVE_MALFORMED_VALUE",
      });
      return ["refused", name, text, error.message];
    }),
    ...LENIENT.map((one) => read("lenient", one)),
  ];
}

describe("JSON in Rust and in TypeScript", () => {
  test("the JSON of Rust is byte for byte what is made here, and gives the same bytes", () => {
    const texts = JSON.parse(readFileSync(pathOf("json.json"), "utf8")) as [
      string,
      string,
      string,
    ][];
    for (const [name, digits, text] of texts) {
      const schema = schemaFor(name);
      expect(toJson(schema, unhex(digits)), name).toBe(text);
      expect(toJson(schema, fromJson(schema, text)), name).toBe(text);
      // A value of an earlier version becomes one of this version.
      if (digits.length > 8) expect(hex(fromJson(schema, text)), name).toBe(digits);
    }
    for (const name of ["Order", "Grown", "Numbers"]) {
      assert(
        texts.some(([one]) => one === name),
        `${name} is among them`,
      );
    }
  });

  test("what Rust reads and refuses is what is read and refused here, with the same reasons", () => {
    const made = `[\n${cases()
      .map((one) => JSON.stringify(one))
      .join(",\n")}\n]\n`;
    const path = pathOf("json-typescript.json");
    if (process.env.UPDATE_VECTORS !== undefined) writeFileSync(path, made);
    expect(readFileSync(path, "utf8")).toBe(made);
  });
});
