/**
 * A reader of the file format, written from crate/FORMAT.md alone. It shares no code with the engine, so that the
 * document is proved complete where both agree. Section numbers are those of the document. It reads the file as a
 * whole and is not fast.
 */

import { listedSegments, readCheckpoint, readEntries } from "./checkpoint.js";
import {
  CHUNKED,
  type Chain,
  type Checkpoint,
  CLEAR,
  clearedBy,
  DATA_START,
  type Database,
  ENGINE,
  EXTENT_SEGMENT,
  type FormatError,
  FRAME,
  type Frame,
  GAP,
  HEADER,
  idOf,
  idOfChunk,
  isLive,
  isUnknown,
  type LiveRecord,
  LOG,
  type LogRecord,
  readTransaction,
  SET,
  type Segment,
  TRANSACTION,
  type TransactionRecord,
  u64,
  VOID,
  viewOf,
} from "./layout.js";
import { SegmentReader } from "./segments.js";
import { corruption, readSuperblock } from "./superblock.js";

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
  return new Reader(new SegmentReader(file, superblock)).open(options.log !== "whole");
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

/** Section 7a: the value, if all of its chunks exist and have its length. */
function joinChunks(
  descriptor: Uint8Array,
  newest: Map<string, LogRecord>,
): Uint8Array | undefined {
  const view = viewOf(descriptor);
  const [id, length, count] = [view.getBigUint64(0, true), u64(view, 8), view.getUint32(16, true)];
  const value = new Uint8Array(length);
  let at = 0;
  for (let chunk = 0; chunk < count; chunk += 1) {
    const record = newest.get(idOfChunk(id, chunk));
    if (record?.kind !== SET || at + record.value.length > length) return undefined;
    value.set(record.value, at);
    at += record.value.length;
  }
  return at === length ? value : undefined;
}

class Reader {
  readonly segments: SegmentReader;

  constructor(segments: SegmentReader) {
    this.segments = segments;
  }

  async open(mayUseCheckpoint: boolean): Promise<Database> {
    const checkpoint = await this.findSegments(mayUseCheckpoint);
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
    const { clean, nextFrame } = this.segments.superblock;
    const records = (await this.segments.readRecords(kept.at(-1))) ?? [];
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

  /** Section 9, step 2: finds the segments, and the checkpoint if there is a valid one. */
  async findSegments(mayUseCheckpoint: boolean): Promise<Checkpoint | undefined> {
    const listed = mayUseCheckpoint ? await listedSegments(this.segments) : undefined;
    await this.segments.findSegments(listed);
    const checkpoint = mayUseCheckpoint ? await readCheckpoint(this.segments) : undefined;
    if (listed === undefined || checkpoint !== undefined) return checkpoint;
    await this.segments.findSegments();
    return readCheckpoint(this.segments);
  }

  /** Section 9, steps 2 and 3: the log segments to replay, in order. */
  logSegments(checkpoint: Checkpoint | undefined): Segment[] {
    const isEnd = ({ sequence }: Segment) => sequence === checkpoint?.endSequence;
    const first = checkpoint?.nextSequence ?? this.segments.superblock.firstSequence;
    const log = [...this.segments.bySlot.values()]
      .filter((segment) => segment.kind === LOG && (segment.sequence >= first || isEnd(segment)))
      .sort((a, b) => a.sequence - b.sequence);
    for (const [i, segment] of log.entries()) {
      segment.limit = Math.min(...log.slice(i + 1).map(({ firstFrame }) => firstFrame));
    }
    return log.filter((segment) => segment.firstFrame < segment.limit || isEnd(segment));
  }

  /** Section 9, step 4: the chain of frames. */
  async followChain(log: Segment[], checkpoint: Checkpoint | undefined): Promise<Chain> {
    const chain: Chain = {
      frames: [],
      segment: 0,
      position: DATA_START,
      expected: checkpoint?.frame ?? this.segments.superblock.firstFrame,
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
        const frame = await this.segments.readFrame(segment, chain.position);
        if (frame?.number !== chain.expected) break;
        chain.frames.push(frame);
        chain.position += frame.length;
        chain.expected += 1;
      }
      const rest = this.segments.file.subarray(chain.position, segment.capacityEnd);
      isBroken = chain.expected < segment.limit && rest.some((byte) => byte !== 0);
    }
    const watermarks = chain.frames.map(({ watermark }) => watermark);
    chain.watermark = Math.max(this.segments.superblock.nextFrame, ...watermarks);
    if (chain.gaps.length > 0) await this.readGapRecords(chain);
    endBeforeUnexplainedGap(chain, chain.frames.length, chain.watermark);
    return chain;
  }

