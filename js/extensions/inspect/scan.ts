/**
 * Goes through a file once, in slices, and finds what each segment holds: live records, those that were replaced or deleted,
 * the index, free space and damage. It replays the log as crate/FORMAT.md says in sections 4 to 9, and goes on after damage.
 */

import { monotonicNow, nextTask } from "../../util/clock.js";
import {
  DATA_START,
  FRAME,
  type FrameHeader,
  HEADER,
  isBlank,
  isExtentIntact,
  isFrameIntact,
  isRecordIntact,
  KIND,
  type LogBytes,
  type RecordHeader,
  readFrameHeader,
  readHeader,
  readRecord,
  readSuperblock,
  SEGMENT,
  type SegmentHeader,
  SKIPPABLE,
  SUPERBLOCK,
  SUPERBLOCK_STRIDE,
  type Superblock,
  type SuperblockState,
  SYSTEM,
  slotStart,
  u64,
  viewOf,
} from "./format.js";
import { KeyTable } from "./key-table.js";
import type { Source } from "./source.js";

/** What a slot holds. */
export type SlotKind = "log" | "extent" | "checkpoint" | "run" | "unknown" | "free";

/** A slot of the file. Sizes are in bytes. */
export interface Slot {
  readonly index: number;
  /** Position in the file. */
  readonly start: number;
  kind: SlotKind;
  /** The header of the segment that owns it. */
  header: SegmentHeader | undefined;
  /** Whether its records do not count: an earlier recovery dropped it, or compaction emptied it. */
  isAbandoned: boolean;
  /** Whether one of the two copies of its header is damaged. */
  hasDamagedHeader: boolean;
  /** Of the log: frames below this number count, and only those. */
  limit: number;
  frames: number;
  records: number;
  movedFrames: number;
  live: number;
  dead: number;
  /** Headers of frames, notes, and the engine's index. */
  structure: number;
  damaged: number;
  /** What an interrupted write left at the end of the log. */
  torn: number;
  minVersion: number;
  maxVersion: number;
}

/** A part of a segment of the log, in the order of the file. */
export interface FramePart {
  /** `leftover` bytes are of an earlier use of the slot. */
  readonly state: "intact" | "damaged" | "torn" | "leftover";
  /** Relative to the segment. */
  readonly at: number;
  readonly length: number;
  /** `undefined` for bytes in which no header can be read. */
  readonly header: FrameHeader | undefined;
}

/** What was found. It grows while `isComplete` is false; which records are live is known only after that. */
export interface Scan {
  readonly source: Source;
  readonly superblocks: readonly [SuperblockState, SuperblockState];
  readonly superblock: Superblock | undefined;
  readonly segmentBytes: number;
  readonly slots: readonly Slot[];
  isComplete: boolean;
  /** Frames below this number are known to have been flushed. */
  flushed: number;
  /** Number of the last frame that was found. */
  lastFrame: number;
  /** Bytes of live records and of their large values: what `db.stats().liveBytes` says. */
  live: number;
  /** Number of live keys outside of collections. */
  keys: number;
  /** Number of live records of all keyspaces but the engine's own. */
  liveRecords: number;
  /** The live descriptors of collections and indexes: keys and values. */
  readonly descriptors: Map<string, { value: Uint8Array; version: number }>;
  /** Whether the record at this position in the file counts. */
  isLive(position: number): boolean;
}

/** A file that cannot be shown at all. The message says why, and what to do. */
export class NotReadableError extends Error {
  override readonly name = "NotReadableError";
}

/** How to scan. */
export interface ScanOptions {
  readonly signal?: AbortSignal | undefined;
  /** Called between slices, with the part that is done, from 0 to 1. */
  readonly onProgress?: (scan: Scan, done: number) => void;
  /** Milliseconds of work between two pauses. */
  readonly sliceMs?: number;
}

const MAX_VALUE = 16 * 1_048_576;

/** Slots of a file with more than 32 GiB, which this format does not have, are not looked at. */
const MAX_SLOTS = 2 ** 23;

