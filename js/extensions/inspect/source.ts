/** What is inspected: bytes that can be read from any position. */

export interface Source {
  readonly name: string;
  readonly size: number;
  /** The bytes from `at` on: `length` of them, or fewer at the end. They are not changed by anyone. */
  read(at: number, length: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** Bytes in memory. They must not change while they are inspected. */
export function bytesSource(name: string, bytes: Uint8Array<ArrayBuffer>): Source {
  return {
    name,
    size: bytes.length,
    read: async (at, length) => bytes.subarray(at, at + length),
  };
}

/** A file, of which only what is shown is read. */
export function blobSource(name: string, blob: Blob): Source {
  return {
    name,
    size: blob.size,
    async read(at, length) {
      try {
        return new Uint8Array(await blob.slice(at, at + length).arrayBuffer());
      } catch (cause) {
        throw new Error(
          `${name} cannot be read any more: it was changed or removed since it was chosen. Choose it again.`,
          { cause },
        );
      }
    },
  };
}

/** All bytes of a source. */
export async function bytesOf(source: Source): Promise<Uint8Array<ArrayBuffer>> {
  return (await source.read(0, source.size)).slice();
}
