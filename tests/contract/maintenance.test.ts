import type { Database } from "varve";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";
import { rejects } from "../support/errors.js";
import { turn } from "../support/values.js";
import { FakeStorage } from "./fake-storage.js";
import { everywhere, filled, freshName, opened, reopened } from "./storages.js";

const MIB = 1_048_576;
const keyOf = (i: number) => `key ${i}`;

/** Lets timers run, and with them maintenance slices. */
const pause = (ms = 5) => new Promise<void>((resolve) => setTimeout(resolve, ms));

async function settled(db: Database): Promise<void> {
  for (let last = -1; last !== db.stats().fileBytes; ) {
    last = db.stats().fileBytes;
    await pause(60);
  }
}

function isRight(db: Database, i: number, fill: number): boolean {
  const view = db.get(keyOf(i));
  return view?.length === 1_000 && view[0] === fill % 256 && view[999] === fill % 256;
}

everywhere("maintenance of a file", ({ storage }) => {
  test("overwriting the same keys stays within the space bound, and keeps the last values", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    // 4,000 records of 1,048 bytes live. Two checkpoints of a segment each come on top, and four
    // segments; all are whole.
    const bound = (Math.ceil((1.5 * 4_000 * 1_048) / MIB) + 6) * MIB + 8_192;
    let largest = 0;
    for (let round = 0; round < 12; round++) {
      for (let i = 0; i < 4_000; i++) db.set(keyOf(i), filled(1_000, round));
      await pause();
      largest = Math.max(largest, db.stats().fileBytes);
    }
    await settled(db);
    const { liveBytes, fileBytes } = db.stats();
    assert(fileBytes <= bound, `${fileBytes} bytes for ${liveBytes}`);
    assert(largest <= bound, `${largest} bytes at most`);
    db = await reopened(db, storage, name);
    for (let i = 0; i < 4_000; i++) assert(isRight(db, i, 11), `${i} is right`);
    expect(db.count()).toBe(4_000);
    await db.close();
  });

  test("writing everything in one turn stays within the space bound", async () => {
    const name = freshName();
    const db = await opened(storage, {}, name);
    for (let round = 0; round < 12; round++) {
      for (let i = 0; i < 4_000; i++) db.set(keyOf(i), filled(1_000, round));
    }
    const { liveBytes, fileBytes } = db.stats();
    assert(fileBytes <= 2 * liveBytes + 8 * MIB, `${fileBytes} bytes for ${liveBytes}`);
    for (let i = 0; i < 4_000; i++) assert(isRight(db, i, 11), `${i} is right`);
    await db.close();
  });

  test("large values move to free space, and the file is truncated behind them", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    const large = (i: number) => filled(2 * MIB + i * 1_001, i);
    for (let i = 0; i < 12; i++) db.set(keyOf(i), large(i));
    await db.flush();
    for (let i = 0; i < 10; i++) db.delete(keyOf(i));
    await db.compact();
    const { fileBytes } = db.stats();
    // Three segments each.
    assert(fileBytes <= 1.5 * 2 * 3 * MIB + 6 * MIB + 8_192, `${fileBytes} bytes`);
    for (const i of [10, 11]) expect(db.get(keyOf(i))).toStrictEqual(large(i));
    db = await reopened(db, storage, name);
    for (const i of [10, 11]) expect(db.get(keyOf(i))).toStrictEqual(large(i));
    await db.close();
  });

  test("overwriting large values, in many turns or in one, does not grow the file", async () => {
    const db = await opened(storage, {}, freshName());
    let largest = 0;
    const overwrite = (i: number) => {
      db.set(keyOf(i % 5), filled(1_900_000, i));
      db.commit();
      largest = Math.max(largest, db.stats().fileBytes);
    };
    for (let i = 0; i < 40; i++) {
      overwrite(i);
      await turn();
    }
    for (let i = 40; i < 80; i++) overwrite(i);
    // Five values of two segments each live.
    assert(largest <= 2 * 10 * MIB + 8 * MIB, `${largest} bytes at most`);
    for (let i = 75; i < 80; i++) {
      const view = db.get(keyOf(i % 5));
      assert(view?.length === 1_900_000 && view[0] === i && view[1_899_999] === i, `${i} is right`);
    }
    await db.close();
  });

  test("deleting most of the data shrinks the file, and deleted keys stay deleted", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    for (let i = 0; i < 12_000; i++) db.set(keyOf(i), filled(1_000, i));
    db.set("large", filled(3 * MIB, 1));
    db.flush();
    const before = db.stats().fileBytes;
    for (let i = 0; i < 12_000; i++) if (i % 100 !== 0) db.delete(keyOf(i));
    db.delete("large");
    await turn();
    await db.compact();
    const after = db.stats().fileBytes;
    assert(before > 14 * MIB && after < 6 * MIB, `${before} bytes became ${after}`);
    db = await reopened(db, storage, name);
    expect(db.count()).toBe(120);
    for (let i = 0; i < 12_000; i++) expect(db.has(keyOf(i))).toBe(i % 100 === 0);
    expect(db.has("large")).toBe(false);
    await db.close();
  });

  test("space that an earlier session left free is reclaimed", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    for (let i = 0; i < 8; i++) db.set(keyOf(i), filled(2 * MIB, i));
    db.flush();
    for (let i = 0; i < 7; i++) db.delete(keyOf(i));
    // The last value lies behind the space of the others, which there is no time to reclaim.
    db = await reopened(db, storage, name);
    const before = db.stats().fileBytes;
    db.delete(keyOf(7));
    await turn();
    await db.compact();
    const after = db.stats().fileBytes;
    assert(before > 18 * MIB && after < 6 * MIB, `${before} bytes became ${after}`);
    await db.close();
  });

  test("opening from a checkpoint equals opening from the whole log", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    for (let i = 0; i < 5_000; i++) db.set(keyOf(i), filled(1_000, i));
    const version = db.getEntry(keyOf(77))?.version;
    db = await reopened(db, storage, name);
    expect(db.recovery.fromCheckpoint).toBe(true);
    assert(db.recovery.replayedFrames < 3);
    expect(db.getEntry(keyOf(77))?.version).toBe(version);
    expect(db.count()).toBe(5_000);
    expect(db.count({ prefix: "key 1" })).toBe(1_111);
    for (let i = 0; i < 5_000; i += 3) db.delete(keyOf(i));
    db.set("new", "value");
    db = await reopened(db, storage, name);
    for (let i = 0; i < 5_000; i++) expect(db.has(keyOf(i))).toBe(i % 3 !== 0);
    expect([...db.keys()].length).toBe(5_000 - 1_667 + 1);
    await db.close();
  });

  test("compact runs while the database is read, written, iterated and pinned", async () => {
    const db = await opened(storage, {}, freshName());
    for (let i = 0; i < 6_000; i++) db.set(keyOf(i), filled(1_000, i));
    await turn();
    for (let i = 0; i < 6_000; i += 2) db.set(keyOf(i), filled(1_000, i + 1));
    await turn();
    const lease = db.pin(keyOf(1));
    const seen: string[] = [];
    const keys = db.keys()[Symbol.iterator]();
    let reported = 0;
    let writes = 0;
    const compacted = db.compact({
      onProgress({ fileBytes, liveBytes }) {
        reported += 1;
        assert(fileBytes > 0 && liveBytes > 6_000_000);
        const next = keys.next();
        if (next.done !== true) seen.push(next.value);
        writes += 1;
        db.set(keyOf(writes % 6_000), filled(1_000, 200));
      },
    });
    await compacted;
    assert(reported > 0 && writes > 0);
    for (let next = keys.next(); next.done !== true; next = keys.next()) seen.push(next.value);
    expect(new Set(seen).size).toBe(6_000);
    expect(lease?.bytes.slice(0, 2)).toStrictEqual(new Uint8Array([1, 1]));
    lease?.[Symbol.dispose]();
    for (let i = 0; i < 6_000; i++) {
      const fill = i >= 1 && i <= writes ? 200 : i % 2 === 0 ? i + 1 : i;
      assert(isRight(db, i, fill), `${i} is right`);
    }
    await db.close();
  });

  test("compact stops on request without losing anything", async () => {
    const name = freshName();
    let db = await opened(storage, {}, name);
    for (let i = 0; i < 6_000; i++) db.set(keyOf(i), filled(1_000, 7));
    await turn();
    for (let i = 0; i < 6_000; i += 2) db.delete(keyOf(i));
    const stop = new AbortController();
    const reason = new Error("enough");
    const onProgress = () => stop.abort(reason);
    expect(
      await rejects(db.compact({ onProgress, signal: stop.signal }), { message: "enough" }),
    ).toBe(reason);
    await rejects(db.compact({ signal: stop.signal }), { message: "enough" });
    db = await reopened(db, storage, name);
    for (let i = 0; i < 6_000; i++) expect(db.has(keyOf(i))).toBe(i % 2 === 1);
    await db.close();
  });
});

