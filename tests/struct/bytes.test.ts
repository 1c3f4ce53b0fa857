import { flatten, str, struct, u8, u16, u32 } from "varve/struct";
import { describe, expect, test } from "vitest";

function hex(bytes: Uint8Array): string {
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const Product = struct("Product", { stock: u16, name: str });

describe("bytes of a schema", () => {
  test("the product has the thirty bytes that Rust writes", () => {
    const bytes = Product.encode({ stock: 20_001, name: "Yeezy Boost 350 V2" });
    const name = "5965657a7920426f6f737420333530205632";
    expect(hex(bytes)).toBe(`214e00000c00000012000000${name}`);
    expect(Product.view(bytes).snapshot()).toStrictEqual({
      stock: 20_001,
      name: "Yeezy Boost 350 V2",
    });
  });

  test("a flattened struct is where Rust has it", () => {
    const Page = struct("Page", { offset: u32, limit: u8 });
    const Paged = struct("Paged", { head: u8, params: flatten(Page), tail: u8 });
    const bytes = Paged.encode({ head: 1, offset: 2, limit: 3, tail: 4 });
    expect(hex(bytes)).toBe("01000000020000000300000004000000");
    expect(Paged.view(bytes).tail).toBe(4);
    expect(Paged.view(bytes).limit).toBe(3);
  });
});
