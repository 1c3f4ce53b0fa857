import type { Storage, StorageFile } from "varve";

/** A call to the file: its offset and its length. */
export interface Call {
  at: number;
  length: number;
}

/** Wraps a storage and records all reads and writes. */
export function recordedStorage(
  storage: Storage,
  { reads, writes }: { reads?: Call[]; writes?: Call[] },
): Storage {
  return {
    kind: storage.kind,
    identity: (name) => storage.identity(name),
    async open(name, mode) {
      const opened = await storage.open(name, mode);
      const { file } = opened;
      const recordedFile: StorageFile = {
        read(buffer, options) {
          reads?.push({ at: options.at, length: buffer.length });
          return file.read(buffer, options);
        },
        write(buffer, options) {
          writes?.push({ at: options.at, length: buffer.length });
          return file.write(buffer, options);
        },
        truncate: (size) => file.truncate(size),
        getSize: () => file.getSize(),
        flush: () => file.flush(),
        close: () => file.close(),
      };
      return { ...opened, file: recordedFile };
    },
  };
}
