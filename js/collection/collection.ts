/** `db.collection(…)`: records of one kind in a keyspace of their own. */

import { badArgument, OutOfMemoryError } from "../errors.js";
import { type Format, INSPECT } from "../inspect.js";
import { refuseUnknown } from "../options.js";
import type { Scan } from "../scan.js";
import type { SetOptions } from "../session.js";
import type { Codec } from "../struct/codec.js";
import { codecOf, type Given } from "../struct/custom.js";
import type { KeyInput, KeyOf, KeySpec } from "../struct/key.js";
import { Catalogue } from "./catalogue.js";
import type { Form, Handle } from "./form.js";
import { type DeclaredIndex, declaredIndexes, type IndexValue } from "./indexes.js";
import { type KeyRange, type Keys, keyKindOf } from "./keys.js";
import type { LinesOptions, LinesSource } from "./lines.js";
import { Index } from "./lookup.js";
import type { Migration } from "./migrate.js";
import { Ref } from "./ref.js";
import { entriesIn, keysIn, valuesIn } from "./scan.js";
import { clear, push, remove, store, type TypedUpdateOptions, update } from "./write.js";

/** The indexes of a collection that were declared so. */
export type IndexesOf<Specs, K, View, Input = unknown> = {
  readonly [N in keyof Specs]: Index<IndexValue<View, Specs[N], Input>, K, View>;
};

/** The options of `db.collection`. */
export interface CollectionOptions<S extends KeySpec | undefined = undefined, Specs = unknown> {
  /**
   * What to keep records in the order of, by names: fields of a struct, alone or several. Only a
   * collection without records gets new ones just so; `db.migrate` builds those of one that has some.
   */
  indexes?: Specs;
  /** What its keys are: a type of varve/struct, an array of them, or `auto()`. Strings when left out. */
  key?: S;
}

/** A value and its version. */
export interface CollectionEntry<View> {
  readonly value: View;
  /** Its version: every write gives a higher one. It survives closing and opening. */
  readonly version: number;
  /** Whether it was salvaged from a damaged file, of which lost writes may have changed or deleted the key. */
  readonly uncertain: boolean;
}

/** One step of a collection's batch. */
export type CollectionOperation<K, Input> =
  | { readonly type: "set"; readonly key: K; readonly value: Input }
  | { readonly type: "delete"; readonly key: K };

/** Also what a function returns that is declared to return nothing. */
type Nothing = ReturnType<() => void>;

/**
 * Records of one kind. Made by `db.collection(name, codec)`.
 *
 * Its keys are its own: the database's raw calls never see them, and no prefix can collide. Its calls
 * take part in `db.transaction` like those of the database.
 *
 * What `get` gives depends on the codec: `json()` and `text()` make copies, which live on; a schema
 * made by `struct` gives a view, which reads the record where it lies and is good until your code
 * yields. After that it throws `StaleViewError` rather than show anything else. A view has its fields on
 * its prototype, so that `{ ...view }` has none of them, whatever its type says, and cannot be stored,
 * cloned or posted: `view.snapshot()` is a plain object.
 *
 * Every call may throw what every call of a database may; see `Database`.
 */
export class Collection<K, View, Writable, Input, Given = K, Specs = unknown> {
  /** Its name. */
  readonly name: string;
  /** Its indexes, as they were declared, by their names. */
  readonly index: IndexesOf<Specs, K, View, Input>;
  private readonly handle: Handle;
  private readonly form: Form<K, View, Writable, Input, Given>;

  /** @internal */
  constructor(
    handle: Handle,
    name: string,
    codec: Codec<View, Writable, Input>,
    keys: Keys<K, Given>,
    indexes: readonly DeclaredIndex[],
  ) {
    this.name = name;
    this.handle = handle;
    const { session } = handle;
    if (indexes.length === 0) session.admitRead();
    else session.admitRange("collection() with indexes");
    const { fingerprint, kind } = codec;
    const declaration = { fingerprint, value: kind, key: keys.kind };
    const space = Catalogue.of(session.engine).collection(name, declaration, indexes);
    this.form = { source: () => handle.session, space, keys, codec };
    this.index = indexesOf(this.form, indexes) as IndexesOf<Specs, K, View, Input>;
  }

