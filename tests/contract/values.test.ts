import { assert, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { bytes, text } from "../support/values.js";
import { detachViews, everywhere, filled, freshName, opened, reopened } from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;

/** A shared buffer, also on pages without the global `SharedArrayBuffer`. */
function sharedBuffer(): ArrayBufferLike {
  return new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true }).buffer;
}

/** A resizable buffer, which older types do not know. */
function resizableBuffer(): ArrayBuffer {
  const Resizable = ArrayBuffer as unknown as new (
    length: number,
    options: { maxByteLength: number },
  ) => ArrayBuffer;
  return new Resizable(8, { maxByteLength: 16 });
}

function transferred(): Uint8Array {
  const array = new Uint8Array(8);
  structuredClone(array.buffer, { transfer: [array.buffer] });
  return array;
}

everywhere("values", ({ storage }) => {
  test("a set value is read back, and replaced by the next set", async () => {
    const db = await opened(storage);
    db.set("key", "one");
    expect(text(db.get("key"))).toBe("one");
    db.set("key", "another and longer one");
    expect(text(db.get("key"))).toBe("another and longer one");
    db.set("key", "");
    expect(db.get("key")?.length).toBe(0);
    expect(db.getText("key")).toBe("");
  });

  test("a key set a thousand times in a turn is written once, unless a view shows the old value", async () => {
    const db = await opened(storage);
    db.set("other", filled(100, 0));
    db.set("key", filled(100, 1));
    const one = db.stats().pendingBytes;
    for (let i = 0; i < 1_000; i++) db.set("key", filled(100, i));
    expect(db.stats().pendingBytes).toBe(one);
    const version = db.getEntry("key")?.version ?? 0;
    const view = db.get("key");
    expect(view).toStrictEqual(filled(100, 999));
    db.set("key", filled(100, 7));
    expect(view, "it shows its own record").toStrictEqual(filled(100, 999));
    expect(db.get("key")).toStrictEqual(filled(100, 7));
    assert(db.stats().pendingBytes > one);
    expect(db.getEntry("key")?.version).toBe(version + 1);
    expect(db.get("other")).toStrictEqual(filled(100, 0));
  });

  test("a refused or rolled back set restores the value of an earlier set of the turn", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    // As long as the space that three characters might need.
    db.set("key", filled(9, 1));
    throws(() => db.set("key", "ab\ud800"), BAD);
    throws(
      () => {
        db.transaction(() => {
          db.set("key", filled(9, 2));
          db.set("key", filled(9, 3));
          throw new RangeError("no");
        });
      },
      { name: "RangeError" },
    );
    expect(db.get("key")).toStrictEqual(filled(9, 1));
    await detachViews(db);
    db.set("key", filled(9, 4));
    db.set("key", "abc");
    db.set("key", "abc");
    expect(db.getText("key")).toBe("abc");
    db = await reopened(db, storage, name);
    expect(db.getText("key")).toBe("abc");
    expect(db.count()).toBe(1);
    await db.close();
  });

  test("a missing key is undefined, and deleting it returns false", async () => {
    const db = await opened(storage);
    expect(db.get("nothing")).toBe(undefined);
    expect(db.getText("nothing")).toBe(undefined);
    expect(db.has("nothing")).toBe(false);
    expect(db.delete("nothing")).toBe(false);
    db.set("something", "");
    expect(db.has("something")).toBe(true);
    expect(db.delete("something")).toBe(true);
    expect(db.has("something")).toBe(false);
    expect(db.delete("something")).toBe(false);
  });

  test("count follows sets and deletes", async () => {
    const db = await opened(storage);
    expect(db.count()).toBe(0);
    db.set("a", "1");
    db.set("b", "2");
    db.set("a", "3");
    expect(db.count()).toBe(2);
    db.delete("a");
    expect(db.count()).toBe(1);
    db.delete("b");
    expect(db.count()).toBe(0);
  });

  test("values of every size up to beyond a segment are read back, before and after reopening", async () => {
    const name = freshName();
    const sizes = [
      0, 1, 7, 8, 9, 12, 13, 63, 64, 65, 255, 4096, 65_536, 262_145, 523_264, 523_265, 838_860,
      838_861, 1_048_448, 1_048_449, 1_500_000,
    ];
    let db = await opened(storage, {}, name);
    const value = (size: number) => filled(size, size % 251);
    for (const size of sizes) db.set(`size ${size}`, value(size));
    for (const size of sizes)
      expect(db.get(`size ${size}`)?.slice(), `${size}`).toStrictEqual(value(size));
    db = await reopened(db, storage, name);
    expect(db.count()).toBe(sizes.length);
    for (const size of sizes)
      expect(db.get(`size ${size}`)?.slice(), `${size}`).toStrictEqual(value(size));
  });

  test("a value may have 16 MiB and not one byte more", async () => {
    const db = await opened(storage);
    const most = filled(16_777_216, 5);
    db.set("most", most);
    expect(db.get("most")?.length).toBe(16_777_216);
    expect(db.get("most")?.[16_777_215]).toBe(5);
    throws(() => db.set("more", filled(16_777_217, 5)), { ...BAD, message: /16777216 bytes/ });
    throws(() => db.set("more", "x".repeat(16_777_217)), { ...BAD, message: /16777216 bytes/ });
    expect(db.has("more")).toBe(false);
  });

  test("a key may have 65,535 bytes and not one more", async () => {
    const db = await opened(storage);
    const most = "k".repeat(65_535);
    db.set(most, "value");
    expect(db.getText(most)).toBe("value");
    expect(db.getText(bytes(most))).toBe("value");
    for (const key of [
      `${most}k`,
      filled(65_536, 107),
      "é".repeat(32_768),
      "x".repeat(1_000_000),
    ]) {
      throws(() => db.get(key), { ...BAD, message: /65535 bytes/ });
      throws(() => db.set(key, ""), { ...BAD, message: /65535 bytes/ });
    }
    expect(db.count()).toBe(1);
  });

  test("a key must not be empty", async () => {
    const db = await opened(storage);
    for (const key of [
      "",
      new Uint8Array(0),
      new ArrayBuffer(0),
      new DataView(new ArrayBuffer(0)),
    ]) {
      const empty = { ...BAD, message: /at least one byte/ };
      throws(() => db.get(key), empty);
      throws(() => db.getText(key), empty);
      throws(() => db.has(key), empty);
      throws(() => db.set(key, "value"), empty);
      throws(() => db.delete(key), empty);
      throws(() => db.updateIf(key, () => {}), empty);
    }
    // Also if a key of the same kind is in the scratch area already.
    db.set("a", "1");
    throws(() => db.get(""), BAD);
    expect(db.getText("a")).toBe("1");
  });

  test("a key or value of another type is refused, and the error describes it", async () => {
    const db = await opened(storage);
    const wrong: [unknown, RegExp][] = [
      [undefined, /undefined/],
      [null, /null/],
      [7, /7/],
      [true, /true/],
      [{}, /an Object/],
      [["a"], /an Array/],
      [() => "key", /a function/],
      [Symbol("key"), /a symbol/],
      [10n, /10n/],
    ];
    for (const [given, message] of wrong) {
      throws(() => db.get(given as string), { ...BAD, message });
      throws(() => db.has(given as string), { ...BAD, message });
      throws(() => db.set(given as string, "value"), { ...BAD, message });
      throws(() => db.set("key", given as string), { ...BAD, message });
      throws(() => db.delete(given as string), { ...BAD, message });
      throws(() => db.updateIf(given as string, () => {}), { ...BAD, message });
    }
    expect(db.count()).toBe(0);
  });

  test("keys and values may be strings or any views of bytes", async () => {
    const db = await opened(storage);
    const words = new Uint16Array([0x6261, 0x6463]);
    db.set(words, "by words");
    expect(db.getText("abcd")).toBe("by words");
    expect(db.getText(bytes("abcd"))).toBe("by words");
    expect(db.getText(bytes("abcd").buffer as ArrayBuffer)).toBe("by words");
    expect(db.getText(new DataView(bytes("xabcdx").buffer as ArrayBuffer, 1, 4))).toBe("by words");
    const inside = bytes("__value__").subarray(2, 7);
    for (const value of [inside, new DataView(inside.buffer, 2, 5), inside.slice().buffer]) {
      db.set("value", value as ArrayBuffer);
      expect(db.getText("value")).toBe("value");
    }
    db.set("words", words);
    expect(db.getText("words")).toBe("abcd");
  });

  test("text of every plane is stored as key and as value, short and long", async () => {
    const db = await opened(storage);
    const texts = [
      "a",
      "ÿ",
      "ß€",
      "𝄞 clef",
      "日本語",
      "\u0000",
      "\ufeffmark",
      "z".repeat(64),
      "z".repeat(65),
    ];
    texts.push(
      ...["é", "x", "𝄞"].flatMap((one) => [one.repeat(63), one.repeat(3_000), one.repeat(9_001)]),
    );
    for (const one of texts) {
      db.set(one, one);
      expect(db.getText(one)).toBe(one);
      expect(db.get(one)?.slice()).toStrictEqual(bytes(one));
      expect(db.getText(bytes(one))).toBe(one);
    }
    expect(db.count()).toBe(new Set(texts).size);
  });

  test("keys that differ only in their last character are different keys", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 300; i++) db.set(`key ${i}`, `${i}`);
    for (let i = 299; i >= 0; i--) {
      expect(db.getText(`key ${i}`)).toBe(`${i}`);
      expect(db.getText(`key ${i}`)).toBe(`${i}`);
    }
    db.set(bytes("key 1"), "bytes");
    expect(db.getText("key 0")).toBe("0");
    expect(db.getText("key 1")).toBe("bytes");
  });

  test("a lone surrogate is refused in keys and values, short and long", async () => {
    const db = await opened(storage);
    const halves = ["\ud800", "a\udc00b", `${"x".repeat(100)}\ud83d`, `${"x".repeat(9_000)}\udfff`];
    for (const half of halves) {
      const refused = { ...BAD, message: /surrogate/ };
      throws(() => db.get(half), refused);
      throws(() => db.set(half, "value"), refused);
      throws(() => db.set("key", half), refused);
      throws(() => db.updateIf("key", () => half, { valueIfMissing: "v" }), refused);
    }
    expect(db.count()).toBe(0);
    db.set("key", "still works");
    expect(db.getText("key")).toBe("still works");
  });

  test("a value that is not UTF-8 has bytes and no text", async () => {
    const db = await opened(storage);
    db.set("key", new Uint8Array([0xff, 0xfe]));
    throws(() => db.getText("key"), { ...BAD, message: /UTF-8/ });
    expect(db.get("key")?.slice()).toStrictEqual(new Uint8Array([0xff, 0xfe]));
  });

  test("bytes in shared memory are stored, however few", async () => {
    const db = await opened(storage);
    const shared = sharedBuffer();
    const all = new Uint8Array(shared);
    for (let i = 0; i < all.length; i += 1) all[i] = i % 251;
    const given = [
      new Uint8Array(shared, 0, 3),
      new Uint8Array(shared, 5, 60),
      new Uint8Array(shared, 0, 64),
      new Uint8Array(shared, 0, 65),
      all,
      new DataView(shared, 1, 80),
    ];
    for (const one of given as Uint8Array[]) {
      const { byteOffset, byteLength } = one;
      const expected = new Uint8Array(all.subarray(byteOffset, byteOffset + byteLength));
      for (const _ of [1, 2, 3]) {
        db.set("key", one);
        expect(db.get("key")?.slice()).toStrictEqual(expected);
        db.updateIf("key", () => one);
        expect(db.get("key")?.slice()).toStrictEqual(expected);
      }
      if (byteLength > 65_535) continue;
      db.set(one, "value");
      expect(db.getText(expected)).toBe("value");
      expect(db.count({ prefix: one }) > 0).toBe(true);
      expect(db.delete(one)).toBe(true);
    }
  });

  test("bytes in a resizable buffer are stored, and refused when it has shrunk below them", async () => {
    const db = await opened(storage);
    const resizable = resizableBuffer();
    new Uint8Array(resizable).set(filled(8, 1));
    const views = [new Uint8Array(resizable), new Uint8Array(resizable, 4), resizable];
    for (const one of views as Uint8Array[]) {
      const { byteOffset = 0 } = one as Partial<Uint8Array>;
      for (const _ of [1, 2, 3]) {
        db.set("key", one);
        expect(db.get("key")?.slice()).toStrictEqual(filled(8, 1).slice(byteOffset));
        db.set(one, "value");
        expect(db.getText(filled(8, 1).slice(byteOffset))).toBe("value");
      }
    }
    (resizable as unknown as { resize(length: number): void }).resize(2);
    const [, shrunk] = views as Uint8Array[];
    throws(() => db.set("key", shrunk as Uint8Array), { ...BAD, message: /resizable.*slice/ });
    throws(() => db.get(shrunk as Uint8Array), { ...BAD, message: /resizable.*slice/ });
    db.set("key", views[0] as Uint8Array);
    expect(db.get("key")?.slice()).toStrictEqual(filled(8, 1).slice(0, 2));
  });

  test("a Buffer over the database's own memory is copied before its record moves", async () => {
    const db = await opened(storage);
    for (const length of [8, 200, 5_000]) {
      db.set("key", filled(length, 7));
      for (let i = 0; i < 50; i += 1) {
        const view = db.get("key") as Uint8Array<ArrayBuffer>;
        class Alias extends Uint8Array<ArrayBuffer> {
          override slice(): Alias {
            return this;
          }
        }
        db.set("key", new Alias(view.buffer, view.byteOffset, view.length));
        expect(db.get("key")?.slice()).toStrictEqual(filled(length, 7));
      }
    }
  });

  test("detached bytes are refused and not taken for empty", async () => {
    const db = await opened(storage);
    const gone = transferred();
    for (const one of [gone, gone.buffer as ArrayBuffer]) {
      throws(() => db.set("key", one), { ...BAD, message: /detached/ });
      throws(() => db.get(one), { ...BAD, message: /detached/ });
    }
    // The same array again, small enough to be remembered as inspected.
    const small = filled(4, 1);
    db.set("key", small);
    structuredClone(small.buffer, { transfer: [small.buffer] });
    throws(() => db.set("key", small), { ...BAD, message: /detached/ });
    expect(db.get("key")?.slice()).toStrictEqual(filled(4, 1));
  });

  test("detached bytes are refused by hot code that met resizable ones", async () => {
    const db = await opened(storage, { durability: "buffered" });
    const resizable = new Uint8Array(resizableBuffer());
    for (let i = 0; i < 30_000; i++) {
      db.set(`key ${i % 50}`, new Uint8Array((i % 100) + 1));
      if (i % 50 === 0) db.set("resizable", resizable);
    }
    for (let i = 0; i < 3; i++) {
      throws(() => db.set("key", transferred()), { ...BAD, message: /detached/ });
      throws(() => db.set(transferred(), "value"), { ...BAD, message: /detached/ });
    }
    expect(db.has("key")).toBe(false);
  });

  test("a detached view throws StaleViewError as key and as value", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const view = db.get("key") as Uint8Array<ArrayBuffer>;
    const data = new DataView(view.buffer, view.byteOffset, view.length);
    const { buffer } = view;
    await detachViews(db);
    expect(view.length).toBe(0);
    for (const one of [view, data, buffer]) {
      throws(() => db.set("key", one), { name: "StaleViewError", code: "VARVE_STALE_VIEW" });
      throws(() => db.get(one), { name: "StaleViewError", message: /slice/ });
      throws(() => db.updateIf("key", () => one), { name: "StaleViewError" });
    }
    const other = await opened(storage);
    throws(() => other.set("key", view), { name: "StaleViewError" });
    expect(db.getText("key")).toBe("value");
  });

  test("set refuses unknown options", async () => {
    const db = await opened(storage);
    throws(() => db.set("a", "1", { expires: 1 } as object), {
      ...BAD,
      message: /no option "expires".*ifVersion/,
    });
    for (const options of [null, 5, "ifVersion"]) {
      throws(() => db.set("a", "1", options as unknown as object), BAD);
    }
    expect(db.has("a")).toBe(false);
    db.set("a", "1", {});
    db.set("a", "2", { ifVersion: undefined });
    expect(db.getText("a")).toBe("2");
  });

  test("a refused argument leaves the database unchanged and usable", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    throws(() => db.set("key", "\ud800"), BAD);
    throws(() => db.set("key", sharedBuffer() as ArrayBuffer), BAD);
    throws(() => db.set("key", 5 as unknown as string), BAD);
    expect(db.getText("key")).toBe("value");
    await db.committed;
    assert(db.stats().pendingBytes === 0);
  });
});
