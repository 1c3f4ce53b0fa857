/** A storage of one file that stores only nonzero blocks, so that the file can be very long. */

import type { OpenedStorage, Storage } from "varve";

const BLOCK = 65_536;

export class SparseStorage implements Storage {
  readonly kind = "sparse";
  private readonly blocks = new Map<number, Uint8Array>();
  private size = 0;

  identity(): unknown {
    return this;
  }

  async open(): Promise<OpenedStorage> {
    return {
      file: {
        read: (buffer, { at }) => this.read(buffer, at),
        write: (buffer, { at }) => this.write(buffer, at),
        truncate: (size) => {
          for (const block of this.blocks.keys()) if (block >= size) this.blocks.delete(block);
          this.size = size;
        },
        getSize: () => this.size,
        flush: () => {},
        close: () => {},
      },
    };
  }

  private read(buffer: Uint8Array, at: number): number {
    const count = Math.max(0, Math.min(buffer.length, this.size - at));
    for (const [block, from, to, offset] of parts(at, count)) {
      const kept = this.blocks.get(block);
      if (kept === undefined) buffer.fill(0, from, to);
      else buffer.set(kept.subarray(offset, offset + to - from), from);
    }
    return count;
  }

  private write(buffer: Uint8Array, at: number): number {
    for (const [block, from, to, offset] of parts(at, buffer.length)) {
      const bytes = buffer.subarray(from, to);
      let kept = this.blocks.get(block);
      if (kept === undefined) {
        if (isZero(bytes)) continue;
        kept = new Uint8Array(BLOCK);
        this.blocks.set(block, kept);
      }
      kept.set(bytes, offset);
    }
    this.size = Math.max(this.size, at + buffer.length);
    return buffer.length;
  }
}

/** Whether all bytes are zero. Checks aligned words, because gigabytes are checked. */
function isZero({ buffer, byteOffset, length }: Uint8Array): boolean {
  const aligned = byteOffset % 4 === 0 && length % 4 === 0;
  const words = aligned
    ? new Uint32Array(buffer, byteOffset, length >>> 2)
    : new Uint8Array(buffer, byteOffset, length);
  for (let i = 0; i < words.length; i++) if (words[i] !== 0) return false;
  return true;
}

/** Splits a range of bytes into parts of blocks: the block, the range, and the offset in the block. */
function* parts(at: number, count: number): Generator<[number, number, number, number]> {
  for (let from = 0; from < count; ) {
    const offset = (at + from) % BLOCK;
    const to = Math.min(count, from + BLOCK - offset);
    yield [at + from - offset, from, to, offset];
    from = to;
  }
}