  /** @internal */
  [INSPECT](_depth: number, options: unknown, format: Format): string {
    const { keys, codec } = this.form;
    const { kind } = codec;
    const value = kind.kind === "struct" ? kind.name : kind.kind;
    const facts = { key: keys.kind, value, indexes: Object.keys(this.index) };
    return `Collection "${this.name}" ${format(facts, options)}`;
  }

  /** @internal Where the keys of a range lie, and what they are. */
  reach(call: string, range: KeyRange<K> | undefined) {
    const { keys, space } = this.form;
    return {
      keyspace: () => space.keyspace,
      bounds: keys.bounds(call, range),
      keyOf: (bytes: Uint8Array<ArrayBuffer>): K => keys.decode(bytes),
    };
  }

  /**
   * The value of a key, or `undefined` when there is none.
   *
   * @throws TypeError for a key that is none
   */
  get(key: Given): View | undefined {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitView();
    const { engine } = session;
    const { keys, space, codec } = this.form;
    const at = engine.find(keys.encode(engine, key), space.keyspace);
    return at === 0 ? undefined : codec.view(engine.memory, at, engine.foundLength());
  }

  /**
   * A handle of this key's record that stays valid across yields and writes: its `value` is always
   * the record as it is.
   *
   * @throws TypeError for a key that is none
   */
  ref(key: Given): Ref<View> {
    const { session } = this.handle;
    session.admitRead();
    const { engine } = session;
    const { keys } = this.form;
    // What the program passed may change, and is not to be read again.
    const own = keys.decode(engine.encoded(keys.encode(engine, key))) as unknown as Given;
    return new Ref(engine, () => this.get(own));
  }

  /**
   * Whether there is a value for this key.
   *
   * @throws TypeError for a key that is none
   */
  has(key: Given): boolean {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitRead();
    const { engine } = session;
    return engine.find(this.form.keys.encode(engine, key), this.form.space.keyspace) !== 0;
  }

  /**
   * The values of several keys, in the order of the keys. Views are all alive when it returns.
   *
   * @throws TypeError for what is no list of keys, and for a key that is none
   * @throws OutOfMemoryError when views of all of them take more memory than the database has
   */
  getMany(keys: Iterable<Given>): (View | undefined)[] {
    if (typeof keys !== "object" || typeof keys?.[Symbol.iterator] !== "function") {
      throw badArgument("getMany() needs an array of keys, or something else to iterate.", keys);
    }
    const wanted = Array.from(keys);
    const { memory } = this.handle.session.engine;
    // Reading a cold record may take memory and kill the views before it: then all are resident.
    for (let attempt = 0; attempt < 2; attempt++) {
      const { epoch } = memory;
      const views = wanted.map((key) => this.get(key));
      if (memory.epoch === epoch) return views;
    }
    throw new OutOfMemoryError(
      `The values of these ${wanted.length} keys of "${this.name}" take more memory than the database has. ` +
        "Get fewer at once, or open it with more memory.",
    );
  }

  /**
   * The value of a key and its version, or `undefined` when there is none. With the version, `set`
   * can make sure that nobody has written to the key since.
   *
   * @throws TypeError for a key that is none
   */
  getEntry(key: Given): CollectionEntry<View> | undefined {
    const { session } = this.handle;
    session.admitRead();
    const { engine } = session;
    const { keyspace } = this.form.space;
    const version = engine.version(this.form.keys.encode(engine, key), keyspace);
    if (version === 0) return undefined;
    const uncertain = engine.isUncertain();
    return { value: this.get(key) as View, version, uncertain };
  }

  /**
   * How many records there are, or how many of them lie in a range. Without a range it takes no time;
   * with one, as long as going over its keys.
   *
   * @throws TypeError for a range that is none, or when the database was opened with `ordered: false`
   */
  count(range?: KeyRange<Given>): number {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitRead();
    const { keyspace } = this.form.space;
    if (range === undefined) return session.engine.count(keyspace);
    session.admitRange("count()");
    const bounds = this.form.keys.bounds("count()", range);
    if (bounds.limit === 0) return 0;
    return Math.min(bounds.limit, session.engine.countRange(bounds, keyspace));
  }

