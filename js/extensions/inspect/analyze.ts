/** What the bytes of a file are, as numbers: for programs and tests that draw nothing. */

import { shownFrames } from "./records.js";
import { readLog, type Scan, type SlotKind, scan, type Totals, totalsOf } from "./scan.js";
import { blobSource, bytesSource } from "./source.js";

/** A segment of a file. Sizes are in bytes. */
export interface SegmentReport {
  /** Its number in the file, from 0. */
  readonly index: number;
  /** Position in the file. */
  readonly position: number;
  readonly kind: SlotKind;
  /** Number of its intact frames. */
  readonly frames: number;
  /** Number of their records. */
  readonly records: number;
  readonly live: number;
  readonly dead: number;
  /** Headers, notes and the engine's index. */
  readonly structure: number;
  readonly damaged: number;
  /** What an interrupted write left, which was never committed. */
  readonly torn: number;
}

/** A frame of a segment, or bytes in the position of one. Sizes are in bytes. */
export interface FrameReport {
  /** Position in the file. */
  readonly position: number;
  readonly length: number;
  /** `"leftover"` bytes are of an earlier use of the segment. */
  readonly state: "intact" | "damaged" | "torn" | "leftover";
  /** `undefined` if it cannot be read. */
  readonly number: number | undefined;
  readonly records: number;
  /** Whether compaction wrote it. */
  readonly moved: boolean;
  readonly live: number;
  readonly dead: number;
}

/** What `analyze` found. */
export interface Analysis {
  /** Bytes of the file. */
  readonly size: number;
  readonly segmentBytes: number;
  /** Whether it was closed properly. */
  readonly clean: boolean;
  /** The bytes of the file by what they are. They add up to `size`, or of a file that was cut off to a little more; `live` is that of `db.stats().liveBytes`. */
  readonly totals: Totals;
  /** Number of live keys outside of collections. */
  readonly keys: number;
  /** Number of the last frame. */
  readonly lastFrame: number;
  /** How many frames are missing at the end that had been flushed. */
  readonly missingFrames: number;
  readonly segments: readonly SegmentReport[];
  /** The frames of a segment, which are read again. There are none in segments that are not of the log. */
  frames(segment: number): Promise<FrameReport[]>;
}

/** How to analyze. */
export interface AnalyzeOptions {
  /** Ends it: the promise rejects with the reason of the signal. */
  readonly signal?: AbortSignal;
  /** Called between slices of work with the part that is done, from 0 to 1. */
  readonly onProgress?: (done: number) => void;
  /** Milliseconds of work between two pauses; 12 by default. */
  readonly sliceMs?: number;
}

/**
 * Reads all of a file in slices and says what its bytes are. It verifies each checksum and goes on after damage, so it also
 * reads files that `open` refuses.
 *
 * @param file bytes, which must not change meanwhile, or a file, which is read segment by segment
 * @throws NotReadableError for a file that is no database, or one of a newer format
 */
export async function analyze(
  file: Uint8Array<ArrayBuffer> | Blob,
  options: AnalyzeOptions = {},
): Promise<Analysis> {
  const source =
    file instanceof Uint8Array ? bytesSource("The file", file) : blobSource("The file", file);
  const { signal, onProgress, sliceMs } = options;
  const found = await scan(source, {
    signal,
    ...(sliceMs === undefined ? {} : { sliceMs }),
    onProgress: (_, done) => onProgress?.(done),
  });
  return analysisOf(found);
}

function analysisOf(found: Scan): Analysis {
  const { source, slots, segmentBytes, superblock, keys, lastFrame, flushed } = found;
  return {
    size: source.size,
    segmentBytes,
    clean: superblock?.clean === true,
    totals: totalsOf(found),
    keys,
    lastFrame,
    missingFrames: Math.max(0, flushed - 1 - lastFrame),
    segments: slots.map((slot) => {
      const { index, start, kind, frames, records } = slot;
      const { live, dead, structure, damaged, torn } = slot;
      const sizes = { live, dead, structure, damaged, torn };
      return { index, position: start, kind, frames, records, ...sizes };
    }),
    async frames(segment) {
      const slot = slots[segment];
      if (slot?.kind !== "log") return [];
      const frames = shownFrames(found, slot, await readLog(found, slot));
      return frames.map(({ at, length, state, header, live, dead }) => ({
        position: slot.start + at,
        length,
        state,
        number: header?.number,
        records: header?.records ?? 0,
        moved: header?.moved === true,
        live,
        dead,
      }));
    },
  };
}
