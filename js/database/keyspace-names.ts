/** Which collection the records of a keyspace belong to, by the descriptions that the database has of itself. */

import { Catalog, decoded, isDropped } from "../collection/catalog.js";
import { indexKeyspaces } from "../collection/index-counts.js";
import { type Keys, storedKeys } from "../collection/keys.js";
import { RAW, SYSTEM_KEYSPACE } from "../engine/wasm-memory.js";
import type { Session } from "../session/session.js";
import { decoder, encoder } from "../util/text-coders.js";

const PAGE = 1_024;
const COLLECTION = "collection/";

/** A keyspace: its collection and its keys. */
export interface KeyspaceName {
  readonly collection: string | undefined;
  readonly keys: Keys<unknown> | undefined;
}

/** The keyspaces that a walk has met. */
export class KeyspaceNames {
  /** `undefined` for those of index entries, which a walk leaves out. */
  private readonly spaces: Map<number, KeyspaceName | undefined>;

  constructor() {
    this.spaces = new Map([[RAW, { collection: undefined, keys: undefined }]]);
  }

  /** The keyspace of this number, as the database describes it now. */
  of(keyspace: number, session: Session): KeyspaceName | undefined {
    const { spaces } = this;
    const known = spaces.get(keyspace);
    if (known !== undefined || spaces.has(keyspace)) return known;
    this.read(session);
    if (!spaces.has(keyspace)) spaces.set(keyspace, { collection: undefined, keys: undefined });
    return spaces.get(keyspace);
  }

  private read({ engine, settings }: Session): void {
    for (const keyspace of indexKeyspaces(engine)) this.spaces.set(keyspace, undefined);
    if (!settings.ordered) {
      // Without order, names cannot be listed. Those that the program has declared are known.
      for (const { name, keyspace, declaration } of Catalog.of(engine).declared) {
        this.spaces.set(keyspace, { collection: name, keys: keysOf(declaration.key) });
      }
      return;
    }
    let lower: Uint8Array<ArrayBuffer> = encoder.encode(COLLECTION);
    const upper = lower.slice();
    upper[upper.length - 1] = (upper.at(-1) as number) + 1;
    for (;;) {
      const range = { lower, upper, lowerExcluded: true, upperIncluded: false, reverse: false };
      const { bytes, numbers, count } = engine.scan(range, PAGE, false, SYSTEM_KEYSPACE);
      const found = Array.from({ length: count }, (_, i) =>
        bytes.slice(numbers[i], numbers[i + 1]),
      );
      for (const key of found) {
        const descriptor = engine.get(key, SYSTEM_KEYSPACE);
        const stored = descriptor && decoded(key, descriptor);
        if (stored === undefined || isDropped(stored) || this.spaces.get(stored.keyspace)) continue;
        const collection = decoder.decode(key.subarray(COLLECTION.length));
        this.spaces.set(stored.keyspace, { collection, keys: keysOf(stored.json.key) });
      }
      if (count < PAGE) return;
      lower = found.at(-1) as Uint8Array<ArrayBuffer>;
    }
  }
}

/** The codec of stored keys; `undefined` if this version does not know their kind. */
function keysOf(kind: unknown): Keys<unknown> | undefined {
  try {
    return storedKeys(kind as string | readonly unknown[]);
  } catch {
    return undefined;
  }
}
