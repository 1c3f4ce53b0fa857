/**
 * The interface of storages: a database is one file with six synchronous calls, like the browser's
 * `FileSystemSyncAccessHandle`.
 */

/**
 * One open file. Offsets and sizes are in bytes. Short counts and thrown errors are ordinary results: a
 * `read` that returns less than its buffer has met the end of the file, a `write` that returns less has met a
 * full disk. After `close` every call throws.
 */
export interface StorageFile {
  /** Reads bytes at an offset into the buffer. Returns how many were read. */
  read(buffer: Uint8Array, options: { at: number }): number;
  /**
   * Writes the buffer at an offset. Returns how many bytes were written. A write beyond the end makes the
   * file longer: the gap reads as zeros, and has space for what will be written there, as far as the platform
   * can promise that.
   */
  write(buffer: Uint8Array, options: { at: number }): number;
  /** Makes the file this long. */
  truncate(size: number): void;
  /** The length of the file. */
  getSize(): number;
  /** Makes all that was written durable. */
  flush(): void;
  /**
   * Only for a file that lies in memory: moves it into the memory of the engine. The engine calls this first,
   * and once.
   */
  moveInto?(memory: WebAssembly.Memory): void;
  /**
   * Only for a file that other programs may write to while it is read: throws if it was written to since it was opened.
   * Apparent damage is not damage then.
   */
  assertSame?(): void;
  /**
   * Only for a file that can be lost while it is open: throws `FileLostError` if it is no longer the file of the
   * database's name, or if another program has taken it over. The next open does not find what was flushed to it.
   */
  assertThere?(): void;
  /**
   * Where that takes a moment to learn: rejects with that error if the file was written to. It is to be asked before
   * `close`.
   */
  isThere?(): Promise<void>;
  /** Closes the file and gives up the right to be its only user. It may be called twice. */
  close(): void;
}

/** How much space there is. What the platform does not report is `undefined`. */
export interface StorageEstimate {
  /**
   * Bytes used of `quota`. In a browser, the browser's estimate of all that the origin has stored; on a disk,
   * the size of the database's file.
   */
  usage: number | undefined;
  /**
   * The limit of `usage`, in bytes. In a browser, the browser's estimate of the origin's share; some report a
   * round figure instead, and less may be free. On a disk, the size of the database's file plus the free
   * space.
   */
  quota: number | undefined;
  /**
   * `true` if the browser keeps the data until the user deletes it, `false` if it may delete the data when
   * space runs short (see `persist`), `undefined` where no browser decides that.
   */
  persisted: boolean | undefined;
}

/** The browser's answer to `persist()`. */
export type Persistence = "granted" | "refused" | "not-applicable";

/** The result of `Storage.open`. */
export interface OpenedStorage {
  /** The file of the database. */
  file: StorageFile;
  /**
   * How much space there is, as last reported. Where the platform reports it asynchronously, each call asks
   * for it again.
   */
  estimate?(): StorageEstimate;
  /**
   * For platforms that announce the end of the program: calls `commit` then, synchronously, and closes the
   * file after it. If it is not certain yet that the program ends, calls `commit(true)` and keeps the file
   * open. Returns a function that removes the hook.
   */
  onExit?(commit: (goesOn?: boolean) => void): () => void;
  /**
   * Whether the last program that had the file open may still live, and finish one write that it was in the middle
   * of: nothing is appended where that would go.
   */
  readonly takenOver?: boolean;
  /**
   * For files that can be lost while they are open: calls `listener`, once, when that is noticed outside of any call.
   * Returns a function that removes the listener.
   */
  onLoss?(listener: (loss: Error) => void): () => void;
  /**
   * For storages that keep a `flush` only some time after it, or learn only then whether it was kept: resolves when all
   * that was flushed is kept.
   */
  sync?(): Promise<void>;
  /**
   * A second file beside this one, created if it is missing. No other program has it open while this one is open.
   * Storages without it cannot replace databases.
   */
  openReplacement?(): Promise<ReplacementFile>;
  /**
   * Removes files that a program that crashed left beside this one. Called when this file is a complete database, so that
   * they are not needed any more.
   */
  removeLeftovers?(): void | Promise<void>;
  /** Closes the file, and removes it if `open` created it. Called when opening has failed. */
  discard?(): void | Promise<void>;
}

