import { codecOf } from "varve/codec";
import { toJson } from "varve/json";
import {
  added,
  array,
  blob,
  bool,
  bytes,
  enum8,
  eq,
  f32,
  fixedStr,
  flatten,
  i16,
  i64,
  type Memory,
  option,
  optNonZero,
  str,
  struct,
  timestamp,
  u8,
  u16,
  u32,
  u53,
  u64,
  union,
  vec,
  versioned,
  type Writable,
} from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";

/** The symbol by which Node gets the text of an object for its console. */
const INSPECT = Symbol.for("nodejs.util.inspect.custom");

const Lists = vec(vec(u8));

/** Bytes as a memory of a database. */
function lone(u8: Uint8Array): Memory {
  return { data: new DataView(u8.buffer, u8.byteOffset, u8.byteLength), u8, epoch: 0 };
}

const Size = struct("Size", { width: u16, height: u16 });
const Line = struct("Line", { title: str, count: u8 });
const Order = struct("Order", {
  id: u32,
  note: str,
  paid: bool,
  state: enum8("open", "sent"),
  size: Size,
  tags: vec(str),
  marks: vec(u16),
  grid: array(u8, 3),
  key: bytes(4),
  data: blob,
  code: fixedStr(6),
  gift: option(str),
  rank: optNonZero(u32),
  by: union({ Cash: u32, Card: str, Box: Size, Free: null }),
  lines: vec(Line),
});

const order = {
  id: 7,
  note: "first",
  paid: true,
  state: "sent",
  size: { width: 3, height: 4 },
  tags: ["a", "grün"],
  marks: [1, 2, 3],
  grid: [9, 8, 7],
  key: Uint8Array.of(1, 2, 3, 4),
  data: Uint8Array.of(5, 6),
  code: "abc",
  gift: "yes",
  rank: undefined,
  by: { type: "Card", value: "1234" },
  lines: [{ title: "one", count: 1 }],
} as const;

/** A memory like that of a database, with the value's bytes between others. */
function memoryOf(value: Uint8Array): Memory {
  const u8 = new Uint8Array(value.length + 128).fill(0xee);
  u8.set(value, 64);
  return { u8, data: new DataView(u8.buffer), epoch: 5 };
}

function written(memory: Memory, length: number): Uint8Array {
  return memory.u8.slice(64, 64 + length);
}

/** Runs a callback in an update of the order, and returns the resulting value. */
function updated(change: (view: Writable<typeof Order>) => void) {
  const bytes = Order.encode(order);
  const memory = memoryOf(bytes);
  const view = codecOf(Order).writable(memory, 64, bytes.length);
  change(view);
  const anew = codecOf(Order).finish(view);
  codecOf(Order).revoke(view);
  const end = memory.u8.subarray(64 + bytes.length);
  assert(
    memory.u8.subarray(0, 64).every((byte) => byte === 0xee) && end.every((byte) => byte === 0xee),
    "nothing beside the value was written to",
  );
  const result = anew ?? written(memory, bytes.length);
  Order.check(result);
  const value = Order.view(result).snapshot();
  expect(result, "an update leaves what storing the value would").toStrictEqual(
    Order.encode(value),
  );
  return { value, inPlace: anew === undefined };
}

function boxOf({ by }: Writable<typeof Order>): { width: number } {
  if (by.type !== "Box") throw new Error(by.type);
  return by.value;
}

