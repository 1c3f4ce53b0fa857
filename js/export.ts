/**
 * `db.export()`: what lives in a database, as the bytes of a file that never held anything else. A
 * chunk of its own, loaded when it is asked for.
 */

import { OWN } from "./collection/catalogue.js";
import { livingOf } from "./collection/living.js";
import { Engine } from "./engine.js";
import type { Session } from "./session.js";
import type { StorageFile } from "./storage/contract.js";
import { memory } from "./storage/memory.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** Chunks that are given out have so many bytes. */
const CHUNK = 262_144;

/** So many records are looked at in one call. */
const PAGE = 1_024;

/** After so many bytes of the copy its memory is used again. */
const STEP = 1_048_576;

/** The copy needs little memory, no order, and gives nothing back. */
const SETTINGS = { memory: 4_194_304, spaceFactor: 3, ordered: false, readOnly: false };

/** Of segments, as powers of two; and how many a copy should have, for half of the last is blank. */
const [SMALLEST, LARGEST] = [12, 20];
const SEGMENTS = 16;

/** A range without bounds, or behind one. */
const OPEN = { lowerExcluded: true, upperIncluded: false, reverse: false };

/** A longer value lies beside the segments of the log, however large they are. */
const APART = 262_144;

/** What a segment has to hold beside key and value. */
const OVERHEAD = 512;

/**
 * Copies everything as of one moment, and gives the copy in chunks, with `undefined` at its end.
 *
 * @throws what reading the database throws
 */
export async function exported(source: () => Session): Promise<() => Bytes | undefined> {
  const { name } = source();
  for (;;) {
    const { engine } = source();
    const { changes } = engine;
    const segmentLog2 = segmentFor(engine);
    const storage = memory();
    const { file } = await storage.open(name);
    const copy = await Engine.open(name, engine.module, file, { ...SETTINGS, segmentLog2 });
    try {
      const session = source();
      session.admitOutside("export()");
      // What was written meanwhile may be larger.
      if (engine.changes !== changes && segmentFor(engine) > segmentLog2) continue;
      // The moment: until it is over nothing else runs.
      if (engine.pending() !== 0) session.commit();
      copyAll(engine, copy);
    } finally {
      copy.discard();
      file.close();
    }
    const { file: whole } = await storage.open(name);
    return chunksOf(whole);
  }
}

/** Goes over all records of a keyspace. Key and value are good until the next one. */
function each(
  engine: Engine,
  keyspace: number,
  visit: (key: Bytes, at: number, length: number) => void,
): void {
  let lower: Bytes | undefined;
  for (;;) {
    const range = { lower, upper: undefined, ...OPEN };
    const page = engine.scan(range, PAGE, true, keyspace);
    const { bytes, numbers, count } = page;
    for (let i = 0; i < count; i++) {
      lower = bytes.subarray(numbers[i], numbers[i + 1]);
      const at = engine.findOnPage(page, i, keyspace);
      visit(lower, at, engine.foundLength());
    }
    if (count === 0) return;
    lower = lower?.slice();
  }
}

/** The smallest segments that are few, and hold every record whose value is not apart in any case. */
function segmentFor(engine: Engine): number {
  if (engine.stats().liveBytes > SEGMENTS << LARGEST) return LARGEST;
  let [bytes, largest, longest] = [0, 0, 0];
  const { keyspaces, descriptors } = livingOf(engine);
  const add = (key: number, value: number) => {
    const size = key + OVERHEAD + (value > APART ? 0 : value);
    bytes += size - OVERHEAD;
    longest = Math.max(longest, size);
    if (value <= APART) largest = Math.max(largest, value);
  };
  for (const [key, value] of descriptors) add(key.length, value.length);
  for (const keyspace of keyspaces) {
    each(engine, keyspace, (key, _, length) => add(key.length, length));
  }
  const least = Math.max(bytes / SEGMENTS, longest, 4 * largest);
  return Math.min(LARGEST, Math.max(SMALLEST, Math.ceil(Math.log2(least))));
}

function copyAll(engine: Engine, copy: Engine): void {
  const { keyspaces, descriptors } = livingOf(engine);
  let since = 0;
  const step = (size: number) => {
    since += size;
    if (since < STEP) return;
    since = 0;
    copy.commit();
    copy.endTurn(false);
  };
  for (const [key, value] of descriptors) copy.set(key, value, OWN);
  for (const keyspace of keyspaces) {
    each(engine, keyspace, (key, at, length) => {
      copy.set(key, engine.view(at, length), keyspace);
      step(key.length + length);
    });
  }
  // What was flushed is not read again by who opens it: there is a checkpoint.
  copy.flush();
  copy.close();
}

/** A file's bytes in pieces, without the blank rest of its last segment. */
function chunksOf(file: StorageFile): () => Bytes | undefined {
  const size = file.getSize();
  let at = 0;
  return () => {
    if (at >= size) return undefined;
    const chunk = new Uint8Array(Math.min(CHUNK, size - at));
    file.read(chunk, { at });
    at += chunk.length;
    return chunk;
  };
}
