/** Optimistic transactions of clients: their reads are recorded, and checked when they commit. */

import { badCall, ConflictError, OwnerUnavailableError, ReentrancyError } from "../errors/index.js";
import { unfinishedKind } from "../session/async-guard.js";
import { checkedOptions, noFunction } from "../session/checked-options.js";
import type { ExpiryOptions } from "../session/expiry.js";
import type { Key, Value } from "../util/bytes.js";
import { clearTimeout, setTimeout } from "../util/clock.js";
import { decoder } from "../util/text-coders.js";
import type { Caller, CallOptions } from "./connection/caller.js";
import { CALL_NAME } from "./protocol/call-options.js";
import { bytesOf, cloneArgs } from "./protocol/clone.js";
import { carried, ownClone, plainValueOf, type Sent, sentOf } from "./protocol/json-values.js";
import { keyName } from "./protocol/messages.js";
import type { TransactionRequest } from "./protocol/transaction-request.js";

/**
 * The options of `client.updateIf` and `client.transaction`. `timeout` applies to each request that they
 * make, not to all of them together.
 */
export interface RetryOptions extends CallOptions {
  /** How often it is repeated after a conflict, at most: a whole number. 10 by default. */
  retries?: number | undefined;
}

/** The options of `client.transaction`. */
export interface RemoteTransactionOptions extends RetryOptions {
  /**
   * Why it is made: up to 65,536 bytes of text. It is kept in the log with the time and the number of this client, as
   * long as compaction keeps the transaction there; `log` shows it. The transaction is a commit of its own then.
   */
  note?: string | undefined;
}

/** A clone of a key, which the program may change later. Raw keys become bytes. */
function keyOf<T>(collection: string | undefined, given: T): T {
  return collection === undefined ? bytesOf(given) : ownClone(given, "The key");
}

/**
 * The most doublings of the pause between retries: up to two milliseconds before the second one, and up to an
 * eighth of a second in the end. With less, fifty updates of one key in a tab, or twenty in each of three tabs,
 * ran out of retries.
 */
const MAX_BACKOFF_DOUBLINGS = 7;

/** The longest time that a transaction keeps its place in the retry queue: the transaction may itself be waiting for one behind it. */
const QUEUE_SLOT_MS = 1_000;

/** The options of transactions, and those of updates. */
const OPTIONS = {
  transaction: ["signal", "timeout", "retries", "note"],
  updateIf: ["signal", "timeout", "retries", "predicate", "valueIfMissing"],
};

/**
 * Runs `body`, and makes its writes if no key that it read has changed. Otherwise it runs again, until its
 * retries are used up. Conflicting transactions of this realm retry one at a time, in a queue, so that hundreds
 * on one key conflict only with those of other realms. The queue is best effort and no lock: when no owner
 * answers, all of them proceed. `callback` is the program's function, which `body` calls.
 */
export async function transact<T>(
  as: "updateIf" | "transaction",
  caller: Caller,
  options: RemoteTransactionOptions | undefined,
  callback: unknown,
  body: (log: Log) => T | PromiseLike<T>,
): Promise<T> {
  const { retries = 10, signal, timeout, note } = checkedOptions(`${as}()`, options, OPTIONS[as]);
  if (typeof callback !== "function") throw noFunction(`${as}()`);
  const requestOptions = { signal, timeout, [CALL_NAME]: as };
  const read = async (key: unknown, collection: string | undefined) => {
    const entry = (await caller.request(
      "getEntry",
      () => [key],
      false,
      requestOptions,
      collection,
    )) as Found;
    return { read: { key, in: collection, version: entry?.version ?? 0 }, value: entry?.value };
  };
  let grant = () => {};
  let stop = () => {};
  let isOwnerMissing: boolean | undefined;
  let slotTimer: ReturnType<typeof setTimeout> | undefined;
  const leaveQueue = () => {
    if (!caller.retryQueue.delete(grant)) return;
    for (const next of caller.retryQueue) {
      next();
      if (!isOwnerMissing) break;
    }
  };
  const run = async () => {
    for (let tries = 0; ; tries += 1) {
      signal?.throwIfAborted();
      try {
        const log: Log = { read, caller, seen: new Map(), written: new Map() };
        const result = await body(log);
        log.over = true;
        if (unfinishedKind(result)) throw noFunction(`${as}()`);
        const seen = await Promise.all(log.seen.values());
        if (log.written.size > 0 || seen.length > 1) {
          const reads = seen.map(({ read }) => read);
          const writes = [...log.written.values()].map(({ isLess, ...write }) => write);
          const all: TransactionRequest = { reads, writes, note, keepsExpiry: as === "updateIf" };
          await caller.request("commitIf", () => [all], true, requestOptions);
        }
        return result;
      } catch (error) {
        isOwnerMissing = error instanceof OwnerUnavailableError;
        signal?.throwIfAborted();
        if (!(error instanceof ConflictError && tries < retries)) throw error;
      }
      await new Promise<void>((resolve) => {
        // A random pause, so that transactions of other realms with the same conflict do not collide again.
        if (tries) setTimeout(resolve, Math.random() * 2 ** Math.min(tries, MAX_BACKOFF_DOUBLINGS));
        else {
          grant = () => {
            slotTimer ??= setTimeout(leaveQueue, QUEUE_SLOT_MS);
            resolve();
          };
          if (caller.retryQueue.add(grant).size === 1) grant();
        }
      });
    }
  };
  // Aborting rejects at once, whatever the transaction waits for.
  const stopped = new Promise<never>((_, reject) => {
    stop = () => reject(signal?.reason);
  });
  signal?.addEventListener("abort", stop);
  try {
    return await Promise.race([stopped, run()]);
  } finally {
    signal?.removeEventListener("abort", stop);
    clearTimeout(slotTimer);
    leaveQueue();
  }
}

