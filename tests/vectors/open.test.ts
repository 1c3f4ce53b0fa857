/**
 * The engine compared with the reader, which was written from FORMAT.md alone: both must have the same result for
 * every golden file, and for many damaged ones.
 */

import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CorruptionError, file, memory, open, UnsupportedFormatError } from "varve";
import { assert, describe, expect, test } from "vitest";
import { context, wasmOption } from "../support/context.js";
import { random } from "../support/values.js";
import { CORRUPTION, ENGINE, FormatError, hex, NOT_A_DATABASE } from "./layout.js";
import { read } from "./reader.js";

/** The key of the engine's record with the time, in hexadecimal. */
const EXPIRY = Buffer.from("expiry").toString("hex");

/** The result of opening a file, as far as both can determine it. */
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

/** The result of the reader for keyspace 0. */
async function byReader(bytes: Uint8Array): Promise<Outcome> {
  try {
    const { recovery, live, count, unreadable } = await read(bytes);
    const { tornBytes, droppedFrames, lastFrame, replayedFrames, clean, created } = recovery;
    // Without this record of the engine nothing expires.
    const expires = live.some(({ keyspace, key }) => keyspace === ENGINE && hex(key) === EXPIRY);
    const now = Date.now() / 1000;
    const all = live.filter(({ keyspace }) => keyspace === 0);
    const raw = all.filter(({ expiry }) => !expires || expiry === 0 || expiry > now);
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
      count: count - (all.length - raw.length),
      unreadable: unreadable > 0,
    };
  } catch (error) {
    if (!(error instanceof FormatError)) throw error;
    if (error.code === CORRUPTION) return { refused: "damaged", details: error.details };
    return { refused: error.code === NOT_A_DATABASE ? "not-a-database" : "newer-format" };
  }
}

/** The result of `open`, for the keys that the reader found. */
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
      // The contract tests check `before`.
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

/** Writes a copy of the file that `open` can open. */
function copied(bytes: Uint8Array): Path & { file: string } {
  const { directory } = context();
  assert(directory !== undefined);
  counter += 1;
  const path = { directory: join(directory, "golden"), name: `golden-${counter}` };
  mkdirSync(path.directory, { recursive: true });
  const copy = join(path.directory, `${path.name}.varve`);
  writeFileSync(copy, bytes);
  return { ...path, file: copy };
}

/** Checks that both have the same result, and that a refused file stays unchanged. */
async function bothAgree(bytes: Uint8Array, what: string): Promise<Outcome> {
  const expected = await byReader(bytes);
  const path = copied(bytes);
  expect(await byEngine(path, expected), what).toStrictEqual(expected);
  if ("refused" in expected)
    expect(new Uint8Array(readFileSync(path.file)), what).toStrictEqual(bytes);
  return expected;
}

/** Flips a bit, zeroes a sector or 4,000 bytes, or truncates the file, up to three times. */
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
  test("every file opens or is refused as FORMAT.md says", async () => {
    for (const [name, bytes] of goldenFiles()) await bothAgree(bytes, name);
  });

  test("the option from accepts exactly the files that can be read completely", async () => {
    let accepted = 0;
    let refused = 0;
    for (const [name, bytes] of goldenFiles()) {
      const expected = await byReader(bytes);
      const isReadable = "live" in expected && !expected.unreadable && !expected.recovery.created;
      const from = bytes as Uint8Array<ArrayBuffer>;
      const opening = open(name.slice(0, -6), { storage: memory(), from, ...wasmOption() });
      const db = await opening.catch((error: unknown) => {
        const isExpected =
          error instanceof CorruptionError || error instanceof UnsupportedFormatError;
        assert(isExpected, `${name}: ${error}`);
        return undefined;
      });
      if (db === undefined) {
        refused += 1;
        continue;
      }
      assert(isReadable, `${name} was accepted`);
      accepted += 1;
      for (const [key, value] of Object.entries(expected.live)) {
        expect(
          hex(db.get(Uint8Array.from(Buffer.from(key, "hex"))) ?? new Uint8Array()),
          name,
        ).toBe(value);
      }
      expect([...db.values()].length, name).toBe(expected.count);
      await db.close();
    }
    assert(accepted > 20 && refused > 20, `${accepted} accepted, ${refused} refused`);
  });

  test("records and frames of every length have the checksum that FORMAT.md defines", async () => {
    const { directory } = context();
    assert(directory !== undefined);
    const storage = file(join(directory, "lengths"));
    const db = await open("lengths", { storage, ...wasmOption() });
    const expected: Record<string, string> = {};
    const bytes = (length: number, salt: number) =>
      Uint8Array.from({ length }, (_, i) => (131 * i + salt) & 0xff);
    // Short lengths, and lengths around one and two blocks of the checksum.
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

  test("a file that was compacted repeatedly reads the same with its checkpoint and without", async () => {
    const { directory } = context();
    assert(directory !== undefined);
    const db = await open("compacted", {
      storage: file(join(directory, "compacted")),
      ...wasmOption(),
    });
    const path = join(directory, "compacted", "compacted.varve");
    const model = new Map<string, Uint8Array>();
    const next = random(4);
    const seen = { checkpoint: 0, gaps: 0 };
    const last = context().thorough ? 3 : 1;
    for (let round = 0; round <= last; round += 1) {
      // Enough small values that a checkpoint takes several blocks, and large ones to fill segments.
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
      // A value in chunks, and one in its own segments.
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

  test("a recovered database reads as FORMAT.md says", async () => {
    const recovered = { salvage: 0, prefix: 0 };
    for (const [name, bytes] of goldenFiles()) {
      const before = await byReader(bytes);
      if (!("refused" in before) || before.refused !== "damaged") continue;
      for (const recovery of ["salvage", "prefix"] as const) {
        const path = copied(bytes);
        const storage = file(path.directory);
        const db = await open(path.name, { storage, recovery, ...wasmOption() }).catch((error) => {
          // Some files have no intact data, or no identifiable commits before the damage.
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

  test("files with 500 random damages open or are refused as FORMAT.md says", async () => {
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
