/**
 * What the hooks of all frameworks have in common: stores that follow a value, a range or a status, and keep the last
 * result. Hooks with the same source and range share one store, and so one `live`.
 */

import type { ClientStatus } from "../../client/connection/caller.js";
import type { Watching } from "../../session/watching.js";
import { clearTimeout, queueMicrotask, setTimeout } from "../../util/clock.js";

/** A record, as `useValue` gives it. */
export interface ValueResult<V> {
  /** The value; `undefined` while it is not known, and if there is none. It does not change: a write gives another one. */
  readonly value: V | undefined;
  /** Whether nothing is known yet. */
  readonly isPending: boolean;
  /** Why it is not followed, or no longer; `undefined` otherwise. `value` is then the last one known. */
  readonly error: unknown;
}

/** The records of a range, as `useRange` gives them. */
export interface RangeResult<K, V> {
  /**
   * The records in the order of the range; none while they are not known. A row that has not changed is the same object
   * as before, and so is its value.
   */
  readonly rows: readonly (readonly [K, V])[];
  /** Whether nothing is known yet. */
  readonly isPending: boolean;
  /** Why the range is not followed, or no longer; `undefined` otherwise. `rows` are then the last ones known. */
  readonly error: unknown;
}

/** What is followed: a collection, one of its indexes, or a database or client, whose raw keys it is then. */
export interface LiveSource {
  live(range: never, listener: never): Watching;
  get(key: never): unknown;
}

/** What has a status: a client. A database has none. */
export interface StatusSource {
  readonly status?: ClientStatus;
  close(): Promise<void>;
}

/** The range that the `live` of a source takes, and its rows. The signatures are those with a listener and with options. */
type LiveOf<S> = S extends {
  live: {
    (range: infer Range, listener: (rows: infer Rows) => void): Watching;
    (range: never, options: never): unknown;
  };
}
  ? { readonly range: Range; readonly rows: Rows }
  : never;

/** The ranges of a source, as its `live` takes them. */
export type LiveRange<S> = LiveOf<S>["range"];

/** The keys of a source. */
export type KeyOf<S> = LiveOf<S>["rows"] extends readonly (readonly [infer K, unknown])[]
  ? K
  : never;

/** The values of a source, as plain objects. */
export type ValueOf<S> = LiveOf<S>["rows"] extends readonly (readonly [unknown, infer V])[]
  ? V
  : never;

/** What the `get` of a source takes. */
export type GivenKey<S> = S extends { get(key: infer K, ...more: never[]): unknown } ? K : never;

/** A range of a source, as its `live` takes it, and a condition. It is compared by value. */
export type HookRange<S> = LiveOf<S>["range"] & {
  /**
   * Only the records for which this returns a true value. It is called in this realm, for every record of the range; then
   * `limit` counts those that remain.
   */
  readonly where?: ((value: ValueOf<S>, key: KeyOf<S>) => unknown) | undefined;
};

/** A store of a result. */
export interface Store<T> {
  /** Returns the result, which is the same object as long as nothing has changed. */
  readonly get: () => T;
  /**
   * Calls a listener after each change. Returns a function that ends it; a change of just then may still be reported. Each
   * listener is a function of its own.
   */
  readonly subscribe: (listener: () => void) => () => void;
}

/** A store of what a database has. */
export interface LiveStore<T> extends Store<T> {
  /** The result before anything is known. */
  readonly initial: T;
}

type Rows = readonly (readonly [unknown, unknown])[];

/** A result of either kind. */
interface AnyResult {
  readonly rows?: Rows;
  readonly value?: unknown;
  readonly isPending: boolean;
  readonly error: unknown;
}

/** How long a store goes on without listeners: a component that is mounted again finds it. */
const GRACE_MS = 1_000;

const NO_VALUE: ValueResult<never> = { value: undefined, isPending: true, error: undefined };
const NO_ROWS: RangeResult<never, never> = { rows: [], isPending: true, error: undefined };

/** The stores of each source, by what is followed. */
const known = new WeakMap<object, Map<string, LiveStore<AnyResult>>>();

/** A text that is the same for equal ranges and keys only. */
function textOf(value: unknown): string {
  return JSON.stringify(value, (_, part) =>
    part?.byteLength >= 0
      ? [...new Uint8Array(part.buffer ?? part, part.byteOffset, part.byteLength)]
      : // Numbers, among them infinite ones, bigints and booleans. The other types come later in the alphabet.
        typeof part < "o"
        ? [`${part}`]
        : part,
  );
}

