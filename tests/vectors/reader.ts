/**
 * A reader of the file format, written from crate/FORMAT.md alone. It shares no code with the engine, so that the
 * document is proved complete where both agree. Section numbers are those of the document. It reads the file as a
 * whole and is not fast.
 */

import {
  BLOCK,
  CHECKPOINT,
  type Chain,
  type Checkpoint,
  CLEAR,
  CORRUPTION,
  checksum,
  clearedBy,
  DATA_START,
  type Database,
  ENGINE,
  EXTENT,
  EXTENT_ROW,
  EXTENT_SEGMENT,
  FormatError,
  FRAME,
  type Frame,
  filePosition,
  GAP,
  HEAD,
  HEADER,
  idOf,
  idOfPiece,
  isLive,
  isUnknown,
  KEYSPACE_ROW,
  KNOWN_INCOMPATIBLE,
  type LiveRecord,
  LOG,
  type LogRecord,
  MAX_PIECES,
  MAX_VALUE,
  NOT_A_DATABASE,
  PIECES,
  pad8,
  RECORD,
  readTransaction,
  SEGMENT_ROW,
  SET,
  type Segment,
  SKIPPABLE,
  SLOT_STRIDE,
  SUPERBLOCK,
  SUPERBLOCK_MAGIC,
  SUPERBLOCK_SEED,
  type Superblock,
  seedAt,
  TRANSACTION,
  type TransactionRecord,
  UNSUPPORTED_FORMAT,
  u64,
  VOID,
  viewOf,
} from "./layout.js";

/**
 * Opens a database (section 9). Throws `FormatError` for a file that must be refused. With
 * `log: "whole"` it ignores the checkpoint.
 */
export async function read(
  file: Uint8Array,
  options: { log?: "whole" | "tail" } = {},
): Promise<Database> {
  const superblock = await readSuperblock(file);
  if (superblock === undefined) return newDatabase();
  return new Reader(file, superblock).open(options.log !== "whole");
}

function newDatabase(): Database {
  const recovery = { tornBytes: 0, droppedFrames: 0, lastFrame: 0, replayedFrames: 0 };
  return {
    recovery: { ...recovery, clean: true, created: true, checkpoint: false },
    transactions: [],
    live: [],
    unreadable: 0,
    count: 0,
  };
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
  const counts = [u64(view, 72), u64(view, 88), u64(view, 96), u64(view, 136)];
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
    checkpointSequence: u64(view, 144),
    checkpointFrame: u64(view, 152),
  };
}

function refuseUnsupported(view: DataView): void {
  const major = view.getUint16(16, true);
  const features = Number(view.getBigUint64(24, true) & ~KNOWN_INCOMPATIBLE);
  const newer = major !== 1 || features !== 0 || view.getUint8(21) !== 0;
  if (newer) throw new FormatError(UNSUPPORTED_FORMAT, { major, features });
}

/**
 * Section 9, step 4: ends a chain, of which `count` frames are valid, before the first gap that no record explains.
 * A record explains a gap if it was flushed, or if it is in a valid frame and all frames that it names are missing.
 * Returns whether there was an unexplained gap.
 */
function endBeforeUnexplainedGap(chain: Chain, count: number, flushed: number): boolean {
  const end = (chain.frames[count - 1]?.number ?? -1) + 1;
  const index = chain.gaps.findIndex((gap) => {
    const isExplained = chain.gapRecords.some(({ frame, from, to }) => {
      const covers = from <= gap.from && gap.to <= to;
      return (covers && frame < flushed) || (frame < end && from === gap.from && gap.to === to);
    });
    return gap.before.frames <= count && (gap.isDamage || !isExplained);
  });
  const gap = chain.gaps[index];
  if (gap === undefined) return false;
  chain.gaps.length = index;
  chain.frames.length = gap.before.frames;
  chain.segment = gap.before.segment;
  chain.position = gap.before.position;
  chain.expected = gap.from;
  endBeforeUnexplainedGap(chain, chain.frames.length, flushed);
  return true;
}