/** The options of `updateIf` for any type of value. */
export interface AnyUpdateOptions extends RetryOptions {
  predicate?: ((value: never) => boolean) | undefined;
  valueIfMissing?: unknown;
}

/** Reads a value, changes it, and writes it if the key has not changed meanwhile. Otherwise repeats. */
export async function updateIf(
  caller: Caller,
  collection: string | undefined,
  key: unknown,
  change: (value: never) => unknown,
  options: AnyUpdateOptions | undefined,
): Promise<boolean> {
  const { predicate = () => true, valueIfMissing } = options ?? {};
  const keyClone = ownClone(key, "The key of updateIf()");
  // Also as JSON, since the kind of the collection may not be known yet.
  const missing =
    collection === undefined ? bytesOf(valueIfMissing) : carried(() => sentOf(valueIfMissing));
  const isGiven = valueIfMissing !== undefined;
  return transact("updateIf", caller, options, change, async (log) => {
    const part = partOf(log, collection);
    const found = await part.get(keyClone);
    // A copy for each try, because the callback changes it.
    const value = (
      found !== undefined || !isGiven
        ? found
        : collection === undefined
          ? bytesOf(missing)
          : carried(() => plainValueOf(missing as Sent, caller.storingOf(collection)))
    ) as never;
    if (value === undefined) return false;
    const isAccepted: unknown = predicate(value);
    if (isAccepted === false) return false;
    if (unfinishedKind(isAccepted) || isAccepted !== true) {
      throw badCall("The predicate of updateIf() must return true or false.");
    }
    const result = change(value);
    // As in the database itself, `null` is a value: a json() collection stores it.
    const changed = result === undefined ? value : result;
    if (unfinishedKind(changed)) {
      throw badCall("The function of updateIf() must return the new value or nothing.");
    }
    part.set(keyClone, changed);
    return true;
  });
}

/** A value and its version; `undefined` for a missing key. */
type Found = { readonly value: unknown; readonly version: number } | undefined;

interface ReadResult {
  readonly read: TransactionRequest["reads"][number];
  readonly value: unknown;
}

/** The reads and writes of a transaction so far, in all its collections. */
interface Log {
  readonly read: (key: unknown, collection: string | undefined) => Promise<ReadResult>;
  readonly caller: Caller;
  readonly seen: Map<string, Promise<ReadResult>>;
  readonly written: Map<string, TransactionRequest["writes"][number] & Pick<Sent, "isLess">>;
  over?: boolean;
}

/** A collection inside a client's transaction: reads go to the database, and writes are made at the end. */
export interface TxPart<KeyInput, Plain, Input> {
  /**
   * Resolves to the value of a key as this transaction sees it: the value that it has written, as it was
   * given, or else the one that its first read of the key found.
   */
  get(key: KeyInput): Promise<Plain | undefined>;
  /** Resolves to whether the key has a value, as this transaction sees it. */
  has(key: KeyInput): Promise<boolean>;
  /**
   * Stores a value under a key when the transaction commits. `expireIn` counts from then. Bad options reject the
   * transaction.
   */
  set(key: KeyInput, value: Input, options?: ExpiryOptions): void;
  /** Deletes a key when the transaction commits. */
  delete(key: KeyInput): void;
}

/** A client's transaction, as its function receives it: raw keys, and the collections by name. */
export interface Tx extends TxPart<Key, Uint8Array<ArrayBuffer>, Value> {
  /** Resolves to the value of a key as a string. */
  getText(key: Key): Promise<string | undefined>;
}

/** A collection within a transaction, or its raw keys. */
function partOf(log: Log, collection?: string): TxPart<unknown, unknown, unknown> {
  const storing = () => (collection === undefined ? undefined : log.caller.storingOf(collection));
  /** The name of a key in the transaction's records. Throws once the transaction is over. */
  const nameOf = (key: unknown) => {
    if (log.over) {
      throw new ReentrancyError("The transaction is over. Await everything in its function.");
    }
    // The same name for a string and for its bytes.
    return keyName(collection === undefined ? bytesOf(key) : [collection, key]);
  };
  const write = (type: "set" | "delete", key: unknown, value?: unknown, options?: unknown) => {
    const name = nameOf(key);
    const raw = collection === undefined ? { value: bytesOf(value) } : undefined;
    const sent = raw ?? (type === "set" ? carried(() => sentOf(value, storing())) : {});
    const expiry = cloneArgs(options) as ExpiryOptions | undefined;
    log.written.set(name, { ...sent, type, key: keyOf(collection, key), expiry, in: collection });
  };
  const get = async (key: unknown) => {
    const name = nameOf(key);
    let seen = log.seen.get(name);
    if (seen === undefined && !log.written.has(name)) {
      seen = log.read(keyOf(collection, key), collection);
      log.seen.set(name, seen);
      // A failed read is not recorded.
      seen.catch(() => log.seen.delete(name));
    }
    const written = log.written.get(name);
    const { value } = written ?? ((await seen) as ReadResult);
    if (collection === undefined) return bytesOf(value);
    return carried(() =>
      written?.type === "set" ? plainValueOf(written as Sent, storing()) : structuredClone(value),
    );
  };
  return {
    get,
    has: async (key) => (await get(key)) !== undefined,
    delete: (key) => write("delete", key),
    set: (key, value, options) => write("set", key, value, options),
  };
}

/** The argument of a transaction's function, with the collections that its client declares. */
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
