/**
 * One open database, shared by all of its handles. A session implements the calls that need more than one call
 * into the engine: tracked reads, versions, pins, `updateIf`, transactions. Its `guard` decides which calls are
 * allowed, its `commits` when writes are committed.
 */

import type { Engine } from "../engine/engine.js";
import { viewDetachedInCallback } from "../engine/error-codes.js";
import type { EngineStats, HostStats } from "../engine/reports.js";
import { type KeyRange, RAW } from "../engine/wasm-memory.js";
import { badArgument, ConflictError, describe, QuotaExceededError } from "../errors/index.js";
import type { OpenedStorage, StorageEstimate } from "../storage/storage.js";
import type { Codec, Memory } from "../struct/codec.js";
import { asBytes, isBuffer, type Key, type Value } from "../util/bytes.js";
import { unfinishedKind } from "./async-guard.js";
import { CallGuard, CLOSED, IN_CALLBACK, READ_ONLY, STRICT } from "./call-guard.js";
import { CommitScheduler, type SessionDependencies } from "./commit-scheduler.js";
import { EXPIRY_OPTIONS, ExpiryClock, type ExpiryOptions } from "./expiry.js";
import { refuseUnknown, type Settings } from "./options.js";
import type { ViewTracker } from "./strict-views.js";

/** Decides from the bytes of a record whether to change it. Has to return `true` or `false`, synchronously. */
export type Predicate = (view: Uint8Array<ArrayBuffer>) => boolean;

/** Changes the bytes of a record in place, or returns the new value. */
export type Change = (view: Uint8Array<ArrayBuffer>) => Nothing | Value;

/** `void` as a return type: a function that is declared to return nothing may return anything. */
type Nothing = ReturnType<() => void>;

/** The options of `updateIf`. */
export interface UpdateOptions {
  /** The record is changed only if this returns `true` for its current bytes. */
  predicate?: Predicate | undefined;
  /**
   * The predicate is given the value of this key instead; `predicate` is required then. If that key is
   * missing, nothing is changed.
   */
  predicateKey?: Key | undefined;
  /**
   * The value that a missing key gets first. It is then updated like any other; if the predicate refuses it,
   * the key stays missing.
   */
  valueIfMissing?: Value | undefined;
}

/** The options of `set`. Without an expiry, the record never expires, or as its collection says. */
export interface SetOptions extends ExpiryOptions {
  /**
   * Sets the value only if the key still has this version, as returned by `getEntry`. 0 means that the key is
   * missing. Otherwise `ConflictError` is thrown and nothing is written.
   */
  ifVersion?: number | undefined;
}

/** The options of `transaction`. */
export interface TransactionOptions {
  /**
   * Why this was written: up to 65,536 bytes of text. It is kept in the log together with the time, as long as
   * compaction keeps the transaction there. `log` shows it.
   */
  note?: string | undefined;
}

/** A value and its version, which no other value of the same key ever had or will have. */
export interface Entry {
  /** A view of the value, like that of `get`. */
  readonly value: Uint8Array<ArrayBuffer>;
  /** The version of the value. Every write gives a higher one. It survives closing and opening. */
  readonly version: number;
  /**
   * Whether the value was salvaged from a damaged file whose lost writes may have changed or deleted the key.
   * Stays `true` until the key is written again.
   */
  readonly uncertain: boolean;
  /** From when on the key is absent; `undefined` if it does not expire. */
  readonly expires: Date | undefined;
}

/** A mark of `retain`. */
export interface RetainMark {
  readonly name: string;
  /** What was written after it is kept. */
  readonly cursor: number;
}

/** What `db.stats()` returns: counts and sizes of the database, and the space that its storage reports. */
export interface DatabaseStats extends Omit<EngineStats, "count">, HostStats, StorageEstimate {
  /** Number of keys outside of collections: those that `db.count()` counts. */
  keys: number;
  /**
   * Number of all records: these keys, and the records of all collections. While a collection is converted by
   * `migrate`, the converted records count beside the old ones.
   */
  records: number;
  /** Number of entries in the indexes of all collections: each record has one in each index. */
  indexEntries: number;
  /** Whether the file has writes that were not flushed yet. */
  unflushed: boolean;
  /** The marks that `retain` has set. */
  retained: RetainMark[];
  /** Bytes of the segments of the file that these marks keep from compaction, with what is current in them. */
  retainedBytes: number;
}

