import type { Key, Pin, SetOptions } from "varve";
import { text as textType } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { bytes, text, turn } from "../support/values.js";
import { FakeStorage, platform } from "./fake-storage.js";
import {
  detachViews,
  everywhere,
  filled,
  freshName,
  opened,
  ownOrDetached,
  reopened,
} from "./storages.js";

const BAD = { name: "TypeError", code: "VARVE_BAD_ARGUMENT" } as const;
const CLOSED = { name: "DatabaseClosedError", code: "VARVE_DATABASE_CLOSED" } as const;
const CONFLICT = { name: "ConflictError", code: "VARVE_CONFLICT" } as const;

everywhere("getMany and versions of entries", ({ storage }) => {
  test("getMany returns the values in the order of the keys, and undefined for missing ones", async () => {
    const db = await opened(storage);
    expect(db.getMany(["of", "nothing"])).toStrictEqual([undefined, undefined]);
    db.set("a", "1");
    db.set("b", "");
    const views = db.getMany(["b", "missing", bytes("a"), "a"]);
    expect(views.map(text)).toStrictEqual(["", undefined, "1", "1"]);
    expect(db.getMany([])).toStrictEqual([]);
    expect(db.getMany(new Set(["a"])).map(text)).toStrictEqual(["1"]);
    expect(db.getMany(db.keys()).map(text)).toStrictEqual(["1", ""]);
  });

  test("getMany finds keys of every length and kind, in lists of any length", async () => {
    const db = await opened(storage);
    const keys: Key[] = [];
    for (let i = 1; i < 1_000; i++) {
      const key = i % 7 === 0 ? `clé ${i}` : `key ${"x".repeat(i % 83)}${i}`;
      keys.push(i % 5 === 0 ? bytes(key) : key);
    }
    // A key that fills the whole key area, and some that leave little of it.
    keys.splice(300, 0, "l".repeat(65_535), "m".repeat(62_000), "n".repeat(2_460), "o", "p");
    keys.splice(9, 0, new Uint8Array(40_000).fill(1), "é".repeat(20_000), "é".repeat(32_767));
    for (const [i, key] of keys.entries()) {
      if (i % 11 !== 0) db.set(key, filled(i % 400 === 1 ? 600_000 : i % 97, i % 251));
    }
    db.set("empty", "");
    for (const count of [1, 255, 256, 257, 512, keys.length]) {
      const views = db.getMany([...keys.slice(0, count), "empty", keys[1] as Key, "missing"]);
      expect(views.length).toBe(count + 3);
      expect(views.slice(count).map((view) => view?.length)).toStrictEqual([0, 600_000, undefined]);
      for (const [i, view] of views.slice(0, count).entries()) {
        const length = i % 11 === 0 ? undefined : i % 400 === 1 ? 600_000 : i % 97;
        expect(view?.length, `key ${i} of ${count}`).toBe(length);
        assert(view === undefined || ownOrDetached(view, i % 251), `value ${i} of ${count}`);
      }
    }
  });

  test("getMany sees the writes of its turn, and nothing that was rolled back", async () => {
    const db = await opened(storage);
    const keys = Array.from({ length: 40 }, (_, i) => `key ${i}`);
    for (const key of keys) db.set(key, "before");
    await db.committed;
    throws(() =>
      db.transaction(() => {
        for (const key of keys) db.set(key, "inside");
        expect(new Set(db.getMany(keys).map(text))).toStrictEqual(new Set(["inside"]));
        throw new Error("taken back");
      }),
    );
    expect(new Set(db.getMany(keys).map(text))).toStrictEqual(new Set(["before"]));
    for (const key of keys) db.delete(key);
    expect(new Set(db.getMany(keys))).toStrictEqual(new Set([undefined]));
  });

  test("getMany returns one state, even if reading a key of the list writes", async () => {
    const db = await opened(storage);
    const notes = db.collection("notes", textType());
    const keys = Array.from({ length: 600 }, (_, i) => `${i}`);
    const fill = (value: string) => {
      for (const key of keys) {
        db.set(key, value);
        notes.set(key, value);
      }
    };
    const writing = Object.defineProperty([...keys], 500, {
      get() {
        fill("after");
        return "500";
      },
    });
    const behind = new Proxy(writing, {});
    for (const list of [writing, behind]) {
      fill("before");
      expect(new Set(db.getMany(list).map(text))).toStrictEqual(new Set(["after"]));
      fill("before");
      expect(new Set(notes.getMany(list))).toStrictEqual(new Set(["after"]));
    }
  });

  test("getMany refuses arguments that are no lists of keys, and invalid keys", async () => {
    const db = await opened(storage);
    for (const keys of ["abc", 7, null, undefined, {}, new ArrayBuffer(8)]) {
      throws(() => db.getMany(keys as Iterable<Key>), { ...BAD, message: /iterable of keys/ });
    }
    throws(() => db.getMany(["a", ""]), BAD);
    throws(() => db.getMany([1 as unknown as Key]), BAD);
  });

  test("getMany returns only valid views, even if the values were in the file", async () => {
    const name = freshName();
    const options = { memory: 4_194_304 };
    let db = await opened(storage, options, name);
    const keys = Array.from({ length: 240 }, (_, i) => `key ${i}`);
    for (const [i, key] of keys.entries()) {
      db.set(key, filled(50_000, i));
      if (i % 20 === 0) await db.committed;
    }
    db = await reopened(db, storage, name, options);
    for (let from = 0; from < 240; from += 30) {
      const views = db.getMany(keys.slice(from, from + 30));
      for (const [i, view] of views.entries()) {
        expect(view?.length).toBe(50_000);
        expect(view?.[49_999]).toBe(from + i);
      }
      await turn();
    }
  });
});

