import type { Database, Storage } from "varve";
import { blob, desc, option, str, struct, u32 } from "varve/struct";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";
import { throws } from "../support/errors.js";
import { turn } from "../support/values.js";
import {
  checksum,
  DATA_START,
  HEADER,
  SEGMENT_MAGIC,
  SUPERBLOCK,
  seedAt,
} from "../vectors/layout.js";
import { FakeStorage, platform } from "./fake-storage.js";
import { SparseStorage } from "./sparse-storage.js";
import {
  everywhere,
  filled,
  freshName,
  opened,
  ownOrDetached,
  type Place,
  reopened,
  storages,
} from "./storages.js";

const MIB = 1_048_576;

/** The minimum memory, so that little data exceeds it. */
const LITTLE = { memory: MIB } as const;

const SIZE = 4_000;
const COUNT = 4_000;

const Item = struct("Item", { rank: u32, label: option(str), pad: blob });

const keyOf = (i: number) => `key ${i}`;
const byteOf = (i: number) => (i * 7) % 251;

/** Writes sixteen times the memory, in several turns. */
async function fill(db: Database, count = COUNT): Promise<void> {
  for (let i = 0; i < count; i++) {
    db.set(keyOf(i), filled(SIZE, byteOf(i)));
    if (i % 200 === 199) await turn();
  }
  db.flush();
  await turn();
}

function isRight(view: Uint8Array | undefined, i: number): boolean {
  return view?.length === SIZE && view[0] === byteOf(i) && view[SIZE - 1] === byteOf(i);
}

describe("opening a database of large values", () => {
  test("no values are read when opening after a close", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake);
    for (let i = 0; i < 20; i++) {
      db.set(keyOf(i), filled(4 * MIB - 4_096, i));
      db.flush();
      await turn();
    }
    await db.close();
    fake.calls.length = 0;
    const again = await opened(fake);
    const read = fake.calls.filter(({ op }) => op === "read");
    const bytes = read.reduce((sum, { length }) => sum + length, 0);
    assert(bytes < 4 * MIB && fake.content.length > 80 * MIB, `${bytes} of ${fake.content.length}`);
    for (let i = 0; i < 20; i += 9) expect(again.get(keyOf(i))?.[5]).toBe(i);
  });
});

describe("keys in order of a database larger than its memory", () => {
  test("keys of a range and of an index are listed without reading values", async () => {
    const fake = new FakeStorage();
    const items = (db: Database) =>
      db.collection("items", Item, { key: u32, indexes: { byRank: ["label", desc("rank")] } });
    const rankOf = (i: number) => (i * 1_663) % COUNT;
    let db = await opened(fake, LITTLE);
    for (let i = 0; i < COUNT; i++) {
      const rank = rankOf(i);
      items(db).set(i, { rank, label: i % 2 === 0 ? "a\0b" : undefined, pad: filled(SIZE, 1) });
      if (i % 200 === 199) await turn();
    }
    await db.close();
    db = await opened(fake, LITTLE);
    const { index } = items(db);
    const first = [...index.byRank.keys({ limit: 1 })];
    await turn();
    fake.calls.length = 0;
    const inOrder = [...items(db).keys()];
    const byRank = [...index.byRank.keys()];
    const bytes = fake.calls
      .filter(({ op }) => op === "read")
      .reduce((sum, { length }) => sum + length, 0);
    assert(bytes < fake.content.length / 16, `${bytes} of ${fake.content.length} bytes`);
    expect(inOrder).toStrictEqual(Array.from({ length: COUNT }, (_, i) => i));
    const expected = [...inOrder].sort((a, b) => (b % 2) - (a % 2) || rankOf(b) - rankOf(a));
    expect(byRank).toStrictEqual(expected);
    expect(first).toStrictEqual(expected.slice(0, 1));
  });

  test("an entry that was deleted or added during the walk over an index is passed over", async () => {
    const db = await opened(new FakeStorage(), LITTLE);
    const items = db.collection("items", Item, { key: u32, indexes: { byRank: "rank" } });
    const put = (i: number) => items.set(i, { rank: i, label: undefined, pad: filled(9, 1) });
    for (let i = 0; i < 90; i += 3) put(i);
    const seen: number[] = [];
    for (const key of items.index.byRank.keys()) {
      seen.push(key);
      if (key === 30) {
        items.delete(33);
        put(34);
        put(36);
      }
    }
    const expected = Array.from({ length: 30 }, (_, i) => 3 * i).filter((i) => i !== 33);
    expect(seen).toStrictEqual(expected);
  });
});

