/** Sets in a row, which the engine applies in batches, without an observable difference. */

import type { Database } from "varve";
import { assert, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { bytes, turn } from "../support/values.js";
import { detachViews, everywhere, filled, freshName, opened, reopened } from "./storages.js";

/** More sets than fit into the queue. */
const ROW = 120;

function keyOf(i: number): string {
  return `key ${String(i).padStart(4, "0")}`;
}

/** Sets some keys twice in a row, and checks that each has its last value. */
function row(db: Database): void {
  for (let i = 0; i < ROW; i++) db.set(keyOf(i), filled(100, 1));
  for (let i = 0; i < ROW; i++) db.set(keyOf(i), filled(100, i));
}

everywhere("buffered sets", ({ storage }) => {
  test("sets are seen by the next call of any kind", async () => {
    const last = keyOf(ROW - 1);
    const values = [filled(100, ROW - 2), filled(100, ROW - 1)];
    const calls: [string, (db: Database) => unknown, unknown][] = [
      ["get", (db) => db.get(last)?.slice(), values[1]],
      ["has", (db) => db.has(last), true],
      ["getMany", (db) => db.getMany([last]).map((view) => view?.slice()), [values[1]]],
      ["getEntry", (db) => db.getEntry(last)?.version, 2 * ROW],
      ["count", (db) => db.count(), ROW],
      ["keys", (db) => [...db.keys({ gte: last })], [last]],
      ["values", (db) => Array.from(db.values({ gte: keyOf(ROW - 2) }), (v) => v.slice()), values],
      ["stats", (db) => db.stats().keys, ROW],
      ["delete", (db) => db.delete(last), true],
      ["clear", (db) => db.clear({ lt: last }), ROW - 1],
      ["updateIf", (db) => db.updateIf(last, (view) => view.fill(0)), true],
      ["pin", (db) => db.pin(last)?.bytes.slice(), values[1]],
      ["a set of a version", (db) => db.set(last, "new", { ifVersion: 2 * ROW }), undefined],
    ];
    for (const [name, call, expected] of calls) {
      const db = await opened(storage);
      row(db);
      expect(call(db), name).toStrictEqual(expected);
    }
  });

  test("sets are in the file when commit returns, and when the turn has ended", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    row(db);
    db.commit();
    expect(db.stats().pendingBytes).toBe(0);
    for (let i = 0; i < ROW; i++) db.set(keyOf(i), filled(50, i));
    await turn();
    expect(db.stats().pendingBytes).toBe(0);
    db = await reopened(db, storage, name);
    for (let i = 0; i < ROW; i++) expect(db.get(keyOf(i))).toStrictEqual(filled(50, i));
  });

  test("sets are rolled back with their transaction, and not with a later one", async () => {
    const db = await opened(storage);
    row(db);
    throws(
      () =>
        db.transaction((tx) => {
          for (let i = 0; i < 2 * ROW; i++) tx.set(keyOf(i), "taken back");
          throw new Error("undone");
        }),
      { message: "undone" },
    );
    expect(db.count()).toBe(ROW);
    for (let i = 0; i < ROW; i++) expect(db.get(keyOf(i))).toStrictEqual(filled(100, i));
  });

  test("sets store the bytes as of the call, of every length", async () => {
    const db = await opened(storage);
    const buffer = new Uint8Array(1_400);
    const lengths = Array.from({ length: 3 * ROW }, (_, i) => (i * 37) % 1_400);
    for (const [i, length] of lengths.entries()) {
      const value = buffer.subarray(0, length);
      value.fill(i);
      db.set(keyOf(i), value);
    }
    buffer.fill(0);
    for (const [i, length] of lengths.entries())
      expect(db.get(keyOf(i))).toStrictEqual(filled(length, i));
  });

  test("sets keep their order among other keys and values", async () => {
    const db = await opened(storage);
    const long = "long ".repeat(30);
    const keys = ["short", "short", "größer", long, new Uint8Array([1, 2, 3]), "x".repeat(64), "y"];
    for (let i = 0; i < 40 * keys.length; i++) {
      db.set(keys[i % keys.length]!, i % 3 === 0 ? `text ${i}` : bytes(`text ${i}`));
    }
    for (const [at, key] of keys.entries()) {
      const last = key === "short" ? 1 : at;
      expect(db.getText(key)).toBe(`text ${39 * keys.length + last}`);
    }
    expect(db.count()).toBe(keys.length - 1);
  });

  test("sets take views of this database as values, and refuse only stale ones", async () => {
    const db = await opened(storage);
    db.set("source", filled(100, 7));
    await detachViews(db);
    const stale = db.get("source")!;
    await detachViews(db);
    await turn();
    const view = db.get("source")!;
    for (let i = 0; i < ROW; i++) {
      db.set(keyOf(i), view);
      if (stale.length === 0) throws(() => db.set(keyOf(i), stale), { name: "StaleViewError" });
    }
    assert(
      Array.from({ length: ROW }, (_, i) => db.get(keyOf(i))![99]).every((byte) => byte === 7),
    );
  });

  test("sets refuse invalid keys and values, and take every valid kind", async () => {
    const db = await opened(storage);
    row(db);
    const none: readonly unknown[] = [
      undefined,
      null,
      5,
      true,
      {},
      { length: 3 },
      [1, 2],
      Symbol("s"),
    ];
    for (const given of none) {
      throws(() => db.set(given as string, "value"), { name: "TypeError" });
      throws(() => db.set("key", given as string), { name: "TypeError" });
      expect(db.has("key")).toBe(false);
      row(db);
    }
    const gone = filled(20, 1);
    structuredClone(gone, { transfer: [gone.buffer] });
    for (const bad of ["", new Uint8Array(0), gone]) throws(() => db.set(bad, "value"));
    throws(() => db.set("key", gone), { name: "TypeError" });
    const kinds: readonly [string, string | ArrayBuffer | ArrayBufferView, number][] = [
      ["nothing", "", 0],
      ["no bytes", new Uint8Array(0), 0],
      ["a buffer", filled(9, 9).buffer, 9],
      ["a DataView", new DataView(filled(9, 9).buffer, 2, 4), 4],
      ["floats", new Float64Array([1.5, 2.5]), 16],
      ["words", new Uint16Array(filled(30, 3).buffer, 4, 5), 10],
    ];
    for (const [key, value] of kinds) db.set(key, value);
    for (const [key, value, length] of kinds) {
      expect(db.get(key)?.length, key).toBe(length);
      db.set(key, "", {});
      db.set(new TextEncoder().encode(key), value);
      expect(db.get(key)?.length, key).toBe(length);
    }
    expect(db.count()).toBe(ROW + kinds.length);
  });

  test("sets store the true bytes, whatever length an array reports", async () => {
    let asked = 0;
    const says = (length: unknown): Uint8Array<ArrayBuffer> => {
      class Says extends Uint8Array<ArrayBuffer> {
        override get length(): number {
          asked += 1;
          return length as number;
        }
      }
      return new Says(filled(50, 7).buffer);
    };
    const db = await opened(storage);
    row(db);
    for (const length of [2 ** 31, 2 ** 32 - 8, 1e9, -1, Number.NaN, undefined, 0, 2.5, "3", 4]) {
      db.set("value", says(length));
      row(db);
      expect(db.get("value")).toStrictEqual(filled(50, 7));
      db.set(says(length), `as a key, ${length}`);
      row(db);
      expect(db.getText(filled(50, 7))).toBe(`as a key, ${length}`);
    }
    expect(asked).toBe(0);
    expect(db.count()).toBe(ROW + 2);
    for (let i = 0; i < ROW; i++) expect(db.get(keyOf(i))).toStrictEqual(filled(100, i));
  });
});
