/** The golden files, read by a reader that knows nothing but FORMAT.md. */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { context, deepEqual, equal, ok, suite, test } from "../harness.js";
import { CORRUPTION, checksum, type Database, FormatError, hex } from "./layout.js";
import { read } from "./reader.js";

/** A golden file's description, as Rust wrote it. */
interface Description {
  name: string;
  about: string;
  size: number;
  error?: Record<string, number>;
  recovery?: Omit<Database["recovery"], "checkpoint"> & { checkpoint?: true };
  /** Live records that are damaged, before the checkpoint, or that lack a piece. */
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

function describe(name: string): Description {
  return JSON.parse(readFileSync(join(folder(), `${name}.json`), "utf8"));
}

/** What the reader says, in the form of a description. */
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

/** Keys in one order, whatever order they were found in; properties likewise. */
function sorted(live: Description["live"]): string[] | undefined {
  return live
    ?.map(({ keyspace, key, value, version, expiry }) =>
      JSON.stringify([keyspace, key, value, version, expiry]),
    )
    .sort();
}

suite("golden files", () => {
  test("the checksum of hash-wasm is that of Rust, seeds included", async () => {
    const data = Uint8Array.from({ length: 5000 }, (_, i) => (131 * i + 7) % 256);
    const vectors: ChecksumVector[] = JSON.parse(
      readFileSync(join(folder(), "checksums.json"), "utf8"),
    );
    ok(vectors.length > 50);
    for (const { length, seed, check } of vectors) {
      const found = await checksum(data.subarray(0, length), BigInt(`0x${seed}`));
      equal(found, BigInt(`0x${check}`), `${length} bytes with seed ${seed}`);
    }
  });

  const files = readdirSync(folder()).filter((file) => file.endsWith(".varve"));
  test("there are golden files", () => ok(files.length >= 50, `there are ${files.length}`));

  for (const file of files) {
    const name = file.replace(/\.varve$/, "");
    const { about } = describe(name);
    test(`${name} reads as described: ${about}`, async () => {
      const bytes = new Uint8Array(readFileSync(join(folder(), file)));
      const expected = describe(name);
      equal(bytes.length, expected.size);
      const found = await outcome(bytes);
      deepEqual(found.error, expected.error);
      deepEqual(found.recovery, expected.recovery);
      deepEqual(found.transactions, expected.transactions);
      deepEqual(found.unreadable, expected.unreadable);
      deepEqual(sorted(found.live), sorted(expected.live));
    });
  }

  test("the log without its checkpoint tells the same, unless it is damaged", async () => {
    const told = { same: 0, damaged: 0 };
    for (const file of files) {
      const { recovery, unreadable, live } = describe(file.replace(/\.varve$/, ""));
      if (recovery?.checkpoint === undefined) continue;
      const whole = await outcome(new Uint8Array(readFileSync(join(folder(), file))), {
        log: "whole",
      });
      if (unreadable !== undefined) {
        equal(whole.error?.code, CORRUPTION, file);
        told.damaged += 1;
        continue;
      }
      deepEqual(sorted(whole.live), sorted(live), file);
      ok((whole.recovery?.replayedFrames ?? 0) >= recovery.replayedFrames, file);
      equal(whole.recovery?.lastFrame, recovery.lastFrame, file);
      equal(whole.recovery?.clean, recovery.clean, file);
      told.same += 1;
    }
    ok(told.same >= 6 && told.damaged >= 1, JSON.stringify(told));
  });
});
