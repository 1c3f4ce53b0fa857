import { assert, expect, test } from "vitest";
import { text, turn } from "../support/values.js";
import { detachViews, everywhere, filled, opened, ownOrDetached } from "./storages.js";

const MIB = 1_048_576;

everywhere("views", ({ storage }) => {
  test("get returns a view of the database's own memory and copies nothing", async () => {
    const db = await opened(storage);
    db.set("a", "one");
    db.set("b", "two");
    const a = db.get("a");
    const b = db.get("b");
    expect(a?.buffer).toBe(b?.buffer);
    expect(a?.byteOffset).not.toBe(b?.byteOffset);
    assert((a?.buffer.byteLength ?? 0) > MIB);
  });

  test("1: a view is valid until the program yields, whatever is written meanwhile", async () => {
    const db = await opened(storage);
    db.set("kept", filled(100, 1));
    db.commit();
    const view = db.get("kept");
    for (let i = 0; i < 4_000; i++) db.set(`other ${i % 50}`, filled(1_000, 2));
    db.delete("kept");
    expect(view?.slice()).toStrictEqual(filled(100, 1));
    db.flush();
    expect(view?.slice()).toStrictEqual(filled(100, 1));
  });

  test("1: views of one turn are valid together", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 200; i++) db.set(`key ${i}`, filled(50, i));
    const views = Array.from({ length: 200 }, (_, i) => db.get(`key ${i}`));
    for (let i = 0; i < 200; i++) expect(views[i]?.slice()).toStrictEqual(filled(50, i));
  });

  test("2: a view that is kept too long shows its own record or is detached, never another's", async () => {
    const db = await opened(storage);
    const kept: { view: Uint8Array; value: number }[] = [];
    for (let round = 1; round < 40; round++) {
      db.set("key", filled(3_000, round));
      kept.push({ view: db.get("key") as Uint8Array, value: round });
      if (round % 3 === 0) db.delete("key");
      if (round % 4 === 0) await detachViews(db);
      if (round % 5 === 0) db.flush();
      for (let i = 0; i < 30; i++) db.set(`other ${i}`, filled(3_000, 200 + (round % 50)));
      await turn();
      for (const { view, value } of kept) assert(ownOrDetached(view, value), `round ${round}`);
    }
  });

  test("2: a view of a rolled back write never shows later data", async () => {
    const db = await opened(storage);
    for (const size of [40, 3_000, 300_000, 600_000, 900_000]) {
      let view = filled(0, 0);
      const refused = () =>
        db.transaction((tx) => {
          tx.set("inside", filled(size, 1));
          view = tx.get("inside") as Uint8Array<ArrayBuffer>;
          throw new Error("taken back");
        });
      try {
        refused();
      } catch {
        expect(view.length).toBe(size);
      }
      db.set("after", filled(size, 2));
      assert(ownOrDetached(view, 1), "in the same turn");
      await turn();
      for (let i = 0; i < 20; i++) db.set(`after ${i}`, filled(size, 3));
      assert(ownOrDetached(view, 1), "in a later turn");
      await turn();
      assert(ownOrDetached(view, 1), "later still");
    }
  });

  test("2: closing detaches all views", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const view = db.get("key");
    expect(text(view)).toBe("value");
    await db.close();
    expect(view?.length).toBe(0);
    expect(view?.buffer.byteLength).toBe(0);
  });

  test("3: set never overwrites the bytes that a view shows", async () => {
    const db = await opened(storage);
    db.set("key", filled(100, 1));
    const old = db.get("key");
    db.set("key", filled(100, 2));
    expect(old?.slice()).toStrictEqual(filled(100, 1));
    db.delete("key");
    expect(old?.slice()).toStrictEqual(filled(100, 1));
    db.set("key", filled(100, 3));
    expect(old?.slice()).toStrictEqual(filled(100, 1));
  });

  test("3: after an update a view shows the old bytes or the new", async () => {
    const db = await opened(storage);
    db.set("key", filled(100, 1));
    for (const between of [() => {}, () => db.commit()]) {
      db.set("key", filled(100, 1));
      between();
      const view = db.get("key") as Uint8Array;
      db.updateIf("key", (bytes) => {
        bytes.fill(2);
      });
      assert(ownOrDetached(view, 1) || ownOrDetached(view, 2));
      expect(db.get("key")?.slice()).toStrictEqual(filled(100, 2));
    }
  });

  test("4: a slice is a copy and stays valid", async () => {
    const db = await opened(storage);
    db.set("key", "value");
    const copy = db.get("key")?.slice();
    await db.close();
    expect(text(copy)).toBe("value");
  });

  test("6: a view is a legal key and a legal value, of any size", async () => {
    const db = await opened(storage);
    for (const size of [1, 12, 13, 64, 65, 5_000, 300_000, 600_000, 900_000]) {
      db.set("source", filled(size, 65));
      db.set("copy", db.get("source") as Uint8Array);
      expect(db.get("copy")?.slice()).toStrictEqual(filled(size, 65));
      if (size > 65_535) continue;
      db.set(db.get("source") as Uint8Array, "found");
      expect(db.getText("A".repeat(size))).toBe("found");
      expect(db.has(db.get("source") as Uint8Array)).toBe(true);
    }
  });

  test("6: a view of records larger than the memory is a legal value, and stays valid", async () => {
    const db = await opened(storage, { memory: MIB });
    const expected = Uint8Array.from({ length: 3 * MIB }, (_, i) => i % 249);
    db.set("0", expected);
    const views: Uint8Array[] = [];
    for (let i = 0; i < 6; i++) {
      const view = db.get(`${i}`) as Uint8Array;
      db.set(`${i + 1}`, view);
      views.push(view);
    }
    for (const view of views) expect(view.slice()).toStrictEqual(expected);
    expect(db.get("6")?.slice()).toStrictEqual(expected);
  });

  test("6: a view that was kept too long is a legal value while the memory grows", async () => {
    const db = await opened(storage, { memory: MIB });
    const expected = Uint8Array.from({ length: 300_000 }, (_, i) => i % 249);
    db.set("0", expected);
    await turn();
    let grown = 0;
    for (let i = 0; i < 40 && grown === 0; i++) {
      const view = db.get("0") as Uint8Array;
      // The turn ends, and no code holds the view any more.
      await turn();
      db.transaction(() => {
        for (let j = 0; j < 40; j++) db.set(`${i} ${j}`, view.length === 0 ? expected : view);
      });
      if (view.length === 0) grown += 1;
      expect(db.get(`${i} 39`)?.slice()).toStrictEqual(expected);
      await turn();
    }
    assert(grown > 0, "the memory never grew, so that this shows nothing");
  });

  test("6: views outlive many writes in their turn", async () => {
    const db = await opened(storage, { memory: 16 * MIB });
    db.set("kept", "kept");
    const view = db.get("kept");
    for (let i = 0; i < 8; i++) db.set(`${i}`, filled(MIB, i));
    expect(text(view)).toBe("kept");
  });

  test("6: views of one database are legal values of another", async () => {
    const [a, b] = [await opened(storage), await opened(storage)];
    a.set("key", "from a");
    b.set("key", a.get("key") as Uint8Array);
    expect(b.getText("key")).toBe("from a");
  });

  test("every get of more records than the view cache holds returns its own view", async () => {
    const db = await opened(storage);
    const lengths = Array.from({ length: 3_000 }, (_, i) => (i * 7) % 61);
    const at = (i: number) => (i * 1_237) % lengths.length;
    for (let round = 0; round < 4; round++) {
      for (let i = 0; i < lengths.length; i++) {
        const key = at(i);
        if (i % (round + 2) !== 0) continue;
        if (i % 5 === 0) lengths[key] = (lengths[key] as number) + 1;
        db.set(`key ${key}`, filled(lengths[key] as number, key % 251));
      }
      for (let i = 0; i < 2 * lengths.length; i++) {
        const key = at(i % 3 === 0 ? i % 100 : i);
        const view = db.get(`key ${key}`);
        if (view === undefined) continue;
        expect(view.length).toBe(lengths[key]);
        assert(ownOrDetached(view, key % 251), `key ${key} in round ${round}`);
      }
      await detachViews(db);
      await turn();
    }
  });

  test("an empty value has a view that is a legal value, repeatedly", async () => {
    const db = await opened(storage);
    db.set("empty", "");
    for (let round = 0; round < 3; round++) {
      db.set("copy", db.get("empty") as Uint8Array);
      expect(db.get("copy")?.length).toBe(0);
      expect(db.has("copy")).toBe(true);
      await detachViews(db);
      await turn();
    }
  });
});
