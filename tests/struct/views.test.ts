import { blob, bool, eq, f32, option, str, struct, u8, u64, vec } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { Line, memoryOf, Order, order, Size } from "./order.js";

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
