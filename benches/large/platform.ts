import type { Storage } from "varve";

/** A file without a database: the baseline of the measurements. */
export interface RawFile {
  read(bytes: Uint8Array, at: number): number;
  write(bytes: Uint8Array, at: number): number;
  flush(): void;
  close(): void;
}

/** The platform: a folder in Node, OPFS in a browser. */
export interface Platform {
  storage: Storage;
  /** A new and empty file, or that of a database. */
  raw(name: string, database?: boolean): Promise<RawFile>;
  remove(name: string): Promise<void>;
  turn(): Promise<void>;
  progress(doing: string): void;
}

/** The amounts of each kind of work. */
export interface Amounts {
  samples: number;
  /** The option `memory` for cold reads; the values take four times as much. */
  coldMemory: number;
  /** Cold reads of a sample. */
  coldReads: number;
  /** Bytes of a sample of large values. */
  valueBytes: number;
  /** Bytes of the bulk load. */
  bulkBytes: number;
  bulkSamples: number;
  /** Keys for which the memory of each is measured. */
  memoryKeys: number;
}

/** Samples of one kind of work, in its own unit. */
export interface Line {
  id: string;
  /** The table that the line belongs to. */
  group: string;
  work: string;
  store: string;
  durability: string;
  unit: "ns" | "ms" | "µs" | "MB/s" | "bytes";
  samples: number[];
}

export interface LargeResult {
  lines: Line[];
  notes: string[];
}
