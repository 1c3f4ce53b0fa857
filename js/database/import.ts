/**
 * Import, `open(name, { from })`: fills the file of a database with the bytes of a source. This module is a
 * separate chunk, loaded when `from` is used or when a file is not a complete database.
 *
 * A file that is being filled has a marker of 16 bytes in place of its first superblock, and nothing in place of
 * the second (FORMAT.md, 10a). Everything else is written, flushed and verified first. Then the second superblock
 * is written, which makes the file a database, and then the first.
 *
 * To replace a database, the import fills a second file, the shadow. If the storage cannot replace the old file by
 * it in one step, the shadow is copied over the old file: a marker is written over the first superblock while the
 * old database is still valid by its second one. Zeros over the second superblock then make the shadow the valid
 * database. After a crash, the next open repeats the copy until the superblocks are written.
 */

import { Engine } from "../engine/engine.js";
import { Code, failureOf } from "../engine/error-codes.js";
import {
  badArgument,
  CorruptionError,
  DatabaseExistsError,
  DatabaseNotFoundError,
  ReadOnlyError,
  UnsupportedFormatError,
  VarveError,
} from "../errors/index.js";
import type { OpenProgress, Settings } from "../session/options.js";
import { Session } from "../session/session.js";
import { type Chunks, chunksOf, type ImageSource } from "../storage/bytes.js";
import { CHANGING, IMPORTING, markOf } from "../storage/import-marker.js";
import { ioCode, type OpenedStorage, type StorageFile } from "../storage/storage.js";
import { verified } from "./verify.js";

type Bytes = Uint8Array<ArrayBuffer>;

/** The source and the options of an import. */
export interface Import {
  readonly from: PromiseLike<ImageSource>;
  readonly replace: boolean;
  readonly module: WebAssembly.Module;
  readonly settings: Settings;
  readonly signal: AbortSignal | undefined;
  /** Called with the progress so far. Throws to abort the import. */
  reportProgress(progress: OpenProgress): void;
}

/** Offset of the second superblock; size of the area of both superblocks; size of one. */
const SECOND_AT = 4_096;
const SUPERBLOCKS_BYTES = 8_192;
const SUPERBLOCK_BYTES = 256;

/** Size of the chunks in which a file is copied. */
const CHUNK_BYTES = 1_048_576;

/** Settings for verification, which reads each frame once and so needs little memory. */
const VERIFYING = { memory: 4_194_304, ordered: false, strictViews: false, readOnly: true };

/**
 * Fills the file of a database. If it throws, the previous database, or none, is still there.
 *
 * @throws DatabaseExistsError if there is a database and `replace` is not set
 * @throws CorruptionError, UnsupportedFormatError if the bytes are not a complete database
 * @throws QuotaExceededError, StorageError, and the errors of the source, `reportProgress` and the signal
 */
export async function importDatabase(
  name: string,
  opened: OpenedStorage,
  given: Import,
): Promise<void> {
  const { file } = opened;
  const mark = () => guarded(name, () => markOf(file));
  if (mark() === CHANGING) await completeReplace(name, opened, false);
  const before = mark();
  if (file.getSize() === 0 || before === IMPORTING) {
    try {
      await importInto(name, file, given);
    } catch (error) {
      ignoringErrors(() => file.truncate(0));
      // A file that was half filled before stays so: without `from`, open must not take it for a new one.
      if (before !== undefined) ignoringErrors(() => put(file, before, 0));
      throw error;
    }
    return;
  }
  if (!given.replace) throw databaseExists(name);
  if (opened.openReplacement === undefined) {
    throw badArgument("This storage can fill new databases, but not replace any.");
  }
  const shadow = await opened.openReplacement();
  try {
    await importInto(name, shadow.file, given);
    if (shadow.takeOver === undefined) guarded(name, () => replaceInPlace(file, shadow.file));
    else guarded(name, () => shadow.takeOver?.());
  } catch (error) {
    if (readsShadow(file)) shadow.file.close();
    else await removeShadow(shadow);
    throw error;
  }
  await removeShadow(shadow);
}

/**
 * Completes a replacement that a crash has interrupted, in a file that is not a complete database. Returns whether
 * there was one, so that the file has changed.
 *
 * @throws DatabaseNotFoundError if a crash has left the file half filled
 * @throws ReadOnlyError if there is a replacement to complete in a file that is opened read-only
 */
