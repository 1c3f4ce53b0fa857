/** The files of a database, for Node, Deno and Bun alike: one adapter over `node:fs`. */

import {
  DatabaseNotFoundError,
  QuotaExceededError,
  StorageError,
  StorageUnavailableError,
  VarveError,
} from "../../errors/index.js";
import { SHADOW_SUFFIX } from "../file-names.js";
import {
  type FileBeside,
  ioCode,
  type OpenedStorage,
  type OpenMode,
  type StorageFile,
  type StorageRoom,
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
    if (mode?.readOnly !== true) return await openFile(node, found ?? path);
    if (found !== undefined) return await openToRead(node, found);
  } catch (error) {
    throw error instanceof VarveError ? error : unavailable(path, error);
  }
  throw new DatabaseNotFoundError(`There is no database file ${path}, and readOnly creates none.`);
}

/**
 * The ordinary file at a path, or at the end of the links there: its lock lies beside it, so that whoever opens
 * it meets that one lock, whichever way was taken. `undefined` when there is nothing, which is certain then.
 */
function find({ fs }: Builtins, path: string): string | undefined {
  const stat = { throwIfNoEntry: false } as const;
  const found = fs.lstatSync(path, stat);
  if (found === undefined) return undefined;
  // Opening a pipe would wait for ever. What a link that leads nowhere is to lead to may come back.
  if (fs.statSync(path, stat)?.isFile() !== true) {
    throw new StorageUnavailableError(
      `${path} is not a regular file or a link to one. Move it away, or choose another name.`,
    );
  }
  return found.isSymbolicLink() ? fs.realpathSync.native(path) : path;
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
      onLoss: (hear) => opened.onLoss(hear),
      onExit: (commit) => opened.onExit(commit),
      beside: async () => beside(node, path, opened),
      tidy: () => opened.tidy(),
      discard: () => opened.discard(),
      room: () => roomFor(node, path, opened),
    };
  } catch (error) {
    lock?.release();
    throw error;
  }
}

async function openToRead(node: Builtins, path: string): Promise<OpenedStorage> {
  await refuseHeld(path);
  const opened = new NodeFile(node, path, undefined);
  return { file: opened, room: () => roomFor(node, path, opened) };
}

