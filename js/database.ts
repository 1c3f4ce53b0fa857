/** The calls on an open database. */

import type { Key, Value } from "./bytes.js";
import {
  type Collection,
  type CollectionOptions,
  collectionOf,
  type MigrateOptions,
  migrated,
} from "./collection/collection.js";
import type { IndexSpecs } from "./collection/indexes.js";
import { asyncDispose } from "./dispose.js";
import type { Recovery, Verification } from "./engine-reports.js";
import { badArgument } from "./errors.js";
import { type Format, INSPECT } from "./inspect.js";
import {
  type CompactOptions,
  type Durability,
  type ExportOptions,
  type ExportProgress,
  refuseUnknown,
  type VerifyOptions,
} from "./options.js";
import { Pin } from "./pin.js";
import { type Bounds, type ByteRange, boundsOf, type Range, type TextRange } from "./range.js";
import { entriesOf, keysOf, type Scan, valuesOf } from "./scan.js";
import {
  type Change,
  closedSession,
  type DatabaseStats,
  type Session,
  type SetOptions,
  type Entry as StoredEntry,
  type UpdateOptions,
} from "./session.js";
import type { CustomCodec, Declared, Structure } from "./struct/codec.js";
import type { Given } from "./struct/custom.js";
import type { KeyInput, KeyOf, KeySpec } from "./struct/key.js";

/** One step of a batch. */
export type BatchOperation =
  | { readonly type: "set"; readonly key: Key; readonly value: Value }
  | { readonly type: "delete"; readonly key: Key };

/** A result that is no promise. What a transaction's function returns has to be one. */
export type Synchronous<T> = T extends PromiseLike<unknown> ? never : T;

/**
 * An open database. Made by `open`.
 *
 * **Views.** `get` and the callbacks of `updateIf` give a `Uint8Array` that is a view of the
 * database's own memory: no copy is made. It is good until your code yields (the next `await`, the
 * end of the callback that the runtime called). Kept longer it shows its own record or has length 0,
 * never another's. To keep bytes, copy them: `view.slice()`. Never write through a view of `get`,
 * store it or post it.
 *
 * **Errors.** Every call may throw, beside what is listed there:
 * - `DatabaseClosedError` after `close`
 * - once, the error of writes that failed since the last call (see `OpenOptions.onError`)
 * - `DatabasePoisonedError` after a failure inside the engine
 */
export class Database {
  private session: Session;
  /** The session for those that this handle hands out and that are asked more often than pins. */
  private readonly handle: { session: Session };
  private readonly leave: () => boolean;
  private readonly onError: ((error: Error) => void) | undefined;
  private closing: Promise<void> | undefined;
  private readonly source: () => Session;
  private readonly pins: Set<Pin>;

  /** @internal */
  constructor(
    session: Session,
    leave: () => boolean,
    onError: ((error: Error) => void) | undefined,
  ) {
    this.session = session;
    this.handle = { session };
    this.leave = leave;
    // A function of its own, so that one listener given to two handles is heard for each.
    this.onError = onError === undefined ? undefined : (error) => onError(error);
    this.closing = undefined;
    this.source = () => this.session;
    this.pins = new Set();
    session.addListener(this.onError);
  }

  /** @internal What keeps records of its own beside the program's goes through the session. */
  static sessionOf(db: Database): Session {
    return db.session;
  }

  /**
   * The value of a key as a view of the database's memory, or `undefined` when there is none.
   *
   * The view is good until your code yields; then copy it with `.slice()`. After a write to its key
   * it may show the old bytes or the new. It is for reading only.
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   */
  get(key: Key): Uint8Array<ArrayBuffer> | undefined {
    const { session } = this;
    if (session.gate !== 0) return session.carefulGet(key);
    return session.engine.get(key);
  }

