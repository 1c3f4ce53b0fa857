import { bytes, deepEqual, equal, ok, test, text, throws } from "../harness.js";
import { everywhere, filled, freshName, killViews, opened, reopened } from "./places.js";

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
    equal(text(db.get("key")), "one");
    db.set("key", "another and longer one");
    equal(text(db.get("key")), "another and longer one");
    db.set("key", "");
    equal(db.get("key")?.length, 0);
    equal(db.getText("key"), "");
  });

  test("a key set a thousand times in a turn is written once, unless a view shows the old value", async () => {
    const db = await opened(storage);
    db.set("other", filled(100, 0));
    db.set("key", filled(100, 1));
    const one = db.stats().pendingBytes;
    for (let i = 0; i < 1_000; i++) db.set("key", filled(100, i));
    equal(db.stats().pendingBytes, one);
    const version = db.getEntry("key")?.version ?? 0;
    const view = db.get("key");
    deepEqual(view, filled(100, 999));
    db.set("key", filled(100, 7));
    deepEqual(view, filled(100, 999), "it shows its own record");
    deepEqual(db.get("key"), filled(100, 7));
    ok(db.stats().pendingBytes > one);
    equal(db.getEntry("key")?.version, version + 1);
    deepEqual(db.get("other"), filled(100, 0));
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
    deepEqual(db.get("key"), filled(9, 1));
    await killViews(db);
    db.set("key", filled(9, 4));
    db.set("key", "abc");
    db.set("key", "abc");
    equal(db.getText("key"), "abc");
    db = await reopened(db, storage, name);
    equal(db.getText("key"), "abc");
    equal(db.count(), 1);
    await db.close();
  });

  test("a missing key is undefined, and deleting it returns false", async () => {
    const db = await opened(storage);
    equal(db.get("nothing"), undefined);
    equal(db.getText("nothing"), undefined);
    equal(db.has("nothing"), false);
    equal(db.delete("nothing"), false);
    db.set("something", "");
    equal(db.has("something"), true);
    equal(db.delete("something"), true);
    equal(db.has("something"), false);
    equal(db.delete("something"), false);
  });

  test("count follows sets and deletes", async () => {
    const db = await opened(storage);
    equal(db.count(), 0);
    db.set("a", "1");
    db.set("b", "2");
    db.set("a", "3");
    equal(db.count(), 2);
    db.delete("a");
    equal(db.count(), 1);
    db.delete("b");
    equal(db.count(), 0);
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
    for (const size of sizes) deepEqual(db.get(`size ${size}`)?.slice(), value(size), `${size}`);
    db = await reopened(db, storage, name);
    equal(db.count(), sizes.length);
    for (const size of sizes) deepEqual(db.get(`size ${size}`)?.slice(), value(size), `${size}`);
  });

  test("a value may have 16 MiB and not one byte more", async () => {
    const db = await opened(storage);
    const most = filled(16_777_216, 5);
    db.set("most", most);
    equal(db.get("most")?.length, 16_777_216);
    equal(db.get("most")?.[16_777_215], 5);
    throws(() => db.set("more", filled(16_777_217, 5)), { ...BAD, message: /16777216 bytes/ });
    throws(() => db.set("more", "x".repeat(16_777_217)), { ...BAD, message: /16777216 bytes/ });
    equal(db.has("more"), false);
  });

  test("a key may have 65,535 bytes and not one more", async () => {
    const db = await opened(storage);
    const most = "k".repeat(65_535);
    db.set(most, "value");
    equal(db.getText(most), "value");
    equal(db.getText(bytes(most)), "value");
    for (const key of [
      `${most}k`,
      filled(65_536, 107),
      "é".repeat(32_768),
      "x".repeat(1_000_000),
    ]) {
      throws(() => db.get(key), { ...BAD, message: /65535 bytes/ });
      throws(() => db.set(key, ""), { ...BAD, message: /65535 bytes/ });
    }
    equal(db.count(), 1);
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
    equal(db.getText("a"), "1");
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
    equal(db.count(), 0);
  });

  test("keys and values may be strings or any views of bytes", async () => {
    const db = await opened(storage);
    const words = new Uint16Array([0x6261, 0x6463]);
    db.set(words, "by words");
    equal(db.getText("abcd"), "by words");
    equal(db.getText(bytes("abcd")), "by words");
    equal(db.getText(bytes("abcd").buffer as ArrayBuffer), "by words");
    equal(db.getText(new DataView(bytes("xabcdx").buffer as ArrayBuffer, 1, 4)), "by words");
    const inside = bytes("__value__").subarray(2, 7);
    for (const value of [inside, new DataView(inside.buffer, 2, 5), inside.slice().buffer]) {
      db.set("value", value as ArrayBuffer);
      equal(db.getText("value"), "value");
    }
    db.set("words", words);
    equal(db.getText("words"), "abcd");
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
      equal(db.getText(one), one);
      deepEqual(db.get(one)?.slice(), bytes(one));
      equal(db.getText(bytes(one)), one);
    }
    equal(db.count(), new Set(texts).size);
  });

  test("keys that differ only in their last character are different keys", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 300; i++) db.set(`key ${i}`, `${i}`);
    for (let i = 299; i >= 0; i--) {
      equal(db.getText(`key ${i}`), `${i}`);
      equal(db.getText(`key ${i}`), `${i}`);
    }
    db.set(bytes("key 1"), "bytes");
    equal(db.getText("key 0"), "0");
    equal(db.getText("key 1"), "bytes");
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
    equal(db.count(), 0);
    db.set("key", "still works");
    equal(db.getText("key"), "still works");
  });

  test("a value that is not UTF-8 has bytes and no text", async () => {
    const db = await opened(storage);
    db.set("key", new Uint8Array([0xff, 0xfe]));
    throws(() => db.getText("key"), { ...BAD, message: /UTF-8/ });
    deepEqual(db.get("key")?.slice(), new Uint8Array([0xff, 0xfe]));
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
        deepEqual(db.get("key")?.slice(), expected);
        db.updateIf("key", () => one);
        deepEqual(db.get("key")?.slice(), expected);
      }
      if (byteLength > 65_535) continue;
      db.set(one, "value");
      equal(db.getText(expected), "value");
      equal(db.count({ prefix: one }) > 0, true);
      equal(db.delete(one), true);
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
        deepEqual(db.get("key")?.slice(), filled(8, 1).slice(byteOffset));
        db.set(one, "value");
        equal(db.getText(filled(8, 1).slice(byteOffset)), "value");
      }
    }
    (resizable as unknown as { resize(length: number): void }).resize(2);
    const [, shrunk] = views as Uint8Array[];
    throws(() => db.set("key", shrunk as Uint8Array), { ...BAD, message: /resizable.*slice/ });
    throws(() => db.get(shrunk as Uint8Array), { ...BAD, message: /resizable.*slice/ });
    db.set("key", views[0] as Uint8Array);
    deepEqual(db.get("key")?.slice(), filled(8, 1).slice(0, 2));
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
        deepEqual(db.get("key")?.slice(), filled(length, 7));
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
    deepEqual(db.get("key")?.slice(), filled(4, 1));
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
    equal(db.has("key"), false);
  });

  test("a detached view throws StaleViewError as key and as value", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const view = db.get("key") as Uint8Array<ArrayBuffer>;
    const data = new DataView(view.buffer, view.byteOffset, view.length);
    const { buffer } = view;
    await killViews(db);
    equal(view.length, 0);
    for (const one of [view, data, buffer]) {
      throws(() => db.set("key", one), { name: "StaleViewError", code: "VARVE_STALE_VIEW" });
      throws(() => db.get(one), { name: "StaleViewError", message: /slice/ });
      throws(() => db.updateIf("key", () => one), { name: "StaleViewError" });
    }
    const other = await opened(storage);
    throws(() => other.set("key", view), { name: "StaleViewError" });
    equal(db.getText("key"), "value");
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
    equal(db.has("a"), false);
    db.set("a", "1", {});
    db.set("a", "2", { ifVersion: undefined });
    equal(db.getText("a"), "2");
  });

  test("a refused argument leaves the database unchanged and usable", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    throws(() => db.set("key", "\ud800"), BAD);
    throws(() => db.set("key", sharedBuffer() as ArrayBuffer), BAD);
    throws(() => db.set("key", 5 as unknown as string), BAD);
    equal(db.getText("key"), "value");
    await db.committed;
    ok(db.stats().pendingBytes === 0);
  });
});
