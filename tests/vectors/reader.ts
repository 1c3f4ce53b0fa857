/**
 * A reader of the file format, written from crate/FORMAT.md alone: it shares no code and no author's
 * habit with the engine, so that what both read in the golden files is what the document says.
 * Section numbers are those of the document. It reads a whole file at once and is not fast.
 */

import { createXXHash3 } from "hash-wasm";

/** What opening a file gives (section 9). */
export interface Database {
  recovery: Recovery;
  /** TRANSACTION records of the log that counts, in its order. */
  transactions: TransactionNote[];
  /** Live records by keyspace and key. */
  live: LiveRecord[];
}

export interface Recovery {
  tornBytes: number;
  droppedFrames: number;
  lastFrame: number;
  replayedFrames: number;
  clean: boolean;
  created: boolean;
}

export interface TransactionNote {
  number: number;
  timeMs: number;
  client: number;
  request: number;
  note: string;
}

export interface LiveRecord {
  keyspace: number;
  version: number;
  expiry: number;
  key: Uint8Array;
  value: Uint8Array;
}

/** Stable codes of the errors that a file can give. */
export const CORRUPTION = 8;
export const NOT_A_DATABASE = 9;
export const UNSUPPORTED_FORMAT = 10;

/** A file that does not open, with what there is to say about it. */
export class FormatError extends Error {
  override readonly name = "FormatError";
  constructor(
    readonly code: number,
    readonly details: Record<string, number> = {},
  ) {
    super(`error ${code} ${JSON.stringify(details)}`);
  }
}

/** XXH3-64 with a 64-bit seed. */
export async function checksum(bytes: Uint8Array, seed: bigint): Promise<bigint> {
  const hasher = await createXXHash3(Number(seed & 0xffff_ffffn), Number(seed >> 32n));
  return BigInt(`0x${hasher.init().update(bytes).digest("hex")}`);
}

function seedAt(salt: bigint, position: number): bigint {
  return salt ^ BigInt.asUintN(64, BigInt(position) * 0x9e37_79b9_7f4a_7c15n);
}

const SUPERBLOCK_MAGIC = [0x76, 0x61, 0x72, 0x76, 0x65, 0x0d, 0x0a, 0x1a];
const SUPERBLOCK_SEED = 0x1a0a_0d65_7672_6176n;
const SUPERBLOCK = 256;
const SLOT_STRIDE = 4096;
const DATA_START = 8192;
const HEADER = 64;
const FRAME = 40;
/** Bytes of the longest value. */
const MAX_VALUE = 16n << 20n;
const RECORD = 40;
const LOG = 1;
const EXTENT_SEGMENT = 2;
const [SET, DELETE, EXTENT] = [1, 2, 3];
const VOID = 0x81;
const TRANSACTION = 0x82;
const SKIPPABLE = 0x80;

interface Superblock {
  segmentLog2: number;
  clean: boolean;
  fileId: bigint;
  generation: number;
  nextFrame: number;
  firstSequence: number;
  firstFrame: number;
}

interface Segment {
  kind: number;
  sequence: number;
  slot: number;
  span: number;
  salt: bigint;
  firstFrame: number;
  payload: number;
  /** Position of its first slot. */
  start: number;
  /** Position at which its frames must have ended. */
  roomEnd: number;
  /** Frames at or above this number were dropped by a recovery. */
  limit: number;
}

interface Frame {
  position: number;
  length: number;
  number: number;
  watermark: number;
  records: number;
  commits: boolean;
  salt: bigint;
}

interface LogRecord {
  kind: number;
  keyspace: number;
  version: number;
  expiry: number;
  key: Uint8Array;
  value: Uint8Array;
}

/** Where the chain of frames broke off, and what was found behind it. */
interface Chain {
  frames: Frame[];
  /** Index of the segment in which it broke off, and the place. */
  segment: number;
  position: number;
  expected: number;
  intactFrames: number;
  intactBytes: number;
  watermark: number;
}

/** Opens a database (section 9). Throws `FormatError` for what must not open. */
export async function read(file: Uint8Array): Promise<Database> {
  const superblock = await readSuperblock(file);
  if (superblock === undefined) return createdAnew();
  return new Reader(file, superblock).open();
}

