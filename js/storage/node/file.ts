/** Database files in Node, Deno and Bun: one adapter over `node:fs`. */

import {
  DatabaseNotFoundError,
  QuotaExceededError,
  StorageError,
  StorageUnavailableError,
  VarveError,
} from "../../errors/index.js";
import { SHADOW_SUFFIX } from "../file-names.js";
import {
  ioCode,
  type OpenedStorage,
  type OpenMode,
  type ReplacementFile,
  type StorageEstimate,
  type StorageFile,
} from "../storage.js";
import { type Builtins, permitted } from "./builtins.js";
import { acquireLock, type Lock, refuseHeld } from "./lock-file.js";

/** Opens the file at a path, as `Storage.open` does. */
export async function openAt(
  node: Builtins,
  path: string,
  mode?: OpenMode,
): Promise<OpenedStorage> {
  try {
    const found = find(node, path);
    if (mode?.readOnly !== true) {
      // Before the lock, so that the error is the same whether another program has the other name open or not.
      if (found !== undefined) refuseHardLinks(found, node.fs.statSync(found));
      return await openFile(node, found ?? path);
    }
    if (found !== undefined) return await openToRead(node, found);
  } catch (error) {
    throw error instanceof VarveError ? error : unavailable(path, error);
  }
  throw new DatabaseNotFoundError(`There is no database file ${path}, and readOnly creates none.`);
}

/**
 * The real path of the regular file at a path, with links resolved, so that all paths to it share one lock file.
 * `undefined` if there is certainly nothing at the path.
 */
function find({ fs }: Builtins, path: string): string | undefined {
  const stat = { throwIfNoEntry: false } as const;
  const found = fs.lstatSync(path, stat);
  if (found === undefined) return undefined;
  // Refuse a pipe, because opening it would block, and a dangling link, because its target may come back.
  if (fs.statSync(path, stat)?.isFile() !== true) {
    throw new StorageUnavailableError(
      `${path} is not a regular file or a link to one. Move it away, or choose another name.`,
    );
  }
  return found.isSymbolicLink() ? fs.realpathSync.native(path) : path;
}

/**
 * Refuses a file with more than one name for writing: locks go by names, so two programs could have the file open under
 * two of them. Where the file system does not count names, the count is 0 or 1.
 */
function refuseHardLinks(path: string, { nlink }: { nlink: number }): void {
  if (!(nlink > 1)) return;
  throw new StorageUnavailableError(
    `The file ${path} has ${nlink} names (hard links), and programs that open it by different ones would overwrite ` +
      "each other's data. Remove the other names, or copy the file and open the copy. It can be read with readOnly.",
  );
}

async function openFile(node: Builtins, path: string): Promise<OpenedStorage> {
  let lock: Lock | undefined;
  try {
    makeFolder(node, node.path.dirname(path));
    lock = await acquireLock(path);
    const opened = new NodeFile(node, path, lock);
    const { takenOver } = lock;
    return {
      file: opened,
      takenOver,
      onLoss: (listener) => opened.onLoss(listener),
      onExit: (commit) => opened.onExit(commit),
      openReplacement: async () => openReplacement(node, path, opened),
      removeLeftovers: () => opened.removeLeftovers(),
      discard: () => opened.discard(),
      estimate: () => estimateFor(node, path, opened),
    };
  } catch (error) {
    lock?.release();
    throw error;
  }
}

async function openToRead(node: Builtins, path: string): Promise<OpenedStorage> {
  await refuseHeld(path);
  const opened = new NodeFile(node, path, undefined);
  return { file: opened, estimate: () => estimateFor(node, path, opened) };
}

/** Opens the shadow file beside a database. The lock of the database covers it. */
function openReplacement(node: Builtins, path: string, main: NodeFile): ReplacementFile {
  const next = path + SHADOW_SUFFIX;
  const file = new NodeFile(node, next, "beside");
  return {
    file,
    takeOver() {
      file.close();
      main.replaceBy(next);
    },
    remove() {
      file.close();
      node.fs.rmSync(next, { force: true });
    },
  };
}

