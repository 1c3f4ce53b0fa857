/** Listeners for the writes of keys. */

/** Called with the keyspace of a key and the key's length in the scratch area, before the key is written. */
export type KeyListener = (keyspace: number, keyLength: number) => void;

/** Called with a keyspace, before it or a range of it is cleared. */
export type ClearListener = (keyspace: number) => void;

/** An export that writes one key. */
type KeyWrite = (keyspace: number, keyLength: number, ...more: number[]) => number;

/** The exports that write one key. */
interface KeyWrites {
  readonly set: KeyWrite;
  readonly set_begin: KeyWrite;
  readonly remove: KeyWrite;
  readonly update_begin: KeyWrite;
  readonly touch: KeyWrite;
}

/** The listeners of one engine, and the exports that call them. Without listeners these are the engine's own. */
export class KeyListeners {
  /** The number of listeners. */
  size = 0;
  private readonly listeners: Map<KeyListener, ClearListener> = new Map();

  add(listener: KeyListener, cleared: ClearListener): void {
    this.listeners.set(listener, cleared);
    this.size = this.listeners.size;
  }

  /** Returns whether the listener was there. */
  delete(listener: KeyListener): boolean {
    const wasThere = this.listeners.delete(listener);
    this.size = this.listeners.size;
    return wasThere;
  }

  notifyCleared(keyspace: number): void {
    for (const cleared of this.listeners.values()) cleared(keyspace);
  }

  /** These exports, of which those that write keys call the listeners first. */
  observed<E extends KeyWrites>(exports: E): E {
    if (this.size === 0) return exports;
    const { listeners } = this;
    const before =
      <A extends number[]>(call: (keyspace: number, keyLength: number, ...more: A) => number) =>
      (keyspace: number, keyLength: number, ...more: A): number => {
        for (const listener of listeners.keys()) listener(keyspace, keyLength);
        return call(keyspace, keyLength, ...more);
      };
    const { set, set_begin, remove, update_begin, touch } = exports;
    return {
      ...exports,
      set: before(set),
      set_begin: before(set_begin),
      remove: before(remove),
      update_begin: before(update_begin),
      touch: before(touch),
    };
  }
}
