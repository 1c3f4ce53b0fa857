/**
 * varve/keep: a range of a collection, an index, a database or a client, kept in this realm and read synchronously.
 * It is built on `live`, so only what changes is sent.
 */

import { keyName } from "../client/protocol/messages.js";
import { badArgument, badCall, DatabaseClosedError } from "../errors/index.js";
import { checkedOptions } from "../session/checked-options.js";
import type { Watching } from "../session/watching.js";
import { queueMicrotask } from "../util/clock.js";
import { dispose } from "../util/dispose.js";
import type { KeyOf, LiveRange, LiveSource, ValueOf } from "./hooks/store.js";

export type { KeyOf, LiveRange, LiveSource, ValueOf } from "./hooks/store.js";

/** The most rows of a kept range, unless the option `maxRows` says another number. */
export const MAX_ROWS = 100_000;

/** The options of `keep`. */
export interface KeepOptions {
  /**
   * The most rows that are kept: 1 or more, 100,000 by default. A range that has more is refused. One that gets more ends,
   * and its reads throw why. No more than one row beyond this number is sent.
   */
  maxRows?: number | undefined;
  /** Ends the kept range when it is aborted. Before it is there, `keep` rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

type Row<K, V> = readonly [K, V];

/** The diff of two lists of rows. Rows that are the same objects are in both. */
interface Difference {
  readonly gone: Iterable<Row<unknown, unknown>>;
  readonly added: readonly Row<unknown, unknown>[];
}

/** How a key is found: by value, whatever it consists of. */
function nameOf(key: unknown): unknown {
  return typeof key === "string" ? key : keyName(key);
}

/**
 * A range that is kept in this realm, made by `keep`. Reads are synchronous and show the state after one commit, in the order
 * of the commits, whichever tab made them; a write shows shortly after it was answered. Values are copies: plain objects and
 * bytes of this realm. A row that has not changed is the same object as before, also after another tab has become the
 * owner, so copy a value before you change it.
 *
 * Every read throws `DatabaseClosedError` after `close`, or once the client or database was closed or another build
 * has the database. If the range cannot be followed any more, as when it has more rows than `maxRows`, reads
 * throw the reason, and `ended` rejects with it.
 */
export class KeptRange<K, V> {
  /**
   * Resolves when the range is no longer kept: after `close`, or with its client. Rejects with the reason if it cannot go on.
   * It need not be handled.
   */
  readonly ended: Promise<void>;
  readonly #listeners: Set<() => void> = new Set();
  readonly #found: Map<unknown, Row<K, V>> = new Map();
  readonly #close: () => void;
  #rows: readonly Row<K, V>[] = [];
  #refusal: unknown;

  /** @internal */
  constructor(ended: Promise<void>, close: () => void) {
    this.ended = ended;
    this.#close = close;
  }

