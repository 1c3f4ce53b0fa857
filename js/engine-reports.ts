/** What the engine tells about itself: slots of 8 bytes in its result block, and what each means. */

import type { CorruptionDetails } from "./errors.js";

/** What the engine counts about itself. */
export interface EngineStats {
  /** Keys present. */
  count: number;
  /** Bytes of the records that are current. */
  liveBytes: number;
  /** Length of the file. */
  fileBytes: number;
  /** Bytes that the engine has taken of its memory. */
  memoryBytes: number;
  /** Segments in use. */
  segments: number;
  /** Number of the last frame. */
  frame: number;
  /** The version that was given out last. */
  version: number;
  /** Whether an earlier failure made the database read-only. */
  poisoned: boolean;
  /** Bytes written to the database and not yet handed to the file. */
  pendingBytes: number;
  /** Bytes of the index. */
  indexBytes: number;
}

/** What opening found at the end of the file. */
export interface Recovery {
  /** Bytes of unflushed writes that a crash left incomplete, and that were dropped. */
  readonly tornBytes: number;
  /** Complete frames that were dropped behind such bytes. */
  readonly droppedFrames: number;
  /** Number of the last frame that stands. */
  readonly lastSequence: number;
  /** Frames that were read to open. */
  readonly replayedFrames: number;
  /** Whether the database had been closed in order. */
  readonly wasClean: boolean;
  /** Whether the database is new. */
  readonly created: boolean;
}

/** Gives the number in a slot of the report that was made last. */
export type Report = (slot: number) => number;

export function statsOf(slot: Report): EngineStats {
  return {
    count: slot(0),
    liveBytes: slot(1),
    fileBytes: slot(2),
    memoryBytes: slot(3),
    segments: slot(4),
    frame: slot(5),
    version: slot(6),
    poisoned: slot(7) !== 0,
    pendingBytes: slot(8),
    indexBytes: slot(9),
  };
}

export function recoveryOf(slot: Report): Recovery {
  return Object.freeze({
    tornBytes: slot(0),
    droppedFrames: slot(1),
    lastSequence: slot(2),
    replayedFrames: slot(3),
    wasClean: slot(4) !== 0,
    created: slot(5) !== 0,
  });
}

export function damageOf(slot: Report): CorruptionDetails {
  return {
    position: slot(0),
    expectedFrame: slot(1),
    flushedFrames: slot(2),
    intactFrames: slot(3),
    intactBytes: slot(4),
  };
}
