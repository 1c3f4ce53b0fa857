/** `varve/tanstack-db`: options of collections of TanStack DB whose rows are stored records. It imports only types of it. */

import type { BaseCollectionConfig, CollectionConfig, SyncConfig, UtilsRecord } from "@tanstack/db";
import type { Watching } from "../../session/watching.js";
import { setTimeout } from "../../util/clock.js";
import type { LiveSource, KeyOf as SourceKey, ValueOf } from "../hooks/store.js";
import { type Awaitable, refused } from "../raw.js";

/** A collection of a database or of a client, whose keys are texts or numbers. */
export interface StoredCollection extends LiveSource {
  readonly name: string;
  batch(operations: never): Awaitable<void>;
}

/** The type of a row: a value of the collection, as a plain object. */
export type RowOf<S> = Extract<ValueOf<S>, object>;

/** The type of the keys of rows. */
export type RowKeyOf<S> = Extract<SourceKey<S>, string | number>;

/** A change of a row, of a transaction of TanStack DB. */
export interface RowMutation {
  readonly type: "insert" | "update" | "delete";
  readonly key: string | number;
  /** The row as it is to be. */
  readonly modified: object;
  readonly collection: { readonly utils: object };
}

/** What the collection of TanStack DB has in `utils`. */
export interface VarveCollectionUtils extends UtilsRecord {
  /**
   * Stores what a transaction of `createTransaction` changes in this collection, in one commit. To be called, and awaited,
   * in the transaction's `mutationFn`.
   */
  acceptMutations(transaction: { readonly mutations: readonly RowMutation[] }): Promise<void>;
  /** Deletes all records. Resolves when that is in the file; the rows go with the next change that is reported. */
  clearStorage(): Promise<void>;
}

/** What `varveCollectionOptions` takes: the options of a collection of TanStack DB, and the collection that stores its rows. */
export interface VarveCollectionConfig<S extends StoredCollection>
  extends Omit<
    BaseCollectionConfig<RowOf<S>, RowKeyOf<S>, never, VarveCollectionUtils>,
    "schema" | "utils" | "syncMode"
  > {
  /** A collection of a database, `db.collection(…)`, or of a client, `client.collection(…)`. */
  collection: S;
}

/** The options that `createCollection` takes. */
export type VarveCollectionOptions<S extends StoredCollection> = Omit<
  CollectionConfig<RowOf<S>, RowKeyOf<S>, never, VarveCollectionUtils>,
  "schema" | "utils"
> & { schema?: never; utils: VarveCollectionUtils };

type Key = string | number;
type Row = readonly [key: Key, value: object];
type Handler = ((params: never) => Promise<unknown>) | undefined;

/** The calls of the collection that are used here. */
interface Source {
  readonly name: string;
  readonly index: unknown;
  /** Of a database: resolves when what this turn has written is in the file. */
  readonly committed?: Promise<void>;
  live(range: object, listener: (rows: readonly Row[]) => void): Watching;
  has(key: Key): Awaitable<boolean>;
  batch(operations: readonly object[]): Awaitable<void>;
  clear(): Awaitable<number>;
}

/** What one run of the sync has passed on. */
interface State {
  known: ReadonlyMap<Key, Row>;
  isOver: boolean;
}

/** After this time, what a write is waited for is looked at again. */
const AGAIN_MS = 50;

/**
 * Options for `createCollection` of TanStack DB: the rows are the records of a collection of a database or of a client.
 *
 * ```ts
 * const products = createCollection(
 *   varveCollectionOptions({ collection: client.collection("products"), getKey: ({ id }) => id }),
 * );
 * ```
 *
 * Inserts, updates and deletions are shown at once, and stored as one commit for each transaction. They are taken back if
 * that fails: `isPersisted.promise` then rejects with the error of `batch`, such as `UniqueViolationError`. What other tabs
 * write is shown when it is committed.
 *
 * @throws TypeError if `collection` is none of a database or a client
 */
