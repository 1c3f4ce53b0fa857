/** The calls of a database that write. */

import type { Key, Value } from "./bytes.js";
import { Reads } from "./database-reads.js";
import { badArgument, refuseMore } from "./errors.js";
import type { Range } from "./range.js";
import type { Change, SetOptions, UpdateOptions } from "./session.js";

/** One operation of a batch. */
export type BatchOperation =
  | { readonly type: "set"; readonly key: Key; readonly value: Value }
  | { readonly type: "delete"; readonly key: Key };

/** A result that is not a promise or a generator. The function of a transaction has to return such a result. */
export type Synchronous<T> = T extends PromiseLike<unknown> | Generator | AsyncGenerator
  ? "A transaction is synchronous: its function must not be async or a generator."
  : T;

/** The calls of a database that write. */
export class Writes extends Reads {
  /**
   * Stores a value under a key and replaces what was there. The bytes are copied: what you passed is yours
   * again when the call returns. Keys and values may be views of this database, or shared or resizable
   * memory, which is taken as it is during the call.
   *
   * The write is committed with its group: at the end of this turn (`"buffered"`: within 5 ms), which every
   * `await` ends, or by `commit` or `flush`. For many rows see `transaction`. `committed` and `flushed` resolve when that is done.
   *
   * @throws TypeError for a key or value of a wrong type, too long, or in detached memory
   * @throws StaleViewError if the key or value is a dead view
   * @throws ConflictError if `ifVersion` is given and the key has another version; nothing was written
   * @throws QuotaExceededError if there is no room; nothing of this call was written
   * @throws DatabasePoisonedError if an earlier failure made the database read-only
   * @throws ReadOnlyError if the database was opened with `readOnly`
   * @throws ReentrancyError inside a callback of `updateIf`
   */
  set(key: Key, value: Value, options?: SetOptions): void {
    const { session } = this;
    if (session.gate !== 0) session.admitWrite("set()");
    if (options !== undefined) session.admitVersion(options, () => session.engine.encodeKey(key));
    session.engine.set(key, value);
    if (!session.queued) session.queue();
  }

  /**
   * Deletes a key. Returns whether it was there.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a dead view
   * @throws QuotaExceededError if there is no room to record the deletion; nothing was deleted
   * @throws DatabasePoisonedError if an earlier failure made the database read-only
   * @throws ReadOnlyError if the database was opened with `readOnly`
   * @throws ReentrancyError inside a callback of `updateIf`
   */
  delete(key: Key): boolean;
  delete(key: Key, ...more: unknown[]): boolean {
    const { session } = this;
    if (more.length > 0) refuseMore("delete()", more);
    if (session.gate !== 0) session.admitWrite("delete()");
    const removed = session.engine.remove(key);
    if (removed && !session.queued) session.queue();
    return removed;
  }

  /**
   * Deletes all keys, or those of a range: all of them or, if it throws, none. Returns how many were deleted.
   * To delete all keys takes as long, and as much room, as to delete one, however many there are; their room is
   * given back in the background. A range costs its keys.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`
   * @throws StaleViewError if a bound is a dead view
   * @throws QuotaExceededError, DatabasePoisonedError, ReadOnlyError, ReentrancyError as `delete`
   */
  clear(range?: Range): number;
  clear(range?: Range, ...more: unknown[]): number {
    const { session } = this;
    refuseMore("clear()", more);
    if (session.gate !== 0) session.admitWrite("clear()");
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
   * @throws StaleViewError if a key or value is a dead view
   * @throws QuotaExceededError if there is no room; nothing was changed
   * @throws DatabasePoisonedError if an earlier failure made the database read-only
   * @throws ReadOnlyError if the database was opened with `readOnly`
   * @throws ReentrancyError inside another callback of `updateIf`
   */
  updateIf(key: Key, change: Change, options?: UpdateOptions): boolean {
    const { session } = this;
    if (session.gate !== 0) session.admitWrite("updateIf()");
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
    if (session.gate !== 0) session.admitWrite("batch()");
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
   * @throws whatever the function throws
   * @throws TypeError if the argument is not a function, if it returned a promise or a generator, or if there is
   * a second argument: a transaction has no options
   * @throws ReentrancyError inside a callback of `updateIf`
   * @throws QuotaExceededError, StorageError if its writes could not be committed; they are undone
   */
  transaction<T>(body: (tx: this) => Synchronous<T>): T;
  transaction<T>(body: (tx: this) => Synchronous<T>, ...more: unknown[]): T {
    const { session } = this;
    refuseMore("transaction()", more);
    if (session.gate !== 0) session.admitIdle("transaction()");
    if (typeof body !== "function") throw badArgument("transaction() needs a function.", body);
    return session.transaction(() => body(this) as T);
  }
}
