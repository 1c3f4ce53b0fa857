/** `varve/solid`: primitives for Solid 1.4 and newer. */

import { createEffect, createMemo, createSignal, onCleanup } from "solid-js";
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

/** A value, or an accessor of one, which is tracked. */
export type MaybeAccessor<T> = T | (() => T);

function access<T>(of: MaybeAccessor<T>): T {
  return typeof of === "function" ? (of as () => T)() : of;
}

function follow<T>(of: () => Store<T>, select: (result: T) => T = (result) => result): () => T {
  const store = createMemo(of);
  const [changes, setChanges] = createSignal(0);
  const result = createMemo(() => {
    changes();
    return select(store().get());
  });
  // Where pages are rendered on a server, effects do not run, and nothing is followed.
  createEffect(() => {
    const update = () => setChanges((count) => count + 1);
    onCleanup(store().subscribe(update));
    update();
  });
  return result;
}

/**
 * An accessor of the record of a key of a collection, now and after every change, until its owner is disposed. Of an
 * index: the first record with this value. Of a database or a client: the bytes of a raw key.
 *
 * ```tsx
 * const product = useValue(shop.products, () => props.id); // product().value
 * ```
 *
 * Source and key may be accessors. The key is compared by value. While it is `undefined`, or the source is, nothing is
 * followed and `isPending` is true. Errors are in `error`.
 */
export function useValue<S extends LiveSource>(
  source: MaybeAccessor<S | undefined>,
  key: MaybeAccessor<GivenKey<S> | undefined>,
): () => ValueResult<ValueOf<S>> {
  return follow(() => valueStore<ValueOf<S>>(access(source), access(key)));
}

/**
 * An accessor of the records of a range of a collection or of an index, now and after every change. Of a database or a
 * client: its raw keys.
 *
 * ```tsx
 * const low = useRange(shop.products.index.byStock, () => ({ lt: limit() }));
 * <For each={low().rows}>{([key, product]) => <li>{product.name}</li>}</For>
 * ```
 *
 * Source and range may be accessors. The range is compared by value; signals that its `where` reads are followed too.
 * Everything else is as for `useValue`.
 */
export function useRange<S extends LiveSource>(
  source: MaybeAccessor<S | undefined>,
  range?: MaybeAccessor<HookRange<S> | undefined>,
): () => RangeResult<KeyOf<S>, ValueOf<S>> {
  const select = selection<KeyOf<S>, ValueOf<S>>();
  const given = () => access(range);
  return follow(
    () => rangeStore<KeyOf<S>, ValueOf<S>>(access(source), given()),
    (result) => select(result, given()),
  );
}

/** An accessor of the status of a client, now and after every change. A database in this realm is always open. */
export function useStatus(client: MaybeAccessor<StatusSource>): () => ClientStatus {
  return follow(() => statusStore(access(client)));
}
