/** Converts the engine's result codes to errors. Their messages say what went wrong and what to do next. */

import {
  badArgument,
  type CorruptionDetails,
  CorruptionError,
  CursorExpiredError,
  DatabaseClosedError,
  DatabasePoisonedError,
  FileLostError,
  isNoMemory,
  OptionsMismatchError,
  OutOfMemoryError,
  QuotaExceededError,
  ReadOnlyError,
  StaleViewError,
  StorageError,
  UnsupportedFormatError,
  VarveError,
} from "../errors/index.js";
import { TOO_LONG_KEY, TOO_LONG_VALUE } from "../util/bytes.js";

/** The result codes of the wasm module, as defined in `crate/src/error.rs`. */
export const Code = {
  Ok: 0,
  EmptyKey: 1,
  KeyTooLong: 2,
  ValueTooLong: 3,
  Quota: 4,
  Io: 5,
  Lost: 6,
  Poisoned: 7,
  Corruption: 8,
  NotADatabase: 9,
  UnsupportedFormat: 10,
  ViewsHeld: 12,
  NotOpen: 13,
  PointsOnly: 15,
  ReadOnly: 18,
  Full: 19,
  CursorExpired: 20,
  CursorInFuture: 21,
  TooManySnapshots: 22,
  TooManyMarks: 23,
  ExpiringKeyTooLong: 24,
  OtherHistory: 25,
  NoHistory: 26,
} as const;

/** Details for an error message. */
export interface FailureContext {
  /** The database's name. */
  name: string;
  /** The error that the file threw, as the options of an error. */
  cause: { cause?: unknown };
  /** For damage: where it is, and what is intact. */
  details?: CorruptionDetails;
  /** For an unknown format: the version and the features that the file names. */
  format?: { major: number; features: number };
}

type Maker = (context: FailureContext) => Error;

const makers: Readonly<Record<number, Maker>> = {
  [Code.EmptyKey]: () => badArgument("A key must have at least one byte."),
  [Code.KeyTooLong]: () => badArgument(TOO_LONG_KEY),
  [Code.ValueTooLong]: () => badArgument(TOO_LONG_VALUE),
  [Code.Quota]: ({ name, cause }) =>
    new QuotaExceededError(
      `There is no room to write to the database "${name}". The write was rolled back, and what ` +
        "was there is unchanged. Delete what is not needed, large parts in several turns with " +
        "clear({ limit: 10_000 }), and await db.compact(), or free space elsewhere, then write " +
        "again. db.stats() shows usage and quota; on a page, persist() may gain more.",
      cause,
    ),
  [Code.Full]: ({ name }) =>
    new QuotaExceededError(
      `The database "${name}" has reached its limit of 32 GiB. This call did nothing, and what ` +
        "was there is unchanged. Delete what is not needed and await compact(), or use another " +
        "database.",
    ),
  [Code.TooManySnapshots]: ({ name }) =>
    new QuotaExceededError(
      `The database "${name}" has 16,383 open snapshots, the most that can be. Close those that are not needed.`,
    ),
  [Code.TooManyMarks]: () =>
    badArgument(
      "The names of all marks may have about 16 KiB together. Drop marks that are not needed with " +
        "retain(name, undefined); stats().retained has their names.",
    ),
  [Code.ExpiringKeyTooLong]: () =>
    badArgument("A key that expires may have at most 65,522 bytes in UTF-8."),
  // A file in memory fails if there is no memory left.
  [Code.Io]: ({ name, cause }) =>
    isNoMemory(cause.cause)
      ? noMoreMemory(name, cause.cause)
      : new StorageError(`The file of the database "${name}" could not be read or written.`, cause),
  [Code.Lost]: ({ name, cause }) =>
    lossIn(cause) ??
    new StorageError(
      `The file handle of the database "${name}" is gone. Close the database and open it again.`,
      cause,
    ),
  [Code.Poisoned]: ({ name, cause }) =>
    lossIn(cause) ??
    new DatabasePoisonedError(
      `The database "${name}" refuses writes because a flush or rollback failed: what the file ` +
        "holds is uncertain. Reads still work. Close it and open it again.",
      cause,
    ),
  [Code.Corruption]: ({ name, cause, details }) =>
    new CorruptionError(
      `The database "${name}" is damaged ${details === undefined ? "" : placeOf(details)}. ` +
        "Nothing was changed. Copy the file away first. " +
        `${details === undefined ? "" : nextSteps(details)}`,
      details === undefined ? cause : { details, ...cause },
    ),
  [Code.NotADatabase]: ({ name, cause }) =>
    new UnsupportedFormatError(
      `The file of the database "${name}" is not a varve database. It was not changed; choose ` +
        'another name or move the file away. If it was one, recovery: "salvage" finds what is ' +
        "left.",
      { reason: "not-a-database", ...cause },
    ),
  [Code.UnsupportedFormat]: ({ name, cause, format }) =>
    new UnsupportedFormatError(
      `The database "${name}" cannot be opened by this version of varve: the file has format ` +
        `${format?.major} with unknown features 0x${format?.features.toString(16)}; update varve to open it.`,
      { reason: "newer-format", ...cause },
    ),
  [Code.ViewsHeld]: ({ name, cause }) =>
    new OutOfMemoryError(
      `This call needs more memory than the database "${name}" has beside the views of this turn, ` +
        "which would have ended. It did nothing. Let the turn end first (await null), do less in one " +
        "turn or callback, get views again after it, or open the database with more memory.",
      cause,
    ),
  [Code.CursorExpired]: ({ name }) =>
    new CursorExpiredError(
      `Compaction has removed a part of what happened in the database "${name}" since this cursor. Begin again with ` +
        "its whole content, and keep what follows with db.retain().",
    ),
  [Code.CursorInFuture]: ({ name }) =>
    badArgument(
      `This cursor is above lastCommit of the database "${name}", so it is of another database, or of another copy ` +
        "of this one. Begin again with its whole content.",
    ),
  [Code.OtherHistory]: ({ name }) =>
    new OptionsMismatchError(
      `Whether the database "${name}" keeps its history was decided when it was created, and not as the option history ` +
        "says. Open it without that option: db.history has it.",
    ),
  [Code.NoHistory]: ({ name }) =>
    badArgument(
      `The database "${name}" does not keep its history, so only its current content is there. That is decided when a ` +
        'database is created: open(name, { history: "keep" }).',
    ),
  [Code.NotOpen]: ({ name, cause }) =>
    new DatabaseClosedError(`The database "${name}" is closed.`, cause),
  [Code.PointsOnly]: ({ name }) =>
    badArgument(
      `The database "${name}" was opened with ordered: false, so it has no ranges. Open it without that option.`,
    ),
  [Code.ReadOnly]: ({ name, cause }) => new ReadOnlyError(readOnlyText(name), cause),
};

