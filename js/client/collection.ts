/** Collections of a database from far away. */

import type { KeyRange } from "../collection/keys.js";
import { split } from "./call-options.js";
import type { Caller, CallOptions } from "./link.js";
import { byName, type RetryOptions, updateIf } from "./optimistic.js";
import { own } from "./own.js";
import { RemoteScan } from "./scan.js";
import { changesOf, type KeyChange, rowsOf, type Watching, type WatchOptions } from "./watch.js";

/** A range of keys, as for `Collection`. */
export interface RemoteRange<Bound> {
  gt?: Bound | undefined;
  gte?: Bound | undefined;
  lt?: Bound | undefined;
  lte?: Bound | undefined;
  prefix?: Bound | undefined;
  after?: unknown;
  reverse?: boolean | undefined;
  limit?: number | undefined;
}

/** What a field has to be: this, or within these bounds. */
export type Condition<T> =
  | T
  | {
      readonly gt?: NonNullable<T>;
      readonly gte?: NonNullable<T>;
      readonly lt?: NonNullable<T>;
      readonly lte?: NonNullable<T>;
      readonly not?: T | undefined;
    };

type NumbersOf<T> = {
  [K in keyof T as T[K] extends number | bigint ? K : never]?: T[K] extends bigint
    ? bigint
    : number;
};

/** What conditions are about: no value that is made of parts, nor bytes. */
type Lone = string | number | bigint | boolean | null | undefined;
type Conditions<T> = {
  readonly [K in keyof T as Extract<T[K], Lone> extends never ? never : K]?: Condition<
    Extract<T[K], Lone>
  >;
};

/** A change that is told and not programmed, so that it needs one round trip and is done exactly once. */
export interface Update<Plain, Input> extends CallOptions {
  /** What to add to fields that are numbers; less than nothing to take away. */
  add?: NumbersOf<Plain> | undefined;
  /** What to set fields to. */
  set?: Partial<Input> | undefined;
  /** What has to hold of the value as it is; else nothing is changed. */
  where?: Conditions<Plain> | undefined;
  /** What a missing key gets first. */
  valueIfMissing?: Input | undefined;
}

/** What came of an `update`. */
export interface Updated<Plain> {
  /** Whether it was done. */
  readonly applied: boolean;
  /** What is there now. */
  readonly value: Plain | undefined;
}

/** The options of a remote collection's `updateIf`. */
export interface RemoteTypedUpdateOptions<Plain, Input> extends RetryOptions {
  predicate?: ((value: Plain) => boolean) | undefined;
  valueIfMissing?: Input | undefined;
}

/** What a collection and its indexes can be asked for alike. */
export class RemoteReads<K, Given, Plain, Range> {
  /** Its name. */
  readonly name: string;
  protected readonly caller: Caller;
  private readonly of: string | undefined;

  /** @internal */
  constructor(name: string, caller: Caller, of?: string) {
    this.name = name;
    this.caller = caller;
    this.of = of;
  }

  /** The value of a key, or with this in an index's fields: of a unique one the only one. */
  get(key: Given, options?: CallOptions): Promise<Plain | undefined> {
    return this.ask("get", [key], options);
  }

  /** How many records there are, or how many of them lie in a range. */
  count(range?: Range, options?: CallOptions): Promise<number> {
    return this.ask("count", [range], options);
  }

  /** The keys of a range, in order: to go over with `for await`, or `.all()`. */
  keys(range?: Range, options?: CallOptions): RemoteScan<K> {
    return new RemoteScan((after) => this.ask("keys", [range, after], options));
  }

  /** The values of a range, in the order of their keys. */
  values(range?: Range, options?: CallOptions): RemoteScan<Plain> {
    return new RemoteScan((after) => this.ask("values", [range, after], options));
  }

  /** The keys of a range with their values. */
  entries(range?: Range, options?: CallOptions): RemoteScan<[K, Plain]> {
    return new RemoteScan((after) => this.ask("entries", [range, after], options));
  }

  protected ask<T>(call: string, args: readonly unknown[], options?: CallOptions): Promise<T> {
    const { name, of } = this;
    return this.caller.request(
      call,
      () => args,
      false,
      options,
      of ?? name,
      of && name,
    ) as Promise<T>;
  }
}

/** An index of a collection from far away. */
export type RemoteIndex<K, Plain> = RemoteReads<K, unknown, Plain, RemoteRange<unknown>>;

/**
 * A collection that a worker serves: `client.products`. Its values are copies, as plain objects, and
 * the page needs no schema for them.
 */
