/** Collections, `db.collection(…)`: records of one kind, in their own keyspace. */

import { badArgument, refuseMore } from "../errors/index.js";
import type { Scan } from "../session/cursor.js";
import { checkedExpireIn, type ExpiryOptions } from "../session/expiry.js";
import { type LocalRows, liveRange, watchRange } from "../session/live.js";
import { refuseUnknown } from "../session/options.js";
import type { SetOptions } from "../session/session.js";
import type { KeyChange, Watching, WatchOptions } from "../session/watching.js";
import type { Codec } from "../struct/codec.js";
import type { KeyInput, KeyOf, KeySpec } from "../struct/key.js";
import { type CodecInput, codecOf } from "../struct/value-codecs.js";
import { type Format, INSPECT } from "../util/inspect.js";
import { moduleAt } from "../util/modules.js";
import { Catalog, type CollectionContext, type Handle } from "./catalog.js";
import { entriesIn, keysIn, valuesIn } from "./cursor.js";
import { Index, indexesByName } from "./index-query.js";
import { type DeclaredIndex, declaredIndexes, type IndexValue } from "./indexes.js";
import type { LinesOptions, LinesSource, ToLinesOptions } from "./json-lines.js";
import { type KeyRange, type Keys, keyKindOf } from "./keys.js";
import { type Plain, watchedRange } from "./live.js";
import type { Migration } from "./migrate.js";
import { Ref } from "./record-ref.js";
import { clear, push, remove, store, type TypedUpdateOptions, touch, update } from "./writes.js";

/** The indexes of a collection, by name. */
export type IndexesOf<Specs, K, View, Input = unknown> = {
  readonly [N in keyof Specs]: Index<IndexValue<View, Specs[N], Input>, K, View>;
};

/** The options of `db.collection`. */
export interface CollectionOptions<S extends KeySpec | undefined = undefined, Specs = unknown> {
  /**
   * The indexes, by name: each is over one field or several. Those of plain objects need the option `type`. An
   * index can be added here only while the collection has no records; `db.migrate` builds indexes for one that has some.
   */
  indexes?: Specs;
  /**
   * After how many milliseconds the records expire that are set without an expiry of their own. It is part of this
   * declaration and not of the file: it counts for what this object writes.
   */
  expireIn?: number | undefined;
  /** What the keys are: a type of varve/struct, an array of types for tuples, or `auto()`. Strings by default. */
  key?: S;
}

/** A value and its version. */
export interface CollectionEntry<View> {
  /** The value, as `get` returns it. */
  readonly value: View;
  /** The version of the value. Every write gives a higher one. It survives closing and opening. */
  readonly version: number;
  /** Whether the value was salvaged from a damaged file whose lost writes may have changed or deleted the key. */
  readonly uncertain: boolean;
  /** From when on the key is absent; `undefined` if it does not expire. */
  readonly expires: Date | undefined;
}

/** One operation of a collection's batch. */
export type CollectionOperation<K, Input> =
  | { readonly type: "set"; readonly key: K; readonly value: Input }
  | { readonly type: "delete"; readonly key: K };

/** `void` as a return type: a function that is declared to return nothing may return anything. */
type Nothing = ReturnType<() => void>;

/**
 * Records of one kind. Made by `db.collection(name, codec)`.
 *
 * A collection has a keyspace of its own: the database's raw calls never see its records, and no prefix can
 * collide. Its calls take part in `db.transaction` like those of the database.
 *
 * What `get` returns depends on the codec. `json()` and `text()` make copies, which stay valid. A schema made
 * by `struct` gives a view, which reads the record in place and is valid until your code yields. Kept longer,
 * it shows its own record or throws `StaleViewError`; it never shows anything else. A view has its fields on
 * its prototype. So `{ ...view }` has none of them, whatever its type says, and cannot be stored, cloned or
 * posted; `view.snapshot()` gives a plain object.
 *
 * Every call may also throw what every call of a database may throw; see `Database`.
 */
