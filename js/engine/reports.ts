/** The reports of the engine, and the meaning of their slots of 8 bytes in its result block. */

import type { CorruptionDetails } from "../errors/index.js";

/** Counts and sizes of the engine. Sizes are in bytes. */
export interface EngineStats {
  /** Number of keys in all keyspaces: those of collections and the entries of their indexes included. */
  count: number;
  /** Bytes of the current records, including their keys and headers. */
  liveBytes: number;
  /** Length of the file. */
  fileBytes: number;
  /**
   * Bytes of memory that hold records: segments of the log, the cache of records read from the file, and values
   * above half a MiB. Between turns at most 1.25 times `budgetBytes`; the quarter is for the index of the cache.
   * Values above half a MiB may take another quarter where segments take all of the budget, and pinned values come
   * on top.
   */
  memoryBytes: number;
  /** Number of segments of the file in use, of 1 MiB each. */
  segments: number;
  /** Number of the last frame. A frame is the unit in which the log is written, of up to 256 KiB of writes. */
  frame: number;
  /** The version that was assigned last. */
  version: number;
  /** Whether an earlier failure made the database read-only. */
  poisoned: boolean;
  /** Bytes written to the database and not yet to the file. */
  pendingBytes: number;
  /**
   * Bytes of memory for the index: the hash index, the table of the records' positions, and keys in order. If the hash
   * index would take more than a quarter of the option `memory`, a part of it stays in the file, and a filter of
   * hashes counts here instead, a byte for each key. Keys whose
   * order is in the file take none, apart from a cache of at most a sixteenth of the option `memory`.
   */
  indexBytes: number;
  /** Bytes of the file for the index: the checkpoint, and the order of keys. */
  indexFileBytes: number;
  /**
   * Bytes that records may take in memory between turns: the option `memory` in whole MiB, at least 4. What a large
   * index takes beyond its quarter is subtracted, down to half.
   */
  budgetBytes: number;
  /** Number of 1 MiB buffers with records that were evicted since opening. */
  evictions: number;
  /** Whether the file keeps its history: `"keep"` or `"none"`. */
  history: History;
  /** What the open snapshots take. */
  snapshots: SnapshotStats;
}

/**
 * Whether a database keeps its history: with `"keep"`, nothing that was replaced or deleted is dropped, and `db.at` shows
 * any past commit.
 */
export type History = "keep" | "none";

/** What the open snapshots take. */
export interface SnapshotStats {
  /** How many are open. */
  count: number;
  /**
   * Bytes of the file that were replaced or deleted since the oldest of them was taken, and that are kept for them, roughly: up
   * to some MiB more, which are not written yet.
   */
  heldBytes: number;
  /** Bytes of memory for the keys that changed meanwhile, roughly. They count in `indexBytes`. */
  memoryBytes: number;
}

/** Counts and sizes that the host of the wasm takes, not the engine in it. */
export interface HostStats {
  /**
   * Bytes of all memory that the database has: records, the index, the order of keys, and what is kept free
   * for the next turn. It grows and does not shrink; closing frees all of it.
   */
  wasmBytes: number;
  /** How often the file was read since opening, for data that was not in memory. */
  coldReads: number;
  /** Bytes read that way. */
  coldBytes: number;
}

/** What opening found at the end of the file. */
export interface Recovery {
  /** Bytes of unflushed writes that a crash left incomplete. They were dropped. */
  readonly tornBytes: number;
  /** Complete frames behind those bytes. They were dropped as well. */
  readonly droppedFrames: number;
  /** Number of the last frame that is kept. */
  readonly lastSequence: number;
  /** Frames that were read to open the database: all, or those behind the checkpoint. */
  readonly replayedFrames: number;
  /** Whether the index came from a checkpoint, so that not all of the log had to be read. */
  readonly fromCheckpoint: boolean;
  /** Whether the database had been closed properly. */
  readonly wasClean: boolean;
  /** Whether the database is new. */
  readonly created: boolean;
  /** What the option `recovery` could not bring back; `undefined` if nothing was damaged. */
  readonly lost: Loss | undefined;
}

/** The data that a damaged database lost when it was opened with the option `recovery`. */
export interface Loss {
  /** Lost frames that had been flushed. Each held up to 256 KiB of writes. */
  readonly frames: number;
  /** Bytes of the file that were given up, as far as they could be seen. */
  readonly bytes: number;
  /**
   * Keys whose values are known to be lost. They are absent, since an older value is not what they held last.
   * There may have been more keys, of which no trace is left.
   */
  readonly keys: number;
  /**
   * Keys that have their last intact value, but that lost frames may have changed or deleted; `getEntry`
   * marks each as `uncertain`. 0 with `recovery: "prefix"`.
   */
  readonly uncertainKeys: number;
}

/** The result of a verification. */
export interface Verification {
  /** Whether everything that the database relies on is as it was written. */
  readonly ok: boolean;
  /** Bytes that were read and verified. */
  readonly bytes: number;
  /** Segments that were verified, including large values and checkpoints. */
  readonly segments: number;
  /** Intact frames of the log. */
  readonly frames: number;
  /** Records in those frames. */
  readonly records: number;
  /**
   * The damage that was found, in the order of the file. The traces of a crash or a power loss are not damage: a
   * header or a superblock that was not flushed yet and whose other copy is intact.
   */
  readonly problems: readonly Problem[];
}

/** A place in the file that is not as it was written. */
export interface Problem {
  /** The kind of damage. */
  readonly what: ProblemKind;
  /** Offset in the file of the first byte that may be affected. */
  readonly offset: number;
  /** Number of bytes that may be affected. */
  readonly length: number;
}

/**
 * What is damaged, and what follows from it:
 *
 * - `"superblock"`, `"header"`: one of two copies; the other one is used
 * - `"frame"`, `"record"`: writes; those of them that are current cannot be read
 * - `"value"`: a value above half a MiB that has segments of its own. Others of that size are stored in
 *   chunks, which are records; their damage is reported as `"record"`.
 * - `"checkpoint"`: the saved index; opening reads the whole log instead
 * - `"zeros"`: space that nothing uses yet; opening after a crash may report it as torn
 * - `"index"`: the index in memory does not match the segment there
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

/** Returns the number in a slot of the latest report. */
export type Report = (slot: number) => number;

export function statsOf(slot: Report): EngineStats {
  return {
    count: slot(0),
    liveBytes: slot(1),
    fileBytes: slot(2),
    memoryBytes: slot(3),
    segments: slot(4),
    // The engine reports the next numbers.
    frame: slot(5) - 1,
    version: slot(6) - 1,
    poisoned: slot(7) !== 0,
    pendingBytes: slot(8),
    indexBytes: slot(9),
    evictions: slot(10),
    budgetBytes: slot(11),
    indexFileBytes: slot(12),
    history: slot(16) === 0 ? "none" : "keep",
    snapshots: { count: slot(13), heldBytes: slot(14), memoryBytes: slot(15) },
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
