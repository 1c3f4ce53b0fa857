/** Snapshots, `db.snapshot()`: the content of a database as of one moment. */

import { Catalog, type Handle } from "../collection/catalog.js";
import { type Collection, type CollectionOptions, collectionOf } from "../collection/collection.js";
import type { IndexSpecs, KnownIndexes } from "../collection/indexes.js";
import { RAW } from "../engine/wasm-memory.js";
import { SnapshotClosedError } from "../errors/index.js";
import { entriesOf, keysOf, type Scan, type Source, valuesOf } from "../session/cursor.js";
import {
  type Bounds,
  type ByteRange,
  boundsOf,
  type Range,
  type TextRange,
} from "../session/key-range.js";
import type { Entry, Session } from "../session/session.js";
import { textOf } from "../session/value-text.js";
import type { CustomCodec, Declared, Whole } from "../struct/codec.js";
import type { KeyInput, KeyOf, KeySpec } from "../struct/key.js";
import type { CodecInput } from "../struct/value-codecs.js";
import type { Key } from "../util/bytes.js";
import { dispose } from "../util/dispose.js";
import { type Format, INSPECT } from "../util/inspect.js";

/** The calls of a collection that read: what `snapshot.collection` gives. */
export type CollectionReader<K, View, Writable, Input, KeyInput = K, Specs = unknown> = Pick<
  Collection<K, View, Writable, Input, KeyInput, Specs>,
  | "name"
  | "index"
  | "get"
  | "has"
  | "getMany"
  | "getEntry"
  | "ref"
  | "count"
  | "keys"
  | "values"
  | "entries"
  | "toJsonLines"
>;

/**
 * The content of a database as it was when `db.snapshot()` was called, across every `await` and write since. Its calls
 * are those of the database that read, and views are valid as long as there: until your code yields or, in a loop,
 * until the next step.
 *
 * ```ts
 * using then = db.snapshot();
 * for (const [key, value] of then.entries()) await upload(key, value.slice());
 * ```
 *
 * A snapshot copies nothing. It takes memory by the number of keys that change while it is open, some 50 bytes each,
 * and holds back what they took in the file: `compact` and the compaction in the background wait until it is closed.
 * `stats().snapshots` shows both. Close it when it is not needed; closing the handle that took it closes it too.
 *
 * Besides the errors that it lists, every call may throw `SnapshotClosedError` after `close`, and what every call of
 * the database may throw.
 */
export class Snapshot {
  private readonly handle: Handle;
  private readonly source: Source;
  private readonly space: { readonly keyspace: number };
  private readonly number: number;
  private readonly forget: (snapshot: Snapshot) => void;
  /** The session as a closed snapshot sees it. */
  private ended: Session | undefined;

  /** @internal */
  constructor(handle: Handle, number: number, forget: (snapshot: Snapshot) => void) {
    this.source = () => this.ended ?? handle.session;
    const { source } = this;
    this.handle = {
      get session() {
        return source();
      },
      catalog: Catalog.asOf(handle.session.engine, number),
    };
    this.number = number;
    this.space = { keyspace: number + RAW };
    this.forget = forget;
    this.ended = undefined;
  }

  /** @internal The number by which the engine finds the raw keys of a snapshot. */
  static keyspaceOf(snapshot: Snapshot): number {
    return snapshot.space.keyspace;
  }

  /**
   * Returns a view of the value that the key had, or `undefined` if it had none. See `Database.get` for the view.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a detached view
   */
  get(key: Key): Uint8Array<ArrayBuffer> | undefined {
    return this.source().getChecked(key, this.space.keyspace);
  }

  /**
   * Returns the value that the key had as a string, or `undefined` if it had none.
   *
   * @throws TypeError for a bad key, and if the value is not UTF-8
   * @throws StaleViewError if the key is a detached view
   */
  getText(key: Key): string | undefined {
    const session = this.readable();
    const view = session.engine.get(key, this.space.keyspace);
    return view === undefined ? undefined : textOf(view);
  }

  /**
   * Returns whether the key had a value.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a detached view
   */
  has(key: Key): boolean {
    return this.readable().engine.has(key, this.space.keyspace);
  }

  /**
   * Returns the values of several keys, in the order of the keys. All views are valid when it returns.
   *
   * @throws TypeError if `keys` is not iterable, or for a bad key
   * @throws StaleViewError if a key is a detached view
   * @throws OutOfMemoryError if all values together are larger than the database's memory
   */
  getMany(keys: Iterable<Key>): (Uint8Array<ArrayBuffer> | undefined)[] {
    return this.readable().getMany(keys, this.space.keyspace);
  }

  /**
   * Returns the value that the key had with its version, or `undefined` if it had none.
   *
   * @throws TypeError for a bad key
   * @throws StaleViewError if the key is a detached view
   */
  getEntry(key: Key): Entry | undefined {
    return this.source().getEntry(key, this.space.keyspace);
  }

