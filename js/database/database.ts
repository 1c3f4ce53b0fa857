/** `Database`: a handle of an open database. */

import { Catalog } from "../collection/catalog.js";
import {
  type Collection,
  type CollectionOptions,
  collectionOf,
  type MigrateOptions,
  migrated,
} from "../collection/collection.js";
import type { IndexSpecs, KnownIndexes } from "../collection/indexes.js";
import type { History, Recovery, Verification } from "../engine/reports.js";
import { RAW } from "../engine/wasm-memory.js";
import { badArgument, refuseMore } from "../errors/index.js";
import { entriesOf, keysOf, type Scan, type Source, valuesOf } from "../session/cursor.js";
import type { ExpiryOptions } from "../session/expiry.js";
import {
  type Bounds,
  type ByteRange,
  boundsOf,
  type Range,
  type TextRange,
} from "../session/key-range.js";
import { type LocalRows, liveRange, watchRange } from "../session/live.js";
import {
  type CompactOptions,
  type Durability,
  type ExportOptions,
  type ExportProgress,
  refuseUnknown,
  type VerifyOptions,
} from "../session/options.js";
import { Pin } from "../session/pinned-value.js";
import type {
  Change,
  DatabaseStats,
  Entry,
  Session,
  SetOptions,
  TransactionOptions,
  UpdateOptions,
} from "../session/session.js";
import { keyText, textOf } from "../session/value-text.js";
import type { KeyChange, Watching, WatchOptions } from "../session/watching.js";
import type { CustomCodec, Declared, Whole } from "../struct/codec.js";
import type { KeyInput, KeyOf, KeySpec } from "../struct/key.js";
import type { CodecInput } from "../struct/value-codecs.js";
import type { Key, Value } from "../util/bytes.js";
import { asyncDispose } from "../util/dispose.js";
import { type Format, INSPECT } from "../util/inspect.js";
import { moduleAt } from "../util/modules.js";
import {
  type ChangesOptions,
  changesOf,
  type FollowedTransaction,
  type FollowOptions,
  followed,
  marksOf,
  retain,
} from "./changes.js";
import { itemsOf, transactionsOf } from "./log.js";
import type { LogOptions } from "./log-options.js";
import type { LogItem, LogRecord, LogTransaction } from "./log-records.js";
import type { PackOptions } from "./pack.js";
import { cursorIn, snapshotAt } from "./past.js";
import { Snapshot } from "./snapshot.js";
import { type UndoOptions, undone } from "./undo.js";

/** One operation of a batch. */
export type BatchOperation =
  | { readonly type: "set"; readonly key: Key; readonly value: Value }
  | { readonly type: "delete"; readonly key: Key };

/** A result that is not a promise or a generator. The function of a transaction has to return such a result. */
export type Synchronous<T> = T extends PromiseLike<unknown> | Generator | AsyncGenerator
  ? "A transaction is synchronous: its function must not be async or a generator."
  : T;

/** Keys outside of collections, as they are watched. */
const RAW_ROWS = {
  keyspace: () => RAW,
  valueAt: ({ engine }: Session, at: number) => engine.copyAt(at, engine.foundLength()),
};

const asItIs = (key: Uint8Array<ArrayBuffer>) => key;

/**
 * An open database. Made by `open`.
 *
 * **Views.** `get` and the callbacks of `updateIf` give a `Uint8Array` that is a view of the database's own
 * memory, not a copy. It is valid until your code yields: at the next `await`, or at the end of the callback
 * that the runtime called. Kept longer, it shows its own record or has length 0, but never another record. To
 * keep the bytes, copy them with `view.slice()`. Never write through a view from `get`, store it or post it.
 *
 * **Errors.** Besides the errors that it lists, every call may throw:
 *
 * - `DatabaseClosedError` after `close`
 * - once, the error of writes that failed since the last call (see `OpenOptions.onError`)
 * - `DatabasePoisonedError` after a failure inside the engine
 * - `StorageError` if it needs the file and the file cannot be read, `CorruptionError` if what it reads is
 *   damaged
 */
export class Database {
  private session: Session;
  /** Gives the session to objects made by this handle that are used more often than pins. */
  private readonly handle: { session: Session; readonly closers: Set<() => void> };
  private readonly source: Source;
  private readonly pins: Set<Pin>;
  /** Whether the database keeps its history: the option `history`, as it was when the database was created. */
  readonly history: History;
  private readonly snapshots: Set<Snapshot>;
  private readonly leave: () => boolean;
  private readonly onError: ((error: Error) => void) | undefined;
  /** Called when the handle closes. */
  private readonly closers: Set<() => void>;
  private closing: Promise<void> | undefined;

  /** @internal */
  constructor(
    session: Session,
    leave: () => boolean,
    onError: ((error: Error) => void) | undefined,
  ) {
    this.session = session;
    this.source = () => this.session;
    this.pins = new Set();
    this.snapshots = new Set();
    this.history = session.engine.stats().history;
    this.leave = leave;
    // Wrap the listener, so that a function given to two handles is called once for each.
    this.onError = onError === undefined ? undefined : (error) => onError(error);
    this.closers = new Set();
    this.handle = { session, closers: this.closers };
    this.closing = undefined;
    session.commits.addListener(this.onError);
  }

  /** @internal The session, for modules that store records of their own. */
  static sessionOf(db: Database): Session {
    return db.session;
  }

