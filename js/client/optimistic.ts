/** Transactions of clients: what they read is remembered, and checked when they commit. */

import type { Key, Value } from "../bytes.js";
import { badCall, ConflictError, ReentrancyError } from "../errors.js";
import type { Caller, CallOptions } from "./link.js";
import { keyName } from "./messages.js";
import { bytesOf, isBytes, own } from "./own.js";

/** The options of `client.updateIf` and `client.transaction`. */
export interface RetryOptions extends CallOptions {
  /** How often it is done again after a conflict, at most; 10 when left out. */
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
    readonly in?: string | undefined;
  }[];
}

/** A value and its version, or neither. */
type Found = { readonly value: unknown; readonly version: number } | undefined;

/** A value and its version, as the owner has them. */
export function entryOf(
  caller: Caller,
  place: string | undefined,
  key: unknown,
  options: CallOptions,
): Promise<Found> {
  const [call, args] = ["getEntry", [key]] as const;
  return (
    place === undefined
      ? caller.request(call, args, false, options)
      : caller.request("in", [place, call, args], false, options)
  ) as Promise<Found>;
}

/** Writes if what was read still holds. */
export function commitIf(caller: Caller, writes: Writes, options: CallOptions): Promise<unknown> {
  return caller.request("commitIf", [writes], true, options);
}

/** As it was given: the program may change what it has. */
function kept(place: string | undefined, given: unknown): unknown {
  return place === undefined ? own(given as Key | Value) : structuredClone(given);
}

/** As it is read: the program may change what it is given. */
function copied(place: string | undefined, value: unknown): unknown {
  return place === undefined ? bytesOf(value as Value) : structuredClone(value);
}

/** The longest pause before the second repetition; it doubles each time, so often. */
const PAUSE_MS = 1;
const DOUBLINGS = 5;

/** Does it until there is no conflict, or often enough. */
export async function attempt<T>(
  retries = 10,
  signal: AbortSignal | undefined,
  body: () => Promise<T>,
): Promise<T> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await body();
    } catch (error) {
      if (!(error instanceof ConflictError) || tries >= retries) throw error;
    }
    signal?.throwIfAborted();
    // Others who have met the same conflict are not to meet again.
    const pause = Math.random() * PAUSE_MS * 2 ** Math.min(tries, DOUBLINGS);
    if (tries > 0) await new Promise((resolve) => setTimeout(resolve, pause));
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
  place: string | undefined,
  key: unknown,
  change: (value: never) => unknown,
  { predicate, valueIfMissing, retries, ...options }: AnyUpdateOptions,
): Promise<boolean> {
  const [wanted, missing] = [kept(place, key), kept(place, valueIfMissing)];
  return attempt(retries, options.signal, async () => {
    const entry = await entryOf(caller, place, wanted, options);
    // A copy for each time: the callback changes it.
    const fresh = missing === undefined ? undefined : copied(place, missing);
    const value = (entry === undefined ? fresh : entry.value) as never;
    if (value === undefined || (predicate !== undefined && predicate(value) !== true)) return false;
    const changed = change(value) ?? value;
    const { then } = Object(changed) as { then?: unknown };
    if (
      place === undefined
        ? !isBytes(changed) && typeof changed !== "string"
        : typeof then === "function"
    ) {
      throw badCall(
        "The callback of updateIf() is synchronous, and returns nothing or the new value.",
      );
    }
    const of = { key: wanted, in: place };
    await commitIf(
      caller,
      {
        reads: [{ ...of, version: entry?.version ?? 0 }],
        writes: [{ ...of, type: "set", value: changed }],
      },
      options,
    );
    return true;
  });
}

interface Seen {
  readonly key: unknown;
  readonly version: number;
  readonly in?: string | undefined;
  readonly value: unknown;
}

/** What a transaction has read and written so far, in all its parts. */
interface Log {
  readonly read: (key: unknown, place: string | undefined) => Promise<Found>;
  readonly seen: Map<string, Promise<Seen>>;
  readonly written: Map<string, Writes["writes"][number]>;
  over: boolean;
}

/** A collection as a transaction of a client sees it: it reads through, and writes at the end. */
export class TxPart<Given, Plain, Input> {
  private readonly log: Log;
  private readonly place: string | undefined;