/** Section 7a: the value, if all of its pieces exist and have its length. */
function joinPieces(
  descriptor: Uint8Array,
  newest: Map<string, LogRecord>,
): Uint8Array | undefined {
  const view = viewOf(descriptor);
  const [id, length, count] = [view.getBigUint64(0, true), u64(view, 8), view.getUint32(16, true)];
  const value = new Uint8Array(length);
  let at = 0;
  for (let piece = 0; piece < count; piece += 1) {
    const record = newest.get(idOfPiece(id, piece));
    if (record?.kind !== SET || at + record.value.length > length) return undefined;
    value.set(record.value, at);
    at += record.value.length;
  }
  return at === length ? value : undefined;
}

class Reader {
  readonly file: Uint8Array;
  readonly segments = new Map<number, Segment>();

  constructor(
    file: Uint8Array,
    readonly superblock: Superblock,
  ) {
    // Bytes behind the end of the file read as zeros, up to the end of the last slot.
    const size = 2 ** superblock.segmentLog2;
    const slots = Math.max(0, Math.ceil((file.length - DATA_START) / size));
    this.file = new Uint8Array(DATA_START + slots * size);
    this.file.set(file.subarray(0, this.file.length));
  }

  async open(mayUseCheckpoint: boolean): Promise<Database> {
    await this.findSegments();
    const checkpoint = mayUseCheckpoint ? await this.readCheckpoint() : undefined;
    const log = this.logSegments(checkpoint);
    const chain = await this.followChain(log, checkpoint);
    let flushed: number;
    let kept: Frame[];
    do {
      flushed = await this.scanBehindChain(log, chain);
      kept = await this.completeCommits(chain.frames, flushed);
      // The record that explained a gap may be in a dropped frame.
    } while (endBeforeUnexplainedGap(chain, kept.length, flushed));
    // The dropped frames begin at the first of them.
    const position = chain.frames[kept.length]?.position ?? chain.position;
    const next = chain.frames[kept.length]?.number ?? chain.expected;
    if (next < flushed) {
      const { intactFrames, intactBytes } = chain;
      const damage = { position, expectedFrame: next, flushedFrames: flushed };
      throw corruption({ ...damage, intactFrames, intactBytes });
    }
    const { tornBytes, isBlank } = this.tornBehind(log, position, next, chain.intactFrames > 0);
    const dropped = chain.frames.length - kept.length + chain.intactFrames;
    const { clean, nextFrame } = this.superblock;
    const records = (await this.readRecords(kept.at(-1))) ?? [];
    const witnessed = next === nextFrame + 1 && records.every(({ kind }) => kind === VOID);
    const recovery = {
      tornBytes,
      droppedFrames: tornBytes > 0 ? dropped : 0,
      lastFrame: next - 1,
      replayedFrames: kept.length,
      clean: clean && isBlank && (next === nextFrame || witnessed),
      created: false,
      checkpoint: checkpoint !== undefined,
    };
    return { recovery, ...(await this.replay(kept, next, checkpoint)) };
  }

  slotStart(slot: number): number {
    return DATA_START + slot * 2 ** this.superblock.segmentLog2;
  }