export async function completeReplace(
  name: string,
  opened: OpenedStorage,
  readOnly: boolean,
): Promise<boolean> {
  const { file } = opened;
  const mark = guarded(name, () => markOf(file));
  if (mark === IMPORTING) {
    throw new DatabaseNotFoundError(
      `The database "${name}" was being filled when its program ended and is incomplete, so it ` +
        "counts as missing. Open it with the option from, which fills it again, or destroy() it " +
        "first.",
    );
  }
  if (mark !== CHANGING) return false;
  if (readOnly) {
    throw new ReadOnlyError(
      `The database "${name}" was being replaced when its program ended. Open it once without ` +
        "readOnly to complete that.",
    );
  }
  const shadow = await opened.openReplacement?.();
  if (shadow === undefined) return false;
  if (shadow.file.getSize() === 0) {
    await removeShadow(shadow);
    return false;
  }
  try {
    guarded(name, () => copyFile(file, shadow.file));
  } catch (error) {
    shadow.file.close();
    throw error;
  }
  await removeShadow(shadow);
  return true;
}

/** Whether the shadow may still be needed to complete the replacement of a file. */
function readsShadow(file: StorageFile): boolean {
  try {
    return markOf(file) === CHANGING;
  } catch {
    return true;
  }
}

function databaseExists(name: string): Error {
  return new DatabaseExistsError(
    `The database "${name}" already exists. Open it without from; or, to replace all that it ` +
      "holds by those bytes, with replace: true.",
  );
}

// ---------------------------------------------------------------- filling

/** Makes a complete and verified database of a file that is empty or half filled. */
async function importInto(name: string, file: StorageFile, given: Import): Promise<void> {
  guarded(name, () => {
    file.truncate(0);
    put(file, IMPORTING, 0);
    // Flush the marker first, or a power loss could keep the rest without it.
    file.flush();
  });
  const imported = new ImportedFile(file);
  await importChunks(name, imported, given);
  guarded(name, () => file.flush());
  await verify(name, imported, given);
  guarded(name, () => imported.complete());
}

async function importChunks(name: string, imported: ImportedFile, given: Import): Promise<void> {
  const { signal } = given;
  let chunks: Chunks | undefined;
  let end = () => {};
  const ended = new Promise<undefined>((resolve) => {
    end = () => resolve(undefined);
  });
  signal?.addEventListener("abort", end);
  try {
    const source = await Promise.race([given.from, ended]);
    // If the signal ended the wait, this throws its reason.
    given.reportProgress({ doing: "filling", bytes: 0, total: 0 });
    chunks = chunksOf(source as ImageSource);
    const { expected = 0 } = chunks;
    for (;;) {
      const bytes = imported.size;
      given.reportProgress({ doing: "filling", bytes, total: Math.max(expected, bytes) });
      const chunk = await Promise.race([chunks.next(), ended]);
      if (chunk === undefined) break;
      guarded(name, () => imported.append(chunk));
    }
    given.reportProgress({ doing: "filling", bytes: imported.size, total: imported.size });
  } catch (error) {
    chunks?.cancel(error);
    throw error;
  } finally {
    signal?.removeEventListener("abort", end);
  }
}

/** Verifies that the imported bytes open as a database and pass `db.verify()`. */
async function verify(name: string, imported: ImportedFile, given: Import): Promise<void> {
  try {
    await verifyImported(name, imported, given);
  } catch (error) {
    if (error instanceof CorruptionError) {
      const { details } = error;
      const what =
        `The bytes for the database "${name}" are damaged at byte ${details?.position ?? 0} of ` +
        `${imported.size}, or were cut off in transit. None of them were kept.`;
      throw new CorruptionError(what, { cause: error, ...(details && { details }) });
    }
    if (error instanceof UnsupportedFormatError && error.reason === "not-a-database") {
      const what =
        `The ${imported.size} bytes for the database "${name}" are not a varve database. None of ` +
        "them were kept.";
      throw new UnsupportedFormatError(what, { cause: error, reason: error.reason });
    }
    throw error;
  }
}

async function verifyImported(name: string, imported: ImportedFile, given: Import): Promise<void> {
  const settings = { ...given.settings, ...VERIFYING };
  const engine = await Engine.open(name, given.module, imported, settings);
  const session = Session.start(name, engine, { file: imported }, settings);
  try {
    const total = imported.size;
    const { ok, problems } = await verified(session, (bytes) => {
      given.reportProgress({ doing: "verifying", bytes: Math.min(bytes, total), total });
    });
    if (ok) return;
    const [problem] = problems;
    throw failureOf(Code.Corruption, {
      name,
      cause: { cause: problem },
      details: {
        position: problem?.offset ?? 0,
        expectedFrame: 0,
        flushedFrames: 0,
        intactFrames: 0,
        intactBytes: 0,
        before: undefined,
      },
    });
  } finally {
    session.commits.end();
  }
}

/** A file that is being filled. It reads as it will once its superblocks are written. */
class ImportedFile implements StorageFile {
  size: number;
  readonly #file: StorageFile;
  /** The bytes before the first segment. They hold the superblocks and are written last. */
  readonly #head: Bytes;

  constructor(file: StorageFile) {
    this.size = 0;
    this.#file = file;
    this.#head = new Uint8Array(SUPERBLOCKS_BYTES);
  }