const RESOLVED = Promise.resolve();

/** The estimate of a storage that reports none. */
const NO_ESTIMATE: StorageEstimate = { usage: undefined, quota: undefined, persisted: undefined };

const UPDATE_OPTIONS = ["predicate", "predicateKey", "valueIfMissing"];

/** One operation of a batch. */
interface Operation {
  readonly type: "set" | "delete";
  readonly key: unknown;
  readonly value?: unknown;
}

/** The database or collection that a batch is applied to. */
interface BatchTarget {
  set(key: unknown, value: unknown): void;
  delete(key: unknown): boolean;
}

/** The state that the handles of one open database share. */
export class Session {
  readonly name: string;
  readonly engine: Engine;
  readonly guard: CallGuard;
  readonly commits: CommitScheduler;
  readonly clock: ExpiryClock;
  private readonly storage: OpenedStorage;
  readonly settings: Settings;
  private readonly tracker: ViewTracker | undefined;
  private lastOptions: UpdateOptions | undefined;
  private readonly releaseViews: () => void;

  /** Starts the session of an engine that has opened its file. Views are tracked if a tracker is given. */
  static start(
    name: string,
    engine: Engine,
    storage: OpenedStorage,
    settings: Settings,
    tracker?: ViewTracker,
  ): Session {
    const { strictViews, readOnly } = settings;
    const guard = new CallGuard(name, (strictViews ? STRICT : 0) | (readOnly ? READ_ONLY : 0));
    return new Session({ name, engine, storage, settings, guard, tracker });
  }

  /** Starts a scheduler of its own, unless it gets `commits`, that of a session whose engine it shares. */
  private constructor(dependencies: SessionDependencies, commits?: CommitScheduler) {
    const { name, engine, guard, storage, settings, tracker } = dependencies;
    this.name = name;
    this.engine = engine;
    this.guard = guard;
    this.storage = storage;
    this.settings = settings;
    this.tracker = tracker;
    this.lastOptions = undefined;
    this.releaseViews = () => engine.releaseViews();
    this.commits =
      commits ??
      new CommitScheduler(dependencies, () => {
        this.lastOptions = undefined;
      });
    this.clock = new ExpiryClock(engine, guard, this.commits);
  }

  /**
   * The session as a closed handle sees it: every call throws, while other handles go on. `ended` makes the error, if it
   * is not that of a closed database.
   */
  closed(ended?: (name: string) => Error): Session {
    const { name, engine, storage, settings, tracker } = this;
    const guard = new CallGuard(name, CLOSED, ended);
    return new Session({ name, engine, guard, storage, settings, tracker }, this.commits);
  }

  // ---------------------------------------------------------------- tracked reads

  getChecked(key: Key, keyspace = RAW): Uint8Array<ArrayBuffer> | undefined {
    this.guard.assertReadable();
    const view = this.engine.get(key, keyspace);
    return view === undefined ? undefined : this.exposed(view);
  }

  /** The view to return for one that has to live until the turn ends: in strict mode a tracked copy. */
  private exposed(view: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
    if (!this.engine.viewsHeld) this.holdViews();
    if (this.tracker === undefined) return view;
    this.commits.scheduleTurnEnd();
    return this.tracker.track(view, "get()");
  }

  /** The typed view of the value found at this address, in strict mode: its codec reads a tracked copy. */
  trackedView<View>(codec: Pick<Codec<View, unknown, unknown>, "view">, at: number): View {
    const bytes = this.exposed(this.engine.freshView(at));
    return codec.view(this.trackedMemory(bytes), 0, bytes.length);
  }

  /** Marks that views were given out which have to live until the turn ends. */
  holdViews(): void {
    this.engine.viewsHeld = true;
    RESOLVED.then(this.releaseViews);
  }

