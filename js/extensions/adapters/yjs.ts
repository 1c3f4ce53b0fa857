/** `varve/yjs`: a provider that keeps documents of Yjs. It imports Yjs, which its users have installed. */

import { applyUpdate, type Doc, encodeStateAsUpdate, mergeUpdates, transact } from "yjs";
import { MalformedValueError } from "../../errors/base.js";
import { type Raw, rawOf, refused, using, written } from "../raw.js";
import { jsonValues } from "./json-values.js";

/** The options of `VarvePersistence`. */
export interface VarvePersistenceOptions {
  /** What the keys in the database begin with, `"yjs/"` by default. */
  prefix?: string | undefined;
  /** From how many stored updates on they are replaced by one: 500 by default. */
  compactAt?: number | undefined;
}

/** What the listeners of each event are given. */
interface Events {
  synced: VarvePersistence;
  error: unknown;
}

/** What only a client has. */
interface Watched {
  watch?(
    range: { readonly prefix: string },
    listener: (changes: readonly { readonly key: string; readonly version: number }[]) => void,
  ): { close(): void };
}

/** The largest part of an update that is one record: values have at most 16 MB. */
const PART = 8 * 1_048_576;
/** The digits of the number of a part, at the end of its key. */
const DIGITS = 3;

function text(given: unknown, what: string): string {
  if (typeof given === "string") return given;
  throw refused(`The ${what} must be a string.`, given);
}

/** What the keys of a document begin with. In quotes a name ends by itself, so that none begins with another one. */
function baseOf(prefix: string, name: unknown): string {
  return prefix + JSON.stringify(text(name, "name of a document"));
}

/** Updates by the keys of their parts, which follow each other. `undefined` is a part that has been deleted meanwhile. */
function updatesOf(rows: Iterable<readonly [string, Uint8Array | undefined]>) {
  const updates = new Map<string, (Uint8Array | undefined)[]>();
  for (const [key, part] of rows) {
    const name = key.slice(0, -DIGITS);
    const parts = updates.get(name);
    if (parts) parts.push(part);
    else updates.set(name, [part]);
  }
  return updates;
}

/**
 * Keeps a document of Yjs in a database, or through a client of one: each update is appended, and many are replaced by one.
 *
 * ```ts
 * const provider = new VarvePersistence("notes", doc, db);
 * await provider.whenSynced; // the document has what is stored
 * ```
 *
 * Over a client, tabs that have the same document open get each other's updates. The database stays yours: `destroy` does
 * not close it.
 *
 * The event `"synced"` reports that the document has what is stored. The event `"error"` reports that an update could not be
 * stored, or not be read: without a listener that is an unhandled rejection. What could not be stored is kept in memory, and
 * stored with the next update that can be, or by `flush`.
 */
export class VarvePersistence {
  readonly name: string;
  readonly doc: Doc;
  /** Whether the document has what is stored. */
  synced = false;
  /**
   * Resolves to this when the document has what is stored, and when the provider was destroyed before. Rejects with the
   * errors of the database, and with MalformedValueError if a stored update is none; the document has all others then.
   */
  readonly whenSynced: Promise<this>;
  readonly #raw: Raw;
  readonly #base: string;
  readonly #id = crypto.getRandomValues(new Uint32Array(2)).join("-");
  readonly #compactAt: number;
  readonly #listeners = new Map<string, Set<(given: never) => void>>();
  readonly #watching: { close(): void } | undefined;
  #appended = 0;
  #count = 0;
  #isDestroyed = false;
  /** Updates that could not be stored. */
  #unsaved: Uint8Array[] = [];
  /** Settles when all writes so far have. It never rejects. */
  #writes: Promise<unknown> = Promise.resolve();

