/** Random schemas against the slow codec. Each case has its own seed, which a failure names. */

import { codecOf } from "varve/codec";
import { fromJson, toJson } from "varve/json";
import { MalformedValueError } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";
import { throws } from "../support/errors.js";
import { expectSameContents } from "../support/same-contents.js";
import { random } from "../support/values.js";
import { fingerprintOf, layoutOf, type StructKind } from "./kinds.js";
import { type AnySchema, oursOf, schemaOf, walk } from "./ours.js";
import { pick, randomFields, randomStruct, randomValue } from "./random.js";
import { decode, encode, type Fields, Malformed } from "./reference-codec.js";
import { hex } from "./vectors.js";

type Random = (below: number) => number;

interface Case {
  random: Random;
  kind: StructKind;
  schema: AnySchema;
  value: Fields;
  bytes: Uint8Array;
}

/** Runs this many cases, fewer where every runtime runs them, and reports which one failed. */
function each(cases: number, body: (one: Case) => void): void {
  const count = context().thorough ? cases : Math.ceil(cases / 4);
  for (let seed = 1; seed <= count; seed++) {
    const next = random(seed);
    const kind = randomStruct(next);
    const value = randomFields(next, kind);
    try {
      body({ random: next, kind, schema: schemaOf(kind), value, bytes: encode(kind, value) });
    } catch (error) {
      throw new Error(`seed ${seed}, ${layoutOf(kind)}`, { cause: error });
    }
  }
}

/** Bytes around a value, which must not be read or written. */
const AROUND = 64;

function surround(bytes: Uint8Array, filler: number): { all: Uint8Array; value: Uint8Array } {
  const all = new Uint8Array(bytes.length + 2 * AROUND).fill(filler);
  all.set(bytes, AROUND);
  return { all, value: all.subarray(AROUND, AROUND + bytes.length) };
}

function isUntouched(all: Uint8Array, filler: number): boolean {
  const outside = [...all.subarray(0, AROUND), ...all.subarray(all.length - AROUND)];
  return outside.every((byte) => byte === filler);
}

/** The result of a function, or its documented error. Any other error is thrown again. */
function outcome(act: () => unknown): { result: unknown } | { error: string } {
  try {
    return { result: act() };
  } catch (error) {
    if (error instanceof MalformedValueError) return { error: error.message };
    throw error;
  }
}

/** The code of the error that an assignment throws. */
function outcomeOf(assign: () => void): unknown {
  try {
    assign();
    return "assigned";
  } catch (error) {
    return (error as { code?: unknown }).code;
  }
}

/** The expected result for these bytes: the value, or nothing. */
function expected(kind: StructKind, bytes: Uint8Array): Fields | undefined {
  try {
    return decode(kind, bytes);
  } catch (error) {
    if (error instanceof Malformed) return undefined;
    throw error;
  }
}

/** Reads bytes by every function, at several addresses. All must agree on whether they are a value. */
function isRefusedAlike(kind: StructKind, schema: AnySchema, bytes: Uint8Array): boolean {
  const value = expected(kind, bytes);
  const readers: ((from: Uint8Array) => unknown)[] = [
    (from) => schema.check(from),
    (from) => schema.view(from).snapshot(),
    (from) => walk(kind, schema.view(from)),
    (from) => toJson(schema, from),
  ];
  for (const read of readers) {
    const [first, second] = [0x00, 0xff].map((filler) => {
      const { all, value: place } = surround(bytes, filler);
      const seen = outcome(() => read(place));
      assert(isUntouched(all, filler));
      expect(place).toStrictEqual(bytes);
      return seen;
    });
    expectSameContents(first, second);
    expectSameContents(
      outcome(() => read(bytes.slice())),
      first,
    );
    expect("error" in first!, "error" in first! ? first.error : "no error").toBe(
      value === undefined,
    );
  }
  if (value !== undefined) expectSameContents(schema.view(bytes).snapshot(), oursOf(kind, value));
  return value === undefined;
}

/** Breaks a value: changes bytes, moves a part, or cuts off the end. */
function broken(next: Random, bytes: Uint8Array): Uint8Array {
  const copy = bytes.slice();
  for (let times = 1 + next(3); times > 0; times--) {
    const at = next(copy.length);
    const kinds = [
      () => copy.fill(next(256), at, at + 1),
      () => copy.fill(pick(next, [0, 1, 2, 255]), at, at + 4),
      () => copy.fill(next(bytes.length + 4), at & ~3, (at & ~3) + 1),
    ];
    pick(next, kinds)();
  }
  return next(6) === 0 ? copy.subarray(0, next(copy.length)) : copy;
}

