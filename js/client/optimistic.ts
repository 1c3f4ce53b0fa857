/** Transactions of clients: what they read is remembered, and checked when they commit. */

import type { Key, Value } from "../bytes.js";
import type { BatchOperation } from "../database.js";
import { ConflictError, ReentrancyError } from "../errors.js";
import type { CallOptions } from "./link.js";
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
    readonly in?: string;
  }[];
  readonly writes: readonly {
    readonly type: "set" | "delete";
    readonly key: unknown;
    readonly value?: unknown;
    readonly in?: string;
  }[];
}

/** What a transaction reads through. */
export interface Reader {
  getEntry(
    key: Key,
    options: CallOptions,
  ): Promise<{ value: Uint8Array<ArrayBuffer>; version: number } | undefined>;
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

interface Seen {
  readonly key: Key;
  readonly version: number;
  readonly value: Uint8Array<ArrayBuffer> | undefined;
}

/** A transaction of a client, as its function sees it: it reads through, and writes at the end. */
export class Tx {
  private readonly reader: Reader;
  private readonly options: CallOptions;
  private readonly seen = new Map<string, Promise<Seen>>();
  private readonly written = new Map<string, BatchOperation>();
  private over = false;

  /** @internal */
  constructor(reader: Reader, options: CallOptions) {
    this.reader = reader;
    this.options = options;
  }

  /** The value of a key: what this transaction has written, or what it found first. */
  async get(key: Key): Promise<Uint8Array<ArrayBuffer> | undefined> {
    this.admit();
    const name = nameOf(key);
    const written = this.written.get(name);
    if (written !== undefined) {
      return written.type === "set" ? bytesOf(written.value) : undefined;
    }
    let seen = this.seen.get(name);
    if (seen === undefined) {
      seen = this.read(own(key));
      this.seen.set(name, seen);
      // A read that failed is not one that was made.
      seen.catch(() => this.seen.delete(name));
    }
    return (await seen).value?.slice();
  }

  /** The same as a string. */
  async getText(key: Key): Promise<string | undefined> {
    const value = await this.get(key);
    return value && new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(value);
  }

  async has(key: Key): Promise<boolean> {
    return (await this.get(key)) !== undefined;
  }

  /** Sets a key when the transaction commits. */
  set(key: Key, value: Value): void {
    this.admit();
    this.written.set(nameOf(key), { type: "set", key: own(key), value: own(value) });
  }

  /** Deletes a key when the transaction commits. */
  delete(key: Key): void {
    this.admit();
    this.written.set(nameOf(key), { type: "delete", key: own(key) });
  }

  /** @internal What there is to commit. */
  async end(): Promise<Writes | undefined> {
    this.over = true;
    const seen = await Promise.all(this.seen.values());
    if (this.written.size === 0 && seen.length < 2) return undefined;
    const reads = seen.map(({ key, version }) => ({ key, version }));
    return { reads, writes: [...this.written.values()] };
  }

  private async read(key: Key): Promise<Seen> {
    const entry = await this.reader.getEntry(key, this.options);
    return { key, version: entry?.version ?? 0, value: entry?.value };
  }

  private admit(): void {
    if (!this.over) return;
    throw new ReentrancyError(
      "The transaction is over. Await all that its function does before it returns.",
    );
  }
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
