/** The constants of FORMAT.md, and the structures that the reader returns and uses. */

import { xxhash3 } from "hash-wasm";

/** The result of opening a file (section 9). */
export interface Database {
  recovery: Recovery;
  /** The TRANSACTION records of the valid log, in order. */
  transactions: TransactionRecord[];
  /** Live records by keyspace and key. */
  live: LiveRecord[];
  /** The number of live records that are damaged, which is possible before a checkpoint, or that lack a chunk. */
  unreadable: number;
  /** The number of keys in keyspace 0, those of unreadable records included. */
  count: number;
}

export interface Recovery {
  tornBytes: number;
  droppedFrames: number;
  lastFrame: number;
  replayedFrames: number;
  clean: boolean;
  created: boolean;
  /** Whether the index came from a checkpoint (section 8a). */
  checkpoint: boolean;
}

export interface TransactionRecord {
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

/** The stable codes of errors in a file. */
export const CORRUPTION = 8;
export const NOT_A_DATABASE = 9;
export const UNSUPPORTED_FORMAT = 10;

/** A file that cannot be opened, and details. */
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
  return BigInt(`0x${await xxhash3(bytes, Number(seed & 0xffff_ffffn), Number(seed >> 32n))}`);
}

export function seedAt(salt: bigint, position: number): bigint {
  return salt ^ BigInt.asUintN(64, BigInt(position) * 0x9e37_79b9_7f4a_7c15n);
}

export const SUPERBLOCK_MAGIC = [0x76, 0x61, 0x72, 0x76, 0x65, 0x0d, 0x0a, 0x1a];
export const SUPERBLOCK_SEED = 0x1a0a_0d65_7672_6176n;
export const SUPERBLOCK = 256;
export const SLOT_STRIDE = 4096;
export const DATA_START = 8192;
export const SEGMENT_MAGIC = [0x56, 0x53, 0x45, 0x47];
export const HEADER = 64;
export const FRAME = 40;
/** The maximum size of a value in bytes. */
export const MAX_VALUE = 16n << 20n;
/** The maximum number of chunks of a value. */
export const MAX_CHUNKS = 65_535;
export const RECORD = 40;
export const [LOG, EXTENT_SEGMENT, CHECKPOINT, RUN] = [1, 2, 3, 4];
/** The sizes of a checkpoint's head and of the rows of its tables, in bytes. */
export const HEAD = 72;
export const [KEYSPACE_ROW, SEGMENT_ROW, EXTENT_ROW] = [24, 56, 16];
export const [RUN_ROW, RUN_SEGMENT_ROW] = [24, 16];
export const BLOCK = 4096;
export const ENGINE = 1;
export const GAP = [..."gap/"].map((character) => character.charCodeAt(0));
/** The keys of chunks begin with this. */
export const CHUNK = [..."piece/"].map((character) => character.charCodeAt(0));
export const CLEARED = [..."clear/"].map((character) => character.charCodeAt(0));
export const [SET, DELETE, EXTENT, CHUNKED, CLEAR] = [1, 2, 3, 4, 5];
/** The known feature bits of `incompatible`: values in chunks. */
export const KNOWN_INCOMPATIBLE = 1n;
export const VOID = 0x81;
export const TRANSACTION = 0x82;
export const SKIPPABLE = 0x80;

export interface Superblock {
  segmentLog2: number;
  clean: boolean;
  fileId: bigint;
  generation: number;
  nextFrame: number;
  firstSequence: number;
  firstFrame: number;
  checkpointSequence: number;
  checkpointFrame: number;
  checkpointSlot: number;
  /** Whether the other superblock is valid too. */
  hasCopy: boolean;
}

export interface Segment {
  kind: number;
  sequence: number;
  slot: number;
  span: number;
  salt: bigint;
  firstFrame: number;
  payload: number;
  /** Whether its slot had been used before. */
  reused: boolean;
  /** Position of its first slot. */
  start: number;
  /** Position at which its frames must have ended. */
  capacityEnd: number;
  /** Frames at or above this number were dropped by a recovery. */
  limit: number;
}

