/**
 * `db.export()`: what lives in a database, as the bytes of a file that never held anything else. A
 * chunk of its own, loaded when it is asked for.
 *
 * The copy is made a few milliseconds at a time, and is as of the moment in which it began: a key that is
 * about to be written for the first time since is copied before, and passed over when its turn comes.
 */

import { SYSTEM_KEYSPACE } from "../collection/catalog.js";
import { type LiveKeyspaces, liveKeyspacesOf } from "../collection/live-keyspaces.js";
import { Engine } from "../engine/engine.js";
import type { ExportOptions } from "../session/options.js";
import type { Session } from "../session/session.js";
import type { StorageFile } from "../storage/storage.js";
import { nextTask, slice } from "../util/clock.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** The copy lies in pieces of so many bytes, which are given out one by one. */
const CHUNK = 262_144;

/** So many records are looked at in one call, unless they come to so many bytes. */
const PAGE = 256;
const PAGE_BYTES = 1_048_576;

/** Other tasks run after so long. */
const SLICE_MS = 4;

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
 * @throws what reading the database throws, the reason of `signal`, and what `onProgress` throws
 */
export async function exported(
  source: () => Session,
  options: ExportOptions,
): Promise<() => Bytes | undefined> {
  const session = source();
  session.assertOutsideCallback("export()");
  const pace = new Pace(source, options);
  // The first page would have all keys sorted at once.
  while (session.engine.sortPart()) await pace.rest(0, session.engine.stats().liveBytes);
  if (session.engine.pending() !== 0) session.commit();
  const moment = new Moment(source, pace);
  try {
    const segmentLog2 = await segmentFor(moment);
    const file = new Chunks();
    const { name, engine } = session;
    const copy = await Engine.open(name, engine.module, file, { ...SETTINGS, segmentLog2 });
    try {
      moment.copyTo(copy);
      await moment.each((key, value, keyspace) => moment.put(key, value(), keyspace));
      await moment.complete();
    } finally {
      moment.end();
      copy.discard();
    }
    return () => file.take();
  } finally {
    moment.end();
  }
}

type KeyspaceVisit = (key: Bytes, value: () => Bytes, keyspace: number, length: number) => void;

/** A database as it was when this was made, though it goes on. */
class Moment {
  readonly liveKeyspaces: LiveKeyspaces;
  readonly liveBytes: number;
  private readonly engine: Engine;
  private readonly pace: Pace;
  private readonly unhear: () => void;
  private readonly keyspaces: ReadonlySet<number>;
  /** Keys that were written since, before they were visited: what they had is copied, if they were there. */
  private readonly written: Set<string>;
  /** What they had, until there is a copy to put it into. */
  private readonly kept: [key: Bytes, value: Bytes, keyspace: number][];
  private copy: Engine | undefined;
  /** Why what a key had could not be kept. Whoever writes it is not to suffer from that. */
  private failure: { reason: unknown } | undefined;
  private bytes: number;
  private since: number;

  constructor(source: () => Session, pace: Pace) {
    const { engine } = source();
    this.engine = engine;
    this.pace = pace;
    this.liveKeyspaces = liveKeyspacesOf(engine);
    this.liveBytes = engine.stats().liveBytes;
    this.keyspaces = new Set(this.liveKeyspaces.keyspaces);
    this.written = new Set();
    this.kept = [];
    this.copy = undefined;
    this.failure = undefined;
    this.bytes = 0;
    this.since = 0;
    this.unhear = engine.observeKeys((keyspace, length) => this.keep(keyspace, length));
  }

  end(): void {
    this.unhear();
  }

  /** Records of the moment that were kept apart, or are where they were. */
  async each(visit: KeyspaceVisit): Promise<void> {
    for (const keyspace of this.liveKeyspaces.keyspaces) {
      let lower: Bytes | undefined;
      do {
        lower = this.page(lower, keyspace, visit);
        if (this.pace.isOver) await this.rest();
      } while (lower !== undefined);
    }
    for (const [key, value, keyspace] of this.kept) {
      visit(key, () => value, keyspace, value.length);
    }
  }

  /** Visits some records behind a key. Gives the last one's, or `undefined` at the end. */
  private page(
    lower: Bytes | undefined,
    keyspace: number,
    visit: KeyspaceVisit,
  ): Bytes | undefined {
    const { engine, written } = this;
    const page = engine.scan({ lower, upper: undefined, ...OPEN }, PAGE, true, keyspace);
    const { bytes, numbers, count } = page;
    let key: Bytes | undefined;
    for (let i = 0, sum = 0; i < count && sum < PAGE_BYTES; i++) {
      key = bytes.subarray(numbers[i], numbers[i + 1]);
      if (written.size !== 0 && written.has(nameOf(keyspace, key))) continue;
      const at = engine.findOnPage(page, i, keyspace);
      const length = engine.foundLength();
      visit(key, () => engine.view(at, length), keyspace, length);
      sum += key.length + length;
    }
    return key?.slice();
  }

