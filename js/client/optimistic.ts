/** Transactions of clients: what they read is remembered, and checked when they commit. */

import { badCall, ConflictError, OwnerUnavailableError, ReentrancyError } from "../errors/index.js";
import { laterOf } from "../session/async-guard.js";
import type { Key, Value } from "../util/bytes.js";
import { clearTimeout, setTimeout } from "../util/clock.js";
import { decoder } from "../util/text-coders.js";
import type { Caller, CallOptions } from "./connection/connection.js";
import { CALL_NAME, checkedOptions, noFunction } from "./protocol/call-options.js";
import { bytesOf } from "./protocol/clone.js";
import {
  carried,
  type Forms,
  ownClone,
  plainValueOf,
  type Sent,
  sentOf,
} from "./protocol/json-values.js";
import { keyName } from "./protocol/messages.js";

/**
 * The options of `client.updateIf` and `client.transaction`. `timeout` applies to each request that they
 * make, not to all of them together.
 */
export interface RetryOptions extends CallOptions {
  /** How often it is repeated after a conflict, at most: a whole number. 10 by default. */
  retries?: number | undefined;
}

/** What a transaction has read, and what it writes if that still holds. */
export interface Writes {
  readonly reads: readonly {
    readonly key: unknown;
    readonly version: number;
    readonly in?: string | undefined;
  }[];
  readonly writes: readonly {
    readonly type: "set" | "delete";
    readonly key: unknown;
    readonly value?: unknown;
    readonly forms?: Forms | undefined;
    readonly in?: string | undefined;
  }[];
}

/** A key as it is at this moment, for the program may change what it has: raw ones as bytes. */
function keyOf<T>(collection: string | undefined, given: T): T {
  return collection === undefined ? bytesOf(given) : ownClone(given, "The key");
}

/**
 * The longest pause is two milliseconds before the second repetition, and doubles until it is an eighth of a
 * second: with less, fifty updates of one key in a tab, or twenty in each of three, ran out of retries.
 */
const DOUBLINGS = 7;

/** Whoever is at it for longer holds up nobody behind, for whom it may be waiting itself. */
const TURN_MS = 1_000;

/** What transactions take, and what updates take. */
const OPTIONS = {
  transaction: ["signal", "timeout", "retries"],
  updateIf: ["signal", "timeout", "retries", "predicate", "valueIfMissing"],
};

/**
 * Runs what reads and writes, and makes its writes if what it has read still holds; else again, until it is
 * done or was done often enough. Those that have met a conflict stand in a line and go one behind the other:
 * of hundreds of one key each meets no second one then but with those of other realms. It is a
 * courtesy and no lock: when no owner answers they all go. `callback` is the program's function, which `body`
 * calls.
 */
export async function transact<T>(
  as: "updateIf" | "transaction",
  caller: Caller,
  options: RetryOptions | undefined,
  callback: unknown,
  body: (log: Log) => T | PromiseLike<T>,
): Promise<T> {
  const { retries = 10, signal, timeout } = checkedOptions(`${as}()`, options, OPTIONS[as]);
  if (typeof callback !== "function") throw noFunction(`${as}()`);
  const mine = { signal, timeout, [CALL_NAME]: as };
  const read = async (key: unknown, collection: string | undefined) => {
    const entry = (await caller.request("getEntry", () => [key], false, mine, collection)) as Found;
    return { read: { key, in: collection, version: entry?.version ?? 0 }, value: entry?.value };
  };
  let go = () => {};
  let stop = () => {};
  let isAlone: boolean | undefined;
  let turn: ReturnType<typeof setTimeout> | undefined;
  const leave = () => {
    if (!caller.retryQueue.delete(go)) return;
    for (const next of caller.retryQueue) {
      next();
      if (!isAlone) break;
    }
  };
  const run = async () => {
    for (let tries = 0; ; tries += 1) {
      signal?.throwIfAborted();
      try {
        const log: Log = { read, caller, seen: new Map(), written: new Map() };
        const result = await body(log);
        log.over = true;
        if (laterOf(result)) throw noFunction(`${as}()`);
        const seen = await Promise.all(log.seen.values());
        if (log.written.size > 0 || seen.length > 1) {
          const reads = seen.map(({ read }) => read);
          const writes = [...log.written.values()].map(({ isLess, ...write }) => write);
          const all: Writes = { reads, writes };
          await caller.request("commitIf", () => [all], true, mine);
        }
        return result;
      } catch (error) {
        isAlone = error instanceof OwnerUnavailableError;
        signal?.throwIfAborted();
        if (!(error instanceof ConflictError && tries < retries)) throw error;
      }
      await new Promise<void>((resolve) => {
        // Others who have met the same conflict are not to meet again.
        if (tries) setTimeout(resolve, Math.random() * 2 ** Math.min(tries, DOUBLINGS));
        else {
          go = () => {
            turn ??= setTimeout(leave, TURN_MS);
            resolve();
          };
          if (caller.retryQueue.add(go).size === 1) go();
        }
      });
    }
  };
  // Whoever gives it up is told at once, whatever it waits for.
  const stopped = new Promise<never>((_, reject) => {
    stop = () => reject(signal?.reason);
  });
  signal?.addEventListener("abort", stop);
  try {
    return await Promise.race([stopped, run()]);
  } finally {
    signal?.removeEventListener("abort", stop);
    clearTimeout(turn);
    leave();
  }
}