  /** @internal Takes the rows of a new state. */
  static update(kept: KeptRange<unknown, unknown>, rows: readonly Row<unknown, unknown>[]): void {
    const { gone, added } = difference(kept.#rows, rows);
    for (const [key] of gone) kept.#found.delete(nameOf(key));
    for (const row of added) kept.#found.set(nameOf(row[0]), row);
    kept.#rows = rows;
    // What one of them throws is an uncaught error, and the others are called.
    for (const listener of kept.#listeners) queueMicrotask(listener);
  }

  /** @internal Makes every read throw this from now on, and drops the rows. */
  static end(kept: KeptRange<unknown, unknown>, reason: unknown): void {
    if (kept.#refusal !== undefined) return;
    kept.#refusal = reason;
    kept.#rows = [];
    kept.#found.clear();
    kept.#listeners.clear();
  }

  /** The rows in the order of the range: the same array until something in the range changes. */
  get rows(): readonly (readonly [K, V])[] {
    if (this.#refusal !== undefined) throw this.#refusal;
    return this.#rows;
  }

  /** The number of rows. */
  get size(): number {
    return this.rows.length;
  }

  /** The value of a key, or `undefined` if it is not in the range. */
  get(key: K): V | undefined {
    if (this.#refusal !== undefined) throw this.#refusal;
    return this.#found.get(nameOf(key))?.[1];
  }

  /** Whether a key is in the range and has a value. */
  has(key: K): boolean {
    if (this.#refusal !== undefined) throw this.#refusal;
    return this.#found.has(nameOf(key));
  }

  /** The keys in the order of the range, as they are when the loop begins; likewise `values` and `entries`. */
  *keys(): Generator<K, void, undefined> {
    for (const [key] of this.rows) yield key;
  }

  /** The values in the order of the range. */
  *values(): Generator<V, void, undefined> {
    for (const [, value] of this.rows) yield value;
  }

  /** The keys and values in the order of the range. */
  entries(): IterableIterator<readonly [K, V]> {
    return this.rows[Symbol.iterator]();
  }

  [Symbol.iterator](): IterableIterator<readonly [K, V]> {
    return this.entries();
  }

  /**
   * Calls a listener after each change, when reads show it. Returns a function that ends that. With `rows` it is what
   * `useSyncExternalStore` and its like need.
   */
  subscribe(listener: () => void): () => void {
    if (typeof listener !== "function")
      throw badArgument("A listener must be a function.", listener);
    if (this.#refusal !== undefined) throw this.#refusal;
    // Each call counts, also one with a listener that was given before.
    const own = () => listener();
    this.#listeners.add(own);
    return () => {
      this.#listeners.delete(own);
    };
  }

  /** Ends it. No listener is called after this, and reads throw `DatabaseClosedError`. */
  close(): void {
    this.#close();
  }

  /** Ends it at the end of a `using` block. */
  [dispose](): void {
    this.close();
  }
}

/**
 * Keeps a range in this realm: resolves when all its rows are there, and then follows every commit.
 *
 * ```ts
 * using notes = await keep(shop.collection("notes"), { gte: "2026-" });
 * notes.get("2026-11-28")?.title; // synchronous
 * for (const [key, note] of notes) console.log(key, note.title);
 * ```
 *
 * @param source a collection or an index, of a client or of a database, or the client or database itself for its raw keys
 * @param range as for `live`
 * @throws (rejects) TypeError for a bad range or option, and if the range has more rows than `maxRows`; the reason of
 * `signal`; DatabaseClosedError if the client was closed before; whatever ends a `live` of that range
 */
export async function keep<S extends LiveSource>(
  source: S,
  range?: LiveRange<S>,
  options?: KeepOptions,
): Promise<KeptRange<KeyOf<S>, ValueOf<S>>>;
export async function keep(
  source: LiveSource,
  range: unknown = {},
  options?: KeepOptions,
): Promise<KeptRange<unknown, unknown>> {
  const known = checkedOptions("keep()", options, ["maxRows", "signal"]);
  const { maxRows = MAX_ROWS, signal } = known;
  if (!Number.isSafeInteger(maxRows) || maxRows < 1) {
    throw badArgument("The option maxRows of keep() must be an integer, 1 or more.", maxRows);
  }
  if (typeof Object(source).live !== "function") {
    throw badArgument("keep() takes a collection, an index, a client or a database.", source);
  }
  if (Object(range) !== range) throw badArgument("The range of keep() must be an object.", range);
  signal?.throwIfAborted();
  const { limit } = range as { limit?: unknown };
  // One more than is allowed shows that there are too many. Other limits are checked by the source.
  const isBelow = limit !== undefined && !((limit as number) > maxRows);
  const followed = { ...(range as object), limit: isBelow ? limit : maxRows + 1 };
  return new Promise((resolve, reject) => {
    let watching: Watching | undefined;
    let kept: KeptRange<unknown, unknown> | undefined;
    let settle: (reason?: unknown) => void = () => {};
    const ended = new Promise<void>((done, fail) => {
      settle = (reason) => (reason === undefined ? done() : fail(reason));
    });
    // Reads throw the reason.
    ended.catch(() => {});
    const end = (reason?: unknown) => {
      watching?.close();
      signal?.removeEventListener("abort", abort);
      const refusal = reason ?? gone();
      if (kept !== undefined) KeptRange.end(kept, refusal);
      settle(reason);
      reject(refusal);
    };
    const abort = () => (kept === undefined ? end(signal?.reason) : end());
    const onRows = (rows: readonly Row<unknown, unknown>[]) => {
      if (rows.length > maxRows) {
        end(tooMany(maxRows));
        return;
      }
      const isFirst = kept === undefined;
      kept ??= new KeptRange(ended, end);
      KeptRange.update(kept, rows);
      if (isFirst) resolve(kept);
    };
    watching = source.live(followed as never, onRows as never);
    watching.ended.then(() => end(), end);
    signal?.addEventListener("abort", abort);
  });
}

/** What is in one list of rows only. */
function difference(
  before: readonly Row<unknown, unknown>[],
  after: readonly Row<unknown, unknown>[],
): Difference {
  let start = 0;
  while (start < before.length && before[start] === after[start]) start += 1;
  let [oldEnd, newEnd] = [before.length, after.length];
  while (oldEnd > start && newEnd > start && before[oldEnd - 1] === after[newEnd - 1]) {
    oldEnd -= 1;
    newEnd -= 1;
  }
  const gone = new Set(before.slice(start, oldEnd));
  const added = after.slice(start, newEnd).filter((row) => !gone.delete(row));
  return { gone, added };
}

function gone(): Error {
  return new DatabaseClosedError(
    "The kept range has ended: it, its client or its database was closed, or a newer build of the application has the " +
      "database. Call keep() again.",
  );
}

function tooMany(maxRows: number): Error {
  return badCall(
    `The range of keep() has more than ${maxRows} rows, which would all be in the memory of this realm. Keep a narrower ` +
      "one, give it a limit, or raise the option maxRows.",
  );
}