function createdAnew(): Database {
  const recovery = { tornBytes: 0, droppedFrames: 0, lastFrame: 0, replayedFrames: 0 };
  return { recovery: { ...recovery, clean: true, created: true }, transactions: [], live: [] };
}

type Found = "damaged" | "empty" | "unfinished" | "foreign";

/** Section 9, step 1. `undefined` for an unfinished creation. */
async function readSuperblock(file: Uint8Array): Promise<Superblock | undefined> {
  const valid: Superblock[] = [];
  const found: Found[] = [];
  for (const slot of [0, 1]) {
    const bytes = file.subarray(slot * SLOT_STRIDE, slot * SLOT_STRIDE + SUPERBLOCK);
    const result = await readSlot(bytes, slot);
    if (typeof result === "string") found.push(result);
    else valid.push(result);
  }
  const counts = valid.sort((a, b) => b.generation - a.generation)[0];
  if (counts !== undefined) {
    if (counts.generation === 1 && file.length <= DATA_START) return undefined;
    if (counts.generation > 2 && file.length < SLOT_STRIDE + SUPERBLOCK) throw lostSuperblocks();
    return counts;
  }
  const elsewhere = file.some((byte, at) => byte !== 0 && at % SLOT_STRIDE >= SUPERBLOCK);
  if (file.length <= DATA_START && !found.includes("foreign") && !elsewhere) return undefined;
  if (found.includes("damaged")) throw lostSuperblocks();
  throw new FormatError(NOT_A_DATABASE);
}

function lostSuperblocks(): FormatError {
  return corruption({ position: 0, expectedFrame: 0, flushedFrames: 0 });
}

function corruption(damage: {
  position: number;
  expectedFrame: number;
  flushedFrames: number;
  intactFrames?: number;
  intactBytes?: number;
}): FormatError {
  return new FormatError(CORRUPTION, { intactFrames: 0, intactBytes: 0, ...damage });
}

async function readSlot(bytes: Uint8Array, slot: number): Promise<Superblock | Found> {
  if (bytes.every((byte) => byte === 0)) return "empty";
  const magic = [...bytes.subarray(0, 8)];
  const wrong = magic.findIndex((byte, i) => byte !== SUPERBLOCK_MAGIC[i]);
  if (wrong >= 0 || magic.length < 8) {
    const torn = wrong !== 0 && magic.slice(wrong < 0 ? 8 : wrong).every((byte) => byte === 0);
    return torn ? "unfinished" : "foreign";
  }
  if (bytes.length < SUPERBLOCK) return "damaged";
  const view = viewOf(bytes);
  const check = await checksum(bytes.subarray(16), seedAt(SUPERBLOCK_SEED, slot * SLOT_STRIDE));
  if (check !== view.getBigUint64(8, true)) return "damaged";
  refuseUnsupported(view);
  const segmentLog2 = view.getUint8(20);
  const counts = [u64(view, 88), u64(view, 96), u64(view, 136)];
  const sane = counts.every((count) => count > 0 && count < 2 ** 56);
  if (segmentLog2 < 12 || segmentLog2 > 24 || !sane) throw lostSuperblocks();
  return {
    segmentLog2,
    clean: (view.getUint16(22, true) & 1) !== 0,
    fileId: view.getBigUint64(40, true),
    generation: u64(view, 72),
    nextFrame: u64(view, 96),
    firstSequence: u64(view, 128),
    firstFrame: u64(view, 136),
  };
}

function refuseUnsupported(view: DataView): void {
  const major = view.getUint16(16, true);
  const features = u64(view, 24);
  const newer = major !== 1 || features !== 0 || view.getUint8(21) !== 0 || u64(view, 144) !== 0;
  if (newer) throw new FormatError(UNSUPPORTED_FORMAT, { major, features });
}

class Reader {
  readonly file: Uint8Array;
  readonly segments = new Map<number, Segment>();

  constructor(
    file: Uint8Array,
    readonly superblock: Superblock,
  ) {
    // What lies behind the end of the file reads as zeros: the last slot is filled up.
    const size = 2 ** superblock.segmentLog2;
    const slots = Math.max(0, Math.ceil((file.length - DATA_START) / size));
    this.file = new Uint8Array(DATA_START + slots * size);
    this.file.set(file.subarray(0, this.file.length));
  }

