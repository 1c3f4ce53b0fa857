/**
 * An open file of the origin private file system, and whether it is still there. A browser removes it together with
 * the site's data, whoever has it open: Chromium lets go on writing to what nobody will find, Firefox closes it.
 * Files are looked for asynchronously, so that a flush returns before its look is over.
 */

import { FileLostError } from "../errors/index.js";
import type { StorageFile } from "./storage.js";

type Reason = "removed" | "replaced";

/** Where the identity of a database stands in its file, which stays the same (FORMAT.md, 3). */
const AT = 40;
const END = 56;

/** The one of a database. */
export class OpfsFile implements StorageFile {
  /** Hears what a look has found. What finds it out by itself throws it. */
  onLoss: ((loss: FileLostError) => void) | undefined;
  readonly #name: string;
  readonly #entry: FileSystemFileHandle;
  readonly #handle: StorageFile;
  #loss: FileLostError | undefined;
  #isWritten = false;
  #isClosed = false;
  #running: Promise<void> | undefined;
  /** Begins when the running one is over, which may have missed what happened since it began. */
  #next: Promise<void> | undefined;

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
    this.#look();
  }

  assertThere(): void {
    this.#refuseLost();
    this.#look();
  }

  async isThere(): Promise<void> {
    await this.#look();
    if (this.#isWritten) this.#refuseLost();
  }

  close(): void {
    this.#isClosed = true;
    // Chromium never returns from closing one that it has removed. It goes with the last who refers to it.
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
      if (this.#isShut(error)) throw this.#lose("removed");
      throw error;
    }
  }

  /** Whoever asks while one runs is answered by the next, and all of them by the same. It never rejects. */
  #look(): Promise<void> {
    if (this.#running === undefined) {
      this.#running = this.#see().finally(() => {
        this.#running = undefined;
      });
      return this.#running;
    }
    this.#next ??= this.#running.then(() => {
      this.#next = undefined;
      return this.#look();
    });
    return this.#next;
  }

  async #see(): Promise<void> {
    // Once it is closed, whoever has it may do with it what they like.
    if (this.#isClosed || this.#loss !== undefined) return;
    try {
      // A browser compares no more than names, so identities are compared. While a file is filled, it gets one.
      for (let tries = 0; tries < 2; tries += 1) {
        const before = this.#identity();
        const file = await this.#entry.getFile();
        const there = new Uint8Array(await file.slice(AT, END).arrayBuffer()).join();
        if (there === before || there === this.#identity()) return;
      }
      this.#tell("replaced");
    } catch (error) {
      // What closed it, if it was not the program, has removed it.
      if (nameOf(error) === "NotFoundError" || this.#isShut(error)) this.#tell("removed");
    }
  }

  #identity(): string {
    const bytes = new Uint8Array(END - AT);
    return bytes.subarray(0, this.#handle.read(bytes, { at: AT })).join();
  }

  /** Whether somebody else has closed it. */
  #isShut(error: unknown): boolean {
    return nameOf(error) === "InvalidStateError" && !this.#isClosed;
  }

  #tell(reason: Reason): void {
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
