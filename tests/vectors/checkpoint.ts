/** Reads checkpoints (section 8a). */

import {
  BLOCK,
  CHECKPOINT,
  CHUNKED,
  type Checkpoint,
  CLEAR,
  DATA_START,
  ENGINE,
  EXTENT,
  EXTENT_ROW,
  filePosition,
  HEAD,
  HEADER,
  KEYSPACE_ROW,
  LOG,
  type LogRecord,
  RECORD,
  RUN,
  RUN_ROW,
  RUN_SEGMENT_ROW,
  type Run,
  SEGMENT_ROW,
  SET,
  type Segment,
  u64,
  viewOf,
} from "./layout.js";
import type { SegmentReader } from "./segments.js";

/** Section 8a: the checkpoint that the superblock names, if it is valid. */
export async function readCheckpoint(reader: SegmentReader): Promise<Checkpoint | undefined> {
  const { checkpointSequence, checkpointFrame } = reader.superblock;
  const segment = [...reader.bySlot.values()].find(
    ({ kind, sequence }) => kind === CHECKPOINT && sequence === checkpointSequence,
  );
  if (segment === undefined || checkpointSequence === 0) return undefined;
  const listed = await readListed(reader, segment);
  if (listed === undefined) return undefined;
  const slots = new Set([segment, ...listed].map(({ slot }) => slot));
  if (slots.size !== listed.length + 1) return undefined;
  const at = segment.start + HEADER;
  const view = viewOf(reader.file.subarray(at, segment.capacityEnd));
  const length = view.getUint32(12, true);
  if (view.getUint32(8, true) !== 0x3550_4356 || length > view.byteLength) return undefined;
  if (!(await reader.hasChecksum(at, length, segment.salt))) return undefined;
  const counts = [view.getUint32(48, true), view.getUint32(52, true), view.getUint32(56, true)];
  const [keyspaces = 0, segments = 0, extents = 0] = counts;
  const runs = HEAD + keyspaces * KEYSPACE_ROW + segments * SEGMENT_ROW + extents * EXTENT_ROW;
  const runRows = view.getUint32(64, true) * RUN_ROW;
  const hashes = runs + runRows + view.getUint32(68, true) * RUN_SEGMENT_ROW;
  const entries = u64(view, 40);
  const blocks = Math.ceil(entries / (BLOCK / 8 - 1));
  if (length !== hashes + Math.ceil(blocks / 2) * 8 || u64(view, 16) !== checkpointFrame)
    return undefined;
  if (u64(view, 32) === 0 || view.getUint32(60, true) > checkpointSequence) return undefined;
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
    firstRuns: new Map(),
    runs: readRunRows(viewOf(reader.file.subarray(at + runs, at + hashes)), runRows),
  };
  for (let i = 0, row = HEAD; i < keyspaces; i += 1, row += KEYSPACE_ROW) {
    const [keyspace, cleared] = [view.getUint16(row, true), u64(view, row + 8)];
    if (cleared > u64(view, 32) || (keyspace === ENGINE && cleared > 0)) return undefined;
    checkpoint.keys.set(keyspace, view.getUint32(row + 4, true));
    checkpoint.cleared.set(keyspace, cleared);
    checkpoint.firstRuns.set(keyspace, view.getUint32(row + 16, true));
  }
  const keys = [...checkpoint.keys.values()].reduce((sum, count) => sum + count, 0);
  const isCleared = [...checkpoint.cleared.values()].some((version) => version > 0);
  if (isCleared ? keys > entries : keys !== entries) return undefined;
  for (let i = 0, row = HEAD + keyspaces * KEYSPACE_ROW; i < segments; i += 1, row += SEGMENT_ROW) {
    const [slot, sequence] = [view.getUint32(row, true), view.getUint32(row + 4, true)];
    const found = reader.bySlot.get(slot);
    if (found?.kind !== LOG || found.sequence !== sequence) return undefined;
    const end = found.start + view.getUint32(row + 32, true);
    if (end > found.capacityEnd || sequence >= checkpoint.nextSequence) return undefined;
    if (view.getBigUint64(row + 16, true) >> 56n !== 0n) return undefined;
    checkpoint.named.set(slot, { sequence, salt: found.salt, end });
  }
  for (let i = 0, row = runs - extents * EXTENT_ROW; i < extents; i += 1, row += EXTENT_ROW) {
    const [slot, sequence] = [view.getUint32(row, true), view.getUint32(row + 4, true)];
    const record = filePosition(view.getUint32(row + 8, true));
    if (!isInside(reader, checkpoint, record)) return undefined;
    checkpoint.extents.set(record, { slot, sequence });
  }
  const firsts = Array.from({ length: blocks }, (_, i) => view.getUint32(hashes + 4 * i, true));
  const isRead = await readBlocks(reader, checkpoint, segment, at + length, entries, firsts);
  return isRead && (await isEndComplete(reader, checkpoint)) ? checkpoint : undefined;
}

