/** Cursors over a collection: those of `session/cursor.ts`, with typed keys and values. */

import { Scan, type Source, type Space, Steps } from "../session/cursor.js";
import type { Bounds } from "../session/key-range.js";
import type { Codec } from "../struct/codec.js";
import type { Keys } from "./keys.js";

/** The records to iterate over, and their codecs. */
interface Walked<K, View> {
  readonly source: Source;
  readonly space: Space;
  readonly keys: Pick<Keys<K>, "given">;
  readonly codec: Pick<Codec<View, unknown, unknown>, "view">;
}

class KeySteps<K> extends Steps<K> {
  private readonly keys: Pick<Keys<K>, "given">;

  constructor({ source, space, keys }: Walked<K, unknown>, bounds: Bounds) {
    super(source, bounds, false, space);
    this.keys = keys;
  }

  next(): IteratorResult<K, undefined> {
    const { walk } = this;
    if (!walk.advance(this.session())) return { done: true, value: undefined };
    walk.count();
    return { done: false, value: this.keys.given(walk.key()) };
  }
}

/** Iterates over values or, with `pair`, over what it makes of each value and its key. */
class ValueSteps<K, View, T> extends Steps<T> {
  private readonly walked: Walked<K, View>;
  private readonly pair: ((key: K, view: View) => T) | undefined;

  constructor(walked: Walked<K, View>, bounds: Bounds, pair?: (key: K, view: View) => T) {
    super(walked.source, bounds, true, walked.space);
    this.walked = walked;
    this.pair = pair;
  }

  next(): IteratorResult<T, undefined> {
    const { walk, pair } = this;
    const { codec, keys } = this.walked;
    const session = this.session();
    while (walk.advance(session)) {
      const at = walk.find(session);
      if (at === 0) continue;
      walk.count();
      const view = this.typed(session, codec, at);
      if (pair === undefined) return { done: false, value: view as unknown as T };
      return { done: false, value: pair(keys.given(walk.key()), view) };
    }
    return { done: true, value: undefined };
  }
}

export function keysIn<K>(walked: Walked<K, unknown>, bounds: Bounds): Scan<K> {
  return new Scan(() => new KeySteps(walked, bounds));
}

export function valuesIn<K, View>(walked: Walked<K, View>, bounds: Bounds): Scan<View> {
  return new Scan(() => new ValueSteps<K, View, View>(walked, bounds));
}

export function entriesIn<K, View>(walked: Walked<K, View>, bounds: Bounds): Scan<[K, View]> {
  return new Scan(() => new ValueSteps(walked, bounds, pair));
}

function pair<K, View>(key: K, view: View): [K, View] {
  return [key, view];
}
