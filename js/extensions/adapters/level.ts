/** `varve/level`: a database with the interface of abstract-level. */

import {
  type AbstractDatabaseHooks,
  type AbstractDatabaseOptions,
  AbstractIterator,
  type AbstractIteratorOptions,
  AbstractLevel,
  AbstractSnapshot,
} from "abstract-level";
import type { Client } from "../../client/client.js";
import type { Database } from "../../database/database.js";
import { type Raw, type RawRange, rawOf, refused, using } from "../raw.js";

/** The options of `VarveLevel`: those of abstract-level, and `prefix`. */
export interface VarveLevelOptions<K, V> extends AbstractDatabaseOptions<K, V> {
  /**
   * What the keys in the database begin with, `"level/"` by default. Everything else in the database stays untouched. It
   * is not empty, since keys of abstract-level may be.
   */
  prefix?: string | undefined;
}

/** What is read: a database, a client, or a snapshot. */
type Source = Raw<Uint8Array>;
type Range = RawRange<Uint8Array>;

/** The options of a scan or of `clear`, with keys as bytes. */
interface LevelRange extends Reading {
  readonly gt?: Uint8Array;
  readonly gte?: Uint8Array;
  readonly lt?: Uint8Array;
  readonly lte?: Uint8Array;
  readonly reverse: boolean;
  readonly limit: number;
  readonly keys?: boolean;
  readonly values?: boolean;
}

interface Reading {
  readonly snapshot?: VarveSnapshot;
}

/** A snapshot of a database. */
type OpenSnapshot = Source & { close(): void };

/** A copy of a view, which ends with the turn. */
const copied = (stored: Uint8Array | undefined) => stored?.slice();

function joined(prefix: Uint8Array, key: Uint8Array): Uint8Array {
  const whole = new Uint8Array(prefix.length + key.length);
  whole.set(prefix);
  whole.set(key, prefix.length);
  return whole;
}

/** Of two bounds at one end, abstract-level takes the one that includes its key. */
function rangeOf(prefix: Uint8Array, { gt, gte, lt, lte, reverse, limit }: LevelRange): Range {
  const at = (key: Uint8Array | undefined) => key && joined(prefix, key);
  return {
    prefix,
    reverse,
    gte: at(gte),
    gt: gte ? undefined : at(gt),
    lte: at(lte),
    lt: lte ? undefined : at(lt),
    limit: limit < 0 ? undefined : limit,
  };
}

/** The order of two keys: negative if `a` is the first. */
function order(a: Uint8Array, b: Uint8Array): number {
  let i = 0;
  while (i < a.length && a[i] === b[i]) i += 1;
  return (a[i] ?? -1) - (b[i] ?? -1);
}

/**
 * A database of abstract-level in raw keys of a database, or through a client of one.
 *
 * ```ts
 * const level = new VarveLevel(db, { valueEncoding: "json" });
 * await level.put("users!ann", { age: 30 });
 * ```
 *
 * The database stays yours: `close` ends this, and closes nothing else. Calls reject with the errors of the database, such
 * as `DatabaseClosedError`, and with those of abstract-level.
 */
export class VarveLevel<K = string, V = string> extends AbstractLevel<Uint8Array, K, V> {
  /**
   * The hooks of abstract-level. By its types alone, whether a subclass may be used as an `AbstractLevel` depends on what
   * the compiler has compared before.
   */
  declare hooks: AbstractDatabaseHooks<this> &
    AbstractDatabaseHooks<AbstractLevel<Uint8Array, K, V>>;

  // Not visible: sublevels look for properties such as `prefix`.
  readonly #raw: Source;
  readonly #prefix: Uint8Array;

  /** @throws TypeError if `to` is no database, as `open` gives it, and no client, as `connect` gives it */
  constructor(to: Database | Client, options: VarveLevelOptions<K, V> = {}) {
    const { prefix = "level/", ...others } = options;
    const raw = rawOf(to, "VarveLevel", prefix);
    if (prefix === "") throw refused("The prefix of VarveLevel must not be empty.", prefix);
    // A client takes snapshots with a function, which programs without one need not load.
    const isDatabase = typeof (to as Partial<Database>).snapshot === "function";
    const manifest = {
      encodings: { view: true },
      seek: true,
      has: true,
      getSync: isDatabase,
      implicitSnapshots: isDatabase,
      explicitSnapshots: isDatabase,
    };
    super(manifest, others);
    this.#raw = raw as unknown as Source;
    // abstract-level needs a TextEncoder, too.
    this.#prefix = new TextEncoder().encode(prefix);
  }

  /** @internal A closed database is reported here. */
  async _open(): Promise<void> {
    await this.#raw.has(this.#prefix);
  }