  /** Section 4: finds all valid headers and trailers. The one with the larger sequence has the slot. */
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
    if (view.getBigUint64(32, true) >> 56n !== 0n) return undefined;
    const span = view.getUint32(56, true);
    return {
      kind: view.getUint8(12),
      sequence: view.getUint32(16, true),
      slot,
      span,
      salt: view.getBigUint64(24, true),
      firstFrame: u64(view, 32),
      payload: u64(view, 40),
      reused: (view.getUint8(13) & 1) !== 0,
      start,
      capacityEnd: this.slotStart(slot + span) - HEADER,
      limit: Number.POSITIVE_INFINITY,
    };
  }

  /** Section 8a: the checkpoint that the superblock names, if it is valid. */
  async readCheckpoint(): Promise<Checkpoint | undefined> {
    const { checkpointSequence, checkpointFrame } = this.superblock;
    const segment = [...this.segments.values()].find(
      ({ kind, sequence }) => kind === CHECKPOINT && sequence === checkpointSequence,
    );
    if (segment === undefined || checkpointSequence === 0) return undefined;
    const at = segment.start + HEADER;
    const view = viewOf(this.file.subarray(at, segment.capacityEnd));
    const length = view.getUint32(12, true);
    if (view.getUint32(8, true) !== 0x3250_4356 || length > view.byteLength) return undefined;
    if (!(await this.hasChecksum(at, length, segment.salt))) return undefined;
    const counts = [view.getUint32(48, true), view.getUint32(52, true), view.getUint32(56, true)];
    const [keyspaces = 0, segments = 0, extents = 0] = counts;
    const tables = keyspaces * KEYSPACE_ROW + segments * SEGMENT_ROW + extents * EXTENT_ROW;
    if (length !== HEAD + tables || u64(view, 16) !== checkpointFrame) return undefined;
    if (u64(view, 32) === 0) return undefined;
    const checkpoint: Checkpoint = {
      frame: checkpointFrame,
      endSequence: view.getUint32(24, true),
      endOffset: view.getUint32(28, true),
      nextSequence: view.getUint32(60, true),
      keys: new Map(),
      cleared: new Map(),
      entries: [],
      extents: new Map(),
      named: new Map(),
    };
    for (let i = 0, row = HEAD; i < keyspaces; i += 1, row += KEYSPACE_ROW) {
      const [keyspace, cleared] = [view.getUint16(row, true), u64(view, row + 8)];
      if (cleared > u64(view, 32) || (keyspace === ENGINE && cleared > 0)) return undefined;
      checkpoint.keys.set(keyspace, view.getUint32(row + 4, true));
      checkpoint.cleared.set(keyspace, cleared);
    }
    for (
      let i = 0, row = HEAD + keyspaces * KEYSPACE_ROW;
      i < segments;
      i += 1, row += SEGMENT_ROW
    ) {
      const [slot, sequence] = [view.getUint32(row, true), view.getUint32(row + 4, true)];
      const found = this.segments.get(slot);
      if (found?.kind !== LOG || found.sequence !== sequence) return undefined;
      const end = found.start + view.getUint32(row + 16, true);
      if (end > found.capacityEnd) return undefined;
      checkpoint.named.set(slot, { sequence, salt: found.salt, end });
    }
    for (let i = 0, row = length - extents * EXTENT_ROW; i < extents; i += 1, row += EXTENT_ROW) {
      const [slot, sequence] = [view.getUint32(row, true), view.getUint32(row + 4, true)];
      checkpoint.extents.set(filePosition(view.getUint32(row + 8, true)), { slot, sequence });
    }
    const isRead = await this.readBlocks(checkpoint, segment, at + length, u64(view, 40));
    return isRead && (await this.isEndComplete(checkpoint)) ? checkpoint : undefined;
  }

  /** Reads the entries of a checkpoint. Returns whether they are valid. */
  async readBlocks(
    checkpoint: Checkpoint,
    segment: Segment,
    start: number,
    entries: number,
  ): Promise<boolean> {
    let at = start;
    for (let left = entries; left > 0; ) {
      const count = Math.min(left, BLOCK / 8 - 1);
      const length = 8 + 8 * count;
      if (at + length > segment.capacityEnd) return false;
      if (!(await this.hasChecksum(at, length, segment.salt))) return false;
      const view = viewOf(this.file.subarray(at, at + length));
      for (let i = 1; i <= count; i += 1) {
        const position = filePosition(view.getUint32(8 * i + 4, true));
        const slot = Math.floor((position - DATA_START) / 2 ** this.superblock.segmentLog2);
        const named = checkpoint.named.get(slot);
        const inside = position >= this.slotStart(slot) + HEADER;
        if (named === undefined || !inside || position + RECORD > named.end) return false;
        checkpoint.entries.push(position);
      }
      at += length;
      left -= count;
    }
    return true;
  }

  /** Whether the first eight bytes are the checksum of the rest at this position. */
  async hasChecksum(at: number, length: number, salt: bigint): Promise<boolean> {
    const bytes = this.file.subarray(at, at + length);
    if (bytes.length < 8) return false;
    const check = await checksum(bytes.subarray(8), seedAt(salt, at));
    return check === viewOf(bytes).getBigUint64(0, true);
  }

  /** Whether all frames before the end that a checkpoint names are complete. */
  async isEndComplete({ endSequence, endOffset, named }: Checkpoint): Promise<boolean> {
    const [slot] = [...named].find(([, { sequence }]) => sequence === endSequence) ?? [];
    const segment = slot === undefined ? undefined : this.segments.get(slot);
    const end = slot === undefined ? undefined : named.get(slot)?.end;
    if (segment === undefined || end !== segment.start + endOffset) return false;
    if (endOffset < HEADER || endOffset % 8 !== 0) return false;
    let at = segment.start + HEADER;
    while (at < end) {
      const frame = await this.readFrame(segment, at);
      if (frame === undefined || (await this.readRecords(frame)) === undefined) return false;
      at += frame.length;
    }
    return true;
  }

  /** Section 9, steps 2 and 3: the log segments to replay, in order. */
  logSegments(checkpoint: Checkpoint | undefined): Segment[] {
    const isEnd = ({ sequence }: Segment) => sequence === checkpoint?.endSequence;
    const first = checkpoint?.nextSequence ?? this.superblock.firstSequence;
    const log = [...this.segments.values()]
      .filter((segment) => segment.kind === LOG && (segment.sequence >= first || isEnd(segment)))
      .sort((a, b) => a.sequence - b.sequence);
    for (const [i, segment] of log.entries()) {
      segment.limit = Math.min(...log.slice(i + 1).map(({ firstFrame }) => firstFrame));
    }
    return log.filter((segment) => segment.firstFrame < segment.limit || isEnd(segment));
  }

  async readFrame(segment: Segment, position: number): Promise<Frame | undefined> {
    if (position + FRAME > segment.capacityEnd) return undefined;
    const view = viewOf(this.file.subarray(position));
    const length = view.getUint32(12, true);
    if (view.getUint32(8, true) !== 0x4d52_4656 || length < FRAME || length % 8 !== 0) {
      return undefined;
    }
    if (position + length > segment.capacityEnd) return undefined;
    const bytes = this.file.subarray(position + 8, position + length);
    const check = await checksum(bytes, seedAt(segment.salt, position));
    if (check !== view.getBigUint64(0, true)) return undefined;
    const [number, watermark] = [view.getBigUint64(16, true), view.getBigUint64(24, true)];
    if ((number | watermark) >> 56n !== 0n) return undefined;
    return {
      position,
      length,
      number: Number(number),
      watermark: Number(watermark),
      records: view.getUint32(32, true),
      commits: (view.getUint32(36, true) & 1) !== 0,
      salt: segment.salt,
    };
  }

  /** Section 9, step 4: the chain of frames. */
  async followChain(log: Segment[], checkpoint: Checkpoint | undefined): Promise<Chain> {
    const chain: Chain = {
      frames: [],
      segment: 0,
      position: DATA_START,
      expected: checkpoint?.frame ?? this.superblock.firstFrame,
      intactFrames: 0,
      intactBytes: 0,
      watermark: 0,
      gaps: [],
      gapRecords: [],
    };
    let isBroken = false;
    for (const [i, segment] of log.entries()) {
      const isContinued = segment.sequence === checkpoint?.endSequence;
      if (!isContinued && segment.firstFrame !== chain.expected) {
        const { segment: index, position } = chain;
        const before = { frames: chain.frames.length, segment: index, position };
        const gap = { from: chain.expected, to: segment.firstFrame, before };
        chain.gaps.push({ ...gap, isDamage: isBroken });
        chain.expected = segment.firstFrame;
      }
      chain.segment = i;
      chain.position = segment.start + (isContinued ? checkpoint.endOffset : HEADER);
      while (chain.expected < segment.limit) {
        const frame = await this.readFrame(segment, chain.position);
        if (frame?.number !== chain.expected) break;
        chain.frames.push(frame);
        chain.position += frame.length;
        chain.expected += 1;
      }
      const rest = this.file.subarray(chain.position, segment.capacityEnd);
      isBroken = chain.expected < segment.limit && rest.some((byte) => byte !== 0);
    }
    const watermarks = chain.frames.map(({ watermark }) => watermark);
    chain.watermark = Math.max(this.superblock.nextFrame, ...watermarks);
    if (chain.gaps.length > 0) await this.readGapRecords(chain);
    endBeforeUnexplainedGap(chain, chain.frames.length, chain.watermark);
    return chain;
  }

  /** Section 8: the records about gaps. */
  async readGapRecords(chain: Chain): Promise<void> {
    for (const frame of chain.frames) {
      await this.eachRecord(frame, (record) => {
        const { kind, keyspace, key, value } = record;
        const isGap = key.length === 12 && GAP.every((byte, i) => key[i] === byte);
        if (kind === SET && keyspace === ENGINE && isGap && value.length >= 8) {
          const [from, to] = [u64(viewOf(value), 0), Number(viewOf(key).getBigUint64(4, false))];
          chain.gapRecords.push({ frame: frame.number, from, to });
        }
        return !isUnknown(record);
      });
    }
  }

  /** Section 9, step 5: returns the largest watermark, and counts the intact frames behind the chain. */
  async scanBehindChain(log: Segment[], chain: Chain): Promise<number> {
    [chain.intactFrames, chain.intactBytes] = [0, 0];
    for (const [i, segment] of log.entries()) {
      if (i < chain.segment) continue;
      // An empty chain does not end within a segment.
      const isEnd = i === chain.segment && chain.position !== DATA_START;
      let at = isEnd ? chain.position : segment.start + HEADER;
      while (at < segment.capacityEnd) {
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

  /** Section 9, step 6: the frames up to the last complete commit. */
  async completeCommits(frames: Frame[], flushed: number): Promise<Frame[]> {
    let complete = 0;
    for (const [i, frame] of frames.entries()) {
      const records = await this.readRecords(frame, frame.number >= flushed);
      if (records === undefined) break;
      if (frame.commits) complete = i + 1;
    }
    return frames.slice(0, complete);
  }

  /** Section 6: the records of a frame; `undefined` if it is incomplete, or lacks a required extent. */
  async readRecords(
    frame: Frame | undefined,
    requiresExtents = false,
  ): Promise<LogRecord[] | undefined> {
    if (frame === undefined) return undefined;
    const records: LogRecord[] = [];
    let isComplete = true;
    const isFilled = await this.eachRecord(frame, async (record) => {
      if (isUnknown(record)) throw new FormatError(UNSUPPORTED_FORMAT, { major: 1, features: 0 });
      if (requiresExtents && record.kind === EXTENT) isComplete &&= await this.hasExtent(record);
      records.push(record);
      return isComplete;
    });
    return isFilled && records.length === frame.records ? records : undefined;
  }

  async hasExtent(record: LogRecord): Promise<boolean> {
    return (await this.readExtent(record.value)) !== undefined;
  }

  /** Passes a frame's records to `take`, up to the first malformed one. Returns whether there was none. */
  async eachRecord(frame: Frame, take: (record: LogRecord) => unknown): Promise<boolean> {
    const end = frame.position + frame.length;
    let at = frame.position + FRAME;
    while (at < end) {
      const read = await this.readRecord(at, end, frame.salt);
      if (read === undefined || (await take(read.record)) === false) return false;
      at += read.size;
    }
    return true;
  }

  async readRecord(
    at: number,
    end: number,
    salt: bigint,
    checkedBy: "its frame" | "itself" = "its frame",
  ): Promise<{ record: LogRecord; size: number } | undefined> {
    if (at + RECORD > end) return undefined;
    const view = viewOf(this.file.subarray(at));
    const [kind, keyLength] = [view.getUint8(4), view.getUint16(8, true)];
    const [valueLength, capacity] = [view.getUint32(12, true), view.getUint32(16, true)];
    const valueAt = at + RECORD + pad8(keyLength);
    const size = RECORD + pad8(keyLength) + capacity;
    if (kind === 0 || capacity % 8 !== 0 || valueLength > capacity || at + size > end) {
      return undefined;
    }
    if ((kind & SKIPPABLE) === 0 && keyLength === 0) return undefined;
    if (view.getBigUint64(24, true) >> 56n !== 0n) return undefined;
    if (kind === EXTENT) {
      if (valueLength < 32) return undefined;
      if (viewOf(this.file.subarray(valueAt)).getBigUint64(8, true) > MAX_VALUE) return undefined;
    }
    if (kind === PIECES) {
      if (valueLength < 24) return undefined;
      const value = viewOf(this.file.subarray(valueAt));
      const count = value.getUint32(16, true);
      if (value.getBigUint64(8, true) > MAX_VALUE || count < 1 || count > MAX_PIECES) {
        return undefined;
      }
    }
    if (kind === CLEAR) {
      const key = this.file.subarray(at + RECORD, at + RECORD + keyLength);
      if (valueLength < 8 || clearedBy(view.getUint16(10, true), key) === undefined) {
        return undefined;
      }
    }
    // In a valid frame, the records' own checksums must be right too.
    const check = await checksum(this.file.subarray(at + 4, at + size), seedAt(salt, at));
    if ((check & 0xffff_ffffn) !== BigInt(view.getUint32(0, true))) {
      if (checkedBy === "itself") return undefined;
      throw new Error(`the record at ${at} has another checksum than its frame`);
    }
    const record = {
      kind,
      keyspace: view.getUint16(10, true),
      version: u64(view, 24),
      expiry: view.getUint32(32, true),
      position: at,
      previous: filePosition(view.getUint32(36, true)),
      key: this.file.subarray(at + RECORD, at + RECORD + keyLength),
      value: this.file.subarray(valueAt, valueAt + valueLength),
    };
    return { record, size };
  }

  /** Section 7: the value, if the extent is valid. */
  async readExtent(descriptor: Uint8Array): Promise<Uint8Array | undefined> {
    const view = viewOf(descriptor);
    const [length, sequence] = [u64(view, 8), view.getUint32(24, true)];
    const segment = this.segments.get(view.getUint32(0, true));
    if (segment?.kind !== EXTENT_SEGMENT || segment.sequence !== sequence) return undefined;
    const at = segment.start + HEADER;
    if (segment.payload !== length || at + length > segment.capacityEnd) return undefined;
    const value = this.file.subarray(at, at + length);
    const check = await checksum(value, seedAt(segment.salt, at));
    return check === view.getBigUint64(16, true) ? value : undefined;
  }

  /** Section 9, step 7: the torn bytes behind the end, and whether all bytes there are zero. */
  tornBehind(
    log: Segment[],
    position: number,
    next: number,
    hasIntactFrames: boolean,
  ): { tornBytes: number; isBlank: boolean } {
    const at = log.findIndex(
      ({ start, capacityEnd }) => position > start && position <= capacityEnd,
    );
    let [tornBytes, isBlank] = [0, true];
    for (const [i, segment] of log.slice(Math.max(at, 0)).entries()) {
      const isEnd = i === 0 && at >= 0;
      const from = isEnd ? position : segment.start + HEADER;
      let end = segment.capacityEnd;
      while (end > from && this.file[end - 1] === 0) end -= 1;
      isBlank &&= end === from;
      const isBegun = this.isBegun(from, segment.capacityEnd, isEnd ? next : segment.firstFrame);
      if (hasIntactFrames || !segment.reused || isBegun) tornBytes += end - from;
    }
    return { tornBytes, isBlank };
  }

  /** Whether a frame with this number begins at this position. */
  isBegun(position: number, capacityEnd: number, number: number): boolean {
    if (position + FRAME > capacityEnd) return false;
    const view = viewOf(this.file.subarray(position));
    return (
      view.getUint32(8, true) === 0x4d52_4656 && view.getBigUint64(16, true) === BigInt(number)
    );
  }

  /** Section 9, step 8: replays the frames. */
  async replay(
    frames: Frame[],
    next: number,
    checkpoint: Checkpoint | undefined,
  ): Promise<Omit<Database, "recovery">> {
    const transactions: TransactionRecord[] = [];
    const { entries, unreadable } = await this.readEntries(checkpoint);
    const newest = new Map<string, LogRecord>();
    const cleared = new Map(checkpoint?.cleared);
    const isCleared = ({ keyspace, version }: LogRecord) => version < (cleared.get(keyspace) ?? 0);
    for (const record of entries) if (!isCleared(record)) newest.set(idOf(record), record);
    let count = checkpoint?.keys.get(0) ?? 0;
    for (const frame of frames) {
      for (const record of (await this.readRecords(frame)) ?? []) {
        if (record.kind === TRANSACTION) transactions.push(readTransaction(record.value));
        if (record.kind > CLEAR || isCleared(record)) continue;
        const before = newest.get(idOf(record));
        if (before !== undefined && before.version > record.version) continue;
        const wasThere = isLive(before) || unreadable.delete(record.previous);
        if (record.keyspace === 0) count += Number(isLive(record)) - Number(wasThere);
        newest.set(idOf(record), record);
        if (record.kind !== CLEAR) continue;
        const keyspace = clearedBy(record.keyspace, record.key) ?? ENGINE;
        if (record.version <= (cleared.get(keyspace) ?? 0)) continue;
        cleared.set(keyspace, record.version);
        for (const [id, ended] of newest) {
          if (!isCleared(ended)) continue;
          newest.delete(id);
          if (ended.keyspace === 0 && isLive(ended)) count -= 1;
        }
      }
    }
    const records = [...newest.values()].filter(isLive);
    const old = new Set(entries);
    const live: LiveRecord[] = [];
    for (const record of records) {
      const value = await this.valueOf(record, newest);
      if (value !== undefined) live.push({ ...record, value });
      else if (old.has(record) || record.kind === PIECES) unreadable.add(record.position);
      else throw this.lostExtent(viewOf(record.value).getUint32(0, true), next);
    }
    const positions = [...records.map(({ position }) => position), ...unreadable];
    this.requireExtents(checkpoint, new Set(positions), next);
    return { transactions, live, unreadable: unreadable.size, count };
  }

  /** The records that a checkpoint names, and the positions of those that are damaged. */
  async readEntries(
    checkpoint: Checkpoint | undefined,
  ): Promise<{ entries: LogRecord[]; unreadable: Set<number> }> {
    const entries: LogRecord[] = [];
    const unreadable = new Set<number>();
    for (const position of checkpoint?.entries ?? []) {
      const slot = Math.floor((position - DATA_START) / 2 ** this.superblock.segmentLog2);
      const { end, salt } = checkpoint?.named.get(slot) ?? { end: 0, salt: 0n };
      const { record } = (await this.readRecord(position, end, salt, "itself")) ?? {};
      // Records of other kinds do not set a key.
      const isSet = record !== undefined && [SET, EXTENT, PIECES, CLEAR].includes(record.kind);
      if (!isSet) unreadable.add(position);
      else entries.push(record);
    }
    return { entries, unreadable };
  }

  /** Throws unless the extents that a checkpoint names exist, for records that are still live. */
  requireExtents(checkpoint: Checkpoint | undefined, live: Set<number>, next: number): void {
    const named = [...(checkpoint?.extents ?? [])].filter(([position]) => live.has(position));
    const missing = named.filter(([, { slot, sequence }]) => {
      const segment = this.segments.get(slot);
      return segment?.kind !== EXTENT_SEGMENT || segment.sequence !== sequence;
    });
    const slots = missing.map(([, { slot }]) => slot);
    if (slots.length > 0) throw this.lostExtent(Math.min(...slots), next);
  }

  async valueOf(
    { kind, value }: LogRecord,
    newest: Map<string, LogRecord>,
  ): Promise<Uint8Array | undefined> {
    if (kind === PIECES) return joinPieces(value, newest);
    return kind === SET || kind === CLEAR ? value : this.readExtent(value);
  }

  lostExtent(slot: number, next: number): FormatError {
    const position = this.slotStart(slot) + HEADER;
    return corruption({ position, expectedFrame: next, flushedFrames: next });
  }
}