describe("views for reading", () => {
  const view = Order.view(Order.encode(order));

  test("a view gives every field as it was stored", () => {
    expect(view.snapshot() as unknown).toStrictEqual(order);
    expect(view.id).toBe(7);
    expect(view.size.height).toBe(4);
    expect(view.tags.length).toBe(2);
    expect([...view.tags]).toStrictEqual(["a", "grün"]);
    expect([view.marks.at(0), view.marks.at(-1), view.marks.at(3)]).toStrictEqual([
      1,
      3,
      undefined,
    ]);
    expect(view.lines.at(0)?.title).toBe("one");
    expect(view.key.slice()).toStrictEqual(order.key);
    expect(view.by as unknown).toStrictEqual({ type: "Card", value: "1234" });
    expect(view.rank).toBe(undefined);
  });

  test("a view converts to JSON", () => {
    const Odd = struct("Odd", { big: u64, not: f32, none: option(u8), raw: blob });
    const value = {
      big: 2n ** 64n - 1n,
      not: Number.NaN,
      none: undefined,
      raw: Uint8Array.of(255),
    };
    expect(JSON.stringify(Odd.view(Odd.encode(value)))).toBe(
      '{"big":"18446744073709551615","not":"NaN","none":null,"raw":"/w=="}',
    );
    expect(JSON.stringify(view.by)).toBe('{"type":"Card","value":"1234"}');
    expect(JSON.parse(JSON.stringify(view)).by.Card).toBe("1234");
  });

  test("a view refuses every assignment, and says what to do", () => {
    const open = view as unknown as Record<string, unknown>;
    for (const name of Object.keys(order)) {
      throws(() => (open[name] = 1), {
        name: "TypeError",
        code: "VARVE_BAD_ARGUMENT",
        message: new RegExp(`^Order.${name} cannot be assigned.*updateIf`),
      });
    }
    throws(() => ((view.size as { width: number }).width = 1), { message: /Size.width.*updateIf/ });
    throws(() => (view.marks as unknown as { set(i: number, v: number): void }).set(0, 1), {
      message: /updateIf/,
    });
    expect(view.snapshot() as unknown).toStrictEqual(order);
  });

  test("a console shows a view's content, or an error if it cannot", () => {
    const inspect = Symbol.for("nodejs.util.inspect.custom");
    const shown = (of: object) => (of as { [inspect]: () => unknown })[inspect]();
    expect(shown(Size.view(Size.encode({ width: 1, height: 2 })))).toStrictEqual({
      width: 1,
      height: 2,
    });
    const Flag = struct("Flag", { on: bool });
    assert(shown(Flag.view(Uint8Array.of(2))) instanceof Error);
    expect(shown(Order.view(Order.encode(order)).tags)).toStrictEqual([...order.tags]);
  });

  test("a view ends with its memory's epoch, and every part of it", () => {
    const bytes = Order.encode(order);
    const memory = memoryOf(bytes);
    const whole = Order.view(memory, 64, bytes.length);
    const { size, tags } = whole;
    memory.epoch += 1;
    for (const use of [
      () => whole.id,
      () => whole.note,
      () => whole.size,
      () => whole.snapshot(),
      () => size.width,
      () => tags.at(0),
      () => [...tags],
      () => eq(whole, "note", "first"),
    ]) {
      throws(use, { code: "VARVE_STALE_VIEW" });
    }
    expect(Order.view(memory, 64, bytes.length).id).toBe(7);
  });

  test("bytes are copies, whatever kind of array they are read from", () => {
    class Shared extends Uint8Array {
      // As Node's Buffer has it.
      override slice(from?: number, to?: number) {
        return this.subarray(from, to) as Uint8Array<ArrayBuffer>;
      }
    }
    const bytes = new Shared(Order.encode(order));
    const { key } = Order.view(bytes).snapshot();
    bytes.fill(0);
    expect(key).toStrictEqual(order.key);
  });

  test("text and bytes are compared without decoding them", () => {
    assert(eq(view, "note", "first") && eq(view, "code", "abc"));
    assert(eq(view, "key", Uint8Array.of(1, 2, 3, 4)) && eq(view, "data", order.data));
    assert(!eq(view, "note", "firs") && !eq(view, "note", "first!") && !eq(view, "note", "fürst"));
    assert(!eq(view, "key", Uint8Array.of(1, 2, 3, 5)) && !eq(view, "code", "abcdef"));
    const Name = struct("Name", { name: str });
    const name = Name.view(Name.encode({ name: "日本 🙂" }));
    assert(eq(name, "name", "日本 🙂") && eq(name, "name", new TextEncoder().encode("日本 🙂")));
    assert(!eq(name, "name", "日本 🙃"));
  });

  test("a view may be stored again", () => {
    expect(Order.encode(view)).toStrictEqual(Order.encode(order));
    const Box = struct("Box", { size: Size, lines: vec(Line) });
    const box = Box.encode({ size: view.size, lines: view.lines });
    expect(Box.view(box).snapshot()).toStrictEqual({
      size: { width: 3, height: 4 },
      lines: [{ title: "one", count: 1 }],
    });
  });
});

