/** `varve/zustand`: a storage for Zustand's middleware `persist`, of which it has no code. */

import { type Awaitable, rawOf, using, written } from "../raw.js";
import { jsonValues, type ValueCodec } from "./json-values.js";

export type { ValueCodec } from "./json-values.js";

/** The options of `varveStorage`. */
export interface VarveStorageOptions {
  /** What the keys in the database begin with, `"zustand/"` by default. */
  prefix?: string | undefined;
  /** How states are stored: as JSON by default. `structured()` of `varve/structured` keeps dates, maps, sets and bytes. */
  values?: ValueCodec | undefined;
}

/** What `persist` stores: the state, and the version of its form. */
export interface StoredState<S> {
  state: S;
  version?: number;
}

/** A storage, as the option `storage` of `persist` takes it. */
export interface VarvePersistStorage<S> {
  /**
   * The stored state, or `null` if there is none: a database returns it, so that the store has it from the start, and a
   * client promises it.
   *
   * @throws MalformedValueError if something else is stored there
   */
  getItem(name: string): Awaitable<StoredState<S> | null>;
  /** Stores a state. Resolves when it is in the file. */
  setItem(name: string, value: StoredState<S>): Promise<void>;
  /** Deletes a state. Resolves when that is in the file. */
  removeItem(name: string): Promise<void>;
}

/**
 * Keeps the states of stores as raw keys of a database, or of a client of one.
 *
 * ```ts
 * const useCart = create(persist(() => ({ items: [] }), { name: "cart", storage: varveStorage(db) }));
 * ```
 *
 * The database stays yours. Every call fails with the errors of the database, such as `DatabaseClosedError` and
 * `QuotaExceededError`. Those of `setItem` reject what `setState` returns.
 *
 * @throws TypeError if `to` is no database, as `open` gives it, and no client, as `connect` gives it
 */
export function varveStorage<S>(
  to: object,
  { prefix = "zustand/", values = jsonValues }: VarveStorageOptions = {},
): VarvePersistStorage<S> {
  const raw = rawOf(to, "varveStorage()", prefix);
  return {
    getItem: (name) =>
      using(raw.get(prefix + name), (stored) =>
        stored ? (values.decode(stored) as StoredState<S>) : null,
      ),
    async setItem(name, value) {
      await written(raw, raw.set(prefix + name, values.encode(value as never) as Uint8Array));
    },
    async removeItem(name) {
      await written(raw, raw.delete(prefix + name));
    },
  };
}
