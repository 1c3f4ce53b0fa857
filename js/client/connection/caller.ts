/** What a client asks of its connection: the calls, their options, and the status. */

import type { CALL_NAME } from "../protocol/call-options.js";
import type { Subscribe } from "../protocol/client-subscriptions.js";
import type { Storing } from "../protocol/json-values.js";
import type { ClientProgress } from "../protocol/messages.js";

/** Anything with the message interface of a worker: a `Worker`, or a `MessagePort` on which a database is served. */
export interface WorkerLike {
  // Not Transferable[]: the types of Cloudflare Workers have no such name.
  postMessage(message: unknown, transfer?: object[]): void;
  addEventListener(type: string, listener: (event: Event) => void): void;
  start?(): void;
  terminate?(): void;
  close?(): void;
}

/** The state of the connection to the database, as far as a client knows it. */
export interface ClientStatus {
  /**
   * - `"idle"`: nothing was requested yet, or the last attempt failed
   * - `"starting"`: the worker is being started
   * - `"waiting"`: it waits for an owner
   * - `"opening"`: this client's worker opens the file
   * - `"open"`: an owner answers
   * - `"suspended"`: the page sleeps, and its worker has released the database
   * - `"outdated"`: a newer build of the application has the database; reload the page
   * - `"closed"`: `close()` was called
   */
  readonly state:
    | "idle"
    | "starting"
    | "waiting"
    | "opening"
    | "open"
    | "suspended"
    | "outdated"
    | "closed";
  /** Which worker has the file: this client's own, or that of another tab. */
  readonly owner: "here" | "elsewhere" | undefined;
  /** Why the client waits, in a sentence. */
  readonly reason: string | undefined;
  /**
   * The progress of long work of the worker that has the database, whichever tab it belongs to. Only the
   * clients of that tab receive the progress of opening and migrating.
   */
  readonly progress?: ClientProgress;
}

/** The options of every call of a client. */
export interface CallOptions {
  /**
   * Ends the call when it is aborted, whatever it waits for: it rejects with the signal's reason. A write may
   * have been done all the same.
   */
  signal?: AbortSignal | undefined;
  /**
   * Milliseconds after which the call is no longer done and rejects: more than 0, at most 3,600,000. By
   * default the `timeout` of `connect`.
   */
  timeout?: number | undefined;
  /** @internal */
  [CALL_NAME]?: string;
}

/** Returns a copy of a call's arguments as they are now: the program may change its bytes and objects later. */
export type Args = () => readonly unknown[];

/** Sends calls to the owner. `collection` is `undefined` for raw keys. */
export interface Caller {
  /** The transactions that wait to be retried after a conflict, one at a time. */
  readonly retryQueue: Set<() => void>;
  /** What is called when the client closes. */
  readonly closers: Set<() => void>;
  /** The number of writes that it was asked for. */
  readonly writes: number;
  request(
    call: string,
    args: Args,
    writes: boolean,
    options?: CallOptions,
    collection?: string,
    index?: string,
  ): Promise<unknown>;
  watch(collection: string | undefined, range: unknown, call: string, index?: string): Subscribe;
  /** How a collection stores its values; `undefined` until the worker has sent its list. */
  storingOf(collection: string): Storing;
}
