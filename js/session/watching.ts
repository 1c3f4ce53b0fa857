/** What `watch` and `live` return: of a database and of a client. */

import { badCall, VersionChangedError } from "../errors/index.js";
import { dispose } from "../util/dispose.js";
import { endable } from "../util/loops.js";
import { checkedOptions, noFunction } from "./checked-options.js";

/** A key that has changed. */
export interface KeyChange<K> {
  /** The key. */
  readonly key: K;
  /** Its version now; 0 if the key is missing now. */
  readonly version: number;
}

/** A watch. It ends with `close()` or at the end of a `using` block. */
export interface Watching extends Disposable {
  /** Ends the watch. */
  close(): void;
  /**
   * Resolves when the watch is closed, by anyone, or with its client. Rejects with the reason if it cannot go
   * on: the range is bad, the collection does not exist, a key or value cannot be read.
   */
  readonly ended: Promise<void>;
}

/** Called when a watch has ended: closed with its client, or for a reason. No changes follow. */
export type EndListener = (reason?: unknown) => void;

/** Ends a watch. */
export type End = () => void;

/** The options of a watch without a listener. */
export interface WatchOptions {
  /** Ends the loop when it is aborted: the loop throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** Begins to call a listener. Returns a function that ends it. */
export type Begin<T> = (listener: (value: T) => void, onEnd: EndListener) => End;

/** What `begin` begins, for a listener or as an async iterable. */
export function subscribed<T>(
  begin: Begin<T>,
  merge: (waiting: T, more: T) => T,
  to: ((value: T) => void) | WatchOptions | undefined,
  more: readonly unknown[],
): Watching | AsyncGenerator<T, void, undefined> {
  if (more.length > 0) {
    throw badCall(
      "A watch takes a listener or options, not both. With a listener, close() ends it.",
    );
  }
  if (typeof to !== "function") {
    const waiter: Waiter = { end() {} };
    const { signal } = checkedOptions("A watch", to, ["signal"]);
    return endable(stream(begin, merge, signal, waiter), () => waiter.end());
  }
  if (/Generator/.test(to[Symbol.toStringTag as never])) {
    throw noFunction("A watch");
  }
  let onEnd: EndListener = () => {};
  const ended = new Promise<void>((resolve, reject) => {
    onEnd = (reason) => {
      // The event "outdated" reports that a newer build has the database.
      if (reason === undefined || reason instanceof VersionChangedError) resolve();
      else reject(reason);
    };
  });
  const end = begin(to, onEnd);
  const close = () => {
    end();
    onEnd();
  };
  return { close, ended, [dispose]: close };
}

/** A loop that waits for its next value. */
interface Waiter {
  /** Ends it. */
  end(): void;
}

/** The values as an async iterable. Values that arrive while the loop body runs are merged into one. */
async function* stream<T>(
  begin: Begin<T>,
  merge: (waiting: T, more: T) => T,
  signal: AbortSignal | undefined,
  waiter: Waiter,
): AsyncGenerator<T, void, undefined> {
  let waiting: T | undefined;
  let end: { readonly reason: unknown } | undefined;
  let wake = () => {};
  const abort = () => wake();
  const listener = (value: T) => {
    waiting = waiting === undefined ? value : merge(waiting, value);
    wake();
  };
  const onEnd = (reason?: unknown) => {
    end = { reason };
    wake();
  };
  const close = begin(listener, onEnd);
  waiter.end = onEnd;
  signal?.addEventListener("abort", abort);
  try {
    for (;;) {
      signal?.throwIfAborted();
      const value = waiting;
      waiting = undefined;
      if (value !== undefined) yield value;
      else if (end === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      } else if (end.reason === undefined) return;
      else throw end.reason;
    }
  } finally {
    close();
    signal?.removeEventListener("abort", abort);
  }
}