/**
 * Section 8a: the segments that exist because the checkpoint lists them, with its own; `undefined` if headers decide.
 */
export async function listedSegments(reader: SegmentReader): Promise<Segment[] | undefined> {
  const { checkpointSequence, checkpointSlot, hasCopy } = reader.superblock;
  const start = reader.slotStart(checkpointSlot);
  if (!hasCopy || checkpointSequence === 0 || start >= reader.file.length) return undefined;
  const own = await reader.readHeader(start);
  const isOwn = own?.kind === CHECKPOINT && own.slot === checkpointSlot;
  if (!isOwn || own.sequence !== checkpointSequence) return undefined;
  const listed = await readListed(reader, own);
  return listed === undefined ? undefined : [own, ...listed];
}

/** The segments in the tables of a checkpoint. */
async function readListed(reader: SegmentReader, own: Segment): Promise<Segment[] | undefined> {
  const at = own.start + HEADER;
  const view = viewOf(reader.file.subarray(at, own.capacityEnd));
  const length = view.getUint32(12, true);
  if (view.getUint32(8, true) !== 0x3550_4356 || length > view.byteLength) return undefined;
  if (!(await reader.hasChecksum(at, length, own.salt))) return undefined;
  const listed: Segment[] = [];
  const add = (kind: number, row: number, rest: { firstFrame: number; reused: boolean }) => {
    const [slot, sequence] = [view.getUint32(row, true), view.getUint32(row + 4, true)];
    const [start, salt] = [reader.slotStart(slot), view.getBigUint64(row + 8, true)];
    const capacityEnd = reader.slotStart(slot + 1) - HEADER;
    const segment = { kind, sequence, slot, span: 1, salt, payload: 0, start, capacityEnd };
    listed.push({ ...segment, ...rest, limit: Number.POSITIVE_INFINITY });
  };
  let row = HEAD + view.getUint32(48, true) * KEYSPACE_ROW;
  for (let left = view.getUint32(52, true); left > 0; left -= 1, row += SEGMENT_ROW) {
    const reused = (view.getUint32(row + 52, true) & 1) !== 0;
    add(LOG, row, { firstFrame: u64(view, row + 16), reused });
  }
  row += view.getUint32(56, true) * EXTENT_ROW + view.getUint32(64, true) * RUN_ROW;
  for (let left = view.getUint32(68, true); left > 0; left -= 1, row += RUN_SEGMENT_ROW) {
    // The last rows may be blank.
    if (view.getUint32(row + 4, true) !== 0) add(RUN, row, { firstFrame: 0, reused: false });
  }
  return listed;
}