  /**
   * Returns a view of the value in the database's memory, or `undefined` if the key is missing.
   *
   * The view is valid until your code yields. When the views of one turn show all of the database's memory
   * (the option `memory`), the next ones are copies, in buffers of their own, and a call that needs more than
   * as much memory again throws `OutOfMemoryError`, so that no view ends. To keep the bytes, copy them with
   * `.slice()`. After a write to its key it may show the old bytes or the new ones. It is for reading only.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a detached view
   */
  get(key: Key): Uint8Array<ArrayBuffer> | undefined {
    const { session } = this;
    if (session.guard.gate !== 0) return session.getChecked(key);
    const { engine } = session;
    const view = engine.get(key);
    if (!engine.viewsHeld && view !== undefined) session.holdViews();
    return view;
  }

  /**
   * Returns the value as a string, or `undefined` if the key is missing. The string is a copy, so it stays
   * valid.
   *
   * @throws TypeError for a bad key, and if the value is not UTF-8
   * @throws StaleViewError if the key is a detached view
   */
  getText(key: Key): string | undefined {
    const { session } = this;
    if (session.guard.gate !== 0) session.guard.assertReadable();
    const view = session.engine.get(key);
    return view === undefined ? undefined : textOf(view);
  }

  /**
   * Returns whether the key has a value.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a detached view
   */
  has(key: Key): boolean {
    const { session } = this;
    if (session.guard.gate !== 0) session.guard.assertReadable();
    return session.engine.has(key);
  }

  /**
   * Returns the values of several keys, as `get` does, in the order of the keys. All views are valid when it
   * returns, and valid until your code yields. In a large database this takes half the time of as many calls
   * of `get`: those wait for memory one after the other, this waits for many records at once.
   *
   * @throws TypeError if `keys` is not iterable, or for a bad key
   * @throws StaleViewError if a key is a detached view
   * @throws OutOfMemoryError if all values together are larger than the database's memory
   */
  getMany(keys: Iterable<Key>): (Uint8Array<ArrayBuffer> | undefined)[] {
    const { session } = this;
    if (session.guard.gate !== 0) session.guard.assertReadable();
    return session.getMany(keys);
  }

  /**
   * Returns the value of a key with its version, or `undefined` if the key is missing. With the version,
   * `set` can make sure that the key was not written since (see `SetOptions.ifVersion`). The value is a
   * view, like that of `get`.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a detached view
   */
  getEntry(key: Key): Entry | undefined {
    return this.session.getEntry(key);
  }

  /**
   * Returns the number of keys, in total or in a range. Without a range it takes no time; with one, as long
   * as going over its keys. Like all calls for keys, it does not see collections: `stats().records` is the
   * number of all records.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`
   * @throws StaleViewError if a bound is a detached view
   */
  count(range?: Range): number {
    const { session } = this;
    if (session.guard.gate !== 0) session.guard.assertReadable();
    if (range === undefined) return session.engine.count();
    const bounds = this.bounds("count()", range, false);
    if (bounds.limit === 0) return 0;
    return Math.min(bounds.limit, session.engine.countRange(bounds));
  }

  /**
   * The keys of a range, or all keys, in order, for use in `for…of`. Nothing is read before that, and each
   * `for…of` starts again. A loop may be left early.
   *
   * ```ts
   * for (const key of db.keys({ prefix: "user/", limit: 10 })) console.log(key);
   * ```
   *
   * **Writing during the loop** is allowed, also between two steps in different turns. A key that is there
   * throughout is seen exactly once. A key that is written or deleted meanwhile may be seen or not, but never
   * twice.
   *
   * Keys are strings or, with `keyAs: "bytes"`, bytes: copies that you may keep.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`; during the loop,
   * for a key that is not UTF-8, unless keys are bytes
   * @throws StaleViewError if a bound is a detached view
   * @throws DatabaseClosedError during the loop, after `close`
   * @throws StorageError during the loop, if the file cannot be read; `next` may be called again
   */
  keys(range?: TextRange): Scan<string>;
  keys(range: ByteRange): Scan<Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>> {
    return keysOf(this.source, this.bounds("keys()", range, true));
  }

  /**
   * The values of a range, or all values, in the order of their keys. See `keys` for the loop and for writing
   * during it. Each value is that of its key at that step.
   *
   * **A value is a view that is valid until the next step**, so a scan may be larger than the database's
   * memory. It is for reading only; to keep it, copy it with `.slice()`.
   *
   * @throws as `keys`
   */
  values(range?: Range): Scan<Uint8Array<ArrayBuffer>> {
    return valuesOf(this.source, this.bounds("values()", range, false));
  }