everywhere("a database larger than its memory", ({ storage }) => {
  test("every value is found, in any order, before and after reopening", async () => {
    const name = freshName();
    let db = await opened(storage, LITTLE, name);
    await fill(db);
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < COUNT; i++) assert(isRight(db.get(keyOf(i)), i), `${i} in order`);
      await turn();
      for (let i = 0; i < COUNT; i++) {
        const one = (i * 1_663) % COUNT;
        assert(isRight(db.get(keyOf(one)), one), `${one} out of order`);
        if (i % 100 === 99) await turn();
      }
      assert(db.stats().memoryBytes < 12 * MIB, `${db.stats().memoryBytes} bytes of memory`);
      db = await reopened(db, storage, name, LITTLE);
      expect(db.count()).toBe(COUNT);
    }
  });

  test("values are changed in place, resized and deleted", async () => {
    const name = freshName();
    let db = await opened(storage, LITTLE, name);
    await fill(db);
    for (let i = 0; i < COUNT; i += 3) {
      const change = (view: Uint8Array) => {
        view[1] = 252;
      };
      expect(db.updateIf(keyOf(i), change, { predicate: (view) => isRight(view, i) })).toBe(true);
      if (i % 50 === 0) await turn();
    }
    for (let i = 1; i < COUNT; i += 3) db.updateIf(keyOf(i), (view) => view.slice(0, 10));
    for (let i = 2; i < COUNT; i += 3) expect(db.delete(keyOf(i))).toBe(true);
    db = await reopened(db, storage, name, LITTLE);
    for (let i = 0; i < COUNT; i++) {
      const view = db.get(keyOf(i));
      if (i % 3 === 0) assert(isRight(view, i) && view?.[1] === 252, `${i}`);
      else if (i % 3 === 1) expect(view?.slice()).toStrictEqual(filled(10, byteOf(i)));
      else expect(view).toBe(undefined);
    }
  });

  test("1: the views of a turn are valid together as long as they fit in memory", async () => {
    const db = await opened(storage, LITTLE);
    await fill(db);
    const some = Array.from({ length: 60 }, (_, i) => i * 61);
    const views = some.map((i) => db.get(keyOf(i)));
    for (const [at, i] of some.entries()) assert(isRight(views[at], i), `${i}`);
  });

  test("1: views that exceed the memory live until the turn ends, and never show another's bytes", async () => {
    const db = await opened(storage, LITTLE);
    await fill(db);
    const views: Uint8Array[] = [];
    for (let i = 0; i < COUNT; i++) {
      const view = db.get(keyOf(i)) as Uint8Array;
      assert(isRight(view, i), `${i} at once`);
      views.push(view);
    }
    for (const [i, view] of views.entries()) {
      assert(view.length === SIZE && ownOrDetached(view, byteOf(i)), `${i} at the end`);
    }
    assert(db.stats().memoryBytes < 12 * MIB, `${db.stats().memoryBytes} bytes of memory`);
    await turn();
    for (const [i, view] of views.entries())
      assert(ownOrDetached(view, byteOf(i)), `${i} kept too long`);
  });

  test("2: views of earlier turns show their own record or are detached while memory is reused", async () => {
    const db = await opened(storage, LITTLE);
    await fill(db);
    const kept: [Uint8Array, number][] = [];
    for (let round = 0; round < 40; round++) {
      const i = (round * 997) % COUNT;
      kept.push([db.get(keyOf(i)) as Uint8Array, byteOf(i)]);
      for (let j = 0; j < 150; j++) db.get(keyOf((round * 150 + j) % COUNT));
      if (round % 3 === 0) for (let j = 0; j < 100; j++) db.set(`new ${j}`, filled(SIZE, 254));
      await turn();
      for (const [view, byte] of kept) assert(ownOrDetached(view, byte), `round ${round}`);
    }
  });

  test("6: memory is not reused during a callback: its view stays valid, whatever it reads", async () => {
    const db = await opened(storage, LITTLE);
    await fill(db);
    const update = () =>
      db.updateIf(keyOf(1), (view) => {
        view.fill(9);
        for (let i = 0; i < COUNT; i++) {
          expect(view.length).toBe(SIZE);
          assert(isRight(i === 1 ? filled(SIZE, byteOf(1)) : db.get(keyOf(i)), i), `${i}`);
        }
      });
    expect(update()).toBe(true);
    assert(ownOrDetached(db.get(keyOf(1)) as Uint8Array, 9), "the update was done");
    await turn();
    for (let i = 0; i < COUNT; i += 100) assert(isRight(db.get(keyOf(i)), i));
  });

  test("6: during a callback large values are read beside the one that is changed", async () => {
    const db = await opened(storage, LITTLE);
    const size = 2.5 * MIB;
    db.set("changed", filled(size, 1));
    db.set("other", filled(size, 2));
    db.set("small", filled(600_000, 3));
    await turn();
    db.updateIf("changed", (view) => {
      expect(db.get("other")?.slice()).toStrictEqual(filled(size, 2));
      expect(db.get("small")?.slice()).toStrictEqual(filled(600_000, 3));
      expect(view.length).toBe(size);
      view.fill(4);
    });
    expect(db.get("changed")?.slice()).toStrictEqual(filled(size, 4));
    expect(db.get("other")?.slice()).toStrictEqual(filled(size, 2));
  });

  test("6: a view of a cold record is a legal value while its memory is reused", async () => {
    const db = await opened(storage, LITTLE);
    await fill(db);
    for (let i = 0; i < 1_500; i++) db.set(`copy ${i}`, db.get(keyOf(i)) as Uint8Array);
    for (let i = 0; i < 1_500; i++) assert(isRight(db.get(`copy ${i}`), i), `${i}`);
  });

  test("7: strict views report no lawful use", async () => {
    const reported: Error[] = [];
    const onError = (error: Error) => reported.push(error);
    const db = await opened(storage, { ...LITTLE, strictViews: true, onError });
    await fill(db, 2_500);
    for (let i = 0; i < 2_500; i++) {
      assert(isRight(db.get(keyOf(i)), i));
      if (i % 5 === 0) db.updateIf(keyOf(i), () => {});
      if (i % 400 === 0) await turn();
    }
    await turn();
    expect(reported).toStrictEqual([]);
  });

  test("large values that one turn writes and rolls back stay within the memory", async () => {
    const db = await opened(storage, LITTLE);
    db.set("kept", filled(SIZE, 1));
    const large = filled(MIB, 2);
    for (let round = 0; round < 60; round++) {
      const undone = () =>
        db.transaction(() => {
          db.set("large", large);
          throw new Error("undone");
        });
      throws(undone, { message: "undone" });
      const { memoryBytes } = db.stats();
      assert(memoryBytes < 12 * MIB, `${memoryBytes} bytes in round ${round}`);
    }
    expect(db.has("large")).toBe(false);
    expect(db.get("kept")?.slice()).toStrictEqual(filled(SIZE, 1));
  });

  test("a transaction larger than the memory is rolled back", async () => {
    const db = await opened(storage, LITTLE);
    await fill(db, 1_500);
    throws(() =>
      db.transaction(() => {
        for (let i = 0; i < 3_000; i++) db.set(keyOf(i), filled(SIZE, 253));
        throw new Error("undone");
      }),
    );
    expect(db.count()).toBe(1_500);
    for (let i = 0; i < 1_500; i++) assert(isRight(db.get(keyOf(i)), i), `${i}`);
  });
});