describe("views in an update", () => {
  test("numbers, bools, enums and fixed parts are assigned in place", () => {
    const { value, inPlace } = updated((view) => {
      view.id -= 1;
      view.paid = false;
      view.state = "open";
      view.size.width = 30;
      view.grid.set(1, 80);
      view.key = Uint8Array.of(4, 3, 2, 1);
      view.code = "é";
      view.rank = 5;
      view.marks.set(2, 33);
      view.assign({
        size: { width: view.size.width, height: 40 },
        grid: [1, view.grid.at(1) ?? 0, 3],
      });
    });
    assert(inPlace);
    expect(value as unknown).toStrictEqual({
      ...order,
      id: 6,
      paid: false,
      state: "open",
      size: { width: 30, height: 40 },
      grid: [1, 80, 3],
      key: Uint8Array.of(4, 3, 2, 1),
      code: "é",
      rank: 5,
      marks: [1, 2, 33],
    });
  });

  test("parts of the same length are assigned in place", () => {
    const { value, inPlace } = updated((view) => {
      view.note = "other";
      view.data = Uint8Array.of(6, 5);
      view.gift = "hey";
      view.tags.set(0, "b");
      throws(() => ((view.tags as unknown as string[])[0] = "c"), { name: "TypeError" });
      view.assign({ marks: Uint16Array.of(4, 5, 6) });
    });
    assert(inPlace);
    expect(value as unknown).toStrictEqual({
      ...order,
      note: "other",
      data: Uint8Array.of(6, 5),
      gift: "hey",
      tags: ["b", "grün"],
      marks: [4, 5, 6],
    });
  });

  test("parts of another length may be assigned, and all views stay valid", () => {
    const { value, inPlace } = updated((view) => {
      const { size, tags, lines } = view;
      const line = lines.at(0);
      view.note = "a note that is longer";
      expect(view.note).toBe("a note that is longer");
      size.width = 31;
      tags.set(1, "a longer tag");
      if (line !== undefined) line.title = "the first line";
      view.assign({ marks: [], by: { type: "Box", value: { width: 1, height: 2 } } });
      if (view.by.type === "Box") view.by.value.height = 22;
      view.gift = undefined;
      view.data = new Uint8Array();
      view.id += 1;
      expect(line?.title).toBe("the first line");
    });
    assert(!inPlace);
    expect(value as unknown).toStrictEqual({
      ...order,
      id: 8,
      note: "a note that is longer",
      size: { width: 31, height: 4 },
      tags: ["a", "a longer tag"],
      lines: [{ title: "the first line", count: 1 }],
      marks: [],
      by: { type: "Box", value: { width: 1, height: 22 } },
      gift: undefined,
      data: new Uint8Array(),
    });
  });

  test("a refused value is named with its kind", () => {
    const One = struct("One", {
      a: u8,
      b: i64,
      at: timestamp,
      by: union({ Cash: u32, None: null }),
    });
    const one = { a: 1, b: 1n, at: 0, by: { type: "None" } };
    const given: [object, string][] = [
      [{ a: 1n }, "1n"],
      [{ a: "1" }, '"1"'],
      [{ a: [1] }, "Array"],
      [{ a: new Date(0) }, "Date"],
      [{ a: {} }, "Object"],
      [{ a: undefined }, "undefined"],
      [{ a: null }, "null"],
      [{ b: 1 }, "1"],
      [{ at: new Date(Number.NaN) }, "NaN"],
      [{ by: { type: "Card" } }, '"Card"'],
      [{ by: 7 }, "7"],
    ];
    for (const [field, shown] of given) {
      const { message } = throws(() => One.encode({ ...one, ...field } as never), {
        code: "VARVE_BAD_ARGUMENT",
      });
      assert(message.endsWith(` Given: ${shown}.`), message);
    }
  });

  test("a refused assignment keeps the old value", () => {
    const { value } = updated((view) => {
      const refused: [() => void, string][] = [
        [() => (view.id = -1), "Order.id"],
        [() => (view.id = 0.5), "Order.id"],
        [() => (view.note = "\ud800"), "Order.note"],
        [() => (view.code = "too long"), "Order.code"],
        [() => (view.code = "x\0"), "Order.code"],
        [() => (view.code = "xyzäöü"), "Order.code"],
        [() => (view.code = "x\ud800"), "Order.code"],
        [() => (view.key = new Uint8Array(5)), "Order.key"],
        [() => view.assign({ size: { width: 1, height: 70_000 } }), "Order.size.height"],
        [() => view.assign({ grid: [1, 2] }), "Order.grid"],
        [() => view.assign({ grid: [1, 2, 256] }), "Order.grid[2]"],
        [() => view.assign({ marks: [1, 2, 3, -4] }), "Order.marks[3]"],
        [() => view.assign({ lines: [{ title: "x", count: 999 }] }), "Order.lines[0].count"],
        [
          () => view.assign({ by: { type: "Box", value: { width: 1, height: -1 } } }),
          "Order.by.Box.height",
        ],
        [() => (view.rank = 0), "Order.rank"],
        [() => view.grid.set(1, 300), "[1]"],
        [() => view.grid.set(3, 3), "[3]"],
      ];
      for (const [act, field] of refused) {
        const error = throws(act, { name: "TypeError", code: "VARVE_BAD_ARGUMENT" });
        expect((error as Error & { field: string }).field).toBe(field);
        assert(error.message.startsWith(`${field}: `), error.message);
      }
      throws(() => view.assign({ nothing: 1 } as object), {
        message: /Order has no field nothing/,
      });
    });
    expect(value as unknown).toStrictEqual(order);
  });

  test("field names do not collide with internal names", () => {
    const { value } = updated((view) => {
      for (const name of ["$v", "$c", "__proto__", "snapshot", "constructor"]) {
        const fields = JSON.parse(`{"${name}":5}`);
        throws(() => view.assign(fields), { code: "VARVE_BAD_ARGUMENT", message: /has no field/ });
      }
    });
    expect(value as unknown).toStrictEqual(order);
  });

  test("views of a replaced variant end, and no others", () => {
    updated((view) => {
      const { size } = view;
      view.by = { type: "Cash", value: 5 };
      view.assign({ by: { type: "Box", value: { width: 1, height: 2 } } });
      const box = boxOf(view);
      box.width = 3;
      view.by = { type: "Card", value: "1234" };
      throws(() => (box.width = 0xffff), { code: "VARVE_STALE_VIEW" });
      size.width = 9;
      expect(view.size.width).toBe(9);
    });
  });

  test("an ended view stays ended, even if the value moves", () => {
    updated((view) => {
      view.assign({ by: { type: "Box", value: { width: 1, height: 2 } } });
      const box = boxOf(view);
      view.assign({ by: { type: "Box", value: { width: 3, height: 4 } } });
      view.note = "a note that is longer";
      throws(() => (box.width = 9), { code: "VARVE_STALE_VIEW" });
      expect(boxOf(view).width).toBe(3);
    });
  });

  test("an emptied option leaves no gap", () => {
    const { value, inPlace } = updated((view) => {
      view.gift = undefined;
      view.gift = undefined;
    });
    assert(!inPlace);
    expect(value as unknown).toStrictEqual({ ...order, gift: undefined });
  });

  test("revoking a view ends it and every view taken from it", () => {
    const bytes = Order.encode(order);
    const memory = memoryOf(bytes);
    const view = codecOf(Order).writable(memory, 64, bytes.length);
    const { size, tags } = view;
    const other = codecOf(Order).writable(memory, 64, bytes.length);
    codecOf(Order).revoke(view);
    for (const use of [
      () => view.id,
      () => (view.id = 1),
      () => view.snapshot(),
      () => (size.width = 1),
      () => tags.set(0, "c"),
    ]) {
      throws(use, { code: "VARVE_STALE_VIEW" });
    }
    other.id = 9;
    expect(Order.view(memory, 64, bytes.length).id).toBe(9);
  });
});

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
    const anew = codecOf(Second).finish(view) ?? new Uint8Array();
    const size = { width: 7, height: 2 };
    expect(anew).toStrictEqual(
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

describe("checks of bytes", () => {
  test("a check of overlapping lists ends", () => {
    const Deep = struct("Deep", { lists: vec(vec(vec(vec(u8)))) });
    const bytes = new Uint8Array(65_536);
    const data = new DataView(bytes.buffer);
    for (let at = 0; at < bytes.length; at += 8) data.setUint32(at + 4, bytes.length / 8, true);
    throws(() => Deep.check(bytes), {
      code: "VARVE_MALFORMED_VALUE",
      message: /overlap too often/,
    });
    expect(Deep.view(bytes).lists.length).toBe(bytes.length / 8);
  });

  test("a part shared by several fields is allowed", () => {
    const Names = struct("Names", { a: str, b: str });
    const bytes = Names.encode({ a: "shared", b: "" });
    bytes.copyWithin(8, 0, 8);
    Names.check(bytes);
    expect(Names.view(bytes).b).toBe("shared");
  });
});

/** A value whose lists all begin at its start and extend to its end, so that expanding it would never end. */
function overlapping(length: number, items: number): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(length);
  const data = new DataView(bytes.buffer);
  for (let at = 0; at < length; at += 8) data.setUint32(at + 4, items, true);
  return bytes;
}