/** @throws NotReadableError for a file in which there is nothing to show */
export async function scan(source: Source, options: ScanOptions = {}): Promise<Scan> {
  return new Scanner(source, options).run(await readSuperblocks(source));
}

interface Superblocks {
  readonly states: [SuperblockState, SuperblockState];
  readonly best: Superblock | undefined;
}

async function readSuperblocks(source: Source): Promise<Superblocks> {
  const bytes = await source.read(0, DATA_START);
  const found = ([0, 1] as const).map((slot) => {
    const at = slot * SUPERBLOCK_STRIDE;
    return readSuperblock(bytes.subarray(at, at + SUPERBLOCK), slot);
  });
  const states = found.map(({ state }) => state) as [SuperblockState, SuperblockState];
  const valid = found.flatMap(({ superblock }) => superblock ?? []);
  const [best] = valid.sort((a, b) => b.generation - a.generation);
  if (best?.isNewer) {
    throw new NotReadableError(
      `${source.name} was written by a newer version of varve (format ${best.major}). Inspect it with that version.`,
    );
  }
  if (best === undefined && !states.includes("damaged") && !hasMark(bytes)) {
    throw new NotReadableError(
      source.size === 0
        ? `${source.name} is empty: it is no varve database.`
        : `${source.name} is no varve database: it does not begin with "varve". Choose a .varve file.`,
    );
  }
  return { states, best };
}

/** Whether the file is being filled, or its content replaced (crate/FORMAT.md, section 10a). */
function hasMark(bytes: Uint8Array): boolean {
  const text = new TextDecoder("latin1").decode(bytes.subarray(0, 16));
  return text === "filling varve\r\n\u001a" || text === "changes varve\r\n\u001a";
}

interface Pending {
  readonly data: DataView;
  readonly record: RecordHeader;
  readonly slot: Slot;
}

class Scanner {
  readonly #source: Source;
  readonly #options: ScanOptions;
  readonly #table = new KeyTable();
  /** Where live extents are: by the position of their records. */
  readonly #extents = new Map<number, { slot: number; sequence: number; length: number }>();
  /** The versions at which keyspaces were emptied. */
  readonly #cleared = new Map<number, number>();
  #pending: Pending[] = [];
  #sliceEnd = 0;

  constructor(source: Source, options: ScanOptions) {
    this.#source = source;
    this.#options = options;
  }

  async run({ states, best }: Superblocks): Promise<Scan> {
    const segmentBytes = best?.segmentBytes ?? (await this.#guessSegmentBytes());
    const slots = this.#blankSlots(segmentBytes);
    const bits = new Uint8Array(Math.ceil((slots.length * segmentBytes) / 64));
    const scan: Scan = {
      source: this.#source,
      superblocks: states,
      superblock: best,
      segmentBytes,
      slots,
      isComplete: false,
      flushed: best?.nextFrame ?? 0,
      lastFrame: 0,
      live: 0,
      keys: 0,
      liveRecords: 0,
      descriptors: new Map(),
      isLive(position) {
        const eight = (position - DATA_START) / 8;
        return ((bits[eight >> 3] ?? 0) & (1 << (eight & 7))) !== 0;
      },
    };
    this.#sliceEnd = monotonicNow() + this.#sliceMs;
    await this.#findSegments(scan);
    const log = orderLog(scan);
    for (const [i, slot] of log.entries()) {
      await this.#readSegment(scan, slot);
      await this.#rest(scan, i / log.length);
    }
    this.#drop();
    const damaged = await this.#damagedExtents(scan);
    await this.#finish(scan, bits, damaged);
    return scan;
  }

  get #sliceMs(): number {
    return this.#options.sliceMs ?? 12;
  }

  /** Pauses if the slice is over. */
  async #rest(scan: Scan | undefined, done: number): Promise<void> {
    this.#options.signal?.throwIfAborted();
    if (monotonicNow() < this.#sliceEnd) return;
    if (scan !== undefined) this.#options.onProgress?.(scan, done);
    await nextTask();
    this.#sliceEnd = monotonicNow() + this.#sliceMs;
  }

