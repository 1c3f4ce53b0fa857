/** What the adapters of other stores' interfaces share: raw keys of a database or a client, below a prefix. */

import { badCall } from "../errors/base.js";
import type { ExpiryOptions } from "../session/expiry.js";
import { decoder } from "../util/text-coders.js";

/** The error for a bad argument. It says the type of what was given and not more, since adapters are to be small. */
export function refused(expected: string, given: unknown): TypeError {
  return badCall(`${expected} Given: ${given === null ? "null" : typeof given}.`);
}

/** Something, or the promise of it: a database returns its results, and a client promises them. */
export type Awaitable<T> = T | Promise<T>;

/** The calls of a transaction. */
export interface RawTransaction<K> {
  get(key: K): Awaitable<Uint8Array | undefined>;
  set(key: K, value: string | Uint8Array, options?: ExpiryOptions): unknown;
  delete(key: K): unknown;
}

/** A range of keys. */
export interface RawRange<K> {
  readonly prefix: K;
  readonly gt?: K | undefined;
  readonly gte?: K | undefined;
  readonly lt?: K | undefined;
  readonly lte?: K | undefined;
  readonly reverse?: boolean;
  readonly limit?: number | undefined;
  /** Keys come as bytes, and not as text. */
  readonly keyAs?: "bytes";
}

type Rows<T> = Iterable<T> | (AsyncIterable<T> & { all(): Promise<T[]> });

/** The calls of a database, as `open` gives it, and of a client, as `connect` gives it, for raw keys. */
export interface Raw<K = string> extends RawTransaction<K> {
  getMany(keys: readonly K[]): Awaitable<(Uint8Array | undefined)[]>;
  has(key: K): Awaitable<boolean>;
  getEntry(
    key: K,
  ): Awaitable<{ readonly value: Uint8Array; readonly expires: Date | undefined } | undefined>;
  set(key: K, value: string | Uint8Array, options?: ExpiryOptions): Awaitable<void>;
  delete(key: K): Awaitable<boolean>;
  clear(range: RawRange<K>): Awaitable<number>;
  keys(range: RawRange<K>): Rows<K>;
  values(range: RawRange<K>): Rows<Uint8Array>;
  entries(range: RawRange<K>): Rows<[K, Uint8Array]>;
  batch(
    operations: readonly (
      | { readonly type: "set"; readonly key: K; readonly value: string | Uint8Array }
      | { readonly type: "delete"; readonly key: K }
    )[],
  ): Awaitable<void>;
  transaction(body: (tx: RawTransaction<K>) => Awaitable<void>): Awaitable<void>;
}

/** @throws TypeError for anything but a database or a client, or a prefix that is no string */
export function rawOf(to: unknown, name: string, prefix: unknown): Raw {
  if (typeof prefix !== "string") throw refused(`The prefix of ${name} must be a string.`, prefix);
  // Neither a collection nor a snapshot has this call, nor do databases of other libraries, most of which have transactions.
  const { verify } = Object(to) as { verify?: unknown };
  if (typeof verify === "function") return to as Raw;
  throw refused(`${name} needs a database, as open() gives it, or a client of connect().`, to);
}

/**
 * Calls `use` with a result: at once for that of a database, whose views end with the turn, and otherwise when its
 * promise has resolved.
 */
export function using<T, R>(result: Awaitable<T>, use: (result: T) => Awaitable<R>): Awaitable<R> {
  return result instanceof Promise ? result.then(use) : use(result);
}

/**
 * Resolves when what a call has just written is in the file: a client answers then, and a database commits at the end of
 * the turn. Rejects if it was refused.
 */
export function written(raw: Raw, result: unknown): Promise<unknown> {
  if (result instanceof Promise) return result;
  return (raw as unknown as { readonly committed: Promise<void> }).committed;
}

/**
 * The keys of a range with what they hold, for `for await`. Values of a database are views that end with the turn, and so
 * are used at once.
 */
export async function* entriesIn<T>(
  raw: Raw,
  prefix: string,
  use: (stored: Uint8Array) => T,
): AsyncGenerator<[string, T], void> {
  const entries = raw.entries({ prefix });
  if (Symbol.iterator in entries) {
    for (const [key, value] of entries) yield [key.slice(prefix.length), use(value)];
  } else {
    for await (const [key, value] of entries) yield [key.slice(prefix.length), use(value)];
  }
}

/** A stored value as text; `undefined` for a missing key. @throws TypeError if it is not UTF-8 */
export function textOf(stored: Uint8Array | undefined): string | undefined {
  try {
    return stored && decoder.decode(stored);
  } catch (cause) {
    throw Object.assign(badCall("The value is not UTF-8 text: something else has stored it."), {
      cause,
    });
  }
}

/**
 * The options for a record that expires after some milliseconds, without a TTL never. The file has times up to the year
 * 2106; what expires later stays. What is to expire at once is not rounded up to the next second.
 *
 * @throws TypeError for anything but a number
 */
export function expiryIn(ttl: unknown): ExpiryOptions | undefined {
  if (ttl === undefined) return undefined;
  if (typeof ttl !== "number" || Number.isNaN(ttl)) {
    throw refused("A TTL must be a number.", ttl);
  }
  const expireAt = ttl > 0 ? Date.now() + ttl : 0;
  return expireAt < 0xffff_ffff * 1000 ? { expireAt } : undefined;
}