describe("traversal of values with overlapping parts", () => {
  const refused = { code: "VARVE_MALFORMED_VALUE", message: /overlap too often/ };
  // Of options and variants: each item exists, and leads to all of them.
  const tagged = overlapping(8_192, 300);
  new DataView(tagged.buffer).setUint32(0, 24, true);
  for (let at = 24; at + 12 <= tagged.length; at += 12)
    tagged.set([1, 0, 0, 0, 24, 0, 0, 0, 44, 1, 0, 0], at);
  const Inner = struct("Inner", { texts: vec(str) });
  const kinds = {
    vecs: [struct("Deep", { lists: vec(vec(vec(u8))) }), overlapping(4_096, 512)],
    texts: [struct("Deep", { lists: vec(vec(str)) }), overlapping(4_096, 512)],
    blobs: [struct("Deep", { lists: vec(vec(blob)) }), overlapping(4_096, 512)],
    structs: [struct("Deep", { lists: vec(vec(Inner)) }), overlapping(4_096, 512)],
    arrays: [
      struct("Deep", { lists: vec(array(vec(array(u8, 8)), 2)) }),
      overlapping(65_536, 4_096),
    ],
    options: [struct("Deep", { lists: vec(option(vec(option(vec(u8))))) }), tagged],
    unions: [
      struct("Deep", {
        lists: vec(union({ None: null, Some: vec(union({ No: null, Of: vec(u8) })) })),
      }),
      tagged,
    ],
  } as const;

  for (const [name, [schema, bytes]] of Object.entries(kinds)) {
    const Deep = schema as unknown as ReturnType<typeof struct<{ lists: typeof Lists }>>;
    test(`every traversal is refused, but not reading a part: ${name}`, () => {
      const view = Deep.view(bytes);
      expect(view.lists.length).toBe(new DataView(bytes.buffer).getUint32(4, true));
      throws(() => view.snapshot(), refused);
      throws(() => JSON.stringify(view), refused);
      throws(() => view.lists.snapshot(), refused);
      throws(() => JSON.stringify({ view }), refused);
      throws(() => Deep.check(bytes), refused);
      throws(() => toJson(Deep, bytes), refused);
      throws(() => Deep.encode(view), refused);
      throws(() => Deep.encode({ lists: view.lists }), refused);
      // Console output.
      const shown = (view as unknown as { [key: symbol]: () => unknown })[INSPECT]?.();
      expect((shown as { code?: unknown }).code).toBe(refused.code);
    });

    test(`an update is refused and leaves the value as it was: ${name}`, () => {
      const codec = codecOf(Deep);
      const memory = lone(bytes.slice());
      const view = codec.writable(memory, 0, bytes.length) as unknown as { lists: unknown };
      throws(() => {
        view.lists = Deep.view(bytes).lists;
      }, refused);
      codec.revoke(view as never);
      expect(memory.u8).toStrictEqual(bytes);
    });
  }

  test("a refused traversal does not affect the next value", () => {
    const Deep = kinds.vecs[0];
    throws(() => Deep.view(kinds.vecs[1]).snapshot(), refused);
    const plain = {
      lists: Array.from({ length: 64 }, () => [Array.from({ length: 999 }, () => 1)]),
    };
    for (let i = 0; i < 100; i++)
      expect(Deep.view(Deep.encode(plain)).snapshot()).toStrictEqual(plain);
  });

  test("every value that can be encoded is allowed, of the largest size too", () => {
    const Bytes = struct("Bytes", { lists: vec(vec(u8)) });
    const list = new Uint8Array(1_000_000).fill(7);
    const bytes = Bytes.encode({ lists: [list, list, list] });
    Bytes.check(bytes);
    expect(Bytes.view(bytes).snapshot().lists.length).toBe(3);
    expect(toJson(Bytes, bytes).length).toBe(6_000_017);
    expect(Bytes.encode(Bytes.view(bytes))).toStrictEqual(bytes);
  });

  test("a text shared by all items is allowed", () => {
    const Texts = struct("Texts", { texts: vec(str) });
    const bytes = Texts.encode({
      texts: Array.from({ length: 1_000 }, (_, i) => (i ? "" : "x".repeat(400))),
    });
    for (let at = 16; at < 8 + 8_000; at += 8) bytes.copyWithin(at, 8, 16);
    expect(Texts.view(bytes).snapshot().texts[999]).toBe("x".repeat(400));
    Texts.check(bytes);
  });

  test("the traversal of the longest possible value ends", () => {
    const Wide = struct("Wide", { lists: vec(vec(u8)) });
    const bytes = overlapping(16_777_216, 65_536);
    throws(() => Wide.view(bytes).snapshot(), refused);
    throws(() => Wide.check(bytes), refused);
  });

  test("JSON with names longer than all values ends", () => {
    const long = "n".repeat(60_000);
    const Long = struct("Long", { items: vec(struct("Item", { [long]: u8 })) });
    const bytes = new Uint8Array(16_384);
    new DataView(bytes.buffer).setUint32(4, bytes.length, true);
    throws(() => toJson(Long, bytes), {
      code: "VARVE_MALFORMED_VALUE",
      message: /its JSON has more than/,
    });
    expect(toJson(Long, Long.encode({ items: [{ [long]: 1 }] })).length).toBe(60_000 + 18);
  });
});

