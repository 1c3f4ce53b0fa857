/** `varve/query`: a storage for the query persister of TanStack Query, of which it has no code. */

import { nextPageTask } from "../../client/page-task.js";
import { decoder } from "../../util/text-coders.js";
import { type Awaitable, rawOf, textOf, using, written } from "../raw.js";

/** The options of `varveQueryStorage`. */
export interface VarveQueryStorageOptions {
  /** What the keys in the database begin with, `"query/"` by default. */
  prefix?: string | undefined;
  /**
   * Called with each error of `setItem` and `removeItem`, which then resolve. Without it they reject: of a persister that
   * is an unhandled rejection, since it does not wait for what it stores.
   */
  onError?: ((error: unknown) => void) | undefined;
}

/** The options of `restore`: the same as those of the persister. */
export interface RestoreOptions {
  /** Queries with another one are deleted; `""` by default. */
  buster?: string | undefined;
  /** The age in milliseconds from which on queries are deleted: a day by default. */
  maxAge?: number | undefined;
  /** What the persister's keys begin with: `"tanstack-query"` by default. */
  prefix?: string | undefined;
  /** Makes of a stored text what the persister's `serialize` was given: `JSON.parse` by default. */
  deserialize?: ((text: string) => unknown) | undefined;
}

/** What is needed of a `QueryClient`. */
export interface QueryClientLike {
  getQueryState(queryKey: readonly unknown[]): { readonly dataUpdatedAt: number } | undefined;
  setQueryData(
    queryKey: readonly unknown[],
    data: unknown,
    options: { readonly updatedAt: number },
  ): unknown;
}

/** A storage, as the option `storage` of `experimental_createQueryPersister` takes it. */
export interface VarveQueryStorage {
  /** @throws TypeError if something else is stored there: the persister deletes it */
  getItem(key: string): Awaitable<string | null>;
  /** Resolves when it is in the file. */
  setItem(key: string, value: string): Promise<void>;
  /** Resolves when that is in the file. */
  removeItem(key: string): Promise<void>;
  /** All of them, as of one moment. What is no text is given as an empty one: the persister deletes it. */
  entries(): Promise<[key: string, value: string][]>;
  /**
   * Sets the data of all stored queries, which are read in one pass, and deletes those that are too old, have another
   * buster or are unreadable. Data that is as new stays. Lets the page do other work every few milliseconds. Resolves to how
   * many queries were set.
   *
   * @throws (rejects) the errors of the database, and what the query client throws
   */
  restore(queryClient: QueryClientLike, options?: RestoreOptions): Promise<number>;
}

/** A query, as the persister stores it. */
interface PersistedQuery {
  readonly buster: string;
  readonly queryKey: readonly unknown[];
  readonly state: { readonly data: unknown; readonly dataUpdatedAt: number };
}

/** How long queries are restored before other work is done, in milliseconds: a third of a frame. */
const SLICE_MS = 5;

/** The text of a value, and an empty one for what is no text. */
function anyText(stored: Uint8Array): string {
  try {
    return decoder.decode(stored);
  } catch {
    return "";
  }
}

/**
 * Keeps queries as raw keys of a database, or of a client of one, a record for each query.
 *
 * ```ts
 * const storage = varveQueryStorage(db);
 * const { persisterFn } = experimental_createQueryPersister({ storage });
 * const queryClient = new QueryClient({ defaultOptions: { queries: { persister: persisterFn } } });
 * await storage.restore(queryClient); // all at once, or each query at its first use
 * ```
 *
 * The database stays yours. Every call fails with the errors of the database, such as `DatabaseClosedError` and
 * `QuotaExceededError`.
 *
 * @throws TypeError if `to` is no database, as `open` gives it, and no client, as `connect` gives it
 */
export function varveQueryStorage(
  to: object,
  { prefix = "query/", onError }: VarveQueryStorageOptions = {},
): VarveQueryStorage {
  const raw = rawOf(to, "varveQueryStorage()", prefix);
  const stored = async (write: () => unknown) => {
    try {
      await written(raw, write());
    } catch (error) {
      if (onError === undefined) throw error;
      onError(error);
    }
  };
  return {
    getItem: (key) => using(raw.get(prefix + key), (found) => textOf(found) ?? null),
    setItem: (key, value) => stored(() => raw.set(prefix + key, value)),
    removeItem: (key) => stored(() => raw.delete(prefix + key)),
    async entries() {
      const rows = raw.entries({ prefix });
      const all: [string, string][] = [];
      for (const [key, value] of Symbol.iterator in rows ? rows : await rows.all()) {
        all.push([key.slice(prefix.length), anyText(value)]);
      }
      return all;
    },
    async restore(queryClient, options = {}) {
      const { buster = "", maxAge = 86_400_000, deserialize = JSON.parse } = options;
      const start = `${prefix}${options.prefix ?? "tanstack-query"}-`;
      const gone: string[] = [];
      let restored = 0;
      const rows = raw.entries({ prefix: start });
      // A loop that waits would end the turn, and with it the views of a database, at each row.
      const steps =
        Symbol.iterator in rows ? rows[Symbol.iterator]() : rows[Symbol.asyncIterator]();
      for (let pause = Date.now() + SLICE_MS; ; ) {
        const step = steps.next();
        const { done, value } = step instanceof Promise ? await step : step;
        if (done) break;
        const [key, found] = value;
        let query: PersistedQuery | undefined;
        try {
          const made = deserialize(anyText(found));
          const { state, ...its } = (made instanceof Promise ? await made : made) as PersistedQuery;
          const age = Date.now() - state.dataUpdatedAt;
          // As the persister does it: without a time, it is no data.
          const isGood = state.dataUpdatedAt && age <= maxAge && its.buster === buster;
          if (isGood && Array.isArray(its.queryKey)) query = { ...its, state };
        } catch {
          // It is deleted below.
        }
        if (query === undefined) gone.push(key);
        else {
          const { queryKey, state } = query;
          const { dataUpdatedAt: updatedAt } = state;
          if ((queryClient.getQueryState(queryKey)?.dataUpdatedAt ?? 0) < updatedAt) {
            queryClient.setQueryData(queryKey, state.data, { updatedAt });
            restored += 1;
          }
        }
        if (Date.now() < pause) continue;
        await nextPageTask();
        pause = Date.now() + SLICE_MS;
      }
      if (gone.length > 0) {
        await stored(() =>
          raw.transaction((tx) => {
            for (const key of gone) tx.delete(key);
          }),
        );
      }
      return restored;
    },
  };
}