  #blankSlots(segmentBytes: number): Slot[] {
    const count = Math.ceil(Math.max(0, this.#source.size - DATA_START) / segmentBytes);
    return Array.from({ length: Math.min(count, MAX_SLOTS) }, (_, index) => ({
      index,
      start: slotStart(index, segmentBytes),
      kind: "free" as const,
      header: undefined,
      isAbandoned: false,
      hasDamagedHeader: false,
      limit: Number.POSITIVE_INFINITY,
      frames: 0,
      records: 0,
      movedFrames: 0,
      live: 0,
      dead: 0,
      structure: 0,
      damaged: 0,
      torn: 0,
      minVersion: Number.POSITIVE_INFINITY,
      maxVersion: 0,
    }));
  }

  /** Without a superblock: the largest size of segments for which there is one whose two headers are equal. */
  async #guessSegmentBytes(): Promise<number> {
    for (let log2 = 24; log2 >= 12; log2 -= 1) {
      const size = 2 ** log2;
      for (let slot = 0; slotStart(slot + 1, size) <= this.#source.size; slot += 1) {
        const first = await this.#source.read(slotStart(slot, size), HEADER);
        const header = readHeader(viewOf(first), 0, size, undefined);
        if (header?.slot !== slot) continue;
        const last = await this.#source.read(slotStart(slot + header.span, size) - HEADER, HEADER);
        if (last.length === HEADER && last.every((byte, i) => byte === first[i])) return size;
        await this.#rest(undefined, 0);
      }
    }
    if (this.#source.size <= DATA_START) {
      throw new NotReadableError(
        `${this.#source.name} holds nothing yet: the creation of this database was interrupted.`,
      );
    }
    throw new NotReadableError(
      `${this.#source.name} is damaged: neither its superblocks nor any segment can be read.`,
    );
  }

