/**
 * The engine as users get it, against the reader that knows nothing but FORMAT.md: on every golden
 * file, and on many damaged ones, both must say the same.
 */

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CorruptionError, file, memory, open, UnsupportedFormatError } from "varve";
import { assert, describe, expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { random } from "../support/values.js";
import { CORRUPTION, FormatError, hex, NOT_A_DATABASE } from "./layout.js";
import { read } from "./reader.js";

/** What opening a file comes to, as far as both sides can tell. */
type Outcome =
  | {
      recovery: Record<string, unknown>;
      live: Record<string, string>;
      count: number;
      unreadable: boolean;
    }
  | { refused: string; details?: unknown };

function folder(): string {
  return join(context().root, "tests/vectors/golden");
}

function goldenFiles(): Map<string, Uint8Array> {
  const names = readdirSync(folder()).filter((name) => name.endsWith(".varve"));
  return new Map(names.map((name) => [name, new Uint8Array(readFileSync(join(folder(), name)))]));
}

/** What the reader says about the keyspace of the raw calls. */
async function byReader(bytes: Uint8Array): Promise<Outcome> {
  try {
    const { recovery, live, count, unreadable } = await read(bytes);
    const { tornBytes, droppedFrames, lastFrame, replayedFrames, clean, created } = recovery;
    const raw = live.filter(({ keyspace }) => keyspace === 0);
    return {
      recovery: {
        tornBytes,
        droppedFrames,
        lastSequence: lastFrame,
        replayedFrames,
        wasClean: clean,
        created,
        fromCheckpoint: recovery.checkpoint,
        lost: undefined,
      },
      live: Object.fromEntries(raw.map(({ key, value }) => [hex(key), hex(value)])),
      count,
      unreadable: unreadable > 0,
    };
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    if (error.code === CORRUPTION) return { refused: "damaged", details: error.details };
    return { refused: error.code === NOT_A_DATABASE ? "not-a-database" : "newer-format" };
  }
}

/** What `open` says, asked for the keys that the reader found. */
async function byEngine(path: Path, expected: Outcome): Promise<Outcome> {
  try {
    const db = await open(path.name, {
      storage: file(path.directory),
      memory: 1_048_576,
      ...wasmOption(),
    });
    const keys = "live" in expected ? Object.keys(expected.live) : [];
    const live = keys.map((key) => {
      const value = db.get(Uint8Array.from(Buffer.from(key, "hex")));
      return [key, value === undefined ? "absent" : hex(value)];
    });
    const found = { ...db.recovery };
    const unreadable = "unreadable" in expected && expected.unreadable;
    const outcome = {
      recovery: found,
      live: Object.fromEntries(live),
      count: db.count(),
      unreadable,
    };
    await db.close();
    return outcome;
  } catch (error) {
    if (error instanceof CorruptionError) {
      // What the commits before it leave is checked by the contract's tests.
      const { before: _, ...details } = { before: undefined, ...error.details };
      return { refused: "damaged", details };
    }
    if (error instanceof UnsupportedFormatError) return { refused: error.reason };
    throw error;
  }
}

interface Path {
  directory: string;
  name: string;
}

let counter = 0;

/** A copy of the file where `open` finds it. */
function placed(bytes: Uint8Array): Path & { file: string } {
  const { directory } = context();
  assert(directory !== undefined);
  counter += 1;
  const path = { directory: join(directory, "golden"), name: `golden-${counter}` };
  mkdirSync(path.directory, { recursive: true });
  const copy = join(path.directory, `${path.name}.varve`);
  writeFileSync(copy, bytes);
  return { ...path, file: copy };
}

/** Both say the same, and a file that is refused stays as it is. */
async function bothAgree(bytes: Uint8Array, what: string): Promise<Outcome> {
  const expected = await byReader(bytes);
  const path = placed(bytes);
  expect(await byEngine(path, expected), what).toStrictEqual(expected);
  if ("refused" in expected)
    expect(new Uint8Array(readFileSync(path.file)), what).toStrictEqual(bytes);
  return expected;
}

/** Flips a bit, loses a sector or a stretch, or cuts the file off: up to three times. */
function damaged(bytes: Uint8Array, next: (below: number) => number): [Uint8Array, string] {
  let image = bytes.slice();
  const done: string[] = [];
  const used = [...image.keys()].filter((at) => image[at] !== 0);
  for (let times = next(3); times >= 0 && image.length > 0; times -= 1) {
    const at = Math.min(used[next(used.length)] ?? 0, image.length - 1);
    switch (next(4)) {
      case 0:
        image[at] = (image[at] ?? 0) ^ (1 << next(8));
        done.push(`bit of ${at} flipped`);
        break;
      case 1:
        image.fill(0, at & ~511, (at & ~511) + 512);
        done.push(`sector of ${at} lost`);
        break;
      case 2:
        image.fill(0, at, at + 4000);
        done.push(`4000 from ${at} lost`);
        break;
      default:
        image = image.slice(0, next(image.length) + 1);
        done.push(`cut to ${image.length}`);
    }
  }
  return [image, done.join(", ")];
}

describe("golden files through open()", () => {
  test("every one opens or is refused as FORMAT.md says", async () => {
    for (const [name, bytes] of goldenFiles()) await bothAgree(bytes, name);
  });

  test("the option from takes those of which everything can be read, and no others", async () => {
    let taken = 0;
    let refused = 0;
    for (const [name, bytes] of goldenFiles()) {
      const expected = await byReader(bytes);
      const isWhole = "live" in expected && !expected.unreadable && !expected.recovery.created;
      const from = bytes as Uint8Array<ArrayBuffer>;
      const opening = open(name.slice(0, -6), { storage: memory(), from, ...wasmOption() });
      const db = await opening.catch((error: unknown) => {
        const isTold = error instanceof CorruptionError || error instanceof UnsupportedFormatError;
        assert(isTold, `${name}: ${error}`);
        return undefined;
      });
      if (db === undefined) {
        refused += 1;
        continue;
      }
      assert(isWhole, `${name} was taken`);
      taken += 1;
      for (const [key, value] of Object.entries(expected.live)) {
        expect(
          hex(db.get(Uint8Array.from(Buffer.from(key, "hex"))) ?? new Uint8Array()),
          name,
        ).toBe(value);
      }
      expect([...db.values()].length, name).toBe(expected.count);
      await db.close();
    }
    assert(taken > 20 && refused > 20, `${taken} taken, ${refused} refused`);
  });

  test("records and frames of every length carry the checksum that FORMAT.md says", async () => {
    const { directory } = context();
    assert(directory !== undefined);
    const storage = file(join(directory, "lengths"));
    const db = await open("lengths", { storage, ...wasmOption() });
    const expected: Record<string, string> = {};
    const bytes = (length: number, salt: number) =>
      Uint8Array.from({ length }, (_, i) => (131 * i + salt) & 0xff);
    // Short ones, and those about which one block of the checksum ends, or two.
    const lengths = [[0, 300] as const, [880, 1_120] as const, [1_900, 2_140] as const];
    const all = lengths.flatMap(([from, to]) =>
      Array.from({ length: to - from + 1 }, (_, i) => from + i),
    );
    for (const length of all) {
      const key = bytes(2 + (length % 40), length);
      key[0] = length & 0xff;
      key[1] = length >> 8;
      const value = bytes(length, 7);
      db.set(key, value);
      expected[hex(key)] = hex(value);
      // Frames of one record, and of several.
      if (length % 3 !== 0) db.commit();
    }
    await db.close();
    const image = new Uint8Array(readFileSync(join(directory, "lengths", "lengths.varve")));
    const { live } = await read(image);
    expect(Object.fromEntries(live.map(({ key, value }) => [hex(key), hex(value)]))).toStrictEqual(
      expected,
    );
    await bothAgree(image, "lengths");
  });

  test("a file that was compacted again and again reads the same with its checkpoint and without", async () => {
    const { directory } = context();
    assert(directory !== undefined);
    const db = await open("lived", { storage: file(join(directory, "lived")), ...wasmOption() });
    const path = join(directory, "lived", "lived.varve");
    const model = new Map<string, Uint8Array>();
    const next = random(4);
    const seen = { checkpoint: 0, gaps: 0 };
    const last = context().thorough ? 3 : 1;
    for (let round = 0; round <= last; round += 1) {
      // Small ones so many that a checkpoint takes several blocks; large ones to fill segments.
      for (let i = round === 0 ? 0 : 8_000; i < 9_600; i += 1) {
        const key = `key ${round === 0 ? i : next(9_000)}`;
        const value = new Uint8Array(i < 9_000 ? next(20) : 3_000 + next(6_000)).fill(round + i);
        if (i < 9_000 && next(3) === 0) {
          db.delete(key);
          model.delete(key);
        } else {
          db.set(key, value);
          model.set(key, value);
        }
        if (next(200) === 0) db.flush();
      }
      // In pieces, and in segments of its own.
      for (const length of round > 0 ? [600_000, 900_000] : []) {
        db.set(`large ${length}`, new Uint8Array(length + round).fill(round));
        model.set(`large ${length}`, new Uint8Array(length + round).fill(round));
      }
      await db.compact();
      if (round === last) await db.close();
      const image = new Uint8Array(readFileSync(path));
      const expected = Object.fromEntries([...model].map(([key, value]) => [key, hex(value)]));
      for (const log of ["tail", "whole"] as const) {
        const { recovery, live, count, unreadable } = await read(image, { log });
        const users = live.filter(({ keyspace }) => keyspace === 0);
        const text = new TextDecoder();
        const found = users.map(({ key, value }) => [text.decode(key), hex(value)]);
        expect(Object.fromEntries(found), `round ${round}, ${log} log`).toStrictEqual(expected);
        expect([count, unreadable]).toStrictEqual([model.size, 0]);
        if (recovery.checkpoint) seen.checkpoint += 1;
        else seen.gaps += live.filter(({ keyspace }) => keyspace === 1).length;
      }
    }
    assert(seen.checkpoint >= 1 && seen.gaps >= 1, JSON.stringify(seen));
  });

  test("what recovery writes in place of a damaged database reads as FORMAT.md says", async () => {
    const recovered = { salvage: 0, prefix: 0 };
    for (const [name, bytes] of goldenFiles()) {
      const before = await byReader(bytes);
      if (!("refused" in before) || before.refused !== "damaged") continue;
      for (const recovery of ["salvage", "prefix"] as const) {
        const path = placed(bytes);
        const storage = file(path.directory);
        const db = await open(path.name, { storage, recovery, ...wasmOption() }).catch((error) => {
          // Some have nothing left, or nothing that the commits before the damage could be recognized by.
          if (error instanceof CorruptionError) return undefined;
          throw error;
        });
        if (db === undefined) continue;
        const keys = [...db.entries({ keyAs: "bytes" })].map(([key]) => hex(key));
        const values = [...db.values()].map(hex);
        await db.close();
        const found = await bothAgree(
          new Uint8Array(readFileSync(path.file)),
          `${name}, ${recovery}`,
        );
        assert("live" in found, `${name} opens after ${recovery}`);
        expect(found.live, `${name}, ${recovery}`).toStrictEqual(
          Object.fromEntries(keys.map((key, i) => [key, values[i] as string])),
        );
        recovered[recovery] += 1;
      }
    }
    assert(recovered.salvage >= 10 && recovered.prefix >= 5, JSON.stringify(recovered));
  });

  test("damaged in 500 ways, each opens or is refused as FORMAT.md says", async () => {
    const next = random(1);
    const outcomes = new Map<string, number>();
    const files = [...goldenFiles()].filter(([, bytes]) => bytes.length < 100_000);
    for (let round = 0; round < 500; round += 1) {
      const [name, bytes] = files[round % files.length] as [string, Uint8Array];
      const [image, how] = damaged(bytes, next);
      const outcome = await bothAgree(image, `round ${round}: ${name}, ${how}`);
      const kind = "refused" in outcome ? outcome.refused : "opens";
      outcomes.set(kind, (outcomes.get(kind) ?? 0) + 1);
    }
    expect(outcomes.size, `all outcomes occur: ${JSON.stringify([...outcomes])}`).toBe(4);
  });
});
