import { describe, expect, test } from "vitest";
import {
  encodeProduct,
  MAX_CYCLES,
  nameIs,
  nameOf,
  PRODUCT_NAME,
  productDrop,
  readProduct,
  stockOf,
} from "../../demo/drop.js";
import { rejects, throws } from "../support/errors.js";
import { bytes } from "../support/values.js";
import { everywhere, freshName, opened, reopened } from "./storages.js";

describe("product records", () => {
  test("a product is encoded as the thirty bytes of musli-zerocopy", () => {
    const record = encodeProduct({ stock: 20_001, name: PRODUCT_NAME });
    const header = [0x21, 0x4e, 0, 0, 0x0c, 0, 0, 0, 0x12, 0, 0, 0];
    expect(record).toStrictEqual(new Uint8Array([...header, ...bytes(PRODUCT_NAME)]));
  });

  test("a product is read in place, at any offset of a buffer", () => {
    const record = encodeProduct({ stock: 258, name: "Schuh ñ" });
    const around = new Uint8Array(record.length + 7);
    around.set(record, 3);
    const view = around.subarray(3, 3 + record.length);
    expect(stockOf(view)).toBe(258);
    expect(nameOf(view)).toBe("Schuh ñ");
    expect(nameIs(view, bytes("Schuh ñ"))).toBe(true);
    expect(nameIs(view, bytes("Schuh n"))).toBe(false);
    expect(nameIs(view, bytes("Schuh"))).toBe(false);
  });

  test("a product whose name lies outside of its record is refused", () => {
    const record = encodeProduct({ stock: 1, name: "shoe" });
    record[8] = 5;
    throws(() => nameOf(record), { name: "RangeError" });
    expect(nameIs(record, bytes("shoes"))).toBe(false);
    record.fill(0xff, 4, 12);
    throws(() => nameOf(record), { name: "RangeError" });
  });
});

everywhere("the product drop", ({ storage }) => {
  for (const commitEach of [false, true]) {
    const how = commitEach ? "with a commit for each" : "with one commit for all";
    test(`a drop of 20,000 ${how} leaves one pair, also after reopening`, async () => {
      const name = freshName();
      const db = await opened(storage, {}, name);
      const result = productDrop(db, { cycles: 20_000, commitEach });
      expect(result.stock).toBe(1);
      expect(result.name).toBe(PRODUCT_NAME);
      expect(result.cycles).toBe(20_000);
      expect(db.stats().pendingBytes, "all of it is handed to the file").toBe(0);
      if (storage.kind === "memory") return;
      const again = await reopened(db, storage, name);
      expect(readProduct(again)).toStrictEqual({ stock: 1, name: PRODUCT_NAME });
    });
  }

  test("a drop with more buyers than the stock can count is refused before it begins", async () => {
    const db = await opened(storage);
    for (const cycles of [0, -1, 1.5, MAX_CYCLES + 1, Number.NaN]) {
      throws(() => productDrop(db, { cycles }), { name: "RangeError" });
    }
    expect(db.count()).toBe(0);
    await rejects(async () => readProduct(db), { message: /no product/ });
  });
});