  /**
   * The keys of a range, or all, in order, to go over with `for…of`. Each `for…of` begins anew, and
   * writing meanwhile is legal: what is there throughout is seen exactly once.
   *
   * @throws TypeError for a range that is none, or when the database was opened with `ordered: false`
   */
  keys(range?: KeyRange<Given>): Scan<K> {
    this.handle.session.admitRange("keys()");
    return keysIn<K>(this.form, this.form.keys.bounds("keys()", range));
  }

  /**
   * The values of a range, or all, in the order of their keys. A view is good until the next step, so
   * that a scan may be larger than the database's memory.
   *
   * @throws as `keys`
   */
  values(range?: KeyRange<Given>): Scan<View> {
    this.handle.session.admitRange("values()");
    return valuesIn(this.form, this.form.keys.bounds("values()", range));
  }

  /**
   * Pairs of key and value of a range, or of all, in the order of their keys; a value is good until the
   * next step, as those of `values`. With `after` and `limit` a program goes through it page by page. What
   * a page is to keep of views is copied while it goes:
   *
   * ```ts
   * const range = { after: lastKey, limit: 20 };
   * const page = Array.from(products.entries(range), ([key, product]) => ({ key, ...product.snapshot() }));
   * ```
   *
   * @throws as `keys`
   */
  entries(range?: KeyRange<Given>): Scan<[K, View]> {
    this.handle.session.admitRange("entries()");
    return entriesIn(this.form, this.form.keys.bounds("entries()", range));
  }

  /**
   * Stores a value under a key, replacing what was there. If the value cannot be encoded, nothing is
   * written.
   *
   * @throws TypeError for a key that is none
   * @throws what the codec throws for a value that is none
   * @throws ConflictError when `ifVersion` is given and the key has another version; nothing was done
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as the database's `set`
   */
  set(key: Given, value: Input, options?: SetOptions): void {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitWrite("set()");
    const { form } = this;
    if (options !== undefined) {
      const encode = () => form.keys.encode(session.engine, key);
      session.admitVersion(options, encode, form.space.keyspace);
    }
    store(session, form, key, value);
  }

  /**
   * Stores a value under the number above the last key, and gives that: for collections whose keys
   * are `auto()`.
   *
   * @throws TypeError when they are not, or when the database was opened with `ordered: false`
   * @throws as `set`
   */
  push(this: Collection<number, View, Writable, Input, number, Specs>, value: Input): number {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitWrite("push()");
    return push(session, this.form, value);
  }

  /**
   * Removes a key. Says whether it was there.
   *
   * @throws TypeError for a key that is none
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as the database's `delete`
   */
  delete(key: Given): boolean {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitWrite("delete()");
    return remove(session, this.form, key);
  }

  /**
   * Changes a value, or replaces it by what the function returns. Says whether it was changed.
   *
   * ```ts
   * products.updateIf("yeezy", (p) => { p.stock -= 1 }, { predicate: (p) => p.stock > 0 });
   * ```
   *
   * `false`: the predicate refused, or the key is missing and there is no `valueIfMissing`; nothing
   * was changed. If the function or the predicate throws, or returns a promise, everything is as it
   * was. Both may read the database; they must not write to it. What they are given is theirs until
   * they return.
   *
   * @throws whatever the function or the predicate throws
   * @throws TypeError for a bad key, option, predicate's answer or result, promises included
   * @throws what the codec throws for a value that is none; nothing was changed
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as the database's `updateIf`
   */
  updateIf(
    key: Given,
    change: (value: Writable) => Nothing | Input,
    options?: TypedUpdateOptions<Given, View, Input>,
  ): boolean {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitWrite("updateIf()");
    return update(session, this.form, key, change, options);
  }

  /**
   * Deletes all records, or those of a range: all of them or, if it throws, none. Says how many.
   *
   * @throws TypeError for a range that is none, or when the database was opened with `ordered: false`
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as `delete`
   */
  clear(range?: KeyRange<Given>): number {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitWrite("clear()");
    session.admitRange("clear()");
    return clear(session, this.form, this.form.keys.bounds("clear()", range));
  }

