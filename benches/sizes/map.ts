import { keyBytes } from "./run.js";
import type { OpenStore, Store } from "./store.js";
import { COUNTER_AT, KEY_BYTES, looked, VALUE_BYTES } from "./workload.js";

/** Pairs by which the memory grows. */
const STEP = 100_000;

/** Contents of closed stores, by folder; nothing is stored elsewhere. */
const closed = new Map<string, Contents>();

interface Contents {
  offsets: Map<string, number>;
  bytes: Uint8Array<ArrayBuffer>;
  free: number[];
  used: number;
}

/**
 * Not a store: a Map from keys to offsets in one buffer, and a new view for each get. It shows the cost of
 * machine and language at this size.
 */
export const openMap: OpenStore = async (folder) => {
  const contents: Contents = closed.get(folder) ?? {
    offsets: new Map(),
    bytes: new Uint8Array(STEP * VALUE_BYTES),
    free: [],
    used: 0,
  };
  const { offsets, free } = contents;

  const allocate = (): number => {
    const at = free.pop() ?? VALUE_BYTES * contents.used++;
    if (at + VALUE_BYTES <= contents.bytes.length) return at;
    const larger = new Uint8Array(Math.max(2 * contents.bytes.length, at + VALUE_BYTES));
    larger.set(contents.bytes);
    contents.bytes = larger;
    return at;
  };
  const view = (at: number) => new Uint8Array(contents.bytes.buffer, at, VALUE_BYTES);

  const store: Store = {
    name: "Map (memory only)",
    settings:
      "a Map from keys to offsets in one ArrayBuffer, a new view for each get; nothing is stored",
    gets(keys) {
      let sum = 0;
      for (let i = 0; i < keys.length; i++) sum += looked(view(offsets.get(keys[i]!)!));
      return sum;
    },
    sets(keys, values, from, to) {
      const mask = values.length - 1;
      for (let i = from; i < to; i++) {
        const key = keys[i]!;
        let at = offsets.get(key);
        if (at === undefined) {
          at = allocate();
          offsets.set(key, at);
        }
        contents.bytes.set(values[i & mask]!, at);
      }
    },
    updates(keys, from, to) {
      for (let i = from; i < to; i++) {
        const { bytes } = contents;
        const at = offsets.get(keys[i]!)! + COUNTER_AT;
        for (let byte = at; byte < at + 4; byte++) {
          bytes[byte] = bytes[byte]! + 1;
          if (bytes[byte] !== 0) break;
        }
      }
    },
    deletes(keys, from, to) {
      for (let i = from; i < to; i++) {
        free.push(offsets.get(keys[i]!)!);
        offsets.delete(keys[i]!);
      }
    },
    pairs(visit) {
      const bytes = new Uint8Array(KEY_BYTES);
      for (const key of [...offsets.keys()].sort()) {
        visit(keyBytes(key, bytes), view(offsets.get(key)!));
      }
    },
    close() {
      closed.set(folder, contents);
    },
  };
  return store;
};