  /** @internal */
  async _get(key: Uint8Array, options: Reading): Promise<Uint8Array | undefined> {
    return using(this.#source(options).get(this.#at(key)), copied);
  }

  /** @internal */
  _getSync(key: Uint8Array, options: Reading): Uint8Array | undefined {
    return copied(this.#source(options).get(this.#at(key)) as Uint8Array | undefined);
  }

  /** @internal */
  async _getMany(
    keys: readonly Uint8Array[],
    options: Reading,
  ): Promise<(Uint8Array | undefined)[]> {
    const all = keys.map((key) => this.#at(key));
    return using(this.#source(options).getMany(all), (found) => found.map(copied));
  }

  /** @internal */
  async _has(key: Uint8Array, options: Reading): Promise<boolean> {
    return this.#source(options).has(this.#at(key));
  }

  /** @internal */
  async _hasMany(keys: readonly Uint8Array[], options: Reading): Promise<boolean[]> {
    return Promise.all(keys.map((key) => this._has(key, options)));
  }

  /** @internal */
  async _put(key: Uint8Array, value: Uint8Array): Promise<void> {
    await this.#raw.set(this.#at(key), value);
  }

  /** @internal */
  async _del(key: Uint8Array): Promise<void> {
    await this.#raw.delete(this.#at(key));
  }

  /** @internal */
  async _batch(
    operations: readonly {
      readonly type: "put" | "del";
      readonly key: Uint8Array;
      readonly value: Uint8Array;
    }[],
  ): Promise<void> {
    await this.#raw.transaction((tx) => {
      for (const { type, key, value } of operations) {
        if (type === "put") tx.set(this.#at(key), value);
        else tx.delete(this.#at(key));
      }
    });
  }

  /** @internal */
  async _clear(options: LevelRange): Promise<void> {
    const range = rangeOf(this.#prefix, options);
    if (options.snapshot === undefined) return void (await this.#raw.clear(range));
    const keys = this.#source(options).keys({ ...range, keyAs: "bytes" });
    await this.#raw.transaction((tx) => {
      for (const key of keys as Iterable<Uint8Array>) tx.delete(key);
    });
  }

  /** @internal */
  _iterator(options: LevelRange) {
    const take =
      options.snapshot || !this.supports.implicitSnapshots ? undefined : () => this.#taken();
    return new VarveIterator(this, options, this.#source(options), this.#prefix, take);
  }

  /** @internal */
  _snapshot(options: object): AbstractSnapshot {
    return new VarveSnapshot(options, this.#taken());
  }

  #at(key: Uint8Array): Uint8Array {
    return joined(this.#prefix, key);
  }

  #taken(): OpenSnapshot {
    return (this.#raw as unknown as { snapshot(): OpenSnapshot }).snapshot();
  }

  #source({ snapshot }: Reading): Source {
    return snapshot?.of ?? this.#raw;
  }
}

class VarveSnapshot extends AbstractSnapshot {
  readonly of: OpenSnapshot;

  constructor(options: object, of: OpenSnapshot) {
    // The types do not show the argument.
    super(...([options] as unknown as []));
    this.of = of;
  }

  async _close(): Promise<void> {
    this.of.close();
  }
}

/** Its rows are keys, values, or both. */
type Rows = Iterator<never> | AsyncIterator<never>;
type Pair = [Uint8Array | undefined, Uint8Array | undefined];

class VarveIterator<K, V> extends AbstractIterator<VarveLevel<K, V>, K, V> {
  private readonly source: Source;
  private readonly range: Range;
  private readonly what: "keys" | "values" | "entries";
  private readonly take: (() => OpenSnapshot) | undefined;
  private own: OpenSnapshot | undefined;
  private readonly prefix: Uint8Array;
  private rows: Rows;

  constructor(
    db: VarveLevel<K, V>,
    options: LevelRange,
    source: Source,
    prefix: Uint8Array,
    take: (() => OpenSnapshot) | undefined,
  ) {
    super(db, options as object as AbstractIteratorOptions<K, V>);
    this.source = source;
    this.prefix = prefix;
    this.range = rangeOf(prefix, options);
    this.what = options.values === false ? "keys" : options.keys === false ? "values" : "entries";
    this.take = take;
    this.rows = this.scan(this.range);
  }

  /** Begins to read. An error is one of the first step: an iterator that cannot be made could not be closed, either. */
  private scan(range: Range): Rows {
    const { what, take } = this;
    try {
      if (take) this.own ??= take();
      const source = this.own ?? this.source;
      const rows = source[what](what === "values" ? range : { ...range, keyAs: "bytes" });
      return (
        Symbol.iterator in rows ? rows[Symbol.iterator]() : rows[Symbol.asyncIterator]()
      ) as Rows;
    } catch (error) {
      return {
        next() {
          throw error;
        },
      };
    }
  }

  async _next(): Promise<Pair | undefined> {
    const step = this.rows.next();
    // What a database gives is a view, and is copied before anything else happens.
    const { done, value } = step instanceof Promise ? await step : step;
    if (done) return undefined;
    const { what } = this;
    const row: unknown = what === "keys" ? [value] : what === "values" ? [undefined, value] : value;
    const [key, stored] = row as Pair;
    return [key?.subarray(this.prefix.length), copied(stored)];
  }

  _seek(target: Uint8Array): void {
    const { gt, gte, lt, lte, ...rest } = this.range;
    const at = joined(this.prefix, target);
    const isOutside =
      (gt && order(at, gt) <= 0) ||
      (gte && order(at, gte) < 0) ||
      (lt && order(at, lt) >= 0) ||
      (lte && order(at, lte) > 0);
    if (isOutside) this.rows = [].values();
    else if (rest.reverse) this.rows = this.scan({ ...rest, gt, gte, lte: at });
    else this.rows = this.scan({ ...rest, lt, lte, gte: at });
  }

  async _close(): Promise<void> {
    await this.rows.return?.();
    this.own?.close();
  }
}