  /** This key is about to be written. */
  private keep(keyspace: number, keyLength: number): void {
    if (!this.keyspaces.has(keyspace) || this.failure !== undefined) return;
    const { engine, copy, written } = this;
    try {
      const key = engine.encoded(keyLength);
      const name = nameOf(keyspace, key);
      // What is in the copy was visited.
      if (written.has(name) || copy?.has(key, keyspace) === true) return;
      const at = engine.find(keyLength, keyspace);
      if (at !== 0) {
        const value = engine.view(at, engine.foundLength());
        if (copy === undefined) this.kept.push([key, value.slice(), keyspace]);
        else this.put(key, value, keyspace);
      }
      written.add(name);
    } catch (reason) {
      this.failure = { reason };
    }
  }

  /** From here on what is kept goes into the copy. */
  copyTo(copy: Engine): void {
    this.copy = copy;
    for (const [key, value] of this.liveKeyspaces.descriptors)
      copy.set(key, value, SYSTEM_KEYSPACE);
    for (const [key, value, keyspace] of this.kept.splice(0)) this.put(key, value, keyspace);
  }

  put(key: Bytes, value: Bytes, keyspace: number): void {
    const copy = this.copy as Engine;
    copy.set(key, value, keyspace);
    const size = key.length + value.length;
    this.bytes += size;
    this.since += size;
    if (this.since < STEP) return;
    this.since = 0;
    copy.commit();
    copy.endTurn(false);
  }

  async complete(): Promise<void> {
    const copy = this.copy as Engine;
    this.end();
    if (this.failure !== undefined) throw this.failure.reason;
    // Its index is written part by part; what is left for the end is that of a copy that opens fast without.
    while (copy.maintain(false)) if (this.pace.isOver) await this.rest();
    // What was flushed is not read again by who opens it: there is a checkpoint.
    copy.flush();
    copy.close();
    this.pace.reportProgress(this.liveBytes, this.liveBytes);
  }

  private async rest(): Promise<void> {
    if (this.failure !== undefined) throw this.failure.reason;
    await this.pace.rest(Math.min(this.bytes, this.liveBytes), this.liveBytes);
  }
}

/** Has the program go on after every few milliseconds of work, and hear how far that is. */
class Pace {
  private readonly source: () => Session;
  private readonly options: ExportOptions;
  private sliceIsOver: () => boolean;

  constructor(source: () => Session, options: ExportOptions) {
    this.source = source;
    this.options = options;
    this.sliceIsOver = slice(SLICE_MS);
  }

  get isOver(): boolean {
    return this.sliceIsOver();
  }

  /** Lets other tasks run. Where there are no timers nobody else waits for this thread. */
  async rest(bytes: number, total: number): Promise<void> {
    const { engine, settings } = this.source();
    if (settings.timers) engine.endTurn(settings.strictViews);
    this.reportProgress(bytes, total);
    if (!settings.timers) return;
    await nextTask();
    this.options.signal?.throwIfAborted();
    this.source().assertOutsideCallback("export()");
    this.sliceIsOver = slice(SLICE_MS);
  }

  reportProgress(bytes: number, total: number): void {
    const { onProgress, signal } = this.options;
    signal?.throwIfAborted();
    onProgress?.({ bytes, total });
    signal?.throwIfAborted();
  }
}

function nameOf(keyspace: number, key: Bytes): string {
  let name = `${keyspace}:`;
  for (const byte of key) name += String.fromCharCode(byte);
  return name;
}

/** The smallest segments that are few, and hold every record whose value is not apart in any case. */
async function segmentFor(moment: Moment): Promise<number> {
  if (moment.liveBytes > SEGMENTS << LARGEST) return LARGEST;
  let [bytes, largest, longest] = [0, 0, 0];
  const add = (key: number, value: number) => {
    const size = key + OVERHEAD + (value > APART ? 0 : value);
    bytes += size - OVERHEAD;
    longest = Math.max(longest, size);
    if (value <= APART) largest = Math.max(largest, value);
  };
  for (const [key, value] of moment.liveKeyspaces.descriptors) add(key.length, value.length);
  await moment.each((key, _value, _keyspace, length) => add(key.length, length));
  const least = Math.max(bytes / SEGMENTS, longest, 4 * largest);
  return Math.min(LARGEST, Math.max(SMALLEST, Math.ceil(Math.log2(least))));
}

/** A file in memory that never has to be moved as it grows, and goes as it is given out. */
class Chunks implements StorageFile {
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

  /** The next piece, which is the reader's. */
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
