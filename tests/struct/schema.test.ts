import { codecOf } from "varve/codec";
import {
  added,
  array,
  enum8,
  f32,
  fixedStr,
  flatten,
  i16,
  i64,
  str,
  struct,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
  vec,
  versioned,
} from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { memoryOf, Size, written } from "./order.js";

describe("numbers", () => {
  test("numbers outside of their range are refused, with field and value", () => {
    const Numbers = struct("Numbers", {
      a: u8,
      b: i16,
      c: u53,
      d: u64,
      e: i64,
      f: f32,
      g: timestamp,
    });
    const good = { a: 0, b: 0, c: 0, d: 0n, e: 0n, f: 0, g: 0 };
    const wrong: [object, string][] = [
      [{ a: 256 }, "a"],
      [{ a: "1" }, "a"],
      [{ a: 1n }, "a"],
      [{ a: Number.NaN }, "a"],
      [{ a: { valueOf: () => 1 } }, "a"],
      [{ a: undefined }, "a"],
      [{ b: -32_769 }, "b"],
      [{ c: 2 ** 53 }, "c"],
      [{ c: -1 }, "c"],
      [{ d: 2n ** 64n }, "d"],
      [{ d: 1 }, "d"],
      [{ e: -(2n ** 63n) - 1n }, "e"],
      [{ f: 1e39 }, "f"],
      [{ f: Symbol("f") }, "f"],
      [{ g: 8.64e15 + 1 }, "g"],
      [{ g: new Date(Number.NaN) }, "g"],
    ];
    for (const [part, field] of wrong) {
      throws(() => Numbers.encode({ ...good, ...part } as typeof good), {
        name: "TypeError",
        code: "VARVE_BAD_ARGUMENT",
        message: new RegExp(`^Numbers.${field}: `),
      });
    }
    const ends = {
      a: 255,
      b: -32_768,
      c: 2 ** 53 - 1,
      d: 2n ** 64n - 1n,
      e: -(2n ** 63n),
      f: -1 / 0,
    };
    const back = Numbers.view(Numbers.encode({ ...ends, g: new Date(-1) })).snapshot();
    expect(back).toStrictEqual({ ...ends, g: -1 });
  });

  test("floats keep negative zero and NaN", () => {
    const Floats = struct("Floats", { a: f32, b: f32 });
    const view = Floats.view(Floats.encode({ a: -0, b: Number.NaN }));
    assert(Object.is(view.a, -0) && Number.isNaN(view.b));
  });
});

describe("definitions of structs", () => {
  test("names that would hide one another are refused", () => {
    const twice = /is a duplicate/;
    throws(() => struct("A", { id: u8, size: flatten(struct("B", { id: u8 })) }), {
      message: twice,
    });
    for (const name of ["snapshot", "toJSON", "assign"]) {
      throws(() => struct("A", { [name]: u8 }), { message: /reserved by views/ });
    }
    throws(() => struct("A", { $v: u8 }), { code: "VARVE_BAD_ARGUMENT" });
    throws(() => struct("A", { b: u8, 0: u8 }), { message: /no numeric names/ });
    throws(() => struct("A", { __proto__: u8 } as object as { a: typeof u8 }), {
      message: /__proto__/,
    });
    throws(() => enum8("a", "a"), { code: "VARVE_BAD_ARGUMENT" });
    throws(() => enum8(["a", "b"] as unknown as "a"), {
      code: "VARVE_BAD_ARGUMENT",
      message: /string/,
    });
    for (const none of [{}, undefined, null, "u8", u8.kind, vec, Number]) {
      throws(() => struct("A", { a: none as typeof u8 }), {
        code: "VARVE_BAD_ARGUMENT",
        message: /^A\.a: Use a type of/,
      });
    }
    throws(() => struct("A", {}), { message: "A has no fields." });
    for (const none of [undefined, null, "bytes", new ArrayBuffer(8), [1, 2]]) {
      throws(() => Size.view(none as unknown as Uint8Array), {
        code: "VARVE_BAD_ARGUMENT",
        message: /^Size needs a Uint8Array/,
      });
      throws(() => Size.check(none as unknown as Uint8Array), { code: "VARVE_BAD_ARGUMENT" });
    }
    throws(() => fixedStr(0), { code: "VARVE_BAD_ARGUMENT" });
    throws(() => array(u8, 1.5), { code: "VARVE_BAD_ARGUMENT" });
  });

  test("a versioned struct is always a whole value, and its added fields are last", () => {
    const New = versioned("New", { a: u8, b: added(u8, 1 - 1) });
    throws(() => vec(New), { message: /cannot contain a versioned one/ });
    throws(() => struct("A", { a: added(u8, 0) }), { message: /needs versioned/ });
    throws(() => versioned("A", { a: added(u8, 0), b: u8 }), { message: /must be added\(\)/ });
    // In an earlier version this byte was padding, which was written as zero.
    throws(() => versioned("A", { a: u8, b: added(u8, 1) }), { message: /padding/ });
  });
});

