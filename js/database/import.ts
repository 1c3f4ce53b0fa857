/**
 * `open(name, { from })`: a database's file filled with bytes that come from elsewhere. A chunk of its
 * own, loaded when it is asked for, and when a file is no database as it stands.
 *
 * A file that is being filled has a mark of 16 bytes where its first superblock is to be, and none
 * where its second is to be (FORMAT.md, 10a). All else is there, flushed and verified before the second
 * superblock is written, which makes a database of it, and then the first.
 *
 * What is to take the place of a database is made in a file beside it. Where the storage cannot put that
 * in its place in one step, it is copied: the mark of a change is written over the first superblock,
 * and the old database stands by its second; zeros over that make the file beside it the one that
 * counts. Whoever opens the database then copies anew, until its superblocks say that it is done.
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

/** What a file is filled with. */
export interface Import {
  readonly from: PromiseLike<ImageSource>;
  readonly replace: boolean;
  readonly module: WebAssembly.Module;
  readonly settings: Settings;
  readonly signal: AbortSignal | undefined;
  /** Hears how far it has come. Throws to end it. */
  reportProgress(progress: OpenProgress): void;
}

/** Where the second superblock is, and what both have before the first segment. */
const SECOND = 4_096;
const HEAD = 8_192;
const SUPERBLOCK = 256;

/** So much is copied at once. */
const CHUNK_BYTES = 1_048_576;

/** Little more is needed to read each frame once. */
const VERIFYING = { memory: 4_194_304, ordered: false, strictViews: false, readOnly: true };

/**
 * Fills the file of a database.
 *
 * @throws DatabaseExistsError when there is one, which is not to be replaced
 * @throws CorruptionError, UnsupportedFormatError when the bytes are no database that is whole
 * @throws QuotaExceededError, StorageError; what the source, `tell` and the signal throw: then there is
 * no database, or the one that there was
 */
export async function fill(name: string, opened: OpenedStorage, given: Import): Promise<void> {
  const { file } = opened;
  const mark = () => guarded(name, () => markOf(file));
  if (mark() === CHANGING) await completeReplace(name, opened, false);
  const before = mark();
  if (file.getSize() === 0 || before === IMPORTING) {
    try {
      await importInto(name, file, given);
    } catch (error) {
      quietly(() => file.truncate(0));
      // It stays what it was: half filled, and not a new one for whoever opens it without.
      if (before !== undefined) quietly(() => put(file, before, 0));
      throw error;
    }
    return;
  }
  if (!given.replace) throw exists(name);
  if (opened.beside === undefined) {
    throw badArgument("This storage can fill new databases, but not replace any.");
  }
  const beside = await opened.beside();
  try {
    await importInto(name, beside.file, given);
    if (beside.takeOver === undefined) guarded(name, () => change(file, beside.file));
    else guarded(name, () => beside.takeOver?.());
  } catch (error) {
    if (readsShadow(file)) beside.file.close();
    else await tidy(beside);
    throw error;
  }
  await tidy(beside);
}

/**
 * Looks at a file that is no database as it stands: completes a change that a crash has interrupted. Says
 * whether there was one, so that the file is another now.
 *
 * @throws DatabaseNotFoundError when a crash has left it half filled, and ReadOnlyError when there is
 * something to complete in a file that is only to be read
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
  const beside = await opened.beside?.();
  if (beside === undefined) return false;
  if (beside.file.getSize() === 0) {
    await tidy(beside);
    return false;
  }
  try {
    guarded(name, () => copyOver(file, beside.file));
  } catch (error) {
    beside.file.close();
    throw error;
  }
  await tidy(beside);
  return true;
}

/** Whether what is beside a file may be needed to make a database of it. */
function readsShadow(file: StorageFile): boolean {
  try {
    return markOf(file) === CHANGING;
  } catch {
    return true;
  }
}

function exists(name: string): Error {
  return new DatabaseExistsError(
    `The database "${name}" already exists. Open it without from; or, to replace all that it ` +
      "holds by those bytes, with replace: true.",
  );
}

// ---------------------------------------------------------------- filling

/** Makes an empty file, or one that is half filled, a database that is complete and verified. */
async function importInto(name: string, file: StorageFile, given: Import): Promise<void> {
  guarded(name, () => {
    file.truncate(0);
    put(file, IMPORTING, 0);
    // Before all else, or a power loss could leave the rest without it.
    file.flush();
  });
  const imported = new Imported(file);
  await pour(name, imported, given);
  guarded(name, () => file.flush());
  await verify(name, imported, given);
  guarded(name, () => imported.complete());
}

