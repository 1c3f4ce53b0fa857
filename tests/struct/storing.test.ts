import { codecOf } from "varve/codec";
import { blob, str, struct, u16, vec } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { memoryOf, Order, order, written } from "./order.js";

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

  test("every byte of the value is written and none beside it, whatever the memory contained", () => {
    const size = codecOf(Order).size(order);
    const memory = memoryOf(new Uint8Array(size).fill(0xcc));
    codecOf(Order).write(memory, 64, order, size);
    expect(written(memory, size)).toStrictEqual(Order.encode(order));
    assert(memory.u8.subarray(64 + size).every((byte) => byte === 0xee));
  });
});