export class RemoteCollection<
  K,
  Given,
  Plain,
  Input,
  Indexes extends string = never,
> extends RemoteReads<K, Given, Plain, KeyRange<Given>> {
  /** Its indexes, by their names. */
  readonly index: { readonly [N in Indexes]: RemoteIndex<K, Plain> };

  /** @internal */
  constructor(name: string, caller: Caller) {
    super(name, caller);
    this.index = byName((index) => new RemoteReads(index, caller, name));
  }

  /** Whether there is a value for this key. */
  has(key: Given, options?: CallOptions): Promise<boolean> {
    return this.ask("has", [key], options);
  }

  /** The values of several keys, in their order, as of one moment. */
  getMany(keys: Iterable<Given>, options?: CallOptions): Promise<(Plain | undefined)[]> {
    return this.ask("getMany", [own(keys)], options);
  }

  /** The value of a key and its version. */
  getEntry(
    key: Given,
    options?: CallOptions,
  ): Promise<{ value: Plain; version: number; uncertain: boolean } | undefined> {
    return this.ask("getEntry", [key], options);
  }

  /** Stores a value under a key. With `ifVersion` only if the key has that version. */
  set(
    key: Given,
    value: Input,
    options?: CallOptions & { ifVersion?: number | undefined },
  ): Promise<void> {
    const [told, mine] = split(options);
    return this.tell("set", [key, value, told], mine);
  }

  /** Stores a value under the number above the last key, and gives that. */
  push(value: Input, options?: CallOptions): Promise<number> {
    return this.tell("push", [value], options);
  }

  /** Deletes a key, and says whether it was there. */
  delete(key: Given, options?: CallOptions): Promise<boolean> {
    return this.tell("delete", [key], options);
  }

  /** Deletes all records, or those of a range, all or none, and says how many. */
  clear(range?: KeyRange<Given>, options?: CallOptions): Promise<number> {
    return this.tell("clear", [range], options);
  }

  /** Does all of it or nothing. */
  batch(
    operations: readonly (
      | { readonly type: "set"; readonly key: Given; readonly value: Input }
      | { readonly type: "delete"; readonly key: Given }
    )[],
    options?: CallOptions,
  ): Promise<void> {
    return this.tell("batch", [operations], options);
  }

  /**
   * Changes fields as told, if what is told of them holds: one round trip, done exactly once. What is told
   * may be nothing, `{}`: then it says whether the key is there, and what it has.
   *
   * ```ts
   * await shop.products.update("yeezy", { add: { stock: -1 }, where: { stock: { gt: 0 } } });
   * ```
   */
  update(key: Given, change: Update<Plain, Input>): Promise<Updated<Plain>> {
    const [told, mine] = split(change);
    return this.tell("update", [key, told], mine);
  }

  /**
   * Reads a value, has `change` change that or return another, and stores it if nobody has written to
   * the key meanwhile; else it reads again and repeats. Says whether it was changed.
   *
   * @throws (rejects) ConflictError when others were faster each time; what `change` throws
   */
  updateIf(
    key: Given,
    change: (value: Plain) => unknown,
    options?: RemoteTypedUpdateOptions<Plain, Input>,
  ): Promise<boolean> {
    return updateIf(this.caller, this.name, key, change, options);
  }

  /** Hears after each commit which keys of a range have changed; as `client.watch`. */
  watch(range: KeyRange<Given>, listener: (changes: readonly KeyChange<K>[]) => void): Watching;
  watch(
    range?: KeyRange<Given>,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<K>[], void, undefined>;
  watch(
    range: KeyRange<Given> = {},
    to?: WatchOptions | ((changes: readonly KeyChange<K>[]) => void),
  ) {
    return changesOf(this.caller.watch(this.name, range), to);
  }

  /** Gives the records of a range now and after every change in it, without a gap; as `client.live`. */
  live(range: KeyRange<Given>, listener: (rows: [K, Plain][]) => void): Watching;
  live(
    range?: KeyRange<Given>,
    options?: WatchOptions,
  ): AsyncGenerator<[K, Plain][], void, undefined>;
  live(range: KeyRange<Given> = {}, to?: WatchOptions | ((rows: [K, Plain][]) => void)) {
    return rowsOf(this.caller.watch(this.name, range), () => this.entries(range).all(), to);
  }

  private tell<T>(call: string, args: readonly unknown[], options?: CallOptions): Promise<T> {
    // The program may change its objects before they are sent, or sent again.
    const own = () => structuredClone(args);
    return this.caller.request(call, own, true, options, this.name) as Promise<T>;
  }
}