  /** Section 4: of all valid headers, the one with the larger sequence owns a slot. */
  async #findSegments(scan: Scan): Promise<void> {
    const { slots, segmentBytes, superblock } = scan;
    const copies: { header: SegmentHeader; isFirst: boolean }[] = [];
    for (let boundary = 0; boundary <= slots.length; boundary += 1) {
      const at = slotStart(boundary, segmentBytes) - HEADER;
      const bytes = await this.#source.read(at, 2 * HEADER);
      const data = viewOf(bytes);
      const trailer = readHeader(data, 0, segmentBytes, superblock?.fileId);
      if (boundary > 0 && trailer !== undefined && trailer.slot + trailer.span === boundary) {
        copies.push({ header: trailer, isFirst: false });
      }
      const header = readHeader(data, HEADER, segmentBytes, superblock?.fileId);
      if (header?.slot === boundary) copies.push({ header, isFirst: true });
      await this.#rest(scan, 0);
    }
    copies.sort((a, b) => b.header.sequence - a.header.sequence);
    for (const { header } of copies) {
      const last = Math.min(header.slot + header.span, slots.length);
      const owned = slots.slice(header.slot, last);
      if (owned.some((slot) => slot.header !== undefined)) continue;
      for (const slot of owned) {
        slot.header = header;
        slot.kind = kindOf(header.kind);
      }
    }
    const counts = new Map<number, number>();
    for (const { header } of copies) {
      if (slots[header.slot]?.header?.sequence !== header.sequence) continue;
      counts.set(header.slot, (counts.get(header.slot) ?? 0) + 1);
    }
    for (const slot of slots) {
      const { header } = slot;
      if (header?.slot === slot.index) slot.hasDamagedHeader = counts.get(slot.index) === 1;
    }
  }

  async #readSegment(scan: Scan, slot: Slot): Promise<void> {
    const log = await readLog(scan, slot);
    const { data } = log;
    for (const part of framesOf(log, slot, scan.flushed)) {
      const { state, at, length, header } = part;
      if (slot.isAbandoned) {
        slot.dead += length;
      } else if (state === "intact" && header !== undefined) {
        slot.frames += 1;
        if (header.moved) slot.movedFrames += 1;
        slot.structure += FRAME;
        scan.flushed = Math.max(scan.flushed, header.watermark);
        this.#takeRecords(slot, data, at, length, header.moved);
        scan.lastFrame = Math.max(scan.lastFrame, header.number);
        if (header.commits) this.#apply(scan);
      } else if (state === "damaged") {
        slot.damaged += length - this.#takeIntactRecords(slot, log, part);
      } else if (state === "torn") {
        slot.torn += length;
      }
      await this.#rest(undefined, 0);
    }
  }

  #takeRecords(slot: Slot, data: DataView, from: number, length: number, moved: boolean): void {
    const end = from + length;
    for (let at = from + FRAME; at < end; ) {
      const record = readRecord(data, at, end);
      if (record === undefined) return;
      this.#take(slot, data, record, moved);
      at += record.size;
    }
  }

  /** Takes those records of a damaged frame whose own checksums are right. Returns their bytes. */
  #takeIntactRecords(slot: Slot, log: LogBytes, { at: from, length, header }: FramePart): number {
    const end = from + length;
    let bytes = 0;
    for (let at = from + FRAME; at < end; ) {
      const record = readRecord(log.data, at, end);
      const isIntact = record !== undefined && isRecordIntact(log, record);
      if (record === undefined || !isIntact) {
        at += 8;
        continue;
      }
      this.#take(slot, log.data, record, header?.moved === true);
      bytes += record.size;
      at += record.size;
    }
    return bytes;
  }

  #take(slot: Slot, data: DataView, record: RecordHeader, moved: boolean): void {
    slot.records += 1;
    if (record.kind >= SKIPPABLE) {
      if (record.kind === KIND.void || record.kind === KIND.transaction) {
        slot.structure += record.size;
        return;
      }
    } else if (!moved) {
      slot.minVersion = Math.min(slot.minVersion, record.version);
      slot.maxVersion = Math.max(slot.maxVersion, record.version);
    }
    // Until the end shows which are live.
    slot.dead += record.size;
    this.#pending.push({ data, record, slot });
  }

  /** Applies the records of a complete commit. */
  #apply(scan: Scan): void {
    for (const { data, record, slot } of this.#pending) {
      const { kind, keyspace, version, valueAt, valueLength } = record;
      if (kind > KIND.clear || version < (this.#cleared.get(keyspace) ?? 0)) continue;
      const position = (slot.start + record.at - DATA_START) / 8;
      const ended = this.#table.put(data, record, position);
      if (ended >= 0) this.#extents.delete(ended);
      if (ended === position) continue;
      if (kind === KIND.extent && valueLength >= 32) {
        this.#extents.set(position, {
          slot: data.getUint32(valueAt, true),
          length: u64(data, valueAt + 8),
          sequence: data.getUint32(valueAt + 24, true),
        });
      }
      if (keyspace === SYSTEM) this.#applySystem(scan, data, record);
    }
    this.#pending = [];
  }

  #applySystem(scan: Scan, data: DataView, record: RecordHeader): void {
    const { kind, keyAt, keyLength, valueAt, valueLength, version } = record;
    if (kind === KIND.clear && keyLength === 10) {
      const keyspace = data.getUint32(keyAt + 6, false);
      this.#cleared.set(keyspace, Math.max(version, this.#cleared.get(keyspace) ?? 0));
      return;
    }
    // "col" of "collection/", or "ind" of "index/".
    const begin = keyLength > 6 ? data.getUint16(keyAt, false) * 256 + data.getUint8(keyAt + 2) : 0;
    if (begin !== 0x63_6f6c && begin !== 0x69_6e64) return;
    const key = new TextDecoder("latin1").decode(bytesIn(data, keyAt, keyLength));
    if (!key.startsWith("collection/") && !key.startsWith("index/")) return;
    if (kind !== KIND.set) scan.descriptors.delete(key);
    else {
      const value = bytesIn(data, valueAt, valueLength).slice();
      scan.descriptors.set(key, { value, version });
    }
  }

  /** What follows the last complete commit was never committed. */
  #drop(): void {
    for (const { record, slot } of this.#pending) {
      slot.dead -= record.size;
      slot.torn += record.size;
    }
    this.#pending = [];
  }

  /** The first slots of extents whose values are damaged. No value is longer than 16 MiB. */
  async #damagedExtents(scan: Scan): Promise<Set<number>> {
    const damaged = new Set<number>();
    for (const { index, kind, header, start } of scan.slots) {
      if (kind !== "extent" || header?.slot !== index) continue;
      const position = start + HEADER;
      const bytes = await this.#source.read(position, Math.min(header.payload, MAX_VALUE));
      if (!isExtentIntact(bytes, header, position)) damaged.add(index);
      await this.#rest(undefined, 1);
    }
    return damaged;
  }

  /** Moves the bytes of all that is live from the dead ones, once it is known what that is. */
  async #finish(scan: Scan, bits: Uint8Array, damaged: ReadonlySet<number>): Promise<void> {
    const { slots, segmentBytes } = scan;
    const cleared = this.#cleared;
    const liveExtents = new Map<number, number>();
    const visits = this.#table.visits((position, size, kind, keyspace, version) => {
      if (kind === KIND.delete || version < (cleared.get(keyspace) ?? 0)) return;
      bits[position >>> 3]! |= 1 << (position & 7);
      const slot = slots[Math.floor((position * 8) / segmentBytes)]!;
      slot.live += size;
      slot.dead -= size;
      scan.live += size;
      if (keyspace === 0) scan.keys += 1;
      if (keyspace !== SYSTEM) scan.liveRecords += 1;
      const extent = this.#extents.get(position);
      if (extent === undefined) return;
      liveExtents.set(extent.slot, extent.sequence);
      scan.live += extent.length;
    });
    for (const _ of visits) await this.#rest(undefined, 1);
    for (const slot of slots) {
      const { header, kind, start } = slot;
      if (header === undefined || kind === "log" || kind === "free") continue;
      // The part of the content that lies in this slot, behind the header of the first one.
      const offset = start - slotStart(header.slot, segmentBytes) - HEADER;
      const space = segmentBytes + Math.min(offset, 0);
      const bytes = Math.max(0, Math.min(header.payload - Math.max(offset, 0), space));
      if (kind !== "extent") slot.structure += bytes;
      else if (damaged.has(header.slot)) slot.damaged += bytes;
      else if (liveExtents.get(header.slot) === header.sequence) slot.live += bytes;
      else slot.dead += bytes;
    }
    scan.isComplete = true;
  }
}

