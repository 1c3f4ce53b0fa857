/** `memory()`: storage in memory, for tests and temporary data. It is never used by default. */

import { DatabaseBusyError, DatabaseNotFoundError, refuseMore } from "../errors/index.js";
import { fileName, namesOf } from "./file-names.js";
import type { OpenedStorage, ReplacementFile, Storage, StorageFile } from "./storage.js";

/**
 * A storage in memory, which lasts as long as the storage object itself. Each call makes a new, empty one;
 * two of them never share a database, even under the same name. A database that is closed and opened again in
 * the same `memory()` still has its data.
 *
 * ```ts
 * const db = await open("scratch", { storage: memory() });
 * ```
 */
export function memory(): Storage;
export function memory(...more: unknown[]): Storage {
  refuseMore("memory()", more);
  const contents = new Map<string, Content>();
  const identities = new Map<string, object>();
  return {
    kind: "memory",
    identity(name) {
      const key = fileName(name);
      let identity = identities.get(key);
      if (identity === undefined) {
        identity = Object.freeze({ memory: key });
        identities.set(key, identity);
      }
      return identity;
    },
    async open(name, mode): Promise<OpenedStorage> {
      const key = fileName(name);
      const known = contents.get(key);
      if (known?.open === true) throw busy(name);
      if (known === undefined && mode?.readOnly === true) throw missing(name);
      const content = known ?? { bytes: new Uint8Array(0), size: 0, open: false };
      contents.set(key, content);
      const file = new MemoryFile(content, name);
      return {
        file,
        openReplacement: async () => openReplacement(content, name),
        discard() {
          file.close();
          if (known === undefined) contents.delete(key);
        },
      };
    },
    async destroy(name) {
      const key = fileName(name);
      if (contents.get(key)?.open === true) throw busy(name);
      return contents.delete(key);
    },
    async databases() {
      return namesOf(contents.keys());
    },
  };
}

interface Content {
  /** Longer than `size`, by up to a factor of two, so that appending is cheap. Zero beyond `size`. */
  bytes: Uint8Array;
  size: number;
  open: boolean;
}

class MemoryFile implements StorageFile {
  readonly #name: string;
  #content: Content | undefined;

  constructor(content: Content, name: string) {
    this.#name = name;
    content.open = true;
    this.#content = content;
  }

  #openContent(): Content {
    if (this.#content !== undefined) return this.#content;
    throw Object.assign(new Error(`The memory file of "${this.#name}" is closed.`), {
      code: "EBADF",
    });
  }

  read(buffer: Uint8Array, options: { at: number }): number {
    const { bytes, size } = this.#openContent();
    const count = Math.max(0, Math.min(buffer.length, size - options.at));
    buffer.set(bytes.subarray(options.at, options.at + count));
    return count;
  }

  write(buffer: Uint8Array, options: { at: number }): number {
    const content = this.#openContent();
    const end = options.at + buffer.length;
    reserve(content, end);
    content.bytes.set(buffer, options.at);
    content.size = Math.max(content.size, end);
    return buffer.length;
  }

  truncate(size: number): void {
    const content = this.#openContent();
    reserve(content, size);
    if (size < content.size) content.bytes.fill(0, size, content.size);
    content.size = size;
  }

  getSize(): number {
    return this.#openContent().size;
  }

  flush(): void {
    this.#openContent();
  }

  close(): void {
    if (this.#content !== undefined) this.#content.open = false;
    this.#content = undefined;
  }
}

/** Makes a shadow file in memory. It is not registered, so it is freed with its last reference. */
function openReplacement(content: Content, name: string): ReplacementFile {
  const next: Content = { bytes: new Uint8Array(0), size: 0, open: false };
  const file = new MemoryFile(next, name);
  return {
    file,
    takeOver() {
      file.close();
      content.bytes = next.bytes;
      content.size = next.size;
    },
    remove: () => file.close(),
  };
}

function reserve(content: Content, size: number): void {
  if (size <= content.bytes.length) return;
  const grown = new Uint8Array(Math.max(size, content.bytes.length * 2, 65_536));
  grown.set(content.bytes.subarray(0, content.size));
  content.bytes = grown;
}

function missing(name: string): Error {
  return new DatabaseNotFoundError(
    `There is no database "${name}" in this memory(), and readOnly creates none.`,
  );
}

function busy(name: string): Error {
  return new DatabaseBusyError(
    `The database "${name}" is already open in this memory(). Close it first.`,
  );
}
