/**
 * A store as this benchmark drives it. The loops are the stores' own, each written as its manual
 * advises a program in a hurry; where there was a choice, the faster form was measured and kept.
 */
export interface Store {
  readonly name: string;
  /** Which of its settings were chosen. */
  readonly settings: string;
  /** What was different for it. */
  readonly remarks?: readonly string[];
  /** Sum of what `looked` sees of the values. */
  gets(keys: readonly string[]): number | Promise<number>;
  /** As `gets`, of some keys that are asked for together. */
  many?(keys: readonly string[]): number | Promise<number>;
  /** One group: handed on before it returns or resolves. Operation `op` writes value `op % values.length`. */
  sets(
    keys: readonly string[],
    values: readonly Uint8Array[],
    from: number,
    to: number,
  ): void | Promise<void>;
  /** One group of changes in place: the counter in the value goes up by one. */
  updates(keys: readonly string[], from: number, to: number): void | Promise<void>;
  /** One group. */
  deletes(keys: readonly string[], from: number, to: number): void | Promise<void>;
  /** Goes over so many pairs in order, from a key on: the sum of `looked` and of the keys' lengths. */
  scan?(from: string, limit: number): number | Promise<number>;
  /** Ways to go over them that only this store has. */
  readonly scans?: Readonly<Record<string, (from: string, limit: number) => number>>;
  /** All pairs in order, for comparing contents. `possible`: the keys that there may be, in order. */
  pairs(
    visit: (key: Uint8Array, value: Uint8Array) => void,
    possible: Iterable<string>,
  ): void | Promise<void>;
  /** All that was handed on is on the medium when it has returned or resolved. */
  sync?(): void | Promise<void>;
  /** Milliseconds since this was asked last, for a store that has to be timed from inside. */
  readonly elapsed?: () => number;
  /** What it holds in memory, in bytes, by name. */
  memory?(): Record<string, number>;
  close(): void | Promise<void>;
}

/** Opens a store in a folder, whatever is in there already. */
export type OpenStore = (folder: string, options: StoreOptions) => Promise<Store>;

/**
 * When what is handed on has to be on the medium: when its store likes, when `sync` is called, which is
 * once a second, or with each group, for which `sync` is called as well.
 */
export type Flushing = "as it likes" | "each second" | "each group";

export interface StoreOptions {
  /** Bytes that it may keep in memory, where it can be told. */
  memory: number;
  flushing?: Flushing;
}
