import { codecOf } from "varve/codec";
import { toJson } from "varve/json";
import { array, blob, type Memory, option, str, struct, u8, union, vec } from "varve/struct";
import { describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";

/** The symbol by which Node gets the text of an object for its console. */
const INSPECT = Symbol.for("nodejs.util.inspect.custom");

const Lists = vec(vec(u8));

/** Bytes as a memory of a database. */
function lone(u8: Uint8Array): Memory {
  return { data: new DataView(u8.buffer, u8.byteOffset, u8.byteLength), u8, epoch: 0 };
}

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
