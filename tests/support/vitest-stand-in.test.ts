/** The stand-in for Vitest gives the same verdicts as Vitest, which runs these tests. */

import { assert, describe, expect, onTestFinished, test } from "vitest";
import { inspect } from "./inspect.js";
import * as standIn from "./vitest-stand-in.js";

class Point {
  constructor(readonly x: number) {}
}

class Pixel extends Point {}

const shared = { a: 1 };
const symbol = Symbol("key");
const withHole = [1, 2, 3];
delete withHole[1];

const viewOf = (...values: number[]) => new Uint8Array([9, ...values, 9]).subarray(1, -1);
const dataViewOf = (...values: number[]) => new DataView(Uint8Array.from(values).buffer);
const bufferOf = (...values: number[]) => Uint8Array.from(values).buffer;
const errorLike = (name: string, message: string, more = {}) =>
  Object.assign(new Error(message), { name, ...more });

/** Groups of values of a kind. Within a group, each is compared with each. */
const GROUPS: Record<string, readonly unknown[]> = {
  numbers: [0, -0, 1, Number.NaN, Number.POSITIVE_INFINITY, 1n, "1", true, Object(1), null],
  texts: ["", "a", "A", "a\u0301", "á", Object("a"), ["a"], undefined],
  functions: [Point, Pixel, () => 1, () => 1, { call: 1 }],
  symbols: [symbol, Symbol("key"), { [symbol]: 1 }, { [symbol]: 2 }, {}],
  objects: [
    shared,
    { a: 1 },
    { a: 1, b: undefined },
    { b: undefined, a: 1 },
    { a: -0 },
    { a: 0 },
    { a: { b: { c: [1] } } },
    { a: { b: { c: [1, 2] } } },
    { __proto__: null, a: 1 },
    {},
  ],
  "instances of classes": [new Point(1), new Point(1), new Point(2), new Pixel(1), { x: 1 }],
  arrays: [
    [],
    [1, 2, 3],
    [1, 2],
    [1, undefined, 3],
    withHole,
    [undefined],
    new Array(1),
    ["1", "2", "3"],
    { 0: 1, 1: 2, 2: 3, length: 3 },
    Object.assign([1, 2, 3], { more: 1 }),
    [[1], [2]],
    [[1], [3]],
  ],
  bytes: [
    Uint8Array.of(1, 2, 3),
    viewOf(1, 2, 3),
    Uint8Array.of(1, 2),
    Uint8Array.of(1, 2, 4),
    Int8Array.of(1, 2, 3),
    Uint8ClampedArray.of(1, 2, 3),
    Uint16Array.of(1, 2, 3),
    Float64Array.of(1, 2, 3),
    new Uint8Array(0),
    dataViewOf(1, 2, 3),
    dataViewOf(1, 2, 4),
    bufferOf(1, 2, 3),
    bufferOf(1, 2),
    [1, 2, 3],
    { bytes: Uint8Array.of(1) },
    { bytes: Uint8Array.of(2) },
  ],
  "floating point arrays": [
    Float64Array.of(0),
    Float64Array.of(-0),
    Float64Array.of(Number.NaN),
    new Float64Array(BigUint64Array.of(0x7ff8_0000_0000_0001n).buffer),
    Float32Array.of(0),
    BigInt64Array.of(0n),
    BigUint64Array.of(0n),
  ],
  sets: [
    new Set(),
    new Set([1, 2]),
    new Set([2, 1]),
    new Set([1, 3]),
    new Set([{ a: 1 }]),
    new Set([{ a: 2 }]),
    new Set([[1, 2], "a"]),
    new Set(["a", [1, 2]]),
    new Map(),
    [1, 2],
  ],
  maps: [
    new Map([[1, "a"]]),
    new Map([[1, "b"]]),
    new Map([[2, "a"]]),
    new Map<unknown, unknown>([
      [1, "a"],
      [{ k: 1 }, { v: [1] }],
    ]),
    new Map<unknown, unknown>([
      [{ k: 1 }, { v: [1] }],
      [1, "a"],
    ]),
    new Map<unknown, unknown>([
      [{ k: 1 }, { v: [2] }],
      [1, "a"],
    ]),
    new Map([[1, undefined]]),
    new Map([[2, undefined]]),
  ],
  dates: [new Date(0), new Date(0), new Date(1), new Date(Number.NaN), new Date(Number.NaN), 0, {}],
  "regular expressions": [/a/, /a/, /a/g, /b/, "a"],
  errors: [
    new Error("a"),
    new Error("a"),
    new Error("b"),
    new TypeError("a"),
    errorLike("TypeError", "a"),
    errorLike("Error", "a", { code: "A" }),
    errorLike("Error", "a", { code: "B" }),
    new Error("a", { cause: 1 }),
    new Error("a", { cause: 2 }),
    new DOMException("a", "AbortError"),
    { name: "Error", message: "a" },
  ],
  "values within others": [
    [{ a: [new Map([["k", new Set([Uint8Array.of(1)])]])] }],
    [{ a: [new Map([["k", new Set([Uint8Array.of(1)])]])] }],
    [{ a: [new Map([["k", new Set([Uint8Array.of(2)])]])] }],
    [{ a: [new Map([["l", new Set([Uint8Array.of(1)])]])] }],
    { at: new Date(0), of: /a/ },
    { at: new Date(0), of: /a/ },
    { at: new Date(1), of: /a/ },
  ],
};