  /**
   * Returns the number of keys, in total or in a range. Without a range it takes no time; with one, as long
   * as going over its keys.
   *
   * @throws TypeError for a bad range, or if the database was opened with `ordered: false`
   * @throws StaleViewError if a bound is a detached view
   */
  count(range?: Range): number {
    const { engine } = this.readable();
    const { keyspace } = this.space;
    if (range === undefined) return engine.count(keyspace);
    const bounds = this.bounds("count()", range, false);
    if (bounds.limit === 0) return 0;
    return Math.min(bounds.limit, engine.countRange(bounds, keyspace));
  }

  /**
   * The keys of a range, or all keys, in order. See `Database.keys`; writing during the loop is never seen.
   *
   * @throws as `Database.keys`
   */
  keys(range?: TextRange): Scan<string>;
  keys(range: ByteRange): Scan<Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>>;
  keys(range?: TextRange | ByteRange): Scan<string | Uint8Array<ArrayBuffer>> {
    return keysOf(this.source, this.bounds("keys()", range, true), this.space);
  }

  /**
   * The values of a range, or all values, in the order of their keys. Each is valid until the next step.
   *
   * @throws as `Database.keys`
   */
  values(range?: Range): Scan<Uint8Array<ArrayBuffer>> {
    return valuesOf(this.source, this.bounds("values()", range, false), this.space);
  }

  /**
   * The keys and values of a range, or all of them, as pairs in the order of the keys. Each value is valid until the
   * next step.
   *
   * @throws as `Database.keys`
   */
  entries(range?: TextRange): Scan<[string, Uint8Array<ArrayBuffer>]>;
  entries(range: ByteRange): Scan<[Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>;
  entries(
    range?: TextRange | ByteRange,
  ): Scan<[string | Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]>;
  entries(
    range?: TextRange | ByteRange,
  ): Scan<[string | Uint8Array<ArrayBuffer>, Uint8Array<ArrayBuffer>]> {
    return entriesOf(this.source, this.bounds("entries()", range, true), this.space);
  }

  /**
   * A collection as it was, with its indexes, for reading. It is declared as in `db.collection`, and as it was stored
   * then, whatever was migrated since. A collection that did not exist is empty.
   *
   * @throws TypeError for a bad name, codec or option
   * @throws SchemaMismatchError if the collection of this name held something else, or had records but lacked one
   * of these indexes, or had an index of that name over other fields
   */
  collection<T, const S extends KeySpec | undefined = undefined>(
    name: string,
    codec: CustomCodec<T>,
    options?: CollectionOptions<S, undefined>,
  ): CollectionReader<KeyOf<S>, T, T, T, KeyInput<S>>;
  collection<View, Writable, Input, const S extends KeySpec | undefined = undefined>(
    name: string,
    codec: Declared<View, Writable, Input> & Whole,
    options?: CollectionOptions<S, undefined>,
  ): CollectionReader<KeyOf<S>, View, Writable, Input, KeyInput<S>>;
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
  ): CollectionReader<KeyOf<S>, View, Writable, Input, KeyInput<S>, Specs>;
  collection<T>(
    name: string,
    codec: CodecInput<T>,
    options: CollectionOptions<KeySpec | undefined> = {},
  ): CollectionReader<unknown, T, T, T> {
    return collectionOf(this.handle, name, codec, options);
  }

  /** Ends the snapshot. Views of it are valid until your code yields. It may be called twice. */
  close(): void {
    const { session } = this.handle;
    if (this.ended === undefined) this.end(session.closed(snapshotClosed));
  }

  /** Ends the snapshot at the end of a `using` block. */
  [dispose](): void {
    this.close();
  }

  /** @internal Ends the snapshot: calls get this session from now on. */
  end(closed: Session): void {
    const { session } = this.handle;
    this.forget(this);
    session.endSnapshot(this.number);
    this.ended = closed;
    // Refs check the gate only after `changes` has changed.
    session.engine.changes += 1;
  }

  /** The session, which can be read. */
  private readable(): Session {
    const session = this.source();
    session.guard.assertReadable();
    return session;
  }

  private bounds(call: string, range: Range | undefined, keyed: boolean): Bounds {
    this.source().checkRange(call);
    return boundsOf(call, range, keyed);
  }

  /** @internal */
  protected toJSON(): string {
    return this.source().name;
  }

  /** @internal */
  [INSPECT](_depth: number, options: unknown, format: Format): string {
    const facts = this.ended === undefined ? {} : { closed: true };
    return `Snapshot of "${this.source().name}" ${format(facts, options)}`;
  }
}

function snapshotClosed(name: string): Error {
  return new SnapshotClosedError(
    `This snapshot of "${name}" was closed. Take another with db.snapshot(), or close it only when ` +
      "nothing reads it any more.",
  );
}
