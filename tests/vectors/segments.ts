import {
  CHUNKED,
  CLEAR,
  checksum,
  clearedBy,
  DATA_START,
  EXTENT,
  EXTENT_SEGMENT,
  FormatError,
  FRAME,
  type Frame,
  filePosition,
  HEADER,
  isUnknown,
  type LogRecord,
  MAX_CHUNKS,
  MAX_VALUE,
  pad8,
  RECORD,
  type Segment,
  SKIPPABLE,
  type Superblock,
  seedAt,
  UNSUPPORTED_FORMAT,
  u64,
  viewOf,
} from "./layout.js";

/** Reads segments, frames, records and extents (sections 4 to 7). */
export class SegmentReader {
  readonly file: Uint8Array;
  readonly bySlot = new Map<number, Segment>();

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

  slotStart(slot: number): number {
    return DATA_START + slot * 2 ** this.superblock.segmentLog2;
  }

  /**
   * Section 4: finds all valid headers and trailers. The one with the larger sequence has the slot, unless a
   * checkpoint lists it.
   */
  async findSegments(listed: Segment[] = []): Promise<void> {
    this.bySlot.clear();
    const copies: Segment[] = [];
    for (let slot = 0; this.slotStart(slot) < this.file.length; slot += 1) {
      const header = await this.readHeader(this.slotStart(slot));
      if (header?.slot === slot) copies.push(header);
      const trailer = await this.readHeader(this.slotStart(slot + 1) - HEADER);
      if (trailer !== undefined && trailer.slot + trailer.span === slot + 1) copies.push(trailer);
    }
    copies.sort((a, b) => b.sequence - a.sequence);
    const taken = new Set<number>();
    for (const copy of [...listed, ...copies]) {
      const slots = Array.from({ length: copy.span }, (_, i) => copy.slot + i);
      if (slots.some((slot) => taken.has(slot))) continue;
      for (const slot of slots) taken.add(slot);
      this.bySlot.set(copy.slot, copy);
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

  /** Whether the first eight bytes are the checksum of the rest at this position. */
  async hasChecksum(at: number, length: number, salt: bigint): Promise<boolean> {
    const bytes = this.file.subarray(at, at + length);
    if (bytes.length < 8) return false;
    const check = await checksum(bytes.subarray(8), seedAt(salt, at));
    return check === viewOf(bytes).getBigUint64(0, true);
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
    if (kind === CHUNKED) {
      if (valueLength < 24) return undefined;
      const value = viewOf(this.file.subarray(valueAt));
      const count = value.getUint32(16, true);
      if (value.getBigUint64(8, true) > MAX_VALUE || count < 1 || count > MAX_CHUNKS) {
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
    const segment = this.bySlot.get(view.getUint32(0, true));
    if (segment?.kind !== EXTENT_SEGMENT || segment.sequence !== sequence) return undefined;
    const at = segment.start + HEADER;
    if (segment.payload !== length || at + length > segment.capacityEnd) return undefined;
    const value = this.file.subarray(at, at + length);
    const check = await checksum(value, seedAt(segment.salt, at));
    return check === view.getBigUint64(16, true) ? value : undefined;
  }
}
