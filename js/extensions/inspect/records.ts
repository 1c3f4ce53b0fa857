/** The frames of a segment with what of them is live, and the records of a frame. */

import {
  FRAME,
  isRecordIntact,
  KIND,
  type LogBytes,
  type RecordHeader,
  readRecord,
} from "./format.js";
import type { Frame } from "./models.js";
import { bytesIn, type FramePart, framesOf, type Scan, type Slot } from "./scan.js";

/** A record of a frame. */
export interface ShownRecord {
  readonly header: RecordHeader;
  readonly isLive: boolean;
  /** Whether its own checksum is right. */
  readonly isIntact: boolean;
  readonly key: Uint8Array<ArrayBuffer>;
}

/** The frames of a segment. */
export function shownFrames(scan: Scan, slot: Slot, log: LogBytes): Frame[] {
  return [...framesOf(log, slot, scan.flushed)].map((part) => ({
    ...part,
    ...amountsOf(scan, log, part),
  }));
}

function amountsOf(
  scan: Scan,
  { data, start }: LogBytes,
  { state, at: from, length }: FramePart,
): { live: number; dead: number; structure: number } {
  const amounts = { live: 0, dead: 0, structure: FRAME };
  if (state !== "intact") return { live: 0, dead: 0, structure: 0 };
  for (let at = from + FRAME; at < from + length; ) {
    const record = readRecord(data, at, from + length);
    if (record === undefined) break;
    if (record.kind === KIND.void || record.kind === KIND.transaction) {
      amounts.structure += record.size;
    } else {
      amounts[scan.isLive(start + at) ? "live" : "dead"] += record.size;
    }
    at += record.size;
  }
  return amounts;
}

/** The records of a frame. Of a damaged one, those that can still be read. */
export function shownRecords(scan: Scan, log: LogBytes, part: FramePart): ShownRecord[] {
  const { state, at: from, length } = part;
  const { data, start } = log;
  const end = Math.min(from + length, data.byteLength);
  const found: ShownRecord[] = [];
  if (state === "leftover") return found;
  for (let at = from + FRAME; at < end; ) {
    const header = readRecord(data, at, end);
    const isIntact = header !== undefined && isRecordIntact(log, header);
    // In a damaged frame a record with a wrong checksum is shown if what follows it is one, too.
    const isShown =
      header !== undefined && (state === "intact" || isIntact || isFollowed(log, header, end));
    if (header === undefined || !isShown) {
      if (state === "intact") break;
      at += 8;
      continue;
    }
    found.push({
      header,
      isLive: scan.isLive(start + at),
      isIntact,
      key: bytesIn(data, header.keyAt, header.keyLength),
    });
    at += header.size;
  }
  return found;
}

function isFollowed(log: LogBytes, { at, size }: RecordHeader, end: number): boolean {
  if (at + size === end) return true;
  const next = readRecord(log.data, at + size, end);
  return next !== undefined && isRecordIntact(log, next);
}