// The debug build handles the same numbers, and is slow. Vitest refuses a suite without tests.
const inRelease = context().build === "debug" ? () => undefined : everywhere;

inRelease("a file of more than 4 GiB", ({ storage: usual, name: place }) => {
  // memory() would need too much memory for the zeros.
  const storage: Storage = place === "memory" ? new SparseStorage() : usual;
  const SLOTS = 4_200;
  const GIB = 1_024 * MIB;

  /**
   * Takes up the next slots by a header of an unknown kind. The engine leaves such slots alone, so all further writes
   * are behind them, and most of the file is a hole.
   */
  async function occupy(name: string): Promise<void> {
    const { file } = await storage.open(name);
    const slot = Math.ceil((file.getSize() - DATA_START) / MIB);
    const at = DATA_START + slot * MIB;
    const superblock = new DataView(new ArrayBuffer(SUPERBLOCK));
    file.read(new Uint8Array(superblock.buffer), { at: 0 });
    const header = new Uint8Array(HEADER);
    const fields = new DataView(header.buffer);
    header.set(SEGMENT_MAGIC, 8);
    fields.setUint8(12, 99);
    fields.setUint32(16, 1_000, true);
    fields.setUint32(20, slot, true);
    fields.setUint32(56, SLOTS, true);
    const seed = seedAt(superblock.getBigUint64(40, true), at);
    fields.setBigUint64(0, await checksum(header.subarray(8), seed), true);
    file.write(header, { at });
    // Not by a write at the end, because a file storage would fill the gap with zeros.
    file.truncate(at + SLOTS * MIB);
    file.close();
  }

  test("records above 4 GiB are read, changed and found again", async () => {
    const name = freshName();
    let db = await opened(storage, LITTLE, name);
    db.set("below", "below");
    await db.close();
    await occupy(name);
    db = await opened(storage, LITTLE, name);
    await fill(db, 2_000);
    const large = Uint8Array.from({ length: 3 * MIB }, (_, i) => (i * 7) % 253);
    db.set("large", large);
    db.flush();
    assert(db.stats().fileBytes > 4.1 * GIB, `${db.stats().fileBytes} bytes`);
    for (let i = 0; i < 2_000; i++) {
      const one = (i * 663) % 2_000;
      assert(isRight(db.get(keyOf(one)), one), `${one}`);
      if (i % 100 === 0) await turn();
    }
    for (let i = 0; i < 2_000; i += 3) {
      db.updateIf(keyOf(i), (view) => {
        view[1] = 252;
      });
      db.delete(keyOf(i + 2));
    }
    db = await reopened(db, storage, name, LITTLE);
    expect(db.count()).toBe(1_336);
    expect([...db.keys({ prefix: "key " })].length).toBe(1_334);
    for (let i = 0; i < 2_000; i++) {
      const view = db.get(keyOf(i));
      if (i % 3 === 2) expect(view).toBe(undefined);
      else assert(isRight(view, i) && view?.[1] === (i % 3 === 0 ? 252 : byteOf(i)), `${i}`);
    }
    expect(db.get("large")?.slice()).toStrictEqual(large);
    expect(db.getText("below")).toBe("below");
    await db.close();
    await storage.destroy?.(name);
  });
});

