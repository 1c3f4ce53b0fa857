/** Reads superblocks, headers, frames and records: crate/FORMAT.md, sections 2 to 6. Nothing is read beyond the bytes given. */

import { checksum, seedAt, type Word } from "./checksum.js";

export const SUPERBLOCK = 256;
export const SUPERBLOCK_STRIDE = 4096;
export const DATA_START = 8192;
export const HEADER = 64;
export const FRAME = 40;
export const RECORD = 40;

/** The kinds of segments. */
export const SEGMENT = { log: 1, extent: 2, checkpoint: 3, run: 4 } as const;

/** The kinds of records. */
export const KIND = {
  set: 1,
  delete: 2,
  extent: 3,
  chunked: 4,
  clear: 5,
  void: 0x81,
  transaction: 0x82,
  pastSet: 0x91,
  pastChunked: 0x94,
} as const;

/** Bit 7 of a record's kind: the record changes no key. */
export const SKIPPABLE = 0x80;
/** The keyspace of the engine's own records. */
export const SYSTEM = 1;

const TWO_32 = 0x1_0000_0000;
const MAX_U56 = 2 ** 56;
/** `"varve\r\n"` and 0x1A as a number, which is the seed of superblocks as well. */
const MAGIC: Word = { lo: 0x7672_6176, hi: 0x1a0a_0d65 };
const SEGMENT_MAGIC = 0x4745_5356;
const FRAME_MAGIC = 0x4d52_4656;

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export function u64(data: DataView, at: number): number {
  return data.getUint32(at, true) + data.getUint32(at + 4, true) * TWO_32;
}

function word(data: DataView, at: number): Word {
  return { lo: data.getUint32(at, true), hi: data.getUint32(at + 4, true) };
}

function same(a: Word, b: Word): boolean {
  return a.lo === b.lo && a.hi === b.hi;
}

export function pad8(length: number): number {
  return Math.ceil(length / 8) * 8;
}

/** A superblock whose checksum is right. */
export interface Superblock {
  readonly slot: 0 | 1;
  readonly major: number;
  readonly segmentBytes: number;
  readonly clean: boolean;
  readonly keepsHistory: boolean;
  /** Whether it has features that this reader does not know. */
  readonly isNewer: boolean;
  readonly fileId: Word;
  readonly generation: number;
  readonly nextFrame: number;
  readonly firstSequence: number;
  readonly checkpointSlot: number;
  readonly checkpointSequence: number;
}

/** What a superblock's 256 bytes hold. */
export type SuperblockState = "valid" | "damaged" | "empty" | "foreign";

/** Reads the superblock in `slot` from its 256 bytes, or as many as the file has. */
export function readSuperblock(
  bytes: Uint8Array,
  slot: 0 | 1,
): { state: SuperblockState; superblock?: Superblock } {
  if (bytes.every((byte) => byte === 0)) return { state: "empty" };
  const data = viewOf(bytes);
  if (bytes.length < 8 || !same(word(data, 0), MAGIC)) return { state: "foreign" };
  if (bytes.length < SUPERBLOCK) return { state: "damaged" };
  const seed = seedAt(MAGIC, SUPERBLOCK_STRIDE * slot);
  if (!same(checksum(data, 16, SUPERBLOCK, seed), word(data, 8))) return { state: "damaged" };
  const log2 = data.getUint8(20);
  if (log2 < 12 || log2 > 24) return { state: "damaged" };
  const major = data.getUint16(16, true);
  const mode = data.getUint8(21);
  const superblock: Superblock = {
    slot,
    major,
    segmentBytes: 2 ** log2,
    clean: (data.getUint16(22, true) & 1) !== 0,
    keepsHistory: (mode & 1) !== 0,
    isNewer: major !== 1 || mode > 1 || u64(data, 24) > 1,
    fileId: word(data, 40),
    generation: u64(data, 72),
    nextFrame: u64(data, 96),
    firstSequence: u64(data, 128),
    checkpointSequence: u64(data, 144),
    checkpointSlot: u64(data, 168),
  };
  return { state: "valid", superblock };
}

/** The header of a segment, from its beginning or its copy at the end. */
export interface SegmentHeader {
  readonly kind: number;
  readonly isReused: boolean;
  readonly sequence: number;
  /** The first slot that it covers, and how many. */
  readonly slot: number;
  readonly span: number;
  readonly salt: Word;
  readonly firstFrame: number;
  /** Bytes of an extent's value, or of a checkpoint's or a run's content. */
  readonly payload: number;
  /** Checksum of an extent's value. */
  readonly payloadCheck: Word;
}

/** Position of a slot in the file. */
export function slotStart(slot: number, segmentBytes: number): number {
  return DATA_START + slot * segmentBytes;
}

/**
 * Reads a header or its copy from the 64 bytes at `at`; `undefined` if they are none. Without `fileId`, which is in the
 * superblocks, its checksum cannot be verified.
 */
