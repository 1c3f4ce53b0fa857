import type { Extent, StoreId, WorkloadId } from "./plan.js";

/** From the page to a store's worker. Each gets one answer. */
export type Command =
  /** Opens the store, after removing what an earlier race has left, and fills it if wanted. */
  | { do: "open"; store: StoreId; name: string; extent: Extent; fill: boolean; remove: boolean }
  | { do: "start"; workload: WorkloadId }
  | { do: "turn" }
  | { do: "finish" }
  | { do: "first drop"; store: StoreId; name: string; extent: Extent; workload: WorkloadId }
  | { do: "cold list"; store: StoreId; name: string; extent: Extent; expected: Contents }
  | { do: "get"; key: string }
  | { do: "set"; key: string; value: Uint8Array }
  | { do: "pairs" }
  /** Closes the store. The answer is what a later worker must find in it. */
  | { do: "close" }
  /** How long a write to a private file takes, and a flush. */
  | { do: "probe" }
  | { do: "remove"; store: StoreId; names: string[] };

/** What a store holds, as a checksum and in words. */
export interface Contents {
  sha256: string;
  words: string;
}

/** The contents, and what they had to be. */
export interface Checked {
  found: Contents;
  expected: Contents;
}

export type Answer = { ok: true; result: unknown } | { ok: false; error: string };

/** Nanoseconds an operation, each of a slice of the store's turn. */
export type Slices = number[];

export function messageOf(error: unknown): string {
  const message = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  const cause = error instanceof Error && error.cause !== undefined ? error.cause : undefined;
  return cause === undefined ? message : `${message} (${messageOf(cause)})`;
}
