/** What the engine tells about itself: slots of 8 bytes in its result block, and what each means. */

import type { CorruptionDetails } from "./errors.js";

/** What the engine counts about itself. All that is called bytes is in bytes. */
export interface EngineStats {
  /** Keys present, those of collections and the entries of their indexes included. */
  count: number;
  /** Bytes of the records that are current, their keys and headers included. */
  liveBytes: number;
  /** Length of the file. */
  fileBytes: number;
  /**
   * Bytes of memory that hold records: segments of the log, copies of what was read from the file,
   * and values above half a MiB. Between turns at most `budgetBytes` and a quarter, for what finds the
   * copies again; pinned values come on top.
   */
  memoryBytes: number;
  /** Segments of the file in use, of 1 MiB each. */
  segments: number;
  /** Number of the last frame. */
  frame: number;
  /** The version that was given out last. */
  version: number;
  /** Whether an earlier failure made the database read-only. */
  poisoned: boolean;
  /** Bytes written to the database and not yet handed to the file. */
  pendingBytes: number;
  /** Bytes of the table that finds a key's record, and from the first range on of what tells where records still lie. */
  indexBytes: number;
  /** Bytes that records may take in memory between turns: the option `memory` in whole MiB, 4 at least. */
  budgetBytes: number;
  /** How many buffers of 1 MiB with records were given up for others, since opening. */
  evictions: number;
}

/** What is counted outside of the engine. */
export interface Outside {
  /**
   * Bytes of all memory that the database has: records, the index, the order of keys, and what is
   * kept free for the next turn. It grows and does not shrink; closing gives all of it back.
   */
  wasmBytes: number;
  /** How often the file was read since opening, for what was not in memory. */
  coldReads: number;
  /** Bytes that were read then. */
  coldBytes: number;
}

/** What opening found at the end of the file. */
export interface Recovery {
  /** Bytes of unflushed writes that a crash left incomplete, and that were dropped. */
  readonly tornBytes: number;
  /** Complete frames that were dropped behind such bytes. */
  readonly droppedFrames: number;
  /** Number of the last frame that stands. */
  readonly lastSequence: number;
  /** Frames that were read to open: all, or those behind the checkpoint. */
  readonly replayedFrames: number;
  /** Whether the index came from a checkpoint, so that not the whole log had to be read. */
  readonly fromCheckpoint: boolean;
  /** Whether the database had been closed in order. */
  readonly wasClean: boolean;
  /** Whether the database is new. */
  readonly created: boolean;
  /** What the option `recovery` could not bring back; `undefined` when nothing was damaged. */
  readonly lost: Loss | undefined;
}

/** What is gone of a damaged database that was opened with the option `recovery`. */
export interface Loss {
  /** Frames that had been flushed and are gone. Each held up to 256 KiB of writes. */
  readonly frames: number;
  /** Bytes of the file that were left behind, as far as they were there to be seen. */
  readonly bytes: number;
  /**
   * Keys whose values are known to be gone. They are absent: what they held before is not what they
   * held last. Beside them there may have been keys of which nothing tells any more.
   */
  readonly keys: number;
  /**
   * Keys that are there with their last value that is intact, and that lost frames may have changed or
   * deleted: `getEntry` tells each. 0 with `recovery: "prefix"`.
   */
  readonly uncertainKeys: number;
}

/** What a verification found. */
export interface Verification {
  /** Whether all that the database relies on is as it was written. */
  readonly ok: boolean;
  /** Bytes that were read and verified. */
  readonly bytes: number;
  /** Segments, large values and checkpoints among them. */
  readonly segments: number;
  /** Frames of the log that are whole, and records in them. */
  readonly frames: number;
  readonly records: number;
  /** What is not as it was written, in the order of the file. */
  readonly problems: readonly Problem[];
}

/** A place in the file that is not as it was written. */
export interface Problem {
  /** What is there, and what it means that it is damaged. */
  readonly what: ProblemKind;
  /** Its first byte, */
  readonly offset: number;
  /** and how many bytes may be affected. */
  readonly length: number;
}

/**
 * - `"superblock"`, `"header"`: one of two copies, of which the other serves
 * - `"frame"`, `"record"`: writes; what is current of them cannot be read
 * - `"value"`: a value above half a MiB that has segments to itself; of others pieces are damaged, which are records
 * - `"checkpoint"`: the index as it was saved; opening reads the whole log instead
 * - `"zeros"`: room that nothing uses yet; opening after a crash may report it as torn
 * - `"index"`: the index in memory does not name what is in the segment there
 */
export type ProblemKind =
  | "superblock"
  | "header"
  | "frame"
  | "record"
  | "zeros"
  | "value"
  | "checkpoint"
  | "index";

/** Gives the number in a slot of the report that was made last. */
export type Report = (slot: number) => number;

export function statsOf(slot: Report): EngineStats {
  return {
    count: slot(0),
    liveBytes: slot(1),
    fileBytes: slot(2),
    memoryBytes: slot(3),
    segments: slot(4),
    // The engine counts the next ones.
    frame: slot(5) - 1,
    version: slot(6) - 1,
    poisoned: slot(7) !== 0,
    pendingBytes: slot(8),
    indexBytes: slot(9),
    evictions: slot(10),
    budgetBytes: slot(11),
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
    fromCheckpoint: slot(6) !== 0,
    lost: slot(7) === 0 ? undefined : lossOf(slot),
  });
}

function lossOf(slot: Report): Loss {
  return Object.freeze({
    frames: slot(8),
    bytes: slot(9),
    keys: slot(10),
    uncertainKeys: slot(11),
  });
}

export function damageOf(slot: Report): CorruptionDetails {
  return {
    position: slot(0),
    expectedFrame: slot(1),
    flushedFrames: slot(2),
    intactFrames: slot(3),
    intactBytes: slot(4),
    before: slot(5) === 0 ? undefined : { keys: slot(6), version: slot(7) },
  };
}
