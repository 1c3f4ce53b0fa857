/** The golden files, read by a reader that was written from FORMAT.md alone. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { assert, describe, expect, test } from "vitest";
import { context } from "../support/context.js";
import { readCheckpoint } from "./checkpoint.js";
import { CORRUPTION, checksum, type Database, FormatError, hex } from "./layout.js";
import { read } from "./reader.js";
import { readOrderedKeys } from "./runs.js";
import { SegmentReader } from "./segments.js";
import { readSuperblock } from "./superblock.js";

/** A golden file's description, as Rust wrote it. */
interface Description {
  name: string;
  about: string;
  size: number;
  error?: Record<string, number>;
  recovery?: Omit<Database["recovery"], "checkpoint"> & { checkpoint?: true };
  /** The number of live records that are damaged, before the checkpoint, or that lack a chunk. */
  unreadable?: number;
  transactions?: Database["transactions"];
  live?: { keyspace: number; version: number; expiry: number; key: string; value: string }[];
}

interface ChecksumVector {
  length: number;
  seed: string;
  check: string;
}

function folder(): string {
  return join(context().root, "tests/vectors/golden");
}

function descriptionOf(name: string): Description {
  return JSON.parse(readFileSync(join(folder(), `${name}.json`), "utf8"));
}

/** The result of the reader, in the form of a description. */
async function outcome(
  file: Uint8Array,
  options: Parameters<typeof read>[1] = {},
): Promise<Omit<Description, "name" | "about" | "size">> {
  try {
    const { recovery, transactions, live, unreadable } = await read(file, options);
    const { checkpoint, ...others } = recovery;
    const shown = live.map(({ key, value, ...rest }) => ({
      ...rest,
      key: hex(key),
      value: hex(value),
    }));
    return {
      recovery: checkpoint ? { ...others, checkpoint } : others,
      transactions,
      ...(unreadable > 0 ? { unreadable } : {}),
      live: shown,
    };
  } catch (error) {
    if (error instanceof FormatError) return { error: { code: error.code, ...error.details } };
    throw error;
  }
}

/** The keys that the runs of a checkpoint have, as of that checkpoint. */
async function orderedKeys(name: string): Promise<Map<number, string[]> | undefined> {
  const bytes = new Uint8Array(readFileSync(join(folder(), `${name}.varve`)));
  const superblock = await readSuperblock(bytes);
  assert(superblock !== undefined);
  const segments = new SegmentReader(bytes, superblock);
  await segments.findSegments();
  const checkpoint = await readCheckpoint(segments);
  assert(checkpoint !== undefined);
  return readOrderedKeys(segments, checkpoint);
}

/** The records as sorted texts, so that their order does not matter. */
function sorted(live: Description["live"]): string[] | undefined {
  return live
    ?.map(({ keyspace, key, value, version, expiry }) =>
      JSON.stringify([keyspace, key, value, version, expiry]),
    )
    .sort();
}

describe("golden files", () => {
  test("the checksum of hash-wasm equals that of Rust, also with seeds", async () => {
    const data = Uint8Array.from({ length: 5000 }, (_, i) => (131 * i + 7) % 256);
    const vectors: ChecksumVector[] = JSON.parse(
      readFileSync(join(folder(), "checksums.json"), "utf8"),
    );
    assert(vectors.length > 50);
    for (const { length, seed, check } of vectors) {
      const found = await checksum(data.subarray(0, length), BigInt(`0x${seed}`));
      expect(found, `${length} bytes with seed ${seed}`).toBe(BigInt(`0x${check}`));
    }
  });

  const files = readdirSync(folder()).filter((file) => file.endsWith(".varve"));
  test("there are golden files", () => assert(files.length >= 50, `there are ${files.length}`));

  for (const file of files) {
    const name = file.replace(/\.varve$/, "");
    const { about } = descriptionOf(name);
    test(`${name} reads as described: ${about}`, async () => {
      const bytes = new Uint8Array(readFileSync(join(folder(), file)));
      const expected = descriptionOf(name);
      expect(bytes.length).toBe(expected.size);
      const found = await outcome(bytes);
      expect(found.error).toStrictEqual(expected.error);
      expect(found.recovery).toStrictEqual(expected.recovery);
      expect(found.transactions).toStrictEqual(expected.transactions);
      expect(found.unreadable).toStrictEqual(expected.unreadable);
      expect(sorted(found.live)).toStrictEqual(sorted(expected.live));
    });
  }

  test("runs have the keys of the checkpoint in order, or are damaged", async () => {
    const [a, c, d, large] = ["a", "c", "d", "large"].map((key) =>
      hex(new TextEncoder().encode(key)),
    );
    const keys = new Map([
      [0, [a, c, d, large]],
      [2, [a]],
    ]);
    expect(await orderedKeys("checkpoint-with-runs")).toStrictEqual(keys);
    expect(await orderedKeys("run-damaged")).toBe(undefined);
  });

  test("the log without its checkpoint has the same contents, unless it is damaged", async () => {
    const counts = { same: 0, damaged: 0 };
    for (const file of files) {
      const { recovery, unreadable, live } = descriptionOf(file.replace(/\.varve$/, ""));
      if (recovery?.checkpoint === undefined) continue;
      const whole = await outcome(new Uint8Array(readFileSync(join(folder(), file))), {
        log: "whole",
      });
      if (unreadable !== undefined) {
        expect(whole.error?.code, file).toBe(CORRUPTION);
        counts.damaged += 1;
        continue;
      }
      expect(sorted(whole.live), file).toStrictEqual(sorted(live));
      assert((whole.recovery?.replayedFrames ?? 0) >= recovery.replayedFrames, file);
      expect(whole.recovery?.lastFrame, file).toBe(recovery.lastFrame);
      expect(whole.recovery?.clean, file).toBe(recovery.clean);
      counts.same += 1;
    }
    assert(counts.same >= 6 && counts.damaged >= 1, JSON.stringify(counts));
  });
});
