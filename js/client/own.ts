/** Keys and values of one's own: the program may change its bytes before they are sent, or sent again. */

import type { Bytes, Key, Value } from "../bytes.js";
import type { BatchOperation } from "../database-writes.js";

export function isBytes(given: unknown): given is Bytes {
  return given instanceof ArrayBuffer || ArrayBuffer.isView(given);
}

/** A copy, if it can change. */
export function own<T extends Key | Value>(given: T): T {
  return isBytes(given) ? (bytesOf(given) as unknown as T) : given;
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
  const { buffer = value as ArrayBuffer, byteOffset, byteLength } = value as Partial<Uint8Array>;
  return new Uint8Array(new Uint8Array(buffer, byteOffset, byteLength));
}
