/** Walks over the log of a remote database. */

import type { LogOptions } from "../database/log-options.js";
import type { CallOptions } from "./connection/caller.js";
import { fromWire } from "./protocol/errors.js";
import type {
  DamageOf,
  LogCursor,
  LogPage,
  RemoteLogGap,
  RemoteLogHead,
  RemoteLogRecord,
} from "./protocol/log-pages.js";

/** The options of `client.log`. `timeout` applies to each request that it makes. */
export interface RemoteLogOptions extends LogOptions, CallOptions {}

/** Where the log is damaged. The walk goes on behind it. */
export type RemoteLogDamage = DamageOf<Error>;

/** What a flat walk gives. */
export type RemoteLogItem = RemoteLogHead | RemoteLogRecord | RemoteLogGap | RemoteLogDamage;

/** A transaction of the log, and its records in the order in which they were written. */
export interface RemoteLogTransaction extends RemoteLogHead, AsyncIterable<RemoteLogRecord> {}

/** Requests a part of the walk with this number; with `undefined` its end. */
export type LogRequest = (walk: number, after?: LogCursor | null) => Promise<unknown>;

/** A walk as one stream. */
export async function* logItems(request: LogRequest): AsyncGenerator<RemoteLogItem, undefined> {
  const walk = Math.floor(Math.random() * Number.MAX_SAFE_INTEGER);
  let after: LogCursor | null | undefined = null;
  try {
    while (after !== undefined) {
      const page = (await request(walk, after)) as LogPage;
      for (const item of page.items) {
        yield item.type === "error" ? { ...item, error: fromWire(item.error) } : item;
      }
      after = page.after;
    }
  } finally {
    // Frees the memory of a walk that goes on. Without an answer, the owner forgets it by itself.
    if (after) request(walk).catch(() => {});
  }
  return undefined;
}

/** The transactions of a walk. Damage is thrown; the next step goes on behind it. */
export function logTransactions(
  request: LogRequest,
): AsyncIterableIterator<RemoteLogTransaction, undefined> {
  const items = logItems(request);
  let ahead: RemoteLogItem | undefined;
  let current: RemoteLogHead | undefined;
  let last: Promise<unknown> = Promise.resolve();
  /** Runs a step after those before it. */
  const inTurn = <T>(step: () => Promise<T | undefined>): Promise<IteratorResult<T, undefined>> => {
    const turn = last.then(step);
    last = turn.catch(() => {});
    return turn.then((value) =>
      value === undefined ? { done: true, value: undefined } : { done: false, value },
    );
  };
  const take = async () => {
    const item = ahead ?? (await items.next()).value;
    ahead = undefined;
    return item;
  };
  const recordsOf = (head: RemoteLogHead) => {
    const next = () =>
      inTurn(async () => {
        if (current !== head) return undefined;
        const item = await take();
        if (item !== undefined && "version" in item) return item;
        current = undefined;
        ahead = item;
        return undefined;
      });
    const records: AsyncIterableIterator<RemoteLogRecord, undefined> = {
      next,
      [Symbol.asyncIterator]: () => records,
    };
    return records;
  };
  const transactions: AsyncIterableIterator<RemoteLogTransaction, undefined> = {
    next: () =>
      inTurn(async () => {
        for (;;) {
          const item = await take();
          if (item?.type === "error") {
            current = undefined;
            throw item.error;
          }
          if (item === undefined || item.type === "transaction") {
            current = item;
            return item && { ...item, [Symbol.asyncIterator]: () => recordsOf(item) };
          }
        }
      }),
    return: () => inTurn(() => items.return(undefined).then(() => undefined)),
    [Symbol.asyncIterator]: () => transactions,
  };
  return transactions;
}