function kindOf(kind: number): SlotKind {
  switch (kind) {
    case SEGMENT.log:
      return "log";
    case SEGMENT.extent:
      return "extent";
    case SEGMENT.checkpoint:
      return "checkpoint";
    case SEGMENT.run:
      return "run";
    default:
      return "unknown";
  }
}

/** Section 9, steps 2 and 3: the segments of the log in order, and which of them count. */
function orderLog({ slots, superblock }: Scan): Slot[] {
  const first = superblock?.firstSequence ?? 0;
  const log = slots.filter(({ kind }) => kind === "log");
  log.sort((a, b) => a.header!.sequence - b.header!.sequence);
  let limit = Number.POSITIVE_INFINITY;
  for (const slot of [...log].reverse()) {
    const { firstFrame, sequence } = slot.header!;
    slot.limit = limit;
    slot.isAbandoned = firstFrame >= limit || sequence < first;
    if (sequence >= first) limit = Math.min(limit, firstFrame);
  }
  return log;
}

/** The bytes of a segment of the log. What the file lacks at its end reads as zeros. */
export async function readLog(scan: Scan, slot: Slot): Promise<LogBytes> {
  const { source, segmentBytes } = scan;
  let bytes = await source.read(slot.start, segmentBytes);
  if (bytes.length < segmentBytes) {
    const padded = new Uint8Array(segmentBytes);
    padded.set(bytes);
    bytes = padded;
  }
  return {
    data: viewOf(bytes),
    start: slot.start,
    salt: slot.header?.salt ?? { lo: 0, hi: 0 },
    end: segmentBytes - HEADER,
  };
}