export class Collection<K, View, Writable, Input, KeyInput = K, Specs = unknown> {
  /** The name of the collection. */
  readonly name: string;
  /** The declared indexes, by name. */
  readonly index: IndexesOf<Specs, K, View, Input>;
  private readonly handle: Handle;
  private readonly context: CollectionContext<K, View, Writable, Input, KeyInput>;

  /** @internal */
  constructor(
    handle: Handle,
    name: string,
    codec: Codec<View, Writable, Input>,
    keys: Keys<K, KeyInput>,
    indexes: readonly DeclaredIndex[],
    expireIn?: number | undefined,
  ) {
    this.name = name;
    this.handle = handle;
    const { session } = handle;
    if (indexes.length === 0) session.guard.assertReadable();
    else session.checkRange("collection() with indexes");
    const { fingerprint, kind } = codec;
    const declaration = { fingerprint, value: kind, key: keys.kind };
    const catalog = handle.catalog ?? Catalog.of(session.engine);
    const space = catalog.collection(name, declaration, indexes);
    const { closers } = handle;
    this.context = { source: () => handle.session, closers, space, keys, codec, expireIn };
    this.index = indexesOf(this.context, indexes) as IndexesOf<Specs, K, View, Input>;
  }

  /** @internal */
  [INSPECT](_depth: number, options: unknown, format: Format): string {
    const { keys, codec } = this.context;
    const { kind } = codec;
    const value = kind.kind === "struct" ? kind.name : kind.kind;
    const facts = { key: keys.kind, value, indexes: Object.keys(this.index) };
    return `Collection "${this.name}" ${format(facts, options)}`;
  }

  /** @internal Its form in JSON: what it holds is the memory of the database, which is no text. */
  protected toJSON(): string {
    return this.name;
  }

  /** Resolves when everything written so far is in the file. As the database's `committed`. */
  get committed(): Promise<void> {
    return this.handle.session.commits.committed;
  }

  /** @internal The bounds of a range, and the key codec. */
  reach(call: string, range: KeyRange<K> | undefined) {
    const { keys, space } = this.context;
    return {
      keyspace: () => space.keyspace,
      bounds: keys.bounds(call, range),
      keyOf: (bytes: Uint8Array<ArrayBuffer>): K => keys.decode(bytes),
      keyKind: keys.kind,
    };
  }

  /** @internal The address of a key's value, or 0 if it is missing. Its length is the engine's `foundLength()`. */
  find(key: KeyInput): number {
    const { session } = this.handle;
    session.guard.assertReadable();
    const { engine } = session;
    return engine.find(this.context.keys.encode(engine, key), this.context.space.keyspace);
  }

  /**
   * Returns the value of a key, or `undefined` if the key is missing.
   *
   * @throws TypeError for a bad key
   */
  get(key: KeyInput): View | undefined {
    const { session } = this.handle;
    if (session.guard.gate !== 0) session.assertLiveView();
    const { engine } = session;
    const { keys, space, codec } = this.context;
    const at = engine.find(keys.encode(engine, key), space.keyspace);
    if (at === 0) return undefined;
    if (session.guard.gate !== 0 && session.strict) return session.trackedView(codec, at);
    if (!engine.viewsHeld) session.holdViews();
    if (engine.mustCopy) return engine.copied(codec, at);
    return codec.view(engine.memory, at, engine.foundLength());
  }

  /**
   * Returns a handle of the record with this key, valid across yields and writes: its `value` is always the
   * current record.
   *
   * @throws TypeError for a bad key
   */
  ref(key: KeyInput): Ref<View> {
    const { session } = this.handle;
    session.guard.assertReadable();
    const { engine } = session;
    const { keys } = this.context;
    // Copy the key, because the program may change its array later.
    const own = keys.decode(engine.encoded(keys.encode(engine, key))) as unknown as KeyInput;
    return new Ref(engine, () => this.get(own));
  }

