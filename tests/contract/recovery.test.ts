import type { Database, OpenOptions, Problem } from "varve";
import { assert, describe, expect, test } from "vitest";
import { rejects } from "../support/errors.js";
import { turn } from "../support/values.js";
import { FakeStorage } from "./fake-storage.js";
import { everywhere, filled, opened } from "./storages.js";

const DATA = 8_192;
const KEYS = 40;
const keyOf = (i: number) => `key ${i}`;
const bytesOf = (i: number, round: number) => filled(200, (i + 100 * round) % 256);

/** A closed database whose keys were set with one flush each, the first half of them twice. */
async function written(): Promise<FakeStorage> {
  const fake = new FakeStorage();
  const db = await opened(fake);
  for (let i = 0; i < KEYS; i++) {
    db.set(keyOf(i), bytesOf(i, 0));
    db.flush();
  }
  for (let i = 0; i < KEYS / 2; i++) {
    db.set(keyOf(i), bytesOf(i, 1));
    db.flush();
  }
  db.delete(keyOf(KEYS - 1));
  await db.close();
  return fake;
}

/** The offset of the last copy of a key's value. */
function lastOf(fake: FakeStorage, i: number, round: number): number {
  const byte = bytesOf(i, round)[0] as number;
  for (let at = fake.content.length - 200; at >= DATA; at--) {
    if (fake.content.subarray(at, at + 200).every((other) => other === byte)) return at;
  }
  throw new Error(`${keyOf(i)} does not stand in the file`);
}

function flip(fake: FakeStorage, at: number): void {
  fake.content[at] = (fake.content[at] as number) ^ 0x10;
}

function shows(db: Database, i: number, round: number): boolean {
  const view = db.get(keyOf(i));
  return view !== undefined && deepEquals(view, bytesOf(i, round));
}

function deepEquals(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}

/** Opens a copy, so that the original can be opened in other ways. */
async function openedCopy(
  fake: FakeStorage,
  options: OpenOptions,
): Promise<[Database, FakeStorage]> {
  const copy = fake.crashed();
  return [await opened(copy, options), copy];
}

