import type { Product } from "../drop.js";

export type Maybe<T> = T | Promise<T>;
export type Pair = [key: string, value: Uint8Array];

/** How the product is stored: as bytes, or as the record that the store offers. */
export type Kind = "raw" | "typed";

/** The operations of the mixed workload. */
export const GET = 0;
export const UPDATE = 1;
export const INSERT = 2;
export const DELETE = 3;

export interface Mixed {
  /** GET, UPDATE, INSERT or DELETE for each operation. */
  kinds: Uint8Array;
  keys: readonly string[];
  /** The values of the inserts; the others are not used. */
  values: readonly Uint8Array[];
}

/** Keys of large values begin with it, for stores that keep these elsewhere. */
export const LARGE = "large/";

/**
 * A store of the race. Each has its own loops, in the fastest form that its documentation offers; the naive ones say
 * so. What is written from `from` to `to` is one commit where the store can do that, and done when the call returns
 * or resolves.
 */
export interface Store {
  /** Returns the sum of `looked` over the values. */
  gets(keys: readonly string[], from: number, to: number): Maybe<number>;
  sets(
    keys: readonly string[],
    values: readonly Uint8Array[],
    from: number,
    to: number,
  ): Maybe<void>;
  /** Reads each value, writes the stamp into it, and stores it. Returns the sum of `looked` over what was read. */
  updates(keys: readonly string[], from: number, to: number, stamp: number): Maybe<number>;
  deletes(keys: readonly string[], from: number, to: number): Maybe<void>;
  /** Returns the sum of `looked` over what was read by gets. Within a call, the order does not matter. */
  mixed(work: Mixed, from: number, to: number, stamp: number): Maybe<number>;
  /** From each start on, reads the next `limit` pairs: the sum of `looked` and of the keys' lengths. */
  ranges?(starts: readonly string[], from: number, to: number, limit: number): Maybe<number>;
  /** The first pairs in the order of the keys. */
  list(limit: number): Maybe<Pair[]>;
  /** All pairs, in any order. */
  pairs(): Maybe<Pair[]>;
  restock(kind: Kind, stock: number): Maybe<void>;
  /** Serves the buyers one after the other: each reads stock and name, and takes one. */
  buy(kind: Kind, buyers: number, commitEach: boolean): Maybe<void>;
  product(kind: Kind): Maybe<Product | undefined>;
  /** Writes what an acknowledgement did not wait for. Its time counts. */
  settle?(): Maybe<void>;
  /** Waits for work in the background, so that it does not take place in the turn of another store. */
  rest?(): Promise<void>;
  close(): Maybe<void>;
}

/** A kind of store: opens one by its name, and removes it. */
export interface Driver {
  open(name: string): Promise<Store>;
  remove(name: string): Promise<void>;
}

/** What a read sums up, so that it touches the value: its first byte and its last. */
export function looked(value: Uint8Array): number {
  return value[0]! + value[value.length - 1]!;
}

/** Where the stamp lies in a value: four bytes, little endian. */
export const STAMP_AT = 4;

export function writeStamp(value: Uint8Array, stamp: number): void {
  value[STAMP_AT] = stamp & 0xff;
  value[STAMP_AT + 1] = (stamp >>> 8) & 0xff;
  value[STAMP_AT + 2] = (stamp >>> 16) & 0xff;
  value[STAMP_AT + 3] = stamp >>> 24;
}

export function stampOf(value: Uint8Array): number {
  return (
    (value[STAMP_AT]! |
      (value[STAMP_AT + 1]! << 8) |
      (value[STAMP_AT + 2]! << 16) |
      (value[STAMP_AT + 3]! << 24)) >>>
    0
  );
}

/** The error for a purchase that failed; it ends the drop. */
export function refused(buyer: number): Error {
  return new Error(`buyer ${buyer + 1} was refused`);
}