  /**
   * The value of a key as a string, or `undefined` when there is none. It is a copy and lives on.
   *
   * @throws TypeError for a key that is none, and for a value that is not UTF-8
   * @throws StaleViewError for a key that is a dead view
   */
  getText(key: Key): string | undefined {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    const view = session.engine.get(key);
    return view === undefined ? undefined : decode(view);
  }

  /**
   * Whether there is a value for this key.
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   */
  has(key: Key): boolean {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    return session.engine.has(key);
  }

  /**
   * The values of several keys, as `get` gives them, in the order of the keys. All views are alive
   * when it returns, and good until your code yields. In a large database this takes half of what as
   * many calls of `get` take: they wait for memory one after the other, this for many records at once.
   *
   * @throws TypeError for what is no list of keys, and for a key that is none
   * @throws StaleViewError for a key that is a dead view
   * @throws OutOfMemoryError when the values are larger than the database's memory all together
   */
  getMany(keys: Iterable<Key>): (Uint8Array<ArrayBuffer> | undefined)[] {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    return session.getMany(keys);
  }

  /**
   * The value of a key and its version, or `undefined` when there is none. With the version, `set`
   * can make sure that nobody has written to the key since (see `SetOptions.ifVersion`). The value is
   * a view, like that of `get`.
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   */
  getEntry(key: Key): StoredEntry | undefined {
    return this.session.getEntry(key);
  }

  /**
   * How many keys there are, or how many of them lie in a range. Without a range it takes no time;
   * with one, as long as going over its keys.
   *
   * @throws TypeError for a range that is none, or when the database was opened with `ordered: false`
   * @throws StaleViewError for a bound that is a dead view
   */
  count(range?: Range): number {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    if (range === undefined) return session.engine.count();
    const bounds = this.bounds("count()", range, false);
    if (bounds.limit === 0) return 0;
    return Math.min(bounds.limit, session.engine.countRange(bounds));
  }

  /**
   * Deletes all keys, or those of a range: all of them or, if it throws, none. Says how many.
   *
   * @throws TypeError for a range that is none, or when the database was opened with `ordered: false`
   * @throws StaleViewError for a bound that is a dead view
   * @throws QuotaExceededError, DatabasePoisonedError, ReentrancyError, ReadOnlyError as `delete`
   */
  clear(range?: Range): number {
    const { session } = this;
    if (session.gate !== 0) session.admitWrite("clear()");
    const bounds = this.bounds("clear()", range, false);
    return bounds.limit === 0 ? 0 : session.clear(bounds, bounds.limit);
  }

  /**
   * The keys of a range, or all, in order, to go over with `for…of`. Nothing is read before that,
   * and each `for…of` begins anew. Leaving early leaves nothing behind.
   *
   * ```ts
   * for (const key of db.keys({ prefix: "user/", limit: 10 })) console.log(key);
   * ```
   *
   * **Writing meanwhile** is legal, also between two steps that are turns apart. Every key that is
   * there throughout is seen exactly once; one that is written or deleted meanwhile may be seen or
   * not, and never twice.
   *
   * Keys are strings, or with `keyAs: "bytes"` bytes: copies that are yours.
   *
   * @throws TypeError for a range that is none, or when the database was opened with
   * `ordered: false`; while going over it, for a key that is not UTF-8, unless keys are bytes
   * @throws StaleViewError for a bound that is a dead view
   * @throws DatabaseClosedError while going over it, after `close`
   * @throws StorageError while going over it, when the file cannot be read; `next` may be called again
   */
  keys(range?: TextRange): Scan<string>;
  keys(range: ByteRange): Scan<Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>> {
    return keysOf(this.source, this.bounds("keys()", range, true));
  }

  /**
   * The values of the keys of a range, or of all, in the order of their keys; see `keys` for going
   * over them and for writing meanwhile. Each is the value of its key as it is at that step.
   *
   * **A value is a view that is good until the next step**, so that a scan may be larger than the
   * database's memory. It is for reading only; to keep it, copy it with `.slice()`.
   *
   * @throws as `keys`
   */
  values(range?: Range): Scan<Uint8Array<ArrayBuffer>> {
    return valuesOf(this.source, this.bounds("values()", range, false));
  }

