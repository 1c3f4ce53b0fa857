/** The ranges of collections and of indexes that `watch` and `live` follow. */

import type { Bounds } from "../session/key-range.js";
import type { LocalRows } from "../session/live.js";
import type { CollectionContext } from "./catalog.js";
import type { IndexSpace } from "./indexes.js";

/** What a listener is given in the place of a view: a plain object, which stays as it is. */
export type Plain<View> = View extends { snapshot(): infer P } ? P : View;

/** A value that stays as it is: a view becomes a copy. */
export function plain(value: unknown): unknown {
  const view = value as { snapshot?: unknown } | null | undefined;
  return typeof view?.snapshot === "function" ? view.snapshot() : value;
}

/** A range of a collection or, if an index is given, of that. */
export function watchedRange(
  {
    source,
    closers,
    keys,
    codec,
    space,
  }: CollectionContext<unknown, unknown, unknown, never, never>,
  bounds: Bounds,
  index?: IndexSpace,
): LocalRows {
  const range = {
    source,
    closers,
    bounds,
    valueAt: ({ engine }: ReturnType<typeof source>, at: number) => plain(engine.copied(codec, at)),
  };
  const keyspace = () => space.keyspace;
  const keyOf = (bytes: Uint8Array<ArrayBuffer>) => keys.decode(bytes);
  if (index === undefined) return { ...range, keyspace, keyOf };
  const { tuple } = index;
  const recordKey = (entry: Uint8Array<ArrayBuffer>) => entry.slice(tuple.end(entry));
  return {
    ...range,
    keyspace: () => index.keyspace,
    records: { keyspace, keyOf: recordKey },
    keyOf: (entry) => keyOf(recordKey(entry)),
  };
}