/**
 * The frames of a segment, and what is not one: section 9, steps 4 and 5. After damage it goes on with the next intact
 * frame. Frames below `flushed` were promised, so that bytes in their place are damage.
 */
export function* framesOf(
  log: LogBytes,
  { header, limit: last, isAbandoned }: Pick<Slot, "header" | "limit" | "isAbandoned">,
  flushed: number,
): Generator<FramePart> {
  const limit = isAbandoned ? Number.POSITIVE_INFINITY : last;
  let expected = header?.firstFrame ?? 0;
  let at = HEADER;
  while (expected < limit && at < log.end) {
    const frame = readFrameHeader(log, at);
    const begun = frame?.number === expected ? frame : undefined;
    if (begun !== undefined && isFrameIntact(log, at, begun.length)) {
      yield { state: "intact", at, length: begun.length, header: begun };
      at += begun.length;
      expected += 1;
      continue;
    }
    const next = findFrame(log, at + 8, expected, limit);
    if (next !== undefined) {
      yield { state: "damaged", at, length: next.at - at, header: begun };
      at = next.at;
      expected = next.number;
      continue;
    }
    const end = endOfUse(log, at);
    if (end <= at) return;
    const length = Math.max(end - at, begun?.length ?? 0);
    const promised = limit === Number.POSITIVE_INFINITY ? flushed : limit;
    const wasReused = header?.isReused === true && begun === undefined;
    const state = expected < promised ? "damaged" : wasReused ? "leftover" : "torn";
    yield { state, at, length, header: begun };
    return;
  }
}

/** The next intact frame from `from` on whose number may follow. */
function findFrame(
  log: LogBytes,
  from: number,
  expected: number,
  limit: number,
): FrameHeader | undefined {
  for (let at = from; at + FRAME <= log.end; at += 8) {
    const frame = readFrameHeader(log, at);
    if (frame === undefined || frame.number < expected || frame.number >= limit) continue;
    if (isFrameIntact(log, at, frame.length)) return frame;
  }
  return undefined;
}

/** The end of the last eight bytes that are not zero. */
function endOfUse({ data, end }: LogBytes, from: number): number {
  let at = end;
  while (at - 4096 > from && isBlank(data, at - 4096, at)) at -= 4096;
  while (at > from && isBlank(data, at - 8, at)) at -= 8;
  return at;
}

export function bytesIn(data: DataView, at: number, length: number): Uint8Array<ArrayBuffer> {
  const buffer = data.buffer as ArrayBuffer;
  return new Uint8Array(buffer, data.byteOffset + at, length);
}

/** Bytes of the file by what they are. They add up to its size. */
export interface Totals {
  /** Current records, and large values outside of them. */
  readonly live: number;
  /** Records that were replaced or deleted, and deletions. */
  readonly dead: number;
  /** Superblocks, headers, notes and the engine's index. */
  readonly structure: number;
  /** Bytes whose checksums are wrong. */
  readonly damaged: number;
  /** What an interrupted write left, which was never committed. */
  readonly torn: number;
  readonly free: number;
}

export function totalsOf({ slots, source }: Scan): Totals {
  const totals = { live: 0, dead: 0, structure: 0, damaged: 0, torn: 0 };
  for (const slot of slots) {
    totals.live += slot.live;
    totals.dead += slot.dead;
    totals.structure += slot.structure + (slot.header?.slot === slot.index ? 2 * HEADER : 0);
    totals.damaged += slot.damaged;
    totals.torn += slot.torn;
  }
  totals.structure += Math.min(DATA_START, source.size);
  const used = Object.values(totals).reduce((sum, bytes) => sum + bytes, 0);
  return { ...totals, free: Math.max(0, source.size - used) };
}