async function pour(name: string, imported: Imported, given: Import): Promise<void> {
  const { signal } = given;
  let chunks: Chunks | undefined;
  let end = () => {};
  const ended = new Promise<undefined>((resolve) => {
    end = () => resolve(undefined);
  });
  signal?.addEventListener("abort", end);
  try {
    const source = await Promise.race([given.from, ended]);
    // Either way: what ended it is thrown here.
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

/** All that `db.verify()` looks at, and that the database opens. */
async function verify(name: string, imported: Imported, given: Import): Promise<void> {
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

async function verifyImported(name: string, imported: Imported, given: Import): Promise<void> {
  const settings = { ...given.settings, ...VERIFYING };
  const engine = await Engine.open(name, given.module, imported, settings);
  const session = new Session(name, engine, { file: imported }, settings);
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
    session.end();
  }
}

/** A file that is being filled, as it will be read once its superblocks are in place. */
class Imported implements StorageFile {
  size: number;
  readonly #file: StorageFile;
  /** Bytes before the first segment, of which the superblocks are written last. */
  readonly #head: Bytes;

  constructor(file: StorageFile) {
    this.size = 0;
    this.#file = file;
    this.#head = new Uint8Array(HEAD);
  }

  append(bytes: Uint8Array): void {
    const { size } = this;
    const early = Math.max(0, Math.min(bytes.length, HEAD - size));
    this.#head.set(bytes.subarray(0, early), Math.min(size, HEAD));
    if (early < bytes.length) put(this.#file, bytes.subarray(early), size + early);
    this.size += bytes.length;
  }

  /** The second superblock makes it a database. The first one stands where the mark was. */
  complete(): void {
    const length = Math.min(HEAD, this.size);
    put(this.#file, this.#head.subarray(SECOND, length), SECOND);
    this.#file.flush();
    put(this.#file, this.#head.subarray(0, Math.min(SECOND, length)), 0);
    this.#file.flush();
  }

  read(buffer: Uint8Array, { at }: { at: number }): number {
    const early = this.#head.subarray(at, Math.min(at + buffer.length, HEAD, this.size));
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

  /** It is its storage's to close. */
  close(): void {}
}

// ---------------------------------------------------------------- changing

/** Makes the old file what the new one is. Until its second superblock is gone the old one counts. */
function change(old: StorageFile, next: StorageFile): void {
  reserve(old, next.getSize());
  const before = [0, SECOND].map((at) => {
    const superblock = new Uint8Array(SUPERBLOCK);
    old.read(superblock, { at });
    return superblock;
  }) as [Bytes, Bytes];
  try {
    put(old, CHANGING, 0);
    old.flush();
    put(old, new Uint8Array(SUPERBLOCK), SECOND);
    old.flush();
  } catch (error) {
    // It counts again, as far as the file can still be written to.
    quietly(() => {
      put(old, before[1], SECOND);
      old.flush();
      put(old, before[0], 0);
      old.flush();
    });
    throw error;
  }
  copyOver(old, next);
}

/** Room that turns out to be missing later would leave neither. */
function reserve(file: StorageFile, size: number): void {
  const before = file.getSize();
  try {
    for (let at = before; at < size; at += CHUNK_BYTES) {
      put(file, new Uint8Array(Math.min(CHUNK_BYTES, size - at)), at);
    }
  } catch (error) {
    quietly(() => file.truncate(before));
    throw error;
  }
  file.flush();
}

/** The superblocks come last: before, whoever opens it begins anew with this. */
function copyOver(to: StorageFile, from: StorageFile): void {
  const size = from.getSize();
  const buffer = new Uint8Array(CHUNK_BYTES);
  const copy = (at: number, end: number) => {
    const chunk = buffer.subarray(0, Math.min(CHUNK_BYTES, end - at));
    if (from.read(chunk, { at }) !== chunk.length) throw new Error("The source file was cut off.");
    put(to, chunk, at);
    return at + chunk.length;
  };
  to.truncate(size);
  for (let at = HEAD; at < size; ) at = copy(at, size);
  to.flush();
  copy(SECOND, Math.min(HEAD, size));
  to.flush();
  copy(0, SECOND);
  to.flush();
}

// ---------------------------------------------------------------- bytes

/** A count that is short says that there is no more room. */
function put(file: StorageFile, bytes: Uint8Array, at: number): void {
  if (file.write(bytes, { at }) === bytes.length) return;
  throw Object.assign(new Error("The file took only part of a write."), { code: "ENOSPC" });
}

/** What a file throws as an error of this package. */
function guarded<T>(name: string, task: () => T): T {
  try {
    return task();
  } catch (cause) {
    if (cause instanceof VarveError) throw cause;
    const code = [Code.Io, Code.Quota, Code.Lost][-1 - ioCode(cause)] as number;
    throw failureOf(code, { name, cause: { cause } });
  }
}

/** The failure that led here says more. */
function quietly(task: () => void): void {
  try {
    task();
  } catch {
    // What stays is known for what it is.
  }
}

/** What cannot be removed now goes with the next one. */
async function tidy({ remove }: { remove(): void | Promise<void> }): Promise<void> {
  try {
    await remove();
  } catch {
    // It takes room, and counts for nothing.
  }
}