  /**
   * Does several writes, all or none of them, in the order given.
   *
   * @throws TypeError for an operation, a key or a value that is none, with its number; nothing was done
   * @throws what `set` and `delete` throw; nothing was done
   */
  batch(operations: readonly CollectionOperation<Given, Input>[]): void {
    const { session } = this.handle;
    if (session.gate !== 0) session.admitWrite("batch()");
    session.batch(operations, this);
  }

  /**
   * The records of a range, or all, as JSON lines, each `{"key":…,"value":…}`: a stream of bytes, such as
   * a `Response` takes. Values are as `toJson` of varve/json writes them; bigints in keys are strings
   * of digits, and bytes base64. Records that are written meanwhile are as they are when their turn comes.
   *
   * @throws TypeError for a range that is none, or a codec of two functions, which has no JSON
   */
  toJsonLines(range?: KeyRange<Given>): ReadableStream<Uint8Array<ArrayBuffer>> {
    const keys = this.keys(range);
    const form = this.form as unknown as Form<K, unknown, unknown, never, K>;
    const loaded = import("./lines.js").then(({ lineWriter }) => lineWriter(form, keys));
    // Who reads is told, and nobody else.
    loaded.catch(() => {});
    return new ReadableStream({
      async pull(controller) {
        const chunk = (await loaded)();
        if (chunk === undefined) controller.close();
        else controller.enqueue(chunk);
      },
    });
  }

  /**
   * Stores the records that JSON lines tell of, as `toJsonLines` writes them, and gives how many. Lines
   * are stored as they come, in slices of a few milliseconds, while the program goes on. It is strict
   * as `fromJson` of varve/json is: the first line that is wrong ends it, and what came before stays.
   *
   * @throws (rejects) MalformedValueError or TypeError for a line that is wrong, which it names
   * @throws (rejects) the reason of `signal`, what `onProgress` throws, and what reading the source throws
   * @throws (rejects) what `set` throws
   */
  async fromJsonLines(source: LinesSource, options: LinesOptions = {}): Promise<number> {
    const { readLines } = await import("./lines.js");
    const form = this.form as unknown as Form<K, unknown, unknown, never, K>;
    const admit = () => {
      const { session } = this.handle;
      session.admitWrite("fromJsonLines()");
      return session;
    };
    return readLines(form, admit, source, options);
  }
}

function indexesOf<K, View, Writable, Input, Given>(
  form: Form<K, View, Writable, Input, Given>,
  declared: readonly DeclaredIndex[],
): Record<string, Index<unknown, K, View>> {
  const indexes: Record<string, Index<unknown, K, View>> = Object.create(null);
  for (const { name, lone } of declared) {
    const space = form.space.indexes.find((index) => index.name === name);
    if (space !== undefined) indexes[name] = new Index(form, space, lone);
  }
  return indexes;
}

/** The options of `db.migrate`. */
export interface MigrateOptions<S extends KeySpec | undefined, Specs, Old, Input, OldKey>
  extends CollectionOptions<S, Specs>,
    Migration<Old, Input, KeyOf<S>, OldKey, KeyInput<S>> {}

/** Has a collection become what a program declares, and gives it. */
export async function migrated<T>(
  handle: Handle,
  name: string,
  given: Given<T>,
  options: MigrateOptions<KeySpec | undefined, unknown, unknown, T, unknown>,
): Promise<Collection<unknown, T, T, T>> {
  // At once: what it waits for may be the end of a transaction.
  handle.session.admitOutside("migrate()");
  refuseUnknown("migrate()", options, [
    "key",
    "indexes",
    "migrate",
    "rekey",
    "onProgress",
    "signal",
  ]);
  const { key, indexes } = options;
  const codec = codecOf(given);
  const declared = indexes === undefined ? undefined : declaredIndexes(indexes);
  const { migrate } = await import("./migrate.js");
  await migrate(handle, name, codec, keyKindOf(key), declared, options);
  return collectionOf(handle, name, codec, { key, indexes });
}

/** The collection of a database that a program asks for. */
export function collectionOf<T>(
  handle: Handle,
  name: string,
  codec: Given<T>,
  options: CollectionOptions<KeySpec | undefined>,
): Collection<unknown, T, T, T> {
  refuseUnknown("collection()", options, ["key", "indexes"]);
  const { key, indexes } = options;
  return new Collection(handle, name, codecOf(codec), keyKindOf(key), declaredIndexes(indexes));
}
