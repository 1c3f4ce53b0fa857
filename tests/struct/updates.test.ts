import { codecOf } from "varve/codec";
import { i64, struct, timestamp, u8, u32, union, type Writable } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { memoryOf, Order, order, written } from "./order.js";

/** Runs a callback in an update of the order, and returns the resulting value. */
function updated(change: (view: Writable<typeof Order>) => void) {
  const bytes = Order.encode(order);
  const memory = memoryOf(bytes);
  const view = codecOf(Order).writable(memory, 64, bytes.length);
  change(view);
  const resized = codecOf(Order).finish(view);
  codecOf(Order).revoke(view);
  const end = memory.u8.subarray(64 + bytes.length);
  assert(
    memory.u8.subarray(0, 64).every((byte) => byte === 0xee) && end.every((byte) => byte === 0xee),
    "nothing beside the value was written to",
  );
  const result = resized ?? written(memory, bytes.length);
  Order.check(result);
  const value = Order.view(result).snapshot();
  expect(result, "an update leaves what storing the value would").toStrictEqual(
    Order.encode(value),
  );
  return { value, inPlace: resized === undefined };
}

function boxOf({ by }: Writable<typeof Order>): { width: number } {
  if (by.type !== "Box") throw new Error(by.type);
  return by.value;
}

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