  async open(): Promise<Database> {
    await this.findSegments();
    const log = this.logSegments();
    const chain = await this.followChain(log);
    const flushed = await this.lookBeyond(log, chain);
    const kept = await this.wholeCommits(chain.frames, flushed);
    const next = this.superblock.firstFrame + kept.length;
    // Frames that were valid and do not count begin where the first of them is.
    const position = chain.frames[kept.length]?.position ?? chain.position;
    if (next < flushed) {
      const { intactFrames, intactBytes } = chain;
      const damage = { position, expectedFrame: next, flushedFrames: flushed };
      throw corruption({ ...damage, intactFrames, intactBytes });
    }
    const tornBytes = this.tornBytes(log, position);
    const dropped = chain.frames.length - kept.length + chain.intactFrames;
    const { clean, nextFrame } = this.superblock;
    const records = (await this.readRecords(kept.at(-1))) ?? [];
    const witnessed = next === nextFrame + 1 && records.every(({ kind }) => kind === VOID);
    const recovery = {
      tornBytes,
      droppedFrames: tornBytes > 0 ? dropped : 0,
      lastFrame: next - 1,
      replayedFrames: kept.length,
      clean: clean && tornBytes === 0 && (next === nextFrame || witnessed),
      created: false,
    };
    return { recovery, ...(await this.replay(kept, next)) };
  }

  slotStart(slot: number): number {
    return DATA_START + slot * 2 ** this.superblock.segmentLog2;
  }

  /** Section 4: all valid headers and trailers; the larger sequence has a slot. */
  async findSegments(): Promise<void> {
    const copies: Segment[] = [];
    for (let slot = 0; this.slotStart(slot) < this.file.length; slot += 1) {
      const header = await this.readHeader(this.slotStart(slot));
      if (header?.slot === slot) copies.push(header);
      const trailer = await this.readHeader(this.slotStart(slot + 1) - HEADER);
      if (trailer !== undefined && trailer.slot + trailer.span === slot + 1) copies.push(trailer);
    }
    copies.sort((a, b) => b.sequence - a.sequence);
    const taken = new Set<number>();
    for (const copy of copies) {
      const slots = Array.from({ length: copy.span }, (_, i) => copy.slot + i);
      if (slots.some((slot) => taken.has(slot))) continue;
      for (const slot of slots) taken.add(slot);
      this.segments.set(copy.slot, copy);
    }
  }

  async readHeader(position: number): Promise<Segment | undefined> {
    const bytes = this.file.subarray(position, position + HEADER);
    const view = viewOf(bytes);
    if (view.getUint32(8, true) !== 0x4745_5356) return undefined;
    const slot = view.getUint32(20, true);
    const start = this.slotStart(slot);
    const check = await checksum(bytes.subarray(8), seedAt(this.superblock.fileId, start));
    if (check !== view.getBigUint64(0, true)) return undefined;
    const span = view.getUint32(56, true);
    return {
      kind: view.getUint8(12),
      sequence: view.getUint32(16, true),
      slot,
      span,
      salt: view.getBigUint64(24, true),
      firstFrame: u64(view, 32),
      payload: u64(view, 40),
      start,
      roomEnd: this.slotStart(slot + span) - HEADER,
      limit: Number.POSITIVE_INFINITY,
    };
  }

  /** Section 9, steps 2 and 3: the log segments that no recovery abandoned, in order. */
  logSegments(): Segment[] {
    const log = [...this.segments.values()]
      .filter(({ kind, sequence }) => kind === LOG && sequence >= this.superblock.firstSequence)
      .sort((a, b) => a.sequence - b.sequence);
    for (const [i, segment] of log.entries()) {
      segment.limit = Math.min(...log.slice(i + 1).map(({ firstFrame }) => firstFrame));
    }
    return log.filter(({ firstFrame, limit }) => firstFrame < limit);
  }