describe("maintenance", () => {
  test("compact() refuses unknown options", async () => {
    const db = await opened(new FakeStorage());
    const wrong = { onProgres: () => {} } as object;
    await rejects(db.compact(wrong), { message: /"onProgres".*onProgress, signal/ });
    await db.close();
    await rejects(db.compact(), { message: /closed/ });
  });

  test("spaceFactor is a number from 1.2 to 3", async () => {
    for (const spaceFactor of [1, 3.1, Number.NaN, "1.5" as unknown as number]) {
      await rejects(opened(new FakeStorage(), { spaceFactor }), { message: /from 1.2 to 3/ });
    }
  });

  test("a crash at any moment loses nothing", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake);
    const crashes: FakeStorage[] = [];
    for (let i = 0; i < 4_000; i++) db.set(keyOf(i), filled(1_000, i));
    await turn();
    for (let i = 0; i < 4_000; i += 2) db.set(keyOf(i), filled(1_000, i + 1));
    await turn();
    await db.compact({ onProgress: () => crashes.push(fake.crashed()) });
    await db.close();
    crashes.push(fake.crashed());
    assert(crashes.length > 2);
    // The debug build has the same behavior, and takes five times as long.
    const step = context().build === "debug" ? 5 : 1;
    for (const left of crashes.reverse().filter((_, i) => i % step === 0)) {
      const again = await opened(left);
      expect(again.count()).toBe(4_000);
      for (let i = 0; i < 4_000; i++)
        assert(isRight(again, i, i % 2 === 0 ? i + 1 : i), `${i} is right`);
      await again.close();
    }
  });
});