describe("scans of many keys", () => {
  const { build, thorough, long } = context();
  const FEW = build === "debug" ? 20_000 : 200_000;
  // Their index takes more than the memory.
  const MANY = long ? 10_000_000 : thorough ? 2_000_000 : FEW;
  // In a file, if the runtime has files: memory() would need the memory twice.
  const { storage } = storages().at(-1) as Place;

  const keyAt = (i: number) => Uint8Array.of(i >>> 24, i >>> 16, i >>> 8, i);
  const numberOf = (bytes: Uint8Array) => new DataView(bytes.buffer, bytes.byteOffset).getUint32(0);

  test(`${MANY} keys are scanned in order, both ways, in bounded memory`, {
    timeout: 400_000,
  }, async () => {
    const name = freshName();
    const db = await opened(storage, { memory: 16 * MIB }, name);
    const [key, value] = [new Uint8Array(4), new Uint8Array(4)];
    for (let i = 0; i < MANY; i++) {
      key.set(keyAt(i));
      value.set(key);
      db.set(key, value);
      if (i % 20_000 === 0) await turn();
    }
    await turn();
    // The first range sorts all keys; later ones allocate nothing.
    expect(db.count({ gte: keyAt(MANY >> 1) })).toBe(MANY - (MANY >> 1));
    await turn();
    const { wasmBytes, budgetBytes, records } = db.stats();
    expect(records).toBe(MANY);
    const checkMemory = () => {
      const now = db.stats();
      expect(now.wasmBytes, "all memory").toBe(wasmBytes);
      assert(now.memoryBytes <= 1.25 * budgetBytes, `${now.memoryBytes} bytes`);
    };
    let next = 0;
    for (const found of db.keys({ keyAs: "bytes" })) {
      if (numberOf(found) !== next) expect(numberOf(found)).toBe(next);
      next += 1;
      if (next % (MANY / 10) === 0) checkMemory();
    }
    expect(next).toBe(MANY);
    for (const found of db.keys({ keyAs: "bytes", reverse: true })) {
      next -= 1;
      if (numberOf(found) !== next) expect(numberOf(found)).toBe(next);
    }
    expect(next).toBe(0);
    const from = MANY >> 2;
    for (const [found, view] of db.entries({ keyAs: "bytes", gte: keyAt(from), limit: 20_000 })) {
      expect(numberOf(found)).toBe(from + next);
      expect(numberOf(view)).toBe(from + next);
      next += 1;
    }
    expect(next).toBe(Math.min(20_000, MANY - from));
    await turn();
    checkMemory();
    await db.close();
    await storage.destroy?.(name);
  });
});

