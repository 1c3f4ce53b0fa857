/** Collections of a database from far away. */

import type { IndexRange } from "../collection/index-query.js";
import type { KeyRange } from "../collection/keys.js";
import { badCall } from "../errors/index.js";
import type { Caller, CallOptions } from "./connection/connection.js";
import { byName, hide } from "./named-properties.js";
import { type RetryOptions, updateIf } from "./optimistic.js";
import { split } from "./protocol/call-options.js";
import {
  changesOf,
  type KeyChange,
  rowsOf,
  type Watching,
  type WatchOptions,
} from "./protocol/client-subscriptions.js";
import { cloneArgs } from "./protocol/clone.js";
import { type Forms, fieldOf, sentOf } from "./protocol/json-values.js";

/**
 * The contents of a range: all of it as of one moment with `all()`, or for use in `for await`. A loop reads a
 * page at a time, each as of one moment: what others write after the last key is seen, what they write before
 * it is not, as in a loop over a database. An index is read as a single page. Each loop and each `all()`
 * reads anew.
 */
export class RemoteScan<T> implements AsyncIterable<T, undefined> {
  private readonly read: (after?: unknown) => Promise<unknown>;

  /** @internal `read` gives all of it, or the page behind what it is given; the first one for `null`. */
  constructor(read: (after?: unknown) => Promise<unknown>) {
    this.read = read;
  }

  /** Resolves to all of it as an array. */
  all(): Promise<T[]> {
    return this.read() as Promise<T[]>;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, undefined> {
    for (let after: unknown = null; after !== undefined; ) {
      const page = (await this.read(after)) as { rows: T[]; after?: unknown };
      yield* page.rows;
      after = page.after;
    }
    return undefined;
  }
}

/**
 * A condition on a field: the value that it must have, or bounds. `not` is a value that it must not have. All
 * that is given has to hold.
 */
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

/** A change given as data and not as a function, so that it takes one round trip and is done exactly once. */
export interface Update<Plain, Input> extends CallOptions {
  /** What to add to fields that are numbers; negative to subtract. */
  add?: NumbersOf<Plain> | undefined;
  /** New values of fields. */
  set?: Partial<Input> | undefined;
  /** Conditions on the current value. If one does not hold, nothing is changed. */
  where?: Conditions<Plain> | undefined;
  /** The value that a missing key gets first. */
  valueIfMissing?: Input | undefined;
}

/** The result of an `update`. */
export interface Updated<Plain> {
  /** Whether the change was made. */
  readonly applied: boolean;
  /** The value that is there now; `undefined` if there is none. */
  readonly value: Plain | undefined;
}

/** The options of a remote collection's `updateIf`. */
export interface RemoteTypedUpdateOptions<Plain, Input> extends RetryOptions {
  /** The record is changed only if this returns `true` for its value. */
  predicate?: ((value: Plain) => boolean) | undefined;
  /** The value that a missing key counts as having. */
  valueIfMissing?: Input | undefined;
}

/** The calls that a remote collection and its indexes have in common. */
export class RemoteReads<K, Given, Plain, Range> {
  /** The name of the collection or index. */
  readonly name: string;
  declare protected readonly caller: Caller;
  declare private readonly of: string | undefined;

  /** @internal */
  constructor(name: string, caller: Caller, of?: string) {
    this.name = name;
    hide(this, { caller, of });
  }

  /**
   * Resolves to the value of a key or, in an index, to the first record with this value (in a unique index,
   * the only one). `undefined` if there is none.
   */
  get(key: Given, options?: CallOptions): Promise<Plain | undefined> {
    return this.ask("get", [key], options);
  }

  /** Resolves to the number of records, in total or in a range. */
  count(range?: Range, options?: CallOptions): Promise<number> {
    return this.ask("count", [range], options);
  }

  /** The keys of a range, or all keys, in order: for use in `for await`, or `.all()`. */
  keys(range?: Range, options?: CallOptions): RemoteScan<K> {
    return new RemoteScan((after) => this.ask("keys", [range, after], options));
  }