export interface Frame {
  position: number;
  length: number;
  number: number;
  watermark: number;
  records: number;
  commits: boolean;
  salt: bigint;
}

/** A valid checkpoint (section 8a). */
export interface Checkpoint {
  frame: number;
  endSequence: number;
  endOffset: number;
  nextSequence: number;
  /** The number of keys by keyspace. */
  keys: Map<number, number>;
  /** The versions at which keyspaces were cleared: entries of smaller versions are deleted. */
  cleared: Map<number, number>;
  /** File positions of the live records. */
  entries: number[];
  /** The extents of those records whose values lie in extents, by file position. */
  extents: Map<number, { slot: number; sequence: number }>;
  /** The sequence, salt and end of each segment that it names, by slot. */
  named: Map<number, { sequence: number; salt: bigint; end: number }>;
  /** Runs below this sequence do not count for a keyspace. */
  firstRuns: Map<number, number>;
  /** The runs of keys, the oldest first. */
  runs: Run[];
}

/** A run of keys. */
export interface Run {
  entries: number;
  /** The file position of its root block, and the length of that. */
  root: number;
  length: number;
  sequence: number;
  segments: { slot: number; sequence: number }[];
}

/** Missing frames between two segments. */
export interface Gap {
  from: number;
  to: number;
  /** Whether the bytes at its start are not all zero. */
  isDamage: boolean;
  /** The end of the chain before it. */
  before: { frames: number; segment: number; position: number };
}

export interface LogRecord {
  kind: number;
  /** File positions of the record, and of the one that it replaces; before all segments if there is none. */
  position: number;
  previous: number;
  keyspace: number;
  version: number;
  expiry: number;
  key: Uint8Array;
  value: Uint8Array;
}

/** The chain of frames, its end, and intact frames behind it. */
export interface Chain {
  frames: Frame[];
  /** The index of the segment in which it ends, and the file position. */
  segment: number;
  position: number;
  expected: number;
  intactFrames: number;
  intactBytes: number;
  watermark: number;
  gaps: Gap[];
  /** The contents of the records about gaps, each with the number of its frame. */
  gapRecords: { frame: number; from: number; to: number }[];
}

export function idOf({ keyspace, key }: LogRecord): string {
  return `${keyspace}/${hex(key)}`;
}

export function isLive(record: LogRecord | undefined): boolean {
  return record !== undefined && record.kind !== DELETE;
}

/** Section 7b: the keyspace that a CLEAR record clears; `undefined` if the record is malformed. */
export function clearedBy(keyspace: number, key: Uint8Array): number | undefined {
  const isClear = key.length === 10 && CLEARED.every((byte, i) => key[i] === byte);
  if (!isClear || keyspace !== ENGINE) return undefined;
  const cleared = viewOf(key).getUint32(CLEARED.length, false);
  return cleared === ENGINE || cleared > 0xffff ? undefined : cleared;
}

/** The file position of a record by its encoded position of 32 bits. */
export function filePosition(position: number): number {
  return DATA_START + 8 * position;
}

/** Whether a record has an unknown kind that must be understood. */
export function isUnknown({ kind }: LogRecord): boolean {
  return kind > CLEAR && (kind & SKIPPABLE) === 0;
}

/** Section 7a: the id of a chunk, as by `idOf`. */
export function idOfChunk(id: bigint, chunk: number): string {
  const key = new Uint8Array(16);
  key.set(CHUNK);
  viewOf(key).setBigUint64(CHUNK.length, id, false);
  viewOf(key).setUint16(CHUNK.length + 8, chunk, false);
  return `${ENGINE}/${hex(key)}`;
}

/** Section 8: the value of a TRANSACTION record. */
export function readTransaction(value: Uint8Array): TransactionRecord {
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

export function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

export function u64(view: DataView, at: number): number {
  return Number(view.getBigUint64(at, true));
}

export function pad8(n: number): number {
  return Math.ceil(n / 8) * 8;
}
