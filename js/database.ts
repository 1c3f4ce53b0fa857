/** The handle that users hold: what it has beside reading and writing records. */

import { Catalogue } from "./collection/catalogue.js";
import {
  type Collection,
  type CollectionOptions,
  collectionOf,
  type MigrateOptions,
  migrated,
} from "./collection/collection.js";
import type { IndexSpecs, KnownIndexes } from "./collection/indexes.js";
import { Writes } from "./database-writes.js";
import type { Recovery, Verification } from "./engine-reports.js";
import { moduleAt } from "./modules.js";
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
export class Database extends Writes {
  /** @internal What keeps records of its own beside the program's goes through the session. */
  static sessionOf(db: Database): Session {
    return db.session;
  }

  /**
   * A collection: records of one kind, in a keyspace of their own that the other calls of this database never
   * see. A collection exists from its first record on; asking for it writes nothing.
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
   * the order of their values; with `auto()` the collection counts them, and gives none out twice:
   *
   * ```ts
   * db.collection("scores", Score, { key: [u32, desc(f64), str] }).get([7, 99.5, "ann"]);
   * db.collection("jobs", json<Job>(), { key: auto() }).push({ kind: "mail" });
   * ```
   *
   * The option `indexes` also keeps the records of structs in the order of their fields. Every write updates
   * the indexes in the same commit:
   *
   * ```ts
   * const products = db.collection("products", Product, {
   *   indexes: { byStock: "stock", bySku: { fields: "sku", unique: true } },
   * });
   * for (const [key, product] of products.index.byStock.entries({ lt: 10 })) reorder(key, product);
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
    options: CollectionOptions<S, Specs & KnownIndexes<Specs>>,
  ): Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>, Specs>;
  collection<T>(
    name: string,
    codec: Given<T>,
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
    options: MigrateOptions<S, Specs & KnownIndexes<Specs>, Old, NoInfer<Input>, OldKey>,
  ): Promise<Collection<KeyOf<S>, View, Writable, Input, KeyInput<S>, Specs>>;
  migrate<T>(
    name: string,
    codec: Given<T>,
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
    this.session.commit();
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
    this.session.flush();
  }

  /**
   * Resolves when everything written so far is in the file. Rejects with the reason if it was undone instead.
   * A failure rejects only the promises that were asked for, so there are no unhandled rejections otherwise.
   */
  get committed(): Promise<void> {
    return this.session.committed;
  }

  /**
   * Resolves when everything written so far has been flushed. Asking for it brings about that flush, at the
   * end of this turn. Rejects with the reason if it failed.
   */
  get flushed(): Promise<void> {
    return this.session.flushed;
  }

  /**
   * Gives back all space in the file that no current data needs, a slice of a fraction of a millisecond at a
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
    await this.session.compact(() => {
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
    this.session.admitOutside("verify()");
    const total = this.stats().fileBytes;
    const { verified } = await moduleAt("verify", () => import("./verify.js"));
    return verified(this.session, (bytes) => {
      signal?.throwIfAborted();
      onProgress?.({ bytes: Math.min(bytes, total), total });
    });
  }

  /**
   * Exports all live data, collections and indexes included, as the bytes of a database file. Nothing is in
   * it of what was deleted or replaced, nor of the database's own bookkeeping. Saved as a file it is a
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
   * number of keys. Versions start anew in the copy. Canceling the stream ends the copying.
   *
   * @throws TypeError if the database was opened with `ordered: false`
   * @throws (errors the stream) the reason of `signal` if it is aborted, and what `onProgress` throws;
   * StorageError if the file cannot be read, CorruptionError for damage
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
    const loaded = moduleAt("export", () => import("./export.js")).then(({ exported }) =>
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
   * Counts and sizes, as of now: `records` is how many records there are, in collections and outside of them,
   * where `db.count()` counts only those outside. Browsers report `usage`, `quota` and `persisted` only asynchronously, so
   * these are as last reported. The browser is asked when the database is opened, and again by each call of
   * `stats`. They are `undefined` until the first answer, and always for `memory()`.
   */
  stats(): DatabaseStats {
    const { session } = this;
    if (session.gate !== 0) session.admitRead();
    const { count, ...stats } = session.stats();
    const indexEntries = Catalogue.of(session.engine).indexEntries();
    return { ...stats, records: count - indexEntries, indexEntries };
  }

  /** What opening found at the end of the file, and what it dropped there. */
  get recovery(): Recovery {
    return this.session.recovery;
  }

  /** When groups of writes go to the file. */
  get durability(): Durability {
    return this.session.durability;
  }
}
