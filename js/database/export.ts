/**
 * Export, `db.export()`: copies the live records of a database into a new database file. This module is a separate
 * chunk, loaded on first use.
 *
 * The copy is made in slices of a few milliseconds, from a snapshot of the moment in which it began.
 */

import { type LiveKeyspaces, liveKeyspacesOf } from "../collection/live-keyspaces.js";
import { Engine } from "../engine/engine.js";
import { SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import type { ExportOptions } from "../session/options.js";
import type { Session } from "../session/session.js";
import type { StorageFile } from "../storage/storage.js";
import { nextTask, timeSlice } from "../util/clock.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** Size of the chunks that the copy is stored and returned in. */
const CHUNK = 262_144;

/** Maximum number of records, and of their bytes, that are visited per scan. */
const PAGE = 256;
const PAGE_BYTES = 1_048_576;

/** Other tasks run after each slice of this length. */
const SLICE_MS = 4;

/** The copy is committed after this many bytes, so that its memory can be reused. */
const STEP = 1_048_576;

/** Settings of the copy: it needs little memory, no key order, and reclaims no space. */
const SETTINGS = { memory: 4_194_304, spaceFactor: 3, ordered: false, readOnly: false };

/**
 * Smallest and largest segment size, as binary logarithms; and the number of segments that a copy should have,
 * because on average half of the last one is unused.
 */
const [MIN_SEGMENT_LOG2, MAX_SEGMENT_LOG2] = [12, 20];
const SEGMENTS = 16;

/** A range without bounds, or after a lower bound. */
const OPEN = { lowerExcluded: true, upperIncluded: false, reverse: false };

/** A longer value is stored outside of the log's segments, whatever their size. */
const LARGE_VALUE = 262_144;

/** Bytes that a segment needs in addition to the key and the value of a record. */
const OVERHEAD = 512;

/**
 * Copies a snapshot of the database, and returns a function that gives the copy chunk by chunk, then `undefined`.
 *
 * @throws errors of reading the database, the reason of `signal`, and errors of `onProgress`
 */
export async function exported(
  source: () => Session,
  options: ExportOptions,
): Promise<() => Bytes | undefined> {
  const session = source();
  session.guard.assertOutsideCallback("export()");
  const throttle = new Throttle(source, options);
  // Sort the keys part by part, because the first scan would sort them all at once.
  while (session.engine.sortPart()) await throttle.rest(0, session.engine.stats().liveBytes);
  if (session.engine.pending() !== 0) session.commits.commit();
  const snapshot = session.snapshot();
  try {
    const content = new Content(source, throttle, snapshot);
    const segmentLog2 = await segmentFor(content);
    const file = new ChunkFile();
    const { name, engine } = session;
    const copy = await Engine.open(name, engine.module, file, { ...SETTINGS, segmentLog2 });
    try {
      await content.copyTo(copy);
      session.endSnapshot(snapshot);
      // The index of the copy is written part by part. Only small copies are left without, and open fast anyway.
      while (copy.maintain(false)) if (throttle.isSliceOver) await content.rest();
      // With a checkpoint behind it, opening the copy does not read the flushed frames again.
      copy.flush();
      copy.close();
      throttle.reportProgress(content.liveBytes, content.liveBytes);
    } finally {
      copy.discard();
    }
    return () => file.take();
  } finally {
    session.endSnapshot(snapshot);
  }
}

type KeyspaceVisit = (
  key: Bytes,
  value: () => Bytes,
  keyspace: number,
  length: number,
  expiry: number,
) => void;

/** The live records of a database, as a snapshot shows them. */
class Content {
  readonly liveKeyspaces: LiveKeyspaces;
  readonly liveBytes: number;
  private readonly engine: Engine;
  private readonly throttle: Throttle;
  private readonly snapshot: number;
  private copied: number;

  constructor(source: () => Session, throttle: Throttle, snapshot: number) {
    const { engine } = source();
    this.engine = engine;
    this.throttle = throttle;
    this.snapshot = snapshot;
    this.liveKeyspaces = liveKeyspacesOf(engine);
    this.liveBytes = engine.stats().liveBytes;
    this.copied = 0;
  }

  /** Visits all records. */
  async each(visit: KeyspaceVisit): Promise<void> {
    for (const keyspace of this.liveKeyspaces.keyspaces) {
      let lower: Bytes | undefined;
      do {
        lower = this.page(lower, keyspace, visit);
        if (this.throttle.isSliceOver) await this.rest();
      } while (lower !== undefined);
    }
  }

  /** Visits a page of records after a key. Returns the last key, or `undefined` at the end. */
  private page(
    lower: Bytes | undefined,
    keyspace: number,
    visit: KeyspaceVisit,
  ): Bytes | undefined {
    const { engine } = this;
    const then = this.snapshot + keyspace;
    const page = engine.scan({ lower, upper: undefined, ...OPEN }, PAGE, true, then);
    const { bytes, numbers, count } = page;
    let key: Bytes | undefined;
    for (let i = 0, sum = 0; i < count && sum < PAGE_BYTES; i++) {
      key = bytes.subarray(numbers[i], numbers[i + 1]);
      const expiry = engine.expiring ? engine.expiryOf(engine.encodeKey(key), then) : 0;
      const at = engine.findOnPage(page, i, then);
      const length = engine.foundLength();
      visit(key, () => engine.view(at, length), keyspace, length, expiry);
      sum += key.length + length;
    }
    return key?.slice();
  }

  /** Copies all of it. */
  async copyTo(copy: Engine): Promise<void> {
    for (const [key, value] of this.liveKeyspaces.descriptors)
      copy.set(key, value, SYSTEM_KEYSPACE);
    let since = 0;
    await this.each((key, value, keyspace, length, expiry) => {
      if (expiry === 0) copy.set(key, value(), keyspace);
      else copy.setExpiring(key, value(), expiry, keyspace);
      const size = key.length + length;
      this.copied += size;
      since += size;
      if (since < STEP) return;
      since = 0;
      copy.commit();
      copy.endTurn(false);
    });
  }

  async rest(): Promise<void> {
    await this.throttle.rest(Math.min(this.copied, this.liveBytes), this.liveBytes);
  }
}

/** Lets other tasks run after every few milliseconds of work, and reports the progress. */
class Throttle {
  private readonly source: () => Session;
  private readonly options: ExportOptions;
  private isOver: () => boolean;

  constructor(source: () => Session, options: ExportOptions) {
    this.source = source;
    this.options = options;
    this.isOver = timeSlice(SLICE_MS);
  }

  get isSliceOver(): boolean {
    return this.isOver();
  }

  /** Lets other tasks run. Without timers no other task waits for this thread. */
  async rest(bytes: number, total: number): Promise<void> {
    const { engine, settings } = this.source();
    if (settings.timers) engine.endTurn(settings.strictViews);
    this.reportProgress(bytes, total);
    if (!settings.timers) return;
    await nextTask();
    this.options.signal?.throwIfAborted();
    this.source().guard.assertOutsideCallback("export()");
    this.isOver = timeSlice(SLICE_MS);
  }

  reportProgress(bytes: number, total: number): void {
    const { onProgress, signal } = this.options;
    signal?.throwIfAborted();
    onProgress?.({ bytes, total });
    signal?.throwIfAborted();
  }
}

/**
 * The smallest segment size, as a binary logarithm, that needs few segments and fits every record whose value is
 * stored in segments.
 */
async function segmentFor(content: Content): Promise<number> {
  if (content.liveBytes > SEGMENTS << MAX_SEGMENT_LOG2) return MAX_SEGMENT_LOG2;
  let [bytes, largest, longest] = [0, 0, 0];
  const add = (key: number, value: number) => {
    const size = key + OVERHEAD + (value > LARGE_VALUE ? 0 : value);
    bytes += size - OVERHEAD;
    longest = Math.max(longest, size);
    if (value <= LARGE_VALUE) largest = Math.max(largest, value);
  };
  for (const [key, value] of content.liveKeyspaces.descriptors) add(key.length, value.length);
  await content.each((key, _value, _keyspace, length) => add(key.length, length));
  const least = Math.max(bytes / SEGMENTS, longest, 4 * largest);
  return Math.min(MAX_SEGMENT_LOG2, Math.max(MIN_SEGMENT_LOG2, Math.ceil(Math.log2(least))));
}

/** A file in memory, in chunks: it grows without being copied, and is freed chunk by chunk as it is returned. */
class ChunkFile implements StorageFile {
  private size = 0;
  private taken = 0;
  private readonly chunks: (Bytes | undefined)[] = [];

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const count = Math.max(0, Math.min(buffer.length, this.size - at));
    this.over(at, count, (chunk, from) => buffer.set(chunk, from));
    return count;
  }

  write(buffer: Uint8Array, { at }: { at: number }): number {
    this.size = Math.max(this.size, at + buffer.length);
    this.over(at, buffer.length, (chunk, from) => {
      chunk.set(buffer.subarray(from, from + chunk.length));
    });
    return buffer.length;
  }

  truncate(size: number): void {
    this.over(size, this.size - size, (chunk) => chunk.fill(0));
    this.size = size;
  }

  getSize(): number {
    return this.size;
  }

  flush(): void {}
  close(): void {}

  /** Returns the next chunk, which then belongs to the caller. */
  take(): Bytes | undefined {
    const number = this.taken;
    const left = this.size - number * CHUNK;
    if (left <= 0) return undefined;
    const chunk = this.chunk(number).subarray(0, left);
    this.chunks[number] = undefined;
    this.taken += 1;
    return chunk;
  }

  private over(at: number, length: number, use: (part: Bytes, from: number) => void): void {
    for (let done = 0; done < length; ) {
      const start = (at + done) % CHUNK;
      const part = this.chunk(Math.floor((at + done) / CHUNK)).subarray(
        start,
        start + length - done,
      );
      use(part, done);
      done += part.length;
    }
  }

  private chunk(number: number): Bytes {
    const chunk = this.chunks[number] ?? new Uint8Array(CHUNK);
    this.chunks[number] = chunk;
    return chunk;
  }
}