/** A file beside that of a database, in which its replacement is made. */
export interface ReplacementFile {
  /** The second file. */
  readonly file: StorageFile;
  /**
   * Makes this file, which has been flushed, the database's file in one step. From then on
   * `OpenedStorage.file` has its bytes, and this one is closed. Storages without it have no such step; the
   * bytes are copied.
   */
  takeOver?(): void;
  /** Closes and removes the file, if it is still there. */
  remove(): void | Promise<void>;
}

/** How to open a database. */
export interface OpenMode {
  /** For reading only: nothing is created, and the file stays as it is. */
  readonly readOnly?: boolean | undefined;
}

/**
 * A place for databases, made by `memory()`, `file()`, `opfs()` or `durableObject()`. By itself it keeps
 * nothing open.
 */
export interface Storage {
  /** The kind of storage, such as `"opfs"` or `"file"`. */
  readonly kind: string;
  /** The default of the option `memory`, in bytes; 64 MiB if absent. */
  readonly memory?: number;
  /**
   * `false` where a program cannot rest while a timer is pending. Nothing is done later then: the end of each
   * turn flushes, and writes do a slice of maintenance.
   */
  readonly timers?: false;
  /**
   * What distinguishes one database from another: equal (as a `Map` key) for two names exactly if both mean
   * the same database.
   *
   * @throws TypeError for a bad name
   */
  identity(name: string): unknown;
  /**
   * Begins to look up what the next `open` of this name needs, without opening or changing anything. It may be called
   * while another program has the database open. Resolves when the platform works on the last step.
   */
  lookUp?(name: string): Promise<void>;
  /**
   * Opens the file of this database for this program alone and creates it if it is missing, or opens it for
   * reading only if `mode` says so.
   *
   * @throws DatabaseBusyError if another program has it open
   * @throws DatabaseNotFoundError if it is missing and to be opened for reading only
   * @throws StorageUnavailableError if there is no such storage here
   */
  open(name: string, mode?: OpenMode): Promise<OpenedStorage>;
  /**
   * The bytes of a database as they are now, even if it is open elsewhere, or `undefined` if it is missing. For realms
   * that cannot open it. The bytes may change, and then cannot be read any more.
   */
  snapshot?(name: string): Promise<File | undefined>;
  /**
   * Removes a database. Resolves to whether there was one. Storages without it cannot remove any.
   *
   * @throws DatabaseBusyError if a program has it open
   * @throws StorageUnavailableError if there is no such storage here
   */
  destroy?(name: string): Promise<boolean>;
  /**
   * Asks that the databases here are kept until the user deletes them. Storages without it hold data that
   * no other program deletes.
   *
   * @throws StorageUnavailableError if there is no such storage here, or it cannot be asked
   */
  persist?(): Promise<Persistence>;
  /**
   * The names of all databases here, in no particular order. Storages without it cannot list them.
   *
   * @throws StorageUnavailableError if there is no such storage here
   */
  databases?(): Promise<string[]>;
}

/** The engine's negative result codes for I/O: other failure, no space, handle lost. */
export type IoCode = -1 | -2 | -3;

const FULL: ReadonlySet<unknown> = new Set(["ENOSPC", "EDQUOT", "EFBIG", "QuotaExceededError"]);
/** Some system errors have no code in Deno, so they are recognized by their text. */
const FULL_TEXT = /^(No space left on device|Disk quota exceeded|File too large) \(os error \d+\)/;
const LOST: ReadonlySet<unknown> = new Set(["EBADF", "InvalidStateError", "VARVE_FILE_LOST"]);

/**
 * Classifies the error of a file call: -2 if there is no space, -3 if the file handle is lost, -1 for everything
 * else. Errors of `node:fs` are recognized by their code, those of browsers by their name.
 */
export function ioCode(error: unknown): IoCode {
  if (typeof error !== "object" || error === null) return -1;
  const { code, name, message } = error as { code?: unknown; name?: unknown; message?: unknown };
  // The code of a DOMException is a number, so its name decides.
  if (FULL.has(code) || FULL.has(name)) return -2;
  if (code === undefined && FULL_TEXT.test(String(message))) return -2;
  if (LOST.has(code) || LOST.has(name)) return -3;
  return -1;
}
