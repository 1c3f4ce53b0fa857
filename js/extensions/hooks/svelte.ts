/** `varve/svelte`: stores for Svelte 3, 4 and 5. It imports nothing of Svelte. */

import type { ClientStatus } from "../../client/connection/caller.js";
import {
  type GivenKey,
  type HookRange,
  type KeyOf,
  type LiveSource,
  type RangeResult,
  rangeStore,
  type StatusSource,
  type Store,
  selection,
  statusStore,
  type ValueOf,
  type ValueResult,
  valueStore,
} from "./store.js";

export type * from "./types.js";

/** A store that is read, as Svelte has them: `$store` in a component. */
export interface ReadableStore<T> {
  /** Calls a function with the result, now and after each change. Returns a function that ends it. */
  subscribe(run: (result: T) => void, invalidate?: () => void): () => void;
}

function readable<T>(
  store: Store<T>,
  select: (result: T) => T = (result) => result,
): ReadableStore<T> {
  return {
    subscribe(run) {
      let last: T;
      let isOver = false;
      const update = () => {
        const next = select(store.get());
        if (isOver || next === last) return;
        last = next;
        run(next);
      };
      update();
      const end = store.subscribe(update);
      return () => {
        isOver = true;
        end();
      };
    },
  };
}

/**
 * A store of the record of a key of a collection, now and after every change, while it has subscribers. Of an index: the
 * first record with this value. Of a database or a client: the bytes of a raw key.
 *
 * ```svelte
 * const product = useValue(shop.products, "yeezy"); // {$product.value?.name}
 * ```
 *
 * For another key, call it again: `$derived(useValue(shop.products, id))`, or `$:` in Svelte 4. While the key is
 * `undefined`, or the source is, nothing is followed and `isPending` is true. Errors are in `error`.
 */
export function useValue<S extends LiveSource>(
  source: S | undefined,
  key: GivenKey<S> | undefined,
): ReadableStore<ValueResult<ValueOf<S>>> {
  return readable(valueStore<ValueOf<S>>(source, key));
}

/**
 * A store of the records of a range of a collection or of an index, now and after every change. Of a database or a client:
 * its raw keys.
 *
 * ```svelte
 * const low = useRange(shop.products.index.byStock, { lt: 10, limit: 20 }); // {#each $low.rows as [key, product] (key)}
 * ```
 *
 * Everything else is as for `useValue`.
 */
export function useRange<S extends LiveSource>(
  source: S | undefined,
  range?: HookRange<S>,
): ReadableStore<RangeResult<KeyOf<S>, ValueOf<S>>> {
  const select = selection<KeyOf<S>, ValueOf<S>>();
  return readable(rangeStore<KeyOf<S>, ValueOf<S>>(source, range), (result) =>
    select(result, range),
  );
}

/** A store of the status of a client, now and after every change. A database in this realm is always open. */
export function useStatus(client: StatusSource): ReadableStore<ClientStatus> {
  return readable(statusStore(client));
}