  /**
   * @param to a database, as `open` gives it, or a client, as `connect` gives it
   * @throws TypeError for anything else, and for a name that is no string
   */
  constructor(
    name: string,
    doc: Doc,
    to: object,
    { prefix = "yjs/", compactAt = 500 }: VarvePersistenceOptions = {},
  ) {
    if (!(compactAt > 1)) throw refused("compactAt must be a number from 2 on.", compactAt);
    this.#raw = rawOf(to, "VarvePersistence", prefix);
    this.#base = baseOf(prefix, name);
    this.name = name;
    this.doc = doc;
    this.#compactAt = compactAt;
    // The watch begins before the read, so that nothing is missed between them.
    this.#watching = (to as Watched).watch?.({ prefix: `${this.#base}u` }, (changes) => {
      const keys = changes.filter(({ key, version }) => version && !key.startsWith(this.#own()));
      if (keys.length > 0) this.#pull(keys.map(({ key }) => key)).catch(this.#report);
    });
    doc.on("update", this.#onUpdate);
    doc.on("destroy", this.#onDestroy);
    const before = encodeStateAsUpdate(doc);
    // An empty document is two bytes.
    if (before.length > 2) this.#append(before);
    this.whenSynced = this.#load().catch((error) => {
      // A listener has handled it.
      if (this.#emit("error", error)) this.whenSynced.catch(() => {});
      throw error;
    });
  }

  /** Calls a listener at each event of this name. */
  on<E extends keyof Events>(event: E, listener: (given: Events[E]) => void): void {
    const all = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, all.add(listener));
  }

  /** Calls a listener at the next event of this name. */
  once<E extends keyof Events>(event: E, listener: (given: Events[E]) => void): void {
    const once = (given: Events[E]) => {
      this.off(event, once);
      listener(given);
    };
    this.on(event, once);
  }

  /** Removes a listener. */
  off<E extends keyof Events>(event: E, listener: (given: Events[E]) => void): void {
    this.#listeners.get(event)?.delete(listener);
  }

  /**
   * Resolves when all updates so far are in the file. Tries those again that could not be stored.
   *
   * @throws (rejects) QuotaExceededError and others, if they cannot be; they stay in memory
   */
  async flush(): Promise<void> {
    await this.#writes;
    await this.#retry();
  }

  /**
   * Replaces all stored updates by one, which is what happens by itself from `compactAt` updates on. Another tab may do the
   * same at the same time.
   *
   * @throws (rejects) MalformedValueError if a stored update is none: nothing is changed then
   */
  compact(): Promise<void> {
    return this.#compacted(1);
  }