/** The runs of keys that a checkpoint names, the oldest first. */
function readRunRows(view: DataView, rows: number): Run[] {
  const runs: Run[] = [];
  for (let row = 0, segment = rows; row < rows; row += RUN_ROW) {
    const segments = Array.from({ length: view.getUint32(row + 20, true) }, (_, i) => ({
      slot: view.getUint32(segment + i * RUN_SEGMENT_ROW, true),
      sequence: view.getUint32(segment + i * RUN_SEGMENT_ROW + 4, true),
    }));
    segment += segments.length * RUN_SEGMENT_ROW;
    const [root, length] = [view.getUint32(row + 8, true), view.getUint32(row + 12, true)];
    const sequence = view.getUint32(row + 16, true);
    if (segments.length > 0) {
      runs.push({ entries: u64(view, row), root: filePosition(root), length, sequence, segments });
    }
  }
  return runs;
}

/** Whether a record at a file position may be before the end of a segment that the checkpoint names. */
function isInside(reader: SegmentReader, { named }: Checkpoint, position: number): boolean {
  const slot = Math.floor((position - DATA_START) / 2 ** reader.superblock.segmentLog2);
  const end = named.get(slot)?.end ?? 0;
  return position >= reader.slotStart(slot) + HEADER && position + RECORD <= end;
}

/** Reads the entries of a checkpoint. Returns whether they are valid. */
async function readBlocks(
  reader: SegmentReader,
  checkpoint: Checkpoint,
  segment: Segment,
  start: number,
  entries: number,
  firstHashes: number[],
): Promise<boolean> {
  let at = start;
  let before = 0;
  let left = entries;
  for (const first of firstHashes) {
    const count = Math.min(left, BLOCK / 8 - 1);
    const length = 8 + 8 * count;
    if (at + length > segment.capacityEnd) return false;
    if (!(await reader.hasChecksum(at, length, segment.salt))) return false;
    const view = viewOf(reader.file.subarray(at, at + length));
    if (view.getUint32(8, true) !== first) return false;
    for (let i = 1; i <= count; i += 1) {
      const hash = view.getUint32(8 * i, true);
      if (hash < before) return false;
      before = hash;
      const position = filePosition(view.getUint32(8 * i + 4, true));
      if (!isInside(reader, checkpoint, position)) return false;
      checkpoint.entries.push(position);
    }
    at += length;
    left -= count;
  }
  return true;
}

/** Whether all frames before the end that a checkpoint names are complete. */
async function isEndComplete(
  reader: SegmentReader,
  { endSequence, endOffset, named }: Checkpoint,
): Promise<boolean> {
  const [slot] = [...named].find(([, { sequence }]) => sequence === endSequence) ?? [];
  const segment = slot === undefined ? undefined : reader.bySlot.get(slot);
  const end = slot === undefined ? undefined : named.get(slot)?.end;
  if (segment === undefined || end !== segment.start + endOffset) return false;
  if (endOffset < HEADER || endOffset % 8 !== 0) return false;
  let at = segment.start + HEADER;
  while (at < end) {
    const frame = await reader.readFrame(segment, at);
    if (frame === undefined || (await reader.readRecords(frame)) === undefined) return false;
    at += frame.length;
  }
  return true;
}

/** The records that a checkpoint names, and the positions of those that are damaged. */
export async function readEntries(
  reader: SegmentReader,
  checkpoint: Checkpoint | undefined,
): Promise<{ entries: LogRecord[]; unreadable: Set<number> }> {
  const entries: LogRecord[] = [];
  const unreadable = new Set<number>();
  for (const position of checkpoint?.entries ?? []) {
    const slot = Math.floor((position - DATA_START) / 2 ** reader.superblock.segmentLog2);
    const { end, salt } = checkpoint?.named.get(slot) ?? { end: 0, salt: 0n };
    const { record } = (await reader.readRecord(position, end, salt, "itself")) ?? {};
    // Records of other kinds do not set a key.
    const isSet = record !== undefined && [SET, EXTENT, CHUNKED, CLEAR].includes(record.kind);
    if (!isSet) unreadable.add(position);
    else entries.push(record);
  }
  return { entries, unreadable };
}
