import type { Storage } from "varve";

/** A file without a database: the calls that everything here is measured against. */
export interface RawFile {
  read(bytes: Uint8Array, at: number): number;
  write(bytes: Uint8Array, at: number): number;
  flush(): void;
  close(): void;
}

/** Where it all happens: a folder in Node, OPFS in a browser. */
export interface Ground {
  storage: Storage;
  /** A new and empty file, or that of a database. */
  raw(name: string, database?: boolean): Promise<RawFile>;
  remove(name: string): Promise<void>;
  turn(): Promise<void>;
  progress(doing: string): void;
}

/** How much of everything. */
export interface Amounts {
  samples: number;
  /** Bytes that the database may keep in memory when its values are cold; they are four times as many. */
  coldMemory: number;
  /** Cold reads of a sample. */
  coldReads: number;
  /** Bytes of a sample of large values. */
  valueBytes: number;
  /** Bytes of the bulk load. */
  bulkBytes: number;
  bulkSamples: number;
  /** Keys of which it is told how much memory each takes. */
  memoryKeys: number;
}

/** Samples of one kind of work, in its own unit. */
export interface Line {
  id: string;
  /** The table that it belongs to. */
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
