import { open } from "varve";
import { newDigest } from "../sizes/digest.js";
import { KEY_BYTES, keysOf, writeKeys } from "../sizes/workload.js";
import type { Amounts, LargeResult, Platform } from "./platform.js";

const VALUE = 1_024;
const PAIR = KEY_BYTES + VALUE;
/** Pairs per commit: about 1 MiB. */
const COMMIT_SIZE = 1_000;
/** varve's default interval. */
const FLUSH_MS = 1_000;
const NAME = "bulk";
const RAW = "bulk.raw";
const MEMORY = 64 * 1_048_576;

/** Pairs in order of their keys; each value contains its number. */
export async function bulkLoad(platform: Platform, amounts: Amounts): Promise<LargeResult> {
  const commits = Math.ceil(amounts.bulkBytes / PAIR / COMMIT_SIZE);
  const megabytes = (commits * COMMIT_SIZE * PAIR) / 1e6;
  const value = new Uint8Array(VALUE).fill(7);
  const words = new Uint32Array(value.buffer);
  const [ours, theirs, scans]: [number[], number[], number[]] = [[], [], []];

  for (let sample = 0; sample < amounts.bulkSamples; sample++) {
    platform.progress(`bulk load: sample ${sample + 1} of ${amounts.bulkSamples}`);
    const db = await open(NAME, { storage: platform.storage, memory: MEMORY });
    let ms = 0;
    for (let commit = 0; commit < commits; commit++) {
      const numbers = Uint32Array.from({ length: COMMIT_SIZE }, (_, i) => commit * COMMIT_SIZE + i);
      const keys = keysOf(numbers);
      const start = performance.now();
      for (let i = 0; i < COMMIT_SIZE; i++) {
        words[0] = commit * COMMIT_SIZE + i;
        db.set(keys[i]!, value);
      }
      await platform.turn();
      ms += performance.now() - start;
    }
    const start = performance.now();
    await db.close();
    ms += performance.now() - start;
    ours.push(megabytes / (ms / 1e3));

    scans.push(megabytes / ((await compare(platform, commits)) / 1e3));
    await platform.remove(NAME);

    theirs.push(megabytes / ((await bareWrites(platform, commits)) / 1e3));
    await platform.remove(RAW);
  }

  const line = {
    group: "Bulk",
    work: `load of ${(megabytes / 1e3).toFixed(2)} GB`,
    durability: "survives the process, not a power loss",
    unit: "MB/s" as const,
  };
  return {
    lines: [
      { id: "bulk", ...line, store: "varve", samples: ours },
      {
        id: "bulkRaw",
        ...line,
        store: "write of as many bytes, flushed as often",
        samples: theirs,
      },
      {
        ...line,
        id: "bulkScan",
        work: "all of it read in order, from the file",
        durability: "verified",
        store: "varve",
        samples: scans,
      },
    ],
    notes: [
      `Bulk: ${(commits * COMMIT_SIZE).toLocaleString("en")} pairs of ${KEY_BYTES} and ${VALUE} bytes in turns of ${COMMIT_SIZE.toLocaleString("en")}, memory ${MEMORY / 1_048_576} MiB, closing included; the bare file gets the same number of bytes in as many writes, and is flushed once a second and at the end, as the database is. MB/s are of keys and values. Every pair is compared after closing and opening.`,
    ],
  };
}

/** Writes and flushes as many bytes, in as many calls; returns the milliseconds. */
async function bareWrites(platform: Platform, commits: number): Promise<number> {
  const block = new Uint8Array(COMMIT_SIZE * PAIR).fill(7);
  const raw = await platform.raw(RAW);
  const start = performance.now();
  let flushed = start;
  for (let commit = 0; commit < commits; commit++) {
    if (raw.write(block, commit * block.length) !== block.length) throw new Error("disk full");
    await platform.turn();
    if (performance.now() - flushed < FLUSH_MS) continue;
    raw.flush();
    flushed = performance.now();
  }
  raw.flush();
  raw.close();
  return performance.now() - start;
}

/** Opens the database again and compares its contents; returns the milliseconds of one scan. */
async function compare(platform: Platform, commits: number): Promise<number> {
  const db = await open(NAME, { storage: platform.storage, memory: MEMORY });
  const start = performance.now();
  let seen = 0;
  for (const view of db.values()) seen += view[VALUE - 1]!;
  const ms = performance.now() - start;
  if (seen !== 7 * commits * COMMIT_SIZE) throw new Error("not all that was loaded is there");

  const [expected, found] = [await newDigest(), await newDigest()];
  const value = new Uint8Array(VALUE).fill(7);
  const words = new Uint32Array(value.buffer);
  const key = new Uint8Array(KEY_BYTES);
  const one = new Uint32Array(1);
  for (let number = 0; number < commits * COMMIT_SIZE; number++) {
    words[0] = number;
    one[0] = number;
    writeKeys(one, key);
    expected.add(key, value);
  }
  for (const [name, view] of db.entries({ keyAs: "bytes" })) found.add(name, view);
  await db.close();
  if (expected.end() !== found.end()) throw new Error("what was loaded is not what is there");
  return ms;
}
