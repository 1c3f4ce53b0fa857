/** Which parts of a file the bytes lie in that a change has changed. */

import type { Range } from "./fields.js";
import { DATA_START, HEADER, SUPERBLOCK, SUPERBLOCK_STRIDE } from "./format.js";
import { type Frame, frameAt, frameName } from "./models.js";
import type { Scan, Slot } from "./scan.js";
import { slotName } from "./words.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** Changed bytes of one part of the file. */
export interface Group extends Range {
  readonly name: string;
  bytes: number;
}

/** Changed bytes by the part of the file in which they lie. */
export function groupsOf(
  changed: readonly Range[],
  after: Bytes,
  found: Scan,
  frames: readonly Frame[],
  opened: Slot | undefined,
): Group[] {
  const groups = new Map<string, { name: string; from: number; to: number; bytes: number }>();
  for (const { at, length } of changed) {
    // A range may go from one part into the next.
    for (let byte = at; byte < Math.min(at + length, after.length); byte += 1) {
      const name = partName(byte, found, frames, opened);
      const group = groups.get(name);
      if (group === undefined) groups.set(name, { name, from: byte, to: byte, bytes: 1 });
      else {
        group.to = byte;
        group.bytes += 1;
      }
    }
  }
  return [...groups.values()].map(({ name, from, to, bytes }) => ({
    name,
    at: from,
    length: to - from + 1,
    bytes,
  }));
}

function partName(
  byte: number,
  found: Scan,
  frames: readonly Frame[],
  opened: Slot | undefined,
): string {
  if (byte < SUPERBLOCK) return "The first superblock, which says how the file was closed";
  if (byte < SUPERBLOCK_STRIDE + SUPERBLOCK)
    return "The second superblock, which says how the file was closed";
  const slot = found.slots[Math.floor((byte - DATA_START) / found.segmentBytes)];
  if (slot === undefined) return "Unused bytes";
  const offset = byte - slot.start;
  const of = `of segment ${slot.index}`;
  if (slot.kind !== "log") return `Segment ${slot.index}, ${slotName(slot)}`;
  if (offset < HEADER) return `The header ${of}`;
  if (offset >= found.segmentBytes - HEADER) return `The copy of the header ${of}`;
  if (slot !== opened) return `Frames ${of}`;
  const frame = frames[frameAt(frames, offset)];
  if (frame === undefined || offset >= frame.at + frame.length) return `Unused bytes ${of}`;
  const { header } = frame;
  const what = header?.records === 0 ? "a witness of the flush" : "the commit";
  return `${frameName(frame)}, ${what}`;
}

/** Up to eight bytes in hexadecimal. */
export function hexOf(bytes: Uint8Array, at: number, length: number): string {
  const shown = bytes.subarray(at, at + Math.min(length, 8));
  return Array.from(shown, (byte) => byte.toString(16).padStart(2, "0")).join(" ") || "nothing";
}