describe("storing values", () => {
  test("each field is read once, so that a value cannot change while it is stored", () => {
    let asked = 0;
    const grows = {
      stock: 1,
      get name() {
        asked += 1;
        return "x".repeat(asked * 10);
      },
    };
    const Product = struct("Product", { stock: u16, name: str });
    const memory = memoryOf(new Uint8Array(64));
    const size = codecOf(Product).size(grows);
    codecOf(Product).write(memory, 64, grows, size);
    expect(Product.view(written(memory, size)).name).toBe("xxxxxxxxxx");
    expect(Product.view(Product.encode(grows)).name.length).toBe(20);
    // Another value than the one that was measured.
    throws(() => codecOf(Product).write(memory, 64, grows, size), { message: /must not change/ });
    expect(asked).toBe(3);
  });

  test("a getter may store another value meanwhile", () => {
    const Product = struct("Product", { stock: u16, name: str, about: str });
    const inner = { stock: 2, name: "another name", about: "and text" };
    const other: Uint8Array[] = [];
    const outer = {
      stock: 1,
      name: "the name",
      get about() {
        other.push(Product.encode(inner));
        return "the text";
      },
    };
    const memory = memoryOf(new Uint8Array(128));
    const size = codecOf(Product).size(outer);
    other.push(Product.encode(inner));
    codecOf(Product).write(memory, 64, outer, size);
    const plain = { stock: 1, name: "the name", about: "the text" };
    expect(Product.view(written(memory, size)).snapshot()).toStrictEqual(plain);
    for (const bytes of other) expect(Product.view(bytes).snapshot()).toStrictEqual(inner);
    expect(other.length).toBe(2);
  });

  test("parts may be larger than any before", () => {
    const Part = struct("Part", { data: blob, text: str, list: vec(str) });
    for (const length of [0, 1, 1_000, 1_100, 70_000, 300_000, 600_000, 5]) {
      const value = {
        data: new Uint8Array(length).fill(7),
        text: "ü".repeat(length),
        list: ["a".repeat(length), "日".repeat(length)],
      };
      const bytes = Part.encode(value);
      Part.check(bytes);
      expect(Part.view(bytes).snapshot()).toStrictEqual(value);
    }
  });

  test("every byte of the value is written and none beside it, whatever was there", () => {
    const size = codecOf(Order).size(order);
    const memory = memoryOf(new Uint8Array(size).fill(0xcc));
    codecOf(Order).write(memory, 64, order, size);
    expect(written(memory, size)).toStrictEqual(Order.encode(order));
    assert(memory.u8.subarray(64 + size).every((byte) => byte === 0xee));
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