everywhere("versions", ({ storage }) => {
  test("getEntry returns the value with its version, and undefined for a missing key", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    expect(db.getEntry("a")).toBe(undefined);
    db.set("a", "1");
    const entry = db.getEntry("a");
    expect(text(entry?.value)).toBe("1");
    assert((entry?.version ?? 0) > 0);
    expect(db.getEntry("a")?.version, "reading changes nothing").toBe(entry?.version);
    expect(db.stats().version, "the one that was returned last").toBe(entry?.version);
    db.commit();
    expect(db.stats().frame, "the last frame is the first").toBe(1);
    db = await reopened(db, storage, name);
    expect(db.getEntry("a")?.version).toBe(entry?.version);
    throws(() => db.getEntry(""), BAD);
  });

  test("every write gives its key a higher version, and no version occurs twice", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    let last = 0;
    const higher = () => {
      const version = db.getEntry("a")?.version ?? 0;
      assert(version > last, `${version} after ${last}`);
      last = version;
    };
    for (let round = 0; round < 3; round++) {
      db.set("a", "1");
      higher();
      db.set("a", "1");
      higher();
      db.updateIf("a", (view) => {
        view[0] = 50;
      });
      higher();
      db.updateIf("a", () => "longer");
      higher();
      db.delete("a");
      expect(db.getEntry("a")).toBe(undefined);
      db.set("a", "again");
      higher();
      if (round === 1) await turn();
      db = await reopened(db, storage, name);
    }
  });

  test("ifVersion sets only if the key was not written to since", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const version = db.getEntry("a")?.version ?? 0;
    db.set("a", "2", { ifVersion: version });
    throws(() => db.set("a", "3", { ifVersion: version }), {
      ...CONFLICT,
      message: new RegExp(`version ${version} was expected`),
    });
    expect(db.getText("a")).toBe("2");
    db.delete("a");
    throws(() => db.set("a", "3", { ifVersion: version }), {
      ...CONFLICT,
      message: /the key is missing/,
    });
    expect(db.has("a")).toBe(false);
  });

  test("ifVersion is checked against its key, even if its getter reads other keys", async () => {
    const db = await opened(storage);
    for (const value of ["1", "2", "3"]) db.set("b", value);
    db.set("a", "1");
    const versionOf = (key: string) => db.getEntry(key)?.version;
    const reported = (key: string) => ({
      get ifVersion() {
        db.get("b");
        return versionOf(key);
      },
    });
    db.set("a", "2", reported("a"));
    throws(() => db.set("a", "3", reported("b")), CONFLICT);
    expect(db.getText("a")).toBe("2");
  });

  test("ifVersion 0 sets only a missing key", async () => {
    const db = await opened(storage);
    db.set("a", "1", { ifVersion: 0 });
    throws(() => db.set("a", "2", { ifVersion: 0 }), { ...CONFLICT, message: /should be missing/ });
    expect(db.getText("a")).toBe("1");
    db.delete("a");
    db.set(bytes("a"), "3", { ifVersion: 0 });
    expect(db.getText("a")).toBe("3");
  });

  test("a conflict rolls its transaction back unless it is caught", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    throws(
      () =>
        db.transaction((tx) => {
          tx.set("b", "2");
          tx.set("a", "3", { ifVersion: 0 });
        }),
      CONFLICT,
    );
    expect(db.has("b")).toBe(false);
    db.transaction((tx) => {
      tx.set("b", "2");
      throws(() => tx.set("a", "3", { ifVersion: 0 }), CONFLICT);
    });
    expect(db.getText("b")).toBe("2");
    expect(db.getText("a")).toBe("1");
  });

  test("a rollback restores the version", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const version = db.getEntry("a")?.version ?? 0;
    throws(() =>
      db.transaction(() => {
        db.set("a", "2");
        throw new Error("undone");
      }),
    );
    expect(db.getEntry("a")?.version).toBe(version);
    db.set("a", "3", { ifVersion: version });
  });

  test("an invalid ifVersion is refused", async () => {
    const db = await opened(storage);
    for (const ifVersion of [-1, 1.5, "1", null, Number.NaN, 2 ** 60]) {
      throws(() => db.set("a", "1", { ifVersion } as SetOptions), {
        ...BAD,
        message: /ifVersion/,
      });
    }
    expect(db.has("a")).toBe(false);
  });
});

