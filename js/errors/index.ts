/**
 * The errors of varve. There is one class for each case that a program would handle differently, each
 * with a `code` that never changes, so that `error.code` can be tested across realms, workers and
 * copies of the package, where `instanceof` cannot. Each message says what to do next; `cause` keeps
 * what the platform threw.
 *
 * A bad argument is no `VarveError` but a plain `TypeError` whose `code` is `VARVE_BAD_ARGUMENT`.
 */

import { NamedError, named, type VarveErrorOptions } from "./base.js";

export {
  type BadArgumentError,
  badArgument,
  badCall,
  describe,
  errorClasses,
  MalformedValueError,
  refuseMore,
  StaleViewError,
  VarveError,
  type VarveErrorOptions,
} from "./base.js";

/** Base class of errors with details: the options except `cause` become properties. */
class ErrorWithDetails<More extends object> extends NamedError {
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

/** The database is open elsewhere, in another process, worker or tab. It was not opened here. */
export class DatabaseBusyError extends ErrorWithDetails<{ pid?: number }> {
  /** The id of the process that has it open, if the platform reports it. */
  declare readonly pid: number | undefined;

  static {
    named(DatabaseBusyError, "DatabaseBusyError");
  }
}

/** There is no storage of the requested kind here. The message says what to do instead. */
export class StorageUnavailableError extends NamedError {
  static {
    named(StorageUnavailableError, "StorageUnavailableError");
  }
}

/**
 * The disk, or this origin's share of it, is full, or the database has reached its limit of 32 GiB, or that of
 * 65,534 collections and indexes. The write
 * was rolled back as a whole, and everything that was there before is untouched. Reads still work. So do
 * deletions, as long as the file has space to record them. A `clear` of everything records one thing; one
 * transaction or `clear` of a range records each key, all at once, so delete large parts in several steps. Delete what is not needed and call
 * `await db.compact()`, or free disk space elsewhere.
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
  /** The number of the last frame that is known to have been flushed. */
  flushedFrames: number;
  /** How many intact frames lie beyond the damage. */
  intactFrames: number;
  /** How many bytes those intact frames hold. */
  intactBytes: number;
  /**
   * What `recovery: "prefix"` would give: the number of keys, and the version that they are as of.
   * `undefined` if the commits before the damage cannot be restored as they were, because compaction has
   * moved part of their data beyond the damage, or because no superblock is left.
   */
  before: { keys: number; version: number } | undefined;
}

/**
 * Flushed data is damaged. Opening writes nothing, so nothing gets worse: copy the file away before anything
 * else. Then `open` with the option `recovery` restores what it can.
 */
export class CorruptionError extends ErrorWithDetails<{ details?: CorruptionDetails }> {
  /** Where the damage is and what is intact; `undefined` if there is no position. */
  declare readonly details: CorruptionDetails | undefined;

  static {
    named(CorruptionError, "CorruptionError");
  }
}

/**
 * An earlier failure of the platform left the contents of the file uncertain, so further writes are refused.
 * After a failed flush or rollback, reads still work; after a failure inside the engine, nothing does. Close
 * the database and open it again: all that was committed is there.
 */
export class DatabasePoisonedError extends NamedError {
  static {
    named(DatabasePoisonedError, "DatabasePoisonedError");
  }
}

/** This handle or client of the database was closed. Open or connect again to go on. */
export class DatabaseClosedError extends NamedError {
  static {
    named(DatabaseClosedError, "DatabaseClosedError");
  }
}

/** This snapshot was closed. Take another one to go on. */
export class SnapshotClosedError extends NamedError {
  static {
    named(SnapshotClosedError, "SnapshotClosedError");
  }
}

/** There is no database of this name, and the call was not meant to create one. */
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
 * The same database is already open in this realm with other options. Open it with the same options, or close
 * it first.
 */
export class OptionsMismatchError extends NamedError {
  static {
    named(OptionsMismatchError, "OptionsMismatchError");
  }
}

/**
 * The call is not possible at this point: inside a callback or a transaction, while the collection is being
 * migrated, or in a client's transaction that is over.
 */
export class ReentrancyError extends NamedError {
  static {
    named(ReentrancyError, "ReentrancyError");
  }
}

/** Another write has changed what was read. Read it again and repeat. */
export class ConflictError extends NamedError {
  static {
    named(ConflictError, "ConflictError");
  }
}

/**
 * Compaction has removed a part of what happened since this cursor. Begin again with the whole content of the
 * database; `retain` keeps what follows a cursor.
 */
export class CursorExpiredError extends NamedError {
  static {
    named(CursorExpiredError, "CursorExpiredError");
  }
}

/** The file is not a varve database, or has a format version that this build does not know. */
export class UnsupportedFormatError extends ErrorWithDetails<{
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

/** The stored schema of a collection is not the one that the program declares. */
export class SchemaMismatchError extends NamedError {
  static {
    named(SchemaMismatchError, "SchemaMismatchError");
  }
}

/**
 * Another record has the same values in the fields of a unique index. Nothing was written. If the write was
 * part of a transaction or batch, nothing of that is written either, unless the transaction catches the error
 * and goes on.
 */
export class UniqueViolationError extends ErrorWithDetails<{ collection: string; index: string }> {
  /** The name of the collection. */
  declare readonly collection: string;
  /** The name of the index. */
  declare readonly index: string;

  static {
    named(UniqueViolationError, "UniqueViolationError");
  }
}

/** No owner answered in time. `applied` says whether the write may have been applied all the same. */
export class OwnerUnavailableError extends ErrorWithDetails<{ applied: boolean | "unknown" }> {
  /**
   * `false`: certainly not applied. `"unknown"`: the owner vanished, or did not respond, before it answered.
   * `true`: applied exactly once, but the answer was lost.
   */
  declare readonly applied: boolean | "unknown";

  static {
    named(OwnerUnavailableError, "OwnerUnavailableError");
  }
}

/** Another tab runs a newer version of the application and owns the database now. Reload the page. */
export class VersionChangedError extends NamedError {
  static {
    named(VersionChangedError, "VersionChangedError");
  }
}

/**
 * The engine needs more memory than the platform gives, or more for views than the database was opened with.
 * The call changed nothing.
 */
export class OutOfMemoryError extends NamedError {
  static {
    named(OutOfMemoryError, "OutOfMemoryError");
  }
}

/** Whether an error means that the platform had no memory or no addresses. Only its message says so. */
export function isNoMemory(error: unknown): boolean {
  return error instanceof RangeError && /memory|alloc/i.test(error.message);
}

/**
 * The open file is no longer the one that the next `open` finds: it was removed or moved, another file such as a backup
 * was put in its place, a browser cleared the data of the site, or another process took over the lock because this one
 * was suspended for longer than eight seconds. With `file()` the next flush detects it, or a check every two seconds. With
 * `opfs()` a check after each flush detects it, within about a second of the next write; the promises `flushed` and
 * `close` wait for that check, and `flush()` does not. Writes since the loss are lost, and all further ones are refused
 * with this error. Reads still work, in Firefox only those of values in memory: save what is needed, say with `export`,
 * then close the database and open it again.
 */
export class FileLostError extends ErrorWithDetails<{
  reason: "removed" | "replaced" | "taken-over";
}> {
  /** What happened to the file, or to the lock beside it. */
  declare readonly reason: "removed" | "replaced" | "taken-over";

  static {
    named(FileLostError, "FileLostError");
  }
}

/** The platform failed to read or write, for a reason that has no error class of its own. See `cause`. */
export class StorageError extends NamedError {
  static {
    named(StorageError, "StorageError");
  }
}