/** The size of the file, and the free space that is available to users other than the administrator. */
function estimateFor(
  { fs, path: paths }: Builtins,
  path: string,
  opened: NodeFile,
): StorageEstimate {
  const usage = opened.getSize();
  if (!permitted({ name: "sys", kind: "statfs" })) {
    return { usage, quota: undefined, persisted: undefined };
  }
  try {
    const { bavail, bsize } = fs.statfsSync(paths.dirname(path));
    return { usage, quota: usage + bavail * bsize, persisted: undefined };
  } catch {
    return { usage, quota: undefined, persisted: undefined };
  }
}

/** Removes the file at a path, and the link that led to it. Returns whether there was one. */
export async function destroyFile(node: Builtins, path: string): Promise<boolean> {
  let lock: Lock | undefined;
  try {
    const found = find(node, path);
    if (found === undefined) return false;
    lock = await acquireLock(found);
    // Another process may have removed the file before the lock was acquired.
    const wasThere = node.fs.existsSync(found);
    for (const each of [path, found + SHADOW_SUFFIX, found]) node.fs.rmSync(each, { force: true });
    flushFolder(node, found);
    return wasThere;
  } catch (error) {
    throw error instanceof VarveError ? error : unavailable(path, error);
  } finally {
    lock?.release();
  }
}

/** The names of the files of a folder, if there is one. */
export function listFolder(node: Builtins, folder: string): string[] {
  try {
    const files = node.fs.readdirSync(folder, { withFileTypes: true });
    return files.filter((entry) => !entry.isDirectory()).map((entry) => entry.name);
  } catch (cause) {
    if ((cause as { code?: unknown }).code === "ENOENT") return [];
    throw unavailable(folder, cause);
  }
}

/**
 * A growing file is filled with zeros in chunks of this size. A hole would have no space allocated on the disk, and
 * the reserve for deletions on a full disk would be missing when it is needed. The system handles a chunk as one large
 * page and allocates it at once. If each write adds a few pages instead, the writes and all later flushes take longer.
 */
const CHUNK_BYTES = 65_536;
const ZEROS = new Uint8Array(CHUNK_BYTES);
/**
 * A shorter file has one segment, which contains no reserve: a chunk of it is filled only before the first short write
 * into it, so that a small database takes up little space.
 */
const SMALL = 1_048_576;

/** The first bytes of a file, up to the end of the second superblock. */
const HEAD_BYTES = 4352;

class NodeFile implements StorageFile {
  readonly #node: Builtins;
  readonly #path: string;
  /** `undefined` if the file is open for reading only, or if it is the shadow of a locked file. */
  readonly #lock: Lock | undefined;
  readonly #atExit = new Set<(goesOn?: boolean) => void>();
  #fd: number | undefined;
  /** Whether this call created the file. */
  readonly #isNew: boolean;
  /** The time of the last write, for a file that is open for reading only. */
  readonly #written: number | undefined;
  /** The size, read once: no other process may change it while the lock is held, and reading it costs up to 8 µs. */
  #size: number;
  /**
   * The first bytes, as they were read or written last; what lies behind the end is zero. Another program that truncates
   * or overwrites the file is noticed by them and by the size. `undefined` where both are uncertain.
   */
  #head: Uint8Array | undefined;
  /** The chunks of a small file that nothing was written to yet. */
  readonly #blank = new Set<number>();

