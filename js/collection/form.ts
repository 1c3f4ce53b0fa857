/** What a collection is to those who read and write for it. */

import type { Source } from "../scan.js";
import type { Session } from "../session.js";
import type { Codec } from "../struct/codec.js";
import type { CollectionSpace } from "./catalogue.js";
import type { Keys } from "./keys.js";

/** Whose collection it is: the session of the handle, as long as that is open. */
export interface Handle {
  readonly session: Session;
}

/** Where a collection's records are, and the forms of their keys and values. */
export interface Form<K, View, Writable, Input, Given = K> {
  readonly source: Source;
  readonly space: CollectionSpace;
  readonly keys: Keys<K, Given>;
  readonly codec: Codec<View, Writable, Input>;
}