  /** The values of several keys, as views that are all valid together. */
  getMany(keys: Iterable<Key>, keyspace = RAW): (Uint8Array<ArrayBuffer> | undefined)[] {
    if (typeof keys !== "object" || typeof keys?.[Symbol.iterator] !== "function") {
      throw badArgument("getMany() needs an array or other iterable of keys.", keys);
    }
    // Read every key before the first lookup, because getters of a key object may call the database.
    const keyList = Array.from(keys);
    for (let i = 0; i < keyList.length; i++) {
      const key = keyList[i];
      if (typeof key !== "string" && !(key instanceof Uint8Array)) keyList[i] = asBytes("key", key);
    }
    // A later lookup must not detach the views of earlier ones.
    if (!this.engine.viewsHeld && keyList.length > 0) this.holdViews();
    const views = this.engine.getMany(keyList, keyspace);
    if (this.tracker === undefined) return views;
    return views.map((view) => (view === undefined ? view : this.exposed(view)));
  }

  getEntry(key: Key, keyspace = RAW): Entry | undefined {
    this.guard.assertReadable();
    const version = this.engine.version(this.engine.encodeKey(key), keyspace);
    const uncertain = version !== 0 && this.engine.isUncertain();
    const expires = this.foundExpiry();
    const value = version === 0 ? undefined : this.getChecked(key, keyspace);
    return value === undefined ? undefined : { value, version, uncertain, expires };
  }

  /** Sets a key as these options say. */
  setWith(key: Key, value: Value, options: SetOptions): void {
    const { engine } = this;
    this.checkVersion(options, () => engine.encodeKey(key));
    const expiry = this.clock.expiryOf("set()", options);
    if (expiry === 0) engine.set(key, value);
    else engine.setExpiring(key, value, expiry);
  }

  /** When the key whose version was asked for last expires. */
  foundExpiry(): Date | undefined {
    const seconds = this.engine.foundExpiry();
    return seconds === 0 ? undefined : new Date(seconds * 1000);
  }

  /** Changes when a key expires. */
  touch(key: Key, options: ExpiryOptions): boolean {
    const expiry = this.expiryForTouch(options);
    const touched = this.engine.touch(this.engine.encodeKey(key), expiry);
    if (touched && !this.commits.queued) this.commits.queue();
    return touched;
  }

  /** The expiry that the options of `touch` ask for, in seconds; 0 for never. */
  expiryForTouch(options: ExpiryOptions): number {
    refuseUnknown("touch()", options, EXPIRY_OPTIONS);
    if (options.expireIn === undefined && options.expireAt === undefined) {
      throw badArgument("touch() needs the option expireIn or expireAt.", options);
    }
    return this.clock.expiryOf("touch()", options);
  }

  /** Statistics without those that only collections know. */
  stats(): Omit<DatabaseStats, "records" | "indexEntries" | "retained"> & EngineStats {
    const { engine } = this;
    return {
      ...engine.stats(),
      keys: engine.count(RAW),
      ...engine.hostStats(),
      unflushed: engine.unflushed(),
      retainedBytes: engine.log.retainedBytes(),
      ...(this.storage.estimate?.() ?? NO_ESTIMATE),
    };
  }

  /** Throws unless a typed view may be read. In strict mode, schedules the end of the turn, which detaches it. */
  assertLiveView(): void {
    this.guard.assertReadable();
    if (this.tracker !== undefined) this.commits.scheduleTurnEnd();
  }

  // ---------------------------------------------------------------- ranges

  /** Whether views are tracked. */
  get strict(): boolean {
    return this.tracker !== undefined;
  }

  /** Throws for a range call if the database keeps no key order. */
  checkRange(call: string): void {
    this.guard.assertReadable();
    if (this.settings.ordered) return;
    throw badArgument(
      `The database "${this.name}" was opened with ordered: false, so it has no ranges: ${call} ` +
        "needs order. Open it without that option.",
    );
  }

  /** A view of the value that an iteration found at this address, valid until its next step. */
  shown(at: number): Uint8Array<ArrayBuffer> {
    const view = this.engine.freshView(at);
    if (this.tracker === undefined) return view;
    this.commits.scheduleTurnEnd();
    return this.tracker.track(view, "an iteration");
  }

  /** As `shown`, for a value of this length. Only for strict mode. */
  shownAt(at: number, length: number): Uint8Array<ArrayBuffer> {
    this.commits.scheduleTurnEnd();
    return (this.tracker as ViewTracker).track(
      this.engine.viewAt(at, length),
      "a walk over the log",
    );
  }