  /**
   * The keys and values of a range, or all of them, as pairs in the order of the keys. See `keys` for the
   * keys and for writing during the loop, and `values` for how long a value is valid.
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

  /**
   * Reports after each commit which keys of a range have changed, and their versions, whichever handle wrote them. What
   * a turn writes is reported together. Without a listener it is an async iterable. The watch begins with the loop.
   * Changes that come while the loop body runs are given together, each key once. `break` and `signal` end it.
   *
   * ```ts
   * const watching = db.watch({ prefix: "cart/" }, (changes) => render(changes)); // until watching.close()
   * for await (const changes of db.watch({ prefix: "cart/" }, { signal })) { … }
   * ```
   *
   * The listener is called after the writing turn, and never within a write or a transaction. What is rolled back is not
   * reported. A key that was set and then set back between two reports has another version, and is reported. A
   * key that expires is reported then. An error that a listener throws harms neither a write nor the watch: it is an uncaught error.
   *
   * A watch takes memory by the number of keys in its range, and each report takes time by the number of written
   * keys. It ends with the handle. If its range cannot be read any more, the loop throws the reason; with a listener,
   * `ended` rejects with it, which is an unhandled rejection unless it is handled.
   *
   * @throws TypeError for a bad range or option, a generator, or if the database was opened with `ordered: false`
   * @throws ReentrancyError inside a transaction or a callback
   * @throws StorageError if it begins and the file cannot be read
   */
  watch(
    range: ByteRange,
    listener: (changes: readonly KeyChange<Uint8Array<ArrayBuffer>>[]) => void,
  ): Watching;
  watch(
    range: ByteRange,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<Uint8Array<ArrayBuffer>>[], void, undefined>;
  watch(range: TextRange, listener: (changes: readonly KeyChange<string>[]) => void): Watching;
  watch(
    range?: TextRange,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<string>[], void, undefined>;
  watch(
    range?: TextRange | ByteRange,
    to?: WatchOptions | ((changes: readonly KeyChange<never>[]) => void),
    ...more: unknown[]
  ): unknown {
    return watchRange("watch()", this.watched("watch()", range), to, more);
  }

  /**
   * Gives the keys and values of a range now, and again after every change in it: each time all of them, as of one
   * moment. The array is a new one each time, but a row that has not changed is the same object as before: copy a row before
   * you change it. Values are copies, which stay as they are. One key is the range `{ gte: key, lte: key }`. The
   * listener is first called after this turn. A loop that is slower than the changes is given the latest state.
   * Everything else is as for `watch`.
   *
   * ```ts
   * db.live({ prefix: "cart/", limit: 20 }, (rows) => render(rows));
   * ```
   *
   * @throws as `watch`
   */
  live(
    range: ByteRange,
    listener: (rows: [Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>][]) => void,
  ): Watching;
  live(
    range: ByteRange,
    options?: WatchOptions,
  ): AsyncGenerator<[Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>][], void, undefined>;
  live(range: TextRange, listener: (rows: [string, Uint8Array<ArrayBuffer>][]) => void): Watching;
  live(
    range?: TextRange,
    options?: WatchOptions,
  ): AsyncGenerator<[string, Uint8Array<ArrayBuffer>][], void, undefined>;
  live(
    range?: TextRange | ByteRange,
    to?: WatchOptions | ((rows: never) => void),
    ...more: unknown[]
  ): unknown {
    return liveRange("live()", this.watched("live()", range), to, more);
  }

  private watched(call: string, range: TextRange | ByteRange | undefined): LocalRows {
    const { closers, source } = this;
    const bounds = this.bounds(call, range, true);
    return { source, closers, bounds, ...RAW_ROWS, keyOf: bounds.asBytes ? asItIs : keyText };
  }

  private bounds(call: string, range: Range | undefined, keyed: boolean): Bounds {
    this.session.checkRange(call);
    return boundsOf(call, range, keyed);
  }

  /**
   * Pins the value of a key: its bytes stay in memory, unchanged, until the pin is disposed, whatever is
   * written meanwhile. Returns `undefined` if the key is missing. All writes so far are committed first, as
   * by `commit`.
   *
   * ```ts
   * using lease = db.pin("picture"); // lease.bytes gives a live view, also after an await
   * ```
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a detached view
   * @throws ReentrancyError inside a transaction or a callback
   * @throws QuotaExceededError, StorageError if that commit fails; all writes since the last commit are
   * undone
   */
  pin(key: Key): Pin | undefined {
    const handle = this.session.pin(key);
    if (handle === 0) return undefined;
    const pin = new Pin(this.source, handle, (gone) => this.pins.delete(gone));
    this.pins.add(pin);
    return pin;
  }

  /**
   * Takes a snapshot: an object with the calls that read, which show everything as it is now until it is closed,
   * across every `await` and write. All writes so far are committed first, as by `commit`. It takes no time by the
   * size of the database.
   *
   * ```ts
   * using then = db.snapshot();
   * for (const [key, value] of then.entries()) await upload(key, value.slice());
   * ```
   *
   * While it is open, no space of the file is reused that anything took then, so close it in time.
   *
   * @throws ReentrancyError inside a transaction or a callback
   * @throws QuotaExceededError, StorageError if that commit fails; all writes since the last commit are
   * undone
   */
  snapshot(): Snapshot {
    return this.shown(this.session.snapshot());
  }

  /**
   * The content as it was after a past commit, as a snapshot with the calls that read. For databases that keep their history
   * (`open` with `history: "keep"`). A number means the transaction with this number, or that which gave a key this
   * version, or the last one before; a `Date` the last transaction that was not later: only those with a note have a time,
   * the others count as having that of the last one before them that has one.
   *
   * ```ts
   * using past = db.at(number);
   * console.log(past.getText("price"));
   * ```
   *
   * Looking up a key costs some microseconds for each time that it has changed since. The first range or count, and the first
   * key that may have been deleted since, walk over the log since that commit, which takes some milliseconds for 10 MB,
   * and take memory by the number of keys that have changed. A record that expired is there until the commit that deleted it.
   *
   * @throws TypeError for a point that is none, for a number above `lastCommit`, if no transaction has a time up to the
   * `Date`, and if the database does not keep its history
   * @throws CursorExpiredError if `pack` has forgotten it, or the file was salvaged since
   * @throws CorruptionError, StorageError if the log is damaged or cannot be read
   * @throws as `snapshot`
   */
  at(point: number | Date): Snapshot {
    const cursor = cursorIn(this.source, "at()", point);
    return this.shown(snapshotAt(this.session, "at()", cursor));
  }

  private shown(number: number): Snapshot {
    const snapshot = new Snapshot(this.handle, number, (gone) => this.snapshots.delete(gone));
    this.snapshots.add(snapshot);
    return snapshot;
  }

  /**
   * Takes back a transaction, given by its number in `log`: a new one gives each key that it wrote the value that it had
   * before, with its expiry, or deletes it. Records of collections come back with their index entries. For databases that
   * keep their history.
   *
   * @throws ConflictError if a later transaction has changed any of these keys, which it names, or a collection of theirs
   * was being migrated then or was migrated since: nothing was changed
   * @throws UniqueViolationError if another record has the values now that would come back: nothing was changed
   * @throws TypeError for a bad number or option, if there is no such transaction, if the database was opened with
   * `ordered: false`, or does not keep its history
   * @throws CursorExpiredError if `pack` has forgotten what was before it
   * @throws ReentrancyError inside a transaction or a callback, and while a collection of theirs is being converted
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError as `set`
   */
  undo(number: number, options: UndoOptions = {}): void {
    undone(this.source, number, options);
  }

  /**
   * Forgets the history before a commit, so that its space can be used again: `at` shows that commit and later ones. It works
   * in slices of a few milliseconds while the program goes on, and resolves to the number of the first commit that can be
   * shown. What a mark of `retain` keeps is not forgotten, so that may be an earlier one than `before`.
   *
   * ```ts
   * await db.pack({ before: new Date(Date.now() - 30 * 86_400_000) });
   * ```
   *
   * @throws (rejects) the reason of `signal`, and what `onProgress` throws. From the beginning of the call on, earlier
   * commits cannot be shown; what space was not freed is freed by the next call.
   * @throws (rejects) TypeError as `at`, and for a bad option
   * @throws (rejects) ReentrancyError inside a transaction or a callback, and while another `pack` runs
   * @throws (rejects) QuotaExceededError, StorageError, ReadOnlyError as `compact`
   */
  async pack(options: PackOptions): Promise<number> {
    this.session.guard.assertOutsideCallback("pack()");
    const { packed } = await moduleAt<typeof import("./pack.js")>("database/pack");
    return packed(this.source, options);
  }

  /**
   * Stores a value under a key and replaces what was there. The bytes are copied: what you passed is yours
   * again when the call returns. Keys and values may be views of this database, or shared or resizable
   * memory, which is taken as it is during the call.
   *
   * The write is committed at the end of this turn (`"buffered"`: within 5 ms), which every `await` ends, or by
   * `commit` or `flush`. With `expireIn` or `expireAt`, the key is absent from then on; set without them, it
   * does not expire. For many rows see `transaction`. `committed` and `flushed` resolve when that is done.
   *
   * @throws TypeError for a key or value of a wrong type, too long, or in detached memory
   * @throws StaleViewError if the key or value is a detached view
   * @throws ConflictError if `ifVersion` is given and the key has another version; nothing was written
   * @throws QuotaExceededError if there is no space; nothing of this call was written
   * @throws DatabasePoisonedError if an earlier failure made the database read-only
   * @throws ReadOnlyError if the database was opened with `readOnly`
   * @throws ReentrancyError inside a callback of `updateIf`
   */
  set(key: Key, value: Value, options?: SetOptions): void {
    const { session } = this;
    if (session.guard.gate !== 0) session.guard.assertWritable("set()");
    if (options === undefined) session.engine.set(key, value);
    else session.setWith(key, value, options);
    if (!session.commits.queued) session.commits.queue();
  }

  /**
   * Changes when a key expires; its value stays. Returns whether the key exists. The record is written again, with a
   * new version. `{ expireIn: Infinity }` makes it stay for ever.
   *
   * ```ts
   * db.touch("session/7", { expireIn: 30 * 60_000 });
   * ```
   *
   * @throws TypeError for a bad key or option
   * @throws StaleViewError if the key is a detached view
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as `set`
   */
  touch(key: Key, options: ExpiryOptions): boolean {
    const { session } = this;
    if (session.guard.gate !== 0) session.guard.assertWritable("touch()");
    return session.touch(key, options);
  }

  /**
   * Deletes a key. Returns whether it was there.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a detached view
   * @throws QuotaExceededError if there is no space to record the deletion; nothing was deleted
   * @throws DatabasePoisonedError if an earlier failure made the database read-only
   * @throws ReadOnlyError if the database was opened with `readOnly`
   * @throws ReentrancyError inside a callback of `updateIf`
   */
  delete(key: Key): boolean;
  delete(key: Key, ...more: unknown[]): boolean {
    const { session } = this;
    if (more.length > 0) refuseMore("delete()", more);
    if (session.guard.gate !== 0) session.guard.assertWritable("delete()");
    const removed = session.engine.remove(key);
    if (removed && !session.commits.queued) session.commits.queue();
    return removed;
  }

  /**
   * Deletes all keys, or those of a range: all of them or, if it throws, none. Returns how many were deleted.
   * Deleting all keys takes the time and the space of deleting one key, and their space is freed in the background.
   * Deleting a range takes time and space for each of its keys.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`
   * @throws StaleViewError if a bound is a detached view
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as `delete`
   */
  clear(range?: Range): number;
  clear(range?: Range, ...more: unknown[]): number {
    const { session } = this;
    refuseMore("clear()", more);
    if (session.guard.gate !== 0) session.guard.assertWritable("clear()");
    const bounds = this.bounds("clear()", range, false);
    return bounds.limit === 0 ? 0 : session.clear(bounds, bounds.limit);
  }

  /**
   * Changes a value in place. The callback is given a view of the current bytes and writes into it, or
   * returns new bytes to change the size. Returns whether the value was changed.
   *
   * ```ts
   * db.updateIf("stock", (view) => { view[0]! -= 1 }, { predicate: (view) => view[0]! > 0 });
   * ```
   *
   * `false` means that the predicate refused, or that the key is missing and there is no `valueIfMissing`;
   * nothing was changed. If the callback or the predicate throws or returns a promise, every byte is as it
   * was. Both may read the database, but must not write to it. The view is valid until they return.
   *
   * @throws whatever the callback or the predicate throws
   * @throws TypeError for a bad key or option, or a wrong result of the predicate or callback, promises
   * included
   * @throws StaleViewError if a key or value is a detached view
   * @throws QuotaExceededError if there is no space; nothing was changed
   * @throws DatabasePoisonedError if an earlier failure made the database read-only
   * @throws ReadOnlyError if the database was opened with `readOnly`
   * @throws ReentrancyError inside another callback of `updateIf`
   */
  updateIf(key: Key, change: Change, options?: UpdateOptions): boolean {
    const { session } = this;
    if (session.guard.gate !== 0) session.guard.assertWritable("updateIf()");
    return session.updateIf(key, change, options);
  }

  /**
   * Runs several writes in the given order, all of them or none. If one of them depends on a version, call
   * `set` with `ifVersion` in a `transaction` instead.
   *
   * ```ts
   * db.batch([
   *   { type: "set", key: "a", value: "1" },
   *   { type: "delete", key: "b" },
   * ]);
   * ```
   *
   * @throws TypeError for a bad operation, key or value, with the number of the operation, counted from 0;
   * nothing was written
   * @throws StaleViewError, QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as
   * `set`; nothing was written
   */
  batch(operations: readonly BatchOperation[]): void;
  batch(operations: readonly BatchOperation[], ...more: unknown[]): void {
    const { session } = this;
    refuseMore("batch()", more);
    if (session.guard.gate !== 0) session.guard.assertWritable("batch()");
    session.batch(operations, this);
  }

  /**
   * Runs a function whose writes are kept together or not at all, and returns its result. The function is
   * synchronous. `tx` is this database, and every call on the database inside takes part. A transaction
   * inside another is a savepoint: it can fail on its own. If the function throws, or returns a promise or a
   * generator, all its writes are undone and the error is thrown.
   *
   * ```ts
   * db.transaction((tx) => { tx.set("a", "1"); tx.set("b", "2"); });
   * ```
   *
   * It is one commit, whatever its size. Rows that come one by one, as in a loop of `for await`, would be a commit
   * each: collect some, and store a thousand of them in one transaction. For JSON lines, `fromJsonLines` of a
   * collection does so.
   *
   * With a note, the transaction is one of its own in `log`, which shows the note and the time:
   *
   * ```ts
   * db.transaction((tx) => tx.set("price", "12"), { note: "price rise" });
   * ```
   *
   * @throws whatever the function throws
   * @throws TypeError if the argument is not a function, if it returned a promise or a generator, for an unknown
   * option, and for a note that is too long, no text, or inside another transaction
   * @throws ReadOnlyError for a note, if the database was opened with `readOnly`
   * @throws ReentrancyError inside a callback of `updateIf`
   * @throws QuotaExceededError, StorageError if its writes could not be committed; they are undone
   */
  transaction<T>(body: (tx: this) => Synchronous<T>, options?: TransactionOptions): T;
  transaction<T>(
    body: (tx: this) => Synchronous<T>,
    options?: TransactionOptions,
    ...more: unknown[]
  ): T {
    const { session } = this;
    refuseMore("transaction()", more);
    if (session.guard.gate !== 0) session.guard.assertIdle("transaction()");
    if (typeof body !== "function") throw badArgument("transaction() needs a function.", body);
    return session.transaction(() => body(this) as T, options);
  }

  /**
   * The log of the file as history: its transactions, the oldest first, and in each its records. Nothing is read
   * before a `for…of`, and each starts again.
   *
   * ```ts
   * for (const tx of db.log({ since: lastSeen })) {
   *   for (const { type, key, version } of tx) console.log(tx.note, type, key, version);
   * }
   * ```
   *
   * A `transaction` with a note is one here. Without a note, all that was committed together counts as one. A walk
   * shows what was committed when the loop began, in bounded memory, and goes on while the program writes. Every
   * byte of it is verified.
   *
   * Compaction removes what is not needed any more, so the log goes back only as far as that: `afterGap` says where
   * something is missing before a transaction. What compaction moved comes as a transaction with `moved`.
   *
   * Damage is thrown, and the next step goes on behind it. With `flat: true`, transactions, records, gaps and damage
   * come as values of one stream:
   *
   * ```ts
   * for (const item of db.log({ flat: true })) if (item.type === "error") console.warn(item.error);
   * ```
   *
   * @throws TypeError for a bad option; CorruptionError during the loop, unless it is flat
   * @throws DatabaseClosedError during the loop, after `close`
   * @throws StorageError during the loop, if the file cannot be read; `next` may be called again
   */
  log(options: LogOptions & { readonly flat: true }): Iterable<LogItem, undefined>;
  log(
    options?: LogOptions & { readonly flat?: false | undefined },
  ): Iterable<LogTransaction, undefined>;
  log(options?: LogOptions): Iterable<LogItem, undefined>;
  log(options: LogOptions = {}): Iterable<LogItem, undefined> {
    this.session.guard.assertReadable();
    const walk = (options as LogOptions | null)?.flat === true ? itemsOf : transactionsOf;
    return walk(this.source, options);
  }

  /**
   * The number of the newest commit: a cursor for `changes`, `follow`, `retain` and `log`. All that was committed has
   * versions up to it, and all that will be committed has greater ones. Writes that are not committed yet do not count.
   * 0 in a new database. It belongs to this file: an export and an import have numbers of their own.
   */
  get lastCommit(): number {
    const { session } = this;
    session.guard.assertReadable();
    return session.engine.log.lastCommit();
  }

  /**
   * What is different since a cursor: each key that was set or deleted since, once, as it is now. Its cost follows what
   * was written since the cursor, and not the size of the database.
   *
   * ```ts
   * const cursor = db.lastCommit;
   * for (const { type, collection, key, value } of db.changes({ since: lastCursor })) { … }
   * ```
   *
   * A record of the type `"clear"` says that its collection was emptied before it got the records that follow. Applied in
   * their order, changes lead from the content at the cursor to the present one. They are not in the order of their
   * versions: deletions come last. Take the next cursor before the loop: what is written during it may be left out,
   * and belongs to the next call. Pending writes are committed first. A value is a view that is valid until the next step.
   *
   * @throws TypeError for a bad option, and in the loop for a cursor above `lastCommit`
   * @throws CursorExpiredError in the loop, if compaction has dropped a deletion or a clear since the cursor
   * @throws ReentrancyError in the loop, inside a transaction or a callback
   * @throws CorruptionError, StorageError in the loop, if the file is damaged or cannot be read
   * @throws QuotaExceededError, StorageError in the loop, if pending writes could not be committed
   */
  changes(options: ChangesOptions): Iterable<LogRecord, undefined> {
    this.session.guard.assertReadable();
    return changesOf(this.source, options);
  }

  /**
   * Sets a mark to a cursor, or moves it there: compaction takes nothing that was written after it, until it moves or
   * `retain(name, undefined)` drops it. It is kept in the file, and is committed with the writes of this turn.
   * The file grows meanwhile by all that is written: `stats().retainedBytes`.
   *
   * @throws TypeError for a bad name, and for a cursor above `lastCommit`
   * @throws CursorExpiredError if compaction has removed a part of what followed the cursor already
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as `set`
   */
  retain(name: string, cursor: number | null | undefined): void {
    retain(this.session, name, cursor);
  }

  /**
   * The transactions after a cursor, and then each one as it is committed: none is left out, and none comes twice. Each is
   * a copy, which stays as it is.
   *
   * ```ts
   * for await (const { number, records } of db.follow({ since: lastNumber, retain: "replica" })) {
   *   await send(records);
   *   lastNumber = number; // where to go on after a restart
   * }
   * ```
   *
   * The loop walks over the log from where it is, so a slow one takes no more memory. It ends when the database is
   * closed. Without a mark (`retain`), what compaction removes before the loop has come to it ends it with
   * `CursorExpiredError`. The mark moves when the loop has handled all that there is, every 256 transactions, and when
   * the loop is left.
   *
   * @throws TypeError for a bad option, and in the loop for a cursor above `lastCommit`
   * @throws (in the loop) the reason of `signal` when it is aborted
   * @throws (in the loop) CursorExpiredError if compaction has removed something since the cursor
   * @throws (in the loop) CorruptionError, StorageError if the file is damaged or cannot be read; with a mark also
   * QuotaExceededError if there is no space to move it
   */
  follow(options: FollowOptions = {}): AsyncIterable<FollowedTransaction> {
    this.session.guard.assertReadable();
    return followed(this.source, options, this.closers);
  }

  /**
   * A collection: records of one kind, in a keyspace of their own that the other calls of this database never
   * see. A collection exists from its first record on; getting it writes nothing.
   *
   * ```ts
   * const sessions = db.collection("sessions", json<Session>());
   * sessions.set("a1", { user: "ann", since: Date.now() });
   * ```
   *
   * The codec says what the values are: `json()`, `text()` or a schema made by `struct`, all from
   * "varve/struct", or an object with two functions of your own, `encode` and `decode`.
   *
   * Keys are strings by default. With the option `key` they are numbers, dates or tuples of several parts, in
   * the order of their values; with `auto()` the collection assigns them, and none twice:
   *
   * ```ts
   * db.collection("scores", Score, { key: [u32, desc(f64), str] }).get([7, 99.5, "ann"]);
   * db.collection("jobs", json<Job>(), { key: auto() }).push({ kind: "mail" });
   * ```
   *
   * The option `indexes` also keeps the records in the order of their fields. Every write updates the indexes in the
   * same commit. Values of `json()`, `structured()` and `standard()` need the type of each field, and with
   * `multiEntry` a record is found by each value of a list:
   *
   * ```ts
   * const products = db.collection("products", Product, {
   *   indexes: { byStock: "stock", bySku: { fields: "sku", unique: true } },
   * });
   * for (const [key, product] of products.index.byStock.entries({ lt: 10 })) reorder(key, product);
   * db.collection("users", json<User>(), {
   *   indexes: { byTag: { fields: "profile.tags", type: str, multiEntry: true } },
   * });
   * ```
   *
   * @throws TypeError for a bad name, codec or option
   * @throws SchemaMismatchError if the collection of this name holds something else, or has records but lacks
   * one of these indexes, or has an index of that name over other fields
   */
  collection<T, const S extends KeySpec | undefined = undefined>(
    name: string,
    codec: CustomCodec<T>,
    options?: CollectionOptions<S, undefined>,
  ): Collection<KeyOf<S>, T, T, T, KeyInput<S>>;
  collection<View, Writable, Input, const S extends KeySpec | undefined = undefined>(
    name: string,
    codec: Declared<View, Writable, Input> & Whole,
    options?: CollectionOptions<S, undefined>,
  ): Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>>;
  // The last overload, because the compiler reports errors against the last one if none fits.
  collection<
    View,
    Writable,
    Input,
    const S extends KeySpec | undefined = undefined,
    const Specs extends IndexSpecs<View> = Record<never, never>,
  >(
    name: string,
    codec: Declared<View, Writable, Input> & Whole,
    options: CollectionOptions<S, Specs & KnownIndexes<Specs>>,
  ): Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>, Specs>;
  collection<T>(
    name: string,
    codec: CodecInput<T>,
    options: CollectionOptions<KeySpec | undefined> = {},
  ): Collection<unknown, T, T, T> {
    return collectionOf(this.handle, name, codec, options);
  }

  /**
   * Converts a collection to what the program declares, and resolves to it. Values of another schema are
   * converted, missing indexes are built, and others are dropped. It works in slices of a few milliseconds
   * while the program goes on, and all of it becomes visible in one commit. If nothing has to change, it
   * changes nothing, so a program may call it every time it starts.
   *
   * ```ts
   * const products = await db.migrate("products", Product, {
   *   migrate: (old: { price: number }) => ({ cents: Math.round(old.price * 100) }),
   *   indexes: { byCents: "cents" },
   * });
   * ```
   *
   * `migrate` is given a copy of the old value; for a codec of two functions, its bytes. Without `migrate`,
   * fields of the same name are taken over. If the keys are of another kind than before, `rekey` makes the
   * new ones:
   *
   * ```ts
   * await db.migrate("users", User, { key: u32, rekey: (key: string) => Number(key) });
   * ```
   *
   * While values are converted, the collection can be read but not written to, and `Collection` objects from
   * before the conversion end with it: they throw `SchemaMismatchError`. While indexes are built, it can be
   * written to. Indexes to be dropped are dropped when the new ones are complete; index objects from before
   * end then. After a crash, or if `signal` aborted it, the next call goes on where it stopped.
   *
   * @throws (rejects) the reason of `signal`, what `migrate` and `onProgress` throw, and what the codec
   * throws for a bad value: the collection is as it was
   * @throws (rejects) UniqueViolationError if records have the same values in a unique index: the collection
   * is as it was
   * @throws (rejects) SchemaMismatchError if its keys are of another kind and there is no `rekey`
   * @throws (rejects) TypeError if `rekey` gives two records the same key
   * @throws (rejects) QuotaExceededError, StorageError, ReadOnlyError as `set`
   * @throws (rejects) ReentrancyError inside a transaction or a callback
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
    codec: Declared<View, Writable, Input> & Whole,
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
    codec: Declared<View, Writable, Input> & Whole,
    options: MigrateOptions<S, Specs & KnownIndexes<Specs>, Old, NoInfer<Input>, OldKey>,
  ): Promise<Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>, Specs>>;
  migrate<T>(
    name: string,
    codec: CodecInput<T>,
    options: MigrateOptions<KeySpec | undefined, unknown, unknown, T, unknown> = {},
  ): Promise<Collection<unknown, T, T, T>> {
    return migrated(this.handle, name, codec, options);
  }

  /**
   * Commits everything written so far to the file, now. After that, a crash of the tab, the browser or the
   * process loses nothing of it.
   *
   * @throws QuotaExceededError, StorageError if that fails; all writes since the last commit are undone
   * @throws DatabasePoisonedError if an earlier failure made the database read-only
   * @throws ReentrancyError inside a transaction or a callback
   */
  commit(): void {
    this.session.commits.commit();
  }

  /**
   * Commits everything written so far to the file and flushes it, now. After that, a power loss loses nothing
   * of it, as far as the platform's flush holds.
   *
   * @throws QuotaExceededError, StorageError if that fails. After a failed flush the database can be read and
   * refuses writes.
   * @throws DatabasePoisonedError if an earlier failure made the database read-only
   * @throws ReentrancyError inside a transaction or a callback
   */
  flush(): void {
    this.session.commits.flush();
  }

  /**
   * Resolves when everything written so far is in the file. Rejects with the reason if it was undone instead.
   * A failure rejects only the promises that were asked for, so there are no unhandled rejections otherwise.
   */
  get committed(): Promise<void> {
    return this.session.commits.committed;
  }

  /**
   * Resolves when everything written so far has been flushed. Asking for it brings about that flush, at the
   * end of this turn. Rejects with the reason if it failed.
   */
  get flushed(): Promise<void> {
    return this.session.commits.flushed;
  }

  /**
   * Frees all space in the file that no current data needs, a slice of a fraction of a millisecond at a
   * time, while the program goes on. As far as `spaceFactor` requires it, this happens by itself.
   *
   * @throws (rejects) the reason of `signal` if it is aborted, and what `onProgress` throws: what was done
   * until then stays done
   * @throws (rejects) QuotaExceededError, StorageError if the file fails: nothing is lost by that
   * @throws (rejects) ReadOnlyError if the database was opened with `readOnly`
   * @throws (rejects) ReentrancyError inside a transaction or a callback
   */
  async compact(options: CompactOptions = {}): Promise<void> {
    refuseUnknown("compact()", options, ["onProgress", "signal"]);
    const { onProgress, signal } = options;
    await this.session.commits.compact(() => {
      signal?.throwIfAborted();
      if (onProgress === undefined) return;
      const { fileBytes, liveBytes } = this.stats();
      onProgress({ fileBytes, liveBytes });
      signal?.throwIfAborted();
    });
  }

  /**
   * Verifies everything in the file that the database relies on, a few milliseconds at a time, while the
   * program goes on: both superblocks, every header, frame and record with its place in the index, every
   * large value, the checkpoint, and the space that has to be blank. Damage is reported and not thrown, and
   * nothing is written. A damaged database can be opened with `recovery`.
   *
   * @throws (rejects) the reason of `signal` if it is aborted, and what `onProgress` throws
   * @throws (rejects) StorageError if the file cannot be read
   * @throws (rejects) ReentrancyError inside a transaction or a callback
   */
  async verify(options: VerifyOptions = {}): Promise<Verification> {
    refuseUnknown("verify()", options, ["onProgress", "signal"]);
    const { onProgress, signal } = options;
    this.session.guard.assertOutsideCallback("verify()");
    // Not stats(): what that counts may need a record that is damaged.
    const total = this.session.engine.stats().fileBytes;
    const { verified } = await moduleAt<typeof import("./verify.js")>("database/verify");
    return verified(this.session, (bytes) => {
      signal?.throwIfAborted();
      onProgress?.({ bytes: Math.min(bytes, total), total });
    });
  }

  /**
   * Exports all live data, collections and indexes included, as the bytes of a database file. It contains no
   * deleted or replaced data, and none of the database's own records. Saved as a file it is a
   * database like any other; `open(name, { from, readOnly: true })` opens the bytes themselves, also where
   * there are no files.
   *
   * ```ts
   * await bucket.put("shop.varve", new Response(db.export()).body);
   * ```
   *
   * The stream is a copy as of one moment after this call. It is made in memory before the first bytes
   * arrive, a few milliseconds at a time while the program goes on reading and writing; in a Durable Object
   * at once. One step at the end cannot be divided: writing the index of the copy, which takes time with the
   * number of keys. Until everything is copied it holds back compaction, as a `snapshot` does. Versions start again in
   * the copy. Canceling the stream ends the copying.
   *
   * @throws TypeError if the database was opened with `ordered: false`
   * @throws (errors the stream) the reason of `signal` if it is aborted, and what `onProgress` throws;
   * StorageError if the file cannot be read, CorruptionError for damage
   */
  export(options: ExportOptions = {}): ReadableStream<Uint8Array<ArrayBuffer>> {
    refuseUnknown("export()", options, ["onProgress", "signal"]);
    this.session.checkRange("export()");
    const cancelled = new AbortController();
    const { onProgress, signal } = options;
    const checkAbort = (progress: ExportProgress) => {
      cancelled.signal.throwIfAborted();
      onProgress?.(progress);
    };
    const loaded = moduleAt<typeof import("./export.js")>("database/export").then(({ exported }) =>
      exported(this.source, { onProgress: checkAbort, signal }),
    );
    // Errors surface through the stream, so ignore the unhandled rejection here.
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
   * Counts and sizes, as of now: `records` is how many records there are, in collections and outside of them,
   * where `db.count()` counts only those outside. Browsers report `usage`, `quota` and `persisted` only asynchronously, so
   * these are as last reported. The browser is asked when the database is opened, and again by each call of
   * `stats`. They are `undefined` until the first answer, and always for `memory()`.
   */
  stats(): DatabaseStats {
    const { session } = this;
    if (session.guard.gate !== 0) session.guard.assertReadable();
    const { count, ...stats } = session.stats();
    const indexEntries = Catalog.of(session.engine).indexEntries();
    const retained = marksOf(session);
    return { ...stats, records: count - indexEntries, indexEntries, retained };
  }

  /** What opening found at the end of the file, and what it dropped there. */
  get recovery(): Recovery {
    return this.session.commits.recovery;
  }

  /** When writes are committed to the file: the option `durability`. */
  get durability(): Durability {
    return this.session.commits.durability;
  }

  /**
   * Closes this handle; all writes are committed and flushed first. The last handle closes the file, ends all
   * views and frees the memory. Calling `close` again returns the same promise.
   *
   * The file is closed and free for others even if the promise rejects.
   *
   * @throws (rejects) QuotaExceededError, StorageError if the last writes failed
   * @throws (rejects) FileLostError if the file was removed while it was open, and was written to
   * @throws (rejects) ReentrancyError inside a transaction or a callback; the handle stays open
   */
  close(): Promise<void> {
    if (this.closing !== undefined) return this.closing;
    try {
      this.session.guard.assertClosable();
    } catch (error) {
      // The close was refused and has not begun, so it may be called again later.
      return Promise.reject(error);
    }
    this.closing = this.closeOnce();
    return this.closing;
  }

  private async closeOnce(): Promise<void> {
    const { session } = this;
    for (const pin of this.pins) pin.dispose();
    this.session = session.closed();
    for (const snapshot of this.snapshots) snapshot.end(this.session);
    this.handle.session = this.session;
    // Refs of this handle check the gate only after `changes` has changed.
    session.engine.changes += 1;
    for (const closer of this.closers) closer();
    const isLast = this.leave();
    const pendingLoss = session.commits.lossOf(isLast);
    const loss = pendingLoss && (await pendingLoss);
    try {
      if (isLast) session.commits.end();
      else session.commits.flushForOneHandle();
    } finally {
      session.commits.removeListener(this.onError);
    }
    if (loss !== undefined) throw loss;
  }

  /** Closes this handle at the end of an `await using` block. */
  [asyncDispose](): Promise<void> {
    return this.close();
  }

  /** @internal A database is its name in JSON, and not the text of all its memory. */
  protected toJSON(): string {
    return this.session.name;
  }

  /** @internal Logging a database must not throw, whatever its state. */
  [INSPECT](_depth: number, options: unknown, format: Format): string {
    const { name, engine, commits } = this.session;
    let facts: object;
    try {
      const { durability } = commits;
      facts = this.closing === undefined ? { keys: engine.count(), durability } : { closed: true };
    } catch (error) {
      facts = { error };
    }
    return `Database "${name}" ${format(facts, options)}`;
  }
}