  /**
   * Returns whether the key has a value.
   *
   * @throws TypeError for a bad key
   */
  has(key: KeyInput): boolean {
    const { session } = this.handle;
    if (session.guard.gate !== 0) session.guard.assertReadable();
    const { engine } = session;
    return engine.find(this.context.keys.encode(engine, key), this.context.space.keyspace) !== 0;
  }

  /**
   * Returns the values of several keys, in the order of the keys. If they are views, all are valid when it
   * returns.
   *
   * @throws TypeError if `keys` is not iterable, or for a bad key
   * @throws OutOfMemoryError if views of all of them take more memory than the database has
   */
  getMany(keys: Iterable<KeyInput>): (View | undefined)[] {
    if (typeof keys !== "object" || typeof keys?.[Symbol.iterator] !== "function") {
      throw badArgument("getMany() needs an array or other iterable of keys.", keys);
    }
    // Read every key before the first lookup, because getters of a key object may write to the database.
    return Array.from(keys).map((key) => this.get(key));
  }

  /**
   * Returns the value of a key with its version, or `undefined` if the key is missing. With the version,
   * `set` can make sure that the key was not written since (see `SetOptions.ifVersion`).
   *
   * @throws TypeError for a bad key
   */
  getEntry(key: KeyInput): CollectionEntry<View> | undefined {
    const { session } = this.handle;
    session.guard.assertReadable();
    const { engine } = session;
    const { keyspace } = this.context.space;
    const version = engine.version(this.context.keys.encode(engine, key), keyspace);
    if (version === 0) return undefined;
    const uncertain = engine.isUncertain();
    const expires = session.foundExpiry();
    return { value: this.get(key) as View, version, uncertain, expires };
  }

  /**
   * Returns the number of records, in total or in a range. Without a range it takes no time; with one, as
   * long as going over its keys.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`
   */
  count(range?: KeyRange<KeyInput>): number {
    const { session } = this.handle;
    if (session.guard.gate !== 0) session.guard.assertReadable();
    const { keyspace } = this.context.space;
    if (range === undefined) return session.engine.count(keyspace);
    session.checkRange("count()");
    const bounds = this.context.keys.bounds("count()", range);
    if (bounds.limit === 0) return 0;
    return Math.min(bounds.limit, session.engine.countRange(bounds, keyspace));
  }

  /**
   * The keys of a range, or all keys, in order, for use in `for…of`. Each `for…of` starts again. Writing
   * during the loop is allowed: a key that is there throughout is seen exactly once.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`
   */
  keys(range?: KeyRange<KeyInput>): Scan<K> {
    this.handle.session.checkRange("keys()");
    return keysIn<K>(this.context, this.context.keys.bounds("keys()", range));
  }

  /**
   * The values of a range, or all values, in the order of their keys. A view is valid until the next step, so
   * a scan may be larger than the database's memory.
   *
   * @throws as `keys`
   */
  values(range?: KeyRange<KeyInput>): Scan<View> {
    this.handle.session.checkRange("values()");
    return valuesIn(this.context, this.context.keys.bounds("values()", range));
  }

  /**
   * The keys and values of a range, or all of them, as pairs in the order of the keys. A value is valid until
   * the next step, as with `values`. Use `after` and `limit` to go through the collection page by page. Copy
   * what a page keeps of a view during the loop:
   *
   * ```ts
   * const range = { after: lastKey, limit: 20 };
   * const page = Array.from(products.entries(range), ([key, product]) => ({ key, ...product.snapshot() }));
   * ```
   *
   * @throws as `keys`
   */
  entries(range?: KeyRange<KeyInput>): Scan<[K, View]> {
    this.handle.session.checkRange("entries()");
    return entriesIn(this.context, this.context.keys.bounds("entries()", range));
  }