/** The options of `updateIf`, of whatever values. */
export interface AnyUpdateOptions extends RetryOptions {
  predicate?: ((value: never) => boolean) | undefined;
  valueIfMissing?: unknown;
}

/** Reads, has it changed, and writes if nobody else has written meanwhile; else again. */
export async function updateIf(
  caller: Caller,
  collection: string | undefined,
  key: unknown,
  change: (value: never) => unknown,
  options: AnyUpdateOptions | undefined,
): Promise<boolean> {
  const { predicate = () => true, valueIfMissing } = options ?? {};
  const wanted = ownClone(key, "The key of updateIf()");
  // As JSON too, for it is not known yet whether that is needed.
  const missing =
    collection === undefined ? bytesOf(valueIfMissing) : carried(() => sentOf(valueIfMissing));
  const isGiven = valueIfMissing !== undefined;
  return transact("updateIf", caller, options, change, async (log) => {
    const part = partOf(log, collection);
    const found = await part.get(wanted);
    // A copy for each time: the callback changes it.
    const value = (
      found !== undefined || !isGiven
        ? found
        : collection === undefined
          ? bytesOf(missing)
          : carried(() => plainValueOf(missing as Sent, caller.isJson(collection)))
    ) as never;
    if (value === undefined) return false;
    const isWanted: unknown = predicate(value);
    if (isWanted === false) return false;
    if (laterOf(isWanted) || isWanted !== true) {
      throw badCall("The predicate of updateIf() must return true or false.");
    }
    const changed = change(value) ?? value;
    if (laterOf(changed)) {
      throw badCall("The function of updateIf() must return the new value or nothing.");
    }
    part.set(wanted, changed);
    return true;
  });
}

/** A value and its version, or neither. */
type Found = { readonly value: unknown; readonly version: number } | undefined;

interface Seen {
  readonly read: Writes["reads"][number];
  readonly value: unknown;
}

/** What a transaction has read and written so far, in all its parts. */
interface Log {
  readonly read: (key: unknown, collection: string | undefined) => Promise<Seen>;
  readonly caller: Caller;
  readonly seen: Map<string, Promise<Seen>>;
  readonly written: Map<string, Writes["writes"][number] & Pick<Sent, "isLess">>;
  over?: boolean;
}

/** A collection inside a client's transaction: reads go to the database, and writes are made at the end. */
export interface TxPart<Given, Plain, Input> {
  /**
   * Resolves to the value of a key as this transaction sees it: the value that it has written, as it was
   * given, or else the one that its first read of the key found.
   */
  get(key: Given): Promise<Plain | undefined>;
  /** Resolves to whether the key has a value, as this transaction sees it. */
  has(key: Given): Promise<boolean>;
  /** Stores a value under a key when the transaction commits. */
  set(key: Given, value: Input): void;
  /** Deletes a key when the transaction commits. */
  delete(key: Given): void;
}

/** A client's transaction, as its function sees it: raw keys, and the collections by name. */
export interface Tx extends TxPart<Key, Uint8Array<ArrayBuffer>, Value> {
  /** Resolves to the value of a key as a string. */
  getText(key: Key): Promise<string | undefined>;
}

/** A collection within a transaction, or its raw keys. */
function partOf(log: Log, collection?: string): TxPart<unknown, unknown, unknown> {
  const isJson = () => (collection === undefined ? undefined : log.caller.isJson(collection));
  /** What a key counts as. */
  const admit = (key: unknown) => {
    if (log.over) {
      throw new ReentrancyError("The transaction is over. Await everything in its function.");
    }
    // The same for a string and for its bytes.
    return keyName(collection === undefined ? bytesOf(key) : [collection, key]);
  };
  const write = (type: "set" | "delete", key: unknown, value?: unknown) => {
    const name = admit(key);
    const raw = collection === undefined ? { value: bytesOf(value) } : undefined;
    const sent = raw ?? (type === "set" ? carried(() => sentOf(value, isJson())) : {});
    log.written.set(name, { ...sent, type, key: keyOf(collection, key), in: collection });
  };
  const get = async (key: unknown) => {
    const name = admit(key);
    let seen = log.seen.get(name);
    if (seen === undefined && !log.written.has(name)) {
      seen = log.read(keyOf(collection, key), collection);
      log.seen.set(name, seen);
      // A read that failed is not one that was made.
      seen.catch(() => log.seen.delete(name));
    }
    const written = log.written.get(name);
    const { value } = written ?? ((await seen) as Seen);
    if (collection === undefined) return bytesOf(value);
    return carried(() =>
      written?.type === "set" ? plainValueOf(written as Sent, isJson()) : structuredClone(value),
    );
  };
  return {
    get,
    has: async (key) => (await get(key)) !== undefined,
    delete: (key) => write("delete", key),
    set: (key, value, ...more: unknown[]) => {
      if (more.length > 0) throw badCall("set() of a transaction has no options.");
      write("set", key, value);
    },
  };
}

/** What the function of a transaction is given, with the collections that its client declares. */
export function txOf(log: Log, declared: readonly string[]): object {
  const part = partOf(log);
  const getText = async (key: Key) => {
    const value = (await part.get(key)) as Uint8Array<ArrayBuffer> | undefined;
    return value && decoder.decode(value);
  };
  const collection = (name: string) => partOf(log, name);
  const named = declared.map((name) => [name, collection(name)] as const);
  return { ...Object.fromEntries(named), ...part, getText, collection };
}
