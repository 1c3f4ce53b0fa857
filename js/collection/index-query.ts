/** Queries of a collection by one of its indexes. */

import type { Engine } from "../engine/engine.js";
import { badArgument } from "../errors/index.js";
import { Scan, Steps } from "../session/cursor.js";
import type { Bounds } from "../session/key-range.js";
import { type LocalRows, liveRange, watchRange } from "../session/live.js";
import type { Session } from "../session/session.js";
import type { KeyChange, Watching, WatchOptions } from "../session/watching.js";
import { INSPECT } from "../util/inspect.js";
import { PROBED_PROPERTIES } from "../util/probed-properties.js";
import type { CollectionContext } from "./catalog.js";
import { copier, type IndexSpace } from "./indexes.js";
import { type BoundOf, bytesOf, orderedBounds, type PrefixOf } from "./keys.js";
import { type Plain, watchedRange } from "./live.js";

/** Selects entries of an index, and the order in which they come. All that is given applies together. */
export interface IndexRange<Value, K> {
  /**
   * Only records with exactly this value; for several fields, records whose first fields have these values.
   * `null` selects records without a value, since `undefined` would be no bound.
   */
  eq?: BoundOf<Value> | Absent<Value> | undefined;
  /** Only records above this value. Not together with `gte`. */
  gt?: BoundOf<Value> | undefined;
  /** Only records with this value or above. Not together with `gt`. */
  gte?: BoundOf<Value> | undefined;
  /** Only records below this value. Not together with `lte`. */
  lt?: BoundOf<Value> | undefined;
  /** Only records with this value or below. Not together with `lt`. */
  lte?: BoundOf<Value> | undefined;
  /** Only records whose text or bytes start with this; for several fields, as `eq`. */
  prefix?: PrefixOf<Value> | undefined;
  /** Continues after this record, in the direction of the walk. It is given by its value in the index and its key. */
  after?: readonly [Value, K] | undefined;
  /** From the last record to the first. `false` by default. */
  reverse?: boolean | undefined;
  /** At most this many records. Unlimited by default. */
  limit?: number | undefined;
}

/** `null`, which represents a missing value, if the value is optional. */
type Absent<Value> = undefined extends Value ? null : never;

type IndexContext<K> = CollectionContext<K, unknown, unknown, never, unknown>;

type Step<T> = IteratorYieldResult<T>;

/** Makes the result of a step of a record: the value, or the key and the value. */
type FormOf<T> = (key: Uint8Array<ArrayBuffer>, at: number, steps: Steps<T>, session: Session) => T;

/**
 * The records of a collection in the order of some of their fields. Records with the same values are in the
 * order of their keys. Every write updates the index in the same commit.
 *
 * In an index of many values (`multiEntry`) a record is there once for each of its values: a range of several of them
 * gives it several times, and counts it so.
 *
 * Records may move in the index during a walk over it: a loop that raises all prices in the order of prices
 * does so once for each. A record that moves is seen where it was, and not where it moved to during the walk.
 */
export class Index<Value, K, View> {
  /** The name of the index. */
  readonly name: string;
  /** Whether no two records may have the same values. */
  readonly unique: boolean;
  private readonly context: CollectionContext<K, View, unknown, never, unknown>;
  private readonly space: IndexSpace;
  private readonly isSingle: boolean;

  /** @internal */
  constructor(
    context: CollectionContext<K, View, unknown, never, unknown>,
    space: IndexSpace,
    isSingle: boolean,
  ) {
    this.name = space.name;
    this.unique = space.shape.unique === true;
    this.context = context;
    this.space = space;
    this.isSingle = isSingle;
  }

  /**
   * Returns the first record with this value, or `undefined` if there is none; in a unique index, it is the
   * only one. For an optional field, `undefined` is a value, too.
   *
   * @throws TypeError for a bad value
   */
  get(value: Value): View | undefined {
    const eq = (value ?? null) as BoundOf<Value>;
    // Without a call of return(), the view stays valid.
    return this.values({ eq, limit: 1 })[Symbol.iterator]().next().value;
  }

  /**
   * Returns the number of records, in total or in a range. It takes as long as going over their entries.
   *
   * @throws TypeError for a bad range
   */
  count(range?: IndexRange<Value, K>): number {
    const session = this.context.source();
    session.guard.assertReadable();
    const bounds = this.bounds("count()", range);
    if (bounds.limit === 0) return 0;
    return Math.min(bounds.limit, session.engine.countRange(bounds, this.space.keyspace));
  }

