/** A storage in memory that notes what is written to it: the inspector changes copies of files in one. */

import type { OpenedStorage, Storage, StorageFile } from "../../index.js";

/** A range of bytes of the file that was written to. */
export interface Write {
  readonly at: number;
  readonly length: number;
}

/** The file of one database. It may be opened again after it was closed. */
export class MemoryImage implements Storage {
  readonly kind = "memory";
  /** What was written since this was emptied. */
  writes: Write[] = [];
  #bytes: Uint8Array<ArrayBuffer>;
  #size: number;
  #isOpen = false;

  /** @param bytes the content, which is not copied and may be changed */
  constructor(bytes: Uint8Array<ArrayBuffer> = new Uint8Array(0)) {
    this.#bytes = bytes;
    this.#size = bytes.length;
  }

  identity(): object {
    return this;
  }

  async open(): Promise<OpenedStorage> {
    if (this.#isOpen) throw new Error("The copy that is inspected is open already.");
    this.#isOpen = true;
    return { file: this.#file() };
  }

  /** The bytes as they are now, as a copy. */
  copy(): Uint8Array<ArrayBuffer> {
    return this.#bytes.slice(0, this.#size);
  }

  #file(): StorageFile {
    return {
      read: (buffer, { at }) => {
        const count = Math.max(0, Math.min(buffer.length, this.#size - at));
        buffer.set(this.#bytes.subarray(at, at + count));
        return count;
      },
      write: (buffer, { at }) => {
        const end = at + buffer.length;
        this.#reserve(end);
        this.#bytes.set(buffer, at);
        this.#size = Math.max(this.#size, end);
        this.writes.push({ at, length: buffer.length });
        return buffer.length;
      },
      truncate: (size) => {
        this.#reserve(size);
        if (size < this.#size) this.#bytes.fill(0, size, this.#size);
        this.#size = size;
      },
      getSize: () => this.#size,
      flush() {},
      close: () => {
        this.#isOpen = false;
      },
    };
  }

  #reserve(size: number): void {
    if (size <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(size, 2 * this.#bytes.length, 65_536));
    grown.set(this.#bytes.subarray(0, this.#size));
    this.#bytes = grown;
  }
}