type Expect = (actual: unknown, message?: string) => Matchers & { not: Matchers };
interface Matchers {
  toBe(expected: unknown): void;
  toStrictEqual(expected: unknown): void;
}

const MATCHERS: Record<string, (expect: Expect, actual: unknown, expected: unknown) => void> = {
  toBe: (expect, actual, expected) => expect(actual).toBe(expected),
  "not.toBe": (expect, actual, expected) => expect(actual).not.toBe(expected),
  toStrictEqual: (expect, actual, expected) => expect(actual).toStrictEqual(expected),
  "not.toStrictEqual": (expect, actual, expected) => expect(actual).not.toStrictEqual(expected),
};

/** "passes", or the name of the error. */
function verdict(check: () => void): string {
  try {
    check();
    return "passes";
  } catch (error) {
    return (error as Error).name;
  }
}

describe("the matchers of the stand-in for Vitest", () => {
  for (const [group, values] of Object.entries(GROUPS)) {
    for (const [name, match] of Object.entries(MATCHERS)) {
      test(`${name} gives Vitest's verdict on ${group}`, () => {
        for (const [i, actual] of values.entries()) {
          for (const [j, expected] of values.entries()) {
            const ours = verdict(() => match(standIn.expect, actual, expected));
            const theirs = verdict(() => match(expect, actual, expected));
            expect(ours, `${i}, ${j}: ${inspect(actual)}, ${inspect(expected)}`).toBe(theirs);
          }
        }
      });
    }
  }
});

describe("assert of the stand-in for Vitest", () => {
  test("assert and assert.fail give Vitest's verdict, and say the message", () => {
    for (const value of [true, 1, "a", {}, false, 0, "", null, undefined, Number.NaN]) {
      const ours = verdict(() => standIn.assert(value));
      expect(ours, inspect(value)).toBe(verdict(() => assert(value)));
    }
    for (const { assert: check } of [standIn, { assert }]) {
      const asserted = messageOf(() => check(false, "the shop is closed"));
      expect(asserted).toBe("the shop is closed");
      const failed = messageOf(() => check.fail("the shop is open"));
      expect(failed).toBe("the shop is open");
    }
  });

  test("a matcher's error begins with the message given to expect", () => {
    for (const check of [standIn.expect, expect] as Expect[]) {
      const message = messageOf(() => check(1, "stock").toBe(2));
      expect(message?.slice(0, 16)).toBe("stock: expected ");
      const negated = messageOf(() => check([1], "stock").not.toStrictEqual([1]));
      expect(negated?.slice(0, 16)).toBe("stock: expected ");
    }
  });
});