  /**
   * The keys of the records in a range, or of all records, in the order of the index. No record is read.
   *
   * @throws TypeError for a bad range
   */
  keys(range?: IndexRange<Value, K>): Scan<K> {
    const { context, space } = this;
    const bounds = this.boundsOfWalk("keys()", range);
    return new Scan(() => new IndexKeys(context as IndexContext<K>, space, bounds));
  }

  /**
   * The records in a range, or all records, in the order of the index. Each is valid until the next step.
   *
   * ```ts
   * for (const product of products.index.byPrice.values({ gte: 10, lt: 20 })) total += product.stock;
   * ```
   *
   * @throws TypeError for a bad range
   */
  values(range?: IndexRange<Value, K>): Scan<View> {
    const { codec } = this.context;
    return this.walk("values()", range, (_, at, steps, session) => steps.typed(session, codec, at));
  }

  /**
   * The keys and values of the records in a range, or of all records, as pairs in the order of the index.
   * Each value is valid until the next step.
   *
   * @throws TypeError for a bad range
   */
  entries(range?: IndexRange<Value, K>): Scan<[K, View]> {
    const { codec, keys } = this.context;
    return this.walk("entries()", range, (key, at, steps, session) => [
      keys.decode(key),
      steps.typed(session, codec, at),
    ]);
  }

  /**
   * Reports after each commit which records of a range have changed, come or gone. A record whose values in the index have
   * changed within the range is reported once. See the database's `watch`.
   *
   * @throws as the database's `watch`
   */
  watch(
    range: IndexRange<Value, K>,
    listener: (changes: readonly KeyChange<K>[]) => void,
  ): Watching;
  watch(
    range?: IndexRange<Value, K>,
    options?: WatchOptions,
  ): AsyncGenerator<readonly KeyChange<K>[], void, undefined>;
  watch(
    range?: IndexRange<Value, K>,
    to?: WatchOptions | ((changes: readonly KeyChange<K>[]) => void),
    ...more: unknown[]
  ) {
    return watchRange("watch()", this.reach("watch()", range), to, more);
  }

  /**
   * Gives the keys and records of a range in the order of the index, now and after every change in it. See the
   * database's `live`.
   *
   * ```ts
   * products.index.byStock.live({ lt: 10, limit: 20 }, (rows) => showLowStock(rows));
   * ```
   *
   * @throws as the database's `watch`
   */
  live(range: IndexRange<Value, K>, listener: (rows: [K, Plain<View>][]) => void): Watching;
  live(
    range?: IndexRange<Value, K>,
    options?: WatchOptions,
  ): AsyncGenerator<[K, Plain<View>][], void, undefined>;
  live(
    range?: IndexRange<Value, K>,
    to?: WatchOptions | ((rows: [K, Plain<View>][]) => void),
    ...more: unknown[]
  ) {
    return liveRange("live()", this.reach("live()", range), to, more);
  }

  /** @internal The bounds of a range, the index's keyspace, and the records that its entries are of. */
  reach(call: string, range: IndexRange<Value, K> | undefined): LocalRows {
    return watchedRange(this.context as never, this.boundsOfWalk(call, range), this.space);
  }

  /** @internal Calls a function with the key and the value's address of each record in a range. */
  visit(
    call: string,
    range: IndexRange<Value, K> | undefined,
    visitor: (key: K, at: number) => void,
  ): void {
    const { keys } = this.context;
    const scan = this.walk(call, range, (key, at) => visitor(keys.decode(key), at));
    for (const _ of scan);
  }

  private walk<T>(call: string, range: IndexRange<Value, K> | undefined, form: FormOf<T>): Scan<T> {
    const { context, space } = this;
    const bounds = this.boundsOfWalk(call, range);
    return new Scan(() => new IndexRecords(context as IndexContext<K>, space, bounds, form));
  }

  private boundsOfWalk(call: string, range: IndexRange<Value, K> | undefined): Bounds {
    this.context.source().checkRange(call);
    return this.bounds(call, range);
  }

  private bounds(call: string, range: IndexRange<Value, K> | undefined): Bounds {
    const { tuple } = this.space;
    const values = (value: unknown) => (this.isSingle ? [value] : (value as readonly unknown[]));
    const ordered = {
      write: (area: Uint8Array, value: unknown) => {
        const given = values(value);
        if (!Array.isArray(given))
          throw badArgument(`A bound of ${call} must be an array here.`, value);
        return tuple.write(area, given, true);
      },
    };
    const { engine } = this.context.source();
    const encodeAfter = (after: unknown) => {
      if (!Array.isArray(after) || after.length !== 2) {
        throw badArgument(`The option after of ${call} must be a record's [value, key].`, after);
      }
      const head = bytesOf(ordered, after[0]);
      const key = engine.encoded(this.context.keys.encode(engine, after[1]));
      const bytes = new Uint8Array(head.length + key.length);
      bytes.set(head);
      bytes.set(key, head.length);
      return bytes;
    };
    const isRun = this.isSingle && tuple.parts[0]?.isRun;
    return orderedBounds(call, range, ordered, { encodeAfter, isRun, withEq: true });
  }
}