  append(bytes: Uint8Array): void {
    const { size } = this;
    const early = Math.max(0, Math.min(bytes.length, SUPERBLOCKS_BYTES - size));
    this.#head.set(bytes.subarray(0, early), Math.min(size, SUPERBLOCKS_BYTES));
    if (early < bytes.length) put(this.#file, bytes.subarray(early), size + early);
    this.size += bytes.length;
  }

  /** Writes the second superblock, which makes the file a database, and then the first one over the marker. */
  complete(): void {
    const length = Math.min(SUPERBLOCKS_BYTES, this.size);
    put(this.#file, this.#head.subarray(SECOND_AT, length), SECOND_AT);
    this.#file.flush();
    put(this.#file, this.#head.subarray(0, Math.min(SECOND_AT, length)), 0);
    this.#file.flush();
  }

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const early = this.#head.subarray(
      at,
      Math.min(at + buffer.length, SUPERBLOCKS_BYTES, this.size),
    );
    buffer.set(early);
    if (early.length === buffer.length || at + early.length >= this.size) return early.length;
    return early.length + this.#file.read(buffer.subarray(early.length), { at: at + early.length });
  }

  getSize(): number {
    return this.size;
  }

  write(): never {
    throw new Error("It is read-only until it is complete.");
  }

  truncate(): never {
    return this.write();
  }

  flush(): void {}

  /** Nothing to do: the storage closes its file. */
  close(): void {}
}

// ---------------------------------------------------------------- replacing

/** Copies the new file over the old one. The old database is valid until its second superblock is erased. */
function replaceInPlace(old: StorageFile, next: StorageFile): void {
  reserve(old, next.getSize());
  const before = [0, SECOND_AT].map((at) => {
    const superblock = new Uint8Array(SUPERBLOCK_BYTES);
    old.read(superblock, { at });
    return superblock;
  }) as [Bytes, Bytes];
  try {
    put(old, CHANGING, 0);
    old.flush();
    put(old, new Uint8Array(SUPERBLOCK_BYTES), SECOND_AT);
    old.flush();
  } catch (error) {
    // Restore the old superblocks, as far as the file can still be written to.
    ignoringErrors(() => {
      put(old, before[1], SECOND_AT);
      old.flush();
      put(old, before[0], 0);
      old.flush();
    });
    throw error;
  }
  copyFile(old, next);
}

/** Extends the file in advance, because running out of space during the copy would leave neither database. */
function reserve(file: StorageFile, size: number): void {
  const before = file.getSize();
  try {
    for (let at = before; at < size; at += CHUNK_BYTES) {
      put(file, new Uint8Array(Math.min(CHUNK_BYTES, size - at)), at);
    }
  } catch (error) {
    ignoringErrors(() => file.truncate(before));
    throw error;
  }
  file.flush();
}

/** Copies a file, superblocks last: until they are written, the next open repeats the copy. */
function copyFile(to: StorageFile, from: StorageFile): void {
  const size = from.getSize();
  const buffer = new Uint8Array(CHUNK_BYTES);
  const copy = (at: number, end: number) => {
    const chunk = buffer.subarray(0, Math.min(CHUNK_BYTES, end - at));
    if (from.read(chunk, { at }) !== chunk.length) throw new Error("The source file was cut off.");
    put(to, chunk, at);
    return at + chunk.length;
  };
  to.truncate(size);
  for (let at = SUPERBLOCKS_BYTES; at < size; ) at = copy(at, size);
  to.flush();
  copy(SECOND_AT, Math.min(SUPERBLOCKS_BYTES, size));
  to.flush();
  copy(0, SECOND_AT);
  to.flush();
}

// ---------------------------------------------------------------- bytes

/** Writes all of the bytes, or throws: a short write means that there is no space left. */
function put(file: StorageFile, bytes: Uint8Array, at: number): void {
  if (file.write(bytes, { at }) === bytes.length) return;
  throw Object.assign(new Error("The file took only part of a write."), { code: "ENOSPC" });
}

/** Runs a task, and converts the errors of a file to errors of this package. */
function guarded<T>(name: string, task: () => T): T {
  try {
    return task();
  } catch (cause) {
    if (cause instanceof VarveError) throw cause;
    const code = [Code.Io, Code.Quota, Code.Lost][-1 - ioCode(cause)] as number;
    throw failureOf(code, { name, cause: { cause } });
  }
}

/** Runs a cleanup task and ignores its errors, because the error that caused the cleanup matters more. */
function ignoringErrors(task: () => void): void {
  try {
    task();
  } catch {
    // A file that could not be restored still has its marker.
  }
}

/** Removes a shadow. If that fails, the next import removes it. */
async function removeShadow({ remove }: { remove(): void | Promise<void> }): Promise<void> {
  try {
    await remove();
  } catch {
    // The shadow takes up space but has no effect.
  }
}