  /**
   * Ends the provider; the document stays. Resolves when all updates are in the file.
   *
   * @throws (rejects) the reason if some could not be stored
   */
  async destroy(): Promise<void> {
    this.#isDestroyed = true;
    this.#watching?.close();
    this.doc.off("update", this.#onUpdate);
    this.doc.off("destroy", this.#onDestroy);
    await this.flush();
  }

  /** Ends the provider and deletes everything that is stored of the document, all of it or nothing. */
  async clearData(): Promise<void> {
    // What could not be stored is to be deleted, too.
    await this.destroy().catch(() => {});
    await written(this.#raw, this.#raw.clear({ prefix: this.#base }));
  }

  /** Resolves to a value that `set` has stored beside the document, or `undefined`. A number is the key of its text. */
  async get(key: string | number): Promise<unknown> {
    return using(this.#raw.get(this.#custom(key)), (stored) => stored && jsonValues.decode(stored));
  }

  /** Stores a value beside the document, as JSON. Resolves when it is in the file. */
  async set(key: string | number, value: unknown): Promise<void> {
    const bytes = jsonValues.encode(value as never) as Uint8Array;
    await written(this.#raw, this.#raw.set(this.#custom(key), bytes));
  }

  /** Deletes a value beside the document. Resolves when that is in the file. */
  async del(key: string | number): Promise<void> {
    await written(this.#raw, this.#raw.delete(this.#custom(key)));
  }

  readonly #onUpdate = (update: Uint8Array, origin: unknown) => {
    if (origin !== this) this.#append(update);
  };

  readonly #onDestroy = () => {
    this.destroy().catch(this.#report);
  };

  readonly #report = (error: unknown) => {
    if (!this.#emit("error", error)) throw error;
  };

  #emit(event: keyof Events, given: unknown): boolean {
    const all = [...(this.#listeners.get(event) ?? [])];
    for (const listener of all) listener(given as never);
    return all.length > 0;
  }

  #custom(key: string | number): string {
    // The text of anything else may be that of others, too.
    return `${this.#base}c${typeof key === "number" ? key : text(key, "key")}`;
  }

  /** What the keys of this provider's updates begin with. */
  #own(): string {
    return `${this.#base}u${this.#id}-`;
  }

  async #load(): Promise<this> {
    const updates = updatesOf(await this.#rows());
    if (this.#isDestroyed) return this;
    this.#count += updates.size;
    this.#apply(updates);
    this.synced = true;
    this.#emit("synced", this);
    this.#schedule();
    return this;
  }

  /** The records of all updates, as of one moment. */
  async #rows(): Promise<(readonly [string, Uint8Array])[]> {
    const rows = this.#raw.entries({ prefix: `${this.#base}u` });
    const all: (readonly [string, Uint8Array])[] = [];
    // A view of a database is copied before the next step.
    if (Symbol.iterator in rows) for (const [key, part] of rows) all.push([key, part.slice()]);
    return Symbol.iterator in rows ? all : rows.all();
  }

  /** Applies updates of other tabs. */
  async #pull(keys: readonly string[]): Promise<void> {
    const parts = await this.#raw.getMany(keys);
    if (this.#isDestroyed) return;
    const updates = updatesOf(keys.map((key, i) => [key, parts[i]] as const));
    this.#count += updates.size;
    this.#apply(updates);
  }

  /** Applies all updates. @throws MalformedValueError if one is none, after all others */
  #apply(updates: ReadonlyMap<string, readonly (Uint8Array | undefined)[]>): void {
    let wrong: unknown;
    transact(
      this.doc,
      () => {
        for (const [name, parts] of updates) {
          // Another tab has put one update in the place of this and others, and that one comes too.
          if (parts.includes(undefined)) continue;
          try {
            applyUpdate(this.doc, joined(parts as Uint8Array[]), this);
          } catch (cause) {
            const message = `What is stored under ${JSON.stringify(name)} is no update of Yjs.`;
            wrong ??= new MalformedValueError(message, { cause });
          }
        }
      },
      this,
      false,
    );
    if (wrong !== undefined) throw wrong;
  }

  /** Puts one update in the place of all, if there are so many records. */
  async #compacted(from: number): Promise<void> {
    const rows = await this.#rows();
    this.#count = rows.length;
    const [first] = rows;
    if (first === undefined || rows.length < from || this.#isDestroyed) return;
    this.#apply(updatesOf(rows));
    const parts = this.#partsOf(encodeStateAsUpdate(this.doc));
    const result = this.#raw.transaction((tx) =>
      using(tx.get(first[0]), (found) => {
        // Another tab has compacted, or deleted the document: what is stored now is not what was read.
        if (found === undefined) return;
        for (const { key, value } of parts) tx.set(key, value);
        for (const [key] of rows) tx.delete(key);
        this.#count = parts.length;
      }),
    );
    await written(this.#raw, result);
  }

  #append(update: Uint8Array): void {
    this.#count += 1;
    const storing = this.#put(update).then(() => {
      // There is space again, perhaps.
      return this.#retry();
    });
    this.#follow(storing);
    this.#schedule();
  }

  /** Reports the error of a write, and lets `flush` wait for it. */
  #follow(write: Promise<unknown>): void {
    write.catch(this.#report);
    this.#writes = Promise.allSettled([this.#writes, write]);
  }

  async #retry(): Promise<void> {
    if (this.#unsaved.length > 0) await this.#put(mergeUpdates(this.#unsaved.splice(0)));
  }

  /** Stores an update, and keeps it if that fails. */
  async #put(update: Uint8Array): Promise<void> {
    try {
      await written(this.#raw, this.#raw.batch(this.#partsOf(update)));
    } catch (error) {
      this.#unsaved.push(update);
      throw error;
    }
  }

  /** The writes that store an update. */
  #partsOf(update: Uint8Array) {
    const name = `${this.#own()}${this.#appended++}-`;
    return Array.from({ length: Math.ceil(update.length / PART) }, (_, i) => ({
      type: "set" as const,
      key: name + `${i}`.padStart(DIGITS, "0"),
      value: update.subarray(i * PART, (i + 1) * PART),
    }));
  }

  /** Compacts when all writes so far are done, if there are too many updates. */
  #schedule(): void {
    if (this.#count < this.#compactAt || !this.synced) return;
    // Not again before as many have come.
    this.#count = 0;
    this.#follow(this.#writes.then(() => this.#compacted(this.#compactAt)));
  }
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Deletes everything that is stored of a document which is open nowhere. Resolves when that is in the file. */
export async function clearDocument(
  name: string,
  to: object,
  { prefix = "yjs/" }: VarvePersistenceOptions = {},
): Promise<void> {
  const raw = rawOf(to, "clearDocument()", prefix);
  await written(raw, raw.clear({ prefix: baseOf(prefix, name) }));
}
