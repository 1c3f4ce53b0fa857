/** The handle that users hold: what it has beside reading and writing records. */

import {
  type Collection,
  type CollectionOptions,
  collectionOf,
  type MigrateOptions,
  migrated,
} from "./collection/collection.js";
import type { IndexSpecs } from "./collection/indexes.js";
import { Writes } from "./database-writes.js";
import type { Recovery, Verification } from "./engine-reports.js";
import {
  type CompactOptions,
  type Durability,
  type ExportOptions,
  type ExportProgress,
  refuseUnknown,
  type VerifyOptions,
} from "./options.js";
import type { DatabaseStats, Session } from "./session.js";
import type { CustomCodec, Declared, Structure } from "./struct/codec.js";
import type { Given } from "./struct/custom.js";
import type { KeyInput, KeyOf, KeySpec } from "./struct/key.js";

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
export class Database extends Writes {
  /** @internal What keeps records of its own beside the program's goes through the session. */
  static sessionOf(db: Database): Session {
    return db.session;
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
   * for before end with it. While indexes are built, it can be written to; those that are dropped are so when
   * the others are complete, and end for whoever had them. After a crash, or when `signal`
   * ended it, the next call goes on where it was.
   *
   * @throws (rejects) the reason of `signal`, what `migrate` and `onProgress` throw, and what the codec
   * throws for a value that is none: the collection is as it was
   * @throws (rejects) UniqueViolationError when records have the same values in a unique index: the
   * collection is as it was
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
      const { fileBytes, liveBytes } = this.stats();
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
    this.session.admitOutside("verify()");
    const total = this.stats().fileBytes;
    const { verified } = await import("./verify.js");
    return verified(this.session, (bytes) => {
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
   * milliseconds at a time, while the program goes on reading and writing; in a Durable Object at once. One
   * step is made in one go, and takes time with the number of keys: writing the index of the copy at the end.
   * Versions begin anew in it. Who cancels the stream ends the copying.
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
}