  /** The `Memory` for typed views of such a value in strict mode. */
  trackedMemory(tracked: Uint8Array): Memory {
    return (this.tracker as ViewTracker).memory(tracked);
  }

  /** Ends the validity of such a value at the next step: in strict mode it is checked and detached. */
  untrack(tracked: Uint8Array<ArrayBuffer>): void {
    const written = this.tracker?.untrack(tracked);
    if (written !== undefined) throw written;
  }

  /** Deletes the keys of a range, all or none, and returns how many. */
  clear(range: KeyRange, limit: number, keyspace = RAW): number {
    return this.undoUnless(
      () => true,
      () => this.engine.clear(range, limit, keyspace),
    );
  }

  // ---------------------------------------------------------------- versions and pins

  /**
   * Checks the `ifVersion` option of `set` against the key's version. The key is encoded after the options were
   * read, because a getter among them may read other keys.
   */
  checkVersion(options: SetOptions, encode: () => number, keyspace = RAW): void {
    refuseUnknown("set()", options, ["ifVersion", ...EXPIRY_OPTIONS]);
    const { ifVersion } = options;
    if (ifVersion === undefined) return;
    if (!Number.isSafeInteger(ifVersion) || ifVersion < 0) {
      throw badArgument(
        "The option ifVersion of set() must be a version from getEntry(), or 0 for a missing key.",
        ifVersion,
      );
    }
    const version = this.engine.version(encode(), keyspace);
    if (version === ifVersion) return;
    const actual = version === 0 ? "the key is missing" : `the key has version ${version}`;
    const expected = ifVersion === 0 ? "it should be missing" : `version ${ifVersion} was expected`;
    throw new ConflictError(
      `Nothing was written to "${this.name}": ${actual}, but ${expected}. Get the entry again and ` +
        "decide again.",
    );
  }

  /** A handle for the pinned value of a key; 0 when there is none. */
  pin(key: Key): number {
    this.guard.assertOutsideCallback("pin()");
    // Commit first: committed records are never changed in place.
    if (this.engine.pending() !== 0) this.commits.commit();
    return this.engine.pin(key);
  }

  pinnedBytes(handle: number): Uint8Array<ArrayBuffer> {
    return this.exposed(this.engine.pinned(handle));
  }

  unpin(handle: number): void {
    if (!this.guard.isOpen()) return;
    this.engine.unpin(handle);
    // Its memory may be reused once the views of this turn are detached.
    this.commits.scheduleTurnEnd();
  }

  /** Takes a snapshot. Its number, added to the number of a keyspace, reads the keyspace as of this moment. */
  snapshot(): number {
    this.guard.assertOutsideCallback("snapshot()");
    // Commit first: committed records are never changed in place.
    if (this.engine.pending() !== 0) this.commits.commit();
    return this.engine.snapshot();
  }

  endSnapshot(number: number): void {
    if (!this.guard.isOpen()) return;
    this.engine.endSnapshot(number);
    // Maintenance goes on.
    this.commits.scheduleTurnEnd();
  }

  // ---------------------------------------------------------------- updateIf

  updateIf(key: Key, change: Change, options: UpdateOptions | undefined): boolean {
    if (typeof change !== "function") {
      throw badArgument("updateIf() needs a function that changes the bytes.", change);
    }
    if (options === undefined) return this.update(key, change, undefined, undefined);
    if (options !== this.lastOptions) {
      refuseUnknown("updateIf()", options, UPDATE_OPTIONS);
      this.lastOptions = options;
    }
    const { predicate, predicateKey, valueIfMissing } = options;
    if (predicate !== undefined && typeof predicate !== "function") {
      throw badArgument("The option predicate of updateIf() must be a function.", predicate);
    }
    if (predicateKey === undefined) return this.update(key, change, predicate, valueIfMissing);
    if (predicate === undefined) {
      throw badArgument("updateIf() has a predicateKey but no predicate.");
    }
    if (!this.testPredicateOn(predicateKey, predicate)) return false;
    return this.update(key, change, undefined, valueIfMissing);
  }