  /** @internal */
  constructor(log: Log, place?: string) {
    this.log = log;
    this.place = place;
  }

  /** The value of a key: what this transaction has written, as it was given, or what it found first. */
  async get(key: Given): Promise<Plain | undefined> {
    const { place, log } = this;
    const name = this.admit(key);
    let seen = log.seen.get(name);
    if (seen === undefined && !log.written.has(name)) {
      seen = this.find(kept(place, key));
      log.seen.set(name, seen);
      // A read that failed is not one that was made.
      seen.catch(() => log.seen.delete(name));
    }
    const { value } = log.written.get(name) ?? ((await seen) as Seen);
    if (value === undefined) return undefined;
    return copied(place, value) as Plain;
  }

  async has(key: Given): Promise<boolean> {
    return (await this.get(key)) !== undefined;
  }

  /** Sets a key when the transaction commits. */
  set(key: Given, value: Input): void {
    const name = this.admit(key);
    this.write(name, "set", key, kept(this.place, value));
  }

  /** Deletes a key when the transaction commits. */
  delete(key: Given): void {
    this.write(this.admit(key), "delete", key);
  }

  private write(name: string, type: "set" | "delete", key: Given, value?: unknown): void {
    const { place } = this;
    this.log.written.set(name, { type, key: kept(place, key), value, in: place });
  }

  private async find(key: unknown): Promise<Seen> {
    const { place } = this;
    const entry = await this.log.read(key, place);
    return { key, version: entry?.version ?? 0, value: entry?.value, in: place };
  }

  /** What a key counts as. */
  private admit(key: Given): string {
    if (this.log.over) {
      throw new ReentrancyError(
        "The transaction is over. Await all that its function does before it returns.",
      );
    }
    // No key begins with half of a surrogate pair.
    return this.place === undefined ? nameOf(key as Key) : `\uD800${keyName([this.place, key])}`;
  }
}

/** A transaction of a client, as its function sees it: raw keys, and the collections by their names. */
export class Tx extends TxPart<Key, Uint8Array<ArrayBuffer>, Value> {
  /** The same as a string. */
  async getText(key: Key): Promise<string | undefined> {
    const value = await this.get(key);
    return value && new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value);
  }
}

/** Runs a transaction's function, and gives what it came to and what there is to commit. */
export async function run<T>(
  read: Log["read"],
  body: (tx: Tx) => T | PromiseLike<T>,
): Promise<[T, Writes | undefined]> {
  const log: Log = { read, seen: new Map(), written: new Map(), over: false };
  const tx = withNames(new Tx(log), Tx, (name) => new TxPart(log, name));
  const result = await body(tx);
  log.over = true;
  const seen = await Promise.all(log.seen.values());
  if (log.written.size === 0 && seen.length < 2) return [result, undefined];
  const reads = seen.map(({ value, ...read_ }) => read_);
  return [result, { reads, writes: [...log.written.values()] }];
}

/** An object whose properties are made from their names. Who awaits it by mistake gets none called "then". */
export function byName<T extends object>(make: (name: string) => unknown): T {
  return new Proxy({} as T, {
    get: (_, name) => (typeof name === "string" && name !== "then" ? make(name) : undefined),
  });
}

/** Gives an object more properties: whatever it has no other meaning for is the name of a collection. */
export function withNames<T extends object>(
  of: T,
  type: { readonly prototype: T },
  make: (name: string) => object,
): T {
  const known = new Map<string, object>();
  const behind = new Proxy(Object.create(type.prototype) as object, {
    get(target, name, receiver) {
      // Deno asks whatever events are dispatched at whether it is a node of a document.
      if (typeof name !== "string" || /^(then|nodeType)$/.test(name) || name in target) {
        return Reflect.get(target, name, receiver);
      }
      let made = known.get(name);
      if (made === undefined) {
        made = make(name);
        known.set(name, made);
      }
      return made;
    },
  });
  return Object.setPrototypeOf(of, behind) as T;
}

/** The same for a string and for its bytes. */
function nameOf(key: Key): string {
  if (typeof key === "string") return key;
  const bytes = bytesOf(key);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    // No string has these bytes, and no string begins so: half of a surrogate pair is no key.
    return `\uD800${bytes.join()}`;
  }
}