describe("versioned structs", () => {
  const First = versioned("Product", { stock: u16, name: str });
  const Second = versioned("Product", {
    stock: u16,
    name: str,
    price: added(u32, 5),
    size: added(Size, { width: 1, height: 2 }),
    tags: added(vec(str), ["new"]),
  });
  const first = First.encode({ stock: 3, name: "shoe" });
  const defaults = { price: 5, size: { width: 1, height: 2 }, tags: ["new"] };

  test("values of an earlier version are read with defaults", () => {
    const view = Second.view(first);
    expect(view.snapshot()).toStrictEqual({ stock: 3, name: "shoe", ...defaults });
    expect([view.price, view.size.width, view.tags.at(0)]).toStrictEqual([5, 1, "new"]);
    Second.check(first);
    const all = Second.encode({ stock: 3, name: "shoe" });
    expect(Second.view(all).snapshot()).toStrictEqual(view.snapshot());
    expect(First.view(all).snapshot()).toStrictEqual({ stock: 3, name: "shoe" });
  });

  test("an update converts a value to the current version", () => {
    const memory = memoryOf(first);
    const view = codecOf(Second).writable(memory, 64, first.length);
    view.price += 1;
    view.size.width = 7;
    const resized = codecOf(Second).finish(view) ?? new Uint8Array();
    const size = { width: 7, height: 2 };
    expect(resized).toStrictEqual(
      Second.encode({ stock: 3, name: "shoe", ...defaults, price: 6, size }),
    );
    expect(written(memory, first.length)).toStrictEqual(first);
  });

  test("values of a later version are changed only in place", () => {
    const second = Second.encode({ stock: 3, name: "shoe", price: 9 });
    const memory = memoryOf(second);
    const view = codecOf(First).writable(memory, 64, second.length);
    view.stock = 4;
    view.name = "boot";
    throws(() => (view.name = "boots"), { message: /Product.name: .*newer version/ });
    expect(codecOf(First).finish(view)).toBe(undefined);
    const all = { stock: 4, name: "boot", ...defaults, price: 9 };
    expect(Second.view(written(memory, second.length)).snapshot()).toStrictEqual(all);
  });

  test("an impossible length of the fields is refused", () => {
    for (const reported of [0, 1, 11, 1000]) {
      const bytes = first.slice();
      new DataView(bytes.buffer).setUint16(0, reported, true);
      throws(() => Second.view(bytes), {
        code: "VARVE_MALFORMED_VALUE",
        message: /^Product: size: /,
      });
    }
  });
});

describe("codecOf", () => {
  test("codecOf refuses objects that only resemble a schema", () => {
    for (const given of [
      5,
      null,
      {},
      { kind: undefined },
      { kind: 1 },
      { kind: { kind: "struct" } },
    ]) {
      throws(() => codecOf(given as never), {
        code: "VARVE_BAD_ARGUMENT",
        message: /needs a codec/,
      });
    }
  });
});