  /** The values of a range, or all values, in order. */
  values(range?: Range, options?: CallOptions): RemoteScan<Plain> {
    return new RemoteScan((after) => this.ask("values", [range, after], options));
  }

  /** The keys and values of a range, or all of them, as pairs in order. */
  entries(range?: Range, options?: CallOptions): RemoteScan<[K, Plain]> {
    return new RemoteScan((after) => this.ask("entries", [range, after], options));
  }

  protected ask<T>(call: string, args: readonly unknown[], options?: CallOptions): Promise<T> {
    const { name, of } = this;
    return this.caller.request(
      call,
      () => cloneArgs(args),
      false,
      options,
      of ?? name,
      of && name,
    ) as Promise<T>;
  }
}

/** An index of a collection in another realm, ordered by values of this type. */
export type RemoteIndex<Value, K, Plain> = RemoteReads<K, Value, Plain, IndexRange<Value, K>>;

/**
 * A collection that a worker serves: `client.collection("products")`. Its values are copies, as plain objects, and the page
 * needs no schema for them.
 */
export class RemoteCollection<
  K,
  Given,
  Plain,
  Input,
  Indexes = Record<never, never>,
> extends RemoteReads<K, Given, Plain, KeyRange<Given>> {
  /** The indexes of the collection, by name. */
  declare readonly index: {
    readonly [Name in keyof Indexes]: RemoteIndex<Indexes[Name], K, Plain>;
  };

  /** @internal */
  constructor(name: string, caller: Caller) {
    super(name, caller);
    hide(this, { index: byName((index) => new RemoteReads(index, caller, name)) });
  }

  /** Resolves to whether the key has a value. */
  has(key: Given, options?: CallOptions): Promise<boolean> {
    return this.ask("has", [key], options);
  }

  /** Resolves to the values of several keys, in the order of the keys, as of one moment. */
  getMany(keys: Iterable<Given>, options?: CallOptions): Promise<(Plain | undefined)[]> {
    return this.ask("getMany", [keys], options);
  }

  /** Resolves to the value of a key with its version, or `undefined` if the key is missing. */
  getEntry(
    key: Given,
    options?: CallOptions,
  ): Promise<{ value: Plain; version: number; uncertain: boolean } | undefined> {
    return this.ask("getEntry", [key], options);
  }

  /**
   * Stores a value under a key. With `ifVersion` only if the key has that version; 0 means that the key is
   * missing.
   *
   * @throws (rejects) ConflictError if the key has another version; nothing was written
   */
  set(
    key: Given,
    value: Input,
    options?: CallOptions & { ifVersion?: number | undefined },
  ): Promise<void> {
    const [told, mine] = split(options);
    const args = () => {
      const [stored, forms] = this.sent(value);
      return [cloneArgs(key), stored, cloneArgs(told), forms];
    };
    return this.tell("set", args, mine);
  }

  /**
   * Stores a value under the number after all that are or were there, and resolves to that number. For
   * collections whose keys are `auto()`.
   */
  push(value: Input, options?: CallOptions): Promise<number> {
    return this.tell("push", () => this.sent(value), options);
  }

  /** Deletes a key. Resolves to whether it was there. */
  delete(key: Given, options?: CallOptions): Promise<boolean> {
    return this.tell("delete", () => cloneArgs([key]), options);
  }

  /** Deletes all records, or those of a range: all of them or none. Resolves to how many were deleted. */
  clear(range?: KeyRange<Given>, options?: CallOptions): Promise<number> {
    return this.tell("clear", () => cloneArgs([range]), options);
  }

  /** Runs several writes in the given order, all of them or none. */
  batch(
    operations: readonly (
      | { readonly type: "set"; readonly key: Given; readonly value: Input }
      | { readonly type: "delete"; readonly key: Given }
    )[],
    options?: CallOptions,
  ): Promise<void> {
    const args = () =>
      Symbol.iterator in Object(operations)
        ? [Array.from(operations, (one) => this.operation(one))]
        : cloneArgs([operations]);
    return this.tell("batch", args, options);
  }

  /**
   * Changes fields as described by `change`, if its conditions hold: in one round trip, done exactly once. An
   * empty change, `{}`, tells whether the key is there and what its value is.
   *
   * ```ts
   * await products.update("yeezy", { add: { stock: -1 }, where: { stock: { gt: 0 } } });
   * ```
   */
  update(key: Given, change: Update<Plain, Input>): Promise<Updated<Plain>>;
  update(key: Given, change: Update<Plain, Input>, ...more: unknown[]): Promise<Updated<Plain>> {
    if (more.length > 0) throw badCall("update() takes its options within its second argument.");
    const [told, mine] = split(change);
    return this.tell("update", () => [cloneArgs(key), ...this.change(told)], mine);
  }

  /**
   * Reads a value, lets `change` change a copy of it or return another value, and stores the result if nobody
   * has written to the key meanwhile. Otherwise it reads again and repeats, so `change` may run several
   * times. Resolves to whether the value was changed.
   *
   * @throws (rejects) ConflictError if others were faster each time; what `change` throws
   */
  updateIf(
    key: Given,
    change: (value: Plain) => unknown,
    options?: RemoteTypedUpdateOptions<Plain, Input>,
  ): Promise<boolean> {
    return updateIf(this.caller, this.name, key, change, options);
  }

  /** Tells after each commit which keys of a range have changed. As `client.watch`. */
  watch(range: KeyRange<Given>, listener: (changes: readonly KeyChange<K>[]) => void): Watching;
  watch(
    range?: KeyRange<Given>,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<K>[], void, undefined>;
  watch(
    range: KeyRange<Given> = {},
    to?: WatchOptions | ((changes: readonly KeyChange<K>[]) => void),
    ...more: unknown[]
  ) {
    return changesOf(this.caller.watch(this.name, range), to, more);
  }

  /** Gives the records of a range now and after every change in it, without a gap. As `client.live`. */
  live(range: KeyRange<Given>, listener: (rows: [K, Plain][]) => void): Watching;
  live(
    range?: KeyRange<Given>,
    options?: WatchOptions,
  ): AsyncGenerator<[K, Plain][], void, undefined>;
  live(
    range: KeyRange<Given> = {},
    to?: WatchOptions | ((rows: [K, Plain][]) => void),
    ...more: unknown[]
  ) {
    return rowsOf(this.caller.watch(this.name, range), () => this.entries(range).all(), to, more);
  }

  /** The program may change its objects before they are sent, or sent again. */
  private tell<T>(call: string, args: () => readonly unknown[], options?: CallOptions): Promise<T> {
    return this.caller.request(call, args, true, options, this.name) as Promise<T>;
  }

  /** What becomes of a value, and what goes along with it. */
  private sent(value: unknown): readonly [value: unknown, forms: Forms | undefined] {
    const sent = sentOf(value, this.caller.isJson(this.name));
    return [sent.value, sent.forms];
  }

  private operation(given: unknown): unknown {
    if (Object(given) !== given || !("value" in (given as object))) return cloneArgs(given);
    const { value: stored, ...rest } = given as { value: unknown };
    const [value, forms] = this.sent(stored);
    return { ...cloneArgs(rest), value, ...(forms && { forms }) };
  }

  /** Fields are assigned one by one, so that each is sent by itself. */
  private change(given: unknown): readonly [change: unknown, forms?: object] {
    if (Object(given) !== given) return [given];
    const { set, valueIfMissing, ...rest } = given as Partial<Update<Record<never, never>, object>>;
    const change: Record<string, unknown> = cloneArgs(rest);
    const forms: Record<string, unknown> = {};
    if (Object(set) === set && !Array.isArray(set)) {
      const isJson = this.caller.isJson(this.name);
      const fields = Object.entries(set as object).map(
        ([name, value]) => [name, fieldOf(name, value, isJson)] as const,
      );
      change.set = Object.fromEntries(fields.map(([name, { value }]) => [name, value]));
      forms.set = Object.fromEntries(fields.map(([name, one]) => [name, one.forms]));
    } else if ("set" in (given as object)) change.set = cloneArgs(set);
    if (valueIfMissing !== undefined) {
      [change.valueIfMissing, forms.valueIfMissing] = this.sent(valueIfMissing);
    }
    return [change, forms];
  }
}
