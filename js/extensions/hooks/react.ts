/** `varve/react`: hooks for React 18 and 19. */

import { useMemo, useSyncExternalStore } from "react";
import type { ClientStatus } from "../../client/connection/caller.js";
import {
  type GivenKey,
  type HookRange,
  type KeyOf,
  type LiveSource,
  type LiveStore,
  type RangeResult,
  rangeStore,
  type StatusSource,
  selection,
  statusStore,
  type ValueOf,
  type ValueResult,
  valueStore,
} from "./store.js";

export type * from "./types.js";

/** The status in what a server has rendered. */
const IDLE: ClientStatus = { state: "idle", owner: undefined, reason: undefined };

/** The options of `useValue` and `useRange`. */
export interface HookOptions {
  /**
   * Whether the component suspends until there is a result, and an error is thrown to the error boundary, in the place of
   * `isPending` and `error`. `false` by default.
   */
  readonly suspense?: boolean | undefined;
}

function useStore<T extends { readonly isPending: boolean; readonly error: unknown }>(
  store: LiveStore<T>,
  suspends: unknown,
  select: (result: T) => T = (result) => result,
): T {
  const { initial, subscribe } = store;
  const get = () => select(store.get());
  // What a server has rendered without suspending knew nothing.
  const result = useSyncExternalStore(subscribe, get, suspends ? get : () => initial);
  if (suspends) {
    if (result.error) throw result.error;
    if (result.isPending) {
      throw new Promise<void>((resolve) => {
        const end = subscribe(() => resolve(end()));
      });
    }
  }
  return result;
}

/**
 * The record of a key of a collection, now and after every change. Of an index: the first record with this value. Of a
 * database or a client: the bytes of a raw key.
 *
 * ```tsx
 * const { value: product, isPending, error } = useValue(shop.products, "yeezy");
 * ```
 *
 * The key is compared by value. While it is `undefined`, or the source is, nothing is followed and `isPending` is true.
 * The source has to be the same object each time, so make collections of a database outside of components. Errors
 * are in `error`, or thrown, with the option `suspense`.
 */
export function useValue<S extends LiveSource>(
  source: S | undefined,
  key: GivenKey<S> | undefined,
  { suspense }: HookOptions = {},
): ValueResult<ValueOf<S>> {
  return useStore(valueStore<ValueOf<S>>(source, key), suspense && source && key !== undefined);
}

/**
 * The records of a range of a collection or of an index, now and after every change. Of a database or a client: its raw keys.
 *
 * ```tsx
 * const { rows, isPending, error } = useRange(shop.products.index.byStock, { lt: 10, limit: 20 });
 * ```
 *
 * The range is compared by value, its `where` is always the one of the last render. Everything else is as for `useValue`.
 */
export function useRange<S extends LiveSource>(
  source: S | undefined,
  range?: HookRange<S>,
  { suspense }: HookOptions = {},
): RangeResult<KeyOf<S>, ValueOf<S>> {
  const select = useMemo(selection<KeyOf<S>, ValueOf<S>>, []);
  const store = rangeStore<KeyOf<S>, ValueOf<S>>(source, range);
  return useStore(store, suspense && source, (result) => select(result, range));
}

/** The status of a client, now and after every change. A database in this realm is always open. */
export function useStatus(client: StatusSource): ClientStatus {
  const { subscribe, get } = useMemo(() => statusStore(client), [client]);
  return useSyncExternalStore(subscribe, get, () => IDLE);
}