/** The store of what is followed, or of nothing if there is no source. */
function storeOf(
  source: LiveSource | undefined,
  range: unknown,
  initial: AnyResult,
): LiveStore<AnyResult> {
  const owner = source ?? known;
  const stores: Map<string, LiveStore<AnyResult>> = known.get(owner) ?? new Map();
  known.set(owner, stores);
  // A value and a range may be followed by the same bounds.
  const name = !initial.rows + textOf(range);
  const found = stores.get(name);
  if (found) return found;

  const listeners = new Set<() => void>();
  let result = initial;
  let watching: Watching | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const set = (change: Partial<AnyResult>) => {
    result = { ...result, isPending: false, ...change };
    // What one of them throws is an uncaught error, and the others are called.
    listeners.forEach(queueMicrotask);
  };
  const fail = (error: unknown) => set({ error });
  const begin = () => {
    // Without listeners again, as where pages are rendered on a server, nothing begins.
    if (result.error || !source || !listeners.size) return;
    try {
      const begun = source.live(
        range as never,
        ((rows: Rows) => set(initial.rows ? { rows } : { value: rows[0]?.[1] })) as never,
      );
      watching = begun;
      // If the database or client was closed, beginning again throws the error that says so.
      begun.ended.then(() => watching === begun && begin(), fail);
    } catch (error) {
      fail(error);
    }
  };
  /** Ends it after the grace, unless it has listeners then. */
  const endLater = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (listeners.size) return;
      if (stores.get(name) === store) stores.delete(name);
      watching?.close();
      watching = undefined;
      result = initial;
    }, GRACE_MS);
    // No process waits for it.
    (timer as { unref?(): void }).unref?.();
  };

  const store: LiveStore<AnyResult> = {
    initial,
    get: () => result,
    subscribe(listener) {
      listeners.add(listener);
      // The grace may have ended before there was a listener.
      stores.set(name, store);
      queueMicrotask(() => watching ?? begin());
      return () => {
        listeners.delete(listener);
        endLater();
      };
    },
  };
  stores.set(name, store);
  endLater();
  return store;
}

/** The store of a record. Without a source or a key nothing is followed, and nothing is known. */
export function valueStore<V>(
  source: LiveSource | undefined,
  key: unknown,
): LiveStore<ValueResult<V>> {
  // An index has no `set`. Of the records with this value it is the first one.
  const range = "set" in Object(source) ? { gte: key, lte: key } : { eq: key, limit: 1 };
  const followed = key === undefined ? undefined : source;
  return storeOf(followed, range, NO_VALUE) as LiveStore<ValueResult<V>>;
}

/** What a range has besides what is followed. */
interface Given {
  readonly where?: ((value: never, key: never) => unknown) | undefined;
  readonly limit?: number | undefined;
}

/** The store of a range, without its condition. */
export function rangeStore<K, V>(
  source: LiveSource | undefined,
  { where, limit, ...range }: Given = {},
): LiveStore<RangeResult<K, V>> {
  // The condition comes before the limit. One that is none is refused by the source.
  const followed = where && (limit as number) >= 0 ? range : { ...range, limit };
  return storeOf(source, followed, NO_ROWS) as LiveStore<RangeResult<K, V>>;
}

/**
 * Returns a function that selects the rows with the condition of a range. While these are equal, it returns the same
 * result. It throws what the condition throws.
 */
export function selection<K, V>(): (
  all: RangeResult<K, V>,
  given: Given | undefined,
) => RangeResult<K, V> {
  let parts: readonly unknown[] = [];
  let result: RangeResult<K, V>;
  return (all, { where, limit } = {}) => {
    if (!where) return all;
    const rows = all.rows
      .filter(([key, value]) => where(value as never, key as never))
      .slice(0, limit);
    const next = [all.isPending, all.error, ...rows];
    if (next.length !== parts.length || next.some((part, i) => part !== parts[i])) {
      result = { ...all, rows };
      parts = next;
    }
    return result;
  };
}

const OPEN: ClientStatus = { state: "open", owner: "here", reason: undefined };

/** A store of the status of a client. A database in this realm is open. */
export function statusStore(of: StatusSource): Store<ClientStatus> {
  const client = of as StatusSource & Partial<EventTarget>;
  return {
    get: () => client.status ?? OPEN,
    subscribe(listener) {
      client.addEventListener?.("status", listener);
      return () => client.removeEventListener?.("status", listener);
    },
  };
}