describe("struct: random schemas", () => {
  test("values are written and read as by the slow codec", () => {
    each(800, ({ kind, schema, value, bytes }) => {
      const ours = oursOf(kind, value) as Fields;
      expect(codecOf(schema).layout).toBe(layoutOf(kind));
      expect(codecOf(schema).fingerprint).toBe(fingerprintOf(layoutOf(kind)));
      expect(hex(schema.encode(ours))).toBe(hex(bytes));
      schema.check(bytes);
      const view = schema.view(bytes);
      expectSameContents(walk(kind, view), ours);
      expectSameContents(view.snapshot(), ours);
      expect(hex(schema.encode(view))).toBe(hex(bytes));
    });
  });

  test("values convert to JSON and back to the same bytes", () => {
    each(800, ({ kind, schema, bytes }) => {
      const json = toJson(schema, bytes);
      expect(hex(fromJson(schema, json)), json).toBe(hex(bytes));
      const turned = JSON.stringify(turn(JSON.parse(json.replaceAll(/([:[,])-0\b(?!\.)/g, "$10"))));
      const back = decode(kind, fromJson(schema, turned));
      expect(text(back)).toBe(text(decode(kind, bytes)));
    });
  });

  test("broken JSON is refused, or is JSON and read as a value", () => {
    let refused = 0;
    each(800, ({ random: next, schema, bytes }) => {
      const text = new TextEncoder().encode(toJson(schema, bytes));
      const bad = broken(next, text);
      const { all, value: place } = surround(bad, 0x22);
      const seen = outcome(() => fromJson(schema, place));
      expectSameContents(
        outcome(() => fromJson(schema, bad.slice())),
        seen,
      );
      assert(isUntouched(all, 0x22));
      if ("error" in seen) {
        refused += 1;
        return;
      }
      JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bad));
      schema.check(seen.result as Uint8Array);
    });
    assert(refused > 20);
  });

  test("broken bytes are refused or read, whatever surrounds them", () => {
    let refused = 0;
    each(1000, ({ random: next, kind, schema, bytes }) => {
      if (isRefusedAlike(kind, schema, broken(next, bytes))) refused += 1;
    });
    assert(refused > 20);
  });

  test("random bytes are refused or read, whatever surrounds them", () => {
    let refused = 0;
    let cases = 0;
    each(1000, ({ random: next, kind, schema, bytes }) => {
      // Small numbers are lengths and offsets that may lie within the value.
      const most = pick(next, [2, bytes.length + 1, 256]);
      const some = Uint8Array.from({ length: next(2 * bytes.length + 1) }, (_, at) =>
        at % 4 === 0 || most === 256 ? next(most) : 0,
      );
      cases += 1;
      if (isRefusedAlike(kind, schema, some)) refused += 1;
    });
    assert(refused > 20 && refused < cases, `${refused} of ${cases}`);
  });

  test("an update changes only what is assigned, in place or by encoding again", () => {
    each(800, ({ random: next, kind, schema, value, bytes }) => {
      const { all, value: place } = surround(bytes, 0x5a);
      const memory = { data: new DataView(all.buffer), u8: all, epoch: 1 };
      const codec = codecOf(schema);
      const view = codec.writable(memory, AROUND, bytes.length) as Record<string, unknown>;
      const changed = new Map(Object.entries(value));
      const plain = kind.fields.filter(([, of]) => of.kind !== "flatten");
      for (let times = next(4); times > 0 && plain.length > 0; times--) {
        const [field, of] = pick(next, plain);
        const assigned = randomValue(next, of);
        view[field] = oursOf(of, assigned);
        changed.set(field, assigned);
      }
      const after = Object.fromEntries(changed);
      const updated = codec.finish(view as never);
      codec.revoke(view as never);
      assert(isUntouched(all, 0x5a));
      if (updated !== undefined) expect(hex(updated)).toBe(hex(encode(kind, after)));
      expectSameContents(decode(kind, updated ?? place), after);
      throws(() => schema.encode(view as never), { code: "VARVE_STALE_VIEW" });
    });
  });

  test("a refused assignment leaves every byte as it was", () => {
    const wrongs = [
      -1,
      1.5,
      2 ** 60,
      "\ud800",
      "a\0",
      "x".repeat(99),
      null,
      {},
      [],
      [{}],
      5n,
      Symbol("s"),
    ];
    each(400, ({ schema, kind, bytes }) => {
      const { all, value: place } = surround(bytes, 0x5a);
      const memory = { data: new DataView(all.buffer), u8: all, epoch: 1 };
      const codec = codecOf(schema);
      const view = codec.writable(memory, AROUND, bytes.length) as Record<string, unknown>;
      for (const [field, of] of kind.fields) {
        if (of.kind === "flatten") continue;
        for (const wrong of wrongs) {
          const before = schema.encode(view as never);
          const was = outcomeOf(() => {
            view[field] = wrong;
          });
          if (was === "assigned") break;
          expect(hex(schema.encode(view as never)), `${field}: ${String(wrong)}`).toBe(hex(before));
          expect(was, `${field}: ${String(wrong)}`).toBe("VARVE_BAD_ARGUMENT");
        }
      }
      assert(isUntouched(all, 0x5a));
      expect(place.length).toBe(bytes.length);
    });
  });

  test("no name changes a prototype", () => {
    expect(Object.keys(Object.prototype).length).toBe(0);
    const own = Object.getOwnPropertyNames(Object.prototype).sort();
    each(100, ({ schema, bytes }) => {
      const copies = [
        schema.view(bytes).snapshot(),
        JSON.parse(JSON.stringify(schema.view(bytes))),
      ];
      for (const copy of copies) expect(Object.getPrototypeOf(copy)).toBe(Object.prototype);
      expect(Object.getOwnPropertyNames(Object.prototype).sort()).toStrictEqual(own);
    });
  });
});

/** The fields of every object in the opposite order. */
function turn(json: unknown): unknown {
  if (Array.isArray(json)) return json.map(turn);
  if (typeof json !== "object" || json === null) return json;
  const entries = Object.entries(json).reverse();
  return Object.fromEntries(entries.map(([name, one]) => [name, turn(one)]));
}

/** A value as text, in which -0 is 0. */
function text(value: unknown): string {
  return JSON.stringify(value, (_, one) => {
    if (typeof one === "bigint") return `${one}n`;
    return one instanceof Uint8Array ? [...one] : Number.isNaN(one) ? "NaN" : one;
  });
}
