import type { Database } from "varve";
import { assert, describe, expect, test } from "vitest";
import { throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import { FakeStorage, platform } from "./fake-storage.js";
import { filled, opened, reopened } from "./storages.js";

const NAME = "full";
const MIB = 1_048_576;
const REFUSED = { name: "QuotaExceededError", code: "VARVE_QUOTA_EXCEEDED" } as const;

/** The ways in which platforms report that a file cannot grow. */
const STYLES = [
  ["thrown as browsers do", () => platform.quota()],
  ["thrown as Node does", () => platform.enospc()],
  ["a count of zero, as in Firefox", () => 0],
] as const;

/** Limits the size of the file. */
function limit(fake: FakeStorage, bytes: number, full: () => Error | number): void {
  fake.fault = ({ op, at, length }) =>
    (op === "write" && at + length > bytes) || (op === "truncate" && at > bytes)
      ? op === "truncate"
        ? platform.quota()
        : full()
      : undefined;
}

/** Commits values one by one until one is refused, and returns how many there are. */
function fill(db: Database, prefix: string, size: number): number {
  for (let i = 0; ; i++) {
    try {
      db.set(`${prefix}${i}`, filled(size, i));
      db.commit();
    } catch (error) {
      expect((error as { code?: string }).code).toBe(REFUSED.code);
      expect(db.has(`${prefix}${i}`)).toBe(false);
      return i;
    }
  }
}

function checkFilled(db: Database, prefix: string, size: number, count: number): void {
  for (let i = 0; i < count; i++) {
    const view = db.get(`${prefix}${i}`);
    assert(
      view?.length === size && view[0] === i % 256 && view[size - 1] === i % 256,
      `${i} is right`,
    );
  }
}

describe("full disks", () => {
  for (const [style, full] of STYLES) {
    test(`everything before the refused write stays, also after closing: ${style}`, async () => {
      for (const bytes of [2 * MIB, 3 * MIB + 8_192, 4 * MIB + 8_191]) {
        const fake = new FakeStorage();
        let db = await opened(fake, {}, NAME);
        limit(fake, bytes, full);
        const count = fill(db, "v", 10_000);
        assert(count > 90, `${count} values fitted`);
        checkFilled(db, "v", 10_000, count);
        db = await reopened(db, fake, NAME);
        expect(db.recovery.wasClean).toBe(true);
        expect(db.count()).toBe(count);
        checkFilled(db, "v", 10_000, count);
        const left = await opened(fake.crashed(), {}, NAME);
        checkFilled(left, "v", 10_000, count);
        await left.close();
        await db.close();
      }
    });

    test(`a refused update, transaction and large value change nothing: ${style}`, async () => {
      const fake = new FakeStorage();
      const db = await opened(fake, {}, NAME);
      db.set("old", "value");
      limit(fake, 3 * MIB, full);
      const count = fill(db, "v", 10_000);
      fill(db, "w", 100);
      await turn();
      throws(() => db.updateIf("v0", () => filled(9_999, 1)), REFUSED);
      throws(() => db.set("v1", filled(10_000, 77)), REFUSED);
      throws(() => db.set("large", filled(2 * MIB, 1)), REFUSED);
      const both = () =>
        db.transaction(() => {
          db.set("old", "x");
          db.set("new", filled(10_000, 1));
        });
      throws(both, REFUSED);
      expect(db.getText("old")).toBe("value");
      expect([db.has("new"), db.has("large")]).toStrictEqual([false, false]);
      checkFilled(db, "v", 10_000, count);
      await db.close();
    });

    test(`after space is freed the database goes on as before: ${style}`, async () => {
      const fake = new FakeStorage();
      let db = await opened(fake, {}, NAME);
      limit(fake, 4 * MIB, full);
      const count = fill(db, "v", 10_000);
      for (let i = 0; i < 5; i++) expect(db.delete(`v${i}`)).toBe(true);
      db.commit();
      fake.fault = () => undefined;
      for (let i = 0; i < 5; i++) db.set(`v${i}`, filled(10_000, i));
      db.set("more", filled(2 * MIB, 1));
      await db.compact();
      db = await reopened(db, fake, NAME);
      expect(db.count()).toBe(count + 1);
      checkFilled(db, "v", 10_000, count);
      await db.close();
    });

    test(`all records can be deleted, compacted and written again: ${style}`, async () => {
      const fake = new FakeStorage();
      let db = await opened(fake, {}, NAME);
      limit(fake, 8 * MIB, full);
      const count = fill(db, "v", 10_000);
      assert(count > 400, `${count} values fitted`);
      db = await reopened(db, fake, NAME);
      for (let i = 0; i < count; i += 3) {
        expect(db.delete(`v${i}`)).toBe(true);
        db.commit();
      }
      await db.compact();
      for (let i = 0; i < count / 8; i++) {
        db.set(`w${i}`, filled(10_000, i));
        db.commit();
      }
      db = await reopened(db, fake, NAME);
      checkFilled(db, "w", 10_000, Math.ceil(count / 8));
      for (let i = 0; i < count; i++) expect(db.has(`v${i}`)).toBe(i % 3 !== 0);
      await db.close();
    });

    test(`many small records can all be deleted: ${style}`, async () => {
      const fake = new FakeStorage();
      let db = await opened(fake, {}, NAME);
      limit(fake, 6 * MIB, full);
      let count = 0;
      const refused = () => {
        for (; ; count++) db.set(`key ${count}`, "as short as can be");
      };
      throws(refused, REFUSED);
      await turn();
      count = db.count();
      assert(count > 30_000, `${count} records fitted`);
      for (const key of [...db.keys()]) expect(db.delete(key)).toBe(true);
      db.commit();
      expect(db.count()).toBe(0);
      db = await reopened(db, fake, NAME);
      expect(db.count()).toBe(0);
      db.set("after", filled(100_000, 1));
      db.flush();
      await db.close();
    });
  }

  test("the error says what to do", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake, {}, NAME);
    limit(fake, 2 * MIB, () => 0);
    throws(
      () => {
        for (let i = 0; ; i++) db.set(`v${i}`, filled(10_000, i));
      },
      { ...REFUSED, message: /Delete .*compact\(\).*stats\(\).*persist\(\)/ },
    );
    await turn();
    await db.close();
  });
});