export function readHeader(
  data: DataView,
  at: number,
  segmentBytes: number,
  fileId: Word | undefined,
): SegmentHeader | undefined {
  if (at < 0 || at + HEADER > data.byteLength) return undefined;
  if (data.getUint32(at + 8, true) !== SEGMENT_MAGIC) return undefined;
  const slot = data.getUint32(at + 20, true);
  if (fileId !== undefined) {
    const seed = seedAt(fileId, slotStart(slot, segmentBytes));
    if (!same(checksum(data, at + 8, at + HEADER, seed), word(data, at))) return undefined;
  }
  const firstFrame = u64(data, at + 32);
  const span = data.getUint32(at + 56, true);
  if (firstFrame >= MAX_U56 || span === 0) return undefined;
  return {
    kind: data.getUint8(at + 12),
    isReused: (data.getUint8(at + 13) & 1) !== 0,
    sequence: data.getUint32(at + 16, true),
    slot,
    span,
    salt: word(data, at + 24),
    firstFrame,
    payload: u64(data, at + 40),
    payloadCheck: word(data, at + 48),
  };
}

/** The header of a frame. `at` is relative to its segment. */
export interface FrameHeader {
  readonly at: number;
  readonly length: number;
  readonly number: number;
  readonly watermark: number;
  readonly records: number;
  readonly commits: boolean;
  readonly moved: boolean;
}

/** The bytes of a segment of the log, as far as the file has them. */
export interface LogBytes {
  readonly data: DataView;
  /** Position of the segment in the file. */
  readonly start: number;
  readonly salt: Word;
  /** Where its space for frames ends, relative to its start. */
  readonly end: number;
}

/** The header at `at`, whose checksum is not verified yet; `undefined` if there can be no frame. */
export function readFrameHeader(log: LogBytes, at: number): FrameHeader | undefined {
  const { data, end } = log;
  if (at + FRAME > end || data.getUint32(at + 8, true) !== FRAME_MAGIC) return undefined;
  const length = data.getUint32(at + 12, true);
  if (length < FRAME || length % 8 !== 0 || at + length > end) return undefined;
  const [number, watermark] = [u64(data, at + 16), u64(data, at + 24)];
  if (number >= MAX_U56 || watermark >= MAX_U56) return undefined;
  const flags = data.getUint32(at + 36, true);
  return {
    at,
    length,
    number,
    watermark,
    records: data.getUint32(at + 32, true),
    commits: (flags & 1) !== 0,
    moved: (flags & 2) !== 0,
  };
}

/** Whether the checksum of a frame is right at its position. */
export function isFrameIntact(
  { data, start, salt }: LogBytes,
  at: number,
  length: number,
): boolean {
  const seed = seedAt(salt, start + at);
  return same(checksum(data, at + 8, at + length, seed), word(data, at));
}

/** The header of a record. Offsets are relative to its segment. */
export interface RecordHeader {
  readonly at: number;
  readonly size: number;
  readonly kind: number;
  readonly keyspace: number;
  readonly keyAt: number;
  readonly keyLength: number;
  readonly valueAt: number;
  readonly valueLength: number;
  readonly capacity: number;
  readonly version: number;
  readonly expiry: number;
  /** Position in the file of the record that it replaced; 0 for none. */
  readonly previous: number;
}

/** The record at `at`; `undefined` if it is malformed or reaches beyond `end`, the end of its frame. */
export function readRecord(data: DataView, at: number, end: number): RecordHeader | undefined {
  if (at + RECORD > end) return undefined;
  const kind = data.getUint8(at + 4);
  const keyLength = data.getUint16(at + 8, true);
  const valueLength = data.getUint32(at + 12, true);
  const capacity = data.getUint32(at + 16, true);
  const valueAt = at + RECORD + pad8(keyLength);
  const size = valueAt - at + capacity;
  if (kind === 0 || capacity % 8 !== 0 || valueLength > capacity || at + size > end)
    return undefined;
  if (keyLength === 0 && kind < SKIPPABLE) return undefined;
  const version = u64(data, at + 24);
  if (version >= MAX_U56) return undefined;
  const previous = data.getUint32(at + 36, true);
  return {
    at,
    size,
    kind,
    keyspace: data.getUint16(at + 10, true),
    keyAt: at + RECORD,
    keyLength,
    valueAt,
    valueLength,
    capacity,
    version,
    expiry: data.getUint32(at + 32, true),
    previous: previous === 0 ? 0 : DATA_START + 8 * previous,
  };
}

/** Whether the checksum of a record is right at its position. */
export function isRecordIntact(
  { data, start, salt }: LogBytes,
  { at, size }: RecordHeader,
): boolean {
  const { lo } = checksum(data, at + 4, at + size, seedAt(salt, start + at));
  return lo === data.getUint32(at, true);
}

/** Whether the checksum of an extent's value is right; `bytes` are the value. */
export function isExtentIntact(
  bytes: Uint8Array,
  { payload, payloadCheck, salt }: SegmentHeader,
  position: number,
): boolean {
  if (bytes.length !== payload || payload < 17) return false;
  return same(checksum(viewOf(bytes), 0, payload, seedAt(salt, position)), payloadCheck);
}

/** Whether there are only zeros from `from` up to `to`. */
export function isBlank(data: DataView, from: number, to: number): boolean {
  let at = from;
  for (; at + 8 <= to; at += 8) {
    if (data.getUint32(at, true) !== 0 || data.getUint32(at + 4, true) !== 0) return false;
  }
  for (; at < to; at += 1) if (data.getUint8(at) !== 0) return false;
  return true;
}