  /**
   * Pairs of key and value of a range, or of all, in the order of their keys; see `keys` for the keys
   * and for writing meanwhile, and `values` for how long a value is good.
   *
   * ```ts
   * for (const [key, value] of db.entries({ gte: "a", lt: "b" })) total += value.length;
   * ```
   *
   * @throws as `keys`
   */
  entries(range?: TextRange): Scan<[string, Uint8Array<ArrayBuffer>]>;
  entries(range: ByteRange): Scan<[Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>;
  entries(
    range?: TextRange | ByteRange,
  ): Scan<[string | Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>;
  entries(
    range?: TextRange | ByteRange,
  ): Scan<[string | Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]> {
    return entriesOf(this.source, this.bounds("entries()", range, true));
  }

  private bounds(call: string, range: Range | undefined, keyed: boolean): Bounds {
    this.session.admitRange(call);
    return boundsOf(call, range, keyed);
  }

  /**
   * Pins the value of a key: its bytes stay in memory, as they are now, until the pin is disposed,
   * whatever is written meanwhile. `undefined` when there is no such key. What was written so far is
   * handed to the file first, as by `commit`.
   *
   * ```ts
   * using lease = db.pin("picture"); // lease.bytes gives a living view, also after an await
   * ```
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   * @throws ReentrancyError inside a transaction or a callback
   * @throws QuotaExceededError, StorageError when handing on fails; all writes since the last commit are undone
   */
  pin(key: Key): Pin | undefined {
    const handle = this.session.pin(key);
    if (handle === 0) return undefined;
    const pin = new Pin(this.source, handle, (gone) => this.pins.delete(gone));
    this.pins.add(pin);
    return pin;
  }

  /**
   * Stores a value under a key, replacing what was there. The bytes are copied; what you passed is
   * yours again when the call returns. A view of this database is a legal key and value.
   *
   * It is acknowledged when its group is handed on: at the end of this turn, or by `commit` or
   * `flush`, or when `committed` or `flushed` resolve.
   *
   * @throws TypeError for a key or value that is none, too long, or in shared, resizable or detached memory
   * @throws StaleViewError for a key or value that is a dead view
   * @throws ConflictError when `ifVersion` is given and the key has another version; nothing was done
   * @throws QuotaExceededError when there is no room; nothing of this call was done
   * @throws DatabasePoisonedError when an earlier failure made the database read-only
   * @throws ReadOnlyError when it was opened with `readOnly`
   * @throws ReentrancyError inside a callback of `updateIf`
   */
  set(key: Key, value: Value, options?: SetOptions): void {
    const { session } = this;
    if (session.gate !== 0) session.admitWrite("set()");
    if (options !== undefined) session.admitVersion(options, session.engine.encodeKey(key));
    session.engine.set(key, value);
    if (!session.queued) session.queue();
  }

  /**
   * Removes a key. Says whether it was there.
   *
   * @throws TypeError for a key that is none
   * @throws StaleViewError for a key that is a dead view
   * @throws QuotaExceededError when there is no room to note it; nothing was done
   * @throws DatabasePoisonedError when an earlier failure made the database read-only
   * @throws ReentrancyError inside a callback of `updateIf`
   */
  delete(key: Key): boolean {
    const { session } = this;
    if (session.gate !== 0) session.admitWrite("delete()");
    const removed = session.engine.remove(key);
    if (removed && !session.queued) session.queue();
    return removed;
  }

  /**
   * Changes a value where it lies. The callback gets a view of the live bytes and writes into it, or
   * returns new bytes if the size is to change. Says whether it was changed.
   *
   * ```ts
   * db.updateIf("stock", (view) => { view[0]! -= 1 }, { predicate: (view) => view[0]! > 0 });
   * ```
   *
   * `false`: the predicate refused, or the key is missing and there is no `valueIfMissing`; nothing
   * was changed. If the callback or the predicate throws, or returns a promise, every byte is as it
   * was. Both may read the database; they must not write to it. The view is theirs until they return.
   *
   * @throws whatever the callback or the predicate throws
   * @throws TypeError for a bad key, option, predicate's answer or result, promises included
   * @throws StaleViewError for a key or value that is a dead view
   * @throws QuotaExceededError when there is no room; nothing was changed
   * @throws DatabasePoisonedError when an earlier failure made the database read-only
   * @throws ReentrancyError inside another callback of `updateIf`
   */
  updateIf(key: Key, change: Change, options?: UpdateOptions): boolean {
    const { session } = this;
    if (session.gate !== 0) session.admitWrite("updateIf()");
    return session.updateIf(key, change, options);
  }

  /**
   * Does several writes, all or none of them, in the order given.
   *
   * @throws TypeError for an operation that is none, with its number; nothing was done
   * @throws StaleViewError, QuotaExceededError, DatabasePoisonedError, ReentrancyError as `set`; nothing was done
   */
  batch(operations: readonly BatchOperation[]): void {
    const { session } = this;
    if (session.gate !== 0) session.admitWrite("batch()");
    if (!Array.isArray(operations)) {
      throw badArgument("batch() needs an array of operations.", operations);
    }
    session.transaction(() => {
      for (let index = 0; index < operations.length; index += 1) {
        this.perform(operations[index], index);
      }
    });
  }

  private perform(operation: BatchOperation | undefined, index: number): void {
    // The types promise more than a program in JavaScript keeps.
    if (typeof operation !== "object" || operation === null) {
      throw badArgument(`Operation ${index} of the batch has to be an object.`, operation);
    }
    if (operation.type === "set") this.set(operation.key, operation.value);
    else if (operation.type === "delete") this.delete(operation.key);
    else {
      const { type } = operation as { type?: unknown };
      throw badArgument(
        `Operation ${index} of the batch has to be of type "set" or "delete".`,
        type,
      );
    }
  }

  /**
   * A collection: records of one kind, in a keyspace of their own that the other calls of this
   * database never see. It is there with its first record; asking for it writes nothing.
   *
   * ```ts
   * const sessions = db.collection("sessions", json<Session>());
   * sessions.set("a1", { user: "ann", since: Date.now() });
   * ```
   *
   * The codec tells what its values are: `json()`, `text()`, a schema made by `struct`, all of
   * "varve/struct", or an object with two functions `encode` and `decode` of your own.
   *
   * Keys are strings. The option `key` has them be numbers, dates, or several of those, whose order is
   * that of their values, or has the collection count them:
   *
   * ```ts
   * db.collection("scores", Score, { key: [u32, desc(f64), str] }).get([7, 99.5, "ann"]);
   * db.collection("jobs", json<Job>(), { key: auto() }).push({ kind: "mail" });
   * ```
   *
   * The option `indexes` has the records of structs be kept in the order of their fields as well, by
   * every write and in the same commit:
   *
   * ```ts
   * const products = db.collection("products", Product, {
   *   indexes: { byStock: "stock", bySku: { fields: "sku", unique: true } },
   * });
   * for (const [key, product] of products.index.byStock.entries({ lt: 10 })) reorder(key, product);
   * ```
   *
   * @throws TypeError for a name, a codec or an option that is none
   * @throws SchemaMismatchError when the collection of this name holds something else, or has records
   * and not these indexes
   */
  collection<T, const S extends KeySpec | undefined = undefined>(
    name: string,
    codec: CustomCodec<T>,
    options?: CollectionOptions<S, undefined>,
  ): Collection<KeyOf<S>, T, T, T, KeyInput<S>>;
  collection<View, Writable, Input, const S extends KeySpec | undefined = undefined>(
    name: string,
    codec: Declared<View, Writable, Input>,
    options?: CollectionOptions<S, undefined>,
  ): Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>>;
  // The last one, since it is the one that the compiler tells of when none fits.
  collection<
    View,
    Writable,
    Input,
    const S extends KeySpec | undefined = undefined,
    const Specs extends IndexSpecs<View> = Record<never, never>,
  >(
    name: string,
    codec: Structure<View, Writable, Input>,
    options: CollectionOptions<S, Specs>,
  ): Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>, Specs>;
  collection<T>(
    name: string,
    codec: Given<T>,
    options: CollectionOptions<KeySpec | undefined> = {},
  ): Collection<unknown, T, T, T> {
    return collectionOf(this.handle, name, codec, options);
  }

  /**
   * Has a collection become what the program declares, and gives it: values of another schema are
   * converted, and indexes that are missing are built, others dropped. It takes slices of a few
   * milliseconds while the program goes on, and all of it becomes visible in one commit. Where nothing
   * has to change it changes nothing, so that a program may begin with it each time.
   *
   * ```ts
   * const products = await db.migrate("products", Product, {
   *   migrate: (old: { price: number }) => ({ cents: Math.round(old.price * 100) }),
   *   indexes: { byCents: "cents" },
   * });
   * ```
   *
   * `migrate` is given a copy of the old value; of a codec of two functions its bytes. Without it, fields of
   * the same name are taken over. Where the collection has keys of another kind, `rekey` makes the new ones:
   *
   * ```ts
   * await db.migrate("users", User, { key: u32, rekey: (key: string) => Number(key) });
   * ```
   *
   * While values are converted, the collection can be read and not written to; collections that were asked
   * for before end with it. While indexes are built, it can be written to. After a crash, or when `signal`
   * ended it, the next call goes on where it was.
   *
   * @throws (rejects) the reason of `signal`, what `migrate` and `onProgress` throw, and what the codec
   * throws for a value that is none: the collection is as it was
   * @throws (rejects) UniqueViolationError when records have the same values in a unique index
   * @throws (rejects) SchemaMismatchError when its keys are of another kind and there is no `rekey`
   * @throws (rejects) TypeError when `rekey` gives two records one key
   * @throws (rejects) QuotaExceededError, StorageError, ReadOnlyError, ReentrancyError as `set`
   */
  migrate<T, Old = unknown, const S extends KeySpec | undefined = undefined, OldKey = unknown>(
    name: string,
    codec: CustomCodec<T>,
    options?: MigrateOptions<S, undefined, Old, NoInfer<T>, OldKey>,
  ): Promise<Collection<KeyOf<S>, T, T, T, KeyInput<S>>>;
  migrate<
    View,
    Writable,
    Input,
    Old = unknown,
    const S extends KeySpec | undefined = undefined,
    OldKey = unknown,
  >(
    name: string,
    codec: Declared<View, Writable, Input>,
    options?: MigrateOptions<S, undefined, Old, NoInfer<Input>, OldKey>,
  ): Promise<Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>>>;
  migrate<
    View,
    Writable,
    Input,
    Old = unknown,
    const S extends KeySpec | undefined = undefined,
    const Specs extends IndexSpecs<View> = Record<never, never>,
    OldKey = unknown,
  >(
    name: string,
    codec: Structure<View, Writable, Input>,
    options: MigrateOptions<S, Specs, Old, NoInfer<Input>, OldKey>,
  ): Promise<Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>, Specs>>;
  migrate<T>(
    name: string,
    codec: Given<T>,
    options: MigrateOptions<KeySpec | undefined, unknown, unknown, T, unknown> = {},
  ): Promise<Collection<unknown, T, T, T>> {
    return migrated(this.handle, name, codec, options);
  }

  /**
   * Runs a function whose writes are kept all together or not at all, and gives its result. It is
   * synchronous, `tx` is this database, and every call on it inside takes part. A transaction inside
   * another is a part that can fail on its own. If the function throws, or returns a promise,
   * everything that it wrote is undone and the error goes on.
   *
   * @throws whatever the function throws
   * @throws TypeError when it is no function, or returned a promise
   * @throws ReentrancyError inside a callback of `updateIf`
   * @throws QuotaExceededError, StorageError when its writes could not be handed on; they are undone
   */
  transaction<T>(body: (tx: Database) => Synchronous<T>): T {
    const { session } = this;
    if (session.gate !== 0) session.admitIdle("transaction()");
    if (typeof body !== "function") throw badArgument("transaction() needs a function.", body);
    return session.transaction(() => body(this));
  }

  /**
   * Hands everything written so far to the file, now. After that a crash of the tab, the browser or
   * the process loses nothing of it.
   *
   * @throws QuotaExceededError, StorageError when that fails; all writes since the last commit are undone
   * @throws DatabasePoisonedError when an earlier failure made the database read-only
   * @throws ReentrancyError inside a transaction or a callback
   */
  commit(): void {
    this.session.commit();
  }

  /**
   * Hands everything written so far to the file and has the platform make it durable, now. After
   * that a loss of power loses nothing of it, as far as the platform's flush holds.
   *
   * @throws QuotaExceededError, StorageError when that fails. After a failed flush the database reads
   * and refuses writes.
   * @throws DatabasePoisonedError when an earlier failure made the database read-only
   * @throws ReentrancyError inside a transaction or a callback
   */
  flush(): void {
    this.session.flush();
  }

  /**
   * Gives back all room in the file that nothing current needs, a slice of a fraction of a
   * millisecond at a time, while the program goes on. It happens by itself as far as `spaceFactor`
   * asks for it.
   *
   * @throws the reason of `signal` when that is aborted, and what `onProgress` throws: what was done
   * until then stays done
   * @throws QuotaExceededError, StorageError when the file fails: nothing is lost by that
   * @throws ReadOnlyError when the database was opened with `readOnly`
   */
  async compact(options: CompactOptions = {}): Promise<void> {
    refuseUnknown("compact()", options, ["onProgress", "signal"]);
    const { onProgress, signal } = options;
    await this.session.compact(() => {
      signal?.throwIfAborted();
      if (onProgress === undefined) return;
      const { fileBytes, liveBytes } = this.session.stats();
      onProgress({ fileBytes, liveBytes });
      signal?.throwIfAborted();
    });
  }

  /**
   * Verifies all of the file that the database relies on, a few milliseconds at a time, while the
   * program goes on: both superblocks, every header, frame and record with its place in the index,
   * every large value, the checkpoint, and the room that has to be blank. What is damaged is reported
   * and not thrown, and nothing is written. A damaged database can be opened with `recovery`.
   *
   * @throws the reason of `signal` when that is aborted, and what `onProgress` throws
   * @throws StorageError when the file cannot be read
   */
  async verify(options: VerifyOptions = {}): Promise<Verification> {
    refuseUnknown("verify()", options, ["onProgress", "signal"]);
    const { onProgress, signal } = options;
    const total = this.session.stats().fileBytes;
    return this.session.verify((bytes) => {
      signal?.throwIfAborted();
      onProgress?.({ bytes: Math.min(bytes, total), total });
    });
  }

  /**
   * All that lives in the database, collections and indexes included, as the bytes of a file of its
   * own: nothing is in it of what was deleted or replaced, nor what the database keeps for itself. Kept
   * as a file it is a database like any other; `open(name, { from, readOnly: true })` opens the bytes
   * themselves, also where there are no files.
   *
   * ```ts
   * await bucket.put("shop.varve", new Response(db.export()).body);
   * ```
   *
   * It is a copy as of one moment after this call, made in memory before the first bytes come, a few
   * milliseconds at a time, while the program goes on reading and writing; in a Durable Object at once. Two
   * steps are made in one go, and take time with the number of keys: sorting them at the beginning, unless a
   * range was asked for before, and writing the index of the copy at the end. Versions begin anew in it. Who
   * cancels the stream ends the copying.
   *
   * @throws TypeError when the database was opened with `ordered: false`
   * @throws (who reads is told) the reason of `signal` when that is aborted, and what `onProgress` throws;
   * StorageError when the file cannot be read, CorruptionError for damage
   */
  export(options: ExportOptions = {}): ReadableStream<Uint8Array<ArrayBuffer>> {
    refuseUnknown("export()", options, ["onProgress", "signal"]);
    this.session.admitRange("export()");
    const cancelled = new AbortController();
    const { onProgress, signal } = options;
    const heed = (progress: ExportProgress) => {
      cancelled.signal.throwIfAborted();
      onProgress?.(progress);
    };
    const loaded = import("./export.js").then(({ exported }) =>
      exported(this.source, { onProgress: heed, signal }),
    );
    // Who reads is told, and nobody else.
    loaded.catch(() => {});
    return new ReadableStream({
      async pull(controller) {
        const chunk = (await loaded)();
        if (chunk === undefined) controller.close();
        else controller.enqueue(chunk);
      },
      cancel: (reason) => cancelled.abort(reason),
    });
  }

  /**
   * Resolves when all that was written so far has been handed to the file, and rejects with the
   * reason if it was undone instead. Nothing is rejected that nobody asked for.
   */
  get committed(): Promise<void> {
    return this.session.committed;
  }

  /**
   * Resolves when all that was written so far has been flushed, which asking for it brings about at
   * the end of this turn. Rejects with the reason if that failed.
   */
  get flushed(): Promise<void> {
    return this.session.flushed;
  }

  /**
   * Counts and sizes, as of now. But `usage`, `quota` and `persisted` a browser tells only in time:
   * they are what it said last. It is asked when the database is opened, and anew by each call of
   * this; until the first answer they are `undefined`, as they are for `memory()`.
   */
  stats(): DatabaseStats {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    return session.stats();
  }

  /** What opening found at the end of the file, and what it dropped there. */
  get recovery(): Recovery {
    return this.session.recovery;
  }

  /** When groups of writes are handed on. */
  get durability(): Durability {
    return this.session.durability;
  }

  /**
   * Closes this handle: what was written is committed and flushed first. With the last handle the
   * file is closed, all views die and the memory is given back. Closing twice is the same as once.
   *
   * The file is closed and free for others even if the promise rejects.
   *
   * @throws (rejects) QuotaExceededError, StorageError when the last writes failed
   * @throws (rejects) ReentrancyError inside a transaction or a callback; the handle stays open
   */
  close(): Promise<void> {
    if (this.closing !== undefined) return this.closing;
    try {
      this.session.admitClose();
    } catch (error) {
      // Refused and not begun: it is called again when what stood in its way is over.
      return Promise.reject(error);
    }
    this.closing = this.closeOnce();
    return this.closing;
  }

  private async closeOnce(): Promise<void> {
    const { session } = this;
    for (const pin of this.pins) pin.dispose();
    this.session = closedSession(session);
    this.handle.session = this.session;
    // Refs of this handle look at the gate no earlier than at this.
    session.engine.changes += 1;
    try {
      if (this.leave()) session.end();
      else session.leave();
    } finally {
      session.removeListener(this.onError);
    }
  }

  /** Closes this handle at the end of an `await using` block. */
  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal A console is not to throw, whatever has happened to the database. */
  [INSPECT](_depth: number, options: unknown, format: Format): string {
    const { name, engine, durability } = this.session;
    let facts: object;
    try {
      facts = this.closing === undefined ? { keys: engine.count(), durability } : { closed: true };
    } catch (error) {
      facts = { error };
    }
    return `Database "${name}" ${format(facts, options)}`;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function decode(view: Uint8Array<ArrayBuffer>): string {
  try {
    return utf8.decode(view);
  } catch (cause) {
    throw Object.assign(
      badArgument("The value is not UTF-8, so that it has no text. Use get() for its bytes."),
      { cause },
    );
  }
}
