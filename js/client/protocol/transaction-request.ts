/** The one message of an optimistic transaction, `commitIf`. */

import type { ExpiryOptions } from "../../session/expiry.js";
import type { Forms } from "./json-values.js";

/** What a transaction has read, and what to write if none of it has changed. */
export interface TransactionRequest {
  readonly reads: readonly TransactionRead[];
  readonly writes: readonly TransactionWrite[];
  /** Why it is made. */
  readonly note?: string | undefined;
  /** Whether what is set keeps its expiry. */
  readonly keepsExpiry?: boolean | undefined;
}

/** A key of a collection, or of the database itself. */
interface TransactionKey {
  readonly key: unknown;
  /** The name of the collection. */
  readonly in?: string | undefined;
}

interface TransactionRead extends TransactionKey {
  /** The version that was read; 0 if the key was missing. */
  readonly version: number;
}

interface TransactionWrite extends TransactionKey {
  readonly type: "set" | "delete";
  /** A deletion has none. */
  readonly value?: unknown;
  readonly forms?: Forms | undefined;
  readonly expiry?: ExpiryOptions | undefined;
}