everywhere("pins", ({ storage }) => {
  test("a pinned value stays unchanged by writes and across yields", async () => {
    const db = await opened(storage);
    for (const size of [0, 1, 100, 70_000, 300_000, 600_000, 900_000]) {
      db.set("a", filled(size, 1));
      const pin = db.pin("a") as Pin;
      const same = () => expect(pin.bytes.slice(), `${size}`).toStrictEqual(filled(size, 1));
      same();
      db.updateIf("a", (view) => {
        view.fill(2);
      });
      same();
      db.set("a", "replaced");
      same();
      await db.flushed;
      same();
      db.delete("a");
      await detachViews(db);
      await turn();
      same();
      pin.dispose();
      expect(db.has("a")).toBe(false);
    }
  });

  test("bytes returns a valid view each time", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("a", "1");
    const pin = db.pin("a") as Pin;
    const first = pin.bytes;
    expect(text(first)).toBe("1");
    await turn();
    expect(first.length).toBe(0);
    const second = pin.bytes;
    assert(first !== second);
    expect(text(second)).toBe("1");
    pin.dispose();
  });

  test("a missing key cannot be pinned, and an invalid key is refused", async () => {
    const db = await opened(storage);
    expect(db.pin("a")).toBe(undefined);
    throws(() => db.pin(""), BAD);
  });

  test("a disposed pin throws, and disposing twice is allowed", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const [one, two] = [db.pin("a") as Pin, db.pin("a") as Pin];
    one.dispose();
    one.dispose();
    throws(() => one.bytes, { name: "StaleViewError", message: /disposed.*Pin the key again/ });
    expect(text(two.bytes), "each pin is one of its own").toBe("1");
    const three = db.pin("a") as Pin;
    one.dispose();
    expect(text(three.bytes)).toBe("1");
  });

  test("closing disposes the pins of its handle", async () => {
    const name = freshName();
    const [one, two] = [await opened(storage, {}, name), await opened(storage, {}, name)];
    one.set("a", "1");
    const [mine, other] = [one.pin("a") as Pin, two.pin("a") as Pin];
    await one.close();
    throws(() => mine.bytes, CLOSED);
    mine.dispose();
    expect(text(other.bytes)).toBe("1");
    await two.close();
    throws(() => other.bytes, CLOSED);
    other.dispose();
    throws(() => two.pin("a"), CLOSED);
  });

  test("a pin is disposed at the end of its using block", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    let kept: Pin | undefined;
    {
      using pin = db.pin("a");
      expect(text(pin?.bytes)).toBe("1");
      kept = pin;
    }
    throws(() => kept?.bytes, { name: "StaleViewError" });
  });

  test("pin is refused inside a transaction or a callback", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const refused = { name: "ReentrancyError", code: "VARVE_REENTRANCY" };
    db.transaction(() => {
      throws(() => db.pin("a"), { ...refused, message: /pin\(\)/ });
    });
    db.updateIf("a", () => {
      throws(() => db.pin("a"), refused);
    });
    expect(text(db.pin("a")?.bytes)).toBe("1");
  });

  test("pin commits all earlier writes", async () => {
    const db = await opened(storage, { durability: "buffered" });
    db.set("a", "1");
    assert(db.stats().pendingBytes > 0);
    db.pin("a");
    expect(db.stats().pendingBytes).toBe(0);
  });

  test("pinned values stay while other values of a larger database are evicted", async () => {
    const db = await opened(storage, { memory: 2_097_152 });
    const pins: Pin[] = [];
    for (let i = 0; i < 150; i++) {
      db.set(`key ${i}`, filled(60_000, i));
      if (i % 50 === 0) pins.push(db.pin(`key ${i}`) as Pin);
      await db.committed;
    }
    for (let i = 0; i < 150; i++) expect(db.get(`key ${i}`)?.[59_999]).toBe(i);
    for (const [i, pin] of pins.entries()) {
      expect(pin.bytes.length).toBe(60_000);
      assert(pin.bytes.every((byte) => byte === i * 50));
    }
    for (const pin of pins) pin.dispose();
    await turn();
    for (let i = 0; i < 150; i++) expect(db.get(`key ${i}`)?.[0]).toBe(i);
  });

  test("7: in strict mode a write through a pin's bytes is reported and restored", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("a", "value");
    const pin = db.pin("a") as Pin;
    pin.bytes[0] = 88;
    await turn();
    throws(() => db.get("a"), { code: "VARVE_VIEW_WRITTEN" });
    expect(text(pin.bytes)).toBe("value");
  });
});

describe("pins without a commit", () => {
  test("a failing commit is reported by pin, and its writes are rolled back", async () => {
    const fake = new FakeStorage();
    const reported: Error[] = [];
    const db = await opened(fake, { onError: (error) => reported.push(error) });
    db.set("kept", "1");
    db.commit();
    db.set("lost", "2");
    fake.fault = ({ op }) => (op === "write" ? platform.quota() : undefined);
    throws(() => db.pin("kept"), { name: "QuotaExceededError" });
    expect(reported.length).toBe(1);
    fake.fault = () => undefined;
    expect(db.has("lost")).toBe(false);
    expect(text(db.pin("kept")?.bytes)).toBe("1");
  });
});
