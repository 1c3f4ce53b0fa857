/** The calls of a database that write. */

import type { Key, Value } from "./bytes.js";
import { Reads } from "./database-reads.js";
import { badArgument } from "./errors.js";
import type { Range } from "./range.js";
import type { Change, SetOptions, UpdateOptions } from "./session.js";

/** One step of a batch. */
export type BatchOperation =
  | { readonly type: "set"; readonly key: Key; readonly value: Value }
  | { readonly type: "delete"; readonly key: Key };

/** A result that is no promise and no generator. What a transaction's function returns has to be one. */
export type Synchronous<T> = T extends PromiseLike<unknown> | Generator | AsyncGenerator
  ? never
  : T;

/** A handle by which records are written. */
export class Writes extends Reads {
  /**
   * Stores a value under a key, replacing what was there. The bytes are copied; what you passed is
   * yours again when the call returns. A view of this database is a legal key and value;
   * so is shared or resizable memory, taken as it is during the call.
   *
   * It is acknowledged when its group is handed on: at the end of this turn, or by `commit` or
   * `flush`, or when `committed` or `flushed` resolve.
   *
   * @throws TypeError for a key or value that is none, too long, or in detached memory
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
    if (options !== undefined) session.admitVersion(options, () => session.engine.encodeKey(key));
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
   * Does several writes, all or none of them, in the order given. Where one of them depends on a version,
   * `set` each in a `transaction`.
   *
   * @throws TypeError for an operation, a key or a value that is none, with its number; nothing was done
   * @throws StaleViewError, QuotaExceededError, DatabasePoisonedError, ReentrancyError as `set`; nothing was done
   */
  batch(operations: readonly BatchOperation[]): void {
    const { session } = this;
    if (session.gate !== 0) session.admitWrite("batch()");
    session.batch(operations, this);
  }

  /**
   * Runs a function whose writes are kept all together or not at all, and gives its result. It is
   * synchronous, `tx` is this database, and every call on it inside takes part. A transaction inside
   * another is a part that can fail on its own. If the function throws, or returns a promise
   * or a generator, everything that it wrote is undone and the error goes on.
   *
   * @throws whatever the function throws
   * @throws TypeError when it is no function, or returned a promise or a generator
   * @throws ReentrancyError inside a callback of `updateIf`
   * @throws QuotaExceededError, StorageError when its writes could not be handed on; they are undone
   */
  transaction<T>(body: (tx: this) => Synchronous<T>): T {
    const { session } = this;
    if (session.gate !== 0) session.admitIdle("transaction()");
    if (typeof body !== "function") throw badArgument("transaction() needs a function.", body);
    return session.transaction(() => body(this));
  }
}
