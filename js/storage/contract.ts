/**
 * What the engine asks of a place to keep a database: one file with six synchronous calls, in the
 * shape of the browser's `FileSystemSyncAccessHandle`.
 */

/**
 * One open file. Offsets and sizes are bytes. Short counts and thrown errors are ordinary results:
 * a `read` shorter than its buffer has met the end of the file; a `write` shorter than its buffer
 * has met a full disk. After `close` every call throws.
 */
export interface StorageFile {
  read(buffer: Uint8Array, options: { at: number }): number;
  /**
   * A write behind the end makes the file longer: there are zeros before it then, and room for what will be
   * written there, as far as the platform can promise that.
   */
  write(buffer: Uint8Array, options: { at: number }): number;
  truncate(size: number): void;
  getSize(): number;
  flush(): void;
  /**
   * Where the file lies in memory: has it lie in the memory of the engine, which calls this first and
   * once.
   */
  moveInto?(memory: WebAssembly.Memory): void;
  /**
   * Of a file that others may write to while it is read: throws when somebody has since it was opened. What
   * looks like damage then is none.
   */
  assertSame?(): void;
  /** Gives the file back, and with it the right to be its only user. Calling it twice is legal. */
  close(): void;
}

/** How much room there is. What the platform does not tell is `undefined`. */
export interface StorageRoom {
  /**
   * Bytes in use of `quota`. In a browser, all that the origin has stored, as the browser estimates
   * it; on a disk, the database's file.
   */
  usage: number | undefined;
  /**
   * Bytes that `usage` can come to. In a browser, the origin's share as the browser estimates it: some
   * tell a round figure instead, and less may be free. On a disk, the database's file and what is
   * free beside it.
   */
  quota: number | undefined;
  /**
   * Whether the browser keeps the data until the user deletes it; `false`: it may delete the data
   * when it is short of room (see `persist`). `undefined` where no browser decides that.
   */
  persisted: boolean | undefined;
}

/** What the browser answered to `persist()`. */
export type Persistence = "granted" | "refused" | "not-applicable";

/** What `Storage.open` hands over. */
export interface OpenedStorage {
  file: StorageFile;
  /**
   * How much room there is, as it was told last. Where the platform tells it only in time, each call
   * asks for it anew.
   */
  room?(): StorageRoom;
  /**
   * Where the platform tells that the program is about to end: runs `commit` then, synchronously,
   * and closes the file after it. When it is not certain yet that the program ends, runs
   * `commit(true)`, and keeps the file open. Gives a function that takes the hook away again.
   */
  onExit?(commit: (goesOn?: boolean) => void): () => void;
  /**
   * Where a `flush` is kept only some time after it: resolves when all that was flushed is.
   */
  sync?(): Promise<void>;
  /**
   * A second file beside this one, made when it is missing, which nobody else has while this is open.
   * Storages without it cannot replace databases.
   */
  beside?(): Promise<FileBeside>;
  /** Removes what a program that died has left beside this file. Nobody needs it once this is a database. */
  tidy?(): void | Promise<void>;
  /** Closes the file, and removes it if `open` has made it: nothing came of it. */
  discard?(): void | Promise<void>;
}

/** A file beside that of a database, in which what is to take its place is made. */
export interface FileBeside {
  readonly file: StorageFile;
  /**
   * Makes this file, which is flushed, that of the database, in one step: `OpenedStorage.file` has its
   * bytes from then on, and this one is closed. Where the platform has no such step, it is copied.
   */
  takeOver?(): void;
  /** Closes and removes it, if it is still there. */
  remove(): void | Promise<void>;
}

/** How a database is to be opened. */
export interface OpenMode {
  /** Only for reading: nothing is created, and the file stays as it is. */
  readonly readOnly?: boolean | undefined;
}

/** A place for databases, made by `memory()`, `file()`, `opfs()` or `durableObject()`. It holds nothing by itself. */
export interface Storage {
  readonly kind: string;
  /** Bytes of memory for those who name none; 64 MiB when left out. */
  readonly memory?: number;
  /**
   * `false` where a program that waits for a timer cannot rest. Nothing is done later then: the end of
   * each turn flushes, and those that write do a slice of housekeeping.
   */
  readonly timers?: false;
  /**
   * What tells one database from another: equal (as a `Map` key) for two names exactly when both
   * are the same database. Throws `TypeError` for a name that is none.
   */
  identity(name: string): unknown;
  /**
   * Opens the file of this database for this program alone, creating it when it is missing; but
   * for reading only, when `mode` says so.
   *
   * @throws DatabaseBusyError when someone else has it open
   * @throws DatabaseNotFoundError when it is missing and only to be read
   * @throws StorageUnavailableError when there is no such storage here
   */
  open(name: string, mode?: OpenMode): Promise<OpenedStorage>;
  /**
   * The bytes of a database as they are now, whoever has it open, or `undefined` when it is missing: for
   * those who cannot open it. They may change, and then cannot be read any more.
   */
  look?(name: string): Promise<File | undefined>;
  /**
   * Removes a database, and says whether there was one. Storages without it cannot remove any.
   *
   * @throws DatabaseBusyError when someone has it open
   * @throws StorageUnavailableError when there is no such storage here
   */
  destroy?(name: string): Promise<boolean>;
  /**
   * Asks that the databases here are kept until the user deletes them. Storages without it hold what
   * nobody else deletes.
   *
   * @throws StorageUnavailableError when there is no such storage here, or it cannot be asked
   */
  persist?(): Promise<Persistence>;
  /**
   * The names of all databases here, in no order. Storages without it cannot tell.
   *
   * @throws StorageUnavailableError when there is no such storage here
   */
  databases?(): Promise<string[]>;
}

/** The engine's negative result codes for I/O: other failure, no room, handle lost. */
export type IoCode = -1 | -2 | -3;

const FULL: ReadonlySet<unknown> = new Set(["ENOSPC", "EDQUOT", "EFBIG", "QuotaExceededError"]);
/** Deno gives some errors of the system no code; then their text is all there is. */
const FULL_TEXT = /^(No space left on device|Disk quota exceeded|File too large) \(os error \d+\)/;
const LOST: ReadonlySet<unknown> = new Set(["EBADF", "InvalidStateError"]);

/**
 * Sorts what a file call threw: -2 when there is no room, -3 when the file handle is gone, -1 for
 * everything else. Knows the errors of `node:fs` by their code and those of browsers by their name.
 */
export function ioCode(error: unknown): IoCode {
  if (typeof error !== "object" || error === null) return -1;
  const { code, name, message } = error as { code?: unknown; name?: unknown; message?: unknown };
  // A DOMException has a number for its code, so the name decides there.
  if (FULL.has(code) || FULL.has(name)) return -2;
  if (code === undefined && FULL_TEXT.test(String(message))) return -2;
  if (LOST.has(code) || LOST.has(name)) return -3;
  return -1;
}