  /**
   * Reports after each commit which keys of a range have changed, and their versions. See the database's `watch`.
   *
   * @throws as the database's `watch`
   */
  watch(range: KeyRange<KeyInput>, listener: (changes: readonly KeyChange<K>[]) => void): Watching;
  watch(
    range?: KeyRange<KeyInput>,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<K>[], void, undefined>;
  watch(
    range?: KeyRange<KeyInput>,
    to?: WatchOptions | ((changes: readonly KeyChange<K>[]) => void),
    ...more: unknown[]
  ) {
    return watchRange("watch()", this.watched("watch()", range), to, more);
  }

  /**
   * Gives the records of a range now and after every change in it, each time all of them, as plain objects. See the
   * database's `live`.
   *
   * ```ts
   * const watching = products.live({ limit: 20 }, (rows) => render(rows));
   * for await (const rows of products.live({ gte: id, lte: id })) console.log(rows[0]?.[1]); // one record
   * ```
   *
   * @throws as the database's `watch`
   */
  live(range: KeyRange<KeyInput>, listener: (rows: [K, Plain<View>][]) => void): Watching;
  live(
    range?: KeyRange<KeyInput>,
    options?: WatchOptions,
  ): AsyncGenerator<[K, Plain<View>][], void, undefined>;
  live(
    range?: KeyRange<KeyInput>,
    to?: WatchOptions | ((rows: [K, Plain<View>][]) => void),
    ...more: unknown[]
  ) {
    return liveRange("live()", this.watched("live()", range), to, more);
  }

  private watched(call: string, range: KeyRange<KeyInput> | undefined): LocalRows {
    const { context, handle } = this;
    handle.session.checkRange(call);
    return watchedRange(context as never, context.keys.bounds(call, range));
  }

  /**
   * Stores a value under a key and replaces what was there. If the value cannot be encoded, nothing is
   * written.
   *
   * @throws TypeError for a bad key
   * @throws what the codec throws for a bad value
   * @throws ConflictError if `ifVersion` is given and the key has another version; nothing was written
   * @throws UniqueViolationError if another record has the same values in a unique index; nothing was written
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as the database's `set`
   */
  set(key: KeyInput, value: Input, options?: SetOptions): void {
    const { session } = this.handle;
    if (session.guard.gate !== 0) session.guard.assertWritable("set()");
    const { context } = this;
    if (options !== undefined) {
      const encode = () => context.keys.encode(session.engine, key);
      session.checkVersion(options, encode, context.space.keyspace);
    }
    store(session, context, key, value, options);
  }

  /**
   * Changes when a record expires; its value stays. Returns whether it exists. See the database's `touch`.
   *
   * @throws TypeError for a bad key or option
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as `set`
   */
  touch(key: KeyInput, options: ExpiryOptions): boolean {
    const { session } = this.handle;
    if (session.guard.gate !== 0) session.guard.assertWritable("touch()");
    return touch(session, this.context, key, options);
  }

  /**
   * Stores a value under the number after all keys that are or were there, and returns that number. For
   * collections whose keys are `auto()`; see there.
   *
   * @throws TypeError if the keys are not `auto()`, if the database was opened with `ordered: false`, or after
   * the number 2^53 - 1
   * @throws as `set`
   */
  push(this: Collection<number, View, Writable, Input, number, Specs>, value: Input): number;
  push(
    this: Collection<number, View, Writable, Input, number, Specs>,
    value: Input,
    ...more: unknown[]
  ): number {
    const { session } = this.handle;
    if (more.length > 0) refuseMore("push()", more);
    if (session.guard.gate !== 0) session.guard.assertWritable("push()");
    return push(session, this.context, value);
  }

  /**
   * Deletes a key. Returns whether it was there.
   *
   * @throws TypeError for a bad key
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as the database's
   * `delete`
   */
  delete(key: KeyInput): boolean;
  delete(key: KeyInput, ...more: unknown[]): boolean {
    const { session } = this.handle;
    if (more.length > 0) refuseMore("delete()", more);
    if (session.guard.gate !== 0) session.guard.assertWritable("delete()");
    return remove(session, this.context, key);
  }

  /**
   * Changes a value, or replaces it with what the function returns. Returns whether it was changed.
   *
   * ```ts
   * products.updateIf("yeezy", (p) => { p.stock -= 1 }, { predicate: (p) => p.stock > 0 });
   * ```
   *
   * `false` means that the predicate refused, or that the key is missing and there is no `valueIfMissing`;
   * nothing was changed. If the function or the predicate throws or returns a promise, everything is as it
   * was. Both may read the database, but must not write to it. The views that they are given are valid until
   * they return.
   *
   * @throws whatever the function or the predicate throws
   * @throws TypeError for a bad key or option, or a wrong result of the predicate or function, promises
   * included
   * @throws what the codec throws for a bad value; nothing was changed
   * @throws UniqueViolationError if another record has the same values in a unique index; nothing was changed
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as the database's
   * `updateIf`
   */
  updateIf(
    key: KeyInput,
    change: (value: Writable) => Nothing | Input,
    options?: TypedUpdateOptions<KeyInput, View, Input>,
  ): boolean {
    const { session } = this.handle;
    if (session.guard.gate !== 0) session.guard.assertWritable("updateIf()");
    return update(session, this.context, key, change, options);
  }

  /**
   * Deletes all records, or those of a range: all of them or, if it throws, none. Returns how many were
   * deleted. To delete all takes no longer the more there are, with indexes too; a range costs its records.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as `delete`
   */
  clear(range?: KeyRange<KeyInput>): number;
  clear(range?: KeyRange<KeyInput>, ...more: unknown[]): number {
    const { session } = this.handle;
    refuseMore("clear()", more);
    if (session.guard.gate !== 0) session.guard.assertWritable("clear()");
    session.checkRange("clear()");
    return clear(session, this.context, this.context.keys.bounds("clear()", range));
  }

  /**
   * Runs several writes in the given order, all of them or none.
   *
   * @throws TypeError for a bad operation, key or value, with the number of the operation, counted from 0;
   * nothing was written
   * @throws what `set` and `delete` throw; nothing was written
   */
  batch(operations: readonly CollectionOperation<KeyInput, Input>[]): void;
  batch(operations: readonly CollectionOperation<KeyInput, Input>[], ...more: unknown[]): void {
    const { session } = this.handle;
    refuseMore("batch()", more);
    if (session.guard.gate !== 0) session.guard.assertWritable("batch()");
    session.batch(operations, this);
  }

  /**
   * Exports the records of a range, or all records, as JSON lines, each `{"key":…,"value":…}`: a stream of
   * bytes, such as a `Response` takes. Values are written as by `toJson` of varve/json. In keys, bigints are
   * strings of digits and bytes are base64. A record that is written meanwhile is exported as it is when its
   * turn comes. Other tasks run every few milliseconds, even if the reader never waits.
   *
   * @throws TypeError for a bad range or option
   * @throws (errors the stream) TypeError if the codec is two functions, which has no JSON; the reason of `signal`
   * if it is aborted, and what `onProgress` throws
   */
  toJsonLines(
    range?: KeyRange<KeyInput>,
    options: ToLinesOptions = {},
  ): ReadableStream<Uint8Array<ArrayBuffer>> {
    refuseUnknown("toJsonLines()", options, ["onProgress", "signal"]);
    const { signal } = options;
    const keys = this.keys(range);
    const context = this.context as unknown as CollectionContext<K, unknown, unknown, never, K>;
    const loaded = linesModule().then(({ lineWriter }) => lineWriter(context, keys, options));
    // Errors surface through the stream, so ignore the unhandled rejection here.
    loaded.catch(() => {});
    let abort = () => {};
    const done = () => signal?.removeEventListener("abort", abort);
    return new ReadableStream({
      start(controller) {
        abort = () => controller.error(signal?.reason);
        if (signal?.aborted) abort();
        else signal?.addEventListener("abort", abort, { once: true });
      },
      async pull(controller) {
        const next = await loaded;
        if (signal?.aborted) return;
        const chunk = await next();
        if (signal?.aborted) return;
        if (chunk !== undefined) controller.enqueue(chunk);
        else {
          done();
          controller.close();
        }
      },
      cancel: done,
    });
  }

  /**
   * Stores the records of JSON lines as `toJsonLines` writes them, and resolves to how many were stored.
   * Lines are stored as they arrive, in slices of a few milliseconds, each of which is one commit, while the
   * program goes on. It is as strict as `fromJson` of varve/json: the first wrong line ends it, and the records
   * before it stay.
   *
   * @throws (rejects) MalformedValueError or TypeError for a wrong line, which the message names
   * @throws (rejects) the reason of `signal`, what `onProgress` throws, and what reading the source throws
   * @throws (rejects) what `set` throws
   */
  async fromJsonLines(source: LinesSource, options: LinesOptions = {}): Promise<number> {
    const { readLines } = await linesModule();
    const context = this.context as unknown as CollectionContext<K, unknown, unknown, never, K>;
    const writableSession = () => {
      const { session } = this.handle;
      session.guard.assertWritable("fromJsonLines()");
      return session;
    };
    return readLines(context, writableSession, source, options);
  }
}

const linesModule = () => moduleAt<typeof import("./json-lines.js")>("collection/json-lines");

function indexesOf<K, View, Writable, Input, KeyInput>(
  context: CollectionContext<K, View, Writable, Input, KeyInput>,
  declared: readonly DeclaredIndex[],
): Record<string, Index<unknown, K, View>> {
  const indexes = indexesByName<Index<unknown, K, View>>(context.space.name);
  for (const { name, isSingle } of declared) {
    const space = context.space.indexes.find((index) => index.name === name);
    if (space !== undefined) indexes[name] = new Index(context, space, isSingle);
  }
  return indexes;
}

/** The options of `db.migrate`. */
export interface MigrateOptions<S extends KeySpec | undefined, Specs, Old, Input, OldKey>
  extends CollectionOptions<S, Specs>,
    Migration<Old, Input, KeyOf<S>, OldKey, KeyInput<S>> {}

/** Migrates a collection to its declaration, and returns it. */
export async function migrated<T>(
  handle: Handle,
  name: string,
  given: CodecInput<T>,
  options: MigrateOptions<KeySpec | undefined, unknown, unknown, T, unknown>,
): Promise<Collection<unknown, T, T, T>> {
  // Check now, and not after the first await: the call may be inside a transaction, which is over by then.
  handle.session.guard.assertOutsideCallback("migrate()");
  refuseUnknown("migrate()", options, [
    "key",
    "indexes",
    "expireIn",
    "migrate",
    "rekey",
    "onProgress",
    "signal",
  ]);
  const { key, indexes } = options;
  const expireIn = checkedExpireIn("migrate()", options.expireIn);
  const codec = codecOf(given);
  const declared = indexes === undefined ? undefined : declaredIndexes(indexes);
  const { migrate } = await moduleAt<typeof import("./migrate.js")>("collection/migrate");
  await migrate(handle, name, codec, keyKindOf(key), declared, options);
  return collectionOf(handle, name, codec, { key, indexes, expireIn });
}

/** Creates the `Collection` object for a name, a codec and options. */
export function collectionOf<T>(
  handle: Handle,
  name: string,
  codec: CodecInput<T>,
  options: CollectionOptions<KeySpec | undefined>,
): Collection<unknown, T, T, T> {
  refuseUnknown("collection()", options, ["key", "indexes", "expireIn"]);
  const { key, indexes } = options;
  const expireIn = checkedExpireIn("collection()", options.expireIn);
  const declared = declaredIndexes(indexes);
  return new Collection(handle, name, codecOf(codec), keyKindOf(key), declared, expireIn);
}
