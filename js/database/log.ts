/** `db.log()`: the log of the file as history, transaction by transaction and record by record. */

import type { Source } from "../session/cursor.js";
import { dispose } from "../util/dispose.js";
import { type LogOptions, selectionOf } from "./log-options.js";
import type { LogItem, LogTransaction } from "./log-records.js";
import { Walk } from "./log-walk.js";

/** A walk as an iterator that a loop may leave early. */
export function iterator<T>(
  walk: Walk,
  next: () => T | undefined,
): IterableIterator<T, undefined> & Disposable {
  const steps: IterableIterator<T, undefined> & Disposable = {
    next() {
      const value = next();
      return value === undefined ? { done: true, value: undefined } : { done: false, value };
    },
    return() {
      walk.stop();
      return { done: true, value: undefined };
    },
    [dispose]: () => walk.stop(),
    [Symbol.iterator]: () => steps,
  };
  return steps;
}

/** The transactions of the log. Damage is thrown; the next step goes on behind it. */
export function transactionsOf(
  source: Source,
  options: LogOptions,
): Iterable<LogTransaction, undefined> {
  const selection = selectionOf(options);
  return {
    [Symbol.iterator]() {
      const walk = new Walk(source, selection);
      return iterator(walk, () => {
        for (;;) {
          const item = walk.nextItem();
          if (item?.type === "gap") continue;
          if (item?.type === "error") throw item.error;
          return item;
        }
      });
    },
  };
}

/** The transactions of the log and their records, gaps and damage, as one stream. */
export function itemsOf(source: Source, options: LogOptions): Iterable<LogItem, undefined> {
  const selection = selectionOf(options);
  return {
    [Symbol.iterator]() {
      const walk = new Walk(source, selection);
      return iterator<LogItem>(walk, () => {
        const record = walk.transaction === undefined ? undefined : walk.nextRecord();
        return record ?? walk.nextItem();
      });
    },
  };
}
