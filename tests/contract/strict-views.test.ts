import { blob, bytes, str, struct, u32 } from "varve/struct";
import { expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { text, turn } from "../support/values.js";
import { everywhere, filled, opened } from "./storages.js";

const WRITTEN = { code: "VARVE_VIEW_WRITTEN", message: /updateIf/ } as const;

everywhere("strict views", ({ storage }) => {
  test("a view contains only its record, so that a clone exposes nothing else", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("secret", "not for others");
    db.set("key", "value");
    db.commit();
    const clones: [what: string, clone: string][] = [];
    const cloned = (what: string, view: Uint8Array | undefined) => {
      const { buffer } = structuredClone(view as Uint8Array);
      clones.push([what, text(new Uint8Array(buffer)) as string]);
      return true;
    };
    cloned("get", db.get("key"));
    cloned("getEntry", db.getEntry("key")?.value);
    cloned("getMany", db.getMany(["key"])[0]);
    cloned("a pin", db.pin("key")?.bytes);
    for (const value of db.values({ prefix: "key" })) cloned("values", value);
    for (const [, value] of db.entries({ prefix: "key" })) cloned("entries", value);
    const predicate = (view: Uint8Array) => cloned("a predicate", view);
    db.updateIf("key", (view) => void cloned("an update", view), { predicate });
    db.updateIf("key", () => {}, { predicateKey: "key", predicate });
    for (const [what, clone] of clones) expect(clone, what).toBe("value");
    expect(clones.length).toBe(9);
  });

  test("a view of a struct contains only its record", async () => {
    const db = await opened(storage, { strictViews: true });
    const Row = struct("Row", { id: bytes(4), data: blob });
    const rows = db.collection("rows", Row, { key: u32, indexes: { byId: "id" } });
    const row = { id: Uint8Array.of(1, 2, 3, 4), data: Uint8Array.of(5, 6, 7) };
    const size = Row.encode(row).length;
    db.set("secret", filled(4_000, 99));
    rows.set(1, row);
    let seen = 0;
    const kept: Uint8Array[] = [];
    const cloned = (what: string, view: { id: Uint8Array; data: Uint8Array } | undefined) => {
      for (const part of [view?.id, view?.data]) {
        expect(structuredClone(part as Uint8Array).buffer.byteLength, what).toBe(size);
        kept.push(part as Uint8Array);
      }
      seen += 1;
      return true;
    };
    cloned("get", rows.get(1));
    cloned("getEntry", rows.getEntry(1)?.value);
    cloned("getMany", rows.getMany([1])[0]);
    cloned("a handle", rows.ref(1).value);
    for (const value of rows.values()) cloned("values", value);
    for (const [, value] of rows.entries()) cloned("entries", value);
    cloned("an index", rows.index.byId.get(row.id));
    for (const value of rows.index.byId.values()) cloned("values of an index", value);
    const predicate = (view: { readonly id: Uint8Array; readonly data: Uint8Array }) =>
      cloned("a predicate", view);
    rows.updateIf(1, (view) => void cloned("an update", view), { predicate });
    rows.updateIf(1, () => {}, { predicateKey: 1, predicate });
    expect(seen).toBe(11);
    await null;
    for (const part of kept) expect(part.length).toBe(0);
    expect(rows.get(1)?.data.slice()).toStrictEqual(row.data);
  });

  test("updates change structs, and later writes to their views are reported", async () => {
    const reported: Error[] = [];
    const db = await opened(storage, {
      strictViews: true,
      onError: (error) => reported.push(error),
    });
    const Row = struct("Row", { n: u32, id: bytes(4), name: str });
    const rows = db.collection("rows", Row, { key: u32, indexes: { byN: "n" } });
    rows.set(1, { n: 1, id: filled(4, 1), name: "a" });
    let part: Uint8Array | undefined;
    rows.updateIf(1, (row) => {
      row.n += 1;
      part = row.id;
    });
    expect(rows.get(1)?.n).toBe(2);
    rows.updateIf(1, (row) => {
      row.name = "longer than it was";
    });
    throws(
      () =>
        rows.updateIf(1, (row) => {
          row.n = 77;
          throw new Error("mine");
        }),
      { message: "mine" },
    );
    rows.updateIf(1, () => {}, { predicate: ({ n }) => n > 5 });
    expect(rows.get(1)?.snapshot()).toStrictEqual({
      n: 2,
      id: filled(4, 1),
      name: "longer than it was",
    });
    expect(rows.index.byN.count({ eq: 2 })).toBe(1);
    (part as Uint8Array)[0] = 88;
    await turn();
    expect(reported.length).toBe(1);
    throws(() => rows.get(1), WRITTEN);
    expect(rows.get(1)?.id[0]).toBe(1);
  });

  test("7: every view is detached after every yield", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    const first = db.get("key");
    expect(text(first)).toBe("value");
    await null;
    expect(first?.length).toBe(0);
    const second = db.get("key");
    await turn();
    expect(second?.length).toBe(0);
    expect(db.getText("key")).toBe("value");
  });

  test("7: views are detached with buffered writes too, and the writes reach the file", async () => {
    const db = await opened(storage, { strictViews: true, durability: "buffered" });
    db.set("key", "value");
    const view = db.get("key");
    await null;
    expect(view?.length).toBe(0);
    await db.committed;
    expect(db.stats().pendingBytes).toBe(0);
  });

  test("7: the view of an update is detached at the next yield", async () => {
    for (const durability of ["written", "buffered"] as const) {
      const db = await opened(storage, { strictViews: true, durability });
      db.set("key", "value");
      await null;
      const kept: Uint8Array[] = [];
      db.updateIf("key", (view) => {
        kept.push(view);
      });
      db.updateIf("key", () => {}, { predicate: (view) => kept.push(view) < 0 });
      await null;
      expect(kept[0]?.length).toBe(0);
      expect(kept[1]?.length).toBe(0);
    }
  });

  test("7: a write through a view of get is reported, thrown once, and restored", async () => {
    const reported: Error[] = [];
    const db = await opened(storage, {
      strictViews: true,
      onError: (error) => reported.push(error),
    });
    for (const committed of [false, true]) {
      db.set("key", "value");
      if (committed) await db.committed;
      (db.get("key") as Uint8Array)[0] = 88;
      await turn();
      expect(reported.length).toBe(1);
      expect(reported.pop()).toBe(throws(() => db.get("key"), WRITTEN));
      expect(db.getText("key")).toBe("value");
    }
  });

  test("7: a write through a view of get is found by an update of the same record", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    (db.get("key") as Uint8Array)[0] = 88;
    throws(() => db.updateIf("key", (view) => view.fill(65)), WRITTEN);
    expect(db.getText("key")).toBe("value");
  });

  test("7: a write through a view of get is found by a commit", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    (db.get("key") as Uint8Array)[0] = 88;
    throws(() => db.commit(), WRITTEN);
    db.commit();
    expect(db.getText("key")).toBe("value");
  });

  test("7: lawful changes are not mistaken for writes through a view", async () => {
    const reported: Error[] = [];
    const db = await opened(storage, {
      strictViews: true,
      onError: (error) => reported.push(error),
    });
    db.set("key", "value");
    for (let i = 0; i < 5; i++) {
      db.get("key");
      db.updateIf("key", (view) => {
        view[0] = 65 + i;
      });
      db.get("key");
    }
    throws(() =>
      db.transaction(() => {
        db.get("key");
        db.updateIf("key", (view) => {
          view.fill(90);
        });
        db.get("key");
        throw new Error("undone");
      }),
    );
    db.get("key");
    db.updateIf("key", () => "longer than it was");
    db.get("key");
    db.set("key", "replaced");
    db.delete("key");
    await turn();
    expect(db.has("key")).toBe(false);
    expect(reported.length).toBe(0);
  });

  test("7: a write through an update's view, after its callback returned, is reported", async () => {
    const db = await opened(storage, { strictViews: true });
    db.set("key", "value");
    let kept: Uint8Array | undefined;
    db.updateIf("key", (view) => {
      kept = view;
    });
    (kept as Uint8Array)[0] = 88;
    await turn();
    throws(() => db.get("key"), WRITTEN);
    expect(db.getText("key")).toBe("value");
  });
});