describe("cold records", () => {
  async function cold(): Promise<{ fake: FakeStorage; db: Database }> {
    const fake = new FakeStorage();
    const db = await opened(fake, LITTLE);
    await fill(db);
    await turn(150);
    return { fake, db };
  }

  test("a failed read throws in its call, and the record is read later", async () => {
    const { fake, db } = await cold();
    fake.fault = ({ op }) => (op === "read" ? platform.io() : undefined);
    const failed = { name: "StorageError", cause: true };
    throws(() => db.get(keyOf(3)), failed);
    throws(() => db.getText(keyOf(3)), failed);
    throws(() => db.updateIf(keyOf(3), () => {}), failed);
    fake.fault = () => undefined;
    assert(isRight(db.get(keyOf(3)), 3));
    db.set("goes on", "1");
    await db.flushed;
  });

  test("a record damaged in the file throws, and never returns wrong bytes", async () => {
    const { fake, db } = await cold();
    const place = findValue(fake.content, byteOf(5));
    fake.content[place + 2_000] = 255;
    throws(() => db.get(keyOf(5)), { name: "CorruptionError", code: "VARVE_CORRUPTION" });
    assert(isRight(db.get(keyOf(6)), 6));
    fake.content[place + 2_000] = byteOf(5);
    assert(isRight(db.get(keyOf(5)), 5));
  });
});