describe("damaged databases", () => {
  test("open throws an error that says what is intact, and names both recovery options", async () => {
    const fake = await written();
    // The second writing of key 10 is the 51st commit.
    flip(fake, lastOf(fake, 10, 1));
    const error = await rejects(opened(fake), { name: "CorruptionError" });
    assert(
      /recovery: "prefix", it has the 40 keys of version 50/.test(error.message),
      error.message,
    );
    assert(error.message.includes('recovery: "salvage"'), error.message);
    const details = Reflect.get(error, "details") as { before: unknown; expectedFrame: number };
    expect(details.before).toStrictEqual({ keys: 40, version: 50 });
  });

  test('recovery: "prefix" opens the state after the last commit before the damage', async () => {
    const fake = await written();
    flip(fake, lastOf(fake, 10, 1));
    const [db] = await openedCopy(fake, { recovery: "prefix" });
    expect(db.count()).toBe(KEYS);
    for (let i = 0; i < KEYS; i++) assert(shows(db, i, i < 10 ? 1 : 0), keyOf(i));
    assert((db.recovery.lost?.frames ?? 0) >= 10);
    expect(db.recovery.lost?.keys).toBe(0);
    expect(db.recovery.wasClean).toBe(false);
    assert(!db.getEntry(keyOf(0))?.uncertain);
  });

  test('recovery: "salvage" keeps all intact data, and marks each uncertain key', async () => {
    const fake = await written();
    flip(fake, lastOf(fake, 10, 1));
    const [db] = await openedCopy(fake, { recovery: "salvage" });
    expect(db.count()).toBe(KEYS - 1);
    for (let i = 0; i < KEYS - 1; i++) {
      const uncertain = db.getEntry(keyOf(i))?.uncertain;
      // It is unknown which keys the lost commit changed. Another commit after it may be its end.
      expect(uncertain, keyOf(i)).toBe(i < 12 || i >= KEYS / 2);
      assert(shows(db, i, i < KEYS / 2 && i !== 10 ? 1 : 0), keyOf(i));
    }
    expect(db.recovery.lost?.frames).toBe(1);
    expect(db.recovery.lost?.uncertainKeys).toBe(31);
  });

  test("a recovered database opens again, and keys stay uncertain until they are set", async () => {
    for (const recovery of ["prefix", "salvage"] as const) {
      const fake = await written();
      flip(fake, lastOf(fake, 10, 1));
      let [db, copy] = await openedCopy(fake, { recovery });
      const before = [...db.keys()].map((key) => [
        key,
        db.getText(key),
        db.getEntry(key)?.uncertain,
      ]);
      db.set(keyOf(3), "new");
      expect(db.getEntry(keyOf(3))?.uncertain).toBe(false);
      await db.close();
      [db, copy] = [await opened(copy), copy];
      expect(db.recovery.lost).toBe(undefined);
      expect(db.recovery.wasClean).toBe(true);
      const after = [...db.keys()].map((key) => [
        key,
        db.getText(key),
        db.getEntry(key)?.uncertain,
      ]);
      const changed = before.map((row) => (row[0] === keyOf(3) ? [keyOf(3), "new", false] : row));
      expect(after).toStrictEqual(changed);
      assert((await db.verify()).ok);
    }
  });

  test("the space of damaged data is freed, and the database goes on", async () => {
    const fake = await written();
    flip(fake, lastOf(fake, 10, 1));
    const [db, copy] = await openedCopy(fake, { recovery: "salvage" });
    await db.compact();
    // Live data and the tail take a segment each, and the reserve takes two.
    assert(db.stats().fileBytes <= DATA + 4 * 1_048_576, `${db.stats().fileBytes}`);
    for (let i = 0; i < KEYS; i++) db.set(keyOf(i), bytesOf(i, 2));
    await db.close();
    const again = await opened(copy);
    for (let i = 0; i < KEYS; i++) assert(shows(again, i, 2), keyOf(i));
  });

  test("recovery with readOnly leaves the file the same byte for byte", async () => {
    for (const recovery of ["prefix", "salvage"] as const) {
      const fake = await written();
      flip(fake, lastOf(fake, 10, 1));
      const before = fake.content.slice();
      const db = await opened(fake, { recovery, readOnly: true });
      assert(db.recovery.lost !== undefined);
      assert(shows(db, 5, 1));
      await db.close();
      expect(fake.content).toStrictEqual(before);
    }
  });

  test("a file without its superblocks is salvaged completely", async () => {
    const fake = await written();
    fake.content.fill(0, 0, DATA);
    await rejects(opened(fake), { name: "UnsupportedFormatError", message: /recovery: "salvage"/ });
    await rejects(opened(fake, { recovery: "prefix" }), { name: "UnsupportedFormatError" });
    const db = await opened(fake, { recovery: "salvage" });
    expect(db.count()).toBe(KEYS - 1);
    for (let i = 0; i < KEYS - 1; i++) {
      assert(shows(db, i, i < KEYS / 2 ? 1 : 0), keyOf(i));
      expect(db.getEntry(keyOf(i))?.uncertain).toBe(false);
    }
    expect(db.recovery.lost).toStrictEqual({ frames: 0, bytes: 0, keys: 0, uncertainKeys: 0 });
  });

  test("recovery on a full disk is refused, and changes nothing", async () => {
    const fake = await written();
    flip(fake, lastOf(fake, 10, 1));
    const before = fake.content.slice();
    fake.fault = ({ op }) =>
      op === "write" ? new DOMException("full", "QuotaExceededError") : undefined;
    await rejects(opened(fake, { recovery: "salvage" }), { name: "QuotaExceededError" });
    expect(fake.content).toStrictEqual(before);
    fake.fault = () => undefined;
    expect((await opened(fake, { recovery: "salvage" })).count()).toBe(KEYS - 1);
  });

  test("recovery refuses other values", async () => {
    const wrong = { recovery: "repair" } as unknown as OpenOptions;
    await rejects(opened(new FakeStorage(), wrong), { name: "TypeError", message: /recovery/ });
  });
});

everywhere("verification", ({ storage }) => {
  test("verify reads the whole file, reports progress, and finds no problems in an intact database", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 3_000; i++) db.set(keyOf(i), bytesOf(i, 0));
    for (let i = 0; i < 1_000; i++) db.delete(keyOf(i));
    db.set("large", filled(700_000, 7));
    db.set("not committed", "yet");
    let last = 0;
    const found = await db.verify({
      onProgress: ({ bytes, total }) => {
        assert(bytes >= last && bytes <= total);
        last = bytes;
      },
    });
    expect(found.problems).toStrictEqual([]);
    expect(found.ok).toBe(true);
    assert(found.bytes > 1_500_000 && last > 1_000_000);
    assert(found.segments >= 2 && found.frames > 3 && found.records >= 4_001);
    await db.compact();
    assert((await db.verify()).ok);
  });

  test("verify runs while the database is written to", async () => {
    const db = await opened(storage);
    for (let i = 0; i < 20_000; i++) db.set(keyOf(i), bytesOf(i, 0));
    let round = 0;
    const found = await db.verify({
      onProgress: () => {
        round += 1;
        for (let i = 0; i < 2_000; i++) db.set(keyOf(i), bytesOf(i, round));
      },
    });
    expect(found.problems).toStrictEqual([]);
    assert(round > 1);
  });

  test("verify ends when its signal is aborted", async () => {
    const db = await opened(storage);
    db.set("a", "1");
    const reason = new Error("enough");
    await rejects(db.verify({ signal: AbortSignal.abort(reason) }), { message: "enough" });
    await rejects(db.verify({ slow: true } as object), { name: "TypeError" });
  });
});

