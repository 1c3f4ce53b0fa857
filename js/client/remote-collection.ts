/** The collections of a client. */

import type { IndexRange } from "../collection/index-query.js";
import type { KeyRange } from "../collection/keys.js";
import { badCall } from "../errors/index.js";
import type { ExpiryOptions } from "../session/expiry.js";
import type { KeyChange, Watching, WatchOptions } from "../session/watching.js";
import type { Caller, CallOptions } from "./connection/caller.js";
import { liveRows } from "./live-rows.js";
import { byName, hide } from "./named-properties.js";
import { type RetryOptions, updateIf } from "./optimistic.js";
import { split } from "./protocol/call-options.js";
import { changesOf } from "./protocol/client-subscriptions.js";
import { cloneArgs, listOf } from "./protocol/clone.js";
import { type Forms, fieldOf, sentOf } from "./protocol/json-values.js";
import type { RowsAnswer } from "./protocol/packed-rows.js";
import { RemoteScan } from "./remote-scan.js";
import { allRows, type RowDecoder, type RowSchema } from "./rows.js";

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

/** The types of fields that conditions apply to: neither bytes nor values with parts. */
type Scalar = string | number | bigint | boolean | null | undefined;
type Conditions<T> = {
  readonly [K in keyof T as Extract<T[K], Scalar> extends never ? never : K]?: Condition<
    Extract<T[K], Scalar>
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

/** The records that reads are of, and how their values are decoded. */
interface Target {
  /** The name of the collection. */
  readonly collection: string;
  /** The name of the index, if they are read by one. */
  readonly index?: string | undefined;
  /** The schema of the page, if it has one. */
  readonly schema?: RowSchema | undefined;
  /** Whether values are views. */
  readonly areViews?: boolean;
}

/** The kind of a schema as text, which the worker compares with its own. */
const kinds = new WeakMap<RowSchema, string>();

function kindText(schema: RowSchema | undefined): string | undefined {
  if (schema === undefined) return undefined;
  let text = kinds.get(schema);
  if (text === undefined) {
    text = JSON.stringify(schema.kind);
    kinds.set(schema, text);
  }
  return text;
}

/** The calls that list the records of a remote collection or of one of its indexes. */
export class RemoteLists<K, Value, Range> {
  /** The name of the collection or index. */
  readonly name: string;
  declare protected readonly caller: Caller;
  declare protected readonly target: Target;

  /** @internal */
  constructor(name: string, caller: Caller, target: Target) {
    this.name = name;
    hide(this, { caller, target });
  }

  /** The keys of a range, or all keys, in order: for use in `for await`, or `.all()`. */
  keys(range?: Range, options?: CallOptions): RemoteScan<K> {
    return this.scan("keys", range, options);
  }

  /** The values of a range, or all values, in order. */
  values(range?: Range, options?: CallOptions): RemoteScan<Value> {
    return this.scan("values", range, options);
  }

  /** The keys and values of a range, or all of them, as pairs in order. */
  entries(range?: Range, options?: CallOptions): RemoteScan<[K, Value]> {
    return this.scan("entries", range, options);
  }

  private scan<T>(row: RowDecoder["row"], range: unknown, options?: CallOptions): RemoteScan<T> {
    const { target, caller } = this;
    const read = async (after?: unknown) =>
      this.requestRead(row, [range, after, ...wantedOf(target)], options);
    return new RemoteScan(read, { row, ...target }, () => caller.writes);
  }

  /** The values of several keys. */
  protected async many(keys: unknown, options: CallOptions | undefined): Promise<unknown[]> {
    const { target } = this;
    const args = [listOf(keys), ...wantedOf(target)];
    const answer = (await this.requestRead("getMany", args, options)) as RowsAnswer;
    return allRows(answer, { row: "values", ...target });
  }

  protected requestRead<T>(
    call: string,
    args: readonly unknown[],
    options?: CallOptions,
  ): Promise<T> {
    const { collection, index } = this.target;
    return this.caller.request(
      call,
      () => cloneArgs(args),
      false,
      options,
      collection,
      index,
    ) as Promise<T>;
  }
}

/** @throws TypeError for views without a schema */
function wantedOf({ collection, schema, areViews }: Target): readonly unknown[] {
  if (areViews && schema === undefined) {
    throw badCall(
      `The page has no schema of the collection "${collection}", so it can make no views. Give it to connect(), ` +
        "in its option collections.",
    );
  }
  return [kindText(schema), areViews];
}

/** The calls that a remote collection and its indexes have in common. */
export class RemoteReads<K, KeyInput, Plain, Range> extends RemoteLists<K, Plain, Range> {
  /**
   * Resolves to the value of a key or, in an index, to the first record with this value (in a unique index,
   * the only one). `undefined` if there is none.
   */
  get(key: KeyInput, options?: CallOptions): Promise<Plain | undefined> {
    return this.requestRead("get", [key], options);
  }

  /** Resolves to the number of records, in total or in a range. */
  count(range?: Range, options?: CallOptions): Promise<number> {
    return this.requestRead("count", [range], options);
  }

  /** Reports after each commit which records of a range have changed, by their keys. As `client.watch`. */
  watch(range: Range, listener: (changes: readonly KeyChange<K>[]) => void): Watching;
  watch(
    range?: Range,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<K>[], void, undefined>;
  watch(
    range: Range = {} as Range,
    to?: WatchOptions | ((changes: readonly KeyChange<K>[]) => void),
    ...more: unknown[]
  ) {
    return changesOf(this.watched(range, "watch()"), to, more);
  }

  /** Gives the records of a range, in its order, now and after every change in it, without a gap. As `client.live`. */
  live(range: Range, listener: (rows: [K, Plain][]) => void): Watching;
  live(range?: Range, options?: WatchOptions): AsyncGenerator<[K, Plain][], void, undefined>;
  live(
    range: Range = {} as Range,
    to?: WatchOptions | ((rows: [K, Plain][]) => void),
    ...more: unknown[]
  ) {
    const { schema } = this.target;
    return liveRows(this.watched(range, "live()"), range, [kindText(schema)], schema, to, more);
  }

  private watched(range: Range, call: string) {
    const { collection, index } = this.target;
    return this.caller.watch(collection, range, call, index);
  }
}

/** An index of a collection in another realm, ordered by values of this type. */
export type RemoteIndex<Value, K, Plain> = RemoteReads<K, Value, Plain, IndexRange<Value, K>>;

/** The lists of an index whose values are views. */
export type RemoteIndexViews<Value, K, View> = RemoteLists<K, View, IndexRange<Value, K>>;

/**
 * The records of a collection in another realm as views, `client.products.views`: an answer is one buffer, and a field
 * is read from it when you access it, without decoding the others. The buffer is the answer's own: a view is as of the
 * moment of the answer, and valid as long as you keep it. A view has its fields on its prototype, as in the worker:
 * `{ ...view }` has none of them, and `view.snapshot()` gives a plain object. Bytes in a view are views of the same
 * buffer: `slice()` them before you transfer them.
 *
 * Every call rejects with
 *
 * - `TypeError` if `connect` was not given the collection's schema in its option `collections`
 * - `SchemaMismatchError` if the worker serves another schema
 */
export class RemoteViews<K, KeyInput, View, Indexes = Record<never, never>> extends RemoteLists<
  K,
  View,
  KeyRange<KeyInput>
> {
  /** The indexes of the collection, by name. */
  declare readonly index: {
    readonly [Name in keyof Indexes]: RemoteIndexViews<Indexes[Name], K, View>;
  };

  /** @internal */
  constructor(name: string, caller: Caller, target: Target) {
    super(name, caller, target);
    hide(this, {
      index: byName((index) => new RemoteLists(index, caller, { ...target, index })),
    });
  }

  /** Resolves to the views of several keys, in the order of the keys, as of one moment. */
  getMany(keys: Iterable<KeyInput>, options?: CallOptions): Promise<(View | undefined)[]> {
    return this.many(keys, options) as Promise<(View | undefined)[]>;
  }
}

/**
 * A collection that a worker serves: `client.collection("products")`. Its values are copies, as plain objects,
 * and the page needs no schema for them. With the schema, `views` has them as views, without decoding.
 */
export class RemoteCollection<
  K,
  KeyInput,
  Plain,
  Input,
  Indexes = Record<never, never>,
  View = Plain,
> extends RemoteReads<K, KeyInput, Plain, KeyRange<KeyInput>> {
  /** The indexes of the collection, by name. */
  declare readonly index: {
    readonly [Name in keyof Indexes]: RemoteIndex<Indexes[Name], K, Plain>;
  };

  /** The records as views, if they are structs whose schema `connect` was given. */
  declare readonly views: View extends { snapshot(): unknown }
    ? RemoteViews<K, KeyInput, View, Indexes>
    : never;

  /** @internal */
  constructor(name: string, caller: Caller, schema?: RowSchema) {
    super(name, caller, { collection: name, schema });
    const views = { collection: name, schema, areViews: true };
    hide(this, {
      index: byName((index) => new RemoteReads(index, caller, { collection: name, index, schema })),
      views: new RemoteViews(name, caller, views),
    });
  }

  /** Resolves to whether the key has a value. */
  has(key: KeyInput, options?: CallOptions): Promise<boolean> {
    return this.requestRead("has", [key], options);
  }

  /** Resolves to the values of several keys, in the order of the keys, as of one moment. */
  getMany(keys: Iterable<KeyInput>, options?: CallOptions): Promise<(Plain | undefined)[]> {
    return this.many(keys, options) as Promise<(Plain | undefined)[]>;
  }

  /** Resolves to the value of a key with its version, or `undefined` if the key is missing. */
  getEntry(
    key: KeyInput,
    options?: CallOptions,
  ): Promise<
    { value: Plain; version: number; uncertain: boolean; expires: Date | undefined } | undefined
  > {
    return this.requestRead("getEntry", [key], options);
  }

  /**
   * Stores a value under a key. With `ifVersion` only if the key has that version; 0 means that the key is
   * missing.
   *
   * @throws (rejects) ConflictError if the key has another version; nothing was written
   */
  set(
    key: KeyInput,
    value: Input,
    options?: CallOptions & ExpiryOptions & { ifVersion?: number | undefined },
  ): Promise<void> {
    const [setOptions, callOptions] = split(options);
    const args = () => {
      const [stored, forms] = this.encode(value);
      return [cloneArgs(key), stored, cloneArgs(setOptions), forms];
    };
    return this.requestWrite("set", args, callOptions);
  }

  /**
   * Stores a value under the number after all that are or were there, and resolves to that number. For
   * collections whose keys are `auto()`.
   */
  push(value: Input, options?: CallOptions): Promise<number> {
    return this.requestWrite("push", () => this.encode(value), options);
  }

  /** Changes when a record expires; its value stays. Resolves to whether it was there. */
  touch(key: KeyInput, options: ExpiryOptions & CallOptions): Promise<boolean> {
    const [expiry, callOptions] = split(options);
    return this.requestWrite("touch", () => cloneArgs([key, expiry]), callOptions);
  }

  /** Deletes a key. Resolves to whether it was there. */
  delete(key: KeyInput, options?: CallOptions): Promise<boolean> {
    return this.requestWrite("delete", () => cloneArgs([key]), options);
  }

  /** Deletes all records, or those of a range: all of them or none. Resolves to how many were deleted. */
  clear(range?: KeyRange<KeyInput>, options?: CallOptions): Promise<number> {
    return this.requestWrite("clear", () => cloneArgs([range]), options);
  }

  /** Runs several writes in the given order, all of them or none. */
  batch(
    operations: readonly (
      | { readonly type: "set"; readonly key: KeyInput; readonly value: Input }
      | { readonly type: "delete"; readonly key: KeyInput }
    )[],
    options?: CallOptions,
  ): Promise<void> {
    const args = () =>
      Symbol.iterator in Object(operations)
        ? [Array.from(operations, (operation) => this.encodeOperation(operation))]
        : cloneArgs([operations]);
    return this.requestWrite("batch", args, options);
  }

  /**
   * Changes fields as described by `change`, if its conditions hold: in one round trip, done exactly once. An
   * empty change, `{}`, returns whether the key exists and its value.
   *
   * ```ts
   * await products.update("yeezy", { add: { stock: -1 }, where: { stock: { gt: 0 } } });
   * ```
   */
  update(key: KeyInput, change: Update<Plain, Input>): Promise<Updated<Plain>>;
  update(key: KeyInput, change: Update<Plain, Input>, ...more: unknown[]): Promise<Updated<Plain>> {
    if (more.length > 0) throw badCall("update() takes its options within its second argument.");
    const [fields, callOptions] = split(change);
    return this.requestWrite(
      "update",
      () => [cloneArgs(key), ...this.encodeChange(fields)],
      callOptions,
    );
  }

  /**
   * Reads a value, lets `change` change a copy of it or return another value, and stores the result if the key
   * has not been written meanwhile. Otherwise it reads again and repeats, so `change` may run several times.
   * Resolves to whether the value was changed.
   *
   * @throws (rejects) ConflictError if other writes came first each time; what `change` throws
   */
  updateIf(
    key: KeyInput,
    change: (value: Plain) => unknown,
    options?: RemoteTypedUpdateOptions<Plain, Input>,
  ): Promise<boolean> {
    return updateIf(this.caller, this.name, key, change, options);
  }

  /**
   * Sends a write. `args` clones the arguments, which the program may change before they are sent, or sent
   * again.
   */
  private requestWrite<T>(
    call: string,
    args: () => readonly unknown[],
    options?: CallOptions,
  ): Promise<T> {
    return this.caller.request(call, args, true, options, this.name) as Promise<T>;
  }

  /** The forms in which a value is sent. */
  private encode(value: unknown): readonly [value: unknown, forms: Forms | undefined] {
    const sent = sentOf(value, this.caller.storingOf(this.name));
    return [sent.value, sent.forms];
  }

  private encodeOperation(given: unknown): unknown {
    if (Object(given) !== given || !("value" in (given as object))) return cloneArgs(given);
    const { value: stored, ...rest } = given as { value: unknown };
    const [value, forms] = this.encode(stored);
    return { ...cloneArgs(rest), value, ...(forms && { forms }) };
  }

  /** Encodes an update. Each field is encoded by itself, because fields are assigned one by one. */
  private encodeChange(given: unknown): readonly [change: unknown, forms?: object] {
    if (Object(given) !== given) return [given];
    const { set, valueIfMissing, ...rest } = given as Partial<Update<Record<never, never>, object>>;
    const change: Record<string, unknown> = cloneArgs(rest);
    const forms: Record<string, unknown> = {};
    if (Object(set) === set && !Array.isArray(set)) {
      const storing = this.caller.storingOf(this.name);
      const fields = Object.entries(set as object).map(
        ([name, value]) => [name, fieldOf(name, value, storing)] as const,
      );
      change.set = Object.fromEntries(fields.map(([name, { value }]) => [name, value]));
      forms.set = Object.fromEntries(fields.map(([name, field]) => [name, field.forms]));
    } else if ("set" in (given as object)) change.set = cloneArgs(set);
    if (valueIfMissing !== undefined) {
      [change.valueIfMissing, forms.valueIfMissing] = this.encode(valueIfMissing);
    }
    return [change, forms];
  }
}