  constructor(node: Builtins, path: string, lock: Lock | "beside" | undefined) {
    const { fs } = node;
    const isNew = !fs.existsSync(path);
    const fd = openToUse(node, path, lock === undefined);
    const stat = fs.fstatSync(fd);
    try {
      // The file may have got its other name after `find` had looked.
      if (lock !== undefined) refuseHardLinks(path, stat);
    } catch (error) {
      fs.closeSync(fd);
      throw error;
    }
    if (isNew) flushFolder(node, path);
    this.#node = node;
    this.#path = path;
    this.#lock = lock === "beside" ? undefined : lock;
    this.#fd = fd;
    this.#isNew = isNew;
    this.#written = lock === undefined ? stat.mtimeMs : undefined;
    this.#size = stat.size;
    try {
      this.#learn(fd);
      this.#guard(fd);
    } catch (error) {
      fs.closeSync(fd);
      throw error;
    }
    watchExit(node, this);
  }

  #guard(fd: number): void {
    this.#lock?.guard({
      fd,
      size: () => (this.#head === undefined ? undefined : this.#size),
      isHeadSame: () => this.#head === undefined || isSame(this.#head, headOf(this.#node, fd)),
    });
  }

  /** Reads the size and the first bytes, to compare them later. */
  #learn(fd: number): void {
    this.#head = undefined;
    // The last holder may still change both, if it was suspended in the middle of a call.
    if (this.#lock === undefined || this.#lock.takenOver) return;
    try {
      this.#size = this.#node.fs.fstatSync(fd).size;
      this.#head = headOf(this.#node, fd);
    } catch {
      // Not compared then: they only serve to notice mistakes of other programs.
    }
  }

  #openFd(): number {
    if (this.#fd !== undefined) return this.#fd;
    throw Object.assign(new Error(`The file ${this.#path} is closed.`), { code: "EBADF" });
  }

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const fd = this.#openFd();
    const wanted = Math.max(0, Math.min(buffer.length, this.#size - at));
    let done = 0;
    while (done < wanted) {
      const count = this.#node.fs.readSync(fd, buffer, done, wanted - done, at + done);
      if (count === 0) break;
      done += count;
    }
    return done;
  }

  write(buffer: Uint8Array, { at }: { at: number }): number {
    const fd = this.#openFd();
    this.#lock?.assertHeld();
    // Superblocks are written seldom. That of another file must not be overwritten, least of all by `close`.
    if (at < HEAD_BYTES) this.#lock?.assertUnchanged();
    let done = 0;
    try {
      this.#grow(fd, at);
      this.#fill(fd, at, at + buffer.length);
      while (done < buffer.length) {
        const count = this.#node.fs.writeSync(fd, buffer, done, buffer.length - done, at + done);
        if (count === 0) break;
        done += count;
      }
    } catch (error) {
      // What a failed write leaves behind is up to the file system.
      this.#learn(fd);
      throw error;
    } finally {
      // Also after an error, because a partial write may have made the file longer.
      if (done > 0) this.#size = Math.max(this.#size, at + done);
    }
    if (at < HEAD_BYTES) this.#head?.set(buffer.subarray(0, Math.min(done, HEAD_BYTES - at)), at);
    // The write counts only if no other process could take over the file in the meantime.
    this.#lock?.assertHeld();
    return done;
  }

  /** Extends the file to an offset. Unless it is small, its space is allocated on the disk. */
  #grow(fd: number, to: number): void {
    if (this.#size < SMALL) {
      const end = Math.floor(to / CHUNK_BYTES);
      for (let chunk = Math.ceil(this.#size / CHUNK_BYTES); chunk < end; chunk++)
        this.#blank.add(chunk);
      return;
    }
    for (let from = this.#size; from < to; ) {
      const count = this.#node.fs.writeSync(fd, ZEROS, 0, Math.min(CHUNK_BYTES, to - from), from);
      if (count === 0) return;
      from += count;
      this.#size = from;
    }
  }

  /** Fills the blank chunks that a short write is the first in. */
  #fill(fd: number, at: number, end: number): void {
    const blank = this.#blank;
    for (let chunk = Math.floor(at / CHUNK_BYTES); chunk * CHUNK_BYTES < end; chunk++) {
      if (!blank.delete(chunk) || end - at >= CHUNK_BYTES) continue;
      try {
        const start = chunk * CHUNK_BYTES;
        const count = this.#node.fs.writeSync(fd, ZEROS, 0, CHUNK_BYTES, start);
        // Longer only if the write behind the chunk, for which it was left blank, has failed.
        this.#size = Math.max(this.#size, start + count);
      } catch {
        // Ignored: the chunk reads as zeros anyway, and the write itself will report the error.
      }
    }
  }

  truncate(size: number): void {
    const fd = this.#openFd();
    this.#lock?.assertHeld();
    try {
      this.#node.fs.ftruncateSync(fd, size);
    } catch (error) {
      this.#learn(fd);
      throw error;
    }
    this.#size = size;
    this.#head?.fill(0, Math.min(size, HEAD_BYTES));
    this.#blank.clear();
    this.#lock?.assertHeld();
  }

  getSize(): number {
    this.#openFd();
    return this.#size;
  }

  assertSame(): void {
    if (this.#written === undefined) return;
    const { mtimeMs, size } = this.#node.fs.fstatSync(this.#openFd());
    if (mtimeMs === this.#written && size === this.#size) return;
    throw new StorageError(
      `The file ${this.#path} was changed by another program after this one opened it with ` +
        "readOnly, and the data to be read is gone. Close the database and open it again.",
    );
  }

  flush(): void {
    // The size is part of what fdatasync makes durable; access times, which it omits, do not matter.
    try {
      this.#node.fs.fdatasyncSync(this.#openFd());
    } catch (error) {
      // A network file system may drop here what it could not write.
      this.#head = undefined;
      throw error;
    }
    this.assertThere();
  }

  assertThere(): void {
    this.#lock?.assertThere();
  }

  onLoss(listener: (loss: Error) => void): () => void {
    if (this.#lock !== undefined) this.#lock.onLoss = listener;
    return () => {
      if (this.#lock !== undefined) this.#lock.onLoss = undefined;
    };
  }

  /** Replaces this file by another one, which is not open, in one step. */
  replaceBy(path: string): void {
    const { fs } = this.#node;
    this.#lock?.assertHeld();
    const fd = this.#openFd();
    this.#fd = undefined;
    // Some systems refuse to rename an open file.
    fs.closeSync(fd);
    try {
      fs.renameSync(path, this.#path);
      flushFolder(this.#node, this.#path);
    } finally {
      this.#fd = openToUse(this.#node, this.#path, false);
      this.#size = fs.fstatSync(this.#fd).size;
      this.#blank.clear();
      this.#learn(this.#fd);
      this.#guard(this.#fd);
    }
  }

  close(): void {
    this.#end(() => {});
  }

  /**
   * Closes the file. Removes it first if this call created it and it is still empty: a process that has taken over the
   * lock may have written to it.
   */
  discard(): void {
    const { fs } = this.#node;
    const isOurs = this.#isNew && fs.fstatSync(this.#openFd()).size === 0;
    this.#end(() => {
      this.#lock?.assertHeld();
      if (isOurs) fs.rmSync(this.#path, { force: true });
    });
  }

  /** Removes the shadow file. */
  removeLeftovers(): void {
    this.#lock?.assertHeld();
    this.#node.fs.rmSync(this.#path + SHADOW_SUFFIX, { force: true });
  }

  #end(last: () => void): void {
    const fd = this.#fd;
    if (fd === undefined) return;
    this.#fd = undefined;
    this.#atExit.clear();
    unwatchExit(this.#node, this);
    try {
      this.#node.fs.closeSync(fd);
      last();
    } finally {
      this.#lock?.release();
    }
  }

  onExit(commit: (goesOn?: boolean) => void): () => void {
    this.#atExit.add(commit);
    return () => {
      this.#atExit.delete(commit);
    };
  }

  /** Commits what is complete, because the program may be about to end. */
  commit(): void {
    for (const commit of this.#atExit) commit(true);
  }

  /** Commits what is complete and closes the file, because the program ends. */
  exit(): void {
    try {
      for (const commit of this.#atExit) commit();
    } finally {
      this.close();
    }
  }
}

/** The first bytes of an open file, filled up with zeros. */
function headOf({ fs }: Builtins, fd: number): Uint8Array {
  const head = new Uint8Array(HEAD_BYTES);
  let done = 0;
  while (done < HEAD_BYTES) {
    const count = fs.readSync(fd, head, done, HEAD_BYTES - done, done);
    if (count === 0) break;
    done += count;
  }
  return head;
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.every((byte, i) => byte === b[i]);
}

function openToUse({ fs }: Builtins, path: string, readOnly: boolean): number {
  const { O_RDONLY, O_RDWR, O_CREAT } = fs.constants;
  return fs.openSync(path, readOnly ? O_RDONLY : O_RDWR | O_CREAT, 0o666);
}

/** The files open in this thread. One listener serves all; Node warns of more than ten. */
const openFiles = new Set<NodeFile>();

/**
 * Listens for the events that announce the end of the program. Signals are left out, because a listener would keep
 * the program alive, and committed writes are safe without.
 */
function watchExit({ process }: Builtins, opened: NodeFile): void {
  if (openFiles.size === 0) {
    process.on("exit", exitAll);
    listenInDeno("addEventListener");
  }
  openFiles.add(opened);
}

function unwatchExit({ process }: Builtins, opened: NodeFile): void {
  openFiles.delete(opened);
  if (openFiles.size > 0) return;
  process.off("exit", exitAll);
  listenInDeno("removeEventListener");
}

/** Adds or removes listeners in Deno, whose own `exit` and uncaught errors do not reach `process`. */
function listenInDeno(call: "addEventListener" | "removeEventListener"): void {
  if (!("Deno" in globalThis)) return;
  globalThis[call]("unload", exitAll);
  // Whether these end the program depends on its own listeners, and is not known yet.
  globalThis[call]("error", commitAll);
  globalThis[call]("unhandledrejection", commitAll);
}

function commitAll(): void {
  for (const opened of openFiles) opened.commit();
}

function exitAll(): void {
  const errors: unknown[] = [];
  for (const opened of [...openFiles]) {
    try {
      opened.exit();
    } catch (error) {
      errors.push(error);
    }
  }
  // Throw, so that lost writes are not silent: Node prints the error and exits with a failure.
  if (errors.length > 0) throw errors[0];
}

/** Like `mkdirSync` with `recursive`, which in Node 20 never returns where the system refuses. */
function makeFolder(node: Builtins, folder: string): void {
  const { fs, path } = node;
  if (fs.existsSync(folder)) return;
  const parent = path.dirname(folder);
  if (parent !== folder) makeFolder(node, parent);
  try {
    fs.mkdirSync(folder);
  } catch (error) {
    // Another process may have created it just now.
    if (!fs.existsSync(folder)) throw error;
  }
}

/** Flushes the folder of a file, because a new file is durable only if its folder is. */
function flushFolder({ fs, path: paths }: Builtins, path: string): void {
  try {
    const fd = fs.openSync(paths.dirname(path), "r");
    try {
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
  } catch {
    // Windows refuses both calls, and keeps folder entries in its own journal.
  }
}

function unavailable(path: string, cause: unknown): VarveError {
  const reason = cause instanceof Error ? cause.message : String(cause);
  if (ioCode(cause) === -2) {
    return new QuotaExceededError(`The disk is too full to open ${path}. Free some space first.`, {
      cause,
    });
  }
  return new StorageUnavailableError(
    `The database file ${path} cannot be opened: ${reason}. Check that the folder can be ` +
      "created and its files read and written, or choose another with file(directory).",
    { cause },
  );
}