describe("verification of damaged files", () => {
  test("verify reports damage to the file of an open database, and throws nothing", async () => {
    const fake = await written();
    const db = await opened(fake);
    const at = lastOf(fake, 10, 1);
    const damages: [number, Problem["what"]][] = [
      [100, "superblock"],
      [4_096 + 100, "superblock"],
      [DATA + 20, "header"],
      [DATA + 1_048_576 - 20, "header"],
      [at, "frame"],
      [DATA + 900_000, "zeros"],
    ];
    for (const [place, what] of damages) {
      flip(fake, place);
      const { ok: isOk, problems } = await db.verify();
      flip(fake, place);
      expect(isOk).toBe(false);
      expect(problems.length).toBe(1);
      expect(problems[0]?.what).toBe(what);
      const { offset, length } = problems[0] as Problem;
      assert(
        offset <= place && place < offset + length,
        `${place} is not in ${offset} to +${length}`,
      );
    }
    assert((await db.verify()).ok);
  });

  test("verify reports nothing after a power loss, before and after writes", async () => {
    for (const lost of [DATA, DATA + 1_048_576 - 64, 4_096]) {
      const fake = new FakeStorage();
      const db = await opened(fake);
      await turn();
      db.set("a", "1");
      db.commit();
      // The power fails here: a sector of the unflushed writes is lost.
      const copy = new FakeStorage();
      copy.content = fake.content.slice();
      copy.content.fill(0, lost, lost + 64);
      const isSuperblock = lost === 4_096;
      if (isSuperblock) copy.content.fill(0, lost, lost + 256);
      for (const readOnly of [true, false]) {
        const again = await opened(copy, { readOnly });
        expect(again.getText("a")).toBe("1");
        expect((await again.verify()).problems).toStrictEqual([]);
        if (!readOnly) {
          again.set("b", "2");
          again.flush();
          expect((await again.verify()).problems).toStrictEqual([]);
          await again.compact();
          expect((await again.verify()).problems).toStrictEqual([]);
        }
        await again.close();
      }
      const last = await opened(copy);
      expect((await last.verify()).problems).toStrictEqual([]);
      expect(last.getText("b")).toBe("2");
      // From here on it counts as damage.
      await last.close();
      flip(copy, DATA + 20);
      expect((await (await opened(copy)).verify()).problems.map(({ what }) => what)).toStrictEqual([
        "header",
      ]);
    }
  });

  test("a damaged part of a large checkpoint is replaced by the log when it is read", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake);
    for (let i = 0; i < 40_000; i++) db.set(`key ${i}`, `${i}`);
    await db.close();
    const magic = new TextEncoder().encode("VCP5");
    let head = DATA;
    while (!magic.every((byte, i) => fake.content[head + 8 + i] === byte)) head += 64;
    // Far behind the head, in its blocks of hashes and positions.
    flip(fake, head + 200_000);
    const again = await opened(fake);
    const view = again.get("key 7") as Uint8Array;
    let held = 0;
    for (let i = 0; i < 40_000; i++) {
      try {
        expect(again.getText(`key ${i}`)).toBe(`${i}`);
      } catch (error) {
        // The replay needs memory, and a program that holds views gets it in the next turn.
        expect((error as { code?: string }).code).toBe("VARVE_OUT_OF_MEMORY");
        held += 1;
      }
    }
    assert(held < 20_000, `${held} reads were refused`);
    expect(new TextDecoder().decode(view)).toBe("7");
    await turn();
    for (let i = 0; i < 40_000; i++) expect(again.getText(`key ${i}`)).toBe(`${i}`);
    await again.close();
    const last = await opened(fake);
    expect((await last.verify()).problems).toStrictEqual([]);
    expect(last.count()).toBe(40_000);
    await last.close();
  });

  test("verify reports damage of large values and of checkpoints", async () => {
    const fake = new FakeStorage();
    const db = await opened(fake);
    db.set("large", filled(1_900_000, 171));
    db.set("in chunks", filled(1_500_000, 172));
    for (let i = 0; i < 9_000; i++) db.set(keyOf(i), bytesOf(i, 0));
    db.flush();
    await turn();
    await db.close();
    const again = await opened(fake);
    const wanted = {
      value: filled(1_000, 171),
      frame: filled(1_000, 172),
      checkpoint: new TextEncoder().encode("VCP5"),
    };
    for (const what of ["value", "frame", "checkpoint"] as const) {
      let at = DATA;
      while (!wanted[what].every((byte, i) => fake.content[at + i] === byte)) at += 8;
      flip(fake, at + 3);
      const { problems } = await again.verify();
      flip(fake, at + 3);
      expect(problems.map((problem) => problem.what)).toStrictEqual([what]);
    }
  });
});
