/** Keys and values of one's own: the program may change its bytes before they are sent, or sent again. */

import type { Key, Value } from "../bytes.js";
import type { BatchOperation } from "../database-writes.js";

/** A copy, if it can change. */
export function own<T extends Key | Value>(given: T): T {
  if (given instanceof ArrayBuffer) return given.slice(0) as T;
  if (ArrayBuffer.isView(given)) return bytesOf(given) as unknown as T;
  return given;
}

export function ownAll(operations: readonly BatchOperation[]): BatchOperation[] {
  return Array.from(operations, (one) =>
    one?.type === "set"
      ? { ...one, key: own(one.key), value: own(one.value) }
      : { ...one, key: own(one.key) },
  );
}

/** A copy as bytes. */
export function bytesOf(value: Value): Uint8Array<ArrayBuffer> {
  if (typeof value === "string") return new TextEncoder().encode(value);
  if (value instanceof ArrayBuffer) return new Uint8Array(value.slice(0));
  return new Uint8Array(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
}