function messageOf(check: () => void): string | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** What happens in a test, in order. Vitest and the stand-in run it. */
function eventful(
  events: string[],
  finished: (fn: () => void | Promise<void>) => void,
): () => Promise<void> {
  return async () => {
    finished(() => {
      events.push("first finisher");
    });
    finished(async () => {
      await Promise.resolve();
      events.push("second finisher");
    });
    await Promise.resolve();
    events.push("body");
  };
}

describe("the runner of the stand-in for Vitest", () => {
  const events: string[] = [];
  test("this test's finishers run after it", eventful(events, onTestFinished));

  test("finishers run after the body, last registered first, as in Vitest", async () => {
    const ours: string[] = [];
    standIn.test("order", eventful(ours, standIn.onTestFinished));
    expect((await standIn.run()).passed).toBe(1);
    expect(ours).toStrictEqual(["body", "second finisher", "first finisher"]);
    expect(ours).toStrictEqual(events);
  });

  test("finishers run after a failure too, and every failure is reported", async () => {
    const ran: string[] = [];
    standIn.describe("shop", () => {
      standIn.test("sale", () => {
        standIn.onTestFinished(() => ran.push("kept"));
        standIn.onTestFinished(() => Promise.reject(new Error("a finisher's")));
        throw new Error("the body's", { cause: new Error("its cause") });
      });
      standIn.test("next sale", () => ran.push("next"));
    });
    const { passed, failed, failures } = await standIn.run();
    expect([passed, failed]).toStrictEqual([1, 1]);
    expect(ran).toStrictEqual(["kept", "next"]);
    expect(failures.map(({ name }) => name)).toStrictEqual(["shop > sale"]);
    const message = failures[0]?.message ?? "";
    for (const part of ["the body's", "its cause", "a finisher's"]) {
      assert(message.includes(part), message);
    }
  });

  test("a test that does not end within its timeout fails, and the next one runs", async () => {
    standIn.test("hangs", { timeout: 1 }, () => new Promise(() => undefined));
    standIn.test("ends", async () => undefined);
    const { passed, failed, failures } = await standIn.run();
    expect([passed, failed]).toStrictEqual([1, 1]);
    assert(failures[0]?.message.includes("did not end within 1 ms"), failures[0]?.message);
  });

  test("a filter is a part of the name, which contains the suites' names", async () => {
    standIn.describe("shop", () => {
      standIn.describe("stock", () => {
        standIn.test("is sold", () => undefined);
        standIn.test("is kept", () => undefined);
      });
    });
    const { passed, failed, skipped } = await standIn.run({ filter: "stock > is k" });
    expect([passed, failed, skipped]).toStrictEqual([1, 0, 0]);
    expect((await standIn.run()).passed, "a run forgets what it has chosen from").toBe(0);
  });

  test("a second test of the same name is refused", async () => {
    standIn.test("twice", () => undefined);
    const message = messageOf(() => standIn.test("twice", () => undefined));
    expect(message).toBe("Two tests have the same name: twice");
    await standIn.run();
  });

  test("a suite that throws during its definition does not prefix later names", async () => {
    const message = messageOf(() =>
      standIn.describe("broken", () => {
        throw new Error("no storage");
      }),
    );
    expect(message).toBe("no storage");
    standIn.test("alone", () => {
      throw new Error("seen by its name");
    });
    expect((await standIn.run()).failures[0]?.name).toBe("alone");
  });

  test("onTestFinished is refused outside of a test", () => {
    const message = messageOf(() => standIn.onTestFinished(() => undefined));
    expect(message).toBe("onTestFinished was called outside of a test.");
  });
});
