/** `varve/vue`: composables for Vue 3.3 and newer. */

import {
  type ComputedRef,
  computed,
  effectScope,
  getCurrentInstance,
  type MaybeRefOrGetter,
  onMounted,
  shallowRef,
  toValue,
  triggerRef,
  watchEffect,
} from "vue";
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

function follow<T>(of: () => Store<T>, select: (result: T) => T = (result) => result) {
  const store = computed(of);
  const changes = shallowRef(0);
  const result = computed(() => {
    void changes.value;
    return select(store.value.get());
  });
  const update = () => triggerRef(changes);
  // It ends with the scope that is active now.
  const scope = effectScope();
  const start = () =>
    scope.run(() =>
      watchEffect((onCleanup) => {
        onCleanup(store.value.subscribe(update));
        update();
      }),
    );
  // Where pages are rendered on a server, nothing is mounted, and nothing is followed.
  if (getCurrentInstance()) onMounted(start);
  else start();
  return result;
}

/**
 * The record of a key of a collection, now and after every change, until the component is unmounted or the effect scope
 * ends. Of an index: the first record with this value. Of a database or a client: the bytes of a raw key.
 *
 * ```ts
 * const product = useValue(shop.products, () => props.id); // product.value.value, in a template: product.value
 * ```
 *
 * Source and key may be refs or getters. The key is compared by value. While it is `undefined`, or the source is, nothing is
 * followed and `isPending` is true. Keep sources in a `shallowRef`: a `ref` makes proxies of them. Errors are in `error`.
 */
export function useValue<S extends LiveSource>(
  source: MaybeRefOrGetter<S | undefined>,
  key: MaybeRefOrGetter<GivenKey<S> | undefined>,
): ComputedRef<ValueResult<ValueOf<S>>> {
  return follow(() => valueStore<ValueOf<S>>(toValue(source), toValue(key)));
}

/**
 * The records of a range of a collection or of an index, now and after every change. Of a database or a client: its raw keys.
 *
 * ```ts
 * const low = useRange(shop.products.index.byStock, () => ({ lt: limit.value })); // low.value.rows
 * ```
 *
 * Source and range may be refs or getters. The range is compared by value; refs that its `where` reads are followed too.
 * Everything else is as for `useValue`.
 */
export function useRange<S extends LiveSource>(
  source: MaybeRefOrGetter<S | undefined>,
  range?: MaybeRefOrGetter<HookRange<S> | undefined>,
): ComputedRef<RangeResult<KeyOf<S>, ValueOf<S>>> {
  const select = selection<KeyOf<S>, ValueOf<S>>();
  return follow(
    () => rangeStore<KeyOf<S>, ValueOf<S>>(toValue(source), toValue(range)),
    (result) => select(result, toValue(range)),
  );
}

/** The status of a client, now and after every change. A database in this realm is always open. */
export function useStatus(client: MaybeRefOrGetter<StatusSource>): ComputedRef<ClientStatus> {
  return follow(() => statusStore(toValue(client)));
}