export function varveCollectionOptions<S extends StoredCollection>({
  collection,
  ...config
}: VarveCollectionConfig<S>): VarveCollectionOptions<S> {
  const source = collection as unknown as Source;
  // A database has no indexes, and a snapshot takes no writes.
  if (typeof Object(source).batch !== "function" || source.index === undefined) {
    throw refused("The collection must be one of a database or a client.", collection);
  }
  const getKey = config.getKey as unknown as (value: object) => Key;
  const states = new WeakMap<object, State>();
  /** The last write of each key that is not done. */
  const pending = new Map<Key, Promise<void>>();
  /** Called after the next change of rows. */
  let waiting: (() => void)[] = [];
  const wake = () => {
    for (const resolve of waiting) resolve();
    waiting = [];
  };

  const sync = ({
    collection: to,
    begin,
    write,
    commit,
    markReady,
    markError,
  }: Parameters<SyncConfig<object, Key>["sync"]>[0]) => {
    const state: State = { known: new Map(), isOver: false };
    const end = () => {
      state.isOver = true;
      wake();
    };
    const watching = source.live({}, (rows) => {
      const { known } = state;
      // A row that has not changed is the same object as before.
      const changed = rows.filter((row) => known.get(row[0]) !== row);
      const other = changed.find(([key, value]) => getKey(value) !== key);
      if (other !== undefined) {
        watching.close();
        markError(refused(`getKey() must return a record's own key, ${other[0]}.`, other[1]));
        return;
      }
      state.known = new Map(rows.map((row) => [row[0], row]));
      begin();
      for (const key of known.keys()) if (!state.known.has(key)) write({ type: "delete", key });
      for (const [key, value] of changed) {
        write({ type: known.has(key) ? "update" : "insert", value });
      }
      commit();
      markReady();
      wake();
    });
    states.set(to, state);
    watching.ended.then(end, (error) => {
      end();
      markError(error);
    });
    return () => watching.close();
  };

  const send = async (mutations: readonly RowMutation[]) => {
    const before = mutations.map(({ collection: of, key }) => {
      const state = states.get(of);
      return [state, key, state?.known.get(key)] as const;
    });
    const operations = mutations.map(({ type, key, modified }) =>
      type === "delete" ? { type, key } : { type: "set", key, value: modified },
    );
    await (source.batch(operations) ?? source.committed);
    // The row that was shown at once goes when this resolves, so the stored one has to be there by then.
    for (const [state, key, row] of before) {
      while (
        state?.isOver === false &&
        state.known.get(key) === row &&
        // What was inserted and deleted before it was reported is never there.
        (row !== undefined || (await source.has(key)))
      ) {
        await new Promise<void>((resolve) => {
          waiting.push(resolve);
          setTimeout(resolve, AGAIN_MS);
        });
      }
    }
  };

  /** Stores mutations after those of the same keys. If one of these fails, TanStack DB takes back all of them. */
  const persist = (mutations: readonly RowMutation[], handle?: () => unknown) => {
    const earlier = mutations.map(({ key }) => pending.get(key));
    const done = Promise.all(earlier)
      .then(handle)
      .then(() => send(mutations));
    const forget = () => {
      for (const { key } of mutations) if (pending.get(key) === done) pending.delete(key);
    };
    for (const { key } of mutations) pending.set(key, done);
    done.then(forget, forget);
    return done;
  };

  const after =
    (handler: Handler) => (params: { transaction: { mutations: readonly RowMutation[] } }) =>
      persist(params.transaction.mutations, handler && (() => handler(params as never)));

  const utils: VarveCollectionUtils = {
    acceptMutations: ({ mutations }) =>
      persist(
        mutations.filter(
          ({ collection: { utils: of } }) =>
            (of as VarveCollectionUtils).acceptMutations === utils.acceptMutations,
        ),
      ),
    clearStorage: async () => {
      const cleared = source.clear();
      await (cleared instanceof Promise ? cleared : source.committed);
    },
  };

  return {
    id: `varve:${source.name}`,
    ...config,
    sync: { sync, rowUpdateMode: "full" },
    onInsert: after(config.onInsert),
    onUpdate: after(config.onUpdate),
    onDelete: after(config.onDelete),
    utils,
  } as unknown as VarveCollectionOptions<S>;
}