  /** Section 8: the records about gaps. */
  async readGapRecords(chain: Chain): Promise<void> {
    for (const frame of chain.frames) {
      await this.segments.eachRecord(frame, (record) => {
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
        const frame = await this.segments.readFrame(segment, at);
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
      const records = await this.segments.readRecords(frame, frame.number >= flushed);
      if (records === undefined) break;
      if (frame.commits) complete = i + 1;
    }
    return frames.slice(0, complete);
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
      while (end > from && this.segments.file[end - 1] === 0) end -= 1;
      isBlank &&= end === from;
      const isBegun = this.isBegun(from, segment.capacityEnd, isEnd ? next : segment.firstFrame);
      if (hasIntactFrames || !segment.reused || isBegun) tornBytes += end - from;
    }
    return { tornBytes, isBlank };
  }

  /** Whether a frame with this number begins at this position. */
  isBegun(position: number, capacityEnd: number, number: number): boolean {
    if (position + FRAME > capacityEnd) return false;
    const view = viewOf(this.segments.file.subarray(position));
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
    const { entries, unreadable } = await readEntries(this.segments, checkpoint);
    const newest = new Map<string, LogRecord>();
    const cleared = new Map(checkpoint?.cleared);
    const isCleared = ({ keyspace, version }: LogRecord) => version < (cleared.get(keyspace) ?? 0);
    for (const record of entries) if (!isCleared(record)) newest.set(idOf(record), record);
    let count = checkpoint?.keys.get(0) ?? 0;
    for (const frame of frames) {
      for (const record of (await this.segments.readRecords(frame)) ?? []) {
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
      else if (old.has(record) || record.kind === CHUNKED) unreadable.add(record.position);
      else throw this.lostExtent(viewOf(record.value).getUint32(0, true), next);
    }
    const positions = [...records.map(({ position }) => position), ...unreadable];
    this.requireExtents(checkpoint, new Set(positions), next);
    return { transactions, live, unreadable: unreadable.size, count };
  }

  /** Throws unless the extents that a checkpoint names exist, for records that are still live. */
  requireExtents(checkpoint: Checkpoint | undefined, live: Set<number>, next: number): void {
    const named = [...(checkpoint?.extents ?? [])].filter(([position]) => live.has(position));
    const missing = named.filter(([, { slot, sequence }]) => {
      const segment = this.segments.bySlot.get(slot);
      return segment?.kind !== EXTENT_SEGMENT || segment.sequence !== sequence;
    });
    const slots = missing.map(([, { slot }]) => slot);
    if (slots.length > 0) throw this.lostExtent(Math.min(...slots), next);
  }

  async valueOf(
    { kind, value }: LogRecord,
    newest: Map<string, LogRecord>,
  ): Promise<Uint8Array | undefined> {
    if (kind === CHUNKED) return joinChunks(value, newest);
    return kind === SET || kind === CLEAR ? value : this.segments.readExtent(value);
  }

  lostExtent(slot: number, next: number): FormatError {
    const position = this.segments.slotStart(slot) + HEADER;
    return corruption({ position, expectedFrame: next, flushedFrames: next });
  }
}
