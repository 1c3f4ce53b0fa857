/**
 * The errors of varve. There is one class for each thing that a program would do differently, each
 * with a `code` that never changes, so that `error.code` can be tested across realms, workers and
 * copies of the package, where `instanceof` cannot. Each message says what to do next; `cause` keeps
 * what the platform threw.
 *
 * A bad argument is no `VarveError` but a plain `TypeError` whose `code` is `VARVE_BAD_ARGUMENT`.
 */

import { NamedError, named, type VarveErrorOptions } from "./errors-base.js";

export {
  type BadArgumentError,
  badArgument,
  badCall,
  describe,
  errorClasses,
  MalformedValueError,
  StaleViewError,
  VarveError,
  type VarveErrorOptions,
} from "./errors-base.js";

/** An error with more to tell than a message: whatever its options name beside the cause. */
class TellingError<More extends object> extends NamedError {
  constructor(
    message: string,
    ...[options]: Partial<More> extends More
      ? [(VarveErrorOptions & More)?]
      : [VarveErrorOptions & More]
  ) {
    super(message, options);
    Object.assign(this, options);
  }
}

/** The database is open elsewhere: in another process, worker or tab. It was not opened here. */
export class DatabaseBusyError extends TellingError<{ pid?: number }> {
  /** The process that holds it, where the platform tells. */
  declare readonly pid: number | undefined;

  static {
    named(DatabaseBusyError, "DatabaseBusyError");
  }
}

/** There is no storage of the wanted kind here. The message says what to do instead. */
export class StorageUnavailableError extends NamedError {
  static {
    named(StorageUnavailableError, "StorageUnavailableError");
  }
}

/**
 * The disk, or this origin's share of it, is full. What was to be written was rolled back as a
 * whole; what was there before is untouched; reads go on, and so do deletions as long as the file has
 * room to note them: what one transaction or `clear` deletes is noted at once, so that much goes in
 * several. Delete what is not needed and `await db.compact()`, or make room beside it.
 */
export class QuotaExceededError extends NamedError {
  static {
    named(QuotaExceededError, "QuotaExceededError");
  }
}

/** What is known about damaged data. Positions and lengths are bytes in the file. */
export interface CorruptionDetails {
  /** Where the first damaged frame begins. */
  position: number;
  /** The number of the frame that was expected there. */
  expectedFrame: number;
  /** The last frame number that a flush is known to have made durable. */
  flushedFrames: number;
  /** How many intact frames lie beyond the damage. */
  intactFrames: number;
  /** How many bytes those intact frames hold. */
  intactBytes: number;
  /**
   * What `recovery: "prefix"` would give: so many keys, as of this version. `undefined` where the
   * commits before the damage cannot be had as they were, because compaction has moved part of what
   * they left beyond it, or because no superblock is left.
   */
  before: { keys: number; version: number } | undefined;
}

/**
 * Data that had been flushed is damaged. Opening writes nothing, so that nothing gets worse: copy
 * the file away before anything else. Then `open` with the option `recovery` brings back what it can.
 */
export class CorruptionError extends TellingError<{ details?: CorruptionDetails }> {
  /** Where the damage is and what is intact, or `undefined` where no position applies. */
  declare readonly details: CorruptionDetails | undefined;

  static {
    named(CorruptionError, "CorruptionError");
  }
}

/**
 * An earlier failure of the platform left it uncertain what is in the file, so that further writes
 * are refused. After a failed flush or rollback reads still work; after a failure inside the engine
 * nothing does. Close the database and open it again: what was committed is there.
 */
export class DatabasePoisonedError extends NamedError {
  static {
    named(DatabasePoisonedError, "DatabasePoisonedError");
  }
}

/** The database was closed by its last handle. Open it again to go on. */
export class DatabaseClosedError extends NamedError {
  static {
    named(DatabaseClosedError, "DatabaseClosedError");
  }
}

/** There is no database of this name, and it was not to be created. */
export class DatabaseNotFoundError extends NamedError {
  static {
    named(DatabaseNotFoundError, "DatabaseNotFoundError");
  }
}

/** The database was opened for reading only. Open it without `readOnly` to write. */
export class ReadOnlyError extends NamedError {
  static {
    named(ReadOnlyError, "ReadOnlyError");
  }
}

/**
 * The same database is already open in this realm with other options. Open it with equal options,
 * or close it first.
 */
export class OptionsMismatchError extends NamedError {
  static {
    named(OptionsMismatchError, "OptionsMismatchError");
  }
}

/** The engine was called from inside a callback that it was running, in a way that cannot work. */
export class ReentrancyError extends NamedError {
  static {
    named(ReentrancyError, "ReentrancyError");
  }
}

/** What was read has been changed by someone else since. Read again and repeat. */
export class ConflictError extends NamedError {
  static {
    named(ConflictError, "ConflictError");
  }
}

/** The file is no varve database, or one of a version that this build does not know. */
export class UnsupportedFormatError extends TellingError<{
  reason: "not-a-database" | "newer-format";
}> {
  /** Whether the file is something else altogether, or a varve file of a newer format. */
  declare readonly reason: "not-a-database" | "newer-format";

  static {
    named(UnsupportedFormatError, "UnsupportedFormatError");
  }
}

/** A database of this name exists and was not to be replaced. */
export class DatabaseExistsError extends NamedError {
  static {
    named(DatabaseExistsError, "DatabaseExistsError");
  }
}

/** A collection's stored schema is not the one that the program declares. */
export class SchemaMismatchError extends NamedError {
  static {
    named(SchemaMismatchError, "SchemaMismatchError");
  }
}

/**
 * Another record has the same values in the fields of a unique index. Nothing was written, nor of the
 * transaction or the batch that it was to be part of, unless that goes on.
 */
export class UniqueViolationError extends TellingError<{ collection: string; index: string }> {
  /** The collection's name. */
  declare readonly collection: string;
  /** The index's name. */
  declare readonly index: string;

  static {
    named(UniqueViolationError, "UniqueViolationError");
  }
}

/** No owner answered in time. `applied` says whether the write may have been done all the same. */
export class OwnerUnavailableError extends TellingError<{ applied: boolean | "unknown" }> {
  /**
   * `false`: certainly not applied. `"unknown"`: the owner vanished, or was silent, before it answered.
   * `true`: applied exactly once, but its answer is lost.
   */
  declare readonly applied: boolean | "unknown";

  static {
    named(OwnerUnavailableError, "OwnerUnavailableError");
  }
}

/** Another tab runs a newer version of the application and owns the database now. Reload. */
export class VersionChangedError extends NamedError {
  static {
    named(VersionChangedError, "VersionChangedError");
  }
}

/** The engine needs more memory than the platform gives. Nothing was changed by the call. */
export class OutOfMemoryError extends NamedError {
  static {
    named(OutOfMemoryError, "OutOfMemoryError");
  }
}

/** The platform failed to read or write, for a reason that has no class of its own. See `cause`. */
export class StorageError extends NamedError {
  static {
    named(StorageError, "StorageError");
  }
}