  async readFrame(segment: Segment, position: number): Promise<Frame | undefined> {
    if (position + FRAME > segment.roomEnd) return undefined;
    const view = viewOf(this.file.subarray(position));
    const length = view.getUint32(12, true);
    if (view.getUint32(8, true) !== 0x4d52_4656 || length < FRAME || length % 8 !== 0) {
      return undefined;
    }
    if (position + length > segment.roomEnd) return undefined;
    const bytes = this.file.subarray(position + 8, position + length);
    const check = await checksum(bytes, seedAt(segment.salt, position));
    if (check !== view.getBigUint64(0, true)) return undefined;
    return {
      position,
      length,
      number: u64(view, 16),
      watermark: u64(view, 24),
      records: view.getUint32(32, true),
      commits: (view.getUint32(36, true) & 1) !== 0,
      salt: segment.salt,
    };
  }

  /** Section 9, step 4. */
  async followChain(log: Segment[]): Promise<Chain> {
    const chain: Chain = {
      frames: [],
      segment: 0,
      position: DATA_START,
      expected: this.superblock.firstFrame,
      intactFrames: 0,
      intactBytes: 0,
      watermark: this.superblock.nextFrame,
    };
    for (const [i, segment] of log.entries()) {
      if (segment.firstFrame !== chain.expected) break;
      chain.segment = i;
      chain.position = segment.start + HEADER;
      while (chain.expected < segment.limit) {
        const frame = await this.readFrame(segment, chain.position);
        if (frame?.number !== chain.expected) break;
        chain.frames.push(frame);
        chain.watermark = Math.max(chain.watermark, frame.watermark);
        chain.position += frame.length;
        chain.expected += 1;
      }
    }
    return chain;
  }

  /** Section 9, step 5: gives the largest watermark, and counts what is intact beyond. */
  async lookBeyond(log: Segment[], chain: Chain): Promise<number> {
    for (const [i, segment] of log.entries()) {
      if (i < chain.segment) continue;
      // Where the chain never began there is no place in a segment at which it broke off.
      const brokeOff = i === chain.segment && chain.position !== DATA_START;
      let at = brokeOff ? chain.position : segment.start + HEADER;
      while (at < segment.roomEnd) {
        const frame = await this.readFrame(segment, at);
        if (frame !== undefined) {
          chain.intactFrames += 1;
          chain.intactBytes += frame.length;
          chain.watermark = Math.max(chain.watermark, frame.watermark);
        }
        at += frame?.length ?? 8;
      }
    }
    return chain.watermark;
  }

  /** Section 9, step 6: the frames up to the last commit that is whole. */
  async wholeCommits(frames: Frame[], flushed: number): Promise<Frame[]> {
    let complete = 0;
    for (const [i, frame] of frames.entries()) {
      const records = await this.readRecords(frame, frame.number >= flushed);
      if (records === undefined) break;
      if (frame.commits) complete = i + 1;
    }
    return frames.slice(0, complete);
  }

  /** Section 6. `undefined` if the frame is not whole, or lacks an extent that has to hold. */
  async readRecords(
    frame: Frame | undefined,
    extentsMustHold = false,
  ): Promise<LogRecord[] | undefined> {
    if (frame === undefined) return undefined;
    const records: LogRecord[] = [];
    const end = frame.position + frame.length;
    let at = frame.position + FRAME;
    while (at < end) {
      const read = await this.readRecord(at, end, frame.salt);
      if (read === undefined) return undefined;
      const { kind, value } = read.record;
      if (extentsMustHold && kind === EXTENT && !(await this.readExtent(value))) return undefined;
      records.push(read.record);
      at += read.size;
    }
    return records.length === frame.records ? records : undefined;
  }