describe("values in extents", () => {
  const SIZE = 4 * MIB + 3;
  const MOST = 256 * 1_024;

  test("a value is written in chunks of at most 256 KiB, and read back in those", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake, LITTLE);
    const value = Uint8Array.from({ length: SIZE }, (_, i) => (i * 31) % 255);
    fake.forget();
    db.set("large", value);
    const writes = fake.calls.filter(({ op }) => op === "write");
    assert(writes.length > 16, `${writes.length} writes`);
    assert(writes.every(({ length }) => length <= MOST));
    await turn();
    // Other records evict it, so that it is read from the file.
    for (let i = 0; i < 8; i++) db.set(`other ${i}`, filled(2 * MIB, i));
    await turn();
    fake.forget();
    expect(db.get("large")?.slice()).toStrictEqual(value);
    assert(fake.count("read") > 0, "it was in memory");
    assert(db.stats().memoryBytes < 14 * MIB, `${db.stats().memoryBytes} bytes`);
  });

  test("a value shows nothing of what its memory held before, nor does the file", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake, LITTLE);
    const dirty = async () => {
      for (let i = 0; i < 6; i++) db.set(`before ${i}`, filled(SIZE + 5, 255));
      await turn();
    };
    await dirty();
    db.set("large", filled(SIZE, 7));
    await dirty();
    const end = findValue(fake.content, 7) + SIZE;
    expect(fake.content.slice(end, end + 5), "it is padded with zeros").toStrictEqual(filled(5, 0));
    fake.forget();
    // The file ends before the last byte, which memory may still have had.
    fake.fault = ({ op, length }) => (op === "read" ? length - 1 : undefined);
    throws(() => db.get("large"), { name: "CorruptionError", code: "VARVE_CORRUPTION" });
    assert(fake.calls.some(({ op, length }) => op === "read" && length === SIZE));
    fake.fault = () => undefined;
    expect(db.get("large")?.slice()).toStrictEqual(filled(SIZE, 7));
  });

  /** The ways in which a platform reports a full disk. Each write of a value fails in each of them. */
  const faults: [string, (length: number) => number | Error][] = [
    ["thrown", () => platform.quota()],
    ["reported by a short count", (length) => length >> 1],
    ["reported by a count of nothing", () => 0],
  ];
  for (const [style, fault] of faults) {
    test(`a disk that fills up half way leaves no value, and its space is reused, ${style}`, async () => {
      const fake = new FakeStorage();
      const db = await opened(fake, LITTLE);
      db.set("large", filled(SIZE, 1));
      db.set("small", "small");
      await turn();
      // The debug build has the same behavior, and takes three times as long.
      const all = [0, 1, 2, 3, 10, 17, 18, 19];
      for (const failing of context().build === "debug" ? [0, 10, 19] : all) {
        let seen = 0;
        fake.fault = ({ op, length }) =>
          op === "write" && seen++ === failing ? fault(length) : undefined;
        throws(() => db.set("large", filled(SIZE, 2)), { name: "QuotaExceededError" });
        fake.fault = () => undefined;
        assert(ownOrDetached(db.get("large") as Uint8Array, 1) && db.get("large")?.length === SIZE);
        const left = await opened(fake.crashed(), LITTLE);
        expect(left.recovery.tornBytes, `write ${failing} left something that counts`).toBe(0);
        expect(left.get("large")?.slice()).toStrictEqual(filled(SIZE, 1));
        expect(left.getText("small")).toBe("small");
        expect(left.count()).toBe(2);
        await left.close();
        await turn();
      }
      db.set("large", filled(SIZE, 3));
      const { fileBytes, memoryBytes } = db.stats();
      assert(fileBytes < 20 * MIB, `${fileBytes} bytes of file after failures`);
      assert(memoryBytes < 14 * MIB, `${memoryBytes} bytes of memory after failures`);
      await turn();
      const left = await opened(fake.crashed(), LITTLE);
      expect(left.get("large")?.slice()).toStrictEqual(filled(SIZE, 3));
    });
  }
});

/** The position of the first value with these bytes in a file. */
function findValue(content: Uint8Array, byte: number): number {
  const wanted = filled(64, byte);
  for (let at = 0; at < content.length; at += 8) {
    if (wanted.every((one, i) => content[at + i] === one)) return at;
  }
  throw new Error("the value is not in the file");
}
