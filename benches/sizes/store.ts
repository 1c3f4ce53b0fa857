/**
 * The interface of the measured stores. Each store has its own loops, written as its manual advises for
 * speed; where there was a choice, the faster form was measured and kept.
 */
export interface Store {
  readonly name: string;
  /** The chosen settings. */
  readonly settings: string;
  /** How its measurement differs from the others. */
  readonly remarks?: readonly string[];
  /** Returns the sum of `looked` over the values. */
  gets(keys: readonly string[]): number | Promise<number>;
  /** As `gets`, for keys that are requested together. */
  many?(keys: readonly string[]): number | Promise<number>;
  /** One batch, written before it returns or resolves. Operation `op` writes value `op % values.length`. */
  sets(
    keys: readonly string[],
    values: readonly Uint8Array[],
    from: number,
    to: number,
  ): void | Promise<void>;
  /** One batch of in-place changes: the counter in each value is incremented. */
  updates(keys: readonly string[], from: number, to: number): void | Promise<void>;
  /** Deletes one batch. */
  deletes(keys: readonly string[], from: number, to: number): void | Promise<void>;
  /** Scans `limit` pairs in order from a key on: returns the sum of `looked` and of the keys' lengths. */
  scan?(from: string, limit: number): number | Promise<number>;
  /** Kinds of scans that only this store has. */
  readonly scans?: Readonly<Record<string, (from: string, limit: number) => number>>;
  /** Visits all pairs in order, for comparing contents. `possible`: all keys that may exist, in order. */
  pairs(
    visit: (key: Uint8Array, value: Uint8Array) => void,
    possible: Iterable<string>,
  ): void | Promise<void>;
  /** Flushes all earlier writes before it returns or resolves. */
  sync?(): void | Promise<void>;
  /** Milliseconds since the last call, for a store that measures its own time. */
  readonly elapsed?: () => number;
  /** Its memory in bytes, by name. */
  memory?(): Record<string, number>;
  close(): void | Promise<void>;
}

/** Opens a store in a folder, empty or not. */
export type OpenStore = (folder: string, options: StoreOptions) => Promise<Store>;

/**
 * When writes must be on the medium: by the store's default, when `sync` is called once a second, or after
 * each batch, for which `sync` is called as well.
 */
export type Flushing = "default" | "each second" | "each group";

export interface StoreOptions {
  /** Bytes of memory that the store may use, if it has such an option. */
  memory: number;
  flushing?: Flushing;
}
