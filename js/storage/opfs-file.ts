/**
 * An open file of the origin private file system that notices its own removal. When the user clears the site's data, a
 * browser removes files that are open: Chromium keeps accepting writes to them, Firefox closes them. Looking a file up
 * is asynchronous, so a flush returns before its check has ended.
 */

import { FileLostError } from "../errors/index.js";
import type { StorageFile } from "./storage.js";

type Reason = "removed" | "replaced";

/** The bytes of a file that hold the identity of its database, which never changes (FORMAT.md, 3). */
const IDENTITY_START = 40;
const IDENTITY_END = 56;

export class OpfsFile implements StorageFile {
  /** Called if a check finds that the file was lost. Calls that find it out themselves throw the error. */
  onLoss: ((loss: FileLostError) => void) | undefined;
  readonly #name: string;
  readonly #entry: FileSystemFileHandle;
  readonly #handle: StorageFile;
  #loss: FileLostError | undefined;
  #isWritten = false;
  #isClosed = false;
  #running: Promise<void> | undefined;
  /** The check after the running one, which may have missed a removal since it began. */
  #next: Promise<void> | undefined;
  #cleanup: Promise<unknown> | undefined;

  constructor(name: string, entry: FileSystemFileHandle, handle: StorageFile) {
    this.#name = name;
    this.#entry = entry;
    this.#handle = handle;
  }

  read(buffer: Uint8Array, options: { at: number }): number {
    return this.#call(() => this.#handle.read(buffer, options));
  }

  write(buffer: Uint8Array, options: { at: number }): number {
    return this.#change(() => this.#handle.write(buffer, options));
  }

  truncate(size: number): void {
    this.#change(() => this.#handle.truncate(size));
  }

  getSize(): number {
    return this.#call(() => this.#handle.getSize());
  }

  flush(): void {
    this.#change(() => this.#handle.flush());
    this.#check();
  }

  assertThere(): void {
    this.#refuseLost();
    this.#check();
  }

  /** Makes the program wait for this task before it closes the file. Its errors are ignored. */
  closeAfter(task: Promise<unknown>): void {
    this.#cleanup = task.catch(() => {});
  }

  async isThere(): Promise<void> {
    await this.#cleanup;
    await this.#check();
    if (this.#isWritten) this.#refuseLost();
  }

  close(): void {
    this.#isClosed = true;
    // In Chromium, closing the handle of a removed file never returns. It is closed when it is garbage-collected.
    if (this.#loss === undefined) this.#handle.close();
  }

  #refuseLost(): void {
    if (this.#loss !== undefined) throw this.#loss;
  }

  #change<T>(call: () => T): T {
    this.#refuseLost();
    this.#isWritten = true;
    return this.#call(call);
  }

  #call<T>(call: () => T): T {
    try {
      return call();
    } catch (error) {
      if (this.#isClosedByBrowser(error)) throw this.#lose("removed");
      throw error;
    }
  }

  /** Checks whether the file is still there. Calls during a check share the next one. It never rejects. */
  #check(): Promise<void> {
    if (this.#running === undefined) {
      this.#running = this.#compare().finally(() => {
        this.#running = undefined;
      });
      return this.#running;
    }
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      return this.#check();
    });
    return this.#next;
  }

  async #compare(): Promise<void> {
    // After closing, other workers may replace the file.
    if (this.#isClosed || this.#loss !== undefined) return;
    try {
      // A replaced file has the same name, so identities are compared. Twice, because an import sets the identity.
      for (let tries = 0; tries < 2; tries += 1) {
        const before = this.#identity();
        const file = await this.#entry.getFile();
        const there = new Uint8Array(
          await file.slice(IDENTITY_START, IDENTITY_END).arrayBuffer(),
        ).join();
        if (there === before || there === this.#identity()) return;
      }
      this.#report("replaced");
    } catch (error) {
      // A browser that closes the file has removed it.
      if (nameOf(error) === "NotFoundError" || this.#isClosedByBrowser(error))
        this.#report("removed");
    }
  }

  #identity(): string {
    const bytes = new Uint8Array(IDENTITY_END - IDENTITY_START);
    return bytes.subarray(0, this.#handle.read(bytes, { at: IDENTITY_START })).join();
  }

  /** Whether the error says that the file was closed, although this program did not close it. */
  #isClosedByBrowser(error: unknown): boolean {
    return nameOf(error) === "InvalidStateError" && !this.#isClosed;
  }

  #report(reason: Reason): void {
    this.onLoss?.(this.#lose(reason));
  }

  #lose(reason: Reason): FileLostError {
    const more = reason === "removed" ? "" : " and another one made";
    this.#loss ??= new FileLostError(
      `The file of the database "${this.#name}" was removed${more} while it was open, say with all data of this ` +
        "site. Nothing more can be written to it. Save what is in memory, say with export(), then close the " +
        "database and open it again.",
      { reason },
    );
    return this.#loss;
  }
}

function nameOf(error: unknown): string {
  return (error as Error).name;
}
