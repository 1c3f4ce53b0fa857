/** `live`: the contents of a range now and after every change in it. Owners send only what has changed. */

import { KeptRows } from "../session/kept-rows.js";
import { type Begin, subscribed, type Watching, type WatchOptions } from "../session/watching.js";
import { queueMicrotask } from "../util/clock.js";
import type { RowsListener, Subscribe } from "./protocol/client-subscriptions.js";
import type { Watch } from "./protocol/messages.js";
import { allRows, keyFrom, type RowSchema } from "./rows.js";

/** The contents of a range now and after every change, for a listener or a loop. */
export function liveRows<T>(
  add: Subscribe,
  range: unknown,
  wanted: NonNullable<Watch["rows"]>,
  schema: RowSchema | undefined,
  to?: ((rows: T) => void) | WatchOptions,
  more: readonly unknown[] = [],
): Watching | AsyncGenerator<T, void, undefined> {
  const begin: Begin<T> = (listener, onEnd) => {
    const kept = new KeptRows(Object(range).reverse === true);
    let isOver = false;
    // Rows of many buffers are decoded in several tasks, so updates wait for those before them.
    let last: Promise<unknown> = Promise.resolve();
    const onRows: RowsListener = (update) => {
      const { changes, rows } = update;
      last = last.then(async () => {
        if (isOver) return;
        try {
          const values = await allRows(rows.values, { row: "values", schema });
          const { keys } = rows;
          const there = changes.filter(([, version]) => version > 0);
          const pairs = there.map(([order], i) => [
            typeof keys === "string" ? keyFrom(order as string, keys) : keys[i],
            values[i],
          ]);
          if (!kept.apply(update, pairs)) return;
          const list = kept.list() as T;
          // An error that the listener throws does not end the watch.
          queueMicrotask(() => isOver || listener(list));
        } catch (error) {
          if (isOver) return;
          close();
          onEnd(error);
        }
      });
    };
    const end = add(
      onRows,
      (reason) => {
        // After the results that came before, unless the client was closed.
        if (reason === undefined) isOver = true;
        last = last.then(() => {
          if (isOver && reason !== undefined) return;
          isOver = true;
          onEnd(reason);
        });
      },
      wanted,
    );
    const close = () => {
      isOver = true;
      end();
    };
    return close;
  };
  return subscribed(begin, (_, rows) => rows, to, more);
}
