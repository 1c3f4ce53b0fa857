/** How a walk over the log is sent to a client: a page at a time. */

import type { WireError } from "./messages.js";

/** What the log says about a transaction. In a flat walk, its records follow. */
export interface RemoteLogHead {
  readonly type: "transaction";
  /** Its number, which grows: the version of its first change. `since` takes it. */
  readonly number: number;
  /** When it was written; only transactions with a note have a time. */
  readonly time: Date | undefined;
  /** The note that it was given. */
  readonly note: string | undefined;
  /** The client that asked for it, if that is known: a number that each `connect` has of its own. */
  readonly client: bigint | undefined;
  /** Whether these are no transaction but records that compaction moved here. */
  readonly moved: boolean;
  /** Whether compaction removed a part of the log just before it. */
  readonly afterGap: boolean;
}

/** A record of the log. Everything in it is a copy. */
export interface RemoteLogRecord {
  readonly type: "set" | "delete" | "clear";
  /** The collection; `undefined` for keys outside of collections, and for a collection that is not there any more. */
  readonly collection: string | undefined;
  /** The number of the collection in the file; 0 for keys outside of collections. */
  readonly keyspace: number;
  /** The key, as for `db.log()`; `undefined` for a clear. */
  readonly key: unknown;
  /** A copy of the value, as for `db.log()`; `undefined` if there is none, or if it is not there any more. */
  readonly value: Uint8Array<ArrayBuffer> | undefined;
  /** The version that the change gave the key. */
  readonly version: number;
}

/** Where compaction removed a part of the log. */
export interface RemoteLogGap {
  readonly type: "gap";
}

/** Where the log is damaged. */
export interface DamageOf<E> {
  readonly type: "error";
  readonly error: E;
  /** Position of the damaged bytes in the file. */
  readonly offset: number;
  /** How many bytes. */
  readonly length: number;
}

/** An item of a page. */
export type LogPageItem = RemoteLogHead | RemoteLogRecord | RemoteLogGap | DamageOf<WireError>;

/** How far a walk has come, which the next owner understands too: records never change their places. */
export interface LogCursor {
  /** The sequence of the segment of the last item; sequences grow. */
  readonly sequence: number;
  /** Where the last record ended in that segment. */
  readonly offset: number;
  /** Where in the file the last damage of that segment was; -1 for none. */
  readonly damaged: number;
  /** How many more transactions are wanted. */
  readonly left: number;
}

/** A part of a walk. */
export interface LogPage {
  readonly items: readonly LogPageItem[];
  /** Where it goes on; `null`: at the beginning, `undefined`: nowhere. */
  readonly after?: LogCursor | null | undefined;
}
