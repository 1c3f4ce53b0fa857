/** The client's side of `watch` and `live`. */

import { dispose } from "../dispose.js";
import { keyName, type Seen, type ToOwner } from "./messages.js";

/** A key that has changed. */
export interface KeyChange<K> {
  readonly key: K;
  /** The version that it has now; 0 when it is not there any more. */
  readonly version: number;
}

/** A watch that goes on until it is closed, by `close()` or at the end of a `using` block. */
export interface Watching extends Disposable {
  close(): void;
}

/** Between two renewals, without which an owner takes the client for gone. */
const RENEW_MS = 30_000;

/** A read that failed is repeated after so long. */
const AGAIN_MS = 1_000;

interface One {
  readonly place: string | undefined;
  readonly range: unknown;
  readonly heard: (changes: readonly KeyChange<unknown>[], isFirst: boolean) => void;
  known: Map<string, readonly [key: unknown, version: number]> | undefined;
  number: number;
}

/** All watches of one client. */
export class WatchList {
  private readonly client: number;
  private readonly send: (message: ToOwner) => void;
  private readonly all = new Map<number, One>();
  private lastId = 0;
  private timer: ReturnType<typeof setInterval> | undefined;

  constructor(client: number, send: (message: ToOwner) => void) {
    this.client = client;
    this.send = send;
  }

  add(place: string | undefined, range: unknown, heard: One["heard"]): Watching {
    this.lastId += 1;
    const id = this.lastId;
    this.all.set(id, { place, range, heard, known: undefined, number: 0 });
    this.timer ??= setInterval(() => this.renew(), RENEW_MS);
    this.ask(id);
    const close = () => {
      if (!this.all.delete(id)) return;
      this.send({ type: "unwatch", client: this.client, id });
      if (this.all.size === 0) this.stop();
    };
    return { close, [dispose]: close };
  }

  /** There is another owner, who knows of none of them; or the one that is there may forget them. */
  renew(): void {
    for (const id of this.all.keys()) this.ask(id);
  }

  hear({ id, number, changes }: Seen): void {
    const one = this.all.get(id);
    if (one === undefined) return;
    if (number !== 1 && number !== one.number + 1) {
      // Something in between was lost.
      if (number > one.number) this.ask(id);
      return;
    }
    one.number = number;
    const told = number === 1 ? everything(one, changes) : changes;
    const isFirst = one.known === undefined;
    one.known ??= new Map();
    for (const [key, version] of told) {
      if (version === 0) one.known.delete(keyName(key));
      else one.known.set(keyName(key), [key, version]);
    }
    if (!isFirst && told.length === 0) return;
    one.heard(
      told.map(([key, version]) => ({ key, version })),
      isFirst,
    );
  }

  stop(): void {
    clearInterval(this.timer);
    this.timer = undefined;
    this.all.clear();
  }

  private ask(id: number): void {
    const { place, range } = this.all.get(id) as One;
    this.send({ type: "watch", client: this.client, id, place, range });
  }
}

/** All that is there was told: what of it is new, and what is gone. */
function everything({ known }: One, there: Seen["changes"]): Seen["changes"] {
  if (known === undefined) return there;
  const names = new Set(there.map(([key]) => keyName(key)));
  const gone = [...known].filter(([name]) => !names.has(name));
  return [
    ...there.filter(([key, version]) => known.get(keyName(key))?.[1] !== version),
    ...gone.map(([, [key]]) => [key, 0] as const),
  ];
}

/** Reads all when the watch begins and whenever something has changed, once at a time. */
export function liveRows<T>(
  watch: (heard: () => void) => Watching,
  read: () => Promise<T[]>,
  listener: (rows: T[]) => void,
): Watching {
  let [isReading, isStale, isOver] = [false, false, false];
  const refresh = async () => {
    isStale = true;
    if (isReading) return;
    isReading = true;
    while (isStale && !isOver) {
      isStale = false;
      const rows = await read().catch((error: { code?: unknown }) => {
        isOver ||= /CLOSED|CHANGED/.test(String(error.code));
        // Only that nobody answers passes by itself. All else is the program's to know.
        if (!isOver && error.code !== "VARVE_OWNER_UNAVAILABLE") throw error;
      });
      if (isOver) return;
      if (rows !== undefined) listener(rows);
      else {
        isStale = true;
        await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
      }
    }
    isReading = false;
  };
  const watching = watch(refresh);
  const close = () => {
    isOver = true;
    watching.close();
  };
  return { close, [dispose]: close };
}
