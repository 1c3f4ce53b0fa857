/** What a collection is to those who read and write for it. */

import type { Source } from "../scan.js";
import type { Codec } from "../struct/codec.js";
import type { CollectionSpace } from "./catalogue.js";
import type { Keys } from "./keys.js";

/** Where a collection's records are, and the forms of their keys and values. */
export interface Form<K, View, Writable, Input, Given = K> {
  readonly source: Source;
  readonly space: CollectionSpace;
  readonly keys: Keys<K, Given>;
  readonly codec: Codec<View, Writable, Input>;
}