/** The error for an index that a program did not declare. */
export function noIndex(collection: string, name: string, declared: object): Error {
  const names = Object.keys(declared).join(", ") || "none";
  return badArgument(
    `The collection "${collection}" has no index ${JSON.stringify(name)} here. Declared by the option ` +
      `indexes: ${names}.`,
  );
}

/** Further names that consoles, frameworks and test libraries look up. A program may mean them, but no index here has them. */
const OTHER_PROBED =
  /^([_$@].*|to[A-Z].*|valueOf|constructor|prototype|is[A-Z].*|has[A-Z].*|nodeName|parentNode|length|inspect)$/;

/** An object for the indexes of a collection, by name. Reading a name that was not declared throws. */
export function indexesByName<T>(collection: string): Record<string, T> {
  const indexes: Record<string, T> = Object.create(
    // The prototype is only asked for names that are not own properties.
    new Proxy(Object.create(null) as object, {
      get(_, name) {
        if (typeof name !== "string" || PROBED_PROPERTIES.test(name) || OTHER_PROBED.test(name))
          return undefined;
        throw noIndex(collection, name, indexes);
      },
    }),
    // Node's console looks further names up unless there is this method.
    { [INSPECT]: { value: () => Object.keys(indexes) } },
  );
  return indexes;
}

/** Base class of the walks over an index. Entries are only read if something was written during the walk. */
abstract class IndexSteps<K, T> extends Steps<T> {
  protected readonly context: IndexContext<K>;
  private readonly index: IndexSpace;
  private readonly readsOneEntry: boolean;
  /** The latest version when the iteration began; negative before that. */
  private began: number;
  /** The engine's `changes` at that time: while it is equal, no entry was added or deleted. */
  private changes: number;

  constructor(context: IndexContext<K>, index: IndexSpace, bounds: Bounds) {
    super(context.source, bounds, false, index);
    this.context = context;
    this.index = index;
    this.readsOneEntry = bounds.limit === 1;
    this.began = -1;
    this.changes = 0;
  }

  next(): IteratorResult<T, undefined> {
    const { walk } = this;
    const session = this.session();
    session.assertLiveView();
    if (this.began < 0) this.begin(session);
    while (walk.advance(session)) {
      const result = this.resultOf(session, walk.key() as Uint8Array<ArrayBuffer>);
      if (result === undefined) continue;
      walk.count();
      return result;
    }
    return { done: true, value: undefined };
  }

  /** The result for the record with this encoded key; `undefined` if there is none. */
  protected abstract pick(session: Session, key: Uint8Array<ArrayBuffer>): Step<T> | undefined;

  private begin({ engine }: Session): void {
    // With a single step, nothing can be written between steps.
    this.began = this.readsOneEntry ? Number.POSITIVE_INFINITY : engine.stats().version;
    this.changes = engine.changes;
  }

  private resultOf(session: Session, entry: Uint8Array<ArrayBuffer>): Step<T> | undefined {
    try {
      if (!this.wasThere(session.engine, entry)) return undefined;
      return this.pick(session, entry.subarray(this.index.tuple.end(entry)));
    } catch (error) {
      this.walk.stepBack();
      throw error;
    }
  }

  /** Whether an entry exists, and did when the iteration began. */
  private wasThere(engine: Engine, entry: Uint8Array<ArrayBuffer>): boolean {
    if (engine.changes === this.changes) return true;
    const version = engine.version(engine.encodeBy(copier, entry), this.index.keyspace);
    return version !== 0 && version <= this.began;
  }
}

/** The keys of an index. No values are read. */
class IndexKeys<K> extends IndexSteps<K, K> {
  protected pick(_: Session, key: Uint8Array<ArrayBuffer>): Step<K> {
    return { done: false, value: this.context.keys.decode(key) };
  }
}

/** The records of an index, in the form that a function gives them. */
class IndexRecords<K, T> extends IndexSteps<K, T> {
  private readonly form: FormOf<T>;

  constructor(context: IndexContext<K>, index: IndexSpace, bounds: Bounds, form: FormOf<T>) {
    super(context, index, bounds);
    this.form = form;
  }

  protected pick(session: Session, key: Uint8Array<ArrayBuffer>): Step<T> | undefined {
    const { engine } = session;
    const at = engine.find(engine.encodeBy(copier, key), this.context.space.keyspace);
    return at === 0 ? undefined : { done: false, value: this.form(key, at, this, session) };
  }
}