  async readRecord(
    at: number,
    end: number,
    salt: bigint,
  ): Promise<{ record: LogRecord; size: number } | undefined> {
    if (at + RECORD > end) return undefined;
    const view = viewOf(this.file.subarray(at));
    const [kind, keyLength] = [view.getUint8(4), view.getUint16(6, true)];
    const [valueLength, capacity] = [view.getUint32(12, true), view.getUint32(16, true)];
    const valueAt = at + RECORD + pad8(keyLength);
    const size = RECORD + pad8(keyLength) + capacity;
    if (kind === 0 || capacity % 8 !== 0 || valueLength > capacity || at + size > end) {
      return undefined;
    }
    if ((kind & SKIPPABLE) === 0 && keyLength === 0) return undefined;
    if (kind > EXTENT && (kind & SKIPPABLE) === 0) {
      throw new FormatError(UNSUPPORTED_FORMAT, { major: 1, features: 0 });
    }
    if (view.getBigUint64(24, true) >> 56n !== 0n) return undefined;
    if (kind === EXTENT) {
      if (valueLength < 32) return undefined;
      if (viewOf(this.file.subarray(valueAt)).getBigUint64(8, true) > MAX_VALUE) return undefined;
    }
    // The frame vouches for its records; their own checksums must agree with it.
    const check = await checksum(this.file.subarray(at + 4, at + size), seedAt(salt, at));
    if ((check & 0xffff_ffffn) !== BigInt(view.getUint32(0, true))) {
      throw new Error(`the record at ${at} belies its frame`);
    }
    const record = {
      kind,
      keyspace: view.getUint32(8, true),
      version: u64(view, 24),
      expiry: view.getUint32(32, true),
      key: this.file.subarray(at + RECORD, at + RECORD + keyLength),
      value: this.file.subarray(valueAt, valueAt + valueLength),
    };
    return { record, size };
  }

  /** Section 7: the value, if the extent holds. */
  async readExtent(descriptor: Uint8Array): Promise<Uint8Array | undefined> {
    const view = viewOf(descriptor);
    const [length, sequence] = [u64(view, 8), view.getUint32(24, true)];
    const segment = this.segments.get(view.getUint32(0, true));
    if (segment?.kind !== EXTENT_SEGMENT || segment.sequence !== sequence) return undefined;
    const at = segment.start + HEADER;
    if (segment.payload !== length || at + length > segment.roomEnd) return undefined;
    const value = this.file.subarray(at, at + length);
    const check = await checksum(value, seedAt(segment.salt, at));
    return check === view.getBigUint64(16, true) ? value : undefined;
  }

  /** Section 9, step 7. */
  tornBytes(log: Segment[], place: number): number {
    const at = log.findIndex(({ start, roomEnd }) => place > start && place <= roomEnd);
    return log.slice(Math.max(at, 0)).reduce((torn, segment, i) => {
      const from = i === 0 && at >= 0 ? place : segment.start + HEADER;
      let end = segment.roomEnd;
      while (end > from && this.file[end - 1] === 0) end -= 1;
      return torn + end - from;
    }, 0);
  }

  /** Section 9, step 8. */
  async replay(
    frames: Frame[],
    next: number,
  ): Promise<{ transactions: TransactionNote[]; live: LiveRecord[] }> {
    const transactions: TransactionNote[] = [];
    const newest = new Map<string, LogRecord>();
    for (const frame of frames) {
      for (const record of (await this.readRecords(frame)) ?? []) {
        if (record.kind === TRANSACTION) transactions.push(readTransaction(record.value));
        if (record.kind > EXTENT) continue;
        const id = `${record.keyspace}/${hex(record.key)}`;
        if ((newest.get(id)?.version ?? 0) <= record.version) newest.set(id, record);
      }
    }
    const live: LiveRecord[] = [];
    for (const record of newest.values()) {
      if (record.kind !== DELETE) live.push(await this.liveRecord(record, next));
    }
    return { transactions, live };
  }

  async liveRecord(record: LogRecord, next: number): Promise<LiveRecord> {
    const { kind, keyspace, version, expiry, key } = record;
    const value = kind === SET ? record.value : await this.readExtent(record.value);
    if (value === undefined) {
      const position = this.slotStart(viewOf(record.value).getUint32(0, true)) + HEADER;
      throw corruption({ position, expectedFrame: next, flushedFrames: next });
    }
    return { keyspace, version, expiry, key, value };
  }
}

/** Section 8. */
function readTransaction(value: Uint8Array): TransactionNote {
  const view = viewOf(value);
  return {
    number: u64(view, 0),
    timeMs: u64(view, 8),
    client: u64(view, 16),
    request: u64(view, 24),
    note: new TextDecoder("utf-8", { fatal: true }).decode(value.subarray(32)),
  };
}

/** The bytes in hexadecimal. */
export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function u64(view: DataView, at: number): number {
  return Number(view.getBigUint64(at, true));
}

function pad8(n: number): number {
  return Math.ceil(n / 8) * 8;
}