/**
 * The error for a platform without memory for one more instance, or without addresses: each instance reserves
 * several gigabytes of address space.
 */
export function noMemoryToOpen(name: string, cause: unknown): OutOfMemoryError {
  return new OutOfMemoryError(
    `There is no memory to open the database "${name}": too many are open here, or the address space is ` +
      "limited. Close some, keep collections in one database, or raise the limit (ulimit -v).",
    { cause },
  );
}

/** The error for an instance that panicked or was broken off by a stack overflow. */
export function brokenEngine(name: string, panic: string, cause: unknown): DatabasePoisonedError {
  // Platforms report a stack overflow only by the text.
  const isOverflow = /call stack|stack overflow|recursion/.test(panic);
  return new DatabasePoisonedError(
    isOverflow
      ? `Endless or very deep recursion used up the program's stack within a call of the database ` +
          `"${name}", which ended half-way. All further calls are refused. Close the database and open ` +
          "it again: what was committed is there."
      : `The engine of the database "${name}" failed and refuses all further calls: ` +
          `${panic}. Close the database and open it again: what was committed is there. Please ` +
          "report this.",
    { cause },
  );
}

export function noMoreMemory(name: string, cause: unknown): OutOfMemoryError {
  return new OutOfMemoryError(
    `There is no memory for this call of the database "${name}". Release other values and copies, do ` +
      "less in one turn, or raise the limit (ulimit -v).",
    { cause },
  );
}

/** Runs a function that allocates, and converts the platform's error for missing memory. */
export function allocated<T>(name: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw isNoMemory(error) ? noMoreMemory(name, error) : error;
  }
}

/** The storage's own error for a lost file, which is thrown unchanged. */
function lossIn({ cause }: FailureContext["cause"]): FileLostError | undefined {
  return cause instanceof FileLostError ? cause : undefined;
}

/** Describes where the damage is, and what is intact. */
function placeOf(details: CorruptionDetails): string {
  const { position, flushedFrames, intactFrames, intactBytes } = details;
  if (position === 0) return "at its start: neither of its two superblocks can be read";
  if (flushedFrames === 0) return `at byte ${position}, where the requested data is`;
  return (
    `at byte ${position}, in flushed data; ${intactFrames} frames (${intactBytes} bytes) beyond ` +
    "it are intact"
  );
}

function nextSteps({ before }: CorruptionDetails): string {
  const salvage = 'recovery: "salvage" keeps all that is intact and marks what may be out of date.';
  if (before === undefined) return `Opened with ${salvage}`;
  return (
    `Opened with recovery: "prefix", it has the ${before.keys} keys of version ` +
    `${before.version}, as they were before the damage; ${salvage}`
  );
}

/** The message of `ReadOnlyError`. */
export function readOnlyText(name: string): string {
  return (
    `The database "${name}" was opened with readOnly: true, or the program is ending, so it ` +
    "cannot be written to. To write, close it and open it without that option."
  );
}

/** The error for a code of the engine. */
export function failureOf(code: number, context: FailureContext): Error {
  const maker = makers[code];
  if (maker !== undefined) return maker(context);
  return new VarveError(
    "VARVE_INTERNAL",
    `The engine of the database "${context.name}" answered with code ${code}. Please report this.`,
    context.cause,
  );
}

/** The error for a view that was detached while its callback ran. */
export function viewDetachedInCallback(): StaleViewError {
  return new StaleViewError(
    "The view was detached while the callback of updateIf() ran, so its changes could not be kept. " +
      "Nothing was changed.",
  );
}