  /** Tests the predicate on the value of this key, or on a copy of it. A missing key counts as `false`. */
  private testPredicateOn(key: Key, predicate: Predicate, copied = false): boolean {
    const found = this.engine.get(key);
    if (found === undefined) return false;
    const view = copied ? found.slice() : this.exposed(found);
    const { length } = view;
    this.guard.gate |= IN_CALLBACK;
    try {
      const answer = this.checkedPredicate(predicate(view));
      // If the view was detached meanwhile, the predicate may have read an empty array.
      if (view.length !== length) throw viewDetachedInCallback();
      return answer;
    } finally {
      this.guard.gate &= ~IN_CALLBACK;
    }
  }

  private update(
    key: Key,
    change: Change,
    predicate: Predicate | undefined,
    valueIfMissing: Value | undefined,
  ): boolean {
    const { engine, guard, commits } = this;
    if (this.tracker !== undefined) {
      commits.throwIfWritten();
      commits.scheduleTurnEnd();
    }
    let at: number;
    try {
      at = engine.updateBegin(key);
    } catch (error) {
      // Without space a predicate that returns false is still an answer, not a failure. It gets a copy,
      // because no record was staged that could undo its writes.
      const full = error instanceof QuotaExceededError && predicate !== undefined;
      if (full && !this.testPredicateOn(key, predicate, true)) return false;
      throw error;
    }
    if (at === 0) {
      if (valueIfMissing === undefined) return false;
      return this.insertAndUpdate(key, change, predicate, valueIfMissing);
    }
    let length = engine.foundLength();
    // A copy if memory is too short to keep views, or if views are tracked.
    const isCopy = engine.mustCopy || this.tracker !== undefined;
    const view = isCopy ? engine.copyAt(at, length) : engine.view(at, length);
    const before = isCopy ? view.slice() : undefined;
    let applied = false;
    guard.gate |= IN_CALLBACK;
    try {
      if (predicate === undefined || this.checkedPredicate(predicate(view))) {
        const result = change(view);
        if (view.length !== length) throw viewDetachedInCallback();
        if (isCopy) engine.memory.u8.set(view, at);
        if (result !== undefined) length = this.replaceStaged(result);
        applied = true;
      }
      if (before !== undefined) this.trackCallbackCopy(view, applied ? undefined : before);
    } catch (error) {
      if (before !== undefined) this.trackCallbackCopy(view, before);
      guard.gate &= ~IN_CALLBACK;
      if (guard.isUsable()) engine.abort();
      throw error;
    }
    guard.gate &= ~IN_CALLBACK;
    if (!applied) {
      engine.abort();
      return false;
    }
    engine.finish(length);
    if (!commits.queued) commits.queue();
    return true;
  }

  /** Tracks the copy that a callback was given, after restoring the record's bytes in it if there are any. */
  private trackCallbackCopy(copy: Uint8Array<ArrayBuffer>, record: Uint8Array | undefined): void {
    if (record !== undefined && copy.length !== 0) copy.set(record);
    this.note(copy);
  }

  /** In strict mode, makes writes to a callback's copy an error; it is detached when the turn ends. */
  note(copy: Uint8Array<ArrayBuffer>): void {
    if (this.tracker === undefined) return;
    this.tracker.note(copy);
    this.commits.scheduleTurnEnd();
  }

  private insertAndUpdate(
    key: Key,
    change: Change,
    predicate: Predicate | undefined,
    value: Value,
  ): boolean {
    return this.undoUnless(
      (applied) => applied,
      () => {
        this.engine.set(key, value);
        return this.update(key, change, predicate, undefined);
      },
    );
  }

  checkedPredicate(answer: unknown): boolean {
    if (answer === true) return true;
    if (answer === false) return false;
    this.refuseLater("The predicate of updateIf()", answer);
    throw badArgument("The predicate of updateIf() must return true or false.", answer);
  }

  private replaceStaged(result: unknown): number {
    this.refuseLater("The callback of updateIf()", result);
    const bytes = typeof result === "string" || ArrayBuffer.isView(result) || isBuffer(result);
    if (!bytes) {
      throw badArgument(
        "The callback of updateIf() must return nothing, or the new bytes. (An arrow function " +
          "returns its expression: put it in braces.)",
        result,
      );
    }
    return this.engine.updateReplace(result);
  }

