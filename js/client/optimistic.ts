/** Transactions of clients: what they read is remembered, and checked when they commit. */

import type { Key, Value } from "../bytes.js";
import { ConflictError, ReentrancyError } from "../errors.js";
import type { CallOptions } from "./link.js";
import { keyName } from "./messages.js";
import { bytesOf, own } from "./own.js";

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
      seen = this.find(this.kept(key));
      log.seen.set(name, seen);
      // A read that failed is not one that was made.
      seen.catch(() => log.seen.delete(name));
    }
    const { value } = log.written.get(name) ?? ((await seen) as Seen);
    if (value === undefined) return undefined;
    return (place === undefined ? bytesOf(value as Value) : structuredClone(value)) as Plain;
  }

  async has(key: Given): Promise<boolean> {
    return (await this.get(key)) !== undefined;
  }

  /** Sets a key when the transaction commits. */
  set(key: Given, value: Input): void {
    const name = this.admit(key);
    this.write(name, "set", key, this.kept(value));
  }

  /** Deletes a key when the transaction commits. */
  delete(key: Given): void {
    this.write(this.admit(key), "delete", key);
  }

  private write(name: string, type: "set" | "delete", key: Given, value?: unknown): void {
    this.log.written.set(name, { type, key: this.kept(key), value, in: this.place });
  }

  private async find(key: unknown): Promise<Seen> {
    const { place } = this;
    const entry = await this.log.read(key, place);
    return { key, version: entry?.version ?? 0, value: entry?.value, in: place };
  }

  /** The program may change what it has given. */
  private kept(given: unknown): unknown {
    return this.place === undefined ? own(given as Key) : structuredClone(given);
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

/** Gives an object more properties: whatever it has no other meaning for is the name of a collection. */
export function withNames<T extends object>(
  of: T,
  type: { readonly prototype: T },
  make: (name: string) => object,
): T {
  const known = new Map<string, object>();
  const behind = new Proxy(Object.create(type.prototype) as object, {
    get(target, name, receiver) {
      if (typeof name !== "string" || name === "then" || name in target) {
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
