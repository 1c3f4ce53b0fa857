/** The keys of a collection: how they are written for the engine, read back, and bounded. */

import type { Engine } from "../engine.js";
import { badArgument } from "../errors.js";
import { type Bounds, bounded, boundsOf } from "../range.js";

/** Which keys of a collection are meant, and in which order. What is given holds all at once. */
export interface KeyRange<K, Bound = K, Prefix = Bound> {
  /** Only keys after this one. Not together with `gte`. */
  gt?: Bound | undefined;
  /** Only this key and those after it. Not together with `gt`. */
  gte?: Bound | undefined;
  /** Only keys before this one. Not together with `lte`. */
  lt?: Bound | undefined;
  /** Only this key and those before it. Not together with `lt`. */
  lte?: Bound | undefined;
  /** Only keys that begin so. */
  prefix?: Prefix | undefined;
  /** Goes on behind this key, in the direction of the walk: the last one of the page before. */
  after?: K | undefined;
  /** From the last key to the first. `false` when left out. */
  reverse?: boolean | undefined;
  /** At most so many: the first ones, or with `reverse` the last ones. */
  limit?: number | undefined;
}

/** The kind of a collection's keys. */
export interface Keys<K> {
  /** As it is stored with the collection. */
  readonly kind: string | readonly unknown[];
  /** Writes a key into the engine's scratch area and gives its length. */
  encode(engine: Engine, key: K): number;
  /** The key, of the form that a walk has it in. */
  given(key: string | Uint8Array<ArrayBuffer>): K;
  bounds(call: string, range: KeyRange<K> | undefined): Bounds;
}

/** Keys that are strings: their UTF-8 as it is. */
export const stringKeys: Keys<string> = {
  kind: "string",

  encode(engine, key) {
    if (typeof key !== "string") throw badArgument("The keys of this collection are strings.", key);
    return engine.encodeKey(key);
  },

  given(key) {
    return key as string;
  },

  bounds(call, range) {
    return rawBounds(call, range);
  },
};

/** The bounds of keys that are stored as they are. */
function rawBounds(call: string, given: KeyRange<string> | undefined): Bounds {
  if (typeof given !== "object" || given === null) return boundsOf(call, given);
  const { after, ...range } = given;
  const bounds = boundsOf(call, range);
  if (after === undefined) return bounds;
  const behind = boundsOf(call, range.reverse === true ? { lt: after } : { gt: after });
  const { lower, upper } = bounds;
  return bounded(
    call,
    range,
    [
      lower && { key: lower, included: !bounds.lowerExcluded },
      behind.lower && { key: behind.lower, included: false },
    ],
    [
      upper && { key: upper, included: bounds.upperIncluded },
      behind.upper && { key: behind.upper, included: false },
    ],
    false,
  );
}