  /** Throws for the result of an async function or a generator: it would run after its view has ended. */
  refuseLater(what: string, result: unknown): void {
    if ((typeof result !== "object" && typeof result !== "function") || result === null) return;
    const later = unfinishedKind(result);
    if (later === undefined) return;
    // Detach all views, because the function may go on later and write into a record.
    if (this.guard.isUsable()) this.engine.detach();
    throw badArgument(
      `${what} must be synchronous, but it returned a ${later}. Nothing was kept. Await what ` +
        "you need first, then call.",
    );
  }

  // ---------------------------------------------------------------- transactions

  /** `client`: the number of the client that asked for it, which is kept with a note. */
  transaction<T>(body: () => T, options?: TransactionOptions, client = 0): T {
    let note: string | undefined;
    if (options !== undefined) {
      refuseUnknown("transaction()", options, ["note"]);
      note = options.note;
    }
    return this.undoUnless(
      (result) => {
        this.refuseLater("The function given to transaction()", result);
        return true;
      },
      body,
      note,
      client,
    );
  }

  /** Applies the operations of a batch, all or none. */
  batch(operations: readonly Operation[], target: BatchTarget): void {
    if (!Array.isArray(operations)) {
      throw badArgument("batch() needs an array of operations.", operations);
    }
    let index = 0;
    this.transaction(() => {
      try {
        for (; index < operations.length; index += 1) applyOperation(operations[index], target);
      } catch (error) {
        throw withOperationNumber(error, index);
      }
    });
  }

  /** Runs a body under a savepoint. Rolls back if it throws or if `keep` returns `false` for its result. */
  undoUnless<T>(keep: (result: T) => boolean, body: () => T, note?: string, client = 0): T {
    const { engine, guard, commits } = this;
    if (note === undefined) engine.savepoint();
    else this.savepointWithNote(note, client);
    guard.depth += 1;
    let kept = false;
    let result: T;
    try {
      result = body();
      kept = keep(result);
    } finally {
      guard.depth -= 1;
      if (!kept && guard.isUsable()) this.rollBack();
    }
    if (kept) {
      engine.release();
      if (!commits.queued) commits.queue();
    }
    return result;
  }

  /** Makes the savepoint of a transaction that has a note. */
  private savepointWithNote(note: unknown, client: number): void {
    const { engine, guard } = this;
    guard.assertWritable("transaction() with a note");
    if (guard.depth > 0) {
      throw badArgument(
        "A transaction inside another cannot have a note: give the note to the outermost one.",
      );
    }
    const length = engine.encodeNote(note);
    engine.savepoint();
    try {
      engine.log.note(client, Date.now(), length);
    } catch (error) {
      if (guard.isUsable()) engine.rollback();
      throw error;
    }
  }

  private rollBack(): void {
    const written = this.tracker?.verify();
    this.engine.rollback();
    // The rollback freed memory, so the end of the turn has to detach views that may show it.
    if (!this.commits.queued) this.commits.queue();
    if (written !== undefined) this.commits.fail(written);
  }
}

/** Applies one operation of a batch. It is checked at run time, because JavaScript callers have no types. */
function applyOperation(operation: Operation, target: BatchTarget): void {
  for (const name in operation) {
    if (name === "type" || name === "key" || name === "value") continue;
    throw badArgument(
      `it has no property ${describe(name)}. Its properties are: type, key, value. ` +
        "For more, call set() with options in a transaction().",
    );
  }
  const type: unknown = operation?.type;
  if (type === "set") target.set(operation.key, operation.value);
  else if (type === "delete") target.delete(operation.key);
  else throw badArgument('it must be an object with the type "set" or "delete".', type);
}

/** The error to throw for a failed operation of a batch: to a bad argument it adds the operation's number. */
function withOperationNumber(error: unknown, index: number): unknown {
  const { code, message } = Object(error) as { code?: unknown; message?: unknown };
  if (code !== "VARVE_BAD_ARGUMENT") return error;
  return Object.assign(badArgument(`Operation ${index} of the batch: ${message}`), {
    cause: error,
  });
}