/** The lock of the database is that of this file too. */
function beside(node: Builtins, path: string, main: NodeFile): FileBeside {
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

/** The file and what is free beside it, for those who are not the system's administrator. */
function roomFor({ fs, path: paths }: Builtins, path: string, opened: NodeFile): StorageRoom {
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

/** Removes the file at a path, and the link there that led to it, if it is there and nobody has it open. */
export async function destroyFile(node: Builtins, path: string): Promise<boolean> {
  let lock: Lock | undefined;
  try {
    const found = find(node, path);
    if (found === undefined) return false;
    lock = await acquireLock(found);
    // Somebody else may have destroyed it until the lock was ours.
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
 * What the file grows by is filled with zeros, by pieces of so many bytes. A hole would have no room on the medium
 * yet, and what is kept for deletions on a full disk would not be there when it is needed. The system takes a piece
 * as one large page and finds its place on the medium at once; where each write brings a few pages of its own, it
 * takes longer, and so does every flush behind it.
 */
const CHUNK_BYTES = 65_536;
const ZEROS = new Uint8Array(CHUNK_BYTES);
/**
 * A file that is shorter is of one segment, in which nothing is kept for later: there a piece is filled before the
 * first short write into it, so that a small database takes little room.
 */
const SMALL = 1_048_576;

class NodeFile implements StorageFile {
  readonly #node: Builtins;
  readonly #path: string;
  /** `undefined` when the file is open for reading only, or when another's lock is its too. */
  readonly #lock: Lock | undefined;
  readonly #atExit = new Set<(goesOn?: boolean) => void>();
  #fd: number | undefined;
  /** Whether it was made here. */
  readonly #isNew: boolean;
  /** When it was written to last, of a file that is open for reading only. */
  readonly #written: number | undefined;
  /** Asked for once: with the lock held nobody else changes it, and asking costs up to 8 µs. */
  #size: number;
  /** The pieces that a small file grew by and that nothing was written to. */
  readonly #blank = new Set<number>();

  constructor(node: Builtins, path: string, lock: Lock | "beside" | undefined) {
    const { fs } = node;
    const isNew = !fs.existsSync(path);
    const fd = openToUse(node, path, lock === undefined);
    const stat = fs.fstatSync(fd);
    if (isNew) flushFolder(node, path);
    this.#node = node;
    this.#path = path;
    this.#lock = lock === "beside" ? undefined : lock;
    this.#fd = fd;
    this.#isNew = isNew;
    this.#written = lock === undefined ? stat.mtimeMs : undefined;
    this.#size = stat.size;
    try {
      this.#lock?.guard(fd);
    } catch (error) {
      fs.closeSync(fd);
      throw error;
    }
    watchExit(node, this);
  }

  #living(): number {
    if (this.#fd !== undefined) return this.#fd;
    throw Object.assign(new Error(`The file ${this.#path} is closed.`), { code: "EBADF" });
  }

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const fd = this.#living();
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
    const fd = this.#living();
    this.#lock?.assertHeld();
    this.#grow(fd, at);
    this.#fill(fd, at, at + buffer.length);
    let done = 0;
    try {
      while (done < buffer.length) {
        const count = this.#node.fs.writeSync(fd, buffer, done, buffer.length - done, at + done);
        if (count === 0) break;
        done += count;
      }
    } finally {
      // Also after an error half way: what was written before it has made the file longer.
      if (done > 0) this.#size = Math.max(this.#size, at + done);
    }
    // It counts only if nobody else could take the file in the meantime.
    this.#lock?.assertHeld();
    return done;
  }

  /** Has the file reach to a place, all of it on the medium if it is not small. */
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

  /** Fills the blank pieces that the write from one place to another is the first in. */
  #fill(fd: number, at: number, end: number): void {
    const blank = this.#blank;
    for (let chunk = Math.floor(at / CHUNK_BYTES); chunk * CHUNK_BYTES < end; chunk++) {
      if (!blank.delete(chunk) || end - at >= CHUNK_BYTES) continue;
      try {
        this.#node.fs.writeSync(fd, ZEROS, 0, CHUNK_BYTES, chunk * CHUNK_BYTES);
      } catch {
        // Nothing is lost: they are zeros without it, and the write itself says what is wrong.
      }
    }
  }

  truncate(size: number): void {
    const fd = this.#living();
    this.#lock?.assertHeld();
    this.#node.fs.ftruncateSync(fd, size);
    this.#size = size;
    this.#blank.clear();
    this.#lock?.assertHeld();
  }

  getSize(): number {
    this.#living();
    return this.#size;
  }

  assertSame(): void {
    if (this.#written === undefined) return;
    const { mtimeMs, size } = this.#node.fs.fstatSync(this.#living());
    if (mtimeMs === this.#written && size === this.#size) return;
    throw new StorageError(
      `The file ${this.#path} was changed by another program after this one opened it with ` +
        "readOnly, and the data to be read is gone. Close the database and open it again.",
    );
  }

  flush(): void {
    // The size is part of what fdatasync makes durable; access times, which it omits, do not matter.
    this.#node.fs.fdatasyncSync(this.#living());
    this.assertThere();
  }

  assertThere(): void {
    this.#lock?.assertThere();
  }

  onLoss(hear: (loss: Error) => void): () => void {
    if (this.#lock !== undefined) this.#lock.onLoss = hear;
    return () => {
      if (this.#lock !== undefined) this.#lock.onLoss = undefined;
    };
  }

  /** Has another file, which nobody has open, be the one at this path, in one step. */
  replaceBy(path: string): void {
    const { fs } = this.#node;
    this.#lock?.assertHeld();
    const fd = this.#living();
    this.#fd = undefined;
    // Some systems refuse to rename what is open.
    fs.closeSync(fd);
    try {
      fs.renameSync(path, this.#path);
      flushFolder(this.#node, this.#path);
    } finally {
      this.#fd = openToUse(this.#node, this.#path, false);
      this.#lock?.guard(this.#fd);
      this.#size = fs.fstatSync(this.#fd).size;
      this.#blank.clear();
    }
  }

  close(): void {
    this.#end(() => {});
  }

  /**
   * Closes it, and removes it before others may open it, if it was made here and is empty still: somebody who has
   * taken over the lock may have written to it.
   */
  discard(): void {
    const { fs } = this.#node;
    const isOurs = this.#isNew && fs.fstatSync(this.#living()).size === 0;
    this.#end(() => {
      this.#lock?.assertHeld();
      if (isOurs) fs.rmSync(this.#path, { force: true });
    });
  }

  /** Removes what lies beside it. */
  tidy(): void {
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

  /** The program may be about to end, or not: what is complete is committed. */
  commit(): void {
    for (const commit of this.#atExit) commit(true);
  }

  /** The program ends: last chance to commit, then the lock is given back. */
  exit(): void {
    try {
      for (const commit of this.#atExit) commit();
    } finally {
      this.close();
    }
  }
}

function openToUse({ fs }: Builtins, path: string, readOnly: boolean): number {
  const { O_RDONLY, O_RDWR, O_CREAT } = fs.constants;
  return fs.openSync(path, readOnly ? O_RDONLY : O_RDWR | O_CREAT, 0o666);
}

/** The files open in this thread. One listener serves all; Node warns of more than ten. */
const openFiles = new Set<NodeFile>();

/**
 * The ends of a program that it is told of. Signals are none of them: listening to one would keep
 * the program alive that it is to end, and what was handed on is safe without.
 */
function watchExit({ process }: Builtins, opened: NodeFile): void {
  if (openFiles.size === 0) {
    process.on("exit", exitAll);
    hearDeno("addEventListener");
  }
  openFiles.add(opened);
}

function unwatchExit({ process }: Builtins, opened: NodeFile): void {
  openFiles.delete(opened);
  if (openFiles.size > 0) return;
  process.off("exit", exitAll);
  hearDeno("removeEventListener");
}

/** Deno ends by events: its own `exit` and uncaught errors do not reach `process`. */
function hearDeno(call: "addEventListener" | "removeEventListener"): void {
  if (!("Deno" in globalThis)) return;
  globalThis[call]("unload", exitAll);
  // Whether these end the program is for its own listeners to say, and not known yet.
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
  // What could not be committed is lost, and must not be so in silence: Node prints it and fails.
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
    // Somebody else may have made it just now.
    if (!fs.existsSync(folder)) throw error;
  }
}

/** A new file is durable only when its folder is. Where folders cannot be opened, it needs nothing. */
function flushFolder({ fs, path: paths }: Builtins, path: string): void {
  try {
    const fd = fs.openSync(paths.dirname(path), "r");
    try {
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
  } catch {
    // Windows refuses both calls, and keeps folder entries in a journal of its own.
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
